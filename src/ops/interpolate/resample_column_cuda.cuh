// Windows of a few taps in two dims, of images whose rows shrink, along W dense: first along columns, where a thread
// has four neighbours in registers, then along rows through shared memory. Every element of the image is loaded once a
// strip.
#pragma once

#include "src/ops/interpolate/resample_window_cuda.cuh"

namespace tenor::cuda {

inline constexpr int kColumnTaps = 6;    // of a window, at most
inline constexpr int kColumnSpan = 512;  // input columns of a block
inline constexpr int kColumnAhead = 8;   // rows loaded together

struct ColumnResample {
  WindowResample window;  ///< units: groups of planes by pieces of a row; groups: pieces
  int piece;              ///< results of a block's row: their windows span at most kColumnSpan columns
  int threads;            ///< a plane: each has four columns
  int each;               ///< planes of a block
  int64_t planes;
};

template <class T>
__device__ __forceinline__ Pack<T, 4> load_columns(const T* row, bool inside) {
  return inside ? load_pack<4>(row) : Pack<T, 4>{};
}

/// What a thread's results of a row read of the line of sums along columns: Results of them, q.threads apart.
template <class C, int Results>
struct LineWindows {
  int at[Results], count[Results];  ///< count -1: no result
  C weight[Results][kColumnTaps];

  /// Column 0 of the plane's line is column `low` of the image.
  __device__ void place(const ColumnResample& q, int64_t first_result, int64_t low, int lane, int start, bool works) {
    const WindowTable& table = q.window.tables[2];
#pragma unroll
    for (int j = 0; j < Results; ++j) {
      const int64_t result = first_result + lane + j * q.threads;
      const bool wanted = works && lane + j * q.threads < q.piece && result < table.rows;
      count[j] = wanted ? static_cast<int>(table.count[result]) : -1;
      at[j] = count[j] > 0 ? start + static_cast<int>(table.first[result] - low) : 0;
#pragma unroll
      for (int k = 0; k < kColumnTaps; ++k)
        weight[j][k] = k < count[j] ? static_cast<const C*>(table.weight)[k * table.rows + result] : C(0);
    }
  }
  __device__ __forceinline__ C sum(int j, const C* line) const {
    C out = 0;
#pragma unroll
    for (int k = 0; k < kColumnTaps; ++k) {
      const C next = fma(weight[j][k], line[at[j] + min(k, max(count[j] - 1, 0))], out);
      out = k < count[j] ? next : out;  // what lies beside a window may not be finite
    }
    return out;
  }
};

template <class T, int Results>
__global__ void __launch_bounds__(kResampleThreads) resample_columns(const __grid_constant__ ColumnResample q) {
  using C = core::Compute<T>;
  constexpr int K = kColumnTaps;
  extern __shared__ __align__(16) unsigned char memory[];
  __shared__ __align__(16) C lines[2][kResampleThreads * 4];
  const WindowResample& p = q.window;
  const int64_t start = quotient(blockIdx.x, p.groups), piece = blockIdx.x - start * p.groups,
                step = quotient(gridDim.x, p.groups), row = int64_t{blockIdx.y} * p.strip;
  const int rows = static_cast<int>(min(int64_t{p.strip}, p.tables[1].rows - row));
  StripWindows<C> windows{};
  windows.place(memory, p.tables[1], p.strip);
  windows.fill(p.tables[1], row, rows);
  const int local = static_cast<int>(threadIdx.x) / q.threads, lane = static_cast<int>(threadIdx.x) - local * q.threads;
  const int64_t first_result = piece * q.piece, low = p.tables[2].first[first_result] / 4 * 4, column = low + 4 * lane;
  LineWindows<C, Results> across;
  across.place(q, first_result, low, lane, local * q.threads * 4, local < q.each);
  __syncthreads();
  int turn = 0;  // of the two lines: one is read while the other is written
  for (int64_t group = start; group * q.each < q.planes; group += step) {
    const int64_t plane = group * q.each + local, n = quotient(plane, p.channels), c = plane - n * p.channels;
    const bool works = local < q.each && plane < q.planes, inside = works && column <= p.most_column;
    const T* x = static_cast<const T*>(p.from.data) + (inside ? n * p.from.n + c * p.from.c + column : 0);
    T* y = static_cast<T*>(const_cast<void*>(p.to.data)) + n * p.to.n + c * p.to.c + row * p.to.h + first_result + lane;
    C held[K][4] = {};
    int64_t pushed = windows.first[0];
    for (int r = 0; r < rows;) {
      Pack<T, 4> raw[kColumnAhead];
#pragma unroll
      for (int b = 0; b < kColumnAhead; ++b) raw[b] = load_columns(x + min(pushed + b, p.most_row) * p.from.h, inside);
#pragma unroll
      for (int b = 0; b < kColumnAhead; ++b) {
#pragma unroll
        for (int k = 0; k + 1 < K; ++k)
#pragma unroll
          for (int i = 0; i < 4; ++i) held[k][i] = held[k + 1][i];
        widen_pack(raw[b], held[K - 1]);
        ++pushed;
        for (; r < rows && windows.first[r] + windows.count[r] <= pushed; ++r) {  // its last row is the one just pushed
          const int taps = windows.count[r];
          const C* weight = windows.weight + r * windows.width + taps - K;
          Pack<C, 4> sum{};
#pragma unroll
          for (int k = 0; k < K; ++k) {
            if (k < K - taps) continue;
            const C w = weight[k];
#pragma unroll
            for (int i = 0; i < 4; ++i) sum.at[i] = fma(w, held[k][i], sum.at[i]);
          }
          C* line = lines[turn];
          turn ^= 1;
          store_pack(line + 4 * static_cast<int>(threadIdx.x), sum);
          __syncthreads();
#pragma unroll
          for (int j = 0; j < Results; ++j)
            if (works && across.count[j] >= 0) y[r * p.to.h + j * q.threads] = convert<T>(across.sum(j, line));
        }
      }
    }
  }
}

}  // namespace tenor::cuda
