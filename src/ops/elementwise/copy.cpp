// copy_into and the Tensor members that copy.
#include "src/core/numeric.h"
#include "src/core/output.h"
#include "src/core/check.h"
#include "src/core/visit.h"

namespace tenor {

void core::copy_into(const Tensor& src, const Tensor& dst) {
  if (dst.numel() == 0) return;
  visit(src.dtype(), [&]<class From>() {
    visit(dst.dtype(), [&]<class To>() {
      const From* from = src.data<From>();
      To* to = dst.data<To>();
      Dims at(dst.shape().size(), 0);
      const int64_t count = dst.numel();
      for (int64_t i = 0; i < count; ++i) {
        int64_t a = 0, b = 0;
        for (size_t d = 0; d < at.size(); ++d) a += at[d] * src.strides()[d], b += at[d] * dst.strides()[d];
        to[b] = cast<To>(from[a]);
        for (size_t d = at.size(); d-- > 0 && ++at[d] == dst.shape()[d];) at[d] = 0;
      }
    });
  });
}

Tensor Tensor::contiguous() const {
  if (is_contiguous()) return *this;
  Tensor out = empty(shape_, dtype_, device());
  core::copy_into(*this, out);
  return out;
}

Tensor Tensor::clone() const {
  Tensor out = empty(shape_, dtype_, device(), core::result_strides(shape_, *this));
  core::copy_into(*this, out);
  return out;
}

Tensor Tensor::to(DType dtype) const {
  if (dtype == dtype_) return *this;
  Tensor out = empty(shape_, dtype, device(), core::result_strides(shape_, *this));
  core::copy_into(*this, out);
  return out;
}

}  // namespace tenor
