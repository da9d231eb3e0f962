// RowWalk: several tensors of one shape, walked row by row by kernels that see dense rows only. Rows that lie strided
// are gathered into scratch memory that stays in cache, a cache line's worth of neighbouring rows at a time, and
// scattered back.
#pragma once

#include <vector>

#include "src/cpu/parallel.h"
#include "tenor/tensor.h"

namespace tenor::cpu {

inline constexpr int kMaxRowOperands = 4;

/// What a kernel gets: `count` rows of `length` elements, dense, of every operand.
struct RowBlock {
  int64_t first;  ///< index of the first row, row-major over the dims outside of the rows
  int64_t count;
  int64_t length;
  int64_t begin;  ///< place of the first element within its whole row (0 unless rows may be cut)
  char* data[kMaxRowOperands];
  int64_t step[kMaxRowOperands];  ///< bytes from row to row

  template <class T>
  T* row(int operand, int64_t r) const {
    return reinterpret_cast<T*>(data[operand] + r * step[operand]);
  }
  /// Elements from a place of a row to the one to ask memory for while the row, read once already, is worked on: the
  /// next row's. Otherwise memory rests while processors work. 0 where the next row is not worth it.
  template <class T>
  int64_t ahead(int operand) const {
    constexpr int64_t kMostBytes = 128 << 10;  // which leave room for both rows in a processor's own cache
    return length * static_cast<int64_t>(sizeof(T)) <= kMostBytes ? step[operand] / static_cast<int64_t>(sizeof(T)) : 0;
  }
};

/// Walks operands of one shape, whose last `row_dims` dims are a row (in their logical order).
///
///     RowWalk walk(x.shape(), 1);
///     walk.read(x);
///     walk.write(out);
///     walk.run([&](const RowBlock& block) { kernel(block, parameters); });
///
/// An output may show exactly the elements of an input, as long as the kernel reads a place before it writes it.
class RowWalk {
 public:
  enum class Rows : uint8_t {
    kWhole,
    kMayBeCut
  };  ///< cut: for elementwise kernels, so that one long row feeds all cores

  RowWalk(const Dims& shape, int row_dims, Rows rows = Rows::kWhole)
      : shape_(shape), row_dims_(row_dims), rows_(rows) {}
  void read(const Tensor& x) { add(x, false); }
  void write(const Tensor& x) { add(x, true); }
  /// Calls kernel(block) from several threads until every row has been visited.
  void run(FunctionRef<void(const RowBlock&)> kernel) const;

 private:
  struct Operand {
    char* data;
    int64_t item;  // bytes
    Dims strides;  // bytes, in the order of shape_
    bool written;
  };
  friend class RowPlan;
  void add(const Tensor& x, bool written);

  Dims shape_;
  int row_dims_;
  Rows rows_;
  std::vector<Operand> operands_;
};

/// x with dim `dim` moved to the end: how an operator over any dim walks its rows.
Tensor dim_last(const Tensor& x, int dim);

/// A vector parameter (gamma, a table row) as dense elements of the compute type: itself where it already is that.
class DenseVector {
 public:
  DenseVector() = default;
  DenseVector(DenseVector&&) = default;
  DenseVector& operator=(DenseVector&&) = default;
  /// `x` is one-dimensional or undefined; `offset` is added in the compute type.
  DenseVector(const Tensor& x, DType compute, double offset = 0);
  /// Null when undefined.
  const void* data() const { return data_; }

 private:
  Tensor keep_;
  std::vector<double> converted_;  // doubles for their alignment
  const void* data_ = nullptr;
};

}  // namespace tenor::cpu
