// layer_norm and rms_norm, alone and behind an addition. A row is read several times, but only the first time from
// memory.
#include "src/core/visit.h"
#include "src/ops/norm/norm_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/ops/norm/norm_cpu.cpp"
#include "hwy/foreach_target.h"
#include "src/ops/norm/norm-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenor::cpu::HWY_NAMESPACE {

struct LayerNormRow {
  template <class T, class C = core::Compute<T>>
  static HWY_INLINE void run(const T* x, T* y, size_t n, int64_t ahead, const NormParameters& p) {
    apply_moments(x, y, n, row_moments(x, n, p.epsilon), ahead, static_cast<const C*>(p.gamma),
                  static_cast<const C*>(p.beta));
  }
};

struct RmsNormRow {
  template <class T, class C = core::Compute<T>>
  static HWY_INLINE void run(const T* x, T* y, size_t n, int64_t ahead, const NormParameters& p) {
    const ComputeTag<T> d;
    const auto squared = [](auto, auto v) HWY_ATTR { return hn::Mul(v, v); };
    const double sum = static_cast<double>(reduce_row<4>(x, n, C(0), squared, AddOp()));
    const auto inverse = hn::Set(d, inverse_root<C>(sum / static_cast<double>(n), p.epsilon));
    const C* gamma = static_cast<const C*>(p.gamma);
    for_lanes(d, n, [&](size_t i, auto io) HWY_ATTR {
      hwy::Prefetch(x + i + ahead);
      io.store(d, hn::Mul(hn::Mul(io.load(d, x + i), inverse), io.load(d, gamma + i)), y + i);
    });
  }
};

template <class Row>
HWY_INLINE void norm_block(const RowBlock& block, const NormParameters& p) {
  core::visit_float(p.dtype, [&]<class T>() HWY_ATTR {
    for (int64_t r = 0; r < block.count; ++r)
      Row::run(block.row<const T>(0, r), block.row<T>(1, r), static_cast<size_t>(block.length), block.ahead<T>(0), p);
  });
}

template <class Row>
HWY_INLINE void add_norm_block(const RowBlock& block, const NormParameters& p) {
  core::visit_float(p.dtype, [&]<class T>() HWY_ATTR {
    const ComputeTag<T> d;
    const size_t n = static_cast<size_t>(block.length);
    for (int64_t r = 0; r < block.count; ++r) {
      const T *x = block.row<const T>(0, r), *residual = block.row<const T>(1, r);
      T* sum = block.row<T>(3, r);
      for_lanes(d, n, [&](size_t i, auto io) HWY_ATTR {
        io.store(d, hn::Add(io.load(d, x + i), io.load(d, residual + i)), sum + i);
      });
      Row::run(static_cast<const T*>(sum), block.row<T>(2, r), n, 0, p);
    }
  });
}

/// The rows that go side by side; returns how many.
template <class T, class C = core::Compute<T>>
HWY_INLINE int64_t layer_norm_together(const RowBlock& block, const NormParameters& p) {
  constexpr int64_t kRows = kRowsAtOnce<T>;
  const size_t n = static_cast<size_t>(block.length);
  const int64_t stride = block.step[0] / static_cast<int64_t>(sizeof(T));
  int64_t r = 0;
  for (; side_by_side<T>(block.length) && r + kRows <= block.count; r += kRows) {
    Moments<C> moments[kRows];
    rows_moments<kRows>(block.row<const T>(0, r), stride, n, p.epsilon, moments);
    for (int64_t k = 0; k < kRows; ++k)
      apply_moments(block.row<const T>(0, r + k), block.row<T>(1, r + k), n, moments[k], kRows * block.ahead<T>(0),
                    static_cast<const C*>(p.gamma), static_cast<const C*>(p.beta));
  }
  return r;
}

void layer_norm_block(const RowBlock& block, const NormParameters& p) {
  core::visit_float(p.dtype, [&]<class T>() HWY_ATTR {
    for (int64_t r = layer_norm_together<T>(block, p); r < block.count; ++r)
      LayerNormRow::run(block.row<const T>(0, r), block.row<T>(1, r), static_cast<size_t>(block.length),
                        block.ahead<T>(0), p);
  });
}
void rms_norm_block(const RowBlock& block, const NormParameters& p) { norm_block<RmsNormRow>(block, p); }
void add_layer_norm_block(const RowBlock& block, const NormParameters& p) { add_norm_block<LayerNormRow>(block, p); }
void add_rms_norm_block(const RowBlock& block, const NormParameters& p) { add_norm_block<RmsNormRow>(block, p); }

}  // namespace tenor::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenor::cpu {

HWY_EXPORT(layer_norm_block);
HWY_EXPORT(rms_norm_block);
HWY_EXPORT(add_layer_norm_block);
HWY_EXPORT(add_rms_norm_block);

void layer_norm_rows(const RowBlock& block, const NormParameters& p) {
  HWY_DYNAMIC_DISPATCH(layer_norm_block)(block, p);
}
void rms_norm_rows(const RowBlock& block, const NormParameters& p) { HWY_DYNAMIC_DISPATCH(rms_norm_block)(block, p); }
void add_layer_norm_rows(const RowBlock& block, const NormParameters& p) {
  HWY_DYNAMIC_DISPATCH(add_layer_norm_block)(block, p);
}
void add_rms_norm_rows(const RowBlock& block, const NormParameters& p) {
  HWY_DYNAMIC_DISPATCH(add_rms_norm_block)(block, p);
}

}  // namespace tenor::cpu
#endif  // HWY_ONCE
