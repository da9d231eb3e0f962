// Entry points of the CUDA kernels of this family. Arguments are checked, the contents of device arrays are not.
#pragma once

#include <vector>

#include "tenor/tensor.h"

namespace tenor::cuda {

struct RopeTensors {
  const Tensor &x, &cos, &sin;
  const Tensor& positions;  ///< undefined: token s of its sequence stands at s; else broadcast to x's dims before [H, D]
  const Tensor& out;
};
/// A token whose position lies outside the tables passes through unturned, and raises the stream's flag.
void rope(const RopeTensors& tensors, int64_t rotary_dim, bool interleaved);

/// cos, sin [maxpos, frequencies.size()], dense float32, of position * frequency, times magnitude.
void rope_tables(const std::vector<double>& frequencies, double magnitude, const Tensor& cos, const Tensor& sin);

}  // namespace tenor::cuda
