// From recorded steps to what explain() says of them.
#pragma once

#include <string>
#include <vector>

#include "src/core/step.h"
#include "tenor/explain.h"

namespace tenor::fusion {

/// `sources`: the text of each step, where there is one.
Explanation explain_steps(const std::vector<core::Step>& steps, const std::vector<Tensor>& outputs,
                          const std::string& device, const std::vector<std::string>& sources = {});

/// Seconds of a run's steps, by operator name in order: a run may state steps that the trace did not (copies that only
/// real data needs), which are passed over. Keeps the least of what it is given.
void add_times(Explanation& explanation, const std::vector<std::string>& ops, const std::vector<double>& seconds);

/// A tensor of x's shape, strides and dtype without memory.
Tensor traced(const Tensor& x);

}  // namespace tenor::fusion
