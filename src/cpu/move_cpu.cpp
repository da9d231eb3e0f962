#include "src/cpu/move.h"

#include "hwy/cache_control.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/cpu/move_cpu.cpp"
#include "hwy/foreach_target.h"
#include "src/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenor::cpu::HWY_NAMESPACE {
namespace {

template <class U>
inline constexpr int64_t kLineOf = 64 / static_cast<int64_t>(sizeof(U));

/// Fetches a line of n elements.
template <class U>
HWY_INLINE void fetch(const U* line, int64_t n) {
  for (int64_t a = 0; a < n; a += kLineOf<U>) hwy::Prefetch(line + a);
}

/// dst[a * dst_stride + i] = src[i * src_stride + a] for i < columns, a < rows: 16-byte squares through registers.
/// The lines come from as many pages, and no hardware prefetcher sees them coming: those of the plane `ahead` are
/// fetched between the squares of this one, or, where that is not known, this one's first of all.
template <class U>
void transpose(const U* HWY_RESTRICT src, int64_t src_stride, U* HWY_RESTRICT dst, int64_t dst_stride, int64_t rows,
               int64_t columns, int64_t ahead) {
  int64_t whole_rows = 0, whole_columns = 0;
  if (ahead == 0)
    for (int64_t i = 0; i < columns; ++i) fetch(src + i * src_stride, rows);
#if HWY_TARGET != HWY_SCALAR
  constexpr int64_t kSide = 16 / sizeof(U);
  const hn::FixedTag<U, kSide> d;
  using V = hn::Vec<decltype(d)>;
  whole_rows = rows / kSide * kSide;
  whole_columns = columns / kSide * kSide;
  for (int64_t i = 0; i < whole_columns; i += kSide) {
    for (int64_t a = 0; a < whole_rows; a += kSide) {
      if (ahead != 0 && a % kLineOf<U> == 0)
        for (int64_t k = 0; k < kSide; ++k) hwy::Prefetch(src + (i + k) * src_stride + a + ahead);
      V v[kSide], w[kSide];
      for (int64_t k = 0; k < kSide; ++k) v[k] = hn::LoadU(d, src + (i + k) * src_stride + a);
      // A perfect shuffle of the square's rows, as often as halving gets from kSide to 1, is its transpose.
      for (int64_t pass = kSide; pass > 1; pass /= 2) {
        for (int64_t k = 0; k < kSide / 2; ++k) {
          w[2 * k] = hn::InterleaveLower(d, v[k], v[k + kSide / 2]);
          w[2 * k + 1] = hn::InterleaveUpper(d, v[k], v[k + kSide / 2]);
        }
        for (int64_t k = 0; k < kSide; ++k) v[k] = w[k];
      }
      for (int64_t k = 0; k < kSide; ++k) hn::StoreU(v[k], d, dst + (a + k) * dst_stride + i);
    }
  }
#endif
  for (int64_t a = 0; a < rows; ++a)
    for (int64_t i = a < whole_rows ? whole_columns : 0; i < columns; ++i) dst[a * dst_stride + i] = src[i * src_stride + a];
}

template <class U>
HWY_INLINE void copy_run(const U* HWY_RESTRICT src, U* HWY_RESTRICT dst, int64_t n) {
  if (n >= 16) {
    std::memcpy(dst, src, static_cast<size_t>(n) * sizeof(U));
  } else {
    for (int64_t i = 0; i < n; ++i) dst[i] = src[i];
  }
}
template <class U>
HWY_INLINE void fill_run(U value, U* HWY_RESTRICT dst, int64_t n) {
  for (int64_t i = 0; i < n; ++i) dst[i] = value;
}

/// rows x columns elements at src[r * outer + c * inner] into dense rows.
template <class U>
void gather_2d(const U* src, int64_t outer, int64_t inner, U* HWY_RESTRICT dst, int64_t rows, int64_t columns,
               int64_t ahead) {
  if (inner == 1) {
    for (int64_t r = 0; r < rows; ++r) {
      if (ahead != 0) fetch(src + r * outer + ahead, columns);
      copy_run(src + r * outer, dst + r * columns, columns);
    }
  } else if (inner == 0) {
    for (int64_t r = 0; r < rows; ++r) fill_run(src[r * outer], dst + r * columns, columns);
  } else if (outer == 1 && rows > 1) {
    transpose(src, inner, dst, columns, rows, columns, ahead);
  } else if (outer < inner && outer != 0) {
    for (int64_t c = 0; c < columns; ++c)
      for (int64_t r = 0; r < rows; ++r) dst[r * columns + c] = src[r * outer + c * inner];
  } else {
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < columns; ++c) dst[r * columns + c] = src[r * outer + c * inner];
  }
}
/// Whole cache lines of dst with non-temporal stores, the rest as usual.
template <class U>
HWY_INLINE void stream_run(const U* HWY_RESTRICT src, U* HWY_RESTRICT dst, int64_t n) {
  constexpr int64_t kLine = 64 / sizeof(U);
  const hn::CappedTag<U, kLine> d;
  const int64_t lead = (64 - static_cast<int64_t>(reinterpret_cast<uintptr_t>(dst) % 64)) % 64 / static_cast<int64_t>(sizeof(U));
  int64_t i = lead < n ? lead : n;
  copy_run(src, dst, i);
  for (; i + kLine <= n; i += kLine)
    for (int64_t k = 0; k < kLine; k += static_cast<int64_t>(hn::Lanes(d))) hn::Stream(hn::LoadU(d, src + i + k), d, dst + i + k);
  copy_run(src + i, dst + i, n - i);
}

template <class U>
void scatter_2d(const U* HWY_RESTRICT src, U* dst, int64_t outer, int64_t inner, int64_t rows, int64_t columns, bool stream) {
  if (inner == 1 && stream) {
    for (int64_t r = 0; r < rows; ++r) stream_run(src + r * columns, dst + r * outer, columns);
  } else if (inner == 1) {
    for (int64_t r = 0; r < rows; ++r) copy_run(src + r * columns, dst + r * outer, columns);
  } else {
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < columns; ++c) dst[r * outer + c * inner] = src[r * columns + c];
  }
}

template <class F>
void by_item(size_t item, F fn) {
  switch (item) {
    case 1: return fn(uint8_t());
    case 2: return fn(uint16_t());
    case 4: return fn(uint32_t());
    default: return fn(uint64_t());
  }
}

void gather_plane(size_t item, const void* src, int64_t outer, int64_t inner, void* dst, int64_t rows, int64_t columns,
                  int64_t ahead) {
  by_item(item, [&](auto zero) {
    using U = decltype(zero);
    gather_2d(static_cast<const U*>(src), outer, inner, static_cast<U*>(dst), rows, columns, ahead);
  });
}
void scatter_plane(size_t item, const void* src, void* dst, int64_t outer, int64_t inner, int64_t rows, int64_t columns, bool stream) {
  by_item(item, [&](auto zero) {
    using U = decltype(zero);
    scatter_2d(static_cast<const U*>(src), static_cast<U*>(dst), outer, inner, rows, columns, stream);
  });
}
void transpose_items(size_t item, const void* src, int64_t src_stride, void* dst, int64_t dst_stride, int64_t rows, int64_t columns) {
  by_item(item, [&](auto zero) {
    using U = decltype(zero);
    transpose(static_cast<const U*>(src), src_stride, static_cast<U*>(dst), dst_stride, rows, columns, 0);
  });
}
void fill_values(size_t item, const void* value, void* dst, size_t n) {
  by_item(item, [&](auto zero) {
    using U = decltype(zero);
    U one;
    std::memcpy(&one, value, sizeof one);
    fill_run(one, static_cast<U*>(dst), static_cast<int64_t>(n));
  });
}

}  // namespace
}  // namespace tenor::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenor::cpu {
HWY_EXPORT(gather_plane);
HWY_EXPORT(scatter_plane);
HWY_EXPORT(transpose_items);
HWY_EXPORT(fill_values);
namespace {

/// The box without dims of size 1, with dims merged where the strides allow; then the two innermost dims as a plane.
struct Planes {
  int64_t sizes[Box::kMaxDims], strides[Box::kMaxDims];
  int ndim = 0;

  explicit Planes(const Box& box) {
    for (int d = 0; d < box.ndim; ++d) {
      if (box.sizes[d] == 1) continue;
      if (ndim > 0 && strides[ndim - 1] == box.sizes[d] * box.strides[d]) {
        sizes[ndim - 1] *= box.sizes[d];
        strides[ndim - 1] = box.strides[d];
      } else {
        sizes[ndim] = box.sizes[d];
        strides[ndim++] = box.strides[d];
      }
    }
    while (ndim < 2) {  // dims of size 1 in front
      for (int d = ndim; d > 0; --d) sizes[d] = sizes[d - 1], strides[d] = strides[d - 1];
      sizes[0] = 1;
      strides[0] = 0;
      ++ndim;
    }
  }
  int64_t rows() const { return sizes[ndim - 2]; }
  int64_t columns() const { return sizes[ndim - 1]; }

  /// fn(offset of the plane in the box) for every plane, in row-major order.
  template <class F>
  void each(F fn) const {
    int64_t at[Box::kMaxDims] = {}, offset = 0;
    for (;;) {
      fn(offset);
      int d = ndim - 3;
      for (; d >= 0; --d) {
        offset += strides[d];
        if (++at[d] < sizes[d]) break;
        offset -= strides[d] * sizes[d];
        at[d] = 0;
      }
      if (d < 0) return;
    }
  }
};

}  // namespace

void gather_box(size_t item, const void* src, const Box& box, void* dense) {
  const Planes planes(box);
  auto* to = static_cast<char*>(dense);
  const auto plane = HWY_DYNAMIC_DISPATCH(gather_plane);
  const int64_t rows = planes.rows(), columns = planes.columns();
  planes.each([&](int64_t offset) {
    plane(item, static_cast<const char*>(src) + offset * static_cast<int64_t>(item), planes.strides[planes.ndim - 2],
          planes.strides[planes.ndim - 1], to, rows, columns, box.ahead);
    to += rows * columns * static_cast<int64_t>(item);
  });
}

void scatter_box(size_t item, const void* dense, void* dst, const Box& box, bool stream) {
  const Planes planes(box);
  auto* from = static_cast<const char*>(dense);
  const auto plane = HWY_DYNAMIC_DISPATCH(scatter_plane);
  const int64_t rows = planes.rows(), columns = planes.columns();
  planes.each([&](int64_t offset) {
    plane(item, from, static_cast<char*>(dst) + offset * static_cast<int64_t>(item), planes.strides[planes.ndim - 2],
          planes.strides[planes.ndim - 1], rows, columns, stream);
    from += rows * columns * static_cast<int64_t>(item);
  });
}

void finish_streams() { hwy::FlushStream(); }

void transpose_plane(size_t item, const void* src, int64_t src_stride, void* dst, int64_t dst_stride, int64_t rows, int64_t columns) {
  HWY_DYNAMIC_DISPATCH(transpose_items)(item, src, src_stride, dst, dst_stride, rows, columns);
}

void fill_dense(size_t item, const void* value, void* dense, size_t n) { HWY_DYNAMIC_DISPATCH(fill_values)(item, value, dense, n); }

}  // namespace tenor::cpu
#endif
