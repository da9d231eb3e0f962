// Repairs that a kernel makes itself: results that are NaN because it multiplied the zeros that stand for padding are
// summed again from the taps that read something (conv_plain.h says why). Only a factor that is no finite number makes
// them so. Of an image direction that is the weight, which a kernel looks at as it brings it in; where all of it is
// finite nothing more is done. A weight gradient is looked at as its sums are stored.
#pragma once

#include <type_traits>

#include "src/ops/conv/conv_elements.cuh"

namespace tenor::conv {

template <class T>
__device__ __forceinline__ bool is_nan(T x) {
  const auto wide = cuda::widen(x);
  return wide != wide;
}
template <class T>
__device__ __forceinline__ bool is_finite(T x) {
  return isfinite(cuda::widen(x));
}
/// Whether both 16-bit floats of a word are finite.
template <class T>
__device__ __forceinline__ bool is_finite_pair(uint32_t pair) {
  constexpr uint32_t kExponent = std::is_same_v<T, Float16> ? 0x7c00 : 0x7f80, kHigh = kExponent << 16;
  return (pair & kExponent) != kExponent && (pair & kHigh) != kHigh;
}

/// A part of one written image: what a block, a warp or a thread has stored.
struct ImageBox {
  int n, row, rows, column, columns, channel, channels;
};

/// Whether every tap of a result reads something.
__device__ __forceinline__ bool reads_all_taps(const ConvProblem& p, const Place& at) {
  bool whole = true;
#pragma unroll
  for (int d = 0; d < kSpatial; ++d) {
    const core::WindowDim& w = p.window[d];
    whole &= p.direction == Direction::kForward
                 ? w.taps(at.at[d]).count() == w.kernel
                 : w.stride == 1 && w.output_at(at.at[d], 0) >= 0 && w.output_at(at.at[d], w.kernel - 1) >= 0;
  }
  return whole;
}

/// Sums NaN results of the box again, as far as it lies in the image, that have a tap which reads nothing, or all that
/// are NaN: every `step`-th element from `first` on, of an image of one depth. A call, so that the kernel keeps its
/// registers.
template <class T>
__device__ __noinline__ void mend_box(const ConvProblem& p, const ImageBox& box, int first, int step,
                                      bool everywhere = false) {
  const bool forward = p.direction == Direction::kForward;
  const Image& image = forward ? p.output : p.input;
  const int64_t channels = forward ? p.out_channels : p.channels,
                height = forward ? p.window[1].output : p.window[1].input,
                width = forward ? p.window[2].output : p.window[2].input;
  const int64_t count = int64_t{box.rows} * box.columns * box.channels;
  for (int64_t i = first; i < count; i += step) {
    const int64_t pixel = i / box.channels;
    const Place at{box.n,
                   box.channel + i - pixel * box.channels,
                   {0, box.row + pixel / box.columns, box.column + pixel % box.columns}};
    if (at.channel >= channels || at.at[1] < 0 || at.at[1] >= height || at.at[2] < 0 || at.at[2] >= width) continue;
    if (!is_nan(reinterpret_cast<const T*>(image.data)[offset_of(image, at)])) continue;
    if (!everywhere && reads_all_taps(p, at)) continue;
    store_sum<T>(p, image, at, forward ? forward_sum<T>(p, at) : data_sum<T>(p, at));
  }
}

/// A whole warp's elements of the weight gradient: `sum` of each lane, or, where that is `wrong`, the sum over the
/// outputs whose tap reads something, a row a thread at a time.
template <class T>
__device__ __noinline__ core::Compute<T> mend_gradient(const ConvProblem& p, const WeightPlace& own, bool wrong,
                                                       core::Compute<T> sum) {
  const int lane = threadIdx.x % 32;
  const int64_t rows = p.batch * p.window[0].output * p.window[1].output;
  for (unsigned left = __ballot_sync(~0u, wrong); left != 0; left &= left - 1) {
    const int from = __ffs(left) - 1;
    const auto theirs = [&](int64_t x) { return __shfl_sync(~0u, static_cast<long long>(x), from); };
    const WeightPlace w{theirs(own.out), theirs(own.in), {theirs(own.tap[0]), theirs(own.tap[1]), theirs(own.tap[2])}};
    core::Compute<T> again = 0;
    for (int64_t row = lane; row < rows && again == again; row += 32) again = add_row<T>(again, p, w, row);
    for (int distance = 16; distance > 0; distance /= 2) again += __shfl_xor_sync(~0u, again, distance);
    if (lane == from) sum = again;
  }
  return sum;
}

}  // namespace tenor::conv
