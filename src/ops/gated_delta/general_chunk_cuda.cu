// The rule by chunks for any dtype, strides and sizes. Sums of log decays are kept in float64; every exponential is of
// a difference that is not masked; a row's products stop at the last step that it may see.
#include "src/ops/gated_delta/gated_delta_launch.h"
#include "src/ops/gated_delta/general_cuda.cuh"

namespace tenor::delta {
namespace {

inline constexpr int kAnchored = 16;  // rows of channel decays that share an anchor, the first of them

/// A block's memory: `steps` rows a chunk, of `stride` numbers where a row has one a key channel.
template <class C>
struct ChunkMemory {
  int64_t steps, keys, stride, decays;
  double* sums;                   // [steps, decays], running sums of log decays
  C* triangle;                    // [steps, steps]
  C *key, *query, *early, *late;  // [steps, stride]: as loaded; exp(G) Q; keys by what is being computed
  C *state, *error;               // [keys, 32], [steps, 32]
  C* beta;                        // [steps]

  __host__ __device__ ChunkMemory(int64_t chunk, int64_t key_dim, bool by_channel, char* at)
      : steps(chunk), keys(key_dim), stride(key_dim + 1), decays(by_channel ? key_dim : 1) {
    sums = reinterpret_cast<double*>(at);
    triangle = reinterpret_cast<C*>(sums + steps * decays);
    key = triangle + steps * steps, query = key + steps * stride, early = query + steps * stride;
    late = early + steps * stride;
    state = late + steps * stride, error = state + keys * kGeneralColumns, beta = error + steps * kGeneralColumns;
  }
  int64_t bytes() const { return reinterpret_cast<char*>(beta + steps) - reinterpret_cast<char*>(sums); }
};

template <class C>
__device__ C dot(const C* x, const C* y, int64_t n) {
  C sum = 0;
  for (int64_t c = 0; c < n; ++c) sum += x[c] * y[c];
  return sum;
}

/// exp of the decays from step j (none for j < 0) to step i in channel c.
template <class C>
__device__ __forceinline__ C decay_between(const ChunkMemory<C>& m, int64_t i, int64_t j, int64_t c) {
  const int64_t at = m.decays == 1 ? 0 : c;
  return exp(static_cast<C>(m.sums[i * m.decays + at] - (j < 0 ? 0.0 : m.sums[j * m.decays + at])));
}

template <class T, class C>
__device__ void load_steps(const DeviceProblem& p, const DeviceSequence& s, const GeneralBlock& b, int64_t step,
                           int64_t n, const ChunkMemory<C>& m) {
  for (int64_t at = threadIdx.x; at < n * m.keys; at += kGeneralThreads) {
    const int64_t i = at / m.keys, c = at % m.keys;
    m.key[i * m.stride + c] = cuda::widen(row_of<T>(p.key, s, b.head / p.group, step + i)[c * p.key.dim]);
    m.query[i * m.stride + c] = cuda::widen(row_of<T>(p.query, s, b.head / p.group, step + i)[c * p.query.dim]);
  }
  for (int64_t i = threadIdx.x; i < n; i += kGeneralThreads) m.beta[i] = beta_of<T>(p, s, b.head, step + i);
  for (int64_t c = threadIdx.x; c < m.decays; c += kGeneralThreads) {
    double sum = 0;
    for (int64_t i = 0; i < n; ++i) m.sums[i * m.decays + c] = sum += decay_of(p, s, b.head, step + i, c);
  }
  __syncthreads();
  for (int64_t i = threadIdx.x; i < 2 * n; i += kGeneralThreads) {
    C* row = (i < n ? m.key : m.query) + i % n * m.stride;
    C scale = i < n ? C(1) : static_cast<C>(p.scale);
    if (p.normalize) scale *= inverse_norm(dot(row, row, m.keys));
    for (int64_t c = 0; c < m.keys; ++c) row[c] *= scale;
  }
  __syncthreads();
}

/// triangle[i, j] = sum_c x_ic k_jc exp(G_ic - G_jc) for j <= i, and below the diagonal alone, times beta_i, for L.
template <class C>
__device__ void make_triangle(const ChunkMemory<C>& m, const C* x, int64_t n, bool lower) {
  if (m.decays == 1) {
    for (int64_t at = threadIdx.x; at < n * n; at += kGeneralThreads) {
      const int64_t i = at / n, j = at % n;
      if (j > i || (lower && j == i)) continue;
      m.triangle[i * m.steps + j] =
          (lower ? m.beta[i] : C(1)) * decay_between(m, i, j, 0) * dot(x + i * m.stride, m.key + j * m.stride, m.keys);
    }
    __syncthreads();
    return;
  }
  for (int64_t first = 0; first < n; first += kAnchored) {  // rows from the anchor on, earlier keys up to it
    const int64_t last = min(first + kAnchored, n);
    for (int64_t at = threadIdx.x; at < last * m.keys; at += kGeneralThreads) {
      const int64_t i = at / m.keys, c = at % m.keys, to = i * m.stride + c;
      m.late[to] = i < first ? m.key[to] * decay_between(m, first, i, c) : x[to] * decay_between(m, i, first, c);
    }
    __syncthreads();
    for (int64_t at = threadIdx.x; at < (last - first) * last; at += kGeneralThreads) {
      const int64_t i = first + at / last, j = at % last;
      if (j > i || (lower && j == i)) continue;
      C sum = 0;
      if (j < first) {
        sum = dot(m.late + i * m.stride, m.late + j * m.stride, m.keys);
      } else {
        for (int64_t c = 0; c < m.keys; ++c)
          sum += x[i * m.stride + c] * m.key[j * m.stride + c] * decay_between(m, i, j, c);
      }
      m.triangle[i * m.steps + j] = (lower ? m.beta[i] : C(1)) * sum;
    }
    __syncthreads();
  }
}

/// to = x * exp(G_i), or exp(G_last - G_i) for late ones.
template <class C>
__device__ void decay_rows(const ChunkMemory<C>& m, const C* x, C* to, int64_t n, bool late) {
  for (int64_t at = threadIdx.x; at < n * m.keys; at += kGeneralThreads) {
    const int64_t i = at / m.keys, c = at % m.keys;
    to[i * m.stride + c] = x[i * m.stride + c] * (late ? decay_between(m, n - 1, i, c) : decay_between(m, i, -1, c));
  }
  __syncthreads();
}

template <class C>
__device__ C by_state(const ChunkMemory<C>& m, const C* row, int lane) {
  C sum = 0;
  for (int64_t c = 0; c < m.keys; ++c) sum += row[c] * m.state[c * kGeneralColumns + lane];
  return sum;
}

/// N = (I + L)^-1 beta (V - exp(G) K S), row after row; L is in the triangle, exp(G) K in `early`.
template <class T, class C>
__device__ void solve_rows(const DeviceProblem& p, const DeviceSequence& s, const GeneralBlock& b, int64_t step,
                           int64_t n, const ChunkMemory<C>& m) {
  const int lane = threadIdx.x % kGeneralColumns;
  for (int64_t i = b.group; i < n; i += kGeneralGroups) {
    const C value = b.inside ? cuda::widen(row_of<T>(p.value, s, b.head, step + i)[b.column * p.value.dim]) : C(0);
    m.error[i * kGeneralColumns + lane] = m.beta[i] * (value - by_state(m, m.early + i * m.stride, lane));
  }
  __syncthreads();
  for (int64_t i = 0; i + 1 < n; ++i) {
    const C done = m.error[i * kGeneralColumns + lane];
    for (int64_t r = i + 1 + b.group; r < n; r += kGeneralGroups)
      m.error[r * kGeneralColumns + lane] -= m.triangle[r * m.steps + i] * done;
    __syncthreads();
  }
}

template <class T, class C = core::Compute<T>>
__global__ void __launch_bounds__(kGeneralThreads)
    general_chunk(const __grid_constant__ DeviceProblem p, unsigned column_blocks, char* outside, int64_t bytes) {
  extern __shared__ __align__(16) char inside_memory[];
  const ChunkMemory<C> m(p.chunk, p.key_dim, p.by_channel, outside ? outside + blockIdx.x * bytes : inside_memory);
  const GeneralBlock b(p, column_blocks);
  const int lane = threadIdx.x % kGeneralColumns;
  const DeviceSequence s(p.sequences, b.n);
  const int64_t place = place_of(p.sequences, b.n);
  if (place < 0) return;
  read_columns(p, b, place, m.state);
  for (int64_t step = 0; step < s.length; step += p.chunk) {
    const int64_t n = min(p.chunk, s.length - step);
    __syncthreads();
    load_steps<T>(p, s, b, step, n, m);
    make_triangle(m, m.key, n, true);
    decay_rows(m, m.key, m.early, n, false);
    solve_rows<T>(p, s, b, step, n, m);
    make_triangle(m, m.query, n, false);
    decay_rows(m, m.query, m.early, n, false);
    decay_rows(m, m.key, m.late, n, true);
    for (int64_t i = b.group; i < n; i += kGeneralGroups) {
      C sum = by_state(m, m.early + i * m.stride, lane);
      for (int64_t j = 0; j <= i; ++j) sum += m.triangle[i * m.steps + j] * m.error[j * kGeneralColumns + lane];
      if (b.inside) place_in<T>(p.output, s, b.head, step + i)[b.column * p.output.dim] = cuda::convert<T>(sum);
    }
    __syncthreads();
    for (int64_t c = b.group; c < m.keys; c += kGeneralGroups) {
      C sum = m.state[c * kGeneralColumns + lane] * decay_between(m, n - 1, -1, c);
      for (int64_t j = 0; j < n; ++j) sum += m.late[j * m.stride + c] * m.error[j * kGeneralColumns + lane];
      m.state[c * kGeneralColumns + lane] = sum;
    }
  }
  __syncthreads();
  write_columns(p, b, place, m.state);
}

}  // namespace

void launch_general_chunk(const Problem& problem, const DeviceProblem& p) {
  core::visit_float(problem.query.dtype(), [&]<class T>() {
    const ChunkMemory<core::Compute<T>> m(p.chunk, p.key_dim, p.by_channel, nullptr);
    launch_general(problem, p, &general_chunk<T>, (m.bytes() + 15) / 16 * 16);
  });
}

}  // namespace tenor::delta
