// Resampling with windows of any number of taps: antialiasing, area, lanczos3, and every gradient, whose windows are
// the readers of a source. Tables of windows are made on the device; a thread goes down a strip of rows, makes its
// value of every row that the strip needs once and keeps it in a ring in shared memory that it alone reads.
#pragma once

#include "src/ops/interpolate/resample_fixed_cuda.cuh"

namespace tenor::cuda {

inline constexpr int kWindowRowsAhead = 8;  // loaded together, where a thread has one column and few taps
/// Rows loaded together by threads of V columns or channels and up to Held taps.
template <int V, int Held>
inline constexpr int kWindowAhead = Held == 0 ? 1
                                    : V == 1  ? (Held > 6 ? 2 : kWindowRowsAhead)
                                              : (Held > 6 ? 1 : 2);

/// A table of a dim's windows; weight k of row r at weight[k * rows + r], so that neighbouring rows lie side by side.
struct WindowTable {
  int64_t* first;
  int64_t* count;
  void* weight;
  int64_t rows, width;
};
struct WindowResample {
  StridedImage from, to;
  core::ResampleAxis axes[3];
  WindowTable tables[3];  ///< depth, height, width
  bool transposed;
  int64_t channels, units, groups;
  int strip;
  int ring;                       ///< rows kept, at least the tallest window's and those loaded ahead; 0: none
  int64_t most_row, most_column;  ///< the last row and column of `from`
};

template <class C>
__device__ void write_window(const WindowTable& table, const core::ResampleAxis& axis, bool transposed, int64_t r) {
  C* weight = static_cast<C*>(table.weight) + r;
  if (transposed) {
    const core::ResampleReaders readers = core::resample_readers(axis, r);
    table.first[r] = readers.first;
    table.count[r] = readers.end - readers.first;
    for (int64_t i = readers.first; i < readers.end; ++i, weight += table.rows)
      *weight = static_cast<C>(core::reader_weight(axis, i, r));
  } else {
    const core::ResampleTaps t = core::resample_taps(axis, r);
    table.first[r] = t.first;
    table.count[r] = t.count;
    for (int64_t k = 0; k < t.count; ++k, weight += table.rows) *weight = static_cast<C>(core::tap_weight(axis, t, k));
  }
}
template <class C>
__global__ void __launch_bounds__(kResampleThreads) resample_windows(const __grid_constant__ WindowResample p) {
  const int64_t step = int64_t{gridDim.x} * kResampleThreads;
  const WindowTable& table = p.tables[blockIdx.y];
  for (int64_t r = int64_t{blockIdx.x} * kResampleThreads + threadIdx.x; r < table.rows; r += step)
    write_window<C>(table, p.axes[blockIdx.y], p.transposed, r);
}

/// A thread's window along W: up to Held weights in registers; with Held = 0 any number, read from the table each time.
template <class T, int V, int Held>
struct WindowRow {
  using C = core::Compute<T>;
  static constexpr int kHeld = Held > 0 ? Held : 1;
  /// What a row gives, as it lies; taps beyond the window repeat its last.
  struct Raw {
    Pack<T, V> at[kHeld];
  };
  int64_t at, step;
  std::conditional_t<(Held > 0), int, int64_t> count;
  const C* weights;
  int64_t pitch;
  C weight[kHeld];
  int places[kHeld];  ///< of the taps, from `at`

  __device__ void place(const WindowTable& table, int64_t r, int64_t stride) {
    at = table.first[r] * stride;
    step = stride;
    count = static_cast<decltype(count)>(table.count[r]);
    weights = static_cast<const C*>(table.weight) + r;
    pitch = table.rows;
    if (count == 0) at = 0;
    if constexpr (Held > 0) {
#pragma unroll
      for (int k = 0; k < Held; ++k) {
        weight[k] = k < count ? weights[k * pitch] : C(0);
        places[k] = max(min(k, count - 1), 0) * static_cast<int>(stride);
      }
    }
  }
  __device__ __forceinline__ void load(const T* row, Raw& raw) const {
    if constexpr (Held > 0) {
#pragma unroll
      for (int k = 0; k < Held; ++k) raw.at[k] = load_pack<V>(row + at + places[k]);
    }
  }
  __device__ __forceinline__ void tap(const Pack<T, V>& raw, C w, bool used, C (&out)[V]) const {
    C x[V];
    widen_pack(raw, x);
#pragma unroll
    for (int v = 0; v < V; ++v) {
      const C sum = fma(w, x[v], out[v]);
      out[v] = used ? sum : out[v];  // what a tap beyond the window holds may not be finite
    }
  }
  /// The row's value, from what load() gave where that is held.
  __device__ __forceinline__ void weigh(const T* row, const Raw& raw, C (&out)[V]) const {
#pragma unroll
    for (int v = 0; v < V; ++v) out[v] = 0;
    if constexpr (Held > 0) {
#pragma unroll
      for (int k = 0; k < Held; ++k) tap(raw.at[k], weight[k], k < count, out);
    } else {
      const T* p = row + at;
      const C* w = weights;
#pragma unroll 4
      for (int64_t k = 0; k < count; ++k, p += step, w += pitch) tap(load_pack<V>(p), *w, true, out);
    }
  }
};

/// One row of `from` through the windows along depth and W; x is its place in the first plane.
template <class T, int V, int Held>
__device__ __forceinline__ void deep_row(const WindowResample& p, const WindowRow<T, V, Held>& across, const T* x,
                                         int64_t d, core::Compute<T> (&out)[V]) {
  using C = core::Compute<T>;
  const WindowTable& table = p.tables[0];
  const int64_t first = table.first[d];
  const int64_t count = table.count[d];
#pragma unroll
  for (int v = 0; v < V; ++v) out[v] = 0;
  for (int64_t k = 0; k < count; ++k) {
    const T* plane = x + (first + k) * p.from.d;
    typename WindowRow<T, V, Held>::Raw raw;
    C part[V];
    across.load(plane, raw);
    across.weigh(plane, raw, part);
    const C w = static_cast<const C*>(table.weight)[k * table.rows + d];
#pragma unroll
    for (int v = 0; v < V; ++v) out[v] = fma(w, part[v], out[v]);
  }
}

/// The windows of a strip's rows in shared memory.
template <class C>
struct StripWindows {
  int64_t* first;  ///< [rows]
  int* count;      ///< [rows]
  C* weight;       ///< [rows][width]
  int width;

  /// From `memory`, which it returns the end of. The whole block calls it.
  __device__ unsigned char* place(unsigned char* memory, const WindowTable& table, int strip) {
    width = static_cast<int>(table.width);
    first = reinterpret_cast<int64_t*>(memory);
    count = reinterpret_cast<int*>(first + strip);
    weight = reinterpret_cast<C*>(memory + (12 * strip + 15) / 16 * 16);
    return memory + (12 * strip + 15) / 16 * 16 + (sizeof(C) * strip * width + 15) / 16 * 16;
  }
  __device__ void fill(const WindowTable& table, int64_t row, int rows) {
    for (int i = threadIdx.x; i < rows; i += kResampleThreads)
      first[i] = table.first[row + i], count[i] = static_cast<int>(table.count[row + i]);
    for (int i = threadIdx.x; i < rows * width; i += kResampleThreads)
      weight[i] = static_cast<const C*>(table.weight)[i % width * table.rows + row + i / width];
  }
};
inline size_t strip_windows_bytes(int strip, int64_t width, size_t item) {
  return (12 * static_cast<size_t>(strip) + 15) / 16 * 16 + (item * static_cast<size_t>(strip * width) + 15) / 16 * 16;
}

/// The strip's rows at depth d, every input row made once. Ahead of them are loaded together. The ring has row j at
/// slot j % p.ring.
template <class T, int V, int Held, int Ahead>
__device__ void ringed_strip(const WindowResample& p, const WindowRow<T, V, Held>& across, const T* x, T* y, int64_t d,
                             const StripWindows<core::Compute<T>>& windows, int rows, core::Compute<T>* ring) {
  using C = core::Compute<T>;
  constexpr int kPitch = kResampleThreads * V;
  const bool flat = p.tables[0].rows == 1 && p.tables[0].width == 1;
  int64_t next = -1;
  int slot = 0;
  for (int r = 0; r < rows;) {
    const int64_t first = windows.first[r], last = first + windows.count[r];
    if (next < first && first < last) {
      next = first;
      slot = static_cast<int>(static_cast<uint32_t>(next) % static_cast<uint32_t>(p.ring));
    }
    if (next < last && first < last) {
      typename WindowRow<T, V, Held>::Raw raw[Ahead];
      if (flat) {
#pragma unroll
        for (int b = 0; b < Ahead; ++b) across.load(x + min(next + b, p.most_row) * p.from.h, raw[b]);
      }
#pragma unroll
      for (int b = 0; b < Ahead; ++b) {
        const T* from = x + min(next + b, p.most_row) * p.from.h;
        C made[V];
        if (flat)
          across.weigh(from, raw[b], made);
        else
          deep_row(p, across, from, d, made);
#pragma unroll
        for (int v = 0; v < V; ++v) ring[slot * kPitch + v] = made[v];
        if (++slot == p.ring) slot = 0;
      }
      next += Ahead;
    }
    for (; r < rows; ++r) {
      const int count = windows.count[r];
      const int64_t from = windows.first[r];
      if (count > 0 && from + count > next) break;
      int at = slot - static_cast<int>(next - from);  // a window's first row lies within the ring
      if (at < 0) at += p.ring;
      C sum[V] = {};
      for (int k = 0; k < count; ++k) {
        const C w = windows.weight[r * windows.width + k];
#pragma unroll
        for (int v = 0; v < V; ++v) sum[v] = fma(w, ring[at * kPitch + v], sum[v]);
        if (++at == p.ring) at = 0;
      }
      store_results<T, V>(y + r * p.to.h, sum);
    }
  }
}

/// Likewise without a ring, for windows too tall for one.
template <class T, int V, int Held>
__device__ void plain_strip(const WindowResample& p, const WindowRow<T, V, Held>& across, const T* x, T* y, int64_t d,
                            int64_t row, int64_t end) {
  using C = core::Compute<T>;
  const WindowTable& table = p.tables[1];
  for (int64_t r = row; r < end; ++r) {
    C sum[V] = {};
    for (int64_t k = 0; k < table.count[r]; ++k) {
      C made[V];
      deep_row(p, across, x + (table.first[r] + k) * p.from.h, d, made);
      const C w = static_cast<const C*>(table.weight)[k * table.rows + r];
#pragma unroll
      for (int v = 0; v < V; ++v) sum[v] = fma(w, made[v], sum[v]);
    }
    store_results<T, V>(y + r * p.to.h, sum);
  }
}

/// ByChannel: V channels of a pixel; else one column (V = 1).
template <class T, bool ByChannel, int V, int Held>
__global__ void __launch_bounds__(kResampleThreads) resample_window(const __grid_constant__ WindowResample p) {
  using C = core::Compute<T>;
  constexpr int kAhead = kWindowAhead<V, Held>;
  extern __shared__ __align__(16) unsigned char memory[];
  const int64_t unit = int64_t{blockIdx.x} * kResampleThreads + threadIdx.x;
  const bool works = unit < p.units;
  const int64_t columns = p.tables[2].rows, outer = quotient(works ? unit : 0, p.groups),
                inner = (works ? unit : 0) - outer * p.groups;
  const int64_t n = quotient(outer, ByChannel ? columns : p.channels),
                rest = outer - n * (ByChannel ? columns : p.channels);
  const int64_t c = ByChannel ? inner * V : rest, column = ByChannel ? rest : inner;
  WindowRow<T, V, Held> across;
  across.place(p.tables[2], column, p.from.w);
  const T* x = static_cast<const T*>(p.from.data) + n * p.from.n + c * p.from.c;
  T* y = static_cast<T*>(const_cast<void*>(p.to.data)) + n * p.to.n + c * p.to.c + column * p.to.w;
  const int64_t height = p.tables[1].rows;
  StripWindows<C> windows{};
  C* ring = nullptr;
  if (p.ring > 0) ring = reinterpret_cast<C*>(windows.place(memory, p.tables[1], p.strip)) + threadIdx.x * V;
  for (int64_t row = int64_t{blockIdx.y} * p.strip; row < height; row += int64_t{gridDim.y} * p.strip) {
    const int rows = static_cast<int>(min(int64_t{p.strip}, height - row));
    if (p.ring > 0) {
      __syncthreads();
      windows.fill(p.tables[1], row, rows);
      __syncthreads();
    }
    for (int64_t d = blockIdx.z; works && d < p.tables[0].rows; d += gridDim.z) {
      if (p.ring > 0)
        ringed_strip<T, V, Held, kAhead>(p, across, x, y + d * p.to.d + row * p.to.h, d, windows, rows, ring);
      else
        plain_strip(p, across, x, y + d * p.to.d, d, row, row + rows);
    }
  }
}

}  // namespace tenor::cuda
