// The kernels' problem: rows along one dim of x, the results along the same dim of values and indices.
#pragma once

#include "src/ops/sort/key.h"
#include "tenor/tensor.h"

namespace tenor::cpu {

/// The index tuples of all dims but one, and where each stands in three tensors.
struct RowSpace {
  static constexpr int kTensors = 3;  ///< x, values, indices
  Dims sizes;
  Dims strides[kTensors];
  int64_t count = 1;
};

/// Walks a RowSpace from any row on.
class RowCursor {
 public:
  RowCursor(const RowSpace& space, int64_t first);
  void next();
  int64_t offset(int tensor) const { return offsets_[tensor]; }

 private:
  const RowSpace& space_;
  Dims at_;
  int64_t offsets_[RowSpace::kTensors] = {};
};

struct RowOrder {
  /// values and indices may be undefined, and may lack the dim.
  RowOrder(const Tensor& x, int dim, KeyCode code, const Tensor& values, const Tensor& indices);

  RowSpace rows;
  KeyCode code;
  size_t width;   ///< bytes of an element
  int64_t n = 1;  ///< elements of a row
  const void* x;
  void* values = nullptr;  ///< nothing when not wanted
  int64_t* indices = nullptr;
  int64_t strides[RowSpace::kTensors] = {};  ///< along the dim
};

/// The first k elements of every row's order, written in that order: by a sort of all, or by selection.
void sort_rows(const RowOrder& problem, int64_t k);
void topk_rows(const RowOrder& problem, int64_t k);
/// Element k (from 0) of every row's order; with nan_wins the first NaN where there is one. n > 0.
void select_rows(const RowOrder& problem, int64_t k, bool nan_wins);

/// The order of a contiguous x as one row, for unique: the element at every place, and whether it differs from the one
/// before it (true at 0; NaN differ from each other).
void order_whole(const Tensor& x, KeyCode code, int64_t* order, bool* starts);

}  // namespace tenor::cpu
