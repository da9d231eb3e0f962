// c = a * b over one shape: contractions that sum nothing.
#include <algorithm>

#include "src/core/visit.h"
#include "src/cuda/convert.cuh"
#include "src/cuda/launch.h"
#include "src/cuda/vector.cuh"
#include "src/ops/contract/gemm_cuda.h"

namespace tenor::contract {
namespace {

using cuda::Layout;

constexpr int kThreads = 256;

/// One rounding of a float product; integers wrap, bool is "and".
template <class T, class To>
__device__ __forceinline__ To product_of(T x, T y) {
  if constexpr (std::is_same_v<T, bool>) {
    return x && y;
  } else if constexpr (std::is_integral_v<T>) {
    using Wide = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;
    return static_cast<To>(static_cast<Wide>(x) * static_cast<Wide>(y));
  } else {
    return cuda::convert<To>(cuda::widen(x) * cuda::widen(y));
  }
}

/// N neighbours of an operand: N elements, or one for all of them.
template <int N, class T>
__device__ __forceinline__ cuda::Pack<T, N> load_run(const T* p, bool single) {
  if (!single) return cuda::load_pack<N>(p);
  cuda::Pack<T, N> out;
#pragma unroll
  for (T& x : out.at) x = *p;
  return out;
}

/// Each thread writes runs of N neighbours; the layout counts runs.
template <class T, class To, int N>
__global__ void multiply_kernel(const T* a, const T* b, To* c, bool single_a, bool single_b,
                                const __grid_constant__ Layout<3> layout) {
  const int64_t step = int64_t{gridDim.x} * kThreads;
  for (int64_t i = blockIdx.x * int64_t{kThreads} + threadIdx.x; i < layout.count; i += step) {
    int64_t at[3];
    cuda::offsets(layout, i, at);
    const auto x = load_run<N>(a + at[0], single_a), y = load_run<N>(b + at[1], single_b);
    cuda::Pack<To, N> out;
#pragma unroll
    for (int j = 0; j < N; ++j) out.at[j] = product_of<T, To>(x.at[j], y.at[j]);
    cuda::store_pack<N>(c + at[2], out);
  }
}

/// Whether tensor t can be read or written in runs of n along the last dim, or (`shared`) is one element along it.
bool has_runs(const Layout<3>& layout, int t, const void* data, size_t item, int64_t n, bool shared) {
  const int last = layout.ndim - 1;
  if (shared && layout.stride[t][last] == 0) return true;
  bool runs = layout.stride[t][last] == 1 && cuda::is_aligned(data, 0, item, static_cast<int>(item * n));
  for (int d = 0; d < last; ++d) runs = runs && layout.stride[t][d] % n == 0;
  return runs;
}

template <class T, class To>
void launch_multiply(const Tensor& a, const Tensor& b, const Tensor& c) {
  constexpr int kRun = cuda::kVectorBytes / static_cast<int>(std::max(sizeof(T), sizeof(To)));
  auto layout = cuda::collapse("outer", c.shape(), {a.strides(), b.strides(), c.strides()}, 2);
  const int last = layout.ndim - 1;
  const bool runs = last >= 0 && layout.size[last] % kRun == 0 && has_runs(layout, 0, a.raw(), sizeof(T), kRun, true) &&
                    has_runs(layout, 1, b.raw(), sizeof(T), kRun, true) &&
                    has_runs(layout, 2, c.raw(), sizeof(To), kRun, false);
  const bool single_a = runs && layout.stride[0][last] == 0, single_b = runs && layout.stride[1][last] == 0;
  if (runs) cuda::group_innermost(layout, kRun);
  const cuda::Grid grid{cuda::blocks_for(layout.count, 2 * kThreads, c.device()), kThreads};
  cuda::launch("outer", runs ? multiply_kernel<T, To, kRun> : multiply_kernel<T, To, 1>, grid, c.device(), a.data<T>(),
               b.data<T>(), c.data<To>(), single_a, single_b, layout);
}

__global__ void fill_one_kernel(void* x, DType dtype) {
  core::visit(dtype, [&]<class T>() { *static_cast<T*>(x) = core::cast<T>(1.0f); });
}

}  // namespace

void multiply_cuda(const Tensor& a, const Tensor& b, const Tensor& c) {
  const cuda::DeviceGuard guard(c.device());
  core::visit(a.dtype(), [&]<class T>() {
    if constexpr (std::is_same_v<T, Float8E4M3> || std::is_same_v<T, Float8E5M2>)
      return;
    else if (c.dtype() == a.dtype())
      launch_multiply<T, T>(a, b, c);
    else if constexpr (core::kStorageFloat<T>)
      launch_multiply<T, float>(a, b, c);
  });
}

void fill_one_cuda(const Tensor& x) {
  const cuda::DeviceGuard guard(x.device());
  cuda::launch("einsum", fill_one_kernel, {1, 1}, x.device(), x.raw(), x.dtype());
}

}  // namespace tenor::contract
