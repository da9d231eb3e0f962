#include "src/ops/elementwise/elementwise_recipe.h"

#include <cstring>

#include "src/core/backend.h"
#include "src/core/layout.h"
#include "src/core/output.h"
#include "src/ops/elementwise/elementwise_run.h"

namespace tenor::elementwise {

void Copy::run(const std::vector<Tensor>& inputs, const std::vector<Tensor>& outputs) const {
  const Tensor &from = inputs[0], &to = outputs[0];
  core::copy_into(from.with_layout(to.shape(), core::broadcast_strides(from, to.shape()), from.offset()), to);
}

void Reorder::run(const std::vector<Tensor>& inputs, const std::vector<Tensor>& outputs) const {
  const Tensor &from = inputs[0], &to = outputs[0];
  core::copy_into(from, to.with_layout(from.shape(), contiguous_strides(from.shape()), to.offset()));
}

Fill::Fill(const void* value, DType dtype) { std::memcpy(element.data(), value, item_size(dtype)); }

void Fill::run(const std::vector<Tensor>&, const std::vector<Tensor>& outputs) const {
  fill_value(outputs[0], element.data());
}

}  // namespace tenor::elementwise
