// Conversions of dense elements. The loops over exact formulas are plain: the compiler vectorises them for each
// instruction set, and their results cannot depend on it. float32 with float16 and bfloat16 goes through simd-inl.h.
#include "src/core/visit.h"
#include "src/cpu/move.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/cpu/convert_cpu.cpp"
#include "hwy/foreach_target.h"
#include "src/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenor::cpu::HWY_NAMESPACE {
namespace {

template <class T>
inline constexpr bool kHalf = std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>;

/// core::cast for float to integer, without branches around the conversion.
template <class To, class From>
HWY_INLINE To saturate(From x) {
  constexpr From kLowest = static_cast<From>(std::numeric_limits<To>::min());
  constexpr From kPast = static_cast<From>(std::numeric_limits<To>::max() / 2 + 1) * 2;
  constexpr From kHighest = kPast - kPast * (std::numeric_limits<From>::epsilon() / 2);  // the largest below it
  From bounded = x > kLowest ? x : kLowest;
  bounded = bounded < kHighest ? bounded : kHighest;
  const To inside = static_cast<To>(bounded);
  const To value = x >= kPast ? std::numeric_limits<To>::max() : inside;
  return x == x ? value : To(0);
}

template <class From, class To>
void convert(const void* src, void* dst, size_t n) {
  const auto* HWY_RESTRICT from = static_cast<const From*>(src);
  auto* HWY_RESTRICT to = static_cast<To*>(dst);
  if constexpr ((kHalf<From> && std::is_same_v<To, float>) || (kHalf<To> && std::is_same_v<From, float>)) {
    map_row(from, to, n, [](auto, auto v) HWY_ATTR { return v; });
  } else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To> && !std::is_same_v<To, bool>) {
    for (size_t i = 0; i < n; ++i) to[i] = saturate<To>(from[i]);
  } else {
    for (size_t i = 0; i < n; ++i) to[i] = core::cast<To>(from[i]);
  }
}

/// Integers to any float16, bfloat16 or 8-bit float wider than float32 holds: through double, one rounding.
template <class From>
ConvertFn from_number(DType to) {
  switch (to) {
    case DType::kBool:
      return &convert<From, bool>;
    case DType::kInt8:
    case DType::kUInt8:
      if constexpr (std::is_integral_v<From>)
        return &convert<From, uint8_t>;
      else
        return to == int8 ? &convert<From, int8_t> : &convert<From, uint8_t>;
    case DType::kInt16:
    case DType::kUInt16:
      if constexpr (std::is_integral_v<From>)
        return &convert<From, uint16_t>;
      else
        return to == int16 ? &convert<From, int16_t> : &convert<From, uint16_t>;
    case DType::kInt32:
    case DType::kUInt32:
      if constexpr (std::is_integral_v<From>)
        return &convert<From, uint32_t>;
      else
        return to == int32 ? &convert<From, int32_t> : &convert<From, uint32_t>;
    case DType::kInt64:
    case DType::kUInt64:
      if constexpr (std::is_integral_v<From>)
        return &convert<From, uint64_t>;
      else
        return to == int64 ? &convert<From, int64_t> : &convert<From, uint64_t>;
    case DType::kFloat32:
      return &convert<From, float>;
    case DType::kFloat64:
      return &convert<From, double>;
    default:
      break;
  }
  if constexpr (std::is_same_v<From, float> || sizeof(From) >= 4) {
    switch (to) {
      case DType::kFloat16:
        return &convert<From, Float16>;
      case DType::kBFloat16:
        return &convert<From, BFloat16>;
      case DType::kFloat8E4M3:
        return &convert<From, Float8E4M3>;
      case DType::kFloat8E5M2:
        return &convert<From, Float8E5M2>;
      default:
        break;
    }
  }
  return nullptr;
}

/// The kernel of one conversion; null where it goes through float32.
ConvertFn converter(DType from, DType to) {
  switch (from) {
    case DType::kBool:
      return from_number<uint8_t>(to);
    case DType::kFloat16:
      return to == float32 ? &convert<Float16, float> : nullptr;
    case DType::kBFloat16:
      return to == float32 ? &convert<BFloat16, float> : nullptr;
    case DType::kFloat8E4M3:
      return to == float32 ? &convert<Float8E4M3, float> : nullptr;
    case DType::kFloat8E5M2:
      return to == float32 ? &convert<Float8E5M2, float> : nullptr;
    case DType::kFloat32:
      return from_number<float>(to);
    case DType::kFloat64:
      return from_number<double>(to);
    default:
      return core::visit_integer(from, [&]<class T>() { return from_number<T>(to); });
  }
}

}  // namespace
}  // namespace tenor::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenor::cpu {
HWY_EXPORT(converter);
namespace {

template <class U>
void copy_dense(const void* src, void* dst, size_t n) {
  std::memcpy(dst, src, n * sizeof(U));
}

}  // namespace

Converter::Converter(DType from, DType to) : from_item_(item_size(from)), to_item_(item_size(to)) {
  if (from == to) {
    first_ = core::visit_size(from, []<class U>() -> ConvertFn { return &copy_dense<U>; });
    return;
  }
  const auto find = HWY_DYNAMIC_DISPATCH(converter);
  first_ = find(from, to);
  if (!first_) {
    first_ = find(from, float32);
    second_ = find(float32, to);
  }
}

void Converter::operator()(const void* src, void* dst, size_t n) const {
  if (!second_) return first_(src, dst, n);
  alignas(64) float middle[1024];
  for (size_t i = 0; i < n; i += 1024) {
    const size_t part = n - i < 1024 ? n - i : 1024;
    first_(static_cast<const char*>(src) + i * from_item_, middle, part);
    second_(middle, static_cast<char*>(dst) + i * to_item_, part);
  }
}

}  // namespace tenor::cpu
#endif
