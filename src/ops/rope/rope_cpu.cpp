// rope over dense heads.
#include <memory>

#include "src/core/visit.h"
#include "src/ops/rope/rope_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/ops/rope/rope_cpu.cpp"
#include "hwy/foreach_target.h"
#include "src/cpu/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenor::cpu::HWY_NAMESPACE {

/// The tables' row of one position, in the compute type and in the order in which the rotation reads it; kept while the
/// position stays, which is for all heads of a token.
template <class C>
class TableRow {
 public:
  explicit TableRow(const RopeParameters& p) : p_(p), half_(p.rotary_dim / 2) {
    constexpr DType kCompute = sizeof(C) == sizeof(double) ? DType::kFloat64 : DType::kFloat32;
    as_it_lies_ = !p.interleaved && lies_dense(*p.cos, kCompute) && lies_dense(*p.sin, kCompute);
    if (!as_it_lies_) own_.reset(new C[static_cast<size_t>(2 * p.rotary_dim)]);
  }

  void seek(int64_t position) {
    if (position == position_) return;
    position_ = position;
    if (as_it_lies_) {
      cos = p_.cos->template data<C>() + position * p_.cos->stride(0);
      sin = p_.sin->template data<C>() + position * p_.sin->stride(0);
      return;
    }
    fill(*p_.cos, own_.get(), C(1));
    fill(*p_.sin, own_.get() + p_.rotary_dim, C(-1));
    cos = own_.get();
    sin = own_.get() + p_.rotary_dim;
  }

  const C* cos = nullptr;  // [rotary_dim/2], or [rotary_dim] with each entry twice when interleaved
  const C* sin = nullptr;  // likewise, the first of a pair negated

 private:
  static bool lies_dense(const Tensor& table, DType compute) {
    return table.dtype() == compute && (table.stride(1) == 1 || table.shape(1) == 1);
  }
  void fill(const Tensor& table, C* to, C first_sign) const {
    core::visit_float(table.dtype(), [&]<class From>() {
      const From* from = table.data<From>() + position_ * table.stride(0);
      for (int64_t i = 0; i < half_; ++i) {
        const C value = core::cast<C>(from[i * table.stride(1)]);
        if (p_.interleaved) {
          to[2 * i] = first_sign * value;
          to[2 * i + 1] = value;
        } else {
          to[i] = value;
        }
      }
    });
  }

  const RopeParameters& p_;
  int64_t half_, position_ = -1;
  bool as_it_lies_;
  std::unique_ptr<C[]> own_;
};

/// Each product and sum rounds on its own: both pairings, and the separate operators, give the same bits.
template <class T, class C = core::Compute<T>>
HWY_INLINE void rotate_halves(const T* x, T* y, size_t half, const C* cos, const C* sin) {
  const ComputeTag<T> d;
  for_lanes(d, half, [&](size_t i, auto io) HWY_ATTR {
    const auto a = io.load(d, x + i), b = io.load(d, x + half + i), c = io.load(d, cos + i), s = io.load(d, sin + i);
    io.store(d, hn::Sub(hn::Mul(a, c), hn::Mul(b, s)), y + i);
    io.store(d, hn::Add(hn::Mul(b, c), hn::Mul(a, s)), y + half + i);
  });
}
template <class T, class C = core::Compute<T>>
HWY_INLINE void rotate_pairs(const T* x, T* y, size_t rotary_dim, const C* cos, const C* sin) {
  const ComputeTag<T> d;
  if constexpr (hn::MaxLanes(ComputeTag<T>()) == 1) {
    for (size_t i = 0; i < rotary_dim; i += 2) {
      const C a = core::widen(x[i]), b = core::widen(x[i + 1]);
      y[i] = core::cast<T>(a * cos[i] + b * sin[i]);
      y[i + 1] = core::cast<T>(b * cos[i + 1] + a * sin[i + 1]);
    }
  } else {
    for_lanes(d, rotary_dim, [&](size_t i, auto io) HWY_ATTR {
      const auto v = io.load(d, x + i);
      io.store(d, hn::Add(hn::Mul(v, io.load(d, cos + i)), hn::Mul(hn::Reverse2(d, v), io.load(d, sin + i))), y + i);
    });
  }
}

void rope_block(const RowBlock& block, const RopeParameters& p) {
  core::visit_float(p.dtype, [&]<class T>() HWY_ATTR {
    TableRow<core::Compute<T>> table(p);
    const size_t rotary = static_cast<size_t>(p.rotary_dim), rest = static_cast<size_t>(block.length) - rotary;
    for (int64_t r = 0; r < block.count; ++r) {
      const int64_t token = (block.first + r) / p.heads % p.period;
      table.seek(p.positions ? p.positions[token] : token);
      const T* x = block.row<const T>(0, r);
      T* y = block.row<T>(1, r);
      if (p.interleaved) {
        rotate_pairs(x, y, rotary, table.cos, table.sin);
      } else {
        rotate_halves(x, y, rotary / 2, table.cos, table.sin);
      }
      if (rest > 0 && x != y) std::memcpy(y + rotary, x + rotary, rest * sizeof(T));
    }
  });
}

}  // namespace tenor::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenor::cpu {

HWY_EXPORT(rope_block);
void rope_rows(const RowBlock& block, const RopeParameters& p) { HWY_DYNAMIC_DISPATCH(rope_block)(block, p); }

}  // namespace tenor::cpu
#endif  // HWY_ONCE
