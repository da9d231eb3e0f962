// Results over parts of the keys become one.
#pragma once

#include "src/ops/attention/attention_device.cuh"

namespace tenor::attn {

/// Parts that a row's keys are cut into at most.
inline constexpr int64_t kMostParts = 64;

/// `partial` [parts, B, Hq, Sq, Dv] and its lse [parts, B, Hq, Sq], float32: the attention over each part, 0 and -inf
/// where it holds no visible key. Writes out and lse, with the sinks in the denominator; parts are added in order.
void join_parts(const Problem& problem, const DeviceProblem& p, const Tensor& partial, const Tensor& partial_lse);

}  // namespace tenor::attn
