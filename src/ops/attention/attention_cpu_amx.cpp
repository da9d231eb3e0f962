// The products of "flash_tensorcore" on the CPU: AMX tiles (Sapphire Rapids and later): bfloat16 pairs in, float32 sums
// out.
#include "src/cpu/amx.h"
#include "src/ops/attention/attention_kernels.h"

#if defined(__x86_64__) && defined(__linux__)

#include <immintrin.h>

namespace tenor::attn {
namespace {

#define TENOR_AMX __attribute__((target("amx-tile,amx-bf16")))

constexpr cpu::TileConfig kConfig;

/// A strip of 16 or 32 rows times 32 columns of a product, in tiles 0 to 3 (row of tiles, then column): tiles 4 and 5
/// hold the left operand, 6 and 7 the right. Strides are in bytes.
template <bool Two>
TENOR_AMX inline void start(const char* out, int64_t stride, bool second_column, bool fresh) {
  if (fresh) {
    _tile_zero(0);
    _tile_zero(1);
    if constexpr (Two) {
      _tile_zero(2);
      _tile_zero(3);
    }
    return;
  }
  _tile_loadd(0, out, stride);
  if (second_column) {
    _tile_loadd(1, out + 64, stride);
  }
  if constexpr (Two) {
    _tile_loadd(2, out + 16 * stride, stride);
    if (second_column) {
      _tile_loadd(3, out + 16 * stride + 64, stride);
    }
  }
}
template <bool Two>
TENOR_AMX inline void step(const char* left, int64_t left_stride, const char* right, int64_t right_stride,
                           bool second_column) {
  _tile_loadd(6, right, right_stride);
  _tile_loadd(4, left, left_stride);
  _tile_dpbf16ps(0, 4, 6);
  if constexpr (Two) {
    _tile_loadd(5, left + 16 * left_stride, left_stride);
    _tile_dpbf16ps(2, 5, 6);
  }
  if (!second_column) return;
  _tile_loadd(7, right + 64, right_stride);
  _tile_dpbf16ps(1, 4, 7);
  if constexpr (Two) {
    _tile_dpbf16ps(3, 5, 7);
  }
}
template <bool Two>
TENOR_AMX inline void stop(char* out, int64_t stride, bool second_column) {
  _tile_stored(0, out, stride);
  if (second_column) {
    _tile_stored(1, out + 64, stride);
  }
  if constexpr (Two) {
    _tile_stored(2, out + 16 * stride, stride);
    if (second_column) {
      _tile_stored(3, out + 16 * stride + 64, stride);
    }
  }
}

template <bool Two>
TENOR_AMX void scores_strip(const Block& b, const char* query, const char* panel, int64_t columns, char* out) {
  const int64_t steps = b.problem->dim / 32, query_stride = b.problem->dim * 2, panel_stride = kPanel * 4,
                stride = b.stride * 4;
  for (int64_t c = 0; c < columns; c += kKeyStep) {
    start<Two>(out + c * 4, stride, true, true);
    for (int64_t s = 0; s < steps; ++s)
      step<Two>(query + s * 64, query_stride, panel + s * 16 * panel_stride + c * 4, panel_stride, true);
    stop<Two>(out + c * 4, stride, true);
  }
}

template <bool Two>
TENOR_AMX void accumulate_strip(const Block& b, const char* weights, const char* values, int64_t n, char* out,
                                bool fresh) {
  const int64_t stride = b.columns * 4, weights_stride = b.stride * 4;
  for (int64_t c = 0; c < b.columns; c += 32) {
    const bool second = c + 16 < b.columns;
    start<Two>(out + c * 4, stride, second, fresh);
    for (int64_t j = 0; j < n; j += 32) {
      const char* right = values + j / 2 * stride + c * 4;
      step<Two>(weights + j * 4, weights_stride, right, stride, second);       // the upper halves
      step<Two>(weights + j * 4 + 64, weights_stride, right, stride, second);  // what they leave
    }
    stop<Two>(out + c * 4, stride, second);
  }
}

}  // namespace

TENOR_AMX void amx_scores(const Block& b, const void* panel, int64_t j) {
  _tile_loadconfig(&kConfig);
  const char* query = static_cast<const char*>(b.query);
  char* out = static_cast<char*>(b.scores) + (j - b.key_begin) * 4;
  for (int64_t r = 0; r < b.rows(); r += 32) {
    const auto strip = b.rows() - r > 16 ? &scores_strip<true> : &scores_strip<false>;
    strip(b, query + r * b.problem->dim * 2, static_cast<const char*>(panel), std::min(kPanel, b.key_end - j),
          out + r * b.stride * 4);
  }
  _tile_release();
}

TENOR_AMX void amx_accumulate(const Block& b, const void* values, int64_t j, int64_t n, bool fresh) {
  _tile_loadconfig(&kConfig);
  const char* weights = static_cast<const char*>(b.scores) + (j - b.key_begin) * 4;
  char* out = static_cast<char*>(b.part);
  for (int64_t r = 0; r < b.rows(); r += 32) {
    const auto strip = b.rows() - r > 16 ? &accumulate_strip<true> : &accumulate_strip<false>;
    strip(b, weights + r * b.stride * 4, static_cast<const char*>(values), n, out + r * b.columns * 4, fresh);
  }
  _tile_release();
}

}  // namespace tenor::attn

#else

namespace tenor::attn {

void amx_scores(const Block&, const void*, int64_t) {}
void amx_accumulate(const Block&, const void*, int64_t, int64_t, bool) {}

}  // namespace tenor::attn

#endif
