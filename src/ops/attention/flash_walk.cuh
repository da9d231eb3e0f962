// The kernels of flash_tensorcore that run on every device since Ampere: a block of four warps holds a tile of query
// rows and walks tiles of keys from the last that any row sees to the first, one tile of keys and one of values in
// shared memory, brought by cp.async: the values arrive while scores are computed, the next keys while values are added
// up. Each warp holds sixteen rows of every 64. Sources of the technique: FlashAttention-2 (arXiv 2307.08691), online
// softmax (arXiv 1805.02867). Tasks, softmax and stores are the Hopper kernel's, and so is the reason why a row's bits
// depend on its own problem alone.
#pragma once

#include "src/cuda/launch.h"
#include "src/cuda/ptx/async_copy.cuh"
#include "src/cuda/ptx/dependent_launch.cuh"
#include "src/cuda/ptx/mma.cuh"
#include "src/ops/attention/flash_restore.cuh"
#include "src/ops/attention/flash_tiles.h"

namespace tenor::attn {

/// Four warps on one task. `Products` holds the operands in shared memory and multiplies them.
template <class Products>
class FlashWalk : Products {
 public:
  using Config = typename Products::Config;
  using Shared = typename Products::Shared;

  __device__ FlashWalk(Shared& shared, const FlashShape& shape, const FlashTask& t)
      : Products(shared), shape_(shape), t_(t) {}

  __device__ __forceinline__ void run() {
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
      rows_[g] = {{-INFINITY, -INFINITY}, {0, 0}, {0, 0}};
#pragma unroll
      for (float& x : o_[g]) x = 0;
    }
    bool poisoned = false;
    // A stream's tiles have its number modulo kStreams, so that the cut moves no row's bits either.
    const int last = t_.end - 1 - (t_.end - 1 - stream() + kStreams) % kStreams;
    if (!t_.empty()) {
      load_q();
      if (last >= t_.begin) load_keys(this->keys(), shape_.p.k, shape_.p.dim, last);
      ptx::async_copy_commit();
      if constexpr (kStreams > 1) {
        ptx::async_copy_wait<0>();
        __syncthreads();
      }
    }
    for (int n = last; n >= t_.begin; n -= kStreams) poisoned |= tile(n, n == last);
    if constexpr (kStreams > 1) {
      poisoned = __syncthreads_or(poisoned);
      if (!join()) return;
    }
#pragma unroll
    for (int g = 0; g < kGroups; ++g) store(g, poisoned);
  }

 private:
  using T = typename Config::T;
  static constexpr int kGroups = Config::kGroups, kKeys = Config::kKeys, kStreams = Config::kStreams;

  static __device__ __forceinline__ int stream() { return kStreams == 1 ? 0 : threadIdx.x / 128; }
  /// A stream's threads meet, and learn whether it is true for any.
  static __device__ __forceinline__ bool meet(bool x) {
    if constexpr (kStreams == 1) return __syncthreads_or(x);
    return flash_any(stream(), x);
  }
  /// This thread's first row in group g; the other is eight below.
  static __device__ __forceinline__ int first_row(int g) {
    return g * 64 + threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4;
  }
  __device__ __forceinline__ void load_q() {
    const Plane& x = shape_.p.q;
    const T* data = static_cast<const T*>(x.data) + origin(shape_.p, x, t_.sequence, t_.q);
    Products::template copy<Config::kRows>(this->shared().q, static_cast<int>(shape_.p.dim), x.data, [&](int r) {
      return t_.template holds<Config>(shape_, r)
                 ? data + t_.head_of(shape_, r) * x.head + t_.query_of(shape_, r) * x.row
                 : nullptr;
    });
  }
  template <class Tile>
  __device__ __forceinline__ void load_keys(Tile& to, const Plane& x, int64_t columns, int n) {
    const T* data = static_cast<const T*>(x.data) + origin(shape_.p, x, t_.sequence, t_.k) + t_.kv_head * x.head;
    Products::template copy<kKeys>(to, static_cast<int>(columns), x.data, [&](int line) {
      const int key = n * kKeys + line;
      return key < t_.keys ? data + key * x.row : nullptr;
    });
  }

  /// All of a tile of keys, whose copy is under way. Returns whether its values hold what is not finite.
  __device__ __forceinline__ bool tile(int n, bool first) {
    ptx::async_copy_wait<0>();
    // They are there, and the values before have been read.
    this->meet_keys(first, [](bool x) { return meet(x); });
    load_keys(this->values_there(), shape_.p.v, shape_.p.value_dim, n);
    ptx::async_copy_commit();
    float s[kGroups][kKeys / 2];
    this->scores(s);
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
      finish(s[g], g, n);
      flash_softmax<Config::kScaled>(s[g], rows_[g], shape_.scale_log2);
    }
    const auto p = Products::weights(s);
    ptx::async_copy_wait<0>();
    const bool odd = (Products::kChecksAll || t_.template hides<Config>(n)) && this->check_values();
    const bool poisoned = meet(odd);  // values are there, and the keys have been read
    if (n - kStreams >= t_.begin) load_keys(this->keys(), shape_.p.k, shape_.p.dim, n - kStreams);
    ptx::async_copy_commit();
#pragma unroll
    for (int g = 0; g < kGroups; ++g)
#pragma unroll
      for (int i = 0; i < Config::kDim / 2; ++i) o_[g][i] *= rows_[g].shrink[i >> 1 & 1];
    this->values(o_, p);
    return poisoned;
  }
  __device__ __forceinline__ void finish(float (&s)[kKeys / 2], int g, int n) {
    if constexpr (Config::kGeneral) {
      const FlashBiasTile<Config> none{};
      flash_finish_scores<Config>(s, shape_, none, t_, first_row(g), 0, n);
      return;
    }
    if constexpr (Config::kScaled)
#pragma unroll
      for (float& x : s) x *= shape_.scale;
    if (t_.hides_by_place(n)) flash_hide<Config>(s, shape_, t_, first_row(g), n);
  }

  /// The sums of the second stream join those of the first, whose threads store them: true for these. All have met
  /// after their last tile, so that the second's keys and values give way to its sums.
  __device__ __forceinline__ bool join() {
    static_assert(kStreams <= 2);
    constexpr int kEach = Config::kDim / 2 + 4;
    float* place = this->spare() + threadIdx.x % 128;
    if (stream() == 1)
#pragma unroll
      for (int g = 0; g < kGroups; ++g) {
#pragma unroll
        for (int i = 0; i < Config::kDim / 2; ++i) place[(g * kEach + i) * 128] = o_[g][i];
#pragma unroll
        for (int r = 0; r < 2; ++r)
          place[(g * kEach + Config::kDim / 2 + r) * 128] = rows_[g].top[r],
                                                     place[(g * kEach + Config::kDim / 2 + 2 + r) * 128] =
                                                         rows_[g].sum[r];
      }
    __syncthreads();
    if (stream() == 1) return false;
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
      float mine[2], other[2];
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const float top = place[(g * kEach + Config::kDim / 2 + r) * 128],
                    sum = place[(g * kEach + Config::kDim / 2 + 2 + r) * 128];
        flash_weigh_two(rows_[g].top[r], top, shape_.scale_log2, mine[r], other[r]);
        rows_[g].top[r] = fmaxf(rows_[g].top[r], top);
        rows_[g].sum[r] = rows_[g].sum[r] * mine[r] + sum * other[r];
      }
#pragma unroll
      for (int i = 0; i < Config::kDim / 2; ++i)
        o_[g][i] = o_[g][i] * mine[i >> 1 & 1] + place[(g * kEach + i) * 128] * other[i >> 1 & 1];
    }
    return true;
  }

  __device__ __forceinline__ void store(int g, bool poisoned) {
    const float2 inverse = flash_sums<Config>(rows_[g], this->shared().scratch.lse, shape_, t_, first_row(g));
    const bool odd = Products::store(o_[g], inverse, shape_, t_, first_row(g));
    if (meet(poisoned | odd)) {
      const FlashTask copy = t_;  // only what a call takes by address leaves the registers
      flash_restore<Config>(this->shared().scratch, shape_, copy, g);
    }
  }

  const FlashShape& shape_;
  const FlashTask t_;
  FlashRows rows_[kGroups];
  float o_[kGroups][Config::kDim / 2];
};

/// A block a task.
template <class Products>
__global__ void __launch_bounds__(128 * Products::Config::kStreams, 2 / Products::Config::kStreams)
    flash_walk(const __grid_constant__ FlashShape shape) {
  using Config = typename Products::Config;
  extern __shared__ __align__(128) unsigned char raw[];
  auto& shared = *reinterpret_cast<typename Products::Shared*>(raw);
  check_offsets(shape.p);
  if (shape.splits > 1) ptx::launch_dependents();  // the kernel that joins waits for the end of all blocks
  FlashTask t;
  if (t.find<Config>(shape, static_cast<int>(blockIdx.x))) FlashWalk<Products>(shared, shape, t).run();
}

/// By tiles of `kKeys` keys, as the host cut the problem.
template <class Products, int kKeys>
void launch_walk(const FlashShape& shape, Device device) {
  static_assert(Products::Config::kKeys == kKeys);
  // What devices of 8.6 and 8.9 have, or what asks for room first.
  static_assert(sizeof(typename Products::Shared) <=
                (Products::Config::kStreams == 1 ? 99 << 10 : kFlashStreamsShared));
  const cuda::Grid grid{dim3(static_cast<unsigned>(shape.tasks)), dim3(128 * Products::Config::kStreams),
                        sizeof(typename Products::Shared)};
  cuda::launch("attention", flash_walk<Products>, grid, device, shape);
}

}  // namespace tenor::attn
