// The second kernel of the chunk form by TF32 products. As in chunk_scan.cuh the state passes through a sequence's
// chunks and every product is computed transposed; here a warp holds S^T of 16 value columns in registers and
// multiplies by mma.sync, whose accumulators are left factors as they stand. The warps of a block share the chunks that
// another one brings.
#pragma once

#include "src/ops/gated_delta/chunk_scan.cuh"
#include "src/ops/gated_delta/chunk_tf32_tiles.cuh"

namespace tenor::delta {

inline constexpr int kTf32Columns = 16, kTf32Stages = 2;  // of a warp; of a block

/// Of a scan: keys and queries are brought from the operands, their factors beside them.
template <class T, int kKeyDim_, bool kByChannel_>
struct Tf32Scan {
  using Element = T;
  static constexpr int kKeyDim = kKeyDim_;
  static constexpr bool kByChannel = kByChannel_, kFine = kIsFine<T>;
  using Factors = Tf32Factors;
  struct Stage {
    alignas(128) ChunkRows<T, kKeyDim> key, query;
    alignas(128) Tf32Factors factors;
  };
  struct Shared {
    Stage stages[kTf32Stages];
    uint64_t full[kTf32Stages], empty[kTf32Stages];
  };
  static constexpr int kArrivals = 32;  // of the loading warp at a stage
};
/// With decays by channel both come from the first kernel. Of what decays within a chunk there is room for one, which
/// is asked for when the next chunk's keys and queries are there.
template <class T, int kKeyDim_>
struct Tf32Scan<T, kKeyDim_, true> {
  using Element = T;
  static constexpr int kKeyDim = kKeyDim_;
  static constexpr bool kByChannel = true, kFine = kIsFine<T>;
  using Factors = Tf32ChannelFactors<T, kKeyDim>;
  struct Shared {
    typename Factors::Rows stages[kTf32Stages];
    typename Factors::Rest rest;
    uint64_t full[kTf32Stages], empty[kTf32Stages], rest_full, rest_empty;
  };
  static constexpr int kArrivals = 1;
};

/// The loading warp.
template <class T, int kKeyDim>
__device__ __forceinline__ void load_chunks(typename Tf32Scan<T, kKeyDim, false>::Shared& shared,
                                            const DeviceProblem& p, const Tf32Factors* factors, const ScanTask& t) {
  const int lane = threadIdx.x % 32;
  const T *key = row_of<T>(p.key, t.s, t.head / p.group, 0), *query = row_of<T>(p.query, t.s, t.head / p.group, 0);
  ptx::wait_for_previous();  // for what the first kernel makes
  for (int64_t c = 0; c < t.chunks; ++c) {
    const int i = static_cast<int>(c % kTf32Stages);
    auto& stage = shared.stages[i];
    if (c >= kTf32Stages) ptx::mbarrier_wait(&shared.empty[i], (c / kTf32Stages - 1) & 1);
    const int valid = static_cast<int>(min(t.s.length - c * kChunk, int64_t{kChunk}));
    clear_rows<T, kKeyDim>(stage.key, valid, lane, 32), clear_rows<T, kKeyDim>(stage.query, valid, lane, 32);
    if (lane == 0)
      ptx::mbarrier_arrive_expect(&shared.full[i], 2 * row_bytes<T, kKeyDim>(valid) + sizeof(Tf32Factors));
    else
      ptx::mbarrier_arrive(&shared.full[i]);  // every lane, for what it has cleared
    __syncwarp();
    copy_rows<T, kKeyDim>(stage.key, key + c * kChunk * p.key.step, p.key.step, valid, lane, 32, &shared.full[i]);
    copy_rows<T, kKeyDim>(stage.query, query + c * kChunk * p.query.step, p.query.step, valid, lane, 32,
                          &shared.full[i]);
    if (lane == 0)
      ptx::bulk_load(&stage.factors, factors + (t.slot + c) * p.value_heads + t.head, sizeof(Tf32Factors),
                     &shared.full[i]);
  }
}
template <class T, int kKeyDim>
__device__ __forceinline__ void load_chunks(typename Tf32Scan<T, kKeyDim, true>::Shared& shared, const DeviceProblem& p,
                                            const Tf32ChannelFactors<T, kKeyDim>* factors, const ScanTask& t) {
  ptx::wait_for_previous();
  if (threadIdx.x % 32 != 0) return;
  const auto bring = [](auto& to, const auto& from, uint64_t* barrier) {
    ptx::mbarrier_arrive_expect(barrier, sizeof(to));
    ptx::bulk_load(&to, &from, sizeof(to), barrier);
  };
  for (int64_t c = 0; c < t.chunks; ++c) {
    const int i = static_cast<int>(c % kTf32Stages);
    const auto& from = factors[(t.slot + c) * p.value_heads + t.head];
    if (c >= kTf32Stages) ptx::mbarrier_wait(&shared.empty[i], (c / kTf32Stages - 1) & 1);
    bring(shared.stages[i], from.rows, &shared.full[i]);
    if (c > 0) ptx::mbarrier_wait(&shared.rest_empty, (c - 1) & 1);
    bring(shared.rest, from.rest, &shared.rest_full);
  }
}

/// Calls fn(tile, element, its place, whether it is there) for the warp's columns of x at a chunk's steps, the first of
/// which lies at `from`.
template <class T, class F>
__device__ __forceinline__ void for_each_element(T* from, const Rows& x, int valid, F&& fn) {
  const int lane = threadIdx.x % 32, left = valid - lane % 4 * 2;
  const int64_t next = x.step, right = 8 * x.dim;
  from += lane % 4 * 2 * x.step + lane / 4 * x.dim;
#pragma unroll
  for (int n = 0; n < kChunk / 8; ++n, from += 8 * x.step)
#pragma unroll
    for (int c = 0; c < 4; ++c) fn(n, c, from + c % 2 * next + c / 2 * right, 8 * n + c % 2 < left);
}
/// The warp's columns of V^T at a chunk's steps, zeros behind the last one.
template <class T>
__device__ __forceinline__ void load_values(Steps& to, const T* from, const Rows& x, int valid) {
  for_each_element(from, x, valid,
                   [&](int n, int c, const T* at, bool inside) { to[n][c] = inside ? cuda::widen(*at) : 0.0f; });
}
template <class T>
__device__ __forceinline__ void store_columns(const Steps& x, T* to, const Rows& y, int valid) {
  for_each_element(to, y, valid, [&](int n, int c, T* at, bool inside) {
    if (inside) *at = cuda::convert<T>(x[n][c]);
  });
}

/// Clears a column's steps from the first on that is no number; says which one, of this lane's two columns.
__device__ __forceinline__ void clear_bad_steps(Steps& x, int (&first)[2]) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    first[half] = kChunk;
#pragma unroll
    for (int at = kChunk / 4 - 1; at >= 0; --at)
      if (!(x[at / 2][2 * half + at % 2] * 0.0f == 0.0f)) first[half] = 8 * (at / 2) + lane % 4 * 2 + at % 2;
#pragma unroll
    for (int mask = 1; mask < 4; mask *= 2) first[half] = min(first[half], __shfl_xor_sync(~0u, first[half], mask));
#pragma unroll
    for (int at = 0; at < kChunk / 4; ++at)
      if (8 * (at / 2) + lane % 4 * 2 + at % 2 >= first[half]) x[at / 2][2 * half + at % 2] = 0;
  }
}
__device__ __forceinline__ bool has_bad_step(const Steps& x) {
  float sum = 0;
#pragma unroll
  for (int n = 0; n < kChunk / 8; ++n)
#pragma unroll
    for (int c = 0; c < 4; ++c) sum = fmaf(x[n][c], 0.0f, sum);
  return __any_sync(~0u, !(sum == 0.0f));
}

/// A power of two for each half of an accumulator's rows that makes float16 numbers of them, and its inverse: the
/// largest becomes about 2^14. `most`: the largest of the lane's own numbers.
struct HalfScale {
  float scale[2], inverse[2];
  __device__ __forceinline__ explicit HalfScale(const float (&most)[2]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float all = most[half];
#pragma unroll
      for (int mask = 1; mask < 4; mask *= 2) all = fmaxf(all, __shfl_xor_sync(~0u, all, mask));
      // Exponents beyond the scale's own range are those of numbers that are none, or too small to be told from zero.
      const int exponent = min(max(static_cast<int>(__float_as_uint(all) >> 23), 30), 240);
      scale[half] = __uint_as_float(static_cast<uint32_t>(127 + 127 + 14 - exponent) << 23);
      inverse[half] = __uint_as_float(static_cast<uint32_t>(exponent - 14) << 23);
    }
  }
};
template <int kTiles>
__device__ __forceinline__ HalfScale half_scale(const float (&x)[kTiles][4]) {
  float most[2] = {0, 0};
#pragma unroll
  for (int n = 0; n < kTiles; ++n)
#pragma unroll
    for (int c = 0; c < 4; ++c) most[c / 2] = fmaxf(most[c / 2], fabsf(x[n][c]));
  return HalfScale(most);
}
/// Sixteen columns of accumulators as a left factor of float16.
__device__ __forceinline__ void half_factor(uint32_t (&to)[4], const float (&x0)[4], const float (&x1)[4],
                                            const HalfScale& by) {
  const auto pack = [](float low, float high) {
    uint32_t word;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
    return word;
  };
  to[0] = pack(x0[0] * by.scale[0], x0[1] * by.scale[0]), to[1] = pack(x0[2] * by.scale[1], x0[3] * by.scale[1]);
  to[2] = pack(x1[0] * by.scale[0], x1[1] * by.scale[0]), to[3] = pack(x1[2] * by.scale[1], x1[3] * by.scale[1]);
}

/// by_key = S^T K^T, by_query = S^T Q^T where it is asked for; float16's are to be multiplied by the inverse scale.
template <class T, int kKeyDim, bool kQueries>
__device__ __forceinline__ void multiply_state(Steps& by_key, Steps& by_query, const float (&state)[kKeyDim / 8][4],
                                               const ChunkRows<T, kKeyDim>& key, const ChunkRows<T, kKeyDim>& query,
                                               const HalfScale& by) {
  const int lane = threadIdx.x % 32;
  if constexpr (kIsFine<T>) {
    const int row = lane / 4, column = lane % 4 * 2;
#pragma unroll
    for (int k = 0; k < kKeyDim / 8; ++k) {
      const Tf32Factor<true, 4> a(state[k]);
#pragma unroll
      for (int n = 0; n < kChunk / 8; ++n) {
        multiply_tf32<true>(by_key[n], a, exact_factor<true>(two_of(&key[8 * n + row][8 * k + column])));
        if constexpr (kQueries)
          multiply_tf32<true>(by_query[n], a, exact_factor<true>(two_of(&query[8 * n + row][8 * k + column])));
      }
    }
  } else {
    const int row = lane % 8 + lane / 16 * 8, column = lane / 8 % 2 * 8;
#pragma unroll
    for (int k = 0; k < kKeyDim / 16; ++k) {
      uint32_t a[4], b[4];
      half_factor(a, state[2 * k], state[2 * k + 1], by);
#pragma unroll
      for (int n = 0; n < kChunk / 8; n += 2) {
        ptx::ldmatrix_x4(b, ptx::shared_address(&key[8 * n + row][16 * k + column]));
        ptx::mma_m16n8k16<T>(by_key[n], a[0], a[1], a[2], a[3], b[0], b[1]);
        ptx::mma_m16n8k16<T>(by_key[n + 1], a[0], a[1], a[2], a[3], b[2], b[3]);
        if constexpr (kQueries) {
          ptx::ldmatrix_x4(b, ptx::shared_address(&query[8 * n + row][16 * k + column]));
          ptx::mma_m16n8k16<T>(by_query[n], a[0], a[1], a[2], a[3], b[0], b[1]);
          ptx::mma_m16n8k16<T>(by_query[n + 1], a[0], a[1], a[2], a[3], b[2], b[3]);
        }
      }
    }
  }
}

/// to += x m^T for a lower triangle m.
template <bool kFine>
__device__ __forceinline__ void multiply_triangle(Steps& to, const Steps& x, const float (&m)[kChunk][kSquarePitch]) {
  const int row = threadIdx.x % 32 / 4, column = threadIdx.x % 4 * 2;
#pragma unroll
  for (int k = 0; k < kChunk / 8; ++k) {
    const Tf32Factor<kFine, 4> a(x[k]);
#pragma unroll
    for (int n = k; n < kChunk / 8; ++n)
      multiply_tf32<kFine>(to[n], a, exact_factor<kFine>(two_of(&m[8 * n + row][8 * k + column])));
  }
}

/// sum += x K for tiles of eight channels from `first` on; float16's is to be multiplied by the inverse scale.
template <class T, int kKeyDim, int kTiles>
__device__ __forceinline__ void multiply_steps(float (&sum)[kTiles][4], const Steps& x,
                                               const ChunkRows<T, kKeyDim>& key, int first, const HalfScale& by) {
  const int lane = threadIdx.x % 32;
  if constexpr (kIsFine<T>) {
    const int column = lane / 4, row = lane % 4 * 2;
#pragma unroll
    for (int k = 0; k < kChunk / 8; ++k) {
      const Tf32Factor<true, 4> a(x[k]);
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
        const T* at = &key[8 * k + row][8 * (first + n) + column];
        multiply_tf32<true>(sum[n], a, exact_factor<true, 2>({at[0], at[kKeyDim + 8]}));
      }
    }
  } else {
    const int row = lane % 16, column = lane / 16 * 8;
#pragma unroll
    for (int k = 0; k < kChunk / 16; ++k) {
      uint32_t a[4], b[4];
      half_factor(a, x[2 * k], x[2 * k + 1], by);
#pragma unroll
      for (int n = 0; n < kTiles; n += 2) {
        ptx::ldmatrix_x4_transposed(b, ptx::shared_address(&key[16 * k + row][8 * (first + n) + column]));
        ptx::mma_m16n8k16<T>(sum[n], a[0], a[1], a[2], a[3], b[0], b[1]);
        ptx::mma_m16n8k16<T>(sum[n + 1], a[0], a[1], a[2], a[3], b[2], b[3]);
      }
    }
  }
}

/// state = decay state + x K, decay(n) being that of the lane's two channels of tile n. A chunk's sum is added to the
/// state at once, by an addition that rounds to the nearest: tensor cores cut off what does not fit, which over
/// thousands of steps would add up.
template <class T, int kKeyDim, class Decay>
__device__ __forceinline__ void update_state(float (&state)[kKeyDim / 8][4], Decay&& decay, const Steps& x,
                                             const ChunkRows<T, kKeyDim>& key) {
  constexpr int kTogether = 8;  // tiles whose sums are under way
  const HalfScale by = kIsFine<T> ? HalfScale({0, 0}) : half_scale(x);
#pragma unroll
  for (int first = 0; first < kKeyDim / 8; first += kTogether) {
    float sum[kTogether][4] = {};
    multiply_steps<T, kKeyDim>(sum, x, key, first, by);
#pragma unroll
    for (int n = 0; n < kTogether; ++n) {
      const float2 two = decay(first + n);
#pragma unroll
      for (int c = 0; c < 4; ++c)
        state[first + n][c] =
            fmaf(state[first + n][c], c % 2 ? two.y : two.x, kIsFine<T> ? sum[n][c] : sum[n][c] * by.inverse[c / 2]);
    }
  }
}

/// R^T = V^T - weight S^T K^T of what the state gives, in place; `values` becomes zeros. Outputs are weighed too.
template <bool kFine>
__device__ __forceinline__ void subtract_from_values(Steps& work, Steps& output, Steps& values,
                                                     const Tf32Factors& factors, const HalfScale& by) {
#pragma unroll
  for (int n = 0; n < kChunk / 8; ++n) {
    const float2 w = *reinterpret_cast<const float2*>(&factors.weights[0][8 * n + threadIdx.x % 4 * 2]);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      if constexpr (!kFine) work[n][j] *= by.inverse[j / 2], output[n][j] *= by.inverse[j / 2];
      work[n][j] = fmaf(j % 2 ? -w.y : -w.x, work[n][j], values[n][j]);
      values[n][j] = 0;
    }
  }
  weigh_steps(output, factors.weights[1]);
}

/// What stage i holds of the factors, when it is full.
template <class Config>
__device__ __forceinline__ const Tf32Factors& factors_of(const typename Config::Shared& shared, int i) {
  if constexpr (Config::kByChannel)
    return shared.rest.squares;
  else
    return shared.stages[i].factors;
}
template <class Config>
__device__ __forceinline__ void pass_on(float (&state)[Config::kKeyDim / 8][4], const typename Config::Shared& shared,
                                        int i, const Steps& error) {
  using T = typename Config::Element;
  if constexpr (Config::kByChannel) {
    const auto decay = [&](int n) {
      return *reinterpret_cast<const float2*>(&shared.rest.decay[8 * n + threadIdx.x % 4 * 2]);
    };
    update_state<T, Config::kKeyDim>(state, decay, error, shared.rest.update);
  } else {
    const float decay = shared.stages[i].factors.weights[3][0];
    update_state<T, Config::kKeyDim>(
        state, [&](int) { return make_float2(decay, decay); }, error, shared.stages[i].key);
  }
}

/// A warp's pass over a task's chunks. Without outputs only the state is passed on; a map's task has no values.
template <class Config, bool kOutputs = true>
__device__ __forceinline__ void scan_chunks(float (&state)[Config::kKeyDim / 8][4], typename Config::Shared& shared,
                                            const DeviceProblem& p, const ScanTask& t) {
  constexpr bool kFine = Config::kFine;
  constexpr int kKeyDim = Config::kKeyDim;
  using T = typename Config::Element;
  const int64_t column = t.first + kTf32Columns * (threadIdx.x / 32);
  for (int64_t c = 0; c < t.chunks; ++c) {
    const int i = static_cast<int>(c % kTf32Stages),
              valid = static_cast<int>(min(t.s.length - c * kChunk, int64_t{kChunk}));
    Steps work = {}, output = {}, error = {};
    if (kOutputs || !t.is_map)
      load_values(error, row_of<T>(p.value, t.s, t.head, c * kChunk) + column * p.value.dim, p.value, valid);
    const HalfScale by = kFine ? HalfScale({0, 0}) : half_scale(state);
    ptx::mbarrier_wait(&shared.full[i], (c / kTf32Stages) & 1);
    multiply_state<T, kKeyDim, kOutputs>(work, output, state, shared.stages[i].key, shared.stages[i].query, by);
    if constexpr (Config::kByChannel) {
      ptx::mbarrier_arrive(&shared.empty[i]);
      ptx::mbarrier_wait(&shared.rest_full, c & 1);
    }
    const Tf32Factors& factors = factors_of<Config>(shared, i);
    subtract_from_values<kFine>(work, output, error, factors, by);
    // What is no number must not reach the steps before it, whose weights for it are zeros.
    int first_bad[2];
    const bool has_bad = has_bad_step(work);
    if (has_bad) clear_bad_steps(work, first_bad);
    multiply_triangle<kFine>(error, work, factors.solve);
    if constexpr (kOutputs) {
      multiply_triangle<kFine>(output, error, factors.attend);
      if (has_bad) poison(output, first_bad);
      store_columns(output, place_in<T>(p.output, t.s, t.head, c * kChunk) + column * p.output.dim, p.output, valid);
    }
    weigh_steps(error, factors.weights[2]);
    pass_on<Config>(state, shared, i, error);
    if (has_bad) {
      const int whole[2] = {first_bad[0] < kChunk ? 0 : kKeyDim, first_bad[1] < kChunk ? 0 : kKeyDim};
      poison(state, whole);
    }
    if constexpr (Config::kByChannel)
      ptx::mbarrier_arrive(&shared.rest_empty);
    else
      ptx::mbarrier_arrive(&shared.empty[i]);
  }
}

template <class Config>
__device__ __forceinline__ void init_barriers(typename Config::Shared& shared, int computing) {
  for (int i = 0; i < kTf32Stages; ++i)
    ptx::mbarrier_init(&shared.full[i], Config::kArrivals), ptx::mbarrier_init(&shared.empty[i], 32 * computing);
  if constexpr (Config::kByChannel)
    ptx::mbarrier_init(&shared.rest_full, 1), ptx::mbarrier_init(&shared.rest_empty, 32 * computing);
  ptx::mbarrier_init_fence();
}

/// Blocks: column blocks fastest, then value heads, then sequences; all warps but the last one compute, kWarps at most.
/// Dynamic shared memory: Config::Shared.
template <class Config, int kWarps>
__global__ void __launch_bounds__(32 * (kWarps + 1), 1)
    scan_tf32_kernel(const __grid_constant__ DeviceProblem p, const typename Config::Factors* factors,
                     unsigned column_blocks) {
  if constexpr (!ptx::kIsHopper) return;
  extern __shared__ __align__(1024) unsigned char scan_memory[];
  auto& shared = *reinterpret_cast<typename Config::Shared*>(scan_memory);
  const unsigned rest = blockIdx.x / column_blocks;
  const int64_t n = rest / static_cast<unsigned>(p.value_heads);
  ScanTask t{DeviceSequence(p.sequences, n), n, place_of(p.sequences, n), rest % static_cast<unsigned>(p.value_heads)};
  if (t.place < 0) return ptx::wait_for_previous();
  t.slot = first_slot(p.sequences, n);
  t.chunks = (t.s.length + kChunk - 1) / kChunk;
  const int warps = static_cast<int>(blockDim.x / 32) - 1, warp = threadIdx.x / 32;
  t.first = int64_t{blockIdx.x % column_blocks} * warps * kTf32Columns;
  const int computing = static_cast<int>(min(int64_t{warps}, (p.value_dim - t.first) / kTf32Columns));
  if (threadIdx.x == 0) init_barriers<Config>(shared, computing);
  __syncthreads();
  if (warp == warps) return load_chunks<typename Config::Element, Config::kKeyDim>(shared, p, factors, t);
  if (warp >= computing) return;
  float state[Config::kKeyDim / 8][4];
  read_state<Config::kKeyDim>(state,
                              starts_from_state(p.sequences, n) ? warp_columns(columns_of(p.first, t)) : Columns{});
  scan_chunks<Config>(state, shared, p, t);
  write_state<Config::kKeyDim>(state, warp_columns(columns_of(p.last, t)));
}

}  // namespace tenor::delta
