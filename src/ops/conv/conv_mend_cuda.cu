// Sums results again that are NaN although some tap of theirs lies on padding (conv_plain.h says why). Of an image
// direction's results those at the border are looked at, up to 16 bytes of channels a thread; of a weight gradient all,
// in the order in which they lie.
#include <algorithm>

#include "src/core/type_name.h"
#include "src/core/visit.h"
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

/// kVector channels of one pixel a thread, which lie side by side, of every gridDim.y-th image; channels fastest where
/// they are innermost, else pixels.
template <class T, bool kForward, int kVector>
__global__ void __launch_bounds__(kThreads)
    mend_image(const __grid_constant__ ConvProblem p, const __grid_constant__ Border border, int small_weight) {
  cuda::ptx::wait_for_previous();
  constexpr int kWide = 16 / sizeof(T);
  struct alignas(16) Wide {
    T x[kWide];
  };
  bool finite = true;
#pragma unroll 4
  for (int k = threadIdx.x; k < small_weight / kWide; k += kThreads) {
    const Wide weights = reinterpret_cast<const Wide*>(p.weight.data)[k];
#pragma unroll
    for (int j = 0; j < kWide; ++j) finite &= is_finite(weights.x[j]);
  }
  if (small_weight > 0 && __syncthreads_and(finite)) return;
  const Image& image = kForward ? p.output : p.input;
  const auto vectors = static_cast<uint32_t>((kForward ? p.out_channels : p.channels) / kVector);
  const bool innermost = image.channel == 1;
  struct alignas(sizeof(T) * kVector) Vector {
    T x[kVector];
  };
  const uint64_t i = blockIdx.x * uint64_t{kThreads} + threadIdx.x;
  if (i >= uint64_t{vectors} * border.pixels) return;
  const uint32_t fast = innermost ? vectors : border.pixels;
  const auto across =
      i <= UINT32_MAX ? static_cast<uint32_t>(i) / fast : static_cast<uint32_t>(i / fast);  // the longer division
  const auto within = static_cast<uint32_t>(i - uint64_t{across} * fast);
  Place at{0, static_cast<int64_t>(innermost ? within : across) * kVector, {}};
  border.find(innermost ? across : within, at.at);
  const T* const first = reinterpret_cast<const T*>(image.data) + offset_of(image, at);
#pragma unroll 4
  for (int64_t n = blockIdx.y; n < p.batch; n += gridDim.y) {
    const T* const from = first + n * image.batch;
    const auto stored = *reinterpret_cast<const Vector*>(from);
    bool odd = false;
#pragma unroll
    for (int k = 0; k < kVector; ++k) odd |= is_nan(stored.x[k]);
    if (!odd) continue;
    Place own = at;
    own.n = n;
    for (int k = 0; k < kVector; ++k, ++own.channel)
      if (is_nan(from[k])) store_sum<T>(p, image, own, kForward ? forward_sum<T>(p, own) : data_sum<T>(p, own));
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

template <class T>
__global__ void __launch_bounds__(kThreads)
    mend_weight(const __grid_constant__ ConvProblem p, const __grid_constant__ WeightOrder order, int64_t count,
                bool everywhere) {
  cuda::ptx::wait_for_previous();
  const int64_t i = blockIdx.x * int64_t{kThreads} + threadIdx.x;
  T* const weight = reinterpret_cast<T*>(p.weight.data);
  bool wrong = i < count && is_nan(weight[order.dense ? i : offset_of(p.weight, order.place(i))]);
  if (wrong && !everywhere) {
    const WeightPlace own = order.place(i);
    bool padded = false;
#pragma unroll
    for (int d = 0; d < kSpatial; ++d) padded |= p.window[d].outputs(own.tap[d]).count() < p.window[d].output;
    wrong = padded;
  }
  if (!__any_sync(~0u, wrong)) return;
  const WeightPlace own = order.place(i < count ? i : 0);
  const core::Compute<T> sum = mend_gradient<T>(p, own, wrong, 0);
  if (wrong) weight[offset_of(p.weight, own)] = cuda::convert<T>(sum);
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
  const int64_t items = border.pixels * (vectors ? channels / kMost : channels),
                blocks = (items + kThreads - 1) / kThreads;
  const int64_t waves =
      std::clamp<int64_t>(8 * cuda::multiprocessors(p.device) / blocks, 1, std::min<int64_t>(p.batch, 65535));
  const cuda::Grid grid{
      .blocks = dim3(static_cast<unsigned>(blocks), static_cast<unsigned>(waves)), .threads = kThreads, .early = true};
  constexpr int64_t kSmallWeight = 1 << 14;  // that every block may read
  const int64_t weights = p.out_channels * p.group_channels() * p.taps();
  const bool small = weights <= kSmallWeight && weights % kMost == 0 && order_of(p).dense &&
                     reinterpret_cast<uintptr_t>(p.weight.data) % 16 == 0;
  const int small_weight = small ? static_cast<int>(weights) : 0;
  if (vectors)
    cuda::launch(op, mend_image<T, kForward, kMost>, grid, p.device, p, border, small_weight);
  else
    cuda::launch(op, mend_image<T, kForward, 1>, grid, p.device, p, border, small_weight);
}

template <class T>
void run_weight(const ConvProblem& p, bool everywhere, const char* op) {
  bool padded = everywhere;
  for (const core::WindowDim& w : p.window)  // the outermost taps meet it first
    for (const int64_t tap : {int64_t{0}, w.kernel - 1}) padded = padded || w.outputs(tap).count() < w.output;
  if (!padded) return;
  const int64_t count = p.out_channels * p.group_channels() * p.taps();
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
