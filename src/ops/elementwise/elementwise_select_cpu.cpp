#include "src/core/visit.h"
#include "src/ops/elementwise/elementwise_ops.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/ops/elementwise/elementwise_select_cpu.cpp"
#include "hwy/foreach_target.h"
#include "src/ops/elementwise/elementwise_kernels-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenor::cpu::HWY_NAMESPACE {
namespace {

using elementwise::Op;

/// By size: the values are moved, whatever they are.
StepFn select_kernel(Op, DType dtype) {
  return by_size(
      dtype, []<class U>() { return plain3<uint8_t, U, U, U>([](uint8_t which, U a, U b) { return which ? a : b; }); });
}

}  // namespace
}  // namespace tenor::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenor::cpu {
namespace {
HWY_EXPORT(select_kernel);
StepFn chosen(elementwise::Op op, DType compute) { return HWY_DYNAMIC_DISPATCH(select_kernel)(op, compute); }
}  // namespace
}  // namespace tenor::cpu

tenor::cpu::StepFn tenor::elementwise::find_select(Op op, DType compute) { return cpu::chosen(op, compute); }
#endif
