// Queries, keys and values in the layouts that the product kernels read.
#include <algorithm>
#include <cmath>

#include "src/core/visit.h"
#include "src/ops/attention/attention_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/ops/attention/attention_pack_simd.cpp"
#include "hwy/foreach_target.h"
#include "src/ops/attention/attention_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenor::attn::HWY_NAMESPACE {

inline int64_t whole_steps(int64_t n) { return (n + kKeyStep - 1) / kKeyStep * kKeyStep; }

template <class T>
void PackQuery(const Block& b) {
  using C = core::Compute<T>;
  const Problem& p = *b.problem;
  C* to = static_cast<C*>(b.query);
  for (int64_t r = 0; r < b.rows(); ++r, to += p.dim)
    load_row(element<T>(p.q, b.segment->q, b.head(r), b.row(r)), p.q.col, p.dim, to);
}

#if HWY_TARGET == HWY_SCALAR
template <class C>
inline constexpr int64_t kSquare = 1;
template <class T>
HWY_INLINE void transpose_square(const T* from, int64_t, core::Compute<T>* to) {
  *to = core::widen(*from);
}
#else
template <class C>
inline constexpr int64_t kSquare = 16 / sizeof(C);
/// to[t * kPanel + s] = from[s * row + t] for a square of one 128-bit vector each way.
template <class T>
HWY_INLINE void transpose_square(const T* from, int64_t row, core::Compute<T>* to) {
  using C = core::Compute<T>;
  const hn::CappedTag<C, 16 / sizeof(C)> d;
  if constexpr (sizeof(C) == 8) {
    const auto x0 = load(d, from), x1 = load(d, from + row);
    hn::StoreU(hn::InterleaveLower(d, x0, x1), d, to);
    hn::StoreU(hn::InterleaveUpper(d, x0, x1), d, to + kPanel);
  } else {
    const auto x0 = load(d, from), x1 = load(d, from + row), x2 = load(d, from + 2 * row), x3 = load(d, from + 3 * row);
    const auto low02 = hn::InterleaveLower(d, x0, x2), low13 = hn::InterleaveLower(d, x1, x3);
    const auto high02 = hn::InterleaveUpper(d, x0, x2), high13 = hn::InterleaveUpper(d, x1, x3);
    hn::StoreU(hn::InterleaveLower(d, low02, low13), d, to);
    hn::StoreU(hn::InterleaveUpper(d, low02, low13), d, to + kPanel);
    hn::StoreU(hn::InterleaveLower(d, high02, high13), d, to + 2 * kPanel);
    hn::StoreU(hn::InterleaveUpper(d, high02, high13), d, to + 3 * kPanel);
  }
}
#endif

template <class T>
void PackKeys(const Rows& rows, int64_t dim, int64_t n, void* panel) {
  using C = core::Compute<T>;
  const T* from = static_cast<const T*>(rows.from);
  C* to = static_cast<C*>(panel);
  const int64_t squares = rows.col == 1 ? dim / kSquare<C> * kSquare<C> : 0, whole = n / kSquare<C> * kSquare<C>;
  for (int64_t i = 0; i < whole; i += kSquare<C>)
    for (int64_t c = 0; c < squares; c += kSquare<C>)
      transpose_square(from + i * rows.row + c, rows.row, to + c * kPanel + i);
  for (int64_t c = 0; c < dim; ++c) {
    for (int64_t i = c < squares ? whole : 0; i < n; ++i)
      to[c * kPanel + i] = core::widen(from[i * rows.row + c * rows.col]);
    std::fill(to + c * kPanel + n, to + c * kPanel + whole_steps(n), C(0));
  }
}

template <class T>
bool PackValues(const Rows& rows, int64_t dim, int64_t n, int64_t columns, void* values, uint8_t* poisoned) {
  using C = core::Compute<T>;
  const Tag<C> d;
  C* to = static_cast<C*>(values);
  bool any = false;
  std::fill(poisoned, poisoned + kPanel, uint8_t{0});
  std::fill(to + n * columns, to + whole_steps(n) * columns, C(0));
  for (int64_t i = 0; i < n; ++i, to += columns) {
    load_row(static_cast<const T*>(rows.from) + i * rows.row, rows.col, dim, to);
    std::fill(to + dim, to + columns, C(0));
    auto bad = hn::Zero(d);  // 0 * x is NaN for a NaN or infinity
    for (int64_t c = 0; c < columns; c += static_cast<int64_t>(hn::Lanes(d)))
      bad = hn::MulAdd(hn::LoadU(d, to + c), hn::Zero(d), bad);
    if (hn::AllFalse(d, hn::IsNaN(bad))) continue;
    poisoned[i] = any = true;
    for (int64_t c = 0; c < dim; ++c)
      if (!std::isfinite(to[c])) to[c] = 0;
  }
  return any;
}

// ---- for the matrix unit: pairs of bfloat16 along the summed dim, as one 32-bit element
// --------------------------------

void PackQueryPairs(const Block& b) {
  const Problem& p = *b.problem;
  BFloat16* to = static_cast<BFloat16*>(b.query);
  for (int64_t r = 0; r < b.rows(); ++r, to += p.dim) {
    const BFloat16* from = element<BFloat16>(p.q, b.segment->q, b.head(r), b.row(r));
    if (p.q.col == 1) {
      std::copy(from, from + p.dim, to);
    } else {
      for (int64_t d = 0; d < p.dim; ++d) to[d] = from[d * p.q.col];
    }
  }
}

HWY_INLINE uint32_t pair_of(BFloat16 low, BFloat16 high) { return low.bits | static_cast<uint32_t>(high.bits) << 16; }

/// panel[d / 2][key] = (k[key][d], k[key][d + 1]). Pairs of a dense row move as floats do; nothing is computed.
void PackKeyPairs(const Rows& rows, int64_t dim, int64_t n, void* panel) {
  const BFloat16* from = static_cast<const BFloat16*>(rows.from);
  const bool dense = rows.col == 1 && rows.row % 2 == 0;
  constexpr int64_t kStep = kSquare<float>;
  const int64_t whole = dense ? n / kStep * kStep : 0;
  for (int64_t i = 0; i < whole; i += kStep)
    for (int64_t c = 0; c < dim / 2; c += kStep)
      transpose_square(reinterpret_cast<const float*>(from + i * rows.row) + c, rows.row / 2,
                       static_cast<float*>(panel) + c * kPanel + i);
  for (int64_t c = 0; c < dim / 2; ++c) {
    uint32_t* to = static_cast<uint32_t*>(panel) + c * kPanel;
    for (int64_t i = whole; i < n; ++i) {
      const BFloat16* row = from + i * rows.row + 2 * c * rows.col;
      to[i] = pair_of(row[0], row[rows.col]);
    }
    std::fill(to + n, to + whole_steps(n), 0u);
  }
}

/// values[key / 2][c] = (v[key][c], v[key + 1][c]), non-finite ones as 0.
bool PackValuePairs(const Rows& rows, int64_t dim, int64_t n, int64_t columns, void* values, uint8_t* poisoned) {
  uint32_t* to = static_cast<uint32_t*>(values);
  bool any = false;
  std::fill(poisoned, poisoned + kPanel, uint8_t{0});
  std::fill(to, to + whole_steps(n) / 2 * columns, 0u);
  for (int64_t i = 0; i < n; ++i) {
    const BFloat16* from = static_cast<const BFloat16*>(rows.from) + i * rows.row;
    uint32_t* row = to + i / 2 * columns;
    const int shift = i % 2 * 16;
    uint32_t bad = 0;
    for (int64_t c = 0; c < dim; ++c) {
      const uint32_t bits = from[c * rows.col].bits, junk = (bits & 0x7F80u) == 0x7F80u;
      bad |= junk;
      row[c] |= (junk ? 0u : bits) << shift;
    }
    poisoned[i] = bad != 0;
    any = any || bad != 0;
  }
  return any;
}

Packers PackersFor(DType dtype, bool pairs) {
  if (pairs) return {&PackQueryPairs, &PackKeyPairs, &PackValuePairs};
  return core::visit_float(dtype, [&]<class T>() { return Packers{&PackQuery<T>, &PackKeys<T>, &PackValues<T>}; });
}

}  // namespace tenor::attn::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenor::attn {

HWY_EXPORT(PackersFor);
Packers packers_for(DType dtype, bool pairs) { return HWY_DYNAMIC_DISPATCH(PackersFor)(dtype, pairs); }

}  // namespace tenor::attn
#endif
