// From recorded steps to what explain() says of them.
#pragma once

#include <string>
#include <vector>

#include "src/core/step.h"
#include "tenor/explain.h"

namespace tenor::fusion {

/// Of steps traced for that device (traits_of_target). `sources`: the text of each step, where there is one; `fast`: as
/// make_plan has it.
Explanation explain_steps(const std::vector<core::Step>& steps, const std::vector<Tensor>& outputs,
                          const std::string& device, const std::vector<std::string>& sources = {}, bool fast = false);

/// A tensor of x's shape, strides and dtype without memory.
Tensor traced(const Tensor& x);

}  // namespace tenor::fusion
