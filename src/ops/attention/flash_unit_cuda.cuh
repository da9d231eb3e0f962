// flash_unit: attention in one pass over the keys without matrix units, for every dtype, head size, stride and option.
// Online softmax: arXiv 1805.02867.
//
// A block holds kRows packed rows (query i of head g of a key head's group is row i * group + g) and kColumns columns
// of the result, and walks tiles of kKeys keys, which start at multiples of kKeys from key 0. Each of 16 x 8 threads
// holds kR rows times kK keys of the scores and kR rows times kC columns of the result. A score is one chain of
// products over the head, a sum over keys runs in ascending order (a row's weights: a thread's keys, then eight
// threads), and a hidden key adds nothing, so the bits of a row depend on its own problem alone.
#pragma once

#include "src/cuda/convert.cuh"
#include "src/cuda/ptx/float.cuh"
#include "src/cuda/vector.cuh"
#include "src/ops/attention/attention_device.cuh"

namespace tenor::attn {

/// Everything that a kernel is compiled for.
template <class T_, int kR_, int kC_>
struct UnitConfig {
  using T = T_;
  using C = core::Compute<T>;
  static constexpr bool kDouble = sizeof(C) == 8;
  static constexpr int kR = kR_, kC = kC_, kK = kDouble ? 4 : 8;
  static constexpr int kThreads = 128, kRows = 16 * kR, kKeys = 8 * kK, kColumns = 8 * kC;
  static constexpr int kDepth = kDouble ? 32 : 64;  ///< of the head, multiplied at a time
};

template <class U, class C = typename U::C>
struct alignas(16) UnitShared {
  static constexpr int kPad = 4;  // keeps rows 16-byte aligned and columns off one bank
  C q[U::kDepth][U::kRows + kPad];
  union {
    C k[U::kDepth][U::kKeys + kPad];
    C p[U::kKeys][U::kRows + kPad];  // weights: +0 or more where visible, -0 where hidden
  };
  C v[U::kKeys][U::kColumns + kPad];  // NaN and infinities as 0
  int64_t q_at[U::kRows];             // where a row of q starts; -1 past the end
  int query[U::kRows], head[U::kRows];
  int low[U::kRows], high[U::kRows];  // keys [low, high) are not hidden by the diagonal or window
};

/// A thread's place among the 16 x 8: neighbours in a warp share one or the other, which lets shared memory answer two
/// at once.
__device__ __forceinline__ int lane_x() { return threadIdx.x / 2 % 8; }
__device__ __forceinline__ int lane_y() { return threadIdx.x / 32 * 4 + threadIdx.x / 16 % 2 * 2 + threadIdx.x % 2; }
/// The largest, or the sum, over the eight threads of a row.
template <class C, class F>
__device__ __forceinline__ C over_row(C x, F join) {
#pragma unroll
  for (int lane = 2; lane < 16; lane *= 2) x = join(x, __shfl_xor_sync(~0u, x, lane));
  return x;
}

/// Item i of a lane that holds `kCount` of them: fours, `kLanes` lanes side by side.
template <int kCount, int kLanes>
__device__ __forceinline__ constexpr int place(int i, int lane) {
  return kCount < 4 ? lane * kCount + i : i / 4 * (4 * kLanes) + lane * 4 + i % 4;
}

__device__ __forceinline__ float exponential(float x) { return cuda::ptx::exp2_approximate(x * 1.4426950408889634f); }
__device__ __forceinline__ double exponential(double x) { return exp(x); }

/// The state of a thread's rows.
template <class U, class C = typename U::C>
struct UnitRows {
  C top[U::kR], sum[U::kR], shrink[U::kR];
};
template <class U>
__device__ __forceinline__ int row_of(int i) {
  return place<U::kR, 16>(i, lane_y());
}

/// What a block works on.
struct UnitTask {
  Sequence sequence;
  int64_t n, first, rows;  // of the sequence: its number, this block's first packed row, all packed rows
  int64_t kv_head, column;
};

template <class U>
__device__ __forceinline__ void find_rows(UnitShared<U>& shared, const DeviceProblem& p, const UnitTask& task) {
  for (int i = threadIdx.x; i < U::kRows; i += U::kThreads) {
    const int64_t r = task.first + i, query = r / p.group, head = task.kv_head * p.group + r % p.group;
    const bool inside = r < task.rows;
    const KeyRange range = inside ? visible_keys(p, task.sequence, query) : KeyRange{0, 0};
    shared.query[i] = static_cast<int>(query), shared.head[i] = static_cast<int>(head);
    shared.low[i] = static_cast<int>(range.begin), shared.high[i] = static_cast<int>(range.end);
    shared.q_at[i] = inside ? origin(p, p.q, task.n, task.sequence.q) + query * p.q.row + head * p.q.head : -1;
  }
}

/// to[d][line] = x[line][d0 + d] of `lines` lines, zeros beyond `depth` and where at(line) is negative.
template <class U, int kLines, int kPitch, class At, class T = typename U::T, class C = typename U::C>
__device__ __forceinline__ void load_turned(C (&to)[U::kDepth][kPitch], const Plane& x, bool vectors, int64_t d0,
                                            int depth, At at) {
  const T* data = static_cast<const T*>(x.data) + d0 * x.col;
  constexpr int kWide = cuda::kVector<T>;
  if (vectors) {
    // Two lanes read 32 bytes of a line, sixteen lines a warp: whole sectors, and no two on one bank.
    constexpr int kPairs = U::kDepth / (2 * kWide), kCount = kLines * U::kDepth / kWide / U::kThreads;
    const auto line = [](int i) { return i / 2 % 16 + i / (32 * kPairs) * 16; };
    const auto column = [](int i) { return (i / 32 % kPairs * 2 + i % 2) * kWide; };
    cuda::Pack<T, kWide> packs[kCount];  // all are under way before any is waited for
#pragma unroll
    for (int n = 0; n < kCount; ++n) {
      const int i = n * U::kThreads + threadIdx.x, d = column(i);
      const int64_t offset = d < depth ? at(line(i)) : -1;
      packs[n] = {};
      if (offset >= 0) packs[n] = cuda::load_pack<kWide>(data + offset + d);
    }
#pragma unroll
    for (int n = 0; n < kCount; ++n)
#pragma unroll
      for (int j = 0; j < kWide; ++j)
        to[column(n * U::kThreads + threadIdx.x) + j][line(n * U::kThreads + threadIdx.x)] =
            cuda::widen(packs[n].at[j]);
    return;
  }
  for (int i = threadIdx.x; i < kLines * U::kDepth; i += U::kThreads) {
    const int line = i / U::kDepth, d = i % U::kDepth;
    const int64_t offset = d < depth ? at(line) : -1;
    to[d][line] = offset >= 0 ? cuda::widen(data[offset + d * x.col]) : C(0);
  }
}

/// The tile's values, finite ones; returns whether this thread met another.
template <class U, class T = typename U::T, class C = typename U::C>
__device__ __forceinline__ bool load_values(UnitShared<U>& shared, const DeviceProblem& p, const UnitTask& task,
                                            int64_t at, int tile, bool vectors) {
  const T* data = static_cast<const T*>(p.v.data) + at;
  bool bad = false;
  const auto keep = [&](C x) {
    const bool finite = isfinite(x);
    bad |= !finite;
    return finite ? x : C(0);
  };
  constexpr int kWide = cuda::kVector<T>;
  const int columns = static_cast<int>(min(p.value_dim - task.column, int64_t{U::kColumns}));
  const int keys = static_cast<int>(min(task.sequence.keys - tile, int64_t{U::kKeys}));
  if (vectors) {
    constexpr int kPacks = U::kColumns / kWide, kCount = U::kKeys * kPacks / U::kThreads,
                  kBatch = kCount < 8 ? kCount : 8;
#pragma unroll 1
    for (int first = 0; first < kCount; first += kBatch) {
      cuda::Pack<T, kWide> packs[kBatch];
#pragma unroll
      for (int n = 0; n < kBatch; ++n) {
        const int i = (first + n) * U::kThreads + threadIdx.x, key = i / kPacks, column = i % kPacks * kWide;
        packs[n] = {};
        if (key < keys && column < columns)
          packs[n] = cuda::load_pack<kWide>(data + (tile + key) * p.v.row + task.column + column);
      }
#pragma unroll
      for (int n = 0; n < kBatch; ++n) {
        const int i = (first + n) * U::kThreads + threadIdx.x;
#pragma unroll
        for (int j = 0; j < kWide; ++j)
          shared.v[i / kPacks][i % kPacks * kWide + j] = keep(cuda::widen(packs[n].at[j]));
      }
    }
    return bad;
  }
  for (int i = threadIdx.x; i < U::kKeys * U::kColumns; i += U::kThreads) {
    const int key = i / U::kColumns, column = i % U::kColumns;
    C x = 0;
    if (key < keys && column < columns)
      x = cuda::widen(data[(tile + key) * p.v.row + (task.column + column) * p.v.col]);
    shared.v[key][column] = keep(x);
  }
  return bad;
}

/// d[i][j] += sum over n of a[n][row i] * b[n][column j].
template <int kRows, int kColumns, class C, int kPitchA, int kPitchB>
__device__ __forceinline__ void multiply(C (&d)[kRows][kColumns], const C (*a)[kPitchA], const C (*b)[kPitchB], int n) {
  const int ty = lane_y(), tx = lane_x();
#pragma unroll 4
  for (int k = 0; k < n; ++k) {
    C x[kRows], y[kColumns];
#pragma unroll
    for (int i = 0; i < kRows; ++i) x[i] = a[k][place<kRows, 16>(i, ty)];
#pragma unroll
    for (int j = 0; j < kColumns; ++j) y[j] = b[k][place<kColumns, 8>(j, tx)];
#pragma unroll
    for (int i = 0; i < kRows; ++i)
#pragma unroll
      for (int j = 0; j < kColumns; ++j) d[i][j] = fma(x[i], y[j], d[i][j]);
  }
}

template <class U, class T = typename U::T, class C = typename U::C>
__device__ __forceinline__ C bias_at(const DeviceProblem& p, int64_t at) {
  if (p.bias_float) return static_cast<const float*>(p.bias.data)[at];
  return cuda::widen(static_cast<const T*>(p.bias.data)[at]);
}

/// Products to scores: scale, softcap, bias; -inf where hidden. `hides` is false for a tile that hides nothing by
/// place.
template <class U, class C = typename U::C>
__device__ __forceinline__ void finish_scores(C (&s)[U::kR][U::kK], const UnitShared<U>& shared, const DeviceProblem& p,
                                              const UnitTask& task, int tile, bool hides) {
  const C scale = static_cast<C>(p.scale), cap = static_cast<C>(p.softcap);
#pragma unroll
  for (int i = 0; i < U::kR; ++i)
#pragma unroll
    for (int j = 0; j < U::kK; ++j) s[i][j] *= scale;
  if (p.softcap > 0) {
#pragma unroll
    for (int i = 0; i < U::kR; ++i)
#pragma unroll
      for (int j = 0; j < U::kK; ++j) s[i][j] = cap * tanh(s[i][j] / cap);
  }
  if (!hides && !p.mask.data && !p.bias.data) return;
#pragma unroll
  for (int i = 0; i < U::kR; ++i) {
    const int row = row_of<U>(i), low = shared.low[row], high = shared.high[row];
    const int64_t query = shared.query[row], head = shared.head[row];
    const int64_t mask = task.n * p.mask.batch + head * p.mask.head + query * p.mask.row,
                  bias = task.n * p.bias.batch + head * p.bias.head + query * p.bias.row;
#pragma unroll
    for (int j = 0; j < U::kK; ++j) {
      const int64_t key = tile + place<U::kK, 8>(j, lane_x());
      bool visible = key >= low && key < high;
      if (visible && p.mask.data) visible = static_cast<const bool*>(p.mask.data)[mask + key * p.mask.col];
      if (visible && p.bias.data) s[i][j] += bias_at<U>(p, bias + key * p.bias.col);
      if (!visible) s[i][j] = -static_cast<C>(INFINITY);
    }
  }
}

/// Scores to weights, and the rows' running maximum and sum. Eight lanes share a row.
template <class U, class C = typename U::C>
__device__ __forceinline__ void weigh(C (&s)[U::kR][U::kK], UnitRows<U>& rows) {
#pragma unroll
  for (int i = 0; i < U::kR; ++i) {
    C top = s[i][0];
#pragma unroll
    for (int j = 1; j < U::kK; ++j) top = fmax(top, s[i][j]);
    top = fmax(over_row(top, [](C a, C b) { return fmax(a, b); }), rows.top[i]);
    const C base = top == -static_cast<C>(INFINITY) ? C(0) : top;
    rows.shrink[i] = exponential(rows.top[i] - base);
    rows.top[i] = top;
    C sum = 0;
#pragma unroll
    for (int j = 0; j < U::kK; ++j) {
      s[i][j] = s[i][j] == -static_cast<C>(INFINITY) ? -C(0) : exponential(s[i][j] - base);
      sum += s[i][j];
    }
    rows.sum[i] = fma(rows.sum[i], rows.shrink[i], over_row(sum, [](C a, C b) { return a + b; }));
  }
}

/// Adds the NaN and infinities of the tile's visible values, which `v` holds as 0.
template <class U, class T = typename U::T, class C = typename U::C>
__device__ __noinline__ void add_poisoned(C (&o)[U::kR][U::kC], const UnitShared<U>& shared, const DeviceProblem& p,
                                          const UnitTask& task, int64_t at, int tile) {
  const T* data = static_cast<const T*>(p.v.data) + at;
  for (int key = 0; key < U::kKeys && tile + key < task.sequence.keys; ++key)
    for (int c = 0; c < U::kC; ++c) {
      const int64_t column = task.column + place<U::kC, 8>(c, lane_x());
      if (column >= p.value_dim) continue;
      const C x = cuda::widen(data[(tile + key) * p.v.row + column * p.v.col]);
      if (isfinite(x)) continue;
      for (int i = 0; i < U::kR; ++i) {
        const C weight = shared.p[key][row_of<U>(i)];
        if (!signbit(weight)) o[i][c] += weight * x;
      }
    }
}

/// Divides by the sums, rounds once and stores; the first column's block stores lse.
template <class U, class T = typename U::T, class C = typename U::C>
__device__ __forceinline__ void store_rows(const C (&o)[U::kR][U::kC], const UnitShared<U>& shared,
                                           const DeviceProblem& p, const UnitTask& task, const UnitRows<U>& rows) {
#pragma unroll
  for (int i = 0; i < U::kR; ++i) {
    const int row = row_of<U>(i);
    if (task.first + row >= task.rows) continue;
    const int64_t query = shared.query[row], head = shared.head[row];
    const bool none = rows.sum[i] == 0;
    C whole = rows.sum[i];
    if (p.sinks && !none) {
      const int64_t at = head * p.sinks_stride;
      const C sink = p.sinks_float ? C(static_cast<const float*>(p.sinks)[at])
                                   : C(cuda::widen(static_cast<const T*>(p.sinks)[at]));
      whole += exponential(sink - rows.top[i]);
    }
    T* out =
        static_cast<T*>(p.out.data) + origin(p, p.out, task.n, task.sequence.q) + head * p.out.head + query * p.out.row;
#pragma unroll
    for (int c = 0; c < U::kC; ++c) {
      const int64_t column = task.column + place<U::kC, 8>(c, lane_x());
      if (column < p.value_dim) out[column * p.out.col] = cuda::convert<T>(none ? C(0) : o[i][c] / whole);
    }
    if (p.lse.data && task.column == 0 && lane_x() == 0)
      static_cast<float*>(
          p.lse.data)[origin(p, p.lse, task.n, task.sequence.q) + head * p.lse.head + query * p.lse.row] =
          none ? -INFINITY : static_cast<float>(rows.top[i] + log(rows.sum[i]));
  }
}

/// Which operands are read sixteen bytes at a time.
struct UnitVectors {
  bool q, k, v;
};

template <class U, class C = typename U::C>
__device__ __forceinline__ void attend(UnitShared<U>& shared, const DeviceProblem& p, const UnitTask& task,
                                       const UnitVectors& vectors) {
  UnitRows<U> rows;
#pragma unroll
  for (int i = 0; i < U::kR; ++i) rows.top[i] = -static_cast<C>(INFINITY), rows.sum[i] = 0;
  find_rows(shared, p, task);
  C o[U::kR][U::kC]{};
  const int64_t last = min(task.first + U::kRows, task.rows) - 1;
  const KeyRange first_sees = visible_keys(p, task.sequence, task.first / p.group),
                 last_sees = visible_keys(p, task.sequence, last / p.group);
  const int begin = static_cast<int>(first_sees.begin) / U::kKeys * U::kKeys, end = static_cast<int>(last_sees.end);
  const int full_begin = static_cast<int>(last_sees.begin), full_end = static_cast<int>(first_sees.end) - U::kKeys;
  const int64_t k_at = origin(p, p.k, task.n, task.sequence.k) + task.kv_head * p.k.head,
                v_at = origin(p, p.v, task.n, task.sequence.k) + task.kv_head * p.v.head;
  for (int tile = begin; tile < end; tile += U::kKeys) {
    C s[U::kR][U::kK]{};
    bool bad = false;
    for (int64_t d = 0; d < p.dim; d += U::kDepth) {
      const int depth = static_cast<int>(min(p.dim - d, int64_t{U::kDepth}));
      __syncthreads();  // what was there has been read
      if (tile == begin || p.dim > U::kDepth)
        load_turned<U, U::kRows>(shared.q, p.q, vectors.q, d, depth, [&](int line) { return shared.q_at[line]; });
      load_turned<U, U::kKeys>(shared.k, p.k, vectors.k, d, depth, [&](int line) {
        return tile + line < task.sequence.keys ? k_at + (tile + line) * p.k.row : int64_t{-1};
      });
      if (d == 0) bad = load_values(shared, p, task, v_at, tile, vectors.v);
      __syncthreads();
      multiply(s, shared.q, shared.k, depth);
    }
    finish_scores<U>(s, shared, p, task, tile, tile < full_begin || tile > full_end);
    weigh<U>(s, rows);
    __syncthreads();  // keys have been read: weights take their place
#pragma unroll
    for (int j = 0; j < U::kK; ++j)
#pragma unroll
      for (int i = 0; i < U::kR; ++i) shared.p[place<U::kK, 8>(j, lane_x())][row_of<U>(i)] = s[i][j];
#pragma unroll
    for (int i = 0; i < U::kR; ++i)
#pragma unroll
      for (int c = 0; c < U::kC; ++c) o[i][c] *= rows.shrink[i];
    const bool poisoned = __syncthreads_or(bad);
    multiply(o, shared.p, shared.v, U::kKeys);
    if (poisoned) {
      C copy[U::kR][U::kC];  // only what a call takes by address leaves the registers
      memcpy(copy, o, sizeof(o));
      add_poisoned(copy, shared, p, task, v_at, tile);
      memcpy(o, copy, sizeof(o));
    }
  }
  store_rows<U>(o, shared, p, task, rows);
}

template <class U>
__global__ void __launch_bounds__(U::kThreads)
    flash_unit_kernel(const __grid_constant__ DeviceProblem p, UnitVectors vectors, int64_t work) {
  extern __shared__ __align__(16) unsigned char raw[];
  auto& shared = *reinterpret_cast<UnitShared<U>*>(raw);
  check_offsets(p);
  const int64_t chunks = max((p.value_dim + U::kColumns - 1) / U::kColumns, int64_t{1});
  for (int64_t w = blockIdx.x; w < work; w += gridDim.x) {
    const int64_t slot = (work - 1 - w) / chunks / p.kv_heads;  // the longest rows of a causal problem first
    const Slot place(p, slot, U::kRows, p.group);
    UnitTask task{Sequence(p, place.sequence),
                  place.sequence,
                  place.tile * U::kRows,
                  0,
                  (work - 1 - w) / chunks % p.kv_heads,
                  (work - 1 - w) % chunks * U::kColumns};
    task.rows = task.sequence.queries * p.group;
    __syncthreads();  // the last task's rows have been read
    if (task.first < task.rows) attend(shared, p, task, vectors);
  }
}

}  // namespace tenor::attn
