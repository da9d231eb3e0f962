#include "tenor/dims.h"

namespace tenor {

void Dims::grow(size_t capacity) {
  auto wider = std::make_unique<int64_t[]>(capacity);
  std::copy(begin(), end(), wider.get());
  heap_ = std::move(wider);
  capacity_ = capacity;
}

std::string to_string(const Dims& dims) {
  std::string s = "(";
  for (size_t i = 0; i < dims.size(); ++i) s += (i ? ", " : "") + std::to_string(dims[i]);
  return s + (dims.size() == 1 ? ",)" : ")");
}

}  // namespace tenor
