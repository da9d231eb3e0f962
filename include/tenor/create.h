// Creation: tensors from a shape and a rule, borders around one, triangles of one. Names and dtype rules are PyTorch's:
// float32 unless a dtype is given or the values say otherwise. Without out=, new memory on `device`.
// Errors: ShapeError for a negative size, ValueError for a value that the dtype does not hold (an integer out of
// range, 1.5 or NaN for an integer dtype).
#pragma once

#include <optional>
#include <string_view>

#include "tenor/scalar.h"
#include "tenor/tensor.h"

namespace tenor {

struct CreateOptions {
  std::optional<DType> dtype = {};  ///< none: out's, else what the operator says
  Device device = kCpu;
  Tensor out = {};
};
struct LikeOptions {
  std::optional<DType> dtype = {};    ///< none: x's
  std::optional<Device> device = {};  ///< none: x's
  Tensor out = {};
};

/// Contents undefined. float32.
Tensor empty(const Dims& shape, const CreateOptions& options = {});
/// All 0, all 1. float32.
Tensor zeros(const Dims& shape, const CreateOptions& options = {});
Tensor ones(const Dims& shape, const CreateOptions& options = {});
/// All `value`. bool, int64 or float32, as the value is.
Tensor full(const Dims& shape, const Scalar& value, const CreateOptions& options = {});
/// As above with x's shape, dimension order, dtype and device.
Tensor empty_like(const Tensor& x, const LikeOptions& options = {});
Tensor zeros_like(const Tensor& x, const LikeOptions& options = {});
Tensor ones_like(const Tensor& x, const LikeOptions& options = {});
Tensor full_like(const Tensor& x, const Scalar& value, const LikeOptions& options = {});

/// start, start + step, ... before end: ceil((end - start) / step) values, each start + i * step in float64 (int64 for
/// integers), rounded once. int64 when all three are integers, else float32. @throws ValueError for step 0, a step that
/// leads away from end, or a bound that is not finite.
Tensor arange(const Scalar& start, const Scalar& end, const Scalar& step = 1, const CreateOptions& options = {});
/// `steps` values from start to end, both included, evenly spaced in float64 and rounded once. float32. @throws
/// ValueError for steps < 0.
Tensor linspace(const Scalar& start, const Scalar& end, int64_t steps, const CreateOptions& options = {});
/// [n, m], 1 on the main diagonal, else 0; m defaults to n. float32.
Tensor eye(int64_t n, std::optional<int64_t> m = {}, const CreateOptions& options = {});

struct PadOptions {
  std::string_view mode = "constant";  ///< "constant", "reflect" (without the edge), "replicate" (the edge), "circular"
  Scalar value = 0;                    ///< of constant borders; other modes take only 0 (ValueError)
  Tensor out = {};
};
/// x with borders: pad[0], pad[1] in front of and behind the last dim, pad[2], pad[3] of the one before, and so on; a
/// negative one cuts off. @throws ValueError for an odd count or a bad mode, ShapeError for more pairs than dims, a
/// size below 0, a reflection of the whole dim or more, or a circle of more than the dim.
Tensor pad(const Tensor& x, const Dims& pad, const PadOptions& options = {});

struct TriangleOptions {
  int64_t diagonal = 0;  ///< the last (tril) or first (triu) diagonal kept; above the main one when > 0
  Tensor out = {};
};
/// Matrices x[..., i, j] with 0 where j > i + diagonal. @throws ShapeError below 2 dims.
Tensor tril(const Tensor& x, const TriangleOptions& options = {});
/// The same with 0 where j < i + diagonal.
Tensor triu(const Tensor& x, const TriangleOptions& options = {});

}  // namespace tenor
