// The family's CUDA kernels, behind plain functions. Nothing here waits for the host.
#pragma once

#include "src/ops/moe/moe_plan.h"

namespace tenor::cuda {

/// Ids, weights, offsets and rows of the routing's plan.
void route_tokens(const moe::Routing& routing);
/// ids as int32, those outside of -1..experts-1 as -1 and flagged.
void read_expert_ids(const char* op, const Tensor& ids, int64_t experts, const Tensor& to);
/// Fills offsets and rows of a plan that has its ids.
void arrange(const char* op, const moe::RoutingPlan::State& plan);
void dispatch_rows(const moe::RoutingPlan::State& plan, const Tensor& x, const Tensor& tokens);
void combine_rows(const moe::RoutingPlan::State& plan, const Tensor& y, const Tensor& shared, const Tensor& out);
void clear_tail(const char* op, const Tensor& offsets, const Tensor& y);

void experts_tensorcore(const moe::ExpertRows& p);
void experts_scalar(const moe::ExpertRows& p);
/// One token through its experts to its sum, in two launches: p.x [1,H] is the token, p.y [top_k,H] memory, out [1,H]
/// contiguous. False where the problem is no such: nothing has been done then.
bool experts_one_token(const moe::ExpertRows& p, const moe::RoutingPlan::State& plan, const Tensor& shared,
                       const Tensor& out);
void grouped_matmul(const moe::GroupedRows& p);

}  // namespace tenor::cuda
