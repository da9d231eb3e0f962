// grid_sample on a GPU.
#include <algorithm>

#include "src/ops/grid_sample/grid_bands_cuda.cuh"
#include "src/ops/grid_sample/grid_launch.cuh"
#include "src/ops/grid_sample/grid_sample_cuda.h"

namespace tenor::cuda {
namespace {

constexpr int64_t kMostChannels = 64;                // of a thread
constexpr int64_t kWorthListing = int64_t{4} << 20;  // elements of a result
constexpr int64_t kMostListed = int64_t{16} << 20;   // places, of 12 bytes

/// Rows of a band, less the one that the next begins with; 0 where a plane does not fit in two, or lies otherwise, or
/// where lists of places are not worth making.
int band_of(const GridSampling& s) {
  const Tensor &x = s.x, &y = s.y;
  const auto dense = [](const Tensor& t) {
    return t.stride(4) == 1 && (t.shape(3) == 1 || t.stride(3) == t.shape(4)) &&
           (t.shape(2) == 1 || t.stride(2) == t.shape(3) * t.shape(4));
  };
  if (s.dims != 2 || s.mode != core::GridMode::kBilinear || !dense(x) || !dense(y)) return 0;
  const int64_t planes = x.shape(0) * x.shape(1), listed = x.shape(0) * s.samples();
  if (y.numel() < kWorthListing || x.shape(1) < 8 || s.samples() < kListed || planes < multiprocessors(x.device()) ||
      listed > kMostListed)
    return 0;
  const int64_t height = x.shape(3), width = x.shape(4), item = static_cast<int64_t>(item_size(x.dtype())),
                row = width * item;
  const bool aligned = is_aligned(x.raw(), x.stride(0), static_cast<size_t>(item)) &&
                       is_aligned(nullptr, x.stride(1), static_cast<size_t>(item));
  if (row % kVectorBytes != 0 || !aligned) return 0;
  const int64_t rows =
      std::min(static_cast<int64_t>(kBandBytes) / row - 1, static_cast<int64_t>(kMostBandOffset) / width - 3);
  if (rows >= height) return static_cast<int>(height);
  return 2 * rows >= height ? static_cast<int>((height + 1) / 2) : 0;
}

template <class T, int Dims, int K, class Index>
void launch_places(const GridSampling& s, GridSampleProblem& p, const int* choice = nullptr) {
  const unsigned tiles = tiles_of(p);
  // Many channels a thread share its coordinates, as long as there are blocks enough.
  const int64_t enough = int64_t{8} * multiprocessors(s.x.device());
  p.chunks = static_cast<int>(std::clamp<int64_t>(int64_t{tiles} * p.batch * p.channels / enough, 1, kMostChannels));
  p.groups = (p.channels + p.chunks - 1) / p.chunks;
  const auto units = static_cast<unsigned>(std::min<int64_t>(p.batch * p.groups, 65535));
  launch(s.op, sample_places<T, Dims, K, Index>, Grid{dim3(tiles, units), dim3(kSampleThreads)}, s.x.device(), p,
         choice);
}

/// Places that lie anywhere are read from planes in shared memory, those beside each other through the cache: the grid
/// says which.
template <class T>
void launch_chosen(const GridSampling& s, GridSampleProblem& p, int band) {
  const Device device = s.x.device();
  PlaceLists lists{};
  lists.lists = (p.samples + kListed - 1) / kListed;
  lists.band = band;
  const int64_t count = p.batch * lists.lists;
  const Tensor choice = Tensor::empty({1}, int32, device), where = Tensor::empty({count * kListed}, uint32, device),
               x = Tensor::empty({count * kListed}, float32, device),
               y = Tensor::empty({count * kListed}, float32, device), firsts = Tensor::empty({count}, int32, device);
  lists.where = where.data<uint32_t>();
  lists.x = x.data<float>();
  lists.y = y.data<float>();
  lists.firsts = firsts.data<int>();
  launch(s.op, look_at_grid<T>, Grid{dim3(1), dim3(1024)}, device, p, choice.data<int>());
  launch_places<T, 2, 2, int32_t>(s, p, choice.data<int>());
  launch(s.op, list_places<T, 2>, Grid{dim3(static_cast<unsigned>(count)), dim3(kListed)}, device, p, lists,
         choice.data<int>());
  const auto blocks = static_cast<unsigned>(std::min<int64_t>(p.batch * p.channels, multiprocessors(device)));
  const int64_t rows = std::min<int64_t>(band + 1, s.x.shape(3));
  launch(s.op, sample_bands<T, 2>,
         Grid{dim3(blocks), dim3(kBandThreads), static_cast<size_t>(rows * s.x.shape(4)) * sizeof(T)}, device, p, lists,
         choice.data<int>());
}

template <class T, int Dims, int K, int V, class Index>
void launch_channels(const GridSampling& s, GridSampleProblem& p) {
  p.chunks = 1;
  p.groups = p.channels / V;
  while (p.chunks < 4 && p.groups % 2 == 0 &&
         p.batch * p.samples * p.groups >= int64_t{4096} * multiprocessors(s.x.device()))
    p.groups /= 2, p.chunks *= 2;
  const int64_t units = p.batch * p.samples * p.groups;
  launch(s.op, sample_channels<T, Dims, K, V, Index>,
         Grid{dim3(static_cast<unsigned>((units + kSampleThreads - 1) / kSampleThreads)), dim3(kSampleThreads)},
         s.x.device(), p);
}

template <class T, int Dims, int K>
void launch_sampling(const GridSampling& s) {
  GridSampleProblem p = problem_of(s);
  const bool narrow = has_short_planes(s.x);
  if (lies_by_channel(s.x) && lies_by_channel(s.y)) {
    if (narrow && fits_vectors(s.x, 1, kVector<T>) && fits_vectors(s.y, 1, kVector<T>))
      return launch_channels<T, Dims, K, kVector<T>, int32_t>(s, p);
    return launch_channels<T, Dims, K, 1, int64_t>(s, p);
  }
  if (!narrow) return launch_places<T, Dims, K, int64_t>(s, p);
  if constexpr (Dims == 2 && K == 2 && sizeof(T) <= 4) {
    const int band = band_of(s);
    if (band > 0) return launch_chosen<T>(s, p, band);
  }
  launch_places<T, Dims, K, int32_t>(s, p);
}

}  // namespace

void grid_sample(const GridSampling& s) {
  if (s.y.numel() == 0) return;
  const DeviceGuard guard(s.x.device());
  core::visit_float(s.x.dtype(),
                    [&]<class T>() { visit_sampling(s, [&]<int Dims, int K>() { launch_sampling<T, Dims, K>(s); }); });
}

}  // namespace tenor::cuda
