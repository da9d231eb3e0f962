// From steps of a graph to a fused kernel.
#pragma once

#include <string>
#include <vector>

#include "src/fusion/graph.h"
#include "src/fusion/program.h"

namespace tenor::fusion {

/// A kernel, or why the steps cannot be one.
struct Lowered {
  Program program = {};
  std::vector<int> arguments = {};  ///< the value of the graph that each argument of the program reads or writes
  std::string reason = {};          ///< empty: the program is there
};

/// `steps` in order; views among them do not count. Values that leave them are stored.
Lowered lower(const Graph& graph, const std::vector<int>& steps);

}  // namespace tenor::fusion
