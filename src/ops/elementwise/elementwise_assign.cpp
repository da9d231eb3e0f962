// Conversion and assignment: to, copy_, fill_.
#include "src/core/backend.h"
#include "src/core/check.h"
#include "src/core/output.h"
#include "src/core/scalar_value.h"
#include "src/core/step.h"
#include "src/ops/elementwise/elementwise_recipe.h"
#include "src/ops/elementwise/elementwise_run.h"
#include "tenor/elementwise.h"

namespace tenor {

namespace elementwise {

void fill_value(const Tensor& x, const void* value) {
  if (core::on_cuda(x)) return core::backend(x.device()).fill(x, value);
  const Tensor one = Tensor::wrap(const_cast<void*>(value), x.device(), x.dtype(), {});
  core::copy_into(one.with_layout(x.shape(), Dims(x.shape().size(), 0), 0), x);
}

Operand times(const char* op, const Operand& other, const Scalar& alpha) {
  if (!alpha.is_float() && alpha.kind() == Scalar::Kind::kInt && alpha.as_int() == 1) return other;
  if (other.is_tensor()) {
    const DType dtype = other.tensor().dtype();  // a float alpha makes floats of integers, an integer one int64 of bool
    if (!alpha.is_float() && dtype != boolean) core::check_fits(op, "alpha", alpha, dtype);
    return mul(other, Operand(alpha));
  }
  if (alpha.is_float() || other.scalar().is_float()) return Scalar(other.scalar().as_double() * alpha.as_double());
  const auto exact = [](const Scalar& s) {  // numbers above int64 are held as their bits
    return s.kind() == Scalar::Kind::kUInt ? static_cast<__int128>(static_cast<uint64_t>(s.as_int()))
                                           : static_cast<__int128>(s.as_int());
  };
  const __int128 a = exact(alpha), b = exact(other.scalar());
  __int128 product = 0;
  if (__builtin_mul_overflow(a, b, &product) || product < INT64_MIN || product > UINT64_MAX)
    core::fail<ValueError>("{}: alpha {} times other {} fits no dtype", op, a, b);
  return product > INT64_MAX ? Scalar(static_cast<uint64_t>(product)) : Scalar(static_cast<int64_t>(product));
}

}  // namespace elementwise

Tensor to(const Tensor& x, DType dtype, const ElementwiseOptions& options) {
  core::check_given("to", {"x", x});
  if (!options.out.defined() && x.dtype() == dtype) return x;
  core::Output out("to", options.out, x.shape(), dtype, x, {&x}, {.elementwise = true, .cuda = core::kHasCuda});
  core::StepScope step([&] {
    return core::Step{"to", core::OpClass::kElementwise, {x}, {out.target()}, x.numel()}
        .with({.as_bits = x.dtype() == dtype})
        .with(std::make_shared<elementwise::Copy>());
  });
  if (step.shape_only(out.target())) return out.target();
  core::copy_into(x, out.target());
  return out.finish();
}

Tensor copy_(const Tensor& x, const Operand& src) {
  core::check_given("copy_", {"x", x});
  if (!src.is_tensor()) return fill_(x, src);
  const Tensor& from = src.tensor();
  core::check_same_device("copy_", {{"x", x}, {"src", from}});
  core::check_writable("copy_", "x", x);
  if (core::broadcast_shapes("copy_", x.shape(), from.shape()) != x.shape())
    core::fail<ShapeError>("copy_: src of shape {} does not broadcast to x of shape {}", from.shape(), x.shape());
  core::StepScope step([&] {
    return core::Step{"copy_", core::OpClass::kElementwise, {from}, {x}, x.numel()}
        .with({.as_bits = from.dtype() == x.dtype()})
        .with(std::make_shared<elementwise::Copy>());
  });
  if (step.shape_only(x)) return x;
  core::copy_into(from.with_layout(x.shape(), core::broadcast_strides(from, x.shape()), from.offset()), x);
  return x;
}

Tensor fill_(const Tensor& x, const Operand& value) {
  core::check_given("fill_", {"x", x});
  core::check_writable("fill_", "x", x);
  if (value.is_tensor()) {
    if (value.tensor().numel() != 1)
      core::fail<ShapeError>("fill_: value must be a scalar or have one element, got shape {}", value.tensor().shape());
    return copy_(x, Operand(value.tensor().with_layout({}, {}, value.tensor().offset())));
  }
  core::check_fits("fill_", "the scalar", value.scalar(), x.dtype());
  alignas(8) char element[8];
  core::store_scalar(value.scalar(), x.dtype(), element);
  core::StepScope step([&] {
    return core::Step{"fill_", core::OpClass::kElementwise, {}, {x}, x.numel()}
        .with({.as_bits = true})
        .with(std::make_shared<elementwise::Fill>(element, x.dtype()));
  });
  if (step.shape_only(x)) return x;
  elementwise::fill_value(x, element);
  return x;
}

}  // namespace tenor
