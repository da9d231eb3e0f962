// A view apart from its tensor: what a recipe keeps of one, to see it in another tensor of the same layout.
#pragma once

#include "tenor/tensor.h"

namespace tenor::core {

class ViewOf {
 public:
  /// `view` shows x's storage.
  ViewOf(const Tensor& view, const Tensor& x)
      : shape_(view.shape()), strides_(view.strides()), offset_(view.offset() - x.offset()) {}
  Tensor operator()(const Tensor& x) const { return x.with_layout(shape_, strides_, x.offset() + offset_); }

 private:
  Dims shape_, strides_;
  int64_t offset_;
};

}  // namespace tenor::core
