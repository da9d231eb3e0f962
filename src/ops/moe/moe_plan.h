// What a RoutingPlan holds, and the problems that the family's kernels are given.
#pragma once

#include "src/core/step.h"
#include "tenor/moe.h"

namespace tenor::moe {

struct RoutingPlan::State {
  int64_t experts;
  Tensor ids;      ///< int32 [T,k]; -1: not dispatched
  Tensor weights;  ///< [T,k]
  Tensor offsets;  ///< int64 [E + 1]: where each expert's rows start among the dispatched tokens
  /// int32 [T,k]: a slot's row among the dispatched tokens. Slots that are not dispatched have the rows behind those,
  /// in order, written as -1 - row.
  Tensor rows;
  /// On CUDA, of one token by a router, whose experts all differ: int32 zeros that a launch counts arrivals in.
  Tensor arrivals = {};
};
inline constexpr int64_t kArrivals = 256;

/// On CUDA: experts whose counts fit shared memory beside the rest.
inline constexpr int64_t kMostCudaExperts = 16384;

/// A router's problem, checked; `plan` has memory for everything.
struct Routing {
  const char* op;
  Tensor logits;         ///< [T,E]
  bool sigmoid = false;  ///< else softmax
  bool renormalize = true;
  Tensor bias = {};  ///< sigmoid: float32 [E] or undefined
  int64_t groups = 1, selected_groups = 1;
  bool group_top_two = false;
  double scale = 1;
  RoutingPlan::State plan;
};

/// Rows through their experts, checked; dense rows, matrices with a unit stride along what is summed.
struct ExpertRows {
  const char* op;
  Device device;          ///< where it runs; of traced shapes the one that they stand for
  Tensor x;               ///< [R,H]
  Tensor offsets;         ///< int64 [E + 1]
  Tensor gate, up, down;  ///< [E,I,H], [E,I,H], [E,H,I]
  Tensor y;               ///< [R,H]: rows of no expert are left alone
};

/// y[i] = x[i] weight[g]^T, checked; rows of no group become 0.
struct GroupedRows {
  const char* op;
  Tensor x, weight, offsets, y;  ///< [M,K], [G,N,K], int32 or int64 [G + 1], [M,N]
};

/// The kernels of the CPU.
void route_cpu(const Routing& routing);
/// Fills offsets and rows of a plan that has its ids.
void arrange_cpu(const RoutingPlan::State& plan);
void dispatch_cpu(const RoutingPlan::State& plan, const Tensor& x, const Tensor& tokens);
void combine_cpu(const RoutingPlan::State& plan, const Tensor& y, const Tensor& shared, const Tensor& out);
/// `scalar`: by one chain an element, else by the fastest kernels.
void experts_cpu(const ExpertRows& p, bool scalar);
void grouped_matmul_cpu(const GroupedRows& p);

/// Sets the rows from the last offset on to 0.
void clear_tail_cpu(const Tensor& offsets, const Tensor& y);

}  // namespace tenor::moe
