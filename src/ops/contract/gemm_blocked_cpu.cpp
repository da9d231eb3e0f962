// The blocked kernel: a tile of c from panels of a and b packed in the compute type.
//
// An output is one chain of FMAs over k = 0, 1, ..., K - 1, whatever the tile: the register tile starts each slice of k
// from the sums that the slice before left in the workspace. Padding to whole register tiles meets only outputs that
// are not stored.
#include "src/cpu/move.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/ops/contract/gemm_blocked_cpu.cpp"
#include "hwy/foreach_target.h"
#include "src/cpu/register_tile-inl.h"
#include "src/ops/contract/gemm_blocked.h"

HWY_BEFORE_NAMESPACE();
namespace tenor::cpu::HWY_NAMESPACE {
namespace contract = tenor::contract;

inline constexpr int64_t kDepth = 256;

/// The height of the last, partial panel of a: the smallest kernel that holds its rows.
int64_t panel_rows(int64_t rows) {
  return rows >= kRows ? kRows : rows > 8 ? kRows : rows > 4 ? 8 : rows > 2 ? 4 : rows;
}

/// acc [Rows, kVectors] += a panel [depth][Rows] x b panel [depth][kVectors], both packed.
template <int Rows, class T>
void multiply_panels(const T* a, const T* b, T* acc, int64_t depth, bool first) {
  multiply_tile<Rows, 1, Rows>(a, b, acc, depth, first);
}

template <class T>
void multiply_panels(int64_t rows, const T* a, const T* b, T* acc, int64_t depth, bool first) {
  switch (rows) {
    case 1:
      return multiply_panels<1>(a, b, acc, depth, first);
    case 2:
      return multiply_panels<2>(a, b, acc, depth, first);
    case 4:
      return multiply_panels<4>(a, b, acc, depth, first);
    case 8:
      return multiply_panels<8>(a, b, acc, depth, first);
    default:
      return multiply_panels<kRows>(a, b, acc, depth, first);
  }
}

#if HWY_TARGET != HWY_SCALAR
/// A vector whose 128-bit block i holds the four elements at p + i * stride.
template <class D, class S>
HWY_INLINE hn::Vec<D> load_blocks(D d, const S* p, int64_t stride) {
  if constexpr (hn::MaxLanes(D()) <= 4) {
    return load(d, p);
  } else {
    const hn::Half<D> half;
    return hn::Combine(d, load_blocks(half, p + stride * (hn::MaxLanes(D()) / 8), stride),
                       load_blocks(half, p, stride));
  }
}

/// Packs Lanes(d) rows of contiguous k, four columns at a time: transposes 4 x 4 blocks in registers.
template <class D, class S>
HWY_INLINE void pack_transposed(D d, const S* HWY_RESTRICT from, int64_t row_stride, float* HWY_RESTRICT to,
                                int64_t width, int64_t depth) {
  const hn::Repartition<uint64_t, D> d64;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t k = 0;
  for (; k + 4 <= depth; k += 4) {
    const auto r0 = load_blocks(d, from + k, 4 * row_stride),
               r1 = load_blocks(d, from + row_stride + k, 4 * row_stride);
    const auto r2 = load_blocks(d, from + 2 * row_stride + k, 4 * row_stride),
               r3 = load_blocks(d, from + 3 * row_stride + k, 4 * row_stride);
    const auto low01 = hn::BitCast(d64, hn::InterleaveLower(d, r0, r1)),
               high01 = hn::BitCast(d64, hn::InterleaveUpper(d, r0, r1));
    const auto low23 = hn::BitCast(d64, hn::InterleaveLower(d, r2, r3)),
               high23 = hn::BitCast(d64, hn::InterleaveUpper(d, r2, r3));
    float* out = to + k * width;
    hn::StoreU(hn::BitCast(d, hn::InterleaveLower(d64, low01, low23)), d, out);
    hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(d64, low01, low23)), d, out + width);
    hn::StoreU(hn::BitCast(d, hn::InterleaveLower(d64, high01, high23)), d, out + 2 * width);
    hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(d64, high01, high23)), d, out + 3 * width);
  }
  for (; k < depth; ++k)
    for (int64_t i = 0; i < lanes; ++i) to[k * width + i] = core::cast<float>(from[i * row_stride + k]);
}

/// As many of the panel's rows as whole vectors of d, then of half of d, down to four; returns how many it packed.
template <class D, class S>
HWY_INLINE int64_t pack_rows(D d, const S* from, int64_t row_stride, float* to, int64_t width, int64_t valid,
                             int64_t depth) {
  int64_t i = 0;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (; i + lanes <= valid; i += lanes) pack_transposed(d, from + i * row_stride, row_stride, to + i, width, depth);
  if constexpr (hn::MaxLanes(D()) > 4)
    i += pack_rows(hn::Half<D>(), from + i * row_stride, row_stride, to + i, width, valid - i, depth);
  return i;
}
#endif

/// to[k][width] = from[i * row_stride + k * k_stride] for i < valid, 0 for the rest, in the compute type.
template <class S, class T>
void pack_panel(const S* HWY_RESTRICT from, int64_t row_stride, int64_t k_stride, T* HWY_RESTRICT to, int64_t width,
                int64_t valid, int64_t depth) {
  int64_t done = 0;
  if (row_stride == 1 || valid == 1) {
    for (int64_t k = 0; k < depth && valid > 1; ++k)
      map_row(from + k * k_stride, to + k * width, valid, [](auto, auto v) HWY_ATTR { return v; });
    done = valid > 1 ? valid : 0;
#if HWY_TARGET != HWY_SCALAR
  } else if constexpr (std::is_same_v<T, float>) {
    if (k_stride == 1) done = pack_rows(hn::ScalableTag<float>(), from, row_stride, to, width, valid, depth);
#endif
  } else if (k_stride == 1) {
    transpose_plane(sizeof(T), from, row_stride, to, width, depth, valid);
    done = valid;
  }
  for (int64_t i = done; i < width; ++i)
    for (int64_t k = 0; k < depth; ++k)
      to[k * width + i] = i < valid ? core::cast<T>(from[i * row_stride + k * k_stride]) : T(0);
}

/// Packs columns that lie side by side into panels of kVectors vectors: along each k, whose row is read once.
template <class S, class T>
void pack_columns(const S* HWY_RESTRICT from, int64_t k_stride, T* HWY_RESTRICT to, int64_t count, int64_t depth) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d)), width = kVectors * lanes;
  for (int64_t k = 0; k < depth; ++k, from += k_stride, to += width) {
    T* at = to;
    int64_t i = 0;
    for (; i + width <= count; i += width, at += width * depth)
      for (int64_t v = 0; v < kVectors; ++v) hn::StoreU(load(d, from + i + v * lanes), d, at + v * lanes);
    for (int64_t j = 0; i < count && j < width; ++j) at[j] = i + j < count ? core::cast<T>(from[i + j]) : T(0);
  }
}

/// Packs `count` rows (of a, or columns of b) into panels of `width`; the last one may be narrower (a's).
template <class T>
void pack(DType dtype, const char* data, int64_t offset, int64_t row_stride, int64_t k_stride, T* to, int64_t count,
          int64_t width, int64_t depth, bool narrow_last) {
  const auto panels = [&](const auto* from) {
    if (row_stride == 1 && !narrow_last) return pack_columns(from + offset, k_stride, to, count, depth);
    for (int64_t i = 0; i < count; i += width) {
      const int64_t valid = count - i < width ? count - i : width;
      pack_panel(from + offset + i * row_stride, row_stride, k_stride, to + i * depth,
                 narrow_last ? panel_rows(valid) : width, valid, depth);
    }
  };
  if constexpr (std::is_same_v<T, double>) {
    panels(reinterpret_cast<const double*>(data));
  } else if (dtype == DType::kFloat32) {
    panels(reinterpret_cast<const float*>(data));
  } else if (dtype == DType::kBFloat16) {
    panels(reinterpret_cast<const BFloat16*>(data));
  } else {
    panels(reinterpret_cast<const Float16*>(data));
  }
}

/// Rows of one register tile to c: adds the bias, rounds, stores what is inside.
template <class T, class S>
void store_tile(const contract::GemmProblem& p, const T* acc, S* c, int64_t row, int64_t rows, int64_t col,
                int64_t cols) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d)), width = kVectors * lanes;
  const T* bias = static_cast<const T*>(p.bias);
  for (int64_t r = 0; r < rows; ++r) {
    S* to = c + (row + r) * p.c.row + col * p.c.col;
    for (int64_t j = 0; j < cols; j += lanes) {
      const int64_t valid = cols - j < lanes ? cols - j : lanes;
      auto v = hn::Load(d, acc + r * width + j);
      if (bias) {
        HWY_ALIGN T joined[HWY_MAX_BYTES / sizeof(T)] = {};
        for (int64_t i = 0; i < valid; ++i) joined[i] = bias[(row + r) * p.bias_row + (col + j + i) * p.bias_col];
        v = hn::Add(v, hn::Load(d, joined));
      }
      if (p.c.col == 1 && valid == lanes) {
        store(d, v, to + j);
      } else if (p.c.col == 1) {
        store_n(d, v, to + j, static_cast<size_t>(valid));
      } else {
        S rounded[HWY_MAX_BYTES / sizeof(T)];
        store(d, v, rounded);
        for (int64_t i = 0; i < valid; ++i) to[(j + i) * p.c.col] = rounded[i];
      }
    }
  }
}

template <class T>
void store_tile(const contract::GemmProblem& p, const T* acc, char* c, int64_t row, int64_t rows, int64_t col,
                int64_t cols) {
  if constexpr (std::is_same_v<T, double>) {
    store_tile(p, acc, reinterpret_cast<double*>(c), row, rows, col, cols);
  } else if (p.c.dtype == DType::kFloat32) {
    store_tile(p, acc, reinterpret_cast<float*>(c), row, rows, col, cols);
  } else if (p.c.dtype == DType::kBFloat16) {
    store_tile(p, acc, reinterpret_cast<BFloat16*>(c), row, rows, col, cols);
  } else {
    store_tile(p, acc, reinterpret_cast<Float16*>(c), row, rows, col, cols);
  }
}

template <class T>
void compute_tile(const contract::GemmProblem& p, const contract::GemmTile& tile, T* workspace) {
  const int64_t width = kVectors * static_cast<int64_t>(hn::Lanes(hn::ScalableTag<T>()));
  T* a = workspace;
  T* b = a + contract::round_up(contract::round_up(tile.rows, kRows) * kDepth, 16);
  T* acc = b + contract::round_up(contract::round_up(tile.cols, width) * kDepth, 16);
  const auto each_tile = [&](auto&& fn) {
    T* sums = acc;
    for (int64_t j = 0; j < tile.cols; j += width)
      for (int64_t i = 0; i < tile.rows; i += kRows, sums += kRows * width) fn(i, j, sums);
  };
  for (int64_t k = 0; k < p.k; k += kDepth) {
    const int64_t depth = p.k - k < kDepth ? p.k - k : kDepth;
    pack(p.a.dtype, tile.a, tile.row * p.a.row + k * p.a.col, p.a.row, p.a.col, a, tile.rows, kRows, depth, true);
    pack(p.b.dtype, tile.b, tile.col * p.b.col + k * p.b.row, p.b.col, p.b.row, b, tile.cols, width, depth, false);
    each_tile([&](int64_t i, int64_t j, T* sums) {
      multiply_panels(panel_rows(tile.rows - i), a + i * depth, b + j * depth, sums, depth, k == 0);
    });
  }
  each_tile([&](int64_t i, int64_t j, T* sums) {
    store_tile(p, sums, tile.c, tile.row + i, tile.rows - i < kRows ? tile.rows - i : kRows, tile.col + j,
               tile.cols - j < width ? tile.cols - j : width);
  });
}

void compute_tile_of(const contract::GemmProblem& p, const contract::GemmTile& tile, void* workspace) {
  if (p.compute == DType::kFloat64) return compute_tile(p, tile, static_cast<double*>(workspace));
  compute_tile(p, tile, static_cast<float*>(workspace));
}

contract::BlockShape shape_of(DType compute) {
  const int64_t lanes =
      compute == DType::kFloat64 ? hn::Lanes(hn::ScalableTag<double>()) : hn::Lanes(hn::ScalableTag<float>());
  return {kRows, kVectors * lanes, kDepth, HWY_NATIVE_FMA != 0};
}

}  // namespace tenor::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenor::cpu {
HWY_EXPORT(compute_tile_of);
HWY_EXPORT(shape_of);

contract::BlockShape block_shape(DType compute) { return HWY_DYNAMIC_DISPATCH(shape_of)(compute); }
void blocked_tile(const contract::GemmProblem& p, const contract::GemmTile& tile, void* workspace) {
  HWY_DYNAMIC_DISPATCH(compute_tile_of)(p, tile, workspace);
}

}  // namespace tenor::cpu
#endif
