#include "src/core/scalar_value.h"

#include <cmath>

#include "src/core/backend.h"
#include "src/core/constant_keeper.h"
#include "src/core/text.h"
#include "src/core/visit.h"

namespace tenor::core {
namespace {

/// Whether a float is an integer of the dtype. Powers of two bound the ranges, so the comparisons are exact.
bool fits_as_integer(double value, DType dtype) {
  if (!(std::floor(value) == value)) return false;  // NaN too
  if (dtype == boolean) return std::isfinite(value);
  return visit_integer(dtype, [&]<class T>() {
    const double limit = std::ldexp(1.0, std::numeric_limits<T>::digits);
    return value < limit && value >= (std::is_signed_v<T> ? -limit : 0.0);
  });
}

}  // namespace

bool fits(const Scalar& value, DType dtype) {
  if (is_float(dtype) || value.is_bool()) return true;
  if (value.is_float()) return fits_as_integer(value.as_double(), dtype);
  if (dtype == boolean) return true;
  if (value.kind() == Scalar::Kind::kUInt) return dtype == uint64;
  return visit_integer(dtype, [&]<class T>() { return std::in_range<T>(value.as_int()); });
}

void check_fits(const char* op, const char* argument, const Scalar& value, DType dtype) {
  if (fits(value, dtype)) return;
  if (value.is_float()) fail<ValueError>("{}: {} {} does not fit {}", op, argument, value.as_double(), dtype);
  if (value.kind() == Scalar::Kind::kUInt)
    fail<ValueError>("{}: {} {} does not fit {}", op, argument, static_cast<uint64_t>(value.as_int()), dtype);
  fail<ValueError>("{}: {} {} does not fit {}", op, argument, value.as_int(), dtype);
}

void store_scalar(const Scalar& value, DType dtype, void* element) {
  visit(dtype, [&]<class T>() { *static_cast<T*>(element) = scalar_as<T>(value); });
}

Tensor scalar_tensor(const char* op, const char* argument, const Scalar& value, DType dtype, Device device) {
  check_fits(op, argument, value, dtype);
  Tensor out = Tensor::empty({}, dtype, device);
  if (out.device().type == DeviceType::kCpu) {
    store_scalar(value, dtype, out.raw());
    return out;
  }
  alignas(8) char element[8];
  store_scalar(value, dtype, element);
  if (out.device().type == DeviceType::kMeta) {
    if (auto* keeper = dynamic_cast<ConstantKeeper*>(current_tracer)) keeper->keep(out, element);
    return out;
  }
  backend(device).fill(out, element);
  return out;
}

}  // namespace tenor::core
