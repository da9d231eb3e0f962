// Which problems with groups of eight channels have kernels of their own, and their launches.
#include <algorithm>

#include "src/cuda/launch.h"
#include "src/ops/conv/conv_direct_cuda.h"
#include "src/ops/conv/conv_grouped.cuh"
#include "tenor/tensor.h"

namespace tenor::conv {
namespace {

constexpr int64_t kMost = 1 << 29, kMostChannels = 1 << 21;

/// Eight channels are one access.
bool pieces(const Image& x, int64_t rows, int64_t columns) {
  return x.channel == 1 && reinterpret_cast<uintptr_t>(x.data) % 16 == 0 && x.batch % 8 == 0 &&
         (rows == 1 || x.spatial[1] % 8 == 0) && (columns == 1 || x.spatial[2] % 8 == 0);
}

GroupedShape shape_of(const ConvProblem& p) {
  const core::WindowDim &H = p.window[1], &W = p.window[2];
  const bool backward = p.direction == Direction::kDataBackward;
  const auto narrow = [](int64_t x) { return static_cast<int>(x); };
  const Image &source = backward ? p.output : p.input, &other = backward ? p.input : p.output;
  GroupedShape s{};
  s.batch = narrow(p.batch), s.groups = narrow(p.groups);
  s.height = narrow(backward ? H.output : H.input), s.width = narrow(backward ? W.output : W.input);
  s.out_height = narrow(backward ? H.input : H.output), s.out_width = narrow(backward ? W.input : W.output);
  s.top = narrow(backward ? H.kernel - 1 - H.before : H.before);
  s.left = narrow(backward ? W.kernel - 1 - W.before : W.before);
  const int cuts = (s.out_width + 31) / 32;
  s.tile_columns = (s.out_width + cuts - 1) / cuts;
  const int most = std::max(kTilePixels / s.tile_columns, 1);
  s.down = (s.out_height + most - 1) / most, s.across = cuts;
  s.tile_rows = (s.out_height + s.down - 1) / s.down;
  s.source = source.data, s.source_batch = source.batch, s.source_row = source.spatial[1],
  s.source_pixel = source.spatial[2];
  s.other_batch = other.batch, s.other_row = other.spatial[1], s.other_pixel = other.spatial[2];
  s.result = other.data, s.grad = p.output.data, s.weight = p.weight.data;
  s.weight_group = kGroupChannels * p.weight.out;
  s.weight_out = backward ? p.weight.in : p.weight.out, s.weight_in = backward ? p.weight.out : p.weight.in;
  s.weight_row = p.weight.spatial[1], s.weight_column = p.weight.spatial[2];
  s.from_last = backward;
  s.bias = p.bias, s.bias_stride = p.bias_stride;
  return s;
}

/// sums over blocks in ascending order, rounded once.
template <class T>
__global__ void grouped_finish(const __grid_constant__ ConvProblem p, const float* sums, int blocks, int pairs) {
  const int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x, count = p.groups * pairs * 16 * 8;
  if (i >= count) return;
  const int64_t out = i % 8, in = i / 8 % 8, tap = i / 64 % (2 * pairs), group = i / 128 / pairs;
  if (tap >= p.taps()) return;
  float sum = 0;
#pragma unroll 8
  for (int block = 0; block < blocks; ++block) sum += sums[block * count + i];
  reinterpret_cast<T*>(
      p.weight.data)[(group * kGroupChannels + out) * p.weight.out + in * p.weight.in +
                     tap / p.window[2].kernel * p.weight.spatial[1] + tap % p.window[2].kernel * p.weight.spatial[2]] =
      cuda::convert<T>(sum);
}

template <class T, int kSize>
void run_sized(const ConvProblem& p) {
  constexpr int kPairs = (kSize * kSize + 1) / 2, kBlocks = 396, kFinish = 256;
  GroupedShape s = shape_of(p);
  const int windows = (s.tile_rows + kSize - 1) * (s.tile_columns + kSize - 1);
  const int slices = (s.groups + kGroupedWarps - 1) / kGroupedWarps;
  if (p.direction != Direction::kWeightBackward) {
    const char* op = p.direction == Direction::kForward ? "conv_forward" : "conv_data_backward";
    const cuda::Grid grid{dim3(s.tiles(), slices), kGroupedThreads, size_t{128} * (windows + 1)};
    return cuda::launch(op, grouped_image<T, kSize>, grid, p.device, s);
  }
  const int ranges = std::clamp(kBlocks / slices, 1, s.tiles());
  const int64_t count = int64_t{s.groups} * kPairs * 16 * 8;
  const Tensor sums = Tensor::empty({ranges, count}, float32, p.device);
  s.sums = sums.data<float>();
  constexpr const char* kOp = "conv_weight_backward";
  const cuda::Grid grid{dim3(ranges, slices), kGroupedThreads,
                        size_t{128} * (windows + s.tile_rows * s.tile_columns + 1)};
  cuda::launch(kOp, grouped_weight<T, kSize>, grid, p.device, s, s.tiles());
  cuda::launch(kOp, grouped_finish<T>, {static_cast<unsigned>((count + kFinish - 1) / kFinish), kFinish}, p.device, p,
               s.sums, ranges, kPairs);
}

template <class T>
void run_typed(const ConvProblem& p) {
  if (p.window[1].kernel == 3) return run_sized<T, 3>(p);
  run_sized<T, 5>(p);
}

}  // namespace

bool grouped_takes(const ConvProblem& p) {
  const core::WindowDim &D = p.window[0], &H = p.window[1], &W = p.window[2];
  if (p.group_channels() != kGroupChannels || p.group_outputs() != kGroupChannels) return false;
  if (p.dtype != DType::kBFloat16 && p.dtype != DType::kFloat16) return false;
  if (D.input != 1 || D.kernel != 1 || D.before != 0 || D.output != 1) return false;
  if (H.kernel != W.kernel || (H.kernel != 3 && H.kernel != 5)) return false;
  if (H.stride != 1 || W.stride != 1 || H.dilation != 1 || W.dilation != 1) return false;
  const int64_t most = std::max({p.batch, H.input + H.before, W.input + W.before, H.output, W.output});
  if (most > kMost || p.channels > kMostChannels || p.batch * H.output * W.output > kMost ||
      p.batch * H.input * W.input > kMost)
    return false;
  return pieces(p.input, H.input, W.input) && pieces(p.output, H.output, W.output);
}

void grouped_run(const ConvProblem& p) {
  if (p.dtype == DType::kBFloat16) return run_typed<BFloat16>(p);
  run_typed<Float16>(p);
}

}  // namespace tenor::conv
