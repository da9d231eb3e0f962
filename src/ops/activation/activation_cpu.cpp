// silu_mul and gelu_mul over dense rows.
#include "src/core/visit.h"
#include "src/ops/activation/activation_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/ops/activation/activation_cpu.cpp"
#include "hwy/foreach_target.h"
#include "src/cpu/lanes-inl.h"
#include "src/cpu/math-inl.h"
#include "src/cpu/math_short-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenor::cpu::HWY_NAMESPACE {

/// v * weight(v), where weight falls to 0 at -inf faster than v grows.
template <class D, class V>
HWY_INLINE V weighted(D d, V v, V weight) {
  return hn::IfThenZeroElse(hn::Eq(v, hn::Neg(math::infinity(d))), hn::Mul(v, weight));
}

/// bfloat16 has its own, as short as its rounding allows.
template <class T, class D, class V>
HWY_INLINE V sigmoid_of(D d, V v) {
  if constexpr (std::is_same_v<T, BFloat16>)
    return math_short::sigmoid(d, v);
  else
    return math::sigmoid(d, v);
}

struct Silu {
  template <class T, class D, class V>
  static HWY_INLINE V run(D d, V v) {
    return weighted(d, v, sigmoid_of<T>(d, v));
  }
};
struct Gelu {
  template <class T, class D, class V>
  static HWY_INLINE V run(D d, V v) {
    return weighted(d, v, math::normal_cdf(d, v));
  }
};
/// (1 + tanh(u)) / 2 is sigmoid(2 u), which does not cancel where tanh nears -1.
struct GeluTanh {
  template <class T, class D, class V>
  static HWY_INLINE V run(D d, V v) {
    const V cube = hn::Mul(hn::Mul(v, v), v);
    const V u = hn::Mul(math::constant(d, 1.5957691216057308), hn::MulAdd(math::constant(d, 0.044715), cube, v));
    return weighted(d, v, sigmoid_of<T>(d, u));
  }
};

template <class Activation>
HWY_INLINE void gated_block(const RowBlock& block, DType dtype, Activation activation) {
  core::visit_float(dtype, [&]<class T>() HWY_ATTR {
    const ComputeTag<T> d;
    for (int64_t r = 0; r < block.count; ++r) {
      const T *gate = block.row<const T>(0, r), *up = block.row<const T>(1, r);
      T* y = block.row<T>(2, r);
      for_vectors(y, static_cast<size_t>(block.length), [&](size_t i, auto io) HWY_ATTR {
        return hn::Mul(activation.template run<T>(d, io.load(d, gate + i)), io.load(d, up + i));
      });
    }
  });
}

void silu_mul_block(const RowBlock& block, DType dtype) { gated_block(block, dtype, Silu()); }
void gelu_mul_block(const RowBlock& block, DType dtype) { gated_block(block, dtype, Gelu()); }
void gelu_tanh_mul_block(const RowBlock& block, DType dtype) { gated_block(block, dtype, GeluTanh()); }

}  // namespace tenor::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenor::cpu {

HWY_EXPORT(silu_mul_block);
HWY_EXPORT(gelu_mul_block);
HWY_EXPORT(gelu_tanh_mul_block);

void silu_mul_rows(const RowBlock& block, DType dtype) { HWY_DYNAMIC_DISPATCH(silu_mul_block)(block, dtype); }
void gelu_mul_rows(const RowBlock& block, DType dtype) { HWY_DYNAMIC_DISPATCH(gelu_mul_block)(block, dtype); }
void gelu_tanh_mul_rows(const RowBlock& block, DType dtype) { HWY_DYNAMIC_DISPATCH(gelu_tanh_mul_block)(block, dtype); }

}  // namespace tenor::cpu
#endif  // HWY_ONCE
