// The products of float32 operands on the tensor cores, by TF32 instructions: each operand is the sum of two TF32
// numbers of eleven bits, and of the four products the three largest are added, which leaves errors of about 2^-22 of a
// product (Ootomo and Yokota, arXiv 2203.03341). The tensor cores cut what they add off; so they add up sixteen
// products at most, and those sums join the rest in ordinary, rounded additions.
#pragma once

#include "src/ops/attention/flash_walk.cuh"

namespace tenor::attn {

/// Everything that a kernel is compiled for.
template <int kDim_, int kGroups_, int kStreams_, bool kGeneral_>
struct FlashTf32Config {
  using T = float;
  static constexpr int kDim = kDim_;                   ///< columns of q, k and v, as they lie in shared memory
  static constexpr int kKeys = kDim_ <= 64 ? 64 : 32;  ///< of a tile
  static constexpr int kGroups = kGroups_;             ///< times 64 rows
  static constexpr int kStreams = kStreams_;           ///< of tiles of keys, each four warps'
  static constexpr bool kGeneral = kGeneral_;          ///< mask, bias or softcap
  static constexpr bool kScaled = true;                ///< scores come to the softmax with their scale
  static constexpr bool kBiasTiles = false;
  static constexpr int kRows = 64 * kGroups;
};

/// Queries as mma.sync takes them: what a lane holds for one product side by side, all lanes, then sixteen rows'
/// products along the head, then the next sixteen rows. Of sixteen columns a product takes eight: of every four the
/// first or the last two.
template <class Config>
struct Tf32Queries {
  float at[Config::kRows * Config::kDim];
  static __device__ __forceinline__ int place(int row, int column) {
    const int product = (row / 16 * (Config::kDim / 16) + column / 16) * 2 + column % 4 / 2,
              lane = row % 8 * 4 + column % 16 / 4;
    return (product * 32 + lane) * 4 + row / 8 % 2 + column % 2 * 2;
  }
};
/// Keys or values in lines, padded so that no access of a warp meets a bank twice.
template <class Config, int kPad>
struct Tf32Lines {
  float at[Config::kKeys * (Config::kDim + kPad)];
  static __device__ __forceinline__ int place(int key, int column) { return key * (Config::kDim + kPad) + column; }
};

/// The shared memory of a block.
template <class Config>
struct alignas(128) FlashTf32Shared {
  struct Stream {
    Tf32Lines<Config, 16> k;
    Tf32Lines<Config, 4> v;
  };
  Tf32Queries<Config> q;
  Stream stream[Config::kStreams];
  FlashScratch<Config> scratch;
};

/// `kCount` float32 numbers, each as two TF32 ones, to 2^-22 of it. Of a number an instruction ignores the last 13
/// bits.
template <int kCount>
struct Tf32Pairs {
  uint32_t high[kCount], low[kCount];
  __device__ __forceinline__ void set(int i, float x) {
    high[i] = __float_as_uint(x);
    low[i] = __float_as_uint(x - __uint_as_float(high[i] & 0xFFFFE000u)) + 0x1000u;
  }
};
using Tf32Rows = Tf32Pairs<4>;     ///< a 16 x 8 operand in mma.sync's order
using Tf32Columns = Tf32Pairs<2>;  ///< an 8 x 8 one

/// d += a * b, twice, rounded once.
__device__ __forceinline__ void tf32_multiply(float* d, const Tf32Rows (&a)[2], const Tf32Columns (&b)[2]) {
  float sum[4] = {0, 0, 0, 0};
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    ptx::mma_m16n8k8(sum, a[i].low, b[i].high);
    ptx::mma_m16n8k8(sum, a[i].high, b[i].low);
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) ptx::mma_m16n8k8(sum, a[i].high, b[i].high);
#pragma unroll
  for (int i = 0; i < 4; ++i) d[i] += sum[i];
}

template <class Config_>
class FlashTf32 {
 public:
  using Config = Config_;
  using Shared = FlashTf32Shared<Config>;

 protected:
  static constexpr int kGroups = Config::kGroups, kKeys = Config::kKeys, kDim = Config::kDim;
  static constexpr bool kChecksAll = true;  ///< an infinity is no sum of two numbers
  struct Weights {
    float p[kGroups][kKeys / 2];
  };

  explicit __device__ FlashTf32(Shared& shared)
      : shared_(shared), mine_(shared.stream[Config::kStreams == 1 ? 0 : threadIdx.x / 128]) {}
  __device__ __forceinline__ Shared& shared() { return shared_; }
  __device__ __forceinline__ auto& keys() { return mine_.k; }
  __device__ __forceinline__ auto& values_there() { return mine_.v; }
  /// Room for one stream's sums.
  __device__ __forceinline__ float* spare() {
    static_assert(sizeof(mine_) >= kGroups * (kDim / 2 + 4) * 128 * sizeof(float));
    return reinterpret_cast<float*>(&shared_.stream[Config::kStreams - 1]);
  }

  /// Starts copying `kLines` lines; line i lies at row(i), nullptr for one of zeros. Columns from `columns` on are
  /// zeros.
  template <int kLines, class Tile, class Row>
  static __device__ __forceinline__ void copy(Tile& to, int columns, const void* readable, Row row) {
    constexpr int kThreads = std::is_same_v<Tile, Tf32Queries<Config>> ? 128 * Config::kStreams : 128;
    each<kLines, kThreads>(to, [&](auto& piece, int line, int column) {
      constexpr int kWide = sizeof(piece) / 4;
      const float* from = row(line);
      const int count = from ? min(max(columns - column, 0), kWide) : 0;
      if constexpr (kWide == 4)
        ptx::async_copy_part(&piece, count ? from + column : readable, 4 * count);
      else
        ptx::async_copy_4(&piece, count ? from + column : readable, count > 0);
    });
  }
  /// A stream's threads meet, and learn whether queries or keys hold what is not finite.
  template <class Meet>
  __device__ __forceinline__ void meet_keys(bool first, Meet meet) {
    const bool odd = has_odd<kKeys>(mine_.k);
    if (first) odd_queries_ = has_odd<Config::kRows>(shared_.q);
    odd_ = meet(odd | odd_queries_);
  }

  /// s = q times the tile of keys.
  __device__ __forceinline__ void scores(float (&s)[kGroups][kKeys / 2]) const {
#pragma unroll
    for (int g = 0; g < kGroups; ++g)
#pragma unroll
      for (float& x : s[g]) x = 0;
    const int lane = threadIdx.x % 32;
#pragma unroll 1
    for (int c = 0; c < kDim / 16; ++c) {
      Tf32Rows q[kGroups][2];
#pragma unroll
      for (int g = 0; g < kGroups; ++g)
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const int product = ((g * 4 + threadIdx.x % 128 / 32) * (kDim / 16) + c) * 2 + i;
          const float4 x = *reinterpret_cast<const float4*>(shared_.q.at + (product * 32 + lane) * 4);
          q[g][i].set(0, x.x), q[g][i].set(1, x.y), q[g][i].set(2, x.z), q[g][i].set(3, x.w);
        }
#pragma unroll
      for (int j = 0; j < kKeys / 8; ++j) {
        const int place = mine_.k.place(j * 8 + lane / 4, c * 16 + lane % 4 * 4);
        const float4 x = *reinterpret_cast<const float4*>(mine_.k.at + place);
        Tf32Columns k[2];
        k[0].set(0, x.x), k[0].set(1, x.y), k[1].set(0, x.z), k[1].set(1, x.w);
#pragma unroll
        for (int g = 0; g < kGroups; ++g) tf32_multiply(s[g] + 4 * j, q[g], k);
      }
    }
    if (odd_) {
      Weights copy = weights(s);  // only what a call takes by address leaves the registers
      scores_one_by_one(shared_, mine_, copy);
#pragma unroll
      for (int g = 0; g < kGroups; ++g)
#pragma unroll
        for (int i = 0; i < kKeys / 2; ++i) s[g][i] = copy.p[g][i];
    }
  }
  static __device__ __forceinline__ Weights weights(const float (&s)[kGroups][kKeys / 2]) {
    Weights w;
#pragma unroll
    for (int g = 0; g < kGroups; ++g)
#pragma unroll
      for (int i = 0; i < kKeys / 2; ++i) w.p[g][i] = s[g][i];
    return w;
  }
  /// o += weights times the tile of values. Of eight keys that a product takes, a thread holds two neighbours; of 32
  /// columns, each of four products takes every fourth.
  __device__ __forceinline__ void values(float (&o)[kGroups][kDim / 2], const Weights& w) const {
    const int lane = threadIdx.x % 32;
    Weights rest = w;
#pragma unroll 1  // the code of all would not fit where instructions are held, and comes from memory at a first call
    for (int j = 0; j < kKeys / 8; j += 2) {
      Tf32Rows p[kGroups][2];
#pragma unroll
      for (int g = 0; g < kGroups; ++g) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const float* x = rest.p[g] + 4 * i;
          p[g][i].set(0, x[0]), p[g][i].set(1, x[2]), p[g][i].set(2, x[1]), p[g][i].set(3, x[3]);
        }
#pragma unroll
        for (int i = 0; i < kKeys / 2 - 8; ++i) rest.p[g][i] = rest.p[g][i + 8];
      }
#pragma unroll
      for (int c = 0; c < kDim / 32; ++c) {
        float v[2][2][4];
#pragma unroll
        for (int i = 0; i < 2; ++i)
#pragma unroll
          for (int r = 0; r < 2; ++r) {
            const int place = mine_.v.place((j + i) * 8 + lane % 4 * 2 + r, c * 32 + lane / 4 * 4);
            *reinterpret_cast<float4*>(v[i][r]) = *reinterpret_cast<const float4*>(mine_.v.at + place);
          }
#pragma unroll
        for (int n = 0; n < 4; ++n) {
          Tf32Columns x[2];
#pragma unroll
          for (int i = 0; i < 2; ++i) x[i].set(0, v[i][0][n]), x[i].set(1, v[i][1][n]);
#pragma unroll
          for (int g = 0; g < kGroups; ++g) tf32_multiply(o[g] + 4 * (4 * c + n), p[g], x);
        }
      }
    }
  }
  /// Of the values that this thread has copied, what is not finite gives way to 0. Returns whether there was any.
  __device__ __forceinline__ bool check_values() const {
    if (!has_odd<kKeys>(mine_.v)) return false;
    each<kKeys, 128>(mine_.v, [](float4& x, int, int) {
      for (float* at : {&x.x, &x.y, &x.z, &x.w}) *at = isfinite(*at) ? *at : 0.0f;
    });
    return true;
  }
  /// Stores a thread's rows, or its share of a part's. Returns whether one may not be finite.
  static __device__ __forceinline__ bool store(const float (&o)[kDim / 2], float2 inverse, const FlashShape& shape,
                                               const FlashTask& t, int first) {
    float odd = 0;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const bool inside = t.template holds<Config>(shape, first + 8 * r);
      const float by = r ? inverse.y : inverse.x;
      float* line = nullptr;
      if (inside)
        line = shape.splits > 1 ? shape.partial + partial_row(shape, t, first + 8 * r) * shape.p.value_dim
                                : out_row<Config>(shape, t, first + 8 * r);
      const int64_t step = shape.splits > 1 ? 1 : shape.p.out.col;
#pragma unroll
      for (int c = 0; c < kDim / 32; ++c)
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          const float* x = o + 16 * c + 2 * r + j;
          const float4 four = make_float4(x[0] * by, x[4] * by, x[8] * by, x[12] * by);
          const int column = c * 32 + threadIdx.x % 4 * 8 + j * 4, count = static_cast<int>(shape.p.value_dim) - column;
          odd = fmaf(four.x + four.y + four.z + four.w, 0.0f, odd);
          if (!inside) continue;
          if (shape.wide_out && shape.splits == 1) {
            if (count > 0) *reinterpret_cast<float4*>(line + column) = four;
          } else {
            const float each[] = {four.x, four.y, four.z, four.w};
#pragma unroll
            for (int i = 0; i < 4; ++i)
              if (i < count) line[(column + i) * step] = each[i];
          }
        }
    }
    return odd != 0;  // NaN
  }

 private:
  /// visit(piece, line, column) for the pieces of a tile that are this thread's to copy: four neighbours of a line,
  /// where they lie so, else one. `kThreads` share them.
  template <int kLines, int kThreads, class Tile, class F>
  static __device__ __forceinline__ void each(Tile& tile, F visit) {
    using Piece = std::conditional_t<std::is_same_v<Tile, Tf32Queries<Config>>, float, float4>;
    constexpr int kWide = sizeof(Piece) / 4, kPieces = kDim / kWide;
#pragma unroll 4
    for (int i = threadIdx.x % kThreads; i < kLines * kPieces; i += kThreads) {
      const int line = i / kPieces, column = i % kPieces * kWide;
      visit(reinterpret_cast<Piece&>(tile.at[Tile::place(line, column)]), line, column);
    }
  }
  template <int kLines, class Tile>
  static __device__ __forceinline__ bool has_odd(Tile& tile) {
    float odd = 0;
    each<kLines, 128>(tile, [&](const auto& x, int, int) {
      if constexpr (sizeof(x) == 16)
        odd = fmaf(x.x, 0.0f, fmaf(x.y, 0.0f, fmaf(x.z, 0.0f, fmaf(x.w, 0.0f, odd))));
      else
        odd = fmaf(x, 0.0f, odd);
    });
    return odd != 0;  // NaN
  }
  /// Scores of queries or keys that are not all finite, as float32 has them: an infinity is no sum of two numbers.
  /// Rare.
  static __device__ __noinline__ void scores_one_by_one(const Shared& shared, const typename Shared::Stream& mine,
                                                        Weights& s) {
    const int row = threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4;
    for (int g = 0; g < kGroups; ++g)
      for (int i = 0; i < kKeys / 2; ++i) {
        const int query = g * 64 + row + i / 2 % 2 * 8, key = i / 4 * 8 + threadIdx.x % 4 * 2 + i % 2;
        float x = 0, odd = 0;
        for (int d = 0; d < kDim; ++d) {
          const float q = shared.q.at[shared.q.place(query, d)], k = mine.k.at[mine.k.place(key, d)];
          x = fmaf(q, k, x), odd = fmaf(q, 0.0f, fmaf(k, 0.0f, odd));
        }
        if (odd != 0) s.p[g][i] = x;  // NaN
      }
  }

  Shared& shared_;
  typename Shared::Stream& mine_;
  bool odd_ = false, odd_queries_ = false;
};

}  // namespace tenor::attn
