// One output a plane: planes of neighbouring elements a warp each, planes whose channels lie together by the blocks of
// a cluster, which share a plane's places. The order of additions depends on the plane's size and the number of
// channels alone.
#include <algorithm>

#include "src/core/visit.h"
#include "src/cuda/launch.h"
#include "src/cuda/ptx/cluster.cuh"
#include "src/cuda/reduce.cuh"
#include "src/ops/pool/pool_device.cuh"
#include "src/ops/pool/pool_plan.h"

namespace tenor::cuda {
namespace {

constexpr int kRowThreads = 256;
constexpr int kRowBlocks = 4;                     // a multiprocessor: named, the compiler keeps all loads under way
constexpr int kManyPlaces = 1024;                 // from which on a block of channels has 512 threads, else 256
constexpr int kRowAhead = 7, kChannelAhead = 14;  // accesses of a thread under way
constexpr int kFew = 256;                         // places of a plane that several share a block with
constexpr int kMostVectors = 16;                  // of channels a block: neighbouring threads read 256 bytes

struct PlanesPlan {
  PoolGrid source, target;
  int64_t places;  ///< of a plane
  int64_t step;    ///< from place to place
  int64_t planes;
  int vectors;       ///< of channels a block
  Divider channels;  ///< planes are fewer than 2^31
};

/// V neighbours: one access where the plan is aligned. How memory lies changes no sum.
template <int V, bool kAligned, class T>
__device__ __forceinline__ Pack<T, V> load_some(const T* from) {
  if constexpr (kAligned) {
    return load_past_l1<V>(from);
  } else {
    Pack<T, V> x;
#pragma unroll
    for (int e = 0; e < V; ++e) x.at[e] = from[e];
    return x;
  }
}

/// Up to kAhead elements of V each, `hop` apart, of which `left` are there.
template <class Op, int kAhead, bool kAligned, int V, class T, class I>
__device__ __forceinline__ void join_some(Pack<typename Op::Held, V>& acc, const T* from, I hop, I left) {
  Pack<T, V> x[kAhead];
#pragma unroll
  for (int k = 0; k < kAhead; ++k) {
    if constexpr (kAligned) {
      x[k] = load_or_nothing<Op, V>(from + k * hop, k < left);
    } else {
#pragma unroll
      for (int e = 0; e < V; ++e) x[k].at[e] = Op::nothing();
      if (k < left) x[k] = load_some<V, kAligned>(from + k * hop);
    }
  }
#pragma unroll
  for (int k = 0; k < kAhead; ++k) Op::join(acc, held<Op>(x[k]));
}

template <class Op, class T>
__device__ __forceinline__ T finished(typename Op::Held v, int64_t places) {
  if constexpr (Op::kSum)
    return convert<T>(v / static_cast<typename Op::Held>(places));
  else
    return v;
}

/// A plane's elements are counted in 32 bits: 64 cost a tenth of the time.
template <class Op, class T, bool kAligned>
__global__ void __launch_bounds__(kRowThreads, kRowBlocks)
    planes_of_rows(const T* __restrict__ x, T* __restrict__ y, PlanesPlan p) {
  constexpr int kV = kVector<T>;
  const uint32_t plane = blockIdx.x * (kRowThreads / kWarp) + threadIdx.x / kWarp;
  if (plane >= p.planes) return;
  const int64_t n = divide(plane, p.channels), c = plane - n * p.channels.divisor;
  const int count = static_cast<int>(p.places) / kV, lane = static_cast<int>(threadIdx.x) % kWarp;
  const T* from = x + n * p.source.stride[0] + c * p.source.stride[1] + lane * kV;
  auto acc = identity_pack<Op, kV>();
  for (int i = lane; i < count; i += kRowAhead * kWarp, from += kRowAhead * kWarp * kV)
    join_some<Op, kRowAhead, kAligned>(acc, from, kWarp * kV, (count - i + kWarp - 1) / kWarp);
  auto v = acc.at[0];
#pragma unroll
  for (int k = 1; k < kV; ++k) v = Op::join(v, acc.at[k]);
  v = warp_reduce(v, [](auto a, auto b) { return Op::join(a, b); });
  if (lane == 0) y[p.target.at(n, c, 0, 0, 0)] = finished<Op, T>(v, p.places);
}

constexpr int kFewLanes = 4, kFewPlanes = kRowThreads / kFewLanes;

/// Planes of few elements: a block brings kFewPlanes of them to shared memory, as they lie where they lie together
/// (`dense`); kFewLanes threads go through each.
template <class Op, class T>
__global__ void __launch_bounds__(kRowThreads)
    planes_of_few(const T* __restrict__ x, T* __restrict__ y, PlanesPlan p, bool dense) {
  extern __shared__ __align__(16) char shared[];
  constexpr int kV = kVector<T>;
  T* held_planes = reinterpret_cast<T*>(shared);
  const int places = static_cast<int>(p.places);
  const int64_t first = int64_t{blockIdx.x} * kFewPlanes;
  const int count = static_cast<int>(min(int64_t{kFewPlanes}, p.planes - first)) * places;
  int done = 0;
  if (dense) {
    const T* from = x + first * places;
    for (int i = threadIdx.x; i < count / kV; i += kRowThreads)
      store_pack(held_planes + i * kV, load_past_l1<kV>(from + i * kV));
    done = count / kV * kV;
  }
  for (int i = done + static_cast<int>(threadIdx.x); i < count; i += kRowThreads) {
    const int at = i / places;
    const uint32_t plane = static_cast<uint32_t>(first) + at, n = divide(plane, p.channels);
    held_planes[i] =
        x[n * p.source.stride[0] + (plane - n * p.channels.divisor) * p.source.stride[1] + (i - at * places)];
  }
  __syncthreads();
  const int own = static_cast<int>(threadIdx.x) / kFewLanes, lane = static_cast<int>(threadIdx.x) % kFewLanes;
  auto acc = Op::identity();
  if (own * places < count) {
#pragma unroll 8
    for (int i = lane; i < places; i += kFewLanes)
      acc = Op::join(acc, convert<typename Op::Held>(held_planes[own * places + i]));
  }
  acc = warp_reduce<kFewLanes>(acc, [](auto a, auto b) { return Op::join(a, b); });
  if (lane != 0 || own * places >= count) return;
  const uint32_t plane = static_cast<uint32_t>(first) + own, n = divide(plane, p.channels);
  y[p.target.at(n, plane - n * p.channels.divisor, 0, 0, 0)] = finished<Op, T>(acc, p.places);
}

/// Blocks (rank in its cluster of an image, group of channels): threads beside one another have neighbouring vectors of
/// channels, those above one another places.
template <class Op, class T, bool kAligned, int kThreads>
__global__ void __launch_bounds__(kThreads)
    planes_of_channels(const T* __restrict__ x, T* __restrict__ y, PlanesPlan p) {
  using Held = typename Op::Held;
  constexpr int kV = kVector<T>;
  __shared__ Held parts[kThreads * kV];
  __shared__ Held sums[kMostVectors * kV];
  const int lane = static_cast<int>(threadIdx.x) % p.vectors, down = static_cast<int>(threadIdx.x) / p.vectors,
            rows = kThreads / p.vectors, width = p.vectors * kV;
  const uint32_t blocks = ptx::cluster_size(), n = blockIdx.x / blocks, rank = blockIdx.x - n * blocks;
  const int64_t first = int64_t{blockIdx.y} * width;
  auto acc = identity_pack<Op, kV>();
  if (down < rows && first + lane * kV < p.source.size[1]) {
    const int64_t start = rank * rows + down, stride = int64_t{blocks} * rows, hop = stride * p.step;
    const T* from = x + n * p.source.stride[0] + first + lane * kV + start * p.step;
    int64_t left = p.places > start ? (p.places - start + stride - 1) / stride : 0;
    if (left >= kChannelAhead) {
      Pack<T, kV> some[kChannelAhead];
#pragma unroll
      for (int k = 0; k < kChannelAhead; ++k) some[k] = load_some<kV, kAligned>(from + k * hop);
      for (left -= kChannelAhead, from += kChannelAhead * hop; left >= kChannelAhead;
           left -= kChannelAhead, from += kChannelAhead * hop) {
#pragma unroll
        for (int k = 0; k < kChannelAhead; ++k) {  // each place is asked for again as soon as it is free
          Op::join(acc, held<Op>(some[k]));
          some[k] = load_some<kV, kAligned>(from + k * hop);
        }
      }
#pragma unroll
      for (int k = 0; k < kChannelAhead; ++k) Op::join(acc, held<Op>(some[k]));
    }
    if (left > 0) join_some<Op, kChannelAhead, kAligned>(acc, from, hop, left);
  }
#pragma unroll
  for (int k = 0; k < kV; ++k) parts[threadIdx.x * kV + k] = acc.at[k];
  __syncthreads();
  // Each of `shares` threads of a channel joins as many of its rows; then one joins them.
  const int shares = kThreads / width, own = static_cast<int>(threadIdx.x) % width,
            share = static_cast<int>(threadIdx.x) / width;
  Held sum = Op::identity();
  if (share < shares)
    for (int r = share; r < rows; r += shares) sum = Op::join(sum, parts[r * width + own]);
  __syncthreads();
  if (share < shares) parts[share * width + own] = sum;
  __syncthreads();
  const bool works = share == 0 && first + own < p.source.size[1];
  if (works) {
    for (int r = 1; r < shares; ++r) sum = Op::join(sum, parts[r * width + own]);
    sums[own] = sum;
  }
  if (blocks > 1) {
    ptx::cluster_arrive();
    ptx::cluster_wait();
    if (rank == 0 && works)
      for (uint32_t b = 1; b < blocks; ++b) sum = Op::join(sum, *ptx::in_block(&sums[own], b));
  }
  if (rank == 0 && works) y[p.target.at(n, first + own, 0, 0, 0)] = finished<Op, T>(sum, p.places);
  if (blocks > 1) {  // a block leaves its memory to the first one until that has read it
    ptx::cluster_arrive();
    ptx::cluster_wait();
  }
}

/// Whether a plane's places lie evenly, and how far apart.
bool even(const PoolGrid& g, int64_t& step) {
  step = g.size[4] > 1 ? g.stride[4] : g.size[3] > 1 ? g.stride[3] : g.stride[2];
  const auto follows = [&](int d, int64_t inner) { return g.size[d] == 1 || g.stride[d] == inner * step; };
  return follows(4, 1) && follows(3, g.size[4]) && follows(2, g.size[3] * g.size[4]);
}

template <class Op, class T, bool kAligned>
void run_rows(const pool::Problem& p, const PlanesPlan& plan, const Tensor& x, const Tensor& y) {
  const int64_t blocks = (plan.planes + kRowThreads / kWarp - 1) / (kRowThreads / kWarp);
  launch(p.op, planes_of_rows<Op, T, kAligned>, {dim3(static_cast<unsigned>(blocks)), dim3(kRowThreads)}, x.device(),
         x.data<T>(), y.data<T>(), plan);
}

template <class Op, class T>
void run_few(const pool::Problem& p, const PlanesPlan& plan, bool aligned, const Tensor& x, const Tensor& y) {
  const PoolGrid& s = plan.source;
  const bool dense = aligned && (s.size[1] == 1 || s.stride[1] == plan.places) &&
                     (s.size[0] == 1 || s.stride[0] == s.size[1] * plan.places);
  launch(p.op, planes_of_few<Op, T>,
         {dim3(static_cast<unsigned>((plan.planes + kFewPlanes - 1) / kFewPlanes)), dim3(kRowThreads),
          static_cast<size_t>(kFewPlanes * plan.places) * sizeof(T)},
         x.device(), x.data<T>(), y.data<T>(), plan, dense);
}

template <class Op, class T, bool kAligned, int kThreads>
void run_channels(const pool::Problem& p, const PlanesPlan& plan, int64_t groups, const Tensor& x, const Tensor& y) {
  const int cluster = cluster_of(groups > 1 || plan.places < kFew ? 1 : 2, x.device());
  launch(p.op, planes_of_channels<Op, T, kAligned, kThreads>,
         {dim3(static_cast<unsigned>(cluster * plan.source.size[0]), static_cast<unsigned>(groups)), dim3(kThreads), 0,
          cluster},
         x.device(), x.data<T>(), y.data<T>(), plan);
}
template <class Op, class T, bool kAligned>
void run_channels(const pool::Problem& p, const PlanesPlan& plan, int64_t groups, const Tensor& x, const Tensor& y) {
  plan.places < kManyPlaces ? run_channels<Op, T, kAligned, 256>(p, plan, groups, x, y)
                            : run_channels<Op, T, kAligned, 512>(p, plan, groups, x, y);
}

/// Which of the kernels serves, if any, depends on a plane's size, the channels and how they lie; not on the batch or
/// on an address.
template <class Op, class T>
bool run(const pool::Problem& p, const Tensor& x, const Tensor& y) {
  constexpr int kV = kVector<T>;
  PlanesPlan plan{p.image, p.windows, p.image.plane(), 0, p.image.planes(), 1, make_divider(p.image.size[1])};
  if (!even(plan.source, plan.step) || plan.planes > INT32_MAX / 8) return false;
  const auto whole = [&](int64_t stride) { return stride % kV == 0; };
  const bool aligned = is_aligned(x.raw(), 0, sizeof(T));
  const int64_t channels = plan.source.size[1];
  if (plan.step == 1 && plan.places < kFew) {
    run_few<Op, T>(p, plan, aligned, x, y);
    return true;
  }
  if (plan.step == 1 && whole(plan.places)) {
    if (plan.places > (1 << 17)) return false;  // long planes are shared by blocks of the reduction
    aligned&& whole(plan.source.stride[0]) && whole(plan.source.stride[1]) ? run_rows<Op, T, true>(p, plan, x, y)
                                                                           : run_rows<Op, T, false>(p, plan, x, y);
    return true;
  }
  if (channels < 2 || plan.source.stride[1] != 1 || !whole(channels) || plan.places < 128) return false;
  plan.vectors = static_cast<int>(std::min<int64_t>(channels / kV, kMostVectors));
  const int64_t groups = (channels / kV + plan.vectors - 1) / plan.vectors;
  if (groups > 65535) return false;
  aligned&& whole(plan.source.stride[0]) && whole(plan.step) ? run_channels<Op, T, true>(p, plan, groups, x, y)
                                                             : run_channels<Op, T, false>(p, plan, groups, x, y);
  return true;
}

template <template <class> class OpOf>
bool run_tuned(const pool::Problem& p, const Tensor& x, const Tensor& y) {
  const DeviceGuard guard(x.device());
  switch (x.dtype()) {
    case DType::kBFloat16:
      return run<OpOf<BFloat16>, BFloat16>(p, x, y);
    case DType::kFloat16:
      return run<OpOf<Float16>, Float16>(p, x, y);
    case DType::kFloat32:
      return run<OpOf<float>, float>(p, x, y);
    default:
      return false;
  }
}

}  // namespace

bool mean_planes(const pool::Problem& p, const Tensor& x, const Tensor& y) { return run_tuned<SumOp>(p, x, y); }
bool max_planes(const pool::Problem& p, const Tensor& x, const Tensor& y) { return run_tuned<MaxOp>(p, x, y); }

}  // namespace tenor::cuda
