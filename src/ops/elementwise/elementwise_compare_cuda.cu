#include "src/ops/elementwise/elementwise_kernels.cuh"
#include "src/ops/elementwise/formulas/compare.cuh"

namespace tenor::elementwise {
namespace {

template <class T>
bool ordered(const CudaCall& c) {
  switch (c.op) {
    case Op::kEq:
      return two<Op::kEq, T, bool>(c);
    case Op::kNe:
      return two<Op::kNe, T, bool>(c);
    case Op::kLt:
      return two<Op::kLt, T, bool>(c);
    case Op::kLe:
      return two<Op::kLe, T, bool>(c);
    case Op::kGt:
      return two<Op::kGt, T, bool>(c);
    case Op::kGe:
      return two<Op::kGe, T, bool>(c);
    default:
      return false;
  }
}
template <class T>
bool predicates(const CudaCall& c) {
  switch (c.op) {
    case Op::kIsnan:
      return one<Op::kIsnan, T, bool>(c);
    case Op::kIsinf:
      return one<Op::kIsinf, T, bool>(c);
    case Op::kIsfinite:
      return one<Op::kIsfinite, T, bool>(c);
    default:
      return false;
  }
}
template <class T>
bool close(const CudaCall& c) {
  return two<Op::kIsclose, T, bool>(c, {c.params[0], c.params[1], c.params[2] != 0});
}
bool close(const CudaCall& c) {
  if (c.compute == float64) return close<double>(c);
  return c.compute == uint64 ? close<uint64_t>(c) : close<int64_t>(c);
}

template <class T>
bool all(const CudaCall& c) {
  return ordered<T>(c) || predicates<T>(c);
}

}  // namespace

bool compare_cuda(const CudaCall& c) {
  if (c.op == Op::kIsclose) return close(c);
  switch (c.compute) {
    case DType::kFloat32:
      return all<float>(c);
    case DType::kFloat64:
      return all<double>(c);
    case DType::kUInt64:
      return all<uint64_t>(c);
    case DType::kInt64:
      return all<int64_t>(c);
    default:
      return all<bool>(c);
  }
}

}  // namespace tenor::elementwise
