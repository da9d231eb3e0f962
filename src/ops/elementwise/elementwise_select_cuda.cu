#include "src/core/visit.h"
#include "src/ops/elementwise/elementwise_kernels.cuh"

namespace tenor::elementwise {
namespace {

/// By size: the values are moved, whatever they are. The condition comes as 0 or 1 of the same type.
template <class U>
bool select(const CudaCall& c) {
  if (c.op != Op::kWhere && c.op != Op::kMaskedFill) return false;
  cuda::run_select<U>(c.call, [] __device__(U which, U a, U b) { return which != 0 ? a : b; });
  return true;
}

}  // namespace

bool select_cuda(const CudaCall& c) {
  return core::visit_size(c.compute, [&]<class U>() { return select<U>(c); });
}

bool reads_on_cuda(DType compute, DType stored) {
  switch (compute) {
    case DType::kFloat32: return cuda::is_stored<float>(stored);
    case DType::kFloat64: return cuda::is_stored<double>(stored);
    case DType::kUInt64: return cuda::is_stored<uint64_t>(stored);
    case DType::kInt64: return cuda::is_stored<int64_t>(stored);
    default: return compute == stored;
  }
}

}  // namespace tenor::elementwise
