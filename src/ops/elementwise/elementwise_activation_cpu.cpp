#include "src/core/visit.h"
#include "src/ops/elementwise/elementwise_ops.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/ops/elementwise/elementwise_activation_cpu.cpp"
#include "hwy/foreach_target.h"
#include "src/cpu/math_short-inl.h"
#include "src/ops/elementwise/elementwise_kernels-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenor::cpu::HWY_NAMESPACE {
namespace {

using elementwise::Op;

/// v * gate, with the limit -0 at -inf, where the gate vanishes faster than v grows.
template <class D, class V>
HWY_INLINE V gated(D d, V v, V gate) {
  return hn::IfThenElse(hn::Eq(v, hn::Neg(math::infinity(d))), math::constant(d, -0.0), hn::Mul(v, gate));
}

/// The functions behind a T's activations: bfloat16 has its own, as short as its rounding allows.
template <class T>
struct Functions {
  template <class D, class V>
  static HWY_INLINE V sigmoid(D d, V v) {
    if constexpr (std::is_same_v<T, BFloat16>)
      return math_short::sigmoid(d, v);
    else
      return math::sigmoid(d, v);
  }
};

/// N vectors through gelu.
template <size_t N>
HWY_INLINE void short_gelu(const BFloat16* from, BFloat16* to) {
  const ComputeTag<BFloat16> d;
  hn::Vec<decltype(d)> x[N], y[N];
  for (size_t k = 0; k < N; ++k) x[k] = load(d, from + k * hn::Lanes(d));
  math_short::normal_cdf(d, x, y);
  for (size_t k = 0; k + 1 < N; k += 2)
    store_pair(d, gated(d, x[k], y[k]), gated(d, x[k + 1], y[k + 1]), to + k * hn::Lanes(d));
  if constexpr (N % 2 != 0) store(d, gated(d, x[N - 1], y[N - 1]), to + (N - 1) * hn::Lanes(d));
}

void bfloat16_gelu(const void* const* in, void* out, size_t n, const void*) {
  const ComputeTag<BFloat16> d;
  const size_t lanes = hn::Lanes(d);
  const auto* from = static_cast<const BFloat16*>(in[0]);
  auto* to = static_cast<BFloat16*>(out);
  size_t i = 0;
  for (; i + 3 * lanes <= n; i += 3 * lanes) short_gelu<3>(from + i, to + i);
  for (; i + lanes <= n; i += lanes) short_gelu<1>(from + i, to + i);
  if (i == n) return;
  BFloat16 rest[HWY_MAX_BYTES / sizeof(BFloat16)] = {};
  std::memcpy(rest, from + i, (n - i) * sizeof(BFloat16));
  short_gelu<1>(rest, rest);
  std::memcpy(to + i, rest, (n - i) * sizeof(BFloat16));
}

template <class T>
StepFn float_activation(Op op) {
  switch (op) {
    case Op::kLeakyRelu:
      return vector1<T>([](auto d, auto v, const double* slope) HWY_ATTR {
        return hn::IfThenElse(hn::Gt(v, hn::Zero(d)), v, hn::Mul(v, math::constant(d, *slope)));
      });
    case Op::kElu:
      return vector1<T>([](auto d, auto v, const double* alpha) HWY_ATTR {
        return hn::IfThenElse(hn::Gt(v, hn::Zero(d)), v, hn::Mul(math::constant(d, *alpha), math::expm1(d, v)));
      });
    case Op::kSilu:
      return vector1<T>([](auto d, auto v) HWY_ATTR { return gated(d, v, Functions<T>::sigmoid(d, v)); });
    case Op::kGelu:
      if constexpr (std::is_same_v<T, BFloat16>) return &bfloat16_gelu;
      return vector1<T>([](auto d, auto v) HWY_ATTR { return gated(d, v, math::normal_cdf(d, v)); });
    // 0.5 (1 + tanh z) = sigmoid(2 z), without the cancellation at z < 0.
    case Op::kGeluTanh:
      return vector1<T>([](auto d, auto v) HWY_ATTR {
        const auto cube = hn::MulAdd(hn::Mul(hn::Mul(v, v), v), math::constant(d, 0.044715), v);
        return gated(d, v, Functions<T>::sigmoid(d, hn::Mul(math::constant(d, 1.5957691216057307117598), cube)));
      });
    case Op::kSoftplus:
      return vector1<T>([](auto d, auto v, const double* beta) HWY_ATTR {
        const auto b = math::constant(d, *beta), x = hn::Mul(v, b);
        const auto rest = math::log1p(d, math::exp(d, hn::Neg(hn::Abs(x))));
        return hn::Div(hn::Add(hn::IfThenElse(hn::Lt(x, hn::Zero(d)), hn::Zero(d), x), rest), b);
      });
    // tanh(log(1 + e)) = e (e + 2) / (e (e + 2) + 2) with e = exp(v); 1 to working precision from v = 20 on.
    case Op::kMish:
      return vector1<T>([](auto d, auto v) HWY_ATTR {
        const auto e = math::exp(d, hn::IfThenElse(hn::Gt(v, math::constant(d, 20)), math::constant(d, 20), v));
        const auto two = math::constant(d, 2), p = hn::Mul(e, hn::Add(e, two));
        return gated(d, v, hn::Div(p, hn::Add(p, two)));
      });
    case Op::kHardswish:
      return vector1<T>([](auto d, auto v) HWY_ATTR {
        const auto six = math::constant(d, 6), shifted = hn::Add(v, math::constant(d, 3));
        const auto gate = hn::IfThenElse(hn::Lt(shifted, hn::Zero(d)), hn::Zero(d),
                                         hn::IfThenElse(hn::Gt(shifted, six), six, shifted));
        return gated(d, v, hn::Div(gate, six));
      });
    default:
      return nullptr;
  }
}

StepFn activation_kernel(Op op, DType compute) {
  return by_stored_float(compute, [&]<class T>() { return float_activation<T>(op); });
}

}  // namespace
}  // namespace tenor::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenor::cpu {
namespace {
HWY_EXPORT(activation_kernel);
StepFn chosen(elementwise::Op op, DType compute) { return HWY_DYNAMIC_DISPATCH(activation_kernel)(op, compute); }
}  // namespace
}  // namespace tenor::cpu

tenor::cpu::StepFn tenor::elementwise::find_activation(Op op, DType compute) { return cpu::chosen(op, compute); }
#endif
