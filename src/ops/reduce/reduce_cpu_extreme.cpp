// Extremes of floats: max, min, the largest and the smallest |x|; NaN propagates.
#include "src/ops/reduce/reduce_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/ops/reduce/reduce_cpu_extreme.cpp"
#include "hwy/foreach_target.h"
#include "src/ops/reduce/reduce_float-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenor::reduce::HWY_NAMESPACE {
namespace {

template <class Combining>
struct Plain {
  using Combine = Combining;
  static constexpr bool kShifted = false, kShortRows = true;
  template <class D, class V>
  static HWY_INLINE V map(D, V x, V, double) {
    return x;
  }
};
template <class Combining>
struct Magnitude : Plain<Combining> {
  template <class D, class V>
  static HWY_INLINE V map(D, V x, V, double) {
    return hn::Abs(x);
  }
};

template <class T>
const Kernels* find(Pass pass) {
  if (pass == Pass::kMax) return &FloatKernels<T, Plain<Larger>>::kTable;
  if (pass == Pass::kMin) return &FloatKernels<T, Plain<Smaller>>::kTable;
  if constexpr (!core::kStorageFloat<T>) {
    if (pass == Pass::kMaxAbs) return &FloatKernels<T, Magnitude<Larger>>::kTable;
    if (pass == Pass::kMinAbs) return &FloatKernels<T, Magnitude<Smaller>>::kTable;
  }
  return nullptr;
}

const Kernels* find_extreme_kernels(Pass pass, DType dtype) {
  switch (dtype) {
    case DType::kFloat16:
      return find<Float16>(pass);
    case DType::kBFloat16:
      return find<BFloat16>(pass);
    case DType::kFloat32:
      return find<float>(pass);
    default:
      return find<double>(pass);
  }
}

}  // namespace
}  // namespace tenor::reduce::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenor::reduce {
HWY_EXPORT(find_extreme_kernels);
const Kernels* extreme_kernels(Pass pass, DType dtype) {
  return HWY_DYNAMIC_DISPATCH(find_extreme_kernels)(pass, dtype);
}
}  // namespace tenor::reduce
#endif
