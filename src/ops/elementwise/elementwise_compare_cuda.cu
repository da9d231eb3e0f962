#include "src/ops/elementwise/elementwise_kernels.cuh"

namespace tenor::elementwise {
namespace {

template <class T>
bool ordered(const CudaCall& c) {
  switch (c.op) {
    case Op::kEq: return two<T, bool>(c, [] __device__(T a, T b) { return a == b; });
    case Op::kNe: return two<T, bool>(c, [] __device__(T a, T b) { return a != b; });
    case Op::kLt: return two<T, bool>(c, [] __device__(T a, T b) { return a < b; });
    case Op::kLe: return two<T, bool>(c, [] __device__(T a, T b) { return a <= b; });
    case Op::kGt: return two<T, bool>(c, [] __device__(T a, T b) { return a > b; });
    case Op::kGe: return two<T, bool>(c, [] __device__(T a, T b) { return a >= b; });
    default: return false;
  }
}

/// -1, 0 or 1 as an unsigned value lies below, on or above a signed one.
__device__ int order_of(uint64_t a, int64_t b) {
  return b < 0 || a > static_cast<uint64_t>(b) ? 1 : a < static_cast<uint64_t>(b) ? -1 : 0;
}
/// uint64 with int64, both held as int64 bits; sign turns the order for the unsigned one second.
bool mixed(const CudaCall& c) {
  const bool first = c.unsigned_first;
  const auto order = [first] __device__(int64_t a, int64_t b) { return first ? order_of(a, b) : -order_of(b, a); };
  switch (c.op) {
    case Op::kEq: return two<int64_t, bool>(c, [order] __device__(int64_t a, int64_t b) { return order(a, b) == 0; });
    case Op::kNe: return two<int64_t, bool>(c, [order] __device__(int64_t a, int64_t b) { return order(a, b) != 0; });
    case Op::kLt: return two<int64_t, bool>(c, [order] __device__(int64_t a, int64_t b) { return order(a, b) < 0; });
    case Op::kLe: return two<int64_t, bool>(c, [order] __device__(int64_t a, int64_t b) { return order(a, b) <= 0; });
    case Op::kGt: return two<int64_t, bool>(c, [order] __device__(int64_t a, int64_t b) { return order(a, b) > 0; });
    case Op::kGe: return two<int64_t, bool>(c, [order] __device__(int64_t a, int64_t b) { return order(a, b) >= 0; });
    default: return false;
  }
}

template <class T>
bool predicates(const CudaCall& c) {
  switch (c.op) {
    case Op::kIsnan: return one<T, bool>(c, [] __device__(T v) { return v != v; });
    case Op::kIsinf: return one<T, bool>(c, [] __device__(T v) { return fabs(v) == static_cast<T>(INFINITY); });
    case Op::kIsfinite: return one<T, bool>(c, [] __device__(T v) { return fabs(v) < static_cast<T>(INFINITY); });
    default: return false;
  }
}
template <class T>
bool exact_predicates(const CudaCall& c) {
  if (c.op == Op::kIsfinite) return one<T, bool>(c, [] __device__(T) { return true; });
  if (c.op == Op::kIsnan || c.op == Op::kIsinf) return one<T, bool>(c, [] __device__(T) { return false; });
  return false;
}

/// |a - b| <= atol + rtol |b|, or equal, or (third parameter) both NaN.
bool close_floats(const CudaCall& c) {
  const double rtol = c.params[0], atol = c.params[1];
  const bool nan = c.params[2] != 0;
  return two<double, bool>(c, [=] __device__(double a, double b) {
    const double gap = fabs(a - b);
    return a == b || (gap < INFINITY && gap <= atol + rtol * fabs(b)) || (nan && a != a && b != b);
  });
}
template <class T>
bool close_integers(const CudaCall& c) {
  const double rtol = c.params[0], atol = c.params[1];
  return two<T, bool>(c, [=] __device__(T a, T b) {
    const uint64_t gap = a > b ? static_cast<uint64_t>(a) - static_cast<uint64_t>(b) : static_cast<uint64_t>(b) - static_cast<uint64_t>(a);
    return a == b || static_cast<double>(gap) <= atol + rtol * fabs(static_cast<double>(b));
  });
}
bool close(const CudaCall& c) {
  if (c.compute == float64) return close_floats(c);
  return c.compute == uint64 ? close_integers<uint64_t>(c) : close_integers<int64_t>(c);
}

template <class T>
bool exact(const CudaCall& c) {
  return ordered<T>(c) || exact_predicates<T>(c);
}

}  // namespace

bool compare_cuda(const CudaCall& c) {
  if (c.op == Op::kIsclose) return close(c);
  if (c.mixed) return mixed(c);
  switch (c.compute) {
    case DType::kFloat32: return ordered<float>(c) || predicates<float>(c);
    case DType::kFloat64: return ordered<double>(c) || predicates<double>(c);
    case DType::kUInt64: return exact<uint64_t>(c);
    case DType::kInt64: return exact<int64_t>(c);
    default: return exact<bool>(c);
  }
}

}  // namespace tenor::elementwise
