// grid_sample on a GPU.
#include <algorithm>

#include "src/ops/grid_sample/grid_launch.cuh"
#include "src/ops/grid_sample/grid_sample_cuda.h"

namespace tenor::cuda {
namespace {

constexpr int kEach = 8;                             // channels of a thread
constexpr int64_t kWorthLooking = int64_t{8} << 20;  // elements of a result from which the grid is looked at first

/// Rows of a band, less the one that the next begins with; 0 where a plane does not fit in two, or lies otherwise.
int band_of(const GridSampling& s) {
  const Tensor &x = s.x, &y = s.y, &g = s.grid;
  const int64_t height = x.shape(3), width = x.shape(4), item = static_cast<int64_t>(item_size(x.dtype()));
  const auto dense = [&](const Tensor& t) {
    return t.stride(4) == 1 && (t.shape(3) == 1 || t.stride(3) == t.shape(4)) &&
           (t.shape(2) == 1 || t.stride(2) == t.shape(3) * t.shape(4));
  };
  const bool flat = (g.shape(2) == 1 || g.stride(2) == g.shape(3) * g.stride(3)) &&
                    (g.shape(1) == 1 || g.stride(1) == g.shape(2) * g.shape(3) * g.stride(3));
  if (s.dims != 2 || s.mode == core::GridMode::kBicubic || !dense(x) || !dense(y) || !flat ||
      s.samples() >= (int64_t{1} << 31))
    return 0;
  const int64_t part = kVectorBytes / item;
  if (width % part != 0 || !is_aligned(x.raw(), x.stride(0), static_cast<size_t>(item)) ||
      !is_aligned(nullptr, x.stride(1), static_cast<size_t>(item)))
    return 0;
  const int64_t rows = std::min<int64_t>(static_cast<int64_t>(kBandBytes) / (width * item) - 1, height);
  return 2 * rows >= height && rows > 0
             ? static_cast<int>(std::min((height + 1) / 2 <= rows && rows < height ? (height + 1) / 2 : rows, height))
             : 0;
}

template <class T, int Dims, int K, class Offset>
void launch_places(const GridSampling& s, GridSampleProblem& p, const int* choice) {
  p.groups = (p.channels + kEach - 1) / kEach;
  const int64_t wide = p.height >= 4 ? 32 : 256, high = p.height >= 4 ? 8 : 1;
  const int64_t tiles = p.depth * ((p.height + high - 1) / high) * ((p.width + wide - 1) / wide);
  const auto units = static_cast<unsigned>(std::min<int64_t>(p.batch * p.groups, 65535));
  launch(s.op, sample_places<T, Dims, K, kEach, Offset>,
         Grid{dim3(static_cast<unsigned>(tiles), units), dim3(kSampleThreads)}, s.x.device(), p, choice);
}

/// A plane read at scattered places is worth holding in shared memory; read at coherent ones it is not. The grid says
/// which.
template <class T, int K>
void launch_chosen(const GridSampling& s, GridSampleProblem& p, int band) {
  const Tensor choice = Tensor::empty({1}, int32, s.x.device());
  launch(s.op, look_at_grid<T>, Grid{dim3(1), dim3(1024)}, s.x.device(), p, choice.data<int>());
  launch_places<T, 2, K, int32_t>(s, p, choice.data<int>());
  const auto blocks = static_cast<unsigned>(std::min<int64_t>(p.batch * p.channels, multiprocessors(s.x.device())));
  const int64_t rows = std::min<int64_t>(band + 1, p.axes[1].size);
  launch(s.op, sample_bands<T, K>,
         Grid{dim3(blocks), dim3(kBandThreads), static_cast<size_t>(rows * p.axes[2].size) * sizeof(T)}, s.x.device(),
         p, band, choice.data<int>());
}

template <class T, int Dims, int K, int V>
void launch_channels(const GridSampling& s, GridSampleProblem& p) {
  p.groups = p.channels / V;
  const int64_t units = p.batch * p.samples * p.groups;
  launch(s.op, sample_channels<T, Dims, K, V>,
         Grid{dim3(static_cast<unsigned>((units + kSampleThreads - 1) / kSampleThreads)), dim3(kSampleThreads)},
         s.x.device(), p);
}

template <class T, int Dims, int K>
void launch_sampling(const GridSampling& s) {
  GridSampleProblem p = problem_of(s);
  if (lies_by_channel(s.x) && lies_by_channel(s.y)) {
    if (fits_channels(s.x, kVector<T>) && fits_channels(s.y, kVector<T>))
      return launch_channels<T, Dims, K, kVector<T>>(s, p);
    return launch_channels<T, Dims, K, 1>(s, p);
  }
  if (!has_short_planes(s.x)) return launch_places<T, Dims, K, int64_t>(s, p, nullptr);
  if constexpr (Dims == 2 && K <= 2 && sizeof(T) <= 4) {
    const int band = band_of(s);
    if (band > 0 && s.y.numel() >= kWorthLooking && p.samples > 4096 &&
        p.batch * p.channels >= multiprocessors(s.x.device()))
      return launch_chosen<T, K>(s, p, band);
  }
  launch_places<T, Dims, K, int32_t>(s, p, nullptr);
}

}  // namespace

void grid_sample(const GridSampling& s) {
  if (s.y.numel() == 0) return;
  const DeviceGuard guard(s.x.device());
  core::visit_float(s.x.dtype(),
                    [&]<class T>() { visit_sampling(s, [&]<int Dims, int K>() { launch_sampling<T, Dims, K>(s); }); });
}

}  // namespace tenor::cuda
