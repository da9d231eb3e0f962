// Windows and bins in 32 bits, whose divisions are products: what kernels count by where sizes allow. pool_window.h is
// what they mean; gather_fast() says where they fit.
#pragma once

#include <optional>

#include "src/cuda/layout.h"
#include "src/ops/pool/pool_window.h"

namespace tenor::cuda {

/// Indices first, first + step, ... below last.
struct FastRange {
  int first, last, step;
};

struct FastDim {
  int input, output, kernel, span, stride, dilation, before, end;  ///< end: one past the padded input's last
  bool bins;
  Divider by_stride, by_dilation, by_input, by_output;

#ifdef __CUDACC__
  __device__ __forceinline__ FastRange inputs(int out) const {
    if (bins) return {quotient(out * input, by_output), quotient((out + 1) * input + output - 1, by_output), 1};
    const int begin = out * stride - before;
    if (dilation == 1) return {max(begin, 0), min(begin + kernel, input), 1};
    const int first = begin < 0 ? quotient(dilation - 1 - begin, by_dilation) : 0;
    const int last = begin < input ? min(kernel, quotient(input - begin - 1, by_dilation) + 1) : 0;
    if (first >= last) return {0, 0, 1};
    return {begin + first * dilation, begin + (last - 1) * dilation + 1, dilation};
  }
  __device__ __forceinline__ FastRange readers(int in) const {
    if (bins) return {quotient(in * output, by_input), quotient((in + 1) * output + input - 1, by_input), 1};
    const int reach = in + before, behind = reach - span + 1;
    return {behind > 0 ? quotient(behind + stride - 1, by_stride) : 0, min(quotient(reach, by_stride) + 1, output), 1};
  }
  template <bool Back>
  __device__ __forceinline__ FastRange reach(int target) const {
    if constexpr (Back) return readers(target);
    return inputs(target);
  }
  /// Of an average, whose windows have no dilation.
  __device__ __forceinline__ int count(int window, bool padding_too) const {
    if (!bins && padding_too) return min(kernel, end - window * stride + before);
    const FastRange r = inputs(window);
    return r.last - r.first;
  }

 private:
  __device__ __forceinline__ static int quotient(int n, const Divider& by) {
    return static_cast<int>(divide(static_cast<uint32_t>(n), by));
  }
#endif
};

struct FastGather {
  FastDim dim[3];
  pool::PoolGrid source, target;
  bool padding_too;
  double uniform;  ///< as pool::Gather's

#ifdef __CUDACC__
  __device__ __forceinline__ int64_t count(int d, int window) const { return dim[d].count(window, padding_too); }
#endif
};
/// None where 32 bits do not hold every position, or a division's numerator.
std::optional<FastGather> gather_fast(const pool::Gather& g);

}  // namespace tenor::cuda
