// Steps gathered into kernels, pair by pair.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "src/fusion/planner.h"

namespace tenor::fusion {

/// Steps that one kernel runs, views aside.
struct Group {
  std::set<int> steps;
  std::set<int> kept = {};     ///< axes that span its rows, when it reduces
  std::set<int> reduced = {};  ///< axes that its reductions take up
  bool reduces = false;
};

class Merger {
 public:
  Merger(const Graph& graph, Decline decline);

  /// Tries to put each step into the kernels of what it reads.
  void run();
  /// Then contractions into the kernels that alone read their results, where they take those steps as an epilogue.
  void take_epilogues();
  /// The group of a step; views have none (-1).
  int group_of(int step) const { return group_[static_cast<size_t>(step)]; }
  const std::vector<Group>& groups() const { return groups_; }
  /// Why two steps, of which the second reads the first's result, are in different kernels.
  std::string reason(int before, int after) const;
  /// Whether the value has to be in memory: it leaves, or another kernel reads it.
  bool is_stored(int value) const;

 private:
  /// One round over all steps; true when something merged.
  bool pass();
  const Node& node(int step) const { return graph_.nodes[static_cast<size_t>(step)]; }
  std::set<int> axes_of(int step) const;
  std::string why_not(const Group& made, const Group& reading, int producer, int consumer, int value) const;
  std::string why_not_rows(const Group& made, const Group& reading, int producer, int consumer) const;
  std::string why_not_loops(const Group& both, int producer, int consumer, int value) const;
  std::string why_not_one_kernel(const Group& both) const;
  std::string why_not_inside(const Group& loops, const std::set<int>& kept, const std::set<int>& both) const;
  bool crosses_rows(const std::set<int>& steps) const;
  bool aligned(const Place& in, const Place& out) const;
  bool leaves(int step, const std::set<int>& steps) const;
  bool overwrites(const std::set<int>& steps) const;
  bool reaches(int from, int to) const;
  std::string why_no_epilogue(int product) const;
  int arrays_of(const std::set<int>& steps) const;
  void merge(int into, int from);

  const Graph& graph_;
  Decline decline_;
  std::vector<int> group_;
  std::vector<Group> groups_;
  std::vector<std::set<int>> before_;  // steps that must run after each one
  std::map<std::pair<int, int>, std::string> reasons_;
};

/// `a` and `b` as one, without asking.
Group joined(const Group& a, const Group& b);

}  // namespace tenor::fusion
