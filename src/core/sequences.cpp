#include "src/core/sequences.h"

namespace tenor::core {

void check_cu_seqlens(const char* op, Named x) {
  check_ndim(op, x, 1);
  if (x.tensor.dtype() != int32 && x.tensor.dtype() != int64)
    fail<DTypeError>("{}: {} must be int32 or int64, got {}", op, x.name, x.tensor.dtype());
  if (x.tensor.shape(0) < 1) fail<ShapeError>("{}: {} must hold at least the leading 0, got nothing", op, x.name);
}

std::vector<int64_t> read_cu_seqlens(const char* op, Named x, int64_t total) {
  std::vector<int64_t> values(static_cast<size_t>(x.tensor.shape(0)));
  for (size_t i = 0; i < values.size(); ++i) {
    const int64_t at = static_cast<int64_t>(i) * x.tensor.stride(0);
    values[i] = x.tensor.dtype() == int32 ? x.tensor.data<int32_t>()[at] : x.tensor.data<int64_t>()[at];
    if (i == 0 ? values[0] != 0 : values[i] < values[i - 1])
      fail<ValueError>("{}: {} must start at 0 and never decrease, got {} at {}", op, x.name, values[i], i);
  }
  if (values.back() > total)
    fail<ValueError>("{}: {} must end at {} at most, got {}", op, x.name, total, values.back());
  return values;
}

}  // namespace tenor::core
