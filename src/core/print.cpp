#include "tenor/print.h"

#include <ostream>

#include "src/core/numeric.h"
#include "src/core/text.h"
#include "src/core/visit.h"

namespace tenor {
namespace {

std::string element_text(const Tensor& x, int64_t at) {
  return core::visit(x.dtype(), [&]<class T>() -> std::string {
    const T value = x.data<T>()[at];
    if (x.dtype() == boolean) return core::cast<int64_t>(value) != 0 ? "true" : "false";
    if (is_float(x.dtype()) || is_float8(x.dtype()))
      return core::text("{:.6g}", static_cast<double>(core::widen(value)));
    if (is_signed(x.dtype())) return core::text("{}", core::cast<int64_t>(value));
    return core::text("{}", core::cast<uint64_t>(value));
  });
}

/// The values of dim `dim` and those behind it, whose first lies at that element.
void append_values(std::string& out, const Tensor& x, int dim, int64_t at, int64_t edge) {
  if (dim == x.ndim()) {
    out += element_text(x, at);
    return;
  }
  const int64_t size = x.shape(dim);
  const bool shortened = size / 2 > edge || (size / 2 == edge && size % 2 != 0);
  out += '[';
  for (int64_t i = 0; i < size; ++i) {
    if (i > 0) out += ", ";
    if (shortened && i == edge) {
      out += i > 0 ? "..., " : "...";
      i = size - edge;
      if (i == size) break;
    }
    append_values(out, x, dim + 1, at + i * x.stride(dim), edge);
  }
  out += ']';
}

std::string values_text(const Tensor& x, int64_t edge) {
  if (x.device().type == DeviceType::kMeta) return "...";
  std::string out;
  append_values(out, x.to(kCpu), 0, 0, edge < 0 ? 0 : edge);
  return out;
}

}  // namespace

std::string to_string(const Tensor& x, int64_t edge) {
  if (!x.defined()) return "tensor(undefined)";
  return core::text("tensor({}, {}, {}, {})", values_text(x, edge), x.dtype(), x.shape(), x.device());
}

std::ostream& operator<<(std::ostream& out, const Tensor& x) { return out << to_string(x); }

}  // namespace tenor
