#include <algorithm>
#include <cstring>

#include "src/core/visit.h"
#include "src/cuda/fill.h"
#include "src/cuda/launch.h"
#include "src/cuda/layout.h"
#include "src/cuda/vector.cuh"

namespace tenor::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kPacks = 4;  // stores a thread has in flight

/// Whole packs, `word` each; the elements in front of and behind them are written by the first threads.
template <class T>
__global__ void fill_dense(T* to, int64_t count, int head, T value, uint4 word) {
  constexpr int kN = kVector<T>;
  const int64_t packs = (count - head) / kN, first = blockIdx.x * int64_t{kThreads * kPacks} + threadIdx.x;
#pragma unroll
  for (int k = 0; k < kPacks; ++k) {
    const int64_t i = first + k * kThreads;
    if (i < packs) *reinterpret_cast<uint4*>(to + head + i * kN) = word;
  }
  if (first < head) to[first] = value;
  const int64_t tail = head + packs * kN + first;
  if (first < kN && tail < count) to[tail] = value;
}

template <class T>
__global__ void fill_strided(T* to, const __grid_constant__ Layout<1> layout, T value) {
  const int64_t step = int64_t{gridDim.x} * kThreads;
  for (int64_t i = blockIdx.x * int64_t{kThreads} + threadIdx.x; i < layout.count; i += step) {
    int64_t at[1];
    offsets(layout, i, at);
    to[at[0]] = value;
  }
}

/// As many as the parameters of a launch hold (4 KiB in all) beside the pointer and the count.
constexpr int kListed = 500;
struct Listed {
  int64_t values[kListed];
};
__global__ void fill_list(int64_t* to, int count, const __grid_constant__ Listed list) {
  const auto i = static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
  if (i < count) to[i] = list.values[i];
}

}  // namespace

Tensor list_on(Device device, std::span<const int64_t> values) {
  const Tensor out = Tensor::empty({static_cast<int64_t>(values.size())}, int64, device);
  const DeviceGuard guard(device);
  for (size_t begin = 0; begin < values.size(); begin += kListed) {
    Listed list{};
    const size_t count = std::min<size_t>(kListed, values.size() - begin);
    std::copy_n(values.begin() + static_cast<std::ptrdiff_t>(begin), count, list.values);
    const Grid grid{static_cast<unsigned>((count + kThreads - 1) / kThreads), kThreads};
    launch("fill", fill_list, grid, device, out.data<int64_t>() + begin, static_cast<int>(count), list);
  }
  return out;
}

void fill(const Tensor& target, const void* element) {
  if (target.numel() == 0) return;
  const DeviceGuard guard(target.device());
  const Layout<1> layout = collapse("fill", target.shape(), {target.strides()}, 0);
  core::visit_size(target.dtype(), [&]<class T>() {
    T value;
    std::memcpy(&value, element, sizeof(T));
    T* to = static_cast<T*>(target.raw());
    if (!layout.is_dense(0)) {
      const Grid grid{blocks_for(layout.count, kThreads, target.device(), 32), kThreads};
      return launch("fill", fill_strided<T>, grid, target.device(), to, layout, value);
    }
    const auto past = static_cast<int64_t>(reinterpret_cast<uintptr_t>(to) % kVectorBytes / sizeof(T));
    const auto head = static_cast<int>(std::min<int64_t>((kVector<T> - past) % kVector<T>, layout.count));
    const int64_t per_block = int64_t{kThreads} * kPacks * kVector<T>;
    const auto blocks = static_cast<unsigned>((layout.count + per_block - 1) / per_block);
    Pack<T, kVector<T>> pack;
    std::fill_n(pack.at, kVector<T>, value);
    uint4 word;
    std::memcpy(&word, &pack, sizeof(word));
    launch("fill", fill_dense<T>, Grid{blocks, kThreads}, target.device(), to, layout.count, head, value, word);
  });
}

}  // namespace tenor::cuda
