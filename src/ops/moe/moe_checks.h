// What the family's contracts share.
#pragma once

#include "src/core/check.h"
#include "src/core/output.h"
#include "src/ops/moe/moe_plan.h"

namespace tenor::moe {

/// Traced operands have no device of their own. @throws DeviceError
void check_plan_device(const char* op, const RoutingPlan& plan, core::Named x);
/// shared=: y's dtype or float32, of that shape. @throws DTypeError, ShapeError, DeviceError
void check_shared(const char* op, const Tensor& shared, core::Named y, const Dims& shape);

/// x [N,H] with a unit stride along its rows.
Tensor dense_rows(const Tensor& x);
/// States the copy that dense_rows() makes, if it makes one.
void state_dense_rows(core::Step& step, const char* name, const Tensor& x);

/// States the copy of matrices [..,N,K] whose K does not have a unit stride.
void state_unit_strides(core::Step& step, const char* name, const Tensor& matrices);

/// dispatch and combine on x's device, everything checked; results are contiguous.
void dispatch_into(const RoutingPlan::State& plan, const Tensor& x, const Tensor& tokens);
void combine_into(const RoutingPlan::State& plan, const Tensor& y, const Tensor& shared, const Tensor& out);

/// Sets the rows from the last offset on to 0. y is contiguous.
void clear_tail(const char* op, const Tensor& offsets, const Tensor& y);

/// Kernels write contiguous results: fn(memory) is given the target's own, or some that is copied there afterwards.
template <class F>
void write_dense(const Tensor& target, F&& fn) {
  if (target.is_contiguous()) return fn(target);
  const Tensor dense = Tensor::empty(target.shape(), target.dtype(), target.device());
  fn(dense);
  core::copy_into(dense, target);
}

}  // namespace tenor::moe
