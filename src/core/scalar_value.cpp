#include "src/core/scalar_value.h"

#include "src/core/backend.h"
#include "src/core/numeric.h"
#include "src/core/text.h"
#include "src/core/visit.h"

namespace tenor::core {
namespace {

/// The value converted to T by the rules of numeric.h.
template <class T>
T convert(const Scalar& value) {
  if (value.is_float()) return cast<T>(value.as_double());
  if (value.kind() == Scalar::Kind::kUInt) return cast<T>(static_cast<uint64_t>(value.as_int()));
  return cast<T>(value.as_int());
}

}  // namespace

void check_fits(const char* op, const char* argument, const Scalar& value, DType dtype) {
  if (!is_integer(dtype) || value.is_float()) return;
  const bool fits = visit_integer(dtype, [&]<class T>() {
    if (value.kind() == Scalar::Kind::kUInt) return dtype == uint64;
    return std::in_range<T>(value.as_int());
  });
  if (fits) return;
  if (value.kind() == Scalar::Kind::kUInt)
    fail<ValueError>("{}: {} {} does not fit {}", op, argument, static_cast<uint64_t>(value.as_int()), dtype);
  fail<ValueError>("{}: {} {} does not fit {}", op, argument, value.as_int(), dtype);
}

Tensor scalar_tensor(const char* op, const char* argument, const Scalar& value, DType dtype, Device device) {
  check_fits(op, argument, value, dtype);
  Tensor out = Tensor::empty({}, dtype, device);
  if (device.type == DeviceType::kMeta) return out;
  visit(dtype, [&]<class T>() {
    const T element = convert<T>(value);
    if (device.type == DeviceType::kCpu) {
      *out.data<T>() = element;
    } else {
      backend(device).fill(out, &element);
    }
  });
  return out;
}

}  // namespace tenor::core
