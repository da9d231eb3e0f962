#include <utility>

#include "src/core/visit.h"
#include "src/ops/elementwise/elementwise_ops.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/ops/elementwise/elementwise_compare_cpu.cpp"
#include "hwy/foreach_target.h"
#include "src/ops/elementwise/elementwise_kernels-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenor::cpu::HWY_NAMESPACE {
namespace {

using elementwise::Op;

template <class T>
StepFn ordered_kernel(Op op) {
  switch (op) {
    case Op::kEq:
      return plain2<T, bool>([](T a, T b) { return a == b; });
    case Op::kNe:
      return plain2<T, bool>([](T a, T b) { return a != b; });
    case Op::kLt:
      return plain2<T, bool>([](T a, T b) { return a < b; });
    case Op::kLe:
      return plain2<T, bool>([](T a, T b) { return a <= b; });
    case Op::kGt:
      return plain2<T, bool>([](T a, T b) { return a > b; });
    case Op::kGe:
      return plain2<T, bool>([](T a, T b) { return a >= b; });
    default:
      return nullptr;
  }
}
template <class T>
StepFn float_predicate(Op op) {
  constexpr T kInf = std::numeric_limits<T>::infinity();
  switch (op) {
    case Op::kIsnan:
      return plain1<T, bool>([](T v) { return v != v; });
    case Op::kIsinf:
      return plain1<T, bool>([](T v) { return std::abs(v) == kInf; });
    case Op::kIsfinite:
      return plain1<T, bool>([](T v) { return std::abs(v) < kInf; });
    default:
      return nullptr;
  }
}
StepFn integer_predicate(Op op) {
  if (op == Op::kIsfinite) return plain1<uint8_t, bool>([](uint8_t) { return true; });
  return plain1<uint8_t, bool>([](uint8_t) { return false; });
}

/// |a - b| <= atol + rtol |b|, or equal, or (params[2]) both NaN.
template <class T>
void close_step(const void* const* in, void* out, size_t n, const void* params) {
  const auto *a = static_cast<const T*>(in[0]), *b = static_cast<const T*>(in[1]);
  const auto* p = static_cast<const double*>(params);
  for (size_t i = 0; i < n; ++i) {
    bool close = a[i] == b[i];
    if constexpr (std::is_integral_v<T>) {
      const uint64_t gap = a[i] > b[i] ? static_cast<uint64_t>(a[i]) - static_cast<uint64_t>(b[i])
                                       : static_cast<uint64_t>(b[i]) - static_cast<uint64_t>(a[i]);
      close = close || static_cast<double>(gap) <= p[1] + p[0] * std::abs(static_cast<double>(b[i]));
    } else {
      const T gap = std::abs(a[i] - b[i]);
      close = close || (gap < std::numeric_limits<T>::infinity() && gap <= p[1] + p[0] * std::abs(b[i]));
      close = close || (p[2] != 0 && a[i] != a[i] && b[i] != b[i]);
    }
    static_cast<bool*>(out)[i] = close;
  }
}
StepFn close_kernel(DType compute) {
  switch (compute) {
    case DType::kFloat64:
      return &close_step<double>;
    case DType::kUInt64:
      return &close_step<uint64_t>;
    case DType::kInt64:
      return &close_step<int64_t>;
    default:
      return nullptr;
  }
}

StepFn compare_kernel(Op op, DType compute) {
  if (op == Op::kIsclose) return close_kernel(compute);
  if (op == Op::kIsnan || op == Op::kIsinf || op == Op::kIsfinite) {
    if (!is_float(compute)) return integer_predicate(op);
    return by_float(compute, [&]<class T>() { return float_predicate<T>(op); });
  }
  if (compute == boolean) return ordered_kernel<uint8_t>(op);
  if (is_float(compute)) return by_float(compute, [&]<class T>() { return ordered_kernel<T>(op); });
  return core::visit_integer(compute, [&]<class T>() { return ordered_kernel<T>(op); });
}

}  // namespace
}  // namespace tenor::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenor::cpu {
namespace {
HWY_EXPORT(compare_kernel);
StepFn chosen(elementwise::Op op, DType compute) { return HWY_DYNAMIC_DISPATCH(compare_kernel)(op, compute); }
}  // namespace
}  // namespace tenor::cpu

tenor::cpu::StepFn tenor::elementwise::find_compare(Op op, DType compute) { return cpu::chosen(op, compute); }
#endif
