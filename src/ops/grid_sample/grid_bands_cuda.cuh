// grid_sample of bilinear places that lie anywhere: planes in shared memory, and lists of places worked out once for
// all of them.
#pragma once

#include "src/ops/grid_sample/grid_sample_cuda.cuh"

namespace tenor::cuda {

/// Whether neighbouring places lie near each other in the image, for most of 4096 pairs all over the grid. One block.
template <class T>
__global__ void __launch_bounds__(1024) look_at_grid(const __grid_constant__ GridSampleProblem p, int* choice) {
  constexpr int kEach = 4;
  int near = 0;
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int64_t at = quotient(p.batch * p.samples, 1024 * kEach) * (threadIdx.x * kEach + i),
                  n = quotient(at, p.samples), s = min(at - n * p.samples, p.samples - 2);
    const int64_t a = n * p.grid.n + place_of(p, p.grid, s), b = n * p.grid.n + place_of(p, p.grid, s + 1);
    float apart = 0;
#pragma unroll
    for (int d = 0; d < 2; ++d)
      apart = fmaxf(apart, fabsf(static_cast<float>(grid_value<T>(p, a + d * p.grid.c)) -
                                 static_cast<float>(grid_value<T>(p, b + d * p.grid.c))) *
                               p.axes[2 - d].narrow.half);
    near += apart < 8 ? 1 : 0;  // pixels; a row's end, NaN and infinity count as apart
  }
  const int coherent = __syncthreads_count(near >= kEach / 2);
  if (threadIdx.x == 0) *choice = static_cast<int>(coherent >= 512 ? SampleWay::kCoherent : SampleWay::kScattered);
}

inline constexpr int kBandThreads = 1024;
inline constexpr int kListed = 1024;  // places of a list
inline constexpr size_t kBandBytes = size_t{224} << 10;

/// The places of all images, each list sorted by the band of rows that a place reads: what a place reads of any plane,
/// worked out once. A plane's band is `band` rows and the next one, in at most two bands.
struct PlaceLists {
  uint32_t* where;  ///< taps inside the image, 4 bits; place within its list, 10; offset in the band, less a row and an
                    ///< element, 18
  float *x, *y;     ///< fractions
  int* firsts;      ///< of each list: how many places the first band has
  int64_t lists;    ///< an image
  int band;
};
inline constexpr uint32_t kMostBandOffset = 1u << 18;

/// A block makes a list.
template <class T, int K>
__global__ void __launch_bounds__(kListed)
    list_places(const __grid_constant__ GridSampleProblem p, PlaceLists out, const int* choice) {
  if (!is_chosen(choice, SampleWay::kScattered)) return;
  __shared__ int counts[kListed / 32];
  const int64_t list = blockIdx.x, n = quotient(list, out.lists), s = (list - n * out.lists) * kListed + threadIdx.x;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, height = static_cast<int>(p.axes[1].axis.size),
            width = static_cast<int>(p.axes[2].axis.size);
  const bool exists = s < p.samples;
  PlaceAxes<float, 2, K, int> axes{};
  if (exists) axes = axes_of<T, 2, K, int>(p, n * p.grid.n + place_of(p, p.grid, s));
  const auto &ax = axes.axis[1], &ay = axes.axis[0];
  // A place belongs to the band of the first row that it reads.
  const int row = axes.lost || ay.index[0] < 0 ? 0 : ay.index[0];
  const bool second = exists && row >= out.band && out.band < height;
  uint32_t inside = 0;
#pragma unroll
  for (int i = 0; i < K * K; ++i)
    if (ax.index[i % K] >= 0 && ay.index[i / K] >= 0) inside |= 1u << i;
  // The first tap's place, which may lie one row and one element before the image.
  const int left = ax.index[0] >= 0 ? ax.index[0] : -1, top = ay.index[0] >= 0 ? ay.index[0] : -1;
  int offset = inside ? (top - (second ? out.band : 0)) * width + left + width + 1 : width + 1;
  if (axes.lost) inside = 1, offset = width + 1;
  const unsigned ahead = __ballot_sync(0xffffffffu, second), present = __ballot_sync(0xffffffffu, exists),
                 below = (1u << lane) - 1;
  if (lane == 0) counts[warp] = __popc(ahead);
  const int total = __syncthreads_count(exists);
  int before = 0, all = 0;
  for (int w = 0; w < kListed / 32; ++w) {
    if (w < warp) before += counts[w];
    all += counts[w];
  }
  if (threadIdx.x == 0) out.firsts[list] = total - all;
  if (!exists) return;
  const int seconds = before + __popc(ahead & below),
            place = second ? total - all + seconds : static_cast<int>(threadIdx.x) - seconds;
  const int64_t at = list * kListed + place;
  out.where[at] = inside << 28 | threadIdx.x << 18 | static_cast<uint32_t>(offset);
  out.x[at] = axes.lost ? NAN : K == 2 ? ax.weight[1] : 0.0f;
  out.y[at] = K == 2 ? ay.weight[K - 1] : 0.0f;
}

/// Places of one list, first .. end - 1, from the band held.
template <class T, int K>
__device__ __forceinline__ void sample_list(const PlaceLists& lists, int64_t list, int first, int end, const T* held,
                                            int width, T* y) {
#pragma unroll 4
  for (int i = first + static_cast<int>(threadIdx.x % 32); i < end; i += 32) {
    const int64_t at = list * kListed + i;
    const uint32_t where = lists.where[at];
    const T* from = held + static_cast<int>(where & (kMostBandOffset - 1)) - width - 1;
    const float tx = lists.x[at], ty = lists.y[at];
    T raw[K * K] = {};
#pragma unroll
    for (int t = 0; t < K * K; ++t)
      if (where >> (28 + t) & 1) raw[t] = from[t / K * width + t % K];
    const float wx[2] = {1 - tx, tx}, wy[2] = {1 - ty, ty};
    float sum = 0;
#pragma unroll
    for (int t = 0; t < K * K; ++t) sum = where >> (28 + t) & 1 ? fma(wx[t % K] * wy[t / K], widen(raw[t]), sum) : sum;
    y[where >> 18 & (kListed - 1)] = convert<T>(sum);
  }
}

/// Dense planes of two dims, and dense results. A block takes one plane at a time, a band of its rows (all of them
/// where they fit) after the other in shared memory, which is read at places that lie anywhere faster than a cache, and
/// a warp a list of places.
template <class T, int K>
__global__ void __launch_bounds__(kBandThreads, 1)
    sample_bands(const __grid_constant__ GridSampleProblem p, const __grid_constant__ PlaceLists lists,
                 const int* choice) {
  if (!is_chosen(choice, SampleWay::kScattered)) return;
  extern __shared__ __align__(16) unsigned char memory[];
  T* held = reinterpret_cast<T*>(memory);
  const int height = static_cast<int>(p.axes[1].axis.size), width = static_cast<int>(p.axes[2].axis.size),
            warp = threadIdx.x / 32;
  for (int64_t plane = blockIdx.x; plane < p.batch * p.channels; plane += gridDim.x) {
    const int64_t n = quotient(plane, p.channels), c = plane - n * p.channels;
    const T* x = static_cast<const T*>(p.x.data) + n * p.x.n + c * p.x.c;
    T* y = static_cast<T*>(const_cast<void*>(p.y.data)) + n * p.y.n + c * p.y.c;
    for (int top = 0; top < height; top += lists.band) {
      constexpr int kPart = kVector<T>;
      const int count = min(lists.band + 1, height - top) * width;
      __syncthreads();
#pragma unroll 4
      for (int i = threadIdx.x * kPart; i < count; i += kBandThreads * kPart)
        store_pack(held + i, load_past_l1<kPart>(x + int64_t{top} * width + i));
      __syncthreads();
      for (int64_t l = warp; l < lists.lists; l += kBandThreads / 32) {
        const int64_t list = n * lists.lists + l;
        const int split = lists.firsts[list], all = static_cast<int>(min(int64_t{kListed}, p.samples - l * kListed));
        sample_list<T, K>(lists, list, top == 0 ? 0 : split, top == 0 ? split : all, held, width, y + l * kListed);
      }
    }
  }
}

}  // namespace tenor::cuda
