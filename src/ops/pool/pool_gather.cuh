// The launch of an average or a maximum: the kernel for how the tensors lie.
#pragma once

#include "src/core/visit.h"
#include "src/ops/pool/pool_cover.cuh"
#include "src/ops/pool/pool_plan.h"

namespace tenor::cuda {

template <class T>
struct GatherCall {
  const char* op;
  Gather g;
  const Tensor& source;
  const Tensor& target;

  const T* from() const { return source.data<T>(); }
  T* to() const { return target.data<T>(); }
};

/// The dtypes that models run in: rows are read in vectors where their strides allow.
template <class T>
inline constexpr bool kTuned = core::kStorageFloat<T> || std::is_same_v<T, float>;

template <class Op, class T, int V, bool Back>
bool launch_channels(const GatherCall<T>& call) {
  const auto plan = plan_channels(call.g, V);
  if (!plan) return false;
  launch(call.op, pool_channels<Op, T, V, Back>, {dim3((plan->total + 255) / 256), dim3(256)}, call.source.device(),
         call.from(), call.to(), *plan);
  return true;
}
/// Outputs of disjoint windows, or bins, so wide that a block takes one.
template <class Op, class T>
bool launch_wide(const GatherCall<T>& call) {
  const auto plan = plan_wide(call.g, kVector<T>);
  if (!plan) return false;
  launch(call.op, pool_wide<Op, T>, {dim3(plan->outputs, plan->groups), dim3(kWideThreads)}, call.source.device(),
         call.from(), call.to(), plan->plan);
  return true;
}
template <class Op, class T, bool Back>
bool try_channels(const GatherCall<T>& call) {
  constexpr int kWhole = kVector<T>;
  if constexpr (!Back && kTuned<T>) {
    if (channel_vector(call.g, call.source, call.target) == kWhole && launch_wide<Op, T>(call)) return true;
  }
  if (channel_vector(call.g, call.source, call.target) == kWhole) return launch_channels<Op, T, kWhole, Back>(call);
  return launch_channels<Op, T, 1, Back>(call);
}

template <class Op, class T, int V, bool Back, bool Deep = false>
bool launch_rows(const GatherCall<T>& call) {
  const auto rows = plan_rows(call.g, V, sizeof(typename Op::Held), Back, Deep);
  if (!rows) return false;
  const Grid grid{dim3(rows->blocks), dim3(kRowsThreads), rows->shared};
  launch(call.op, pool_rows<Op, T, V, Back, Deep>, grid, call.source.device(), call.from(), call.to(), rows->plan);
  return true;
}
template <class Op, class T, bool Back>
bool try_rows(const GatherCall<T>& call) {
  constexpr int kWhole = kVector<T>;
  const int vector = row_vector(call.g, call.source);
  if constexpr (kTuned<T> && !Back) {
    if (vector == kWhole && is_deep(call.g) && launch_rows<Op, T, kWhole, Back, true>(call)) return true;
  }
  if constexpr (kTuned<T> || sizeof(T) == 1) {
    if (vector == kWhole) return launch_rows<Op, T, kWhole, Back>(call);
  }
  if constexpr (kTuned<T> && sizeof(T) == 2) {
    if (vector >= 2) return launch_rows<Op, T, 2, Back>(call);
  }
  return launch_rows<Op, T, 1, Back>(call);
}

/// The gradient by wide windows, of rows that are whole accesses.
template <class T>
bool try_cover(const GatherCall<T>& call) {
  if constexpr (kTuned<T>) {
    constexpr int kWhole = kVector<T>;
    if (!is_cover(call.g) || (call.g.target.size[4] > 1 && call.g.target.stride[4] != 1)) return false;
    const int vector = row_vector_of(call.g.target, call.target);
    if (vector == kWhole) return launch_cover<T, kWhole>(call.op, call.g, call.source, call.target);
    if (vector >= 2) return launch_cover<T, 2>(call.op, call.g, call.source, call.target);
  }
  return false;
}

template <class Op, class T, bool Back>
void gather(const GatherCall<T>& call) {
  if (try_channels<Op, T, Back>(call)) return;
  if constexpr (Back) {
    if (try_cover(call)) return;
  }
  if (try_rows<Op, T, Back>(call)) return;
  const TargetOrder order = order_of(call.g.target);
  const Grid grid{dim3(blocks_for(order.count, 256, call.source.device())), dim3(256)};
  launch(call.op, pool_any<Op, T, Back>, grid, call.source.device(), call.from(), call.to(), call.g, order);
}

}  // namespace tenor::cuda
