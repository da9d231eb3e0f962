// Creation and triangles on CUDA.
#pragma once

#include "tenor/tensor.h"

namespace tenor::create {

/// target[i] = start + i * step in int64.
void arange_on_device(const char* op, const Tensor& target, int64_t start, int64_t step);
/// target[i] = start + i * step in float64 for i < middle, end - (last - i) * step from there on, rounded once.
void spaced_on_device(const char* op, const Tensor& target, double start, double step, int64_t middle, double end);
/// target = x with 0 where column - row is above (`lower`) or below (otherwise) diagonal, in matrices of the last two
/// dims. x and target may be the same elements.
void triangle_on_device(const char* op, const Tensor& x, const Tensor& target, bool lower, int64_t diagonal);

}  // namespace tenor::create
