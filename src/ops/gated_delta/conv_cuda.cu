// causal_conv1d on CUDA: the kernel for any layout, number of taps and type, and which kernel takes a call.
#include "src/ops/gated_delta/conv_cuda.cuh"
#include "src/ops/gated_delta/gated_delta_around_kernels.h"
#include "src/ops/gated_delta/gated_delta_launch.h"

namespace tenor::delta {
namespace {

/// Blocks: parts of a sequence's outputs, then sequences.
template <class T, class C = core::Compute<T>>
__global__ void __launch_bounds__(kConvThreads) conv_kernel(const __grid_constant__ ConvArgs p, unsigned parts) {
  const int64_t n = blockIdx.x / parts, part = blockIdx.x % parts;
  const int64_t place = place_of(p.sequences, n);
  if (place < 0) return;
  const DeviceSequence s(p.sequences, n);
  const bool from_state = starts_from_state(p.sequences, n);
  const int64_t all = s.length * p.channels;
  for (int64_t i = part * kConvThreads + threadIdx.x; i < all; i += int64_t{parts} * kConvThreads) {
    const int64_t t = p.along_channels ? i / p.channels : i % s.length,
                  channel = p.along_channels ? i % p.channels : i / s.length;
    C sum = p.bias.data ? p.bias.template at<T>(channel) : C(0);
    for (int64_t w = 0; w < p.taps; ++w)
      sum += p.weight.template at<T>(channel, w) * input_at<T>(p, s, place, from_state, channel, t - p.taps + 1 + w);
    place_in<T>(p.y, s, channel, t)[0] = cuda::convert<T>(p.silu ? silu(sum) : sum);
  }
}

/// The last inputs of every sequence, a thread a channel.
template <class T>
__global__ void __launch_bounds__(kConvThreads) conv_state_kernel(const __grid_constant__ ConvArgs p, unsigned parts) {
  const int64_t n = blockIdx.x / parts, channel = int64_t{blockIdx.x % parts} * kConvThreads + threadIdx.x;
  const int64_t place = place_of(p.sequences, n);
  if (place < 0 || channel >= p.channels) return;
  store_conv_state<T>(p, DeviceSequence(p.sequences, n), place, starts_from_state(p.sequences, n), channel);
}

template <class T>
void launch_any(const ConvArgs& p, const Conv& c) {
  constexpr const char* kOp = "causal_conv1d";
  const Device device = c.x.device();
  const auto parts = static_cast<unsigned>(std::clamp<int64_t>(c.steps * c.channels / kConvThreads / 4, 1, 4096));
  if (c.steps > 0)
    cuda::launch(kOp, conv_kernel<T>, {dim3(blocks_of(kOp, parts, 1, c.sequences)), dim3(kConvThreads)}, device, p,
                 parts);
  const auto a_state = static_cast<unsigned>((c.channels + kConvThreads - 1) / kConvThreads);
  if (c.taps > 1)
    cuda::launch(kOp, conv_state_kernel<T>, {dim3(blocks_of(kOp, a_state, 1, c.sequences)), dim3(kConvThreads)}, device,
                 p, a_state);
}

/// Whether `count` of x's elements along a dim may be read at once: side by side, and everything a multiple of them
/// apart.
bool has_vectors(const Tensor& x, int along, int count) {
  const int bytes = static_cast<int>(item_size(x.dtype())) * count;
  bool fits = x.stride(along) == 1 && x.shape(along) % count == 0 && cuda::is_aligned(x.raw(), 0, 1, bytes);
  for (int d = 0; d < 3; ++d) fits = fits && (d == along || x.shape(d) == 1 || x.stride(d) % count == 0);
  return fits;
}

template <class T, int kTaps>
void launch_steps(const ConvArgs& p, const Conv& c) {
  constexpr const char* kOp = "causal_conv1d";
  constexpr int V = cuda::kVector<T>;
  const int64_t vectors = (c.steps + V - 1) / V;
  int log_width = 0;
  while ((1 << log_width) < std::min<int64_t>(vectors, kConvThreads)) ++log_width;
  const int64_t width = int64_t{1} << log_width, rows = kConvThreads / width;
  // Several vectors a thread hide each other's way where there are threads enough for every multiprocessor.
  const bool many = vectors * c.channels * c.sequences > int64_t{8} * 1024 * cuda::multiprocessors(c.x.device());
  const int64_t run = many ? 4 : 1, parts = (vectors + width * run - 1) / (width * run),
                groups = (c.channels + rows - 1) / rows;
  const bool is_wide = has_vectors(c.x, 2, V) && has_vectors(c.y, 2, V);
  cuda::launch(kOp, is_wide ? conv_steps_kernel<T, kTaps, true> : conv_steps_kernel<T, kTaps, false>,
               {dim3(blocks_of(kOp, parts, groups, c.sequences)), dim3(kConvThreads)}, c.x.device(), p,
               static_cast<unsigned>(parts), static_cast<unsigned>(groups), log_width, static_cast<unsigned>(run));
}

template <class T, int kTaps>
void launch_channels(const ConvArgs& p, const Conv& c) {
  constexpr const char* kOp = "causal_conv1d";
  const int64_t vectors = c.channels / kConvChannels, all = c.packed() ? c.steps : c.steps * c.sequences;
  const int64_t wanted = vectors * all / (int64_t{1024} * cuda::multiprocessors(c.x.device()));
  const int64_t run = std::clamp<int64_t>(wanted / 4 * 4, 4, 64);  // steps a thread: no longer than leaves all busy
  const int64_t parts = std::max<int64_t>(1, ((c.steps + run - 1) / run * vectors + kConvThreads - 1) / kConvThreads);
  cuda::launch(kOp, conv_channels_kernel<T, kTaps>, {dim3(blocks_of(kOp, parts, 1, c.sequences)), dim3(kConvThreads)},
               c.x.device(), p, static_cast<unsigned>(parts), static_cast<unsigned>(run));
}

/// The kernels that read inputs once, for so many taps; false where the call has another layout.
template <class T, int kTaps>
bool launch_windows(const ConvArgs& p, const Conv& c) {
  if (c.taps != kTaps || c.steps == 0 || c.channels == 0) return false;
  if (has_vectors(c.x, 1, kConvChannels) && has_vectors(c.y, 1, kConvChannels))
    return launch_channels<T, kTaps>(p, c), true;
  if (c.packed() || p.along_channels || c.steps > INT32_MAX) return false;
  return launch_steps<T, kTaps>(p, c), true;
}

}  // namespace

void conv_cuda(const Conv& c) {
  constexpr const char* kOp = "causal_conv1d";
  const cuda::DeviceGuard guard(c.x.device());
  ConvArgs p{};
  p.sequences = device_sequences(kOp, c.x, c.sequences, c.steps, c.cu_seqlens, c.state_indices, c.has_initial,
                                 c.last.shape(0), c.first.defined());
  zero_unclaimed_cuda(kOp, p.sequences, c.y, c.channels);
  if (c.sequences == 0) return;
  const auto rows = [](const Tensor& x) { return Rows{x.raw(), x.stride(0), x.stride(1), x.stride(2), 0}; };
  const auto states = [](const Tensor& x) {
    return x.defined() ? States{x.raw(), x.stride(0), x.stride(1), x.stride(2), 0} : States{};
  };
  p.x = rows(c.x), p.y = rows(c.y), p.first = states(c.first), p.last = states(c.last);
  p.weight = parameter(c.weight), p.bias = parameter(c.bias);
  p.channels = c.channels, p.taps = c.taps, p.silu = c.silu;
  p.along_channels = c.x.stride(1) == 1 && c.x.stride(2) != 1;
  core::visit_float(c.x.dtype(), [&]<class T>() {
    if constexpr (!std::is_same_v<T, double>)
      if (launch_windows<T, 4>(p, c) || launch_windows<T, 3>(p, c) || launch_windows<T, 2>(p, c)) return;
    launch_any<T>(p, c);
  });
}

}  // namespace tenor::delta
