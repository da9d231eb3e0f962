// Class 3, pooling: an output element depends on a window of each plane of x.
//
// x is [N, C, *S] or, without a batch, [C, *S], with the function's number of spatial dims *S, of any strides: images
// whose channels lie together in memory (NHWC) are as fast as those whose rows do (NCHW), and the result keeps x's
// dense dimension order. N and C may be 0, a spatial dim may not (ShapeError). Options take one number for all spatial
// dims or one a dim (ValueError for another count, for a kernel_size, stride, dilation or output_size below 1 and a
// padding below 0). stride is kernel_size where it is not given. padding lies on both sides and is at most half of a
// window's span dilation * (kernel_size - 1) + 1 (ValueError).
//
// In each dim there are floor((size + 2 padding - span) / stride) + 1 outputs, with ceil_mode the division rounded up,
// where a window that would begin in the padding after the image is dropped; none is ShapeError. Adaptive pooling has
// output_size outputs, of which number i reads floor(i size / output_size) to ceil((i + 1) size / output_size).
//
// 16-bit floats are summed in float32; results are rounded once. Every result is the same for any number of threads and
// whatever else lies in the batch; there are no atomics on floats. Cost: x is read once, the result written once (from
// caches, where windows overlap); 1 FLOP an element of a window.
#pragma once

#include <optional>

#include "tenor/tensor.h"

namespace tenor {

/// `indices` (int64) counts within the plane, row-major over the spatial dims; empty unless asked for.
struct MaxPoolResult {
  Tensor values, indices;
};

struct MaxPoolOptions {
  Dims stride = {};
  Dims padding = {0};
  Dims dilation = {1};
  bool ceil_mode = false;
  bool return_indices = false;
  MaxPoolResult out = {};
};
/// The largest element of each window: the first NaN, else the first of equals, in row-major order. x is of integers,
/// float16, bfloat16, float32 or float64 (else DTypeError). A window that meets only padding gives -inf (the lowest
/// integer) and index -1. Without indices the sign of a zero among equal zeros is unspecified.
MaxPoolResult max_pool1d(const Tensor& x, const Dims& kernel_size, const MaxPoolOptions& options = {});
MaxPoolResult max_pool2d(const Tensor& x, const Dims& kernel_size, const MaxPoolOptions& options = {});
MaxPoolResult max_pool3d(const Tensor& x, const Dims& kernel_size, const MaxPoolOptions& options = {});

struct AvgPoolOptions {
  Dims stride = {};
  Dims padding = {0};
  bool ceil_mode = false;
  bool count_include_pad = true;                 ///< padding counts as zeros; what reaches past it never counts
  std::optional<int64_t> divisor_override = {};  ///< not 0 (ValueError)
  Tensor out = {};
};
/// The sum of each window over the number of its elements, or over divisor_override. x is of floats (else DTypeError).
Tensor avg_pool1d(const Tensor& x, const Dims& kernel_size, const AvgPoolOptions& options = {});
Tensor avg_pool2d(const Tensor& x, const Dims& kernel_size, const AvgPoolOptions& options = {});
Tensor avg_pool3d(const Tensor& x, const Dims& kernel_size, const AvgPoolOptions& options = {});

struct LpPoolOptions {
  Dims stride = {};
  bool ceil_mode = false;
  Tensor out = {};
};
/// (sum |x|^norm_type)^(1/norm_type) over the inputs of each window; norm_type = inf: the largest |x|. norm_type > 0
/// (ValueError). Sizes are taken over the largest, so that no power overflows. x is of floats (else DTypeError).
Tensor lp_pool1d(const Tensor& x, double norm_type, const Dims& kernel_size, const LpPoolOptions& options = {});
Tensor lp_pool2d(const Tensor& x, double norm_type, const Dims& kernel_size, const LpPoolOptions& options = {});
Tensor lp_pool3d(const Tensor& x, double norm_type, const Dims& kernel_size, const LpPoolOptions& options = {});

struct AdaptivePoolOptions {
  Tensor out = {};
};
/// The mean of each bin. x is of floats (else DTypeError). One output a plane may take kernels of its own.
Tensor adaptive_avg_pool1d(const Tensor& x, const Dims& output_size, const AdaptivePoolOptions& options = {});
Tensor adaptive_avg_pool2d(const Tensor& x, const Dims& output_size, const AdaptivePoolOptions& options = {});
Tensor adaptive_avg_pool3d(const Tensor& x, const Dims& output_size, const AdaptivePoolOptions& options = {});

struct AdaptiveMaxPoolOptions {
  bool return_indices = false;
  MaxPoolResult out = {};
};
/// The largest element of each bin, as in max_pool.
MaxPoolResult adaptive_max_pool1d(const Tensor& x, const Dims& output_size, const AdaptiveMaxPoolOptions& options = {});
MaxPoolResult adaptive_max_pool2d(const Tensor& x, const Dims& output_size, const AdaptiveMaxPoolOptions& options = {});
MaxPoolResult adaptive_max_pool3d(const Tensor& x, const Dims& output_size, const AdaptiveMaxPoolOptions& options = {});

// ---- gradients: grad_output is of floats and of the result's shape (ShapeError); each gives the gradient of x
// ---------

struct MaxPoolBackwardOptions {
  Tensor out = {};
};
/// Adds each element of grad_output to the place in its plane that `indices` names, in row-major order; -1 names none.
/// `indices` are integers of grad_output's shape (any: several may name one place), input_shape is x's. An index
/// outside of -1..plane-1 is IndexError before anything is written; on CUDA it is dropped and raises the stream's flag.
Tensor max_pool1d_backward(const Tensor& grad_output, const Tensor& indices, const Dims& input_shape,
                           const MaxPoolBackwardOptions& options = {});
Tensor max_pool2d_backward(const Tensor& grad_output, const Tensor& indices, const Dims& input_shape,
                           const MaxPoolBackwardOptions& options = {});
Tensor max_pool3d_backward(const Tensor& grad_output, const Tensor& indices, const Dims& input_shape,
                           const MaxPoolBackwardOptions& options = {});
/// The same: where the indices come from makes no difference.
Tensor adaptive_max_pool1d_backward(const Tensor& grad_output, const Tensor& indices, const Dims& input_shape,
                                    const MaxPoolBackwardOptions& options = {});
Tensor adaptive_max_pool2d_backward(const Tensor& grad_output, const Tensor& indices, const Dims& input_shape,
                                    const MaxPoolBackwardOptions& options = {});
Tensor adaptive_max_pool3d_backward(const Tensor& grad_output, const Tensor& indices, const Dims& input_shape,
                                    const MaxPoolBackwardOptions& options = {});

/// Each input's sum of grad_output / divisor over the windows that cover it; input_shape and the options are
/// avg_pool's.
Tensor avg_pool1d_backward(const Tensor& grad_output, const Dims& input_shape, const Dims& kernel_size,
                           const AvgPoolOptions& options = {});
Tensor avg_pool2d_backward(const Tensor& grad_output, const Dims& input_shape, const Dims& kernel_size,
                           const AvgPoolOptions& options = {});
Tensor avg_pool3d_backward(const Tensor& grad_output, const Dims& input_shape, const Dims& kernel_size,
                           const AvgPoolOptions& options = {});

/// Likewise over bins; their number is grad_output's.
Tensor adaptive_avg_pool1d_backward(const Tensor& grad_output, const Dims& input_shape,
                                    const AdaptivePoolOptions& options = {});
Tensor adaptive_avg_pool2d_backward(const Tensor& grad_output, const Dims& input_shape,
                                    const AdaptivePoolOptions& options = {});
Tensor adaptive_avg_pool3d_backward(const Tensor& grad_output, const Dims& input_shape,
                                    const AdaptivePoolOptions& options = {});

/// Each input's sum of grad_output * sign(x) * (|x| / norm)^(norm_type - 1) over the windows that cover it; a window
/// whose norm is 0 passes nothing on; norm_type = inf: to the first largest |x| (the first NaN). Workspace: the norms
/// of all windows.
Tensor lp_pool1d_backward(const Tensor& grad_output, const Tensor& x, double norm_type, const Dims& kernel_size,
                          const LpPoolOptions& options = {});
Tensor lp_pool2d_backward(const Tensor& grad_output, const Tensor& x, double norm_type, const Dims& kernel_size,
                          const LpPoolOptions& options = {});
Tensor lp_pool3d_backward(const Tensor& grad_output, const Tensor& x, double norm_type, const Dims& kernel_size,
                          const LpPoolOptions& options = {});

}  // namespace tenor
