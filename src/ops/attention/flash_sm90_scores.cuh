// The Hopper kernel's scores with any option. What TMA does not bring of bias and mask a warp brings itself: its
// sixteen rows of a tile, in lines, by way of its rows of the tile of bias. Straight from memory to where the tensor
// cores hold scores it would be a fragment of a line for each, and all their places in registers.
#pragma once

#include "src/ops/attention/flash_sm90.cuh"

namespace tenor::attn {

/// A warp's rows of a tile. Called by all its lanes.
template <class Config>
class FlashLines {
 public:
  /// Rows from `first` on, tile n of keys. `tile` is its bias, or where that would be.
  __device__ __forceinline__ FlashLines(FlashBiasTile<Config>& tile, const FlashShape& shape, const FlashTask& t,
                                        int first, int n)
      : tile_(tile), shape_(shape), t_(t), first_(first), n_(n) {}

  /// Products to final scores: scale, softcap, bias, mask and place.
  __device__ __forceinline__ void finish(float (&s)[Config::kKeys / 2]) {
    float scale = shape_.scale;
    if (shape_.softcap > 0) {
#pragma unroll
      for (float& x : s) x = soft_cap(x, shape_);
      scale = 1;
    }
    if (!shape_.p.bias.data) {
#pragma unroll
      for (float& x : s) x *= scale;
    } else if (shape_.p.bias_float) {
      add_float<0>(s, scale), add_float<1>(s, scale);
    } else {
      if (!shape_.bias_tiles) bring_bias();
      flash_add_tile<Config>(s, tile_, first_, scale);
    }
    if (shape_.p.mask.data) mask(s);
    if (t_.hides_by_place(n_)) flash_hide<Config>(s, shape_, t_, first_ + lane() / 4, n_);
  }

 private:
  using T = typename Config::T;
  static constexpr int kKeys = Config::kKeys, kBlocks = kKeys / 64, kRows = 16;

  static __device__ __forceinline__ int lane() { return threadIdx.x % 32; }

  /// put(row, column, what lies there) for kColumns columns of each row: a few lines are on their way together.
  /// row(r) is line r, at(column) a place in it.
  template <int kColumns, class Row, class At, class Put>
  static __device__ __forceinline__ void each_line(Row row, At at, Put put) {
    constexpr int kLines = 4, kPieces = (kColumns + 31) / 32;
#pragma unroll 1
    for (int r = 0; r < kRows; r += kLines) {
      std::decay_t<decltype(*row(0))> got[kLines][kPieces];
#pragma unroll
      for (int i = 0; i < kLines; ++i) {
        const auto* line = row(r + i);
#pragma unroll
        for (int c = 0; c < kPieces; ++c) got[i][c] = line[at(min(c * 32 + lane(), kColumns - 1))];
      }
#pragma unroll
      for (int i = 0; i < kLines; ++i)
#pragma unroll
        for (int c = 0; c < kPieces; ++c)
          if (c * 32 + lane() < kColumns) put(r + i, c * 32 + lane(), got[i][c]);
    }
    __syncwarp();
  }
  /// The key of a column of the tile; past the last one, that.
  __device__ __forceinline__ int key(int column) const { return min(n_ * kKeys + column, t_.keys - 1); }
  template <class E>
  __device__ __forceinline__ const E* line(const Plane& x, int r) const {
    return static_cast<const E*>(x.data) + plane_row(shape_, t_, x, first_ + r);
  }

  /// Bias of the operands' type, as TMA would lay it.
  __device__ __forceinline__ void bring_bias() {
    const Plane& x = shape_.p.bias;
    each_line<kKeys>([&](int r) { return line<T>(x, r); }, [&](int c) { return key(c) * x.col; },
                     [&](int r, int c, T bias) {
                       const int row = first_ + r;
                       tile_[c / 64][row * 64 + ((c % 64 / 8) ^ (row & 7)) * 8 + c % 8] = bias;
                     });
    ptx::fence_async_proxy();  // before TMA writes here again
  }

  /// Scores times `scale`, plus float32 bias of half the tile's keys, for which there is room at once.
  template <int kHalf>
  __device__ __forceinline__ void add_float(float (&s)[kKeys / 2], float scale) {
    const Plane& x = shape_.p.bias;
    each_line<kKeys / 2>([&](int r) { return line<float>(x, r); },
                         [&](int c) { return key(kHalf * kKeys / 2 + c) * x.col; },
                         [&](int r, int c, float bias) { *float_at(r, c) = bias; });
#pragma unroll
    for (int i = 0; i < kKeys / 16; ++i)
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        float* at = s + 4 * (kHalf * kKeys / 16 + i) + 2 * r;
        const float2 bias = *reinterpret_cast<const float2*>(float_at(lane() / 4 + 8 * r, i * 8 + lane() % 4 * 2));
        at[0] = fmaf(at[0], scale, bias.x), at[1] = fmaf(at[1], scale, bias.y);
      }
    __syncwarp();
    ptx::fence_async_proxy();
  }
  /// Where a float32 number of half a row lies: eight neighbours side by side, eights turned by the row's number.
  __device__ __forceinline__ float* float_at(int r, int c) {
    constexpr int kRowsOfBlock = kRows / kBlocks;
    auto* block = reinterpret_cast<float*>(tile_[r / kRowsOfBlock] + first_ * 64);
    return block + r % kRowsOfBlock * (kKeys / 2) + ((c / 8) ^ (r & (kKeys / 16 - 1))) * 8 + c % 8;
  }

  /// Hides what the mask hides. It passes through a block of the tile: of bias, that has been added.
  __device__ __forceinline__ void mask(float (&s)[kKeys / 2]) {
    __syncwarp();
    const Plane& x = shape_.p.mask;
    if (shape_.mask_fours && (n_ + 1) * kKeys <= t_.keys)
      each_line<kKeys / 4>(
          [&](int r) { return reinterpret_cast<const uint32_t*>(line<bool>(x, r) + n_ * kKeys); },
          [](int c) { return c; },
          [&](int r, int c, uint32_t four) { *reinterpret_cast<uint32_t*>(mask_at(r, 4 * c)) = four; });
    else
      each_line<kKeys>([&](int r) { return line<bool>(x, r); }, [&](int c) { return key(c) * x.col; },
                       [&](int r, int c, bool sees) { *mask_at(r, c) = sees; });
#pragma unroll
    for (int i = 0; i < kKeys / 8; ++i)
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const uint16_t two = *reinterpret_cast<const uint16_t*>(mask_at(lane() / 4 + 8 * r, i * 8 + lane() % 4 * 2));
        if (!(two & 0xFF)) s[4 * i + 2 * r] = -INFINITY;
        if (!(two >> 8)) s[4 * i + 2 * r + 1] = -INFINITY;
      }
    __syncwarp();
    ptx::fence_async_proxy();
  }
  /// Where a key's byte of the mask lies: eight neighbours side by side, eights turned by twice the row's number.
  __device__ __forceinline__ char* mask_at(int r, int c) {
    auto* block = reinterpret_cast<char*>(tile_[0] + first_ * 64);
    return block + r * kKeys + ((c / 8) ^ (2 * r & (kKeys / 8 - 1))) * 8 + c % 8;
  }

  FlashBiasTile<Config>& tile_;
  const FlashShape& shape_;
  const FlashTask& t_;
  const int first_, n_;
};

}  // namespace tenor::attn
