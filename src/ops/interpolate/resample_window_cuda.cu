// Windows of any number of taps: antialiasing, area, lanczos3 and all gradients.
#include "src/core/visit.h"
#include "src/ops/interpolate/resample_column_cuda.cuh"
#include "src/ops/interpolate/resample_cuda.h"
#include "src/ops/interpolate/resample_fixed_launch.cuh"
#include "src/ops/interpolate/resample_halved_launch.cuh"

namespace tenor::cuda {
namespace {

constexpr size_t kMostRing = size_t{96} << 10;  // bytes of a block: two on a multiprocessor

const char* op_of(const ResampleProblem& p) { return p.transposed ? "interpolate_backward" : "interpolate"; }

/// Tables in one block of memory, which `memory` keeps.
WindowResample window_problem(const ResampleProblem& problem, size_t weight_bytes, Tensor& memory) {
  WindowResample p{};
  p.from = image_of(problem.from);
  p.to = image_of(problem.to);
  p.transposed = problem.transposed;
  p.channels = problem.to.shape(1);
  p.most_row = problem.from.shape(3) - 1;
  p.most_column = problem.from.shape(4) - 1;
  int64_t bytes = 0;
  int64_t at[3][3];
  const auto take = [&](int64_t size) {
    const int64_t place = bytes;
    bytes += (size + 15) / 16 * 16;
    return place;
  };
  for (int d = 0; d < 3; ++d) {
    p.axes[d] = core::with_step(problem.axes[d]);
    WindowTable& t = p.tables[d];
    t.rows = problem.transposed ? p.axes[d].in : p.axes[d].out;
    t.width = core::resample_width(p.axes[d], problem.transposed);
    at[d][0] = take(t.rows * 8), at[d][1] = take(t.rows * 8),
    at[d][2] = take(t.rows * t.width * static_cast<int64_t>(weight_bytes));
  }
  memory = Tensor::empty({bytes}, uint8, problem.to.device());
  char* start = static_cast<char*>(memory.raw());
  for (int d = 0; d < 3; ++d) {
    p.tables[d].first = reinterpret_cast<int64_t*>(start + at[d][0]);
    p.tables[d].count = reinterpret_cast<int64_t*>(start + at[d][1]);
    p.tables[d].weight = start + at[d][2];
  }
  return p;
}

template <class C>
void make_tables(const ResampleProblem& problem, const WindowResample& p) {
  int64_t rows = 1;
  for (const WindowTable& t : p.tables) rows = std::max(rows, t.rows);
  const unsigned blocks = blocks_for(rows, kResampleThreads, problem.to.device());
  launch(op_of(problem), resample_windows<C>, Grid{dim3(blocks, 3), dim3(kResampleThreads)}, problem.to.device(), p);
}

/// Held: taps along W that a thread keeps, none with 0.
template <class T, bool ByChannel, int V, int Held>
void launch_held(const ResampleProblem& problem, WindowResample& p) {
  using C = core::Compute<T>;
  const int64_t rows = p.tables[1].rows, depth = p.tables[0].rows, ring = p.tables[1].width + kWindowAhead<V, Held>;
  const size_t row_bytes = sizeof(C) * kResampleThreads * V;
  const size_t shared =
      strip_windows_bytes(p.strip, p.tables[1].width, sizeof(C)) + static_cast<size_t>(ring) * row_bytes;
  p.ring = shared <= kMostRing ? static_cast<int>(ring) : 0;
  const Grid grid = strips_grid(p.units, kResampleThreads, rows, p.strip, depth, p.ring > 0 ? shared : 0);
  launch(op_of(problem), resample_window<T, ByChannel, V, Held>, grid, problem.to.device(), p);
}

template <class T, bool ByChannel, int V>
void launch_window(const ResampleProblem& problem, WindowResample& p) {
  const int64_t n = problem.to.shape(0), columns = p.tables[2].rows;
  p.groups = ByChannel ? p.channels / V : columns;
  p.units = n * (ByChannel ? columns : p.channels) * p.groups;
  const int64_t blocks = (p.units + kResampleThreads - 1) / kResampleThreads;
  p.strip = strip_of(p.tables[1].rows, blocks, p.tables[0].rows, 4, kMostStrip / 4, problem.to.device());
  const int64_t width = has_short_rows(problem.from) ? p.tables[2].width : INT64_MAX;
  if (width <= 5) return launch_held<T, ByChannel, V, 5>(problem, p);
  if (width <= 6) return launch_held<T, ByChannel, V, 6>(problem, p);
  if (width <= 9) return launch_held<T, ByChannel, V, 9>(problem, p);
  launch_held<T, ByChannel, V, 0>(problem, p);
}

/// Results of a row whose windows span kColumnSpan columns at most, from a column that four divides.
int64_t piece_of(const ResampleProblem& problem, const WindowResample& p) {
  const double pace = static_cast<double>(problem.from.shape(4)) / static_cast<double>(problem.to.shape(4));
  const auto fits = static_cast<int64_t>((kColumnSpan - 2 * kColumnTaps - 8) / std::max(pace, 1.0));
  return std::min(fits, p.tables[2].rows);
}

/// Whether resample_columns takes it.
bool can_take_columns(const ResampleProblem& problem, const WindowResample& p) {
  const Tensor& from = problem.from;
  const double pace = static_cast<double>(from.shape(4)) / static_cast<double>(problem.to.shape(4));
  const bool few = p.tables[1].width <= kColumnTaps && p.tables[2].width <= kColumnTaps && p.tables[0].rows == 1 &&
                   p.tables[0].width == 1;
  return few && pace >= 1 && pace <= 8 && problem.to.stride(4) == 1 && fits_vectors(from, 4, 4) &&
         (problem.to.shape(3) + kMostStrip - 1) / kMostStrip < 65535;
}

template <class T>
void launch_columns(const ResampleProblem& problem, const WindowResample& window) {
  using C = core::Compute<T>;
  ColumnResample q{window};
  WindowResample& p = q.window;
  const Device device = problem.to.device();
  q.piece = static_cast<int>(piece_of(problem, p));
  p.groups = (p.tables[2].rows + q.piece - 1) / q.piece;
  const double pace = static_cast<double>(problem.from.shape(4)) / static_cast<double>(problem.to.shape(4));
  const auto span = static_cast<int64_t>(static_cast<double>(q.piece) * pace) + 2 * kColumnTaps + 8;
  q.threads = static_cast<int>((std::min(span, problem.from.shape(4) + 3) + 3) / 4);
  q.threads = std::min(q.threads, kResampleThreads);
  q.each = kResampleThreads / q.threads;
  q.planes = problem.to.shape(0) * p.channels;
  const int64_t groups = (q.planes + q.each - 1) / q.each, rows = p.tables[1].rows;
  p.strip = strip_of(rows, groups * p.groups, 1, 8, kMostStrip / 4, device);
  const int64_t strips = (rows + p.strip - 1) / p.strip;
  // What a block works out first serves several groups of planes, where there are far more blocks than run at once:
  // many at once hide the memory's latency.
  const int64_t turns = std::max<int64_t>(groups * p.groups * strips / (int64_t{32} * multiprocessors(device)), 1);
  p.units = (groups + turns - 1) / turns * p.groups;
  const Grid grid{dim3(static_cast<unsigned>(p.units), static_cast<unsigned>(strips)), dim3(kResampleThreads),
                  strip_windows_bytes(p.strip, p.tables[1].width, sizeof(C))};
  if (q.piece <= 2 * q.threads)
    launch(op_of(problem), resample_columns<T, 2>, grid, device, q);
  else
    launch(op_of(problem), resample_columns<T, 4>, grid, device, q);
}

}  // namespace

void resample_windowed(const ResampleProblem& problem) {
  core::visit_float(problem.from.dtype(), [&]<class T>() {
    using C = core::Compute<T>;
    constexpr int kChannels = kVector<T>;
    if constexpr (sizeof(T) <= 4) {
      if (const int taps = halved_taps(problem)) {
        if (halves_rows<T>(problem, taps)) return launch_halved<T>(op_of(problem), taps, problem);
        if (halves_channels<T>(problem, taps)) return launch_halved_channels<T>(op_of(problem), taps, problem);
      }
      if (const int taps = halving_gradient_taps<T>(problem))
        return launch_halving_gradient<T>(op_of(problem), taps, problem);
    }
    Tensor memory;
    WindowResample p = window_problem(problem, sizeof(C), memory);
    make_tables<C>(problem, p);
    if constexpr (sizeof(T) <= 4) {
      if (!lies_by_channel(problem) && can_take_columns(problem, p)) return launch_columns<T>(problem, p);
    }
    if (!lies_by_channel(problem)) return launch_window<T, false, 1>(problem, p);
    if (fits_vectors(problem.from, 1, kChannels) && fits_vectors(problem.to, 1, kChannels))
      return launch_window<T, true, kChannels>(problem, p);
    launch_window<T, true, 1>(problem, p);
  });
}

}  // namespace tenor::cuda
