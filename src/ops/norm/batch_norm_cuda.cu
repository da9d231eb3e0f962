// batch_norm at inference: elementwise, with four parameters a channel.
#include "src/core/visit.h"
#include "src/cuda/launch.h"
#include "src/cuda/layout.h"
#include "src/ops/norm/affine_cuda.cuh"
#include "src/ops/norm/norm_cuda.h"

namespace tenor::cuda {
namespace {

constexpr int kThreads = 256, kAtOnce = 4;
constexpr int kTable = 2048;  // channels whose parameters a block keeps in shared memory

struct Channels {
  ParameterVector mean, variance, gamma, beta;
  int64_t count;
  double epsilon;
};

/// y = (x - mean) * scale + offset.
template <class C>
struct alignas(4 * sizeof(C)) Line {
  C mean, scale, offset, unused;
  __device__ C at(C x) const { return (x - mean) * scale + offset; }
};

__device__ __forceinline__ float inverse_root(float v) { return __frsqrt_rn(v); }
__device__ __forceinline__ double inverse_root(double v) { return 1.0 / sqrt(v); }

template <class T, class C = core::Compute<T>>
__device__ Line<C> line_of(const Channels& p, int64_t c) {
  const C inverse = inverse_root(parameter<T>(p.variance, c, C(1)) + static_cast<C>(p.epsilon));
  return {parameter<T>(p.mean, c, C(0)), parameter<T>(p.gamma, c, C(1)) * inverse, parameter<T>(p.beta, c, C(-0.0)),
          C(0)};
}

/// The channels' lines: in shared memory where they fit, else computed where they are met.
template <class T>
class Lines {
 public:
  using C = core::Compute<T>;
  __device__ Lines(const Channels& p, Line<C>* table) : p_(p), table_(table) {
    if (p.count > kTable) return;
    for (int c = threadIdx.x; c < p.count; c += kThreads) table[c] = line_of<T>(p, c);
    __syncthreads();
  }
  __device__ Line<C> operator[](int64_t c) const { return p_.count > kTable ? line_of<T>(p_, c) : table_[c]; }

 private:
  const Channels& p_;
  const Line<C>* table_;
};

/// One vector of flat_kernel, which begins at element i. All of it is there but at the end of x.
template <class T, int N>
__device__ __forceinline__ void normalize_vector(const T* x, T* y, int64_t i, int64_t count, int64_t places,
                                                 const Channels& p, const Lines<T>& lines, Pack<T, N> pack) {
  const int64_t run = count <= UINT32_MAX ? static_cast<uint32_t>(i) / static_cast<uint32_t>(places) : i / places;
  int64_t left = places - (i - run * places);  // of the run that i lies in
  int64_t channel = count <= UINT32_MAX ? static_cast<uint32_t>(run) % static_cast<uint32_t>(p.count) : run % p.count;
  auto line = lines[channel];
  const int n = static_cast<int>(min(int64_t{N}, count - i));
  if (n == N && left >= N) {
#pragma unroll
    for (int j = 0; j < N; ++j) pack.at[j] = convert<T>(line.at(widen(pack.at[j])));
    return store_pack(y + i, pack);
  }
#pragma unroll
  for (int j = 0; j < N; ++j) {
    if (j >= n) break;
    if (left == 0) {
      channel = channel + 1 == p.count ? 0 : channel + 1;
      line = lines[channel];
      left = places;
    }
    --left;
    pack.at[j] = convert<T>(line.at(widen(n == N ? pack.at[j] : x[i + j])));
    if (n < N) y[i + j] = pack.at[j];
  }
  if (n == N) store_pack(y + i, pack);
}

/// x and y dense in one dim order: flat runs of `places` elements of each channel, or (places == 1) the channels
/// innermost. A thread has kAtOnce vectors on their way before it needs the first.
template <class T>
__global__ void __launch_bounds__(kThreads)
    flat_kernel(const T* x, T* y, int64_t count, int64_t places, const __grid_constant__ Channels p) {
  extern __shared__ uint4 memory[];
  constexpr int kWidth = kVector<T>, kApart = kThreads * kWidth;
  const Lines<T> lines(p, reinterpret_cast<Line<core::Compute<T>>*>(memory));
  const int64_t step = int64_t{gridDim.x} * kApart * kAtOnce;
  for (int64_t i = int64_t{blockIdx.x} * kApart * kAtOnce + threadIdx.x * kWidth; i < count; i += step) {
    Pack<T, kWidth> packs[kAtOnce];
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k)
      if (i + k * kApart + kWidth <= count) packs[k] = load_pack<kWidth>(x + i + k * kApart);
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k)
      if (i + k * kApart < count) normalize_vector<T, kWidth>(x, y, i + k * kApart, count, places, p, lines, packs[k]);
  }
}

/// Channels innermost and a whole number of times in the grid's step: a thread meets the same channels again and again.
template <class T>
__global__ void __launch_bounds__(kThreads)
    channels_kernel(const T* x, T* y, int64_t count, const __grid_constant__ Channels p) {
  constexpr int kWidth = kVector<T>;
  const int64_t step = int64_t{gridDim.x} * kThreads * kWidth,
                first = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * kWidth;
  Line<core::Compute<T>> lines[kWidth];
#pragma unroll
  for (int j = 0; j < kWidth; ++j) lines[j] = line_of<T>(p, (first + j) % p.count);
  for (int64_t i = first; i < count; i += step) {
    Pack<T, kWidth> pack = load_pack<kWidth>(x + i);
#pragma unroll
    for (int j = 0; j < kWidth; ++j) pack.at[j] = convert<T>(lines[j].at(widen(pack.at[j])));
    store_pack(y + i, pack);
  }
}

/// Any layout. The third of the layout's tensors is the channel: its strides count channels.
template <class T>
__global__ void __launch_bounds__(kThreads)
    strided_kernel(const T* x, T* y, const __grid_constant__ Layout<3> layout, const __grid_constant__ Channels p) {
  extern __shared__ uint4 memory[];
  const Lines<T> lines(p, reinterpret_cast<Line<core::Compute<T>>*>(memory));
  const int64_t step = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < layout.count; i += step) {
    int64_t at[3];
    offsets(layout, i, at);
    y[at[1]] = convert<T>(lines[at[2]].at(widen(x[at[0]])));
  }
}

template <class T>
void run(const Tensor& x, const Channels& p, const Tensor& y) {
  const size_t shared = p.count > kTable ? 0 : static_cast<size_t>(p.count) * sizeof(Line<core::Compute<T>>);
  Dims channel(static_cast<size_t>(x.ndim()), 0);
  channel[1] = 1;
  const Layout<3> layout = collapse("batch_norm", x.shape(), {x.strides(), y.strides(), channel}, 1);
  const Layout<2> dense = collapse("batch_norm", x.shape(), {x.strides(), y.strides()}, 1);
  // The flat kernel wants [.., C, places] in memory with one run of places a channel, 16-byte aligned.
  const int n = layout.ndim;
  const bool inner = n >= 1 && layout.stride[2][n - 1] == 1;  // channels innermost
  const bool middle = n >= 2 && layout.stride[2][n - 2] == 1 && layout.stride[2][n - 1] == 0;
  const bool single = p.count == 1;
  const bool flat = dense.is_dense(0) && dense.is_dense(1) && is_aligned(x.raw(), 0, 1) && is_aligned(y.raw(), 0, 1) &&
                    (inner || middle || single);
  if (flat) {
    const int64_t a_block = kThreads * kVector<T>;
    if (inner && !single && layout.count % kVector<T> == 0 && a_block % p.count == 0) {
      const Grid grid{blocks_for(layout.count, a_block, x.device(), 8), kThreads};
      return launch("batch_norm", channels_kernel<T>, grid, x.device(), x.data<T>(), y.data<T>(), layout.count, p);
    }
    const int64_t places = single ? layout.count : inner ? 1 : layout.size[n - 1];
    const Grid grid{blocks_for(layout.count, kThreads * kVector<T> * kAtOnce, x.device(), 32), kThreads, shared};
    launch("batch_norm", flat_kernel<T>, grid, x.device(), x.data<T>(), y.data<T>(), layout.count, places, p);
  } else {
    const Grid grid{blocks_for(layout.count, kThreads, x.device(), 8), kThreads, shared};
    launch("batch_norm", strided_kernel<T>, grid, x.device(), x.data<T>(), y.data<T>(), layout, p);
  }
}

}  // namespace

void batch_norm_elements(const Tensor& x, const BatchNormVectors& v, const Tensor& y, double epsilon) {
  if (x.numel() == 0) return;
  const DeviceGuard guard(x.device());
  const Channels p{ParameterVector::of(v.mean),
                   ParameterVector::of(v.variance),
                   ParameterVector::of(v.gamma),
                   ParameterVector::of(v.beta),
                   x.shape(1),
                   epsilon};
  core::visit_float(x.dtype(), [&]<class T>() { run<T>(x, p, y); });
}

}  // namespace tenor::cuda
