// Which depthwise problems have kernels of their own, and their launches.
#include <algorithm>

#include "src/core/visit.h"
#include "src/cuda/launch.h"
#include "src/ops/conv/conv_block_sums.cuh"
#include "src/ops/conv/conv_depthwise.cuh"
#include "src/ops/conv/conv_direct_cuda.h"
#include "tenor/tensor.h"

namespace tenor::conv {
namespace {

/// A thread's channels are one access.
bool vectors(const Image& x, DType dtype, int64_t own, int64_t rows, int64_t columns) {
  const auto bytes = static_cast<uintptr_t>(own) * item_size(dtype);
  return x.channel == 1 && reinterpret_cast<uintptr_t>(x.data) % bytes == 0 && x.batch % own == 0 &&
         (rows == 1 || x.spatial[1] % own == 0) &&
         (columns == 1 || (x.spatial[2] % own == 0 && x.spatial[2] < kMostPixels));
}

DepthwiseShape shape_of(const ConvProblem& p) {
  const bool backward = p.direction == Direction::kDataBackward;
  const Image &source = backward ? p.output : p.input, &other = backward ? p.input : p.output;
  DepthwiseShape s{};
  s.batch = narrow(p.batch), s.channels = narrow(p.channels);
  place_windows(s, p);
  s.source = source.data, s.source_batch = source.batch, s.source_row = source.spatial[1];
  s.source_pixel = narrow(source.spatial[2]), s.other_pixel = narrow(other.spatial[2]);
  s.other_batch = other.batch, s.other_row = other.spatial[1];
  s.result = other.data, s.grad = p.output.data;
  s.bias = p.bias, s.bias_stride = p.bias_stride;
  return s;
}

/// The weight as [kernel, kernel, channels], from the last tap on for the data direction.
template <class T>
__global__ void turn_weight(const __grid_constant__ ConvProblem p, T* to) {
  const int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x, taps = p.taps();
  if (i >= taps * p.channels) return;
  const int64_t channel = i % p.channels, at = i / p.channels;
  const int64_t tap = p.direction == Direction::kForward ? at : taps - 1 - at;
  to[i] = reinterpret_cast<const T*>(
      p.weight.data)[channel * p.weight.out + tap / p.window[2].kernel * p.weight.spatial[1] +
                     tap % p.window[2].kernel * p.weight.spatial[2]];
}

template <class T, int kSize>
void run_sized(const ConvProblem& p) {
  constexpr int kThreads = 256, kBlocks = 1056;  // that fill any device
  DepthwiseShape s = shape_of(p);
  s.strips = (s.out_width + kStrip<kSize> - 1) / kStrip<kSize>;
  const dim3 threads(kDepthwiseLanes, kDepthwiseWarps);
  const int tiles = (s.channels + kDepthwiseChannels<kSize> - 1) / kDepthwiseChannels<kSize>;
  const int64_t blocks = std::max<int64_t>(int64_t{s.batch} * s.strips * tiles / kDepthwiseWarps, 1);
  // Bands so long that what two of them both read counts little, as long as there are enough.
  const int wanted =
      static_cast<int>(std::clamp<int64_t>(kBlocks / blocks, 1, std::max(1, s.out_height / (2 * kSize))));
  s.band_rows = (s.out_height + wanted - 1) / wanted;
  s.bands = (s.out_height + s.band_rows - 1) / s.band_rows;
  const int items = s.batch * s.bands * s.strips, groups = (items + kDepthwiseWarps - 1) / kDepthwiseWarps;
  const int64_t count = kSize * kSize * p.channels;
  const auto whole = static_cast<unsigned>((count + kThreads - 1) / kThreads);
  if (p.direction != Direction::kWeightBackward) {
    const char* op = p.direction == Direction::kForward ? "conv_forward" : "conv_data_backward";
    const Tensor weight = Tensor::empty({count}, p.dtype, p.device);
    cuda::launch(op, turn_weight<T>, {whole, kThreads}, p.device, p, static_cast<T*>(weight.raw()));
    s.weight = weight.raw();
    return cuda::launch(op, depthwise_image<T, kSize>, {dim3(groups, tiles), threads}, p.device, s, p);
  }
  const int ranges = std::clamp(kBlocks / tiles, 1, groups);
  const Tensor sums = Tensor::empty({ranges, kSize * kSize, p.channels}, float32, p.device);
  s.sums = sums.data<float>();
  constexpr const char* kOp = "conv_weight_backward";
  cuda::launch(kOp, depthwise_weight<T, kSize>, {dim3(ranges, tiles), threads}, p.device, s);
  launch_block_sums<T>(p, s.sums, count, ranges, DepthwiseTaps(p));
}

}  // namespace

bool depthwise_takes(const ConvProblem& p) {
  const core::WindowDim &H = p.window[1], &W = p.window[2];
  if (p.group_channels() != 1 || p.group_outputs() != 1 || p.dtype == DType::kFloat64) return false;
  if (!has_square_window(p, {3, 5, 7}, 1) || !fits_direct(p)) return false;
  const int64_t own = visit_window(H.kernel, []<int kSize>() { return kOwnChannels<kSize>; });
  return p.channels % own == 0 && vectors(p.input, p.dtype, own, H.input, W.input) &&
         vectors(p.output, p.dtype, own, H.output, W.output);
}

void depthwise_run(const ConvProblem& p) {
  if (depthwise_ring_run(p)) return;
  visit_narrow_float(
      p.dtype, [&]<class T>() { visit_window(p.window[1].kernel, [&]<int kSize>() { run_sized<T, kSize>(p); }); });
}

}  // namespace tenor::conv
