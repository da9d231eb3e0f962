#include "src/core/check.h"

namespace tenor::core {

Dims normalize_dims(const char* op, const Dims& dims, int ndim, const char* argument) {
  Dims out;
  for (int64_t dim : dims) {
    const int d = normalize_dim(op, dim, ndim, argument);
    for (int64_t seen : out)
      if (seen == d) fail<ValueError>("{}: {} {} is given twice in {}", op, argument, dim, dims);
    out.push_back(d);
  }
  return out;
}

void check_same_device(const char* op, std::initializer_list<Named> tensors) {
  const Named* first = nullptr;
  for (const Named& x : tensors) {
    if (!x.tensor.defined()) continue;
    if (!first) {
      first = &x;
    } else if (x.tensor.device() != first->tensor.device()) {
      fail<DeviceError>("{}: {} is on {}, but {} is on {}", op, x.name, x.tensor.device(), first->name,
                        first->tensor.device());
    }
  }
}

Dims broadcast_shapes(const char* op, const Dims& a, const Dims& b) {
  const size_t rank = std::max(a.size(), b.size());
  Dims out(rank, 1);
  for (size_t i = 1; i <= rank; ++i) {
    const int64_t m = i <= a.size() ? a[a.size() - i] : 1, n = i <= b.size() ? b[b.size() - i] : 1;
    if (m != n && m != 1 && n != 1)
      fail<ShapeError>("{}: shapes {} and {} do not broadcast: aligned at the right, {} meets {} in dim -{}", op, a, b,
                       m, n, i);
    out[rank - i] = m == 1 ? n : m;
  }
  return out;
}

bool same_strides(const Dims& shape, const Dims& a, const Dims& b) {
  for (size_t d = 0; d < shape.size(); ++d)
    if (shape[d] > 1 && a[d] != b[d]) return false;
  return true;
}

}  // namespace tenor::core
