#include <algorithm>
#include <random>
#include <vector>

#include "src/core/numeric.h"
#include "src/cuda/device.h"
#include "src/cuda/limits.h"
#include "src/cuda/runtime.h"
#include "tenor/contract.h"
#include "tenor/view.h"

namespace tenor::cuda {
namespace {

constexpr int kThreads = 512, kBlocksEach = 4;  // of a multiprocessor, whose 2048 threads they fill
constexpr int64_t kBytes = int64_t{1} << 30;

__global__ void __launch_bounds__(kThreads) copy_vectors(const uint4* from, uint4* to, int64_t count) {
  const int64_t step = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count; i += step) to[i] = from[i];
}

/// Writes only what the sums never are, so that every word is read.
__global__ void __launch_bounds__(kThreads) read_vectors(const uint4* from, int64_t count, uint32_t* unlikely) {
  const int64_t step = int64_t{gridDim.x} * kThreads;
  uint32_t sum = 0;
#pragma unroll 4
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count; i += step) {
    const uint4 v = from[i];
    sum |= v.x | v.y | v.z | v.w;
  }
  if (sum == 0xffffffffu) *unlikely = sum;
}

constexpr int kChains = 8, kRounds = 4096;

__global__ void __launch_bounds__(kThreads) multiply_adds(float factor, float* unlikely) {
  float x[kChains];
  for (int c = 0; c < kChains; ++c) x[c] = static_cast<float>(threadIdx.x + c);
  for (int i = 0; i < kRounds; ++i)
#pragma unroll
    for (int c = 0; c < kChains; ++c) x[c] = fmaf(x[c], factor, 0.5f);
  float sum = 0;
  for (int c = 0; c < kChains; ++c) sum += x[c];
  if (sum == -1.0f) *unlikely = sum;
}

/// The least time of several runs.
template <class Run>
double best_seconds(Device device, Run run) {
  const auto timer = instruments().timer(device);
  run();
  for (int i = 0; i < 12; ++i) {
    timer->start();
    run();
    timer->stop();
  }
  check(cudaGetLastError(), "device_limits");
  const std::vector<double> all = timer->seconds();
  return *std::min_element(all.begin(), all.end());
}

/// A square of random numbers around 0 (products of zeros draw less power and run faster), from a block of them
/// repeated.
Tensor random_matrix(int64_t size, Device device) {
  constexpr int64_t kRows = 64;
  const Tensor block = Tensor::empty({1, kRows, size}, bfloat16);
  std::mt19937 random(0);
  std::normal_distribution<float> normal;
  for (int64_t i = 0; i < block.numel(); ++i) block.data<BFloat16>()[i] = core::cast<BFloat16>(normal(random));
  return reshape(expand(block.to(device), {size / kRows, kRows, size}).contiguous(), {size, size});
}

double product_rate(Device device) {
  constexpr int64_t kSize = 8192;
  const Tensor a = random_matrix(kSize, device), b = random_matrix(kSize, device);
  const Tensor c = Tensor::empty({kSize, kSize}, bfloat16, device);
  return 2.0 * kSize * kSize * kSize / best_seconds(device, [&] { matmul(a, b, {.out = c}); });
}

}  // namespace

DeviceLimits measure_limits(Device device) {
  const DeviceGuard guard(device);
  const cudaStream_t stream = current_stream(device).handle;
  const int blocks = kBlocksEach * multiprocessors(device);
  const Tensor from = Tensor::empty({kBytes}, uint8, device), to = Tensor::empty({kBytes}, uint8, device);
  check(cudaMemsetAsync(from.raw(), 1, kBytes, stream), "cudaMemsetAsync");
  const auto* source = static_cast<const uint4*>(from.raw());
  auto* target = static_cast<uint4*>(to.raw());
  constexpr int64_t kVectors = kBytes / 16;
  DeviceLimits limits;
  limits.copy_bytes = 2.0 * kBytes / best_seconds(device, [&] {
                        copy_vectors<<<blocks, kThreads, 0, stream>>>(source, target, kVectors);
                      });
  const double read =
      kBytes / best_seconds(device, [&] {
        read_vectors<<<blocks, kThreads, 0, stream>>>(source, kVectors, static_cast<uint32_t*>(to.raw()));
      });
  for (size_t i = 0; i < limits.memory.size(); ++i)
    limits.memory[i] = {static_cast<double>(int64_t{1} << (20 + 2 * i)), read, limits.copy_bytes};
  const double flops = 2.0 * kChains * kRounds * kThreads * blocks;
  limits.float32_flops = flops / best_seconds(device, [&] {
                           multiply_adds<<<blocks, kThreads, 0, stream>>>(0.5f, static_cast<float*>(to.raw()));
                         });
  limits.bfloat16_flops = product_rate(device);
  return limits;
}

}  // namespace tenor::cuda
