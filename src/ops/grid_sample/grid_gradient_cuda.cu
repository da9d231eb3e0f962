// The gradients of grid_sample on a GPU.
#include <algorithm>

#include "src/core/modes.h"
#include "src/ops/grid_sample/grid_bands_cuda.cuh"
#include "src/ops/grid_sample/grid_channels_cuda.cuh"
#include "src/ops/grid_sample/grid_launch.cuh"
#include "src/ops/grid_sample/grid_sample_cuda.h"

namespace tenor::cuda {
namespace {

constexpr int64_t kMostEntries = int64_t{1} << 27;    // listed at once: 2 GiB
constexpr int64_t kMostImages = 65535;                // of a launch
constexpr int64_t kWorthChoosing = int64_t{1} << 16;  // places for a thread each

unsigned blocks_of(int64_t threads) {
  return static_cast<unsigned>((threads + kGradientThreads - 1) / kGradientThreads);
}

/// A gradient: of results s.y, to grad_x and grad_grid.
struct Gradient {
  const GridSampling& s;
  GridSampleProblem p;
  Tensor grad_x, grad_grid;
  bool turned;       ///< some images are brought into rows of channels
  bool rows;         ///< images lie in rows of channels
  Tensor choice;     ///< where the grid says whether they are brought, else undefined
  int64_t channels;  ///< of a row
  Tensor x_rows, y_rows;

  const int* chosen() const { return choice.defined() ? choice.data<int>() : nullptr; }
  Device device() const { return s.x.device(); }
  int64_t pixels() const { return s.x.shape(2) * s.x.shape(3) * s.x.shape(4); }
  GridGradientProblem grid() const { return {p, grid_image(grad_grid), grad_grid.dtype() == float32}; }
};

/// Whether the places of x lie evenly: stride(4) from one to the next.
bool lies_evenly(const Tensor& x) {
  const int64_t step = x.stride(4);
  return (x.shape(3) == 1 || x.stride(3) == x.shape(4) * step) &&
         (x.shape(2) == 1 || x.stride(2) == x.shape(3) * x.shape(4) * step);
}
ImagePlaces places_of(const Tensor& x) { return {x.shape(3), x.shape(4), lies_evenly(x)}; }

/// Whether channels lie side by side, in whole pieces, and places lie evenly.
bool has_rows(const Tensor& x, int width) { return x.stride(1) == 1 && fits_vectors(x, 1, width) && lies_evenly(x); }
ChannelRows rows_of(const Tensor& x) { return {x.raw(), x.stride(0), x.stride(4)}; }

/// Lanes that share a row of `pieces`.
int lanes_of(int64_t pieces) {
  int lanes = 1;
  while (lanes < 32 && lanes < pieces) lanes *= 2;
  return lanes;
}

/// A launch of the chain of kernels that the gradients are: each begins with begin_link().
template <class Kernel, class... Args>
void launch_link(const Gradient& g, Kernel kernel, Grid grid, const Args&... args) {
  grid.early = true;
  launch(g.s.op, kernel, grid, g.device(), args...);
}

/// Copies all images of x into rows of channels.
template <class T>
void turn(const Gradient& g, const Tensor& x, const Tensor& rows) {
  const int64_t places = x.shape(2) * x.shape(3) * x.shape(4), image = places * g.channels;
  const Grid grid{dim3(static_cast<unsigned>((places + kTurnPlaces - 1) / kTurnPlaces),
                       static_cast<unsigned>((g.channels + kTurnChannels - 1) / kTurnChannels)),
                  dim3(kTurnThreads)};
  if (places == 0) return;
  for (int64_t n = 0; n < x.shape(0); n += kMostImages) {
    Grid some = grid;
    some.blocks.z = static_cast<unsigned>(std::min(kMostImages, x.shape(0) - n));
    launch_link(g, turn_channels<T>, some, image_of(x), places_of(x), n, places, x.shape(1), g.channels,
                rows.data<T>() + n * image, g.chosen());
  }
}

template <class T, int Dims, int K, class I>
void launch_grid_gradient(const Gradient& g) {
  const int64_t places = g.p.batch * g.p.samples;
  if (places == 0) return;
  if (!g.rows || g.choice.defined()) {
    const auto images = static_cast<unsigned>(std::min(g.p.batch, kMostImages));
    launch_link(g, grid_gradient<T, Dims, K, I>, Grid{dim3(tiles_of(g.p), images), dim3(kSampleThreads)}, g.grid(),
                g.chosen());
  }
  if (!g.rows) return;
  constexpr int kV = kVector<T>;
  const int64_t pieces = K > 1 ? g.channels / kV : 0;
  const ChannelGridGradient q{g.grid(),  rows_of(g.x_rows), rows_of(g.y_rows),        0,
                              g.p.batch, lanes_of(pieces),  static_cast<int>(pieces), g.chosen()};
  launch_link(g, grid_gradient_channels<T, Dims, K, kV, I>, Grid{dim3(blocks_of(places)), dim3(kGradientThreads)}, q);
}

/// The memory of lists, and how kernels see it.
template <class R, class I>
struct ListMemory {
  static constexpr int64_t kHead = 16 / sizeof(I);  ///< in front of the counts: the numbers of long lists
  Tensor counts, sums, starts, ranks, arrivals, entries, unranked, unsummed;
  TapLists<R, I> lists{};

  ListMemory(const Gradient& g, int64_t n0, int64_t images, int64_t taps) {
    constexpr DType kIndex = sizeof(I) == 4 ? DType::kInt32 : DType::kInt64;
    const Device device = g.device();
    lists.n0 = n0, lists.images = images, lists.pixels = g.pixels(), lists.most = g.p.samples * taps;
    lists.tiles = (lists.pixels + kScanTile - 1) / kScanTile;
    const int64_t all = images * lists.most;
    const auto index = [&](Tensor& t, int64_t count) {
      t = Tensor::empty({count}, kIndex, device);
      return t.data<I>();
    };
    lists.counts = index(counts, kHead + images * lists.pixels) + kHead;
    lists.long_counts = reinterpret_cast<unsigned long long*>(counts.data<I>());
    lists.sums = index(sums, images * lists.tiles);
    lists.starts = index(starts, images * (lists.pixels + 1));
    lists.ranks = index(ranks, all);
    lists.arrivals = index(arrivals, all);
    entries = Tensor::empty({all * static_cast<int64_t>(sizeof(TapEntry<R, I>)) / 8}, int64, device);
    lists.entries = static_cast<TapEntry<R, I>*>(entries.raw());
    unranked = Tensor::empty({all / kMostRanked + 1}, int64, device);
    unsummed = Tensor::empty({all / kMostSummed + 1}, int64, device);
    lists.unranked = unranked.data<int64_t>();
    lists.unsummed = unsummed.data<int64_t>();
  }
};

template <class T, int Dims, int K, class I>
void make_lists(const Gradient& g, const ListMemory<core::Compute<T>, I>& memory) {
  const auto& l = memory.lists;
  check(cudaMemsetAsync(memory.counts.raw(), 0, static_cast<size_t>(memory.counts.numel()) * sizeof(I),
                        current_stream(g.device()).handle),
        g.s.op);
  const dim3 tiles(static_cast<unsigned>(l.tiles), static_cast<unsigned>(std::min(l.images, kMostImages)));
  const Grid grid{dim3(blocks_of(std::max<int64_t>(l.images * g.p.samples, 1))), dim3(kListThreads)};
  launch_link(g, count_taps<T, Dims, K, I>, grid, g.p, l);
  if (l.tiles > kFewTiles) launch_link(g, sum_counts<core::Compute<T>, I>, Grid{tiles, dim3(kScanThreads)}, l);
  launch_link(g, scan_counts<core::Compute<T>, I>, Grid{tiles, dim3(kScanThreads)}, l);
  launch_link(g, place_taps<T, Dims, K, I>, grid, g.p, l);
  launch_link(g, order_taps<T, Dims, K, I>, grid, g.p, l);
  launch_link(g, order_long_lists<T, Dims, K, I>,
              Grid{dim3(static_cast<unsigned>(2 * multiprocessors(g.device()))), dim3(kListThreads)}, g.p, l);
}

template <class T, class I>
void sum_rows(const Gradient& g, const TapLists<core::Compute<T>, I>& l) {
  constexpr int kV = kVector<T>;
  const int64_t pieces = g.channels / kV;
  const bool direct = has_rows(g.grad_x, kV);
  const ChannelSums<core::Compute<T>, I> q{
      l,      rows_of(g.y_rows), image_of(g.grad_x),       places_of(g.grad_x), rows_of(g.grad_x),
      direct, lanes_of(pieces),  static_cast<int>(pieces), g.p.channels,        g.chosen()};
  const int64_t most = int64_t{kSumThreads} / q.lanes * kSumPixels;
  launch_link(g, sum_channels<T, kV, I>,
              Grid{dim3(static_cast<unsigned>((l.pixels + most - 1) / most),
                        static_cast<unsigned>((pieces + q.lanes - 1) / q.lanes), static_cast<unsigned>(l.images)),
                   dim3(kSumThreads)},
              q);
}

template <class T, int Dims, int K, class I>
void add_images(const Gradient& g, int64_t n0, int64_t images) {
  constexpr int kTaps = Dims == 3 ? K * K * K : K * K;
  const ListMemory<core::Compute<T>, I> memory(g, n0, images, kTaps);
  make_lists<T, Dims, K, I>(g, memory);
  const PixelSums<core::Compute<T>, I> q{memory.lists,        image_of(g.s.y), places_of(g.s.y), image_of(g.grad_x),
                                         places_of(g.grad_x), g.p.channels,    g.chosen()};
  const auto groups = static_cast<unsigned>((g.p.channels + kSummedChannels - 1) / kSummedChannels);
  if (!g.rows || g.choice.defined())
    launch_link(
        g, sum_pixels<T, I>,
        Grid{dim3(blocks_of(memory.lists.pixels), groups, static_cast<unsigned>(images)), dim3(kGradientThreads)}, q);
  if (g.rows) sum_rows<T, I>(g, memory.lists);
  const auto warps = static_cast<unsigned>(std::min<int64_t>((g.p.channels + 7) / 8, 64));
  launch_link(g, sum_long_lists<T, I>,
              Grid{dim3(static_cast<unsigned>(4 * multiprocessors(g.device())), warps), dim3(kGradientThreads)}, q);
}

template <class T, int Dims, int K, class I>
void launch_gradients(const Gradient& g) {
  constexpr int kTaps = Dims == 3 ? K * K * K : K * K;
  if (g.turned) {
    turn<T>(g, g.s.y, g.y_rows);
    if (K > 1) turn<T>(g, g.s.x, g.x_rows);
  }
  launch_grid_gradient<T, Dims, K, I>(g);
  if (g.grad_x.numel() == 0) return;
  const int64_t most = std::clamp<int64_t>(kMostEntries / std::max<int64_t>(g.p.samples * kTaps, 1), 1, kMostImages);
  for (int64_t n = 0; n < g.p.batch; n += most) add_images<T, Dims, K, I>(g, n, std::min(most, g.p.batch - n));
}

/// Rows of channels, dense: as an image.
Tensor new_rows(const Tensor& x, int64_t channels) {
  Dims shape = x.shape();
  shape[1] = channels;
  const int64_t w = channels, h = w * shape[4], d = h * shape[3], n = d * shape[2];
  return Tensor::empty(shape, x.dtype(), x.device(), {n, 1, d, h, w});
}

/// Scattered places are read from rows of channels; where places lie beside one another threads read float32 planes as
/// they lie (16-bit ones are slower so than copied). Few channels are not worth rows.
template <class T, int Dims, int K>
void plan(Gradient& g) {
  constexpr int kV = kVector<T>;
  const Tensor &x = g.s.x, &y = g.s.y;
  g.rows = has_rows(x, kV) && has_rows(y, kV);
  if (g.rows) {
    g.channels = g.p.channels, g.x_rows = x, g.y_rows = y;
    return;
  }
  if (g.p.channels < 4) return;
  g.rows = g.turned = true;
  g.channels = (g.p.channels + kV - 1) / kV * kV;
  g.x_rows = K > 1 ? new_rows(x, g.channels) : x;
  g.y_rows = new_rows(y, g.channels);
  if (Dims == 2 && K == 2 && sizeof(T) == 4 && x.stride(4) == 1 && y.stride(4) == 1 && !core::batch_invariant() &&
      g.p.samples >= 2 && g.p.batch * g.p.samples >= kWorthChoosing) {
    g.choice = Tensor::empty({1}, int32, x.device());
    launch(g.s.op, look_at_grid<T>, Grid{dim3(1), dim3(1024)}, x.device(), g.p, g.choice.data<int>());
  }
}

}  // namespace

void grid_sample_backward(const GridSampling& s, const Tensor& grad_x, const Tensor& grad_grid) {
  if (s.x.shape(0) == 0) return;
  const DeviceGuard guard(s.x.device());
  Gradient g{s, problem_of(s), grad_x, grad_grid, false, false, {}, s.x.shape(1), {}, {}};
  const auto entries = [&](int64_t taps) { return s.samples() * taps; };
  core::visit_float(s.x.dtype(), [&]<class T>() {
    visit_sampling(s, [&]<int Dims, int K>() {
      plan<T, Dims, K>(g);
      const bool narrow = has_short_planes(s.x) && (!g.turned || has_short_planes(g.x_rows)) &&
                          entries(Dims == 3 ? K * K * K : K * K) < INT32_MAX / 2 && g.pixels() < INT32_MAX / 2;
      if (narrow)
        launch_gradients<T, Dims, K, int32_t>(g);
      else
        launch_gradients<T, Dims, K, int64_t>(g);
    });
  });
}

}  // namespace tenor::cuda
