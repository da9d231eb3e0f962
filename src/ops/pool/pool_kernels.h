// Entry points of the kernels of both devices. Arguments are checked (of index arrays on CUDA: all but their contents)
// and no result is empty; strides are any.
#pragma once

#include "src/ops/pool/pool_window.h"
#include "tenor/tensor.h"

namespace tenor::pool {

/// What every kernel is told: how windows lie on the image, and the tensors' layouts.
struct Problem {
  const char* op;
  PoolSpace space;
  PoolGrid image;    ///< x, or its gradient
  PoolGrid windows;  ///< the result, or its gradient
  PoolGrid other;    ///< of a third tensor: indices, or x where `image` is its gradient
};

}  // namespace tenor::pool

namespace tenor::cpu {

/// `indices` may be undefined.
void max_pool(const pool::Problem& p, const Tensor& x, const Tensor& values, const Tensor& indices);
void avg_pool(const pool::Problem& p, const pool::PoolDivisor& divisor, const Tensor& x, const Tensor& y);
void avg_pool_backward(const pool::Problem& p, const pool::PoolDivisor& divisor, const Tensor& grad, const Tensor& dx);
/// @throws IndexError for an index outside of -1..plane-1, before anything is written to dx unless that `is_new`
void max_pool_backward(const pool::Problem& p, const Tensor& grad, const Tensor& indices, const Tensor& dx,
                       bool is_new);
/// y is of x's dtype or of the one it is computed in; `places` (int64, may be undefined): the first largest |x|.
void lp_pool(const pool::Problem& p, double norm_type, const Tensor& x, const Tensor& y, const Tensor& places);
/// norms and places (defined for norm_type = inf) are dense in row-major order, norms of the compute type.
void lp_pool_backward(const pool::Problem& p, double norm_type, const Tensor& grad, const Tensor& x,
                      const Tensor& norms, const Tensor& places, const Tensor& dx);

}  // namespace tenor::cpu

namespace tenor::cuda {

void max_pool(const pool::Problem& p, const Tensor& x, const Tensor& values, const Tensor& indices);
void avg_pool(const pool::Problem& p, const pool::PoolDivisor& divisor, const Tensor& x, const Tensor& y);
void avg_pool_backward(const pool::Problem& p, const pool::PoolDivisor& divisor, const Tensor& grad, const Tensor& dx);
/// One output a plane: the mean or the largest of planes that lie in long runs, of 16-bit floats and float32. False:
/// not served.
bool mean_planes(const pool::Problem& p, const Tensor& x, const Tensor& y);
bool max_planes(const pool::Problem& p, const Tensor& x, const Tensor& y);
/// A bad index is dropped and raises the stream's flag.
void max_pool_backward(const pool::Problem& p, const Tensor& grad, const Tensor& indices, const Tensor& dx);
void lp_pool(const pool::Problem& p, double norm_type, const Tensor& x, const Tensor& y, const Tensor& places);
void lp_pool_backward(const pool::Problem& p, double norm_type, const Tensor& grad, const Tensor& x,
                      const Tensor& norms, const Tensor& places, const Tensor& dx);

}  // namespace tenor::cuda
