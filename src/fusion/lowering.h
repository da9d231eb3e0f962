// How lower() turns steps into a program: the state that lower.cpp (axes, places and results) and lower_steps.cpp
// (instructions) share.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "src/fusion/lower.h"
#include "src/ops/elementwise/elementwise_recipe.h"
#include "src/ops/index/index_recipe.h"
#include "src/ops/reduce/reduce_recipe.h"

namespace tenor::fusion {

/// Thrown where the steps cannot be one kernel.
struct Refusal {
  std::string reason;
};

/// Where a value is seen, over the axes of the kernel.
struct Seen {
  int64_t offset = 0;
  Dims strides;  // one an axis
};

/// An index of a tensor, affine in the axes: of each dim.
using Index = std::vector<Seen>;

/// One call of lower(): places become instructions, and are remembered, as they are asked for.
class Lowering {
 public:
  Lowering(const Graph& graph, const std::vector<int>& steps) : graph_(graph) {
    for (int s : steps)
      if (node(s).kind != Kind::kView) steps_.push_back(s), inside_.insert(s);
  }

  Lowered run();

 private:
  const Node& node(int step) const { return graph_.nodes[static_cast<size_t>(step)]; }
  const Value& value(int v) const { return graph_.values[static_cast<size_t>(v)]; }
  size_t axes() const { return out_.program.axes.size(); }
  Seen nowhere() const { return {0, Dims(axes(), 0)}; }

  void check_steps() const;
  void find_axes();
  void add_axes(const Place& place, const std::set<int>& reduced, bool of_reduced);
  int axis_of(int axis, int64_t size);
  bool leaves(int v) const;
  bool overwritten(int v) const;
  void store_results(const Node& n);
  void store_pieces(const Node& n, const index::JoinRecipe& join);
  void finish();

  int get(int v, const Seen& seen, DType dtype);
  int load(int v, const Seen& seen, DType dtype);
  int make(int v, const Seen& seen);
  int map(const Node& n, const elementwise::Recipe& recipe, const Index& at);
  int reduce(const Node& n, const reduce::Recipe& recipe, const Index& at);
  int gather(const Node& n, const index::GatherForm& form, const Index& at);
  const Place& in_memory(const Node& n, size_t input) const;
  int convert(int from, DType dtype, int step);
  int add(Instruction made);
  int argument(int v, DType dtype, bool written);
  Index index_of(const Tensor& made, const Seen& seen) const;
  Seen operand(const Tensor& x, const Index& at, size_t rank) const;

  const Graph& graph_;
  std::vector<int> steps_;
  std::set<int> inside_;
  std::map<int, int> known_axes_;              // of the graph's table to the kernel's
  std::map<std::vector<int64_t>, int> known_;  // by value, place and dtype
  std::map<int, int> arguments_;               // by value
  Lowered out_;
};

}  // namespace tenor::fusion
