#include "src/ops/elementwise/elementwise_kernels.cuh"

namespace tenor::elementwise {
namespace {

bool bools(const CudaCall& c) {
  switch (c.op) {
    case Op::kLogicalAnd:
    case Op::kBitwiseAnd: return two<bool>(c, [] __device__(bool a, bool b) { return a && b; });
    case Op::kLogicalOr:
    case Op::kBitwiseOr: return two<bool>(c, [] __device__(bool a, bool b) { return a || b; });
    case Op::kLogicalXor:
    case Op::kBitwiseXor: return two<bool>(c, [] __device__(bool a, bool b) { return a != b; });
    case Op::kLogicalNot:
    case Op::kBitwiseNot: return one<bool>(c, [] __device__(bool v) { return !v; });
    default: return false;
  }
}

/// In 64 bits, as the other integer formulas: what a narrower store drops is what its own shift would have. A negative count
/// is a large one: everything is shifted out, to the right the sign fills in.
template <class T>
bool integers(const CudaCall& c) {
  switch (c.op) {
    case Op::kBitwiseAnd: return two<T>(c, [] __device__(T a, T b) { return a & b; });
    case Op::kBitwiseOr: return two<T>(c, [] __device__(T a, T b) { return a | b; });
    case Op::kBitwiseXor: return two<T>(c, [] __device__(T a, T b) { return a ^ b; });
    case Op::kBitwiseNot: return one<T>(c, [] __device__(T v) { return ~v; });
    case Op::kBitwiseLeftShift: return two<T>(c, [] __device__(T a, T b) {
      return static_cast<uint64_t>(b) < 64 ? static_cast<uint64_t>(a) << static_cast<uint64_t>(b) : uint64_t{0};
    });
    case Op::kBitwiseRightShift: return two<T>(c, [] __device__(T a, T b) {
      const uint64_t count = static_cast<uint64_t>(b);
      return count < 64 ? a >> count : is_negative(a) ? static_cast<T>(-1) : T(0);
    });
    default: return false;
  }
}

}  // namespace

bool logic_cuda(const CudaCall& c) {
  if (c.compute == boolean) return bools(c);
  if (c.compute == uint64) return integers<uint64_t>(c);
  return c.compute == int64 && integers<int64_t>(c);
}

}  // namespace tenor::elementwise
