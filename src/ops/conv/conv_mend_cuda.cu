// Sums results again that are NaN although some tap of theirs lies on padding (conv_plain.h says why). Of an image
// direction's results those at the border are looked at, up to 16 bytes of channels a thread; of a weight gradient all,
// in the order in which they lie.
#include <algorithm>

#include "src/core/type_name.h"
#include "src/core/visit.h"
#include "src/cuda/counters.h"
#include "src/cuda/launch.h"
#include "src/cuda/ptx/dependent_launch.cuh"
#include "src/ops/conv/conv_cuda.h"
#include "src/ops/conv/conv_mend.cuh"

namespace tenor::conv {
namespace {

constexpr int kThreads = 256;

/// Results whose window has no tap on padding: first to last in each dim. Empty where strides leave taps unread.
struct Interior {
  int64_t first[kSpatial], last[kSpatial];
};

Interior interior_of(const ConvProblem& p) {
  Interior in{};
  for (int d = 0; d < kSpatial; ++d) {
    const core::WindowDim& w = p.window[d];
    if (p.direction == Direction::kForward) {
      const int64_t room = w.input - w.span() + w.before;
      in.first[d] = (w.before + w.stride - 1) / w.stride;
      in.last[d] = std::min(w.output, room < 0 ? 0 : room / w.stride + 1);
    } else if (w.stride == 1) {  // input i is read by outputs i + before - span + 1 to i + before
      in.first[d] = std::max<int64_t>(w.span() - 1 - w.before, 0);
      in.last[d] = std::min(w.input, w.output - w.before);
    }
  }
  return in;
}

/// The pixels of an image outside of the interior, counted: depths outside, then heights outside, then the rest.
struct Border {
  uint32_t size[kSpatial], first[kSpatial], last[kSpatial];
  uint32_t depths, heights, pixels;  ///< of the first part, of the first two, of all three

  TENOR_HOST_DEVICE bool has_interior() const { return pixels < size[0] * size[1] * size[2]; }
  __device__ __forceinline__ void find(uint32_t i, int64_t (&at)[kSpatial]) const {
    const auto outside = [&](int d, uint32_t x) { return x < first[d] ? x : x - first[d] + last[d]; };
    if (i < depths) {
      at[2] = i % size[2], i /= size[2], at[1] = i % size[1], at[0] = outside(0, i / size[1]);
    } else if (i < heights) {
      const uint32_t rows = size[1] - (last[1] - first[1]);
      i -= depths;
      at[2] = i % size[2], i /= size[2], at[1] = outside(1, i % rows), at[0] = first[0] + i / rows;
    } else {
      const uint32_t columns = size[2] - (last[2] - first[2]), rows = last[1] - first[1];
      i -= heights;
      at[2] = outside(2, i % columns), i /= columns, at[1] = first[1] + i % rows, at[0] = first[0] + i / rows;
    }
  }
};

Border border_of(const ConvProblem& p) {
  const Interior in = interior_of(p);
  Border b{};
  bool empty = false;
  for (int d = 0; d < kSpatial; ++d) empty = empty || in.first[d] >= in.last[d];
  for (int d = 0; d < kSpatial; ++d) {
    b.size[d] = static_cast<uint32_t>(p.direction == Direction::kForward ? p.window[d].output : p.window[d].input);
    b.first[d] = empty ? 0 : static_cast<uint32_t>(in.first[d]),
    b.last[d] = empty ? 0 : static_cast<uint32_t>(in.last[d]);
  }
  const auto inside = [&](int d) { return b.last[d] - b.first[d]; };
  b.depths = (b.size[0] - inside(0)) * b.size[1] * b.size[2];
  b.heights = b.depths + inside(0) * (b.size[1] - inside(1)) * b.size[2];
  b.pixels = b.heights + inside(0) * inside(1) * (b.size[2] - inside(2));
  return b;
}

/// kVector channels, side by side, of an image's border: channels fastest where they are innermost, else pixels.
template <class T, bool kForward, int kVector>
struct BorderVectors {
  struct alignas(sizeof(T) * kVector) Vector {
    T x[kVector];
  };
  const ConvProblem& p;
  const Border& border;

  __device__ __forceinline__ const Image& image() const { return kForward ? p.output : p.input; }
  __device__ __forceinline__ uint32_t vectors() const {
    return static_cast<uint32_t>((kForward ? p.out_channels : p.channels) / kVector);
  }
  /// Of one image.
  __device__ __forceinline__ uint64_t count() const { return uint64_t{vectors()} * border.pixels; }
  __device__ __forceinline__ Place place(uint64_t i) const {
    const bool innermost = image().channel == 1;
    const uint32_t fast = innermost ? vectors() : border.pixels;
    const auto across =
        i <= UINT32_MAX ? static_cast<uint32_t>(i) / fast : static_cast<uint32_t>(i / fast);  // the longer division
    const auto within = static_cast<uint32_t>(i - uint64_t{across} * fast);
    Place at{0, static_cast<int64_t>(innermost ? within : across) * kVector, {}};
    border.find(innermost ? across : within, at.at);
    return at;
  }
  /// Sums the vector again where a result of it is NaN.
  __device__ __forceinline__ void mend(Place own) const {
    T* const from = reinterpret_cast<T*>(image().data) + offset_of(image(), own);
    const auto stored = *reinterpret_cast<const Vector*>(from);
    bool odd = false;
#pragma unroll
    for (int k = 0; k < kVector; ++k) odd |= is_nan(stored.x[k]);
    if (!odd) return;
    for (int k = 0; k < kVector; ++k, ++own.channel)
      if (is_nan(from[k])) store_sum<T>(p, image(), own, kForward ? forward_sum<T>(p, own) : data_sum<T>(p, own));
  }
};

/// Whether an image's results at its first pixel of the interior are finite. Every tap of theirs reads something, so a
/// weight that is no finite number would show there, in its channel.
template <class T, bool kForward>
__device__ __forceinline__ bool finite_inside(const ConvProblem& p, const Border& border) {
  const Image& image = kForward ? p.output : p.input;
  const auto channels = static_cast<uint32_t>(kForward ? p.out_channels : p.channels);
  Place at{0, 0, {border.first[0], border.first[1], border.first[2]}};
  bool finite = true;
  for (uint32_t c = threadIdx.x; c < channels; c += kThreads) {
    at.channel = c;
    finite &= is_finite(reinterpret_cast<const T*>(image.data)[offset_of(image, at)]);
  }
  return __syncthreads_and(finite);
}

/// Looks at the border itself, if need be: a vector a thread, of every gridDim.y-th image.
template <class T, bool kForward, int kVector>
__global__ void __launch_bounds__(kThreads)
    mend_image(const __grid_constant__ ConvProblem p, const __grid_constant__ Border border) {
  cuda::ptx::wait_for_previous();
  if (border.has_interior() && finite_inside<T, kForward>(p, border)) return;
  const BorderVectors<T, kForward, kVector> all{p, border};
  const uint64_t i = blockIdx.x * uint64_t{kThreads} + threadIdx.x;
  if (i >= all.count()) return;
  Place at = all.place(i);
#pragma unroll 4
  for (at.n = blockIdx.y; at.n < p.batch; at.n += gridDim.y) all.mend(at);
}

/// 16 bytes of elements that lie side by side.
template <class T>
struct alignas(16) Wide {
  static constexpr int kCount = 16 / sizeof(T);
  T x[kCount];
};

/// Looks at the weight, `wide` pieces of 16 bytes, shared by the blocks. A block that finds what is no finite number
/// takes pieces of the border, which `next` deals, until none is left; where all is finite nothing else is read.
template <class T, bool kForward, int kVector>
__global__ void __launch_bounds__(kThreads)
    mend_odd_weight(const __grid_constant__ ConvProblem p, const __grid_constant__ Border border, int64_t wide,
                    int* next) {
  const auto* const weight = reinterpret_cast<const Wide<T>*>(p.weight.data);
  bool finite = true;
#pragma unroll 4
  for (int64_t k = blockIdx.x * int64_t{kThreads} + threadIdx.x; k < wide; k += int64_t{gridDim.x} * kThreads) {
    const Wide<T> some = weight[k];
#pragma unroll
    for (int j = 0; j < Wide<T>::kCount; ++j) finite &= is_finite(some.x[j]);
  }
  const bool all_finite = __syncthreads_and(finite);
  cuda::ptx::wait_for_previous();  // the weight is not what that kernel writes
  if (all_finite) return;
  __shared__ int piece;
  const BorderVectors<T, kForward, kVector> all{p, border};
  const uint64_t each = all.count(), count = each * static_cast<uint64_t>(p.batch);
  for (;;) {
    __syncthreads();
    if (threadIdx.x == 0) piece = atomicAdd(next, 1);
    __syncthreads();
    const uint64_t i = static_cast<uint64_t>(piece) * kThreads + threadIdx.x;
    if (static_cast<uint64_t>(piece) * kThreads >= count) return;
    if (i >= count) continue;
    const uint64_t n = i / each;
    Place at = all.place(i - n * each);
    at.n = static_cast<int64_t>(n);
    all.mend(at);
  }
}

/// The weight's dims, the farthest apart first: how far, which (0 outputs, 1 channels, 2 to 4 taps), how many.
struct WeightOrder {
  int64_t stride[5], size[5];
  int dim[5];
  bool dense;  ///< its elements lie side by side in this order

  __device__ WeightPlace place(int64_t i) const {
    int64_t at[5];
    for (int d = 0; d < 5; ++d) {
      int64_t inner = 1;
      for (int e = d + 1; e < 5; ++e) inner *= size[e];
      at[dim[d]] = i / inner % size[d];
    }
    return {at[0], at[1], {at[2], at[3], at[4]}};
  }
};

WeightOrder order_of(const ConvProblem& p) {
  const Filter& w = p.weight;
  const int64_t sizes[] = {p.out_channels, p.group_channels(), p.window[0].kernel, p.window[1].kernel,
                           p.window[2].kernel},
                strides[] = {w.out, w.in, w.spatial[0], w.spatial[1], w.spatial[2]};
  WeightOrder o{{}, {}, {0, 1, 2, 3, 4}, true};
  const auto apart = [&](int d) { return sizes[d] == 1 ? INT64_MAX : strides[d]; };
  std::stable_sort(o.dim, o.dim + 5, [&](int a, int b) { return apart(a) > apart(b); });
  int64_t inner = 1;
  for (int d = 4; d >= 0; --d) {
    o.size[d] = sizes[o.dim[d]], o.stride[d] = strides[o.dim[d]];
    o.dense = o.dense && (o.size[d] == 1 || o.stride[d] == inner);
    inner *= o.size[d];
  }
  return o;
}

/// Sums element i of a weight gradient again where it is NaN; a whole warp's elements at once.
template <class T>
__device__ void mend_element(const ConvProblem& p, const WeightOrder& order, int64_t i, bool inside, bool everywhere) {
  T* const weight = reinterpret_cast<T*>(p.weight.data);
  const WeightPlace own = order.place(inside ? i : 0);
  bool wrong = inside && is_nan(weight[offset_of(p.weight, own)]);
  if (wrong && !everywhere) {
    bool padded = false;
#pragma unroll
    for (int d = 0; d < kSpatial; ++d) padded |= p.window[d].outputs(own.tap[d]).count() < p.window[d].output;
    wrong = padded;
  }
  if (!__any_sync(~0u, wrong)) return;
  const core::Compute<T> sum = mend_gradient<T>(p, own, wrong, 0);
  if (wrong) weight[offset_of(p.weight, own)] = cuda::convert<T>(sum);
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    mend_weight(const __grid_constant__ ConvProblem p, const __grid_constant__ WeightOrder order, int64_t count,
                bool everywhere) {
  cuda::ptx::wait_for_previous();
  const int64_t i = blockIdx.x * int64_t{kThreads} + threadIdx.x;
  mend_element<T>(p, order, i, i < count, everywhere);
}

inline constexpr int kWideEach = 4;  ///< pieces of 16 bytes that a thread looks at

/// Likewise where elements lie side by side, `wide` pieces of them.
template <class T>
__global__ void __launch_bounds__(kThreads)
    mend_dense_weight(const __grid_constant__ ConvProblem p, const __grid_constant__ WeightOrder order, int64_t wide,
                      bool everywhere) {
  cuda::ptx::wait_for_previous();
  const int64_t first = blockIdx.x * int64_t{kWideEach * kThreads} + threadIdx.x;
  const auto* const weight = reinterpret_cast<const Wide<T>*>(p.weight.data);
  Wide<T> some[kWideEach] = {};
#pragma unroll
  for (int k = 0; k < kWideEach; ++k)
    if (first + k * kThreads < wide) some[k] = weight[first + k * kThreads];
#pragma unroll
  for (int k = 0; k < kWideEach; ++k) {
    bool odd = false;
#pragma unroll
    for (int j = 0; j < Wide<T>::kCount; ++j) odd |= is_nan(some[k].x[j]);
    if (!__any_sync(~0u, odd)) continue;
    const int64_t piece = first + k * kThreads;
    for (int j = 0; j < Wide<T>::kCount; ++j)
      mend_element<T>(p, order, piece * Wide<T>::kCount + j, piece < wide, everywhere);
  }
}

/// The tap of that number.
__device__ __forceinline__ WeightPlace tap_of(const ConvProblem& p, int64_t out, int64_t in, int64_t tap) {
  const int64_t columns = p.window[2].kernel, rows = p.window[1].kernel;
  return {out, in, {tap / columns / rows, tap / columns % rows, tap % columns}};
}

/// Where every pixel of the gradient and of the input is part of some product: a gradient's pixel that is no finite
/// number makes a tap of its output channel so, whatever the input channel, and the other way round. So a warp looks at
/// the taps of an output channel with input channel 0, or of an input channel with output channel 0, and at the rest of
/// their line where one is not finite. (One that ought not to be finite stays so whoever sums it again meanwhile.)
template <class T>
__global__ void __launch_bounds__(kThreads) mend_lines(const __grid_constant__ ConvProblem p) {
  cuda::ptx::wait_for_previous();
  T* const weight = reinterpret_cast<T*>(p.weight.data);
  const int64_t taps = p.taps(), line = (blockIdx.x * int64_t{kThreads} + threadIdx.x) / 32;
  const int lane = threadIdx.x % 32;
  if (line >= p.out_channels + p.channels) return;
  const bool of_output = line < p.out_channels;
  const auto place = [&](int64_t across, int64_t tap) {
    return of_output ? tap_of(p, line, across, tap) : tap_of(p, across, line - p.out_channels, tap);
  };
  bool odd = false;
  for (int64_t tap = lane; tap < taps; tap += 32) odd |= !is_finite(weight[offset_of(p.weight, place(0, tap))]);
  if (!__any_sync(~0u, odd)) return;
  const int64_t count = (of_output ? p.channels : p.out_channels) * taps;
  for (int64_t first = 0; first < count; first += 32) {
    const int64_t i = first + lane < count ? first + lane : 0;
    const WeightPlace own = place(i / taps, i % taps);
    const bool wrong = first + lane < count && is_nan(weight[offset_of(p.weight, own)]);
    if (!__any_sync(~0u, wrong)) continue;
    const core::Compute<T> sum = mend_gradient<T>(p, own, wrong, 0);
    if (wrong) weight[offset_of(p.weight, own)] = cuda::convert<T>(sum);
  }
}

/// Whether every window reads an input and every input is read, of one group. (False says nothing.)
bool uses_all(const ConvProblem& p) {
  for (const core::WindowDim& w : p.window) {
    const int64_t last = (w.output - 1) * w.stride - w.before;  // where the last window begins
    const bool all_read = w.dilation == 1 ? w.stride <= w.kernel : w.stride == 1 && w.output >= w.dilation;
    const bool all_read_some = w.before < w.span() && last < w.input && w.input >= w.dilation;
    if (!all_read || !all_read_some || last + w.span() < w.input) return false;
  }
  return p.groups == 1;
}

/// Elements of the weight in pieces of 16 bytes, or 0 where they do not lie so.
template <class T>
int64_t wide_weight(const ConvProblem& p) {
  const int64_t count = p.out_channels * p.group_channels() * p.taps();
  const bool lies =
      count % Wide<T>::kCount == 0 && order_of(p).dense && reinterpret_cast<uintptr_t>(p.weight.data) % 16 == 0;
  return lies ? count / Wide<T>::kCount : 0;
}

template <class T, bool kForward, int kVector>
void launch_image(const ConvProblem& p, const Border& border, const char* op) {
  const int64_t channels = kForward ? p.out_channels : p.channels, items = border.pixels * (channels / kVector),
                processors = cuda::multiprocessors(p.device);
  const auto blocks_of = [](int64_t count) { return (count + kThreads - 1) / kThreads; };
  // The weight where it is not much more than the border, which lies in pieces.
  const int64_t wide = wide_weight<T>(p), bytes = items * p.batch * kVector * static_cast<int64_t>(sizeof(T));
  if (wide > 0 && wide * 16 <= 2 * bytes) {
    const cuda::ZeroedCounter next(p.device, op);
    const cuda::Grid grid{
        .blocks = static_cast<unsigned>(std::min(blocks_of(wide), 2 * processors)), .threads = kThreads, .early = true};
    return cuda::launch(op, mend_odd_weight<T, kForward, kVector>, grid, p.device, p, border, wide, next.get());
  }
  const int64_t blocks = blocks_of(items), fill = border.has_interior() ? 1 : 8;
  const int64_t waves = std::clamp<int64_t>(fill * processors / blocks, 1, std::min<int64_t>(p.batch, 65535));
  const cuda::Grid grid{
      .blocks = dim3(static_cast<unsigned>(blocks), static_cast<unsigned>(waves)), .threads = kThreads, .early = true};
  cuda::launch(op, mend_image<T, kForward, kVector>, grid, p.device, p, border);
}

template <class T, bool kForward>
void run_image(const ConvProblem& p, const char* op) {
  constexpr int kMost = 16 / sizeof(T);
  const Border border = border_of(p);
  if (border.pixels == 0) return;
  const Image& image = kForward ? p.output : p.input;
  const int64_t channels = kForward ? p.out_channels : p.channels;
  bool vectors = image.channel == 1 && channels % kMost == 0 && reinterpret_cast<uintptr_t>(image.data) % 16 == 0 &&
                 image.batch % kMost == 0;
  for (int d = 0; d < kSpatial; ++d) vectors = vectors && (border.size[d] == 1 || image.spatial[d] % kMost == 0);
  vectors ? launch_image<T, kForward, kMost>(p, border, op) : launch_image<T, kForward, 1>(p, border, op);
}

template <class T>
void run_weight(const ConvProblem& p, bool everywhere, const char* op) {
  bool padded = everywhere;
  for (const core::WindowDim& w : p.window)  // the outermost taps meet it first
    for (const int64_t tap : {int64_t{0}, w.kernel - 1}) padded = padded || w.outputs(tap).count() < w.output;
  if (!padded) return;
  const int64_t count = p.out_channels * p.group_channels() * p.taps(), lines = p.out_channels + p.channels;
  if (everywhere && lines * 32 < count && uses_all(p)) {
    const cuda::Grid grid{
        .blocks = static_cast<unsigned>((lines * 32 + kThreads - 1) / kThreads), .threads = kThreads, .early = true};
    return cuda::launch(op, mend_lines<T>, grid, p.device, p);
  }
  if (const int64_t wide = wide_weight<T>(p); wide > 0) {
    const cuda::Grid grid{.blocks = static_cast<unsigned>((wide + kWideEach * kThreads - 1) / (kWideEach * kThreads)),
                          .threads = kThreads,
                          .early = true};
    return cuda::launch(op, mend_dense_weight<T>, grid, p.device, p, order_of(p), wide, everywhere);
  }
  const cuda::Grid grid{
      .blocks = static_cast<unsigned>((count + kThreads - 1) / kThreads), .threads = kThreads, .early = true};
  cuda::launch(op, mend_weight<T>, grid, p.device, p, order_of(p), count, everywhere);
}

}  // namespace

void cuda_mend(const ConvProblem& p, bool everywhere) {
  constexpr const char* kNames[] = {"conv_forward", "conv_data_backward", "conv_weight_backward"};
  const char* const op = kNames[static_cast<int>(p.direction)];
  core::visit_float(p.dtype, [&]<class T>() {
    if (p.direction == Direction::kWeightBackward) return run_weight<T>(p, everywhere, op);
    if (p.direction == Direction::kForward) return run_image<T, true>(p, op);
    run_image<T, false>(p, op);
  });
}

}  // namespace tenor::conv
