#include "src/ops/elementwise/elementwise_kernels.cuh"
#include "src/ops/elementwise/formulas/logic.cuh"

namespace tenor::elementwise {
namespace {

bool bools(const CudaCall& c) {
  switch (c.op) {
    case Op::kLogicalAnd:
    case Op::kBitwiseAnd:
      return two<Op::kBitwiseAnd, bool>(c);
    case Op::kLogicalOr:
    case Op::kBitwiseOr:
      return two<Op::kBitwiseOr, bool>(c);
    case Op::kLogicalXor:
    case Op::kBitwiseXor:
      return two<Op::kBitwiseXor, bool>(c);
    case Op::kLogicalNot:
    case Op::kBitwiseNot:
      return one<Op::kBitwiseNot, bool>(c);
    default:
      return false;
  }
}
template <class T>
bool integers(const CudaCall& c) {
  switch (c.op) {
    case Op::kBitwiseAnd:
      return two<Op::kBitwiseAnd, T>(c);
    case Op::kBitwiseOr:
      return two<Op::kBitwiseOr, T>(c);
    case Op::kBitwiseXor:
      return two<Op::kBitwiseXor, T>(c);
    case Op::kBitwiseNot:
      return one<Op::kBitwiseNot, T>(c);
    case Op::kBitwiseLeftShift:
      return two<Op::kBitwiseLeftShift, T>(c);
    case Op::kBitwiseRightShift:
      return two<Op::kBitwiseRightShift, T>(c);
    default:
      return false;
  }
}

}  // namespace

bool logic_cuda(const CudaCall& c) {
  if (c.compute == boolean) return bools(c);
  if (c.compute == uint64) return integers<uint64_t>(c);
  return c.compute == int64 && integers<int64_t>(c);
}

}  // namespace tenor::elementwise
