#include "src/core/visit.h"
#include "src/ops/elementwise/elementwise_kernels.cuh"
#include "src/ops/elementwise/formulas/logic.cuh"

namespace tenor::elementwise {
namespace {

template <class U>
bool select(const CudaCall& c) {
  if (c.op != Op::kWhere && c.op != Op::kMaskedFill) return false;
  cuda::run_select<U>(c.call, Formula<Op::kWhere, U>{});
  return true;
}

}  // namespace

bool select_cuda(const CudaCall& c) {
  return core::visit_size(c.compute, [&]<class U>() { return select<U>(c); });
}

bool reads_on_cuda(DType compute, DType stored) {
  switch (compute) {
    case DType::kFloat32:
      return cuda::is_stored<float>(stored);
    case DType::kFloat64:
      return cuda::is_stored<double>(stored);
    case DType::kUInt64:
      return cuda::is_stored<uint64_t>(stored);
    case DType::kInt64:
      return cuda::is_stored<int64_t>(stored);
    default:
      return compute == stored;
  }
}

}  // namespace tenor::elementwise
