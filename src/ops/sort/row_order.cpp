#include "src/ops/sort/row_order.h"

#include <algorithm>
#include <vector>

namespace tenor::cpu {

RowCursor::RowCursor(const RowSpace& space, int64_t first) : space_(space), at_(space.sizes.size(), 0) {
  for (size_t d = at_.size(); d-- > 0; first /= space.sizes[d]) {
    at_[d] = first % space.sizes[d];
    for (int t = 0; t < RowSpace::kTensors; ++t) offsets_[t] += at_[d] * space.strides[t][d];
  }
}

void RowCursor::next() {
  for (size_t d = at_.size(); d-- > 0;) {
    for (int t = 0; t < RowSpace::kTensors; ++t) offsets_[t] += space_.strides[t][d];
    if (++at_[d] < space_.sizes[d]) return;
    for (int t = 0; t < RowSpace::kTensors; ++t) offsets_[t] -= at_[d] * space_.strides[t][d];
    at_[d] = 0;
  }
}

namespace {

/// Rows are walked as they lie in x, neighbours last: which row comes when does not show in the results.
void order_by_memory(RowSpace& rows) {
  const Dims sizes = rows.sizes, strides[] = {rows.strides[0], rows.strides[1], rows.strides[2]};
  std::vector<size_t> dims;
  for (size_t d = 0; d < sizes.size(); ++d)
    if (sizes[d] != 1) dims.push_back(d);
  std::stable_sort(dims.begin(), dims.end(), [&](size_t a, size_t b) { return strides[0][a] > strides[0][b]; });
  rows.sizes.clear();
  for (Dims& s : rows.strides) s.clear();
  for (size_t d : dims) {
    rows.sizes.push_back(sizes[d]);
    for (int t = 0; t < RowSpace::kTensors; ++t) rows.strides[t].push_back(strides[t][d]);
  }
}

}  // namespace

RowOrder::RowOrder(const Tensor& x_in, int dim, KeyCode key, const Tensor& values_out, const Tensor& indices_out)
    : code(key), width(item_size(x_in.dtype())), x(x_in.raw()) {
  const Tensor* tensors[] = {&x_in, &values_out, &indices_out};
  for (int t = 0; t < RowSpace::kTensors; ++t) {
    if (!tensors[t]->defined()) {
      rows.strides[t] = Dims(rows.sizes.size(), 0);
      continue;
    }
    Dims sizes = tensors[t]->shape(), others = tensors[t]->strides();
    // Results without the dim (keepdim = false) stand at 0 along it.
    if (x_in.ndim() > 0 && tensors[t]->ndim() == x_in.ndim()) {
      strides[t] = others[dim];
      if (t == 0) n = sizes[dim];
      others.erase(dim);
      sizes.erase(dim);
    }
    rows.strides[t] = others;
    if (t == 0) rows.sizes = sizes;
  }
  rows.count = product(rows.sizes);
  order_by_memory(rows);
  if (values_out.defined()) values = values_out.raw();
  if (indices_out.defined()) indices = indices_out.data<int64_t>();
}

}  // namespace tenor::cpu
