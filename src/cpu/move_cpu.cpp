#include <algorithm>

#include "hwy/cache_control.h"
#include "src/cpu/move.h"

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

#if HWY_TARGET != HWY_SCALAR
/// A square through registers: kGroups times kGroups squares of 16 bytes, which a vector of kGroups blocks crosses.
template <class U, size_t kGroups>
struct Square {
  static constexpr int64_t kInner = 16 / sizeof(U), kSide = kInner * static_cast<int64_t>(kGroups);
  using D = hn::FixedTag<U, static_cast<size_t>(kSide)>;
  using V = hn::Vec<D>;

  /// dst[a * dst_stride + i] = src[i * src_stride + a] for i, a < kSide; kStream: past the caches, to aligned rows.
  template <bool kStream>
  static HWY_INLINE void turn(const U* src, int64_t src_stride, U* dst, int64_t dst_stride) {
    V v[kGroups][kInner];
    for (int64_t g = 0; g < static_cast<int64_t>(kGroups); ++g)
      load_turned(src + g * kInner * src_stride, src_stride, v[g]);
    for (int64_t k = 0; k < kInner; ++k) {
      V column[kGroups];
      for (size_t g = 0; g < kGroups; ++g) column[g] = v[g][k];
      turn_blocks(column);
      for (size_t g = 0; g < kGroups; ++g) {
        U* to = dst + (static_cast<int64_t>(g) * kInner + k) * dst_stride;
        kStream ? hn::Stream(column[g], D(), to) : hn::StoreU(column[g], D(), to);
      }
    }
  }

 private:
  /// kInner rows, each of their blocks' squares transposed: a perfect shuffle of a square's rows, as often as halving
  /// gets from kInner to 1, is its transpose.
  static HWY_INLINE void load_turned(const U* src, int64_t stride, V (&v)[kInner]) {
    const D d;
    for (int64_t k = 0; k < kInner; ++k) v[k] = hn::LoadU(d, src + k * stride);
    for (int64_t pass = kInner; pass > 1; pass /= 2) {
      V w[kInner];
      for (int64_t k = 0; k < kInner / 2; ++k) {
        w[2 * k] = hn::InterleaveLower(d, v[k], v[k + kInner / 2]);
        w[2 * k + 1] = hn::InterleaveUpper(d, v[k], v[k + kInner / 2]);
      }
      for (int64_t k = 0; k < kInner; ++k) v[k] = w[k];
    }
  }
  /// The square of 16-byte blocks that kGroups vectors are, transposed.
  static HWY_INLINE void turn_blocks([[maybe_unused]] V (&v)[kGroups]) {
    [[maybe_unused]] const D d;
    if constexpr (kGroups == 2) {
      const V low = hn::ConcatLowerLower(d, v[1], v[0]);
      v[1] = hn::ConcatUpperUpper(d, v[1], v[0]);
      v[0] = low;
    } else if constexpr (kGroups == 4) {
      V even[2], odd[2];
      for (size_t h = 0; h < 2; ++h) {
        even[h] = hn::OddEvenBlocks(hn::SwapAdjacentBlocks(v[2 * h + 1]), v[2 * h]);
        odd[h] = hn::OddEvenBlocks(v[2 * h + 1], hn::SwapAdjacentBlocks(v[2 * h]));
      }
      v[0] = hn::ConcatLowerLower(d, even[1], even[0]);
      v[1] = hn::ConcatLowerLower(d, odd[1], odd[0]);
      v[2] = hn::ConcatUpperUpper(d, even[1], even[0]);
      v[3] = hn::ConcatUpperUpper(d, odd[1], odd[0]);
    }
  }
};

/// Blocks of a vector, of which squares as wide as a cache line are made: fewer instructions, and lines read and
/// written whole. Bytes would need more registers than there are.
template <class U>
inline constexpr size_t kGroupsOf = sizeof(U) == 1
                                        ? 1
                                        : std::min<size_t>(hn::MaxLanes(hn::ScalableTag<U>()) * sizeof(U) / 16, 4);

/// rows x columns elements in whole squares; fetches the lines of the plane `ahead`. Past the caches a row of dst is
/// written to its end before the next: down the rows, lines a power of two apart wait for one another in memory.
template <class U, size_t kGroups, bool kStream = false>
HWY_INLINE void turn_squares(const U* HWY_RESTRICT src, int64_t src_stride, U* HWY_RESTRICT dst, int64_t dst_stride,
                             int64_t rows, int64_t columns, int64_t ahead) {
  constexpr int64_t kSide = Square<U, kGroups>::kSide;
  const auto square = [&](int64_t a, int64_t i) HWY_ATTR {
    if (ahead != 0 && a % kLineOf<U> == 0)
      for (int64_t k = 0; k < kSide; ++k) hwy::Prefetch(src + (i + k) * src_stride + a + ahead);
    Square<U, kGroups>::template turn<kStream>(src + i * src_stride + a, src_stride, dst + a * dst_stride + i,
                                               dst_stride);
  };
  if constexpr (kStream) {
    for (int64_t a = 0; a < rows; a += kSide)
      for (int64_t i = 0; i < columns; i += kSide) square(a, i);
  } else {
    for (int64_t i = 0; i < columns; i += kSide)
      for (int64_t a = 0; a < rows; a += kSide) square(a, i);
  }
}
#endif

/// dst[a * dst_stride + i] = src[i * src_stride + a] for i < columns, a < rows: squares through registers, large ones
/// and then small. The lines come from as many pages, and no hardware prefetcher sees them coming: those of the plane
/// `ahead` are fetched between the squares of this one, or, where that is not known, this one's first of all.
template <class U, bool kStream = false>
void transpose(const U* HWY_RESTRICT src, int64_t src_stride, U* HWY_RESTRICT dst, int64_t dst_stride, int64_t rows,
               int64_t columns, int64_t ahead) {
  int64_t whole_rows = 0, whole_columns = 0;
  if (ahead == 0)
    for (int64_t i = 0; i < columns; ++i) fetch(src + i * src_stride, rows);
#if HWY_TARGET != HWY_SCALAR
  constexpr int64_t kLarge = Square<U, kGroupsOf<U>>::kSide, kSmall = Square<U, 1>::kSide;
  const int64_t large_rows = rows / kLarge * kLarge, large_columns = columns / kLarge * kLarge;
  whole_rows = rows / kSmall * kSmall;
  whole_columns = columns / kSmall * kSmall;
  turn_squares<U, kGroupsOf<U>, kStream>(src, src_stride, dst, dst_stride, large_rows, large_columns, ahead);
  if constexpr (kLarge > kSmall) {  // what is left to the right, then below
    turn_squares<U, 1>(src + large_rows, src_stride, dst + large_rows * dst_stride, dst_stride, whole_rows - large_rows,
                       large_columns, 0);
    turn_squares<U, 1>(src + large_columns * src_stride, src_stride, dst + large_columns, dst_stride, whole_rows,
                       whole_columns - large_columns, ahead);
  }
#endif
  for (int64_t a = 0; a < rows; ++a)
    for (int64_t i = a < whole_rows ? whole_columns : 0; i < columns; ++i)
      dst[a * dst_stride + i] = src[i * src_stride + a];
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
  const int64_t lead =
      (64 - static_cast<int64_t>(reinterpret_cast<uintptr_t>(dst) % 64)) % 64 / static_cast<int64_t>(sizeof(U));
  int64_t i = lead < n ? lead : n;
  copy_run(src, dst, i);
  for (; i + kLine <= n; i += kLine)
    for (int64_t k = 0; k < kLine; k += static_cast<int64_t>(hn::Lanes(d)))
      hn::Stream(hn::LoadU(d, src + i + k), d, dst + i + k);
  copy_run(src + i, dst + i, n - i);
}

template <class U>
void scatter_2d(const U* HWY_RESTRICT src, U* dst, int64_t outer, int64_t inner, int64_t rows, int64_t columns,
                bool stream) {
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
auto by_item(size_t item, F fn) {
  switch (item) {
    case 1:
      return fn(uint8_t());
    case 2:
      return fn(uint16_t());
    case 4:
      return fn(uint32_t());
    default:
      return fn(uint64_t());
  }
}

void gather_plane(size_t item, const void* src, int64_t outer, int64_t inner, void* dst, int64_t rows, int64_t columns,
                  int64_t ahead) {
  by_item(item, [&](auto zero) {
    using U = decltype(zero);
    gather_2d(static_cast<const U*>(src), outer, inner, static_cast<U*>(dst), rows, columns, ahead);
  });
}
void scatter_plane(size_t item, const void* src, void* dst, int64_t outer, int64_t inner, int64_t rows, int64_t columns,
                   bool stream) {
  by_item(item, [&](auto zero) {
    using U = decltype(zero);
    scatter_2d(static_cast<const U*>(src), static_cast<U*>(dst), outer, inner, rows, columns, stream);
  });
}
void transpose_items(size_t item, const void* src, int64_t src_stride, void* dst, int64_t dst_stride, int64_t rows,
                     int64_t columns) {
  by_item(item, [&](auto zero) {
    using U = decltype(zero);
    transpose(static_cast<const U*>(src), src_stride, static_cast<U*>(dst), dst_stride, rows, columns, 0);
  });
}
template <class U>
bool stream_turned_of([[maybe_unused]] const U* src, [[maybe_unused]] int64_t src_stride, [[maybe_unused]] U* dst,
                      [[maybe_unused]] int64_t dst_stride, [[maybe_unused]] int64_t rows,
                      [[maybe_unused]] int64_t columns, [[maybe_unused]] int64_t ahead) {
#if HWY_TARGET != HWY_SCALAR
  if constexpr (kGroupsOf<U> == 4) {
    if (reinterpret_cast<uintptr_t>(dst) % 64 != 0 || dst_stride % kLineOf<U> != 0) return false;
    transpose<U, true>(src, src_stride, dst, dst_stride, rows, columns, ahead);
    return true;
  }
#endif
  return false;
}
bool stream_turned_items(size_t item, const void* src, int64_t src_stride, void* dst, int64_t dst_stride, int64_t rows,
                         int64_t columns, int64_t ahead) {
  return by_item(item, [&](auto zero) {
    using U = decltype(zero);
    return stream_turned_of(static_cast<const U*>(src), src_stride, static_cast<U*>(dst), dst_stride, rows, columns,
                            ahead);
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
HWY_EXPORT(stream_turned_items);
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

void transpose_plane(size_t item, const void* src, int64_t src_stride, void* dst, int64_t dst_stride, int64_t rows,
                     int64_t columns) {
  HWY_DYNAMIC_DISPATCH(transpose_items)(item, src, src_stride, dst, dst_stride, rows, columns);
}

bool stream_turned(size_t item, const void* src, int64_t src_stride, void* dst, int64_t dst_stride, int64_t rows,
                   int64_t columns, int64_t ahead) {
  return HWY_DYNAMIC_DISPATCH(stream_turned_items)(item, src, src_stride, dst, dst_stride, rows, columns, ahead);
}

void fill_dense(size_t item, const void* value, void* dense, size_t n) {
  HWY_DYNAMIC_DISPATCH(fill_values)(item, value, dense, n);
}

}  // namespace tenor::cpu
#endif
