#include "src/ops/contract/gemm_tiles.h"

#if defined(__x86_64__) && defined(__linux__) && defined(__GNUC__)

#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>

namespace tenor::contract::tiles {
namespace {

bool cpu_has_tiles() {
  unsigned a, b, c, d;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return false;
  const bool amx = (d >> 22 & 1) && (d >> 24 & 1), avx512 = (b >> 16 & 1) && (b >> 30 & 1) && (b >> 31 & 1);
  if (!amx || !avx512 || !__get_cpuid(1, &a, &b, &c, &d) || !(c >> 27 & 1)) return false;
  unsigned low, high;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  constexpr unsigned kStates =
      0b110'0000'0000'1110'0110;  // SSE, AVX, the three of AVX-512, tile configuration and data
  return (low & kStates) == kStates;
}

/// Linux hands out the tile registers' state on request, to the whole process.
bool system_grants_tiles() {
  constexpr long kRequestPermission = 0x1023, kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

}  // namespace

bool available() {
  static const bool yes = cpu_has_tiles() && system_grants_tiles();
  return yes;
}

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,amx-tile,amx-bf16")

namespace {

/// Transposes 16 x 16 32-bit elements in registers.
inline void transpose(__m512i r[16]) {
  __m512i t[16];
  for (int i = 0; i < 16; i += 2)
    t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]), t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
  for (int i = 0; i < 16; i += 4) {
    r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]), r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]), r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
  // Now 128-bit block b of r[4 i + j] holds column 4 b + j of rows 4 i to 4 i + 3: transpose the blocks.
  for (int j = 0; j < 4; ++j) {
    const __m512i low01 = _mm512_shuffle_i32x4(r[j], r[4 + j], 0x44),
                  high01 = _mm512_shuffle_i32x4(r[j], r[4 + j], 0xEE);
    const __m512i low23 = _mm512_shuffle_i32x4(r[8 + j], r[12 + j], 0x44),
                  high23 = _mm512_shuffle_i32x4(r[8 + j], r[12 + j], 0xEE);
    t[j] = _mm512_shuffle_i32x4(low01, low23, 0x88), t[4 + j] = _mm512_shuffle_i32x4(low01, low23, 0xDD);
    t[8 + j] = _mm512_shuffle_i32x4(high01, high23, 0x88), t[12 + j] = _mm512_shuffle_i32x4(high01, high23, 0xDD);
  }
  for (int i = 0; i < 16; ++i) r[i] = t[i];
}

inline __mmask32 first_of_32(int64_t n) { return n >= 32 ? 0xFFFFFFFFu : (1u << n) - 1; }
inline __mmask16 first_of_16(int64_t n) { return static_cast<__mmask16>(n >= 16 ? 0xFFFF : (1 << n) - 1); }

/// A tile's rows as they lie: k contiguous.
inline void read_rows(const BFloat16* from, int64_t step, int64_t rows, int64_t depth, __m512i r[16]) {
  const __mmask32 mask = first_of_32(depth);
  for (int i = 0; i < 16; ++i)
    r[i] = i < rows ? _mm512_maskz_loadu_epi16(mask, from + i * step) : _mm512_setzero_si512();
}

/// A tile as pairs of k for 16 neighbouring rows: rows contiguous. Entry i holds k = 2 i in the low halves, 2 i + 1
/// above.
inline void read_pairs(const BFloat16* from, int64_t k_step, int64_t rows, int64_t depth, __m512i r[16]) {
  const __mmask16 mask = first_of_16(rows);
  for (int i = 0; i < 16; ++i) {
    const auto half = [&](int64_t k) {
      return k < depth ? _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, from + k * k_step))
                       : _mm512_setzero_si512();
    };
    r[i] = _mm512_or_si512(half(2 * i), _mm512_slli_epi32(half(2 * i + 1), 16));
  }
}

/// Neither is contiguous: element by element into rows.
inline void gather_rows(const Source& from, const BFloat16* at, int64_t rows, int64_t depth, __m512i r[16]) {
  alignas(64) BFloat16 tile[kElements] = {};
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t k = 0; k < depth; ++k) tile[i * kDepth + k] = at[i * from.step + k * from.k_step];
  for (int i = 0; i < 16; ++i) r[i] = _mm512_load_si512(tile + i * kDepth);
}

/// `pairs`: the right operand's form, pairs of k by column; else the left one's, rows of k. The two are transposes of
/// each other in 32-bit units.
template <bool kPairs>
void pack(const Source& from, int64_t first, int64_t count, int64_t k, int64_t depth, BFloat16* to, int64_t pitch) {
  const bool by_pairs = from.k_step != 1 && from.step == 1;
  const auto one = [&](int64_t i, int64_t t) {
    const BFloat16* at = from.data + (first + i) * from.step + (k + t) * from.k_step;
    const int64_t rows = std::min(kSide, count - i), deep = std::min(kDepth, depth - t);
    __m512i r[16];
    if (from.k_step == 1)
      read_rows(at, from.step, rows, deep, r);
    else if (by_pairs)
      read_pairs(at, from.k_step, rows, deep, r);
    else
      gather_rows(from, at, rows, deep, r);
    if (by_pairs != kPairs) transpose(r);
    for (int j = 0; j < 16; ++j) _mm512_store_si512(to + i / kSide * pitch + t * kSide + j * kDepth, r[j]);
  };
  // Along the contiguous direction inside.
  if (by_pairs) {
    for (int64_t t = 0; t < depth; t += kDepth)
      for (int64_t i = 0; i < count; i += kSide) one(i, t);
  } else {
    for (int64_t i = 0; i < count; i += kSide)
      for (int64_t t = 0; t < depth; t += kDepth) one(i, t);
  }
}

struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

constexpr int64_t kAhead = 16 * kDepth;  // operands read where they lie come from memory: a KiB ahead in each row

template <int kTiles>
inline void prefetch_rows(const BFloat16* at, const Panel& panel) {
  for (int tile = 0; tile < kTiles; ++tile)
    for (int i = 0; i < 16; ++i)
      _mm_prefetch(reinterpret_cast<const char*>(at + tile * panel.pitch + i * panel.row_step), _MM_HINT_T0);
}

/// kLeft x kRight tiles of results (registers 0 to 3) over all tiles of k; left tiles in registers 4 and 5, right in 6
/// and 7.
template <int kLeft, int kRight>
void multiply_block(const BFloat16* left, const Panel& l, const BFloat16* right, const Panel& r, int64_t k_tiles,
                    float* sums, int64_t sums_pitch, bool first) {
  const size_t left_row = static_cast<size_t>(l.row_step) * sizeof(BFloat16);
  if (first) {
    _tile_zero(0);
    if constexpr (kRight > 1) _tile_zero(1);
    if constexpr (kLeft > 1) _tile_zero(2);
    if constexpr (kLeft > 1 && kRight > 1) _tile_zero(3);
  } else {
    _tile_loadd(0, sums, 64);
    if constexpr (kRight > 1) _tile_loadd(1, sums + kSums, 64);
    if constexpr (kLeft > 1) _tile_loadd(2, sums + sums_pitch, 64);
    if constexpr (kLeft > 1 && kRight > 1) _tile_loadd(3, sums + sums_pitch + kSums, 64);
  }
  for (int64_t t = 0; t < k_tiles; ++t, left += l.k_step, right += r.k_step) {
    if (l.row_step != kDepth) prefetch_rows<kLeft>(left + kAhead, l);
    _tile_loadd(6, right, 64);
    _tile_loadd(4, left, left_row);
    _tile_dpbf16ps(0, 4, 6);
    if constexpr (kRight > 1) {
      _tile_loadd(7, right + r.pitch, 64);
      _tile_dpbf16ps(1, 4, 7);
    }
    if constexpr (kLeft > 1) {
      _tile_loadd(5, left + l.pitch, left_row);
      _tile_dpbf16ps(2, 5, 6);
      if constexpr (kRight > 1) _tile_dpbf16ps(3, 5, 7);
    }
  }
  _tile_stored(0, sums, 64);
  if constexpr (kRight > 1) _tile_stored(1, sums + kSums, 64);
  if constexpr (kLeft > 1) _tile_stored(2, sums + sums_pitch, 64);
  if constexpr (kLeft > 1 && kRight > 1) _tile_stored(3, sums + sums_pitch + kSums, 64);
}

/// 16 floats rounded to nearest even, NaN kept quiet: the upper halves; the lower ones mean nothing.
inline __m512i round_to_upper_half(__m512 v) {
  const __m512i bits = _mm512_castps_si512(v), half = _mm512_add_epi32(bits, _mm512_set1_epi32(0x7FFF));
  const __mmask16 odd = _mm512_test_epi32_mask(bits, _mm512_set1_epi32(0x10000)),
                  nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
  const __m512i rounded = _mm512_mask_add_epi32(half, odd, half, _mm512_set1_epi32(1));
  return _mm512_mask_or_epi32(rounded, nan, bits, _mm512_set1_epi32(0x400000));
}
inline __m256i round_to_bfloat16(__m512 v) {
  return _mm512_cvtepi32_epi16(_mm512_srli_epi32(round_to_upper_half(v), 16));
}
/// Two of them, one behind the other.
inline __m512i round_pair(__m512 a, __m512 b) {
  alignas(64) static constexpr auto kUpper = [] {
    std::array<uint16_t, 32> of{};
    for (size_t i = 0; i < 32; ++i) of[i] = static_cast<uint16_t>(2 * i + 1);  // of a, then of b
    return of;
  }();
  return _mm512_permutex2var_epi16(round_to_upper_half(a), _mm512_load_si512(kUpper.data()), round_to_upper_half(b));
}

inline void store_row(__m512 v, const Target& to, int64_t at, int64_t count) {
  const __mmask16 mask = first_of_16(count);
  if (to.dtype == DType::kFloat32)
    _mm512_mask_storeu_ps(reinterpret_cast<float*>(to.data) + at, mask, v);
  else
    _mm256_mask_storeu_epi16(reinterpret_cast<BFloat16*>(to.data) + at, mask, round_to_bfloat16(v));
}

/// The bias of 16 results, `step` apart.
inline __m512 bias_row(const float* bias, int64_t step, int64_t count) {
  if (step == 1) return _mm512_maskz_loadu_ps(first_of_16(count), bias);
  alignas(64) float row[16] = {};
  for (int64_t i = 0; i < count; ++i) row[i] = bias[i * step];
  return _mm512_load_ps(row);
}

/// One tile of results whose rows become rows of the target (right_step 1), or any other strides one by one.
void store_tile(const __m512i r[16], int64_t rows, int64_t cols, int64_t row, int64_t col, const Target& to) {
  for (int64_t i = 0; i < rows; ++i) {
    __m512 v = _mm512_castsi512_ps(r[i]);
    if (to.bias)
      v = _mm512_add_ps(v, bias_row(to.bias + (row + i) * to.bias_left + col * to.bias_right, to.bias_right, cols));
    const int64_t at = (row + i) * to.left_step + col * to.right_step;
    if (to.right_step == 1 || cols == 1) {
      store_row(v, to, at, cols);
      continue;
    }
    alignas(64) char one_by_one[64];
    store_row(v, {one_by_one, to.dtype, 0, 1, nullptr, 0, 0}, 0, cols);
    const int64_t size = static_cast<int64_t>(item_size(to.dtype));
    for (int64_t j = 0; j < cols; ++j)
      std::memcpy(to.data + (at + j * to.right_step) * size, one_by_one + j * size, static_cast<size_t>(size));
  }
}

/// Two tiles of results side by side to rows of bfloat16: whole cache lines where these are aligned.
void store_two_tiles(const float* sums, int64_t rows, int64_t cols, int64_t row, int64_t col, const Target& to) {
  const __mmask32 mask = first_of_32(cols);
  BFloat16* data = reinterpret_cast<BFloat16*>(to.data) + row * to.left_step + col;
  __m512 first = _mm512_setzero_ps(), second = first;
  for (int64_t i = 0; i < rows; ++i, sums += kSide, data += to.left_step) {
    __m512 a = _mm512_loadu_ps(sums), b = _mm512_loadu_ps(sums + kSums);
    if (to.bias && (i == 0 || to.bias_left != 0)) {
      const float* bias = to.bias + (row + i) * to.bias_left + col * to.bias_right;
      first = bias_row(bias, to.bias_right, kSide);
      second = bias_row(bias + kSide * to.bias_right, to.bias_right, cols - kSide);
    }
    if (to.bias) a = _mm512_add_ps(a, first), b = _mm512_add_ps(b, second);
    _mm512_mask_storeu_epi16(data, mask, round_pair(a, b));
  }
}

}  // namespace

void pack_left(const Source& from, int64_t first, int64_t count, int64_t k, int64_t depth, BFloat16* to,
               int64_t pitch) {
  pack<false>(from, first, count, k, depth, to, pitch);
}
void pack_right(const Source& from, int64_t first, int64_t count, int64_t k, int64_t depth, BFloat16* to,
                int64_t pitch) {
  pack<true>(from, first, count, k, depth, to, pitch);
}

void multiply(const Panel& left, const Panel& right, int64_t k_tiles, float* sums, bool first) {
  const TileConfig config;
  _tile_loadconfig(&config);
  const int64_t row = right.tiles * kSums;  // between rows of tiles of results
  for (int64_t j = 0; j < right.tiles; j += 2) {
    const BFloat16* r = right.data + j * right.pitch;
    const bool wide = j + 1 < right.tiles;
    for (int64_t i = 0; i < left.tiles; i += 2) {
      const BFloat16* l = left.data + i * left.pitch;
      float* to = sums + i * row + j * kSums;
      const bool tall = i + 1 < left.tiles;
      if (tall && wide)
        multiply_block<2, 2>(l, left, r, right, k_tiles, to, row, first);
      else if (tall)
        multiply_block<2, 1>(l, left, r, right, k_tiles, to, row, first);
      else if (wide)
        multiply_block<1, 2>(l, left, r, right, k_tiles, to, row, first);
      else
        multiply_block<1, 1>(l, left, r, right, k_tiles, to, row, first);
    }
  }
  _tile_release();
}

void store(const float* sums, int64_t left_count, int64_t right_count, const Target& to) {
  const Target turned{to.data, to.dtype, to.right_step, to.left_step, to.bias, to.bias_right, to.bias_left};
  const bool turn = to.left_step == 1 && to.right_step != 1,
             by_two = !turn && to.dtype == DType::kBFloat16 && to.right_step == 1;
  for (int64_t i = 0; i < left_count; i += kSide)
    for (int64_t j = 0; j < right_count; j += kSide, sums += kSums) {
      if (by_two && right_count - j > kSide) {
        store_two_tiles(sums, std::min(kSide, left_count - i), std::min(2 * kSide, right_count - j), i, j, to);
        j += kSide, sums += kSums;
        continue;
      }
      __m512i r[16];
      for (int k = 0; k < 16; ++k) r[k] = _mm512_loadu_si512(sums + k * kSide);
      const int64_t rows = std::min(kSide, left_count - i), cols = std::min(kSide, right_count - j);
      if (turn) {
        transpose(r);
        store_tile(r, cols, rows, j, i, turned);
      } else {
        store_tile(r, rows, cols, i, j, to);
      }
    }
}

#pragma GCC pop_options

}  // namespace tenor::contract::tiles

#else

namespace tenor::contract::tiles {
bool available() { return false; }
void pack_left(const Source&, int64_t, int64_t, int64_t, int64_t, BFloat16*, int64_t) {}
void pack_right(const Source&, int64_t, int64_t, int64_t, int64_t, BFloat16*, int64_t) {}
void multiply(const Panel&, const Panel&, int64_t, float*, bool) {}
void store(const float*, int64_t, int64_t, const Target&) {}
}  // namespace tenor::contract::tiles

#endif
