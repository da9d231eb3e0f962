// Sums and products of floats.
#include "src/ops/reduce/reduce_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/ops/reduce/reduce_cpu_sum.cpp"
#include "hwy/foreach_target.h"
#include "src/ops/reduce/reduce_float-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenor::reduce::HWY_NAMESPACE {
using namespace tenor::cpu::HWY_NAMESPACE;  // load, store, reduce_block
namespace hn = hwy::HWY_NAMESPACE;
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
struct Square : Plain<Add> {
  template <class D, class V>
  static HWY_INLINE V map(D, V x, V, double) {
    return hn::Mul(x, x);
  }
};
struct Magnitude : Plain<Add> {
  template <class D, class V>
  static HWY_INLINE V map(D, V x, V, double) {
    return hn::Abs(x);
  }
};

template <class T>
const Kernels* find(Pass pass) {
  if (pass == Pass::kSum) return &FloatKernels<T, Plain<Add>>::kTable;
  if (pass == Pass::kSumSquares) return &FloatKernels<T, Square>::kTable;
  if constexpr (!core::kStorageFloat<T>) {
    if (pass == Pass::kProd) return &FloatKernels<T, Plain<Multiply>>::kTable;
    if (pass == Pass::kSumAbs) return &FloatKernels<T, Magnitude>::kTable;
  }
  return nullptr;
}

const Kernels* find_sum_kernels(Pass pass, DType dtype) {
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
HWY_EXPORT(find_sum_kernels);
const Kernels* sum_kernels(Pass pass, DType dtype) { return HWY_DYNAMIC_DISPATCH(find_sum_kernels)(pass, dtype); }
}  // namespace tenor::reduce
#endif
