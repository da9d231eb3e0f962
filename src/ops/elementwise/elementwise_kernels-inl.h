// Kernels from formulas: a formula over vectors (d, v...) or over plain values becomes a StepFn. Formulas are
// captureless lambdas, so a kernel is a type, and no pointer is followed inside the loop. T is the dtype in memory:
// 16-bit floats are widened and rounded in registers, with the bits of a conversion before and after.
#if defined(TENOR_ELEMENTWISE_KERNELS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TENOR_ELEMENTWISE_KERNELS_INL_H_
#undef TENOR_ELEMENTWISE_KERNELS_INL_H_
#else
#define TENOR_ELEMENTWISE_KERNELS_INL_H_
#endif

#include "src/cpu/lanes-inl.h"
#include "src/cpu/math-inl.h"
#include "src/cpu/tile.h"

HWY_BEFORE_NAMESPACE();
namespace tenor::cpu::HWY_NAMESPACE {

/// out = formula(d, v) or formula(d, v, params), vector by vector, the tail through the same vector code.
template <class T, class F>
void vector_step1(const void* const* in, void* out, size_t n, [[maybe_unused]] const void* params) {
  const ComputeTag<T> d;
  const auto* a = static_cast<const T*>(in[0]);
  auto* o = static_cast<T*>(out);
  const auto apply = [&](auto v) HWY_ATTR {
    if constexpr (std::is_invocable_v<F, decltype(d), decltype(v), const double*>)
      return F{}(d, v, static_cast<const double*>(params));
    else
      return F{}(d, v);
  };
  for_vectors(o, n, [&](size_t i, auto io) HWY_ATTR { return apply(io.load(d, a + i)); });
}
template <class T, class F>
void vector_step2(const void* const* in, void* out, size_t n, const void*) {
  const ComputeTag<T> d;
  const auto *a = static_cast<const T*>(in[0]), *b = static_cast<const T*>(in[1]);
  auto* o = static_cast<T*>(out);
  for_vectors(o, n, [&](size_t i, auto io) HWY_ATTR { return F{}(d, io.load(d, a + i), io.load(d, b + i)); });
}
template <class T, class F>
void vector_step3(const void* const* in, void* out, size_t n, const void*) {
  const ComputeTag<T> d;
  const auto *a = static_cast<const T*>(in[0]), *b = static_cast<const T*>(in[1]), *c = static_cast<const T*>(in[2]);
  auto* o = static_cast<T*>(out);
  for_vectors(o, n, [&](size_t i, auto io) HWY_ATTR {
    return F{}(d, io.load(d, a + i), io.load(d, b + i), io.load(d, c + i));
  });
}

template <class T, class F>
StepFn vector1(F) {
  return &vector_step1<T, F>;
}
template <class T, class F>
StepFn vector2(F) {
  return &vector_step2<T, F>;
}
template <class T, class F>
StepFn vector3(F) {
  return &vector_step3<T, F>;
}

// Plain loops for exact formulas (integers, comparisons), which the compiler vectorises for each instruction set. `out`
// may be an input exactly, which ivdep allows and restrict would not.
template <class A, class R, class F>
void plain_step1(const void* const* in, void* out, size_t n, const void*) {
  const auto* a = static_cast<const A*>(in[0]);
  auto* o = static_cast<R*>(out);
#pragma GCC ivdep
  for (size_t i = 0; i < n; ++i) o[i] = static_cast<R>(F{}(a[i]));
}
template <class A, class B, class R, class F>
void plain_step2(const void* const* in, void* out, size_t n, const void*) {
  const auto* a = static_cast<const A*>(in[0]);
  const auto* b = static_cast<const B*>(in[1]);
  auto* o = static_cast<R*>(out);
#pragma GCC ivdep
  for (size_t i = 0; i < n; ++i) o[i] = static_cast<R>(F{}(a[i], b[i]));
}
template <class A, class B, class C, class R, class F>
void plain_step3(const void* const* in, void* out, size_t n, const void*) {
  const auto* a = static_cast<const A*>(in[0]);
  const auto* b = static_cast<const B*>(in[1]);
  const auto* c = static_cast<const C*>(in[2]);
  auto* o = static_cast<R*>(out);
#pragma GCC ivdep
  for (size_t i = 0; i < n; ++i) o[i] = static_cast<R>(F{}(a[i], b[i], c[i]));
}
template <class A, class R = A, class F>
StepFn plain1(F) {
  return &plain_step1<A, R, F>;
}
template <class A, class R = A, class B = A, class F>
StepFn plain2(F) {
  return &plain_step2<A, B, R, F>;
}
template <class A, class B, class C, class R, class F>
StepFn plain3(F) {
  return &plain_step3<A, B, C, R, F>;
}

/// fn<float>() or fn<double>(); null for what is no compute float.
template <class F>
StepFn by_float(DType compute, F fn) {
  if (compute == DType::kFloat32) return fn.template operator()<float>();
  if (compute == DType::kFloat64) return fn.template operator()<double>();
  return nullptr;
}
/// The same for formulas over vectors, and fn<Float16>(), fn<BFloat16>(): kernels on 16-bit floats as they lie in
/// memory.
template <class F>
StepFn by_stored_float(DType dtype, F fn) {
  if (dtype == DType::kFloat16) return fn.template operator()<Float16>();
  if (dtype == DType::kBFloat16) return fn.template operator()<BFloat16>();
  return by_float(dtype, fn);
}
/// By size alone, as unsigned integers, for formulas that do not know signs.
template <class F>
StepFn by_size(DType dtype, F fn) {
  switch (item_size(dtype)) {
    case 1:
      return fn.template operator()<uint8_t>();
    case 2:
      return fn.template operator()<uint16_t>();
    case 4:
      return fn.template operator()<uint32_t>();
    default:
      return fn.template operator()<uint64_t>();
  }
}

}  // namespace tenor::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // TENOR_ELEMENTWISE_KERNELS_INL_H_
