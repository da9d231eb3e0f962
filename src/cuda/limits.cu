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
constexpr int64_t kBytes = int64_t{1} << 30, kVectors = kBytes / 16;

/// Four vectors of a thread on their way at a time; whole blocks of them.
__global__ void __launch_bounds__(kThreads) copy_vectors(const uint4* from, uint4* to, int64_t count) {
  constexpr int kEach = 4;
  const int64_t step = int64_t{gridDim.x} * kThreads * kEach;
  for (int64_t i = int64_t{blockIdx.x} * kThreads * kEach + threadIdx.x; i < count; i += step) {
    uint4 held[kEach];
#pragma unroll
    for (int j = 0; j < kEach; ++j) held[j] = from[i + j * kThreads];
#pragma unroll
    for (int j = 0; j < kEach; ++j) to[i + j * kThreads] = held[j];
  }
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

template <class T>
__global__ void __launch_bounds__(kThreads) multiply_adds(T factor, T* unlikely) {
  T x[kChains];
  for (int c = 0; c < kChains; ++c) x[c] = static_cast<T>(threadIdx.x + c);
  for (int i = 0; i < kRounds; ++i)
#pragma unroll
    for (int c = 0; c < kChains; ++c) x[c] = fma(x[c], factor, T(0.5));
  T sum = 0;
  for (int c = 0; c < kChains; ++c) sum += x[c];
  if (sum == T(-1)) *unlikely = sum;
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

/// Random numbers in [0, 1), a block of them repeated: products of zeros draw less power and run faster.
Tensor random_matrix(int64_t rows, int64_t cols, DType dtype, Device device) {
  constexpr int64_t kRows = 64;
  const Tensor block = Tensor::empty({1, kRows, cols}, bfloat16);
  std::mt19937 random(0);
  for (int64_t i = 0; i < block.numel(); ++i)
    block.data<BFloat16>()[i] = core::cast<BFloat16>(static_cast<float>(random() >> 8) * 0x1p-24f);
  return reshape(expand(block.to(dtype).to(device), {rows / kRows, kRows, cols}).contiguous(), {rows, cols});
}

double product_rate(int64_t size, int64_t inner, DType dtype, Device device) {
  const Tensor a = random_matrix(size, inner, dtype, device), b = random_matrix(inner, size, dtype, device);
  const Tensor c = Tensor::empty({size, size}, dtype, device);
  const double flops = 2.0 * static_cast<double>(size) * static_cast<double>(size) * static_cast<double>(inner);
  return flops / best_seconds(device, [&] { matmul(a, b, {.out = c}); });
}

double copy_rate(const Tensor& from, const Tensor& to, Device device) {
  const cudaStream_t stream = current_stream(device).handle;
  const auto* source = static_cast<const uint4*>(from.raw());
  auto* target = static_cast<uint4*>(to.raw());
  const double by_kernel = best_seconds(device, [&] {
    copy_vectors<<<2 * kBlocksEach * multiprocessors(device), kThreads, 0, stream>>>(source, target, kVectors);
  });
  const double by_driver = best_seconds(device, [&] {
    check(cudaMemcpyAsync(target, source, kBytes, cudaMemcpyDeviceToDevice, stream), "cudaMemcpyAsync");
  });
  return 2.0 * kBytes / std::min(by_kernel, by_driver);
}

}  // namespace

DeviceLimits measure_limits(Device device) {
  const DeviceGuard guard(device);
  const cudaStream_t stream = current_stream(device).handle;
  const int blocks = kBlocksEach * multiprocessors(device);
  const Tensor from = Tensor::empty({kBytes}, uint8, device), to = Tensor::empty({kBytes}, uint8, device);
  check(cudaMemsetAsync(from.raw(), 1, kBytes, stream), "cudaMemsetAsync");
  DeviceLimits limits;
  limits.copy_bytes = copy_rate(from, to, device);
  const double read = kBytes / best_seconds(device, [&] {
                        read_vectors<<<blocks, kThreads, 0, stream>>>(static_cast<const uint4*>(from.raw()), kVectors,
                                                                      static_cast<uint32_t*>(to.raw()));
                      });
  for (size_t i = 0; i < limits.memory.size(); ++i)
    limits.memory[i] = {static_cast<double>(int64_t{1} << (20 + 2 * i)), read, limits.copy_bytes, 0};
  const auto fma_rate = [&]<class T>(T factor) {
    const double flops = 2.0 * kChains * kRounds * kThreads * blocks;
    return flops / best_seconds(device, [&] {
             multiply_adds<<<blocks, kThreads, 0, stream>>>(factor, static_cast<T*>(to.raw()));
           });
  };
  limits.float32_flops = fma_rate(0.5f), limits.float64_flops = fma_rate(0.5);
  limits.bfloat16_flops =
      std::max(product_rate(8192, 8192, bfloat16, device), product_rate(8192, 4096, bfloat16, device));
  limits.float64_products = std::max(limits.float64_flops, product_rate(4096, 4096, float64, device));
  return limits;
}

}  // namespace tenor::cuda
