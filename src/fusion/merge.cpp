#include "src/fusion/merge.h"

#include <algorithm>

#include "src/core/text.h"
#include "src/fusion/epilogue.h"
#include "src/fusion/lower.h"
#include "src/fusion/traffic.h"
#include "src/ops/index/index_recipe.h"

namespace tenor::fusion {
namespace {

using core::OpClass;
using core::text;

bool includes(const std::set<int>& all, const std::set<int>& some) {
  return std::includes(all.begin(), all.end(), some.begin(), some.end());
}

bool meets(const std::set<int>& a, const std::set<int>& b) {
  return std::any_of(a.begin(), a.end(), [&](int axis) { return b.count(axis) > 0; });
}

/// Why a step that is no loop or reduction has a kernel of its own, asked for its result or for what it reads.
std::string own_kernel(const core::Step& s, bool result) {
  switch (s.op_class) {
    case OpClass::kContraction:
      return result ? text("{} is a contraction, whose kernel stores its rounded result before what follows", s.op)
                    : text("{} is a contraction, whose kernel reads its operands from memory", s.op);
    case OpClass::kIndex:
      return s.writes.empty() ? text("{} moves data between places and has a kernel of its own", s.op)
                              : text("{} writes at places that data names, so it starts from memory", s.op);
    default:
      return text("{} works on whole rows in a kernel of its own", s.op);
  }
}

/// Whether a kernel that reads the result of such a gather can read its places instead.
bool joins(const core::Step& gather) { return dynamic_cast<const index::GatherRecipe*>(gather.recipe.get()); }

std::string bytes_text(int64_t bytes) {
  if (bytes < 1 << 20) return text("{} KiB", bytes >> 10);
  return bytes < int64_t{1} << 30 ? text("{} MiB", bytes >> 20) : text("{} GiB", bytes >> 30);
}

}  // namespace

Group joined(const Group& a, const Group& b) {
  Group out = a;
  out.steps.insert(b.steps.begin(), b.steps.end());
  out.kept.insert(b.kept.begin(), b.kept.end());
  out.reduced.insert(b.reduced.begin(), b.reduced.end());
  out.reduces = a.reduces || b.reduces;
  return out;
}

Merger::Merger(const Graph& graph, Decline decline)
    : graph_(graph), decline_(decline), group_(graph.nodes.size(), -1), before_(graph.nodes.size()) {
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& n = graph.nodes[i];
    for (int earlier : n.after) before_[static_cast<size_t>(earlier)].insert(static_cast<int>(i));
    if (n.kind == Kind::kView) continue;
    group_[i] = static_cast<int>(groups_.size());
    Group g{{static_cast<int>(i)}};
    if (n.kind == Kind::kReduce) {
      g.reduces = true;
      for (size_t d = 0; d < n.inputs[0].axes.size(); ++d) {
        const int axis = n.inputs[0].axes[d];
        const Dims& dims = n.step->reduced;
        if (axis != 0)
          (std::find(dims.begin(), dims.end(), static_cast<int64_t>(d)) != dims.end() ? g.reduced : g.kept)
              .insert(axis);
      }
    }
    groups_.push_back(std::move(g));
  }
  for (Group& g : groups_) {  // as they are called after all uniting
    g.kept = graph.axes.set_of(Axes(g.kept.begin(), g.kept.end()));
    g.reduced = graph.axes.set_of(Axes(g.reduced.begin(), g.reduced.end()));
  }
}

std::set<int> Merger::axes_of(int step) const {
  std::set<int> out;
  for (const Place& place : node(step).outputs)
    for (int axis : graph_.axes.set_of(place.axes)) out.insert(axis);
  return out;
}

void Merger::run() {
  // A result read in parts merges once all who read it are in one group, so earlier refusals are asked again.
  while (pass()) {
  }
}

bool Merger::pass() {
  bool merged = false;
  for (size_t i = 0; i < graph_.nodes.size(); ++i) {
    const Node& n = graph_.nodes[i];
    if (n.kind == Kind::kView) continue;
    const int consumer = static_cast<int>(i);
    std::vector<std::pair<int, int>> made;  // (producer, value)
    for (const Place& in : n.inputs)
      if (const int p = graph_.values[static_cast<size_t>(in.value)].producer; p >= 0) made.emplace_back(p, in.value);
    std::sort(made.rbegin(), made.rend());  // the newest first
    made.erase(std::unique(made.begin(), made.end()), made.end());
    for (auto [producer, value] : made) {
      const int from = group_of(producer), into = group_of(consumer);
      if (from == into) continue;
      std::string why =
          why_not(groups_[static_cast<size_t>(from)], groups_[static_cast<size_t>(into)], producer, consumer, value);
      if (why.empty())
        merge(into, from), merged = true;
      else
        reasons_[{producer, consumer}] = std::move(why);
    }
  }
  return merged;
}

void Merger::take_epilogues() {
  for (size_t i = 0; i < graph_.nodes.size(); ++i) {
    const Node& n = graph_.nodes[i];
    if (n.kind != Kind::kOther || n.step->op_class != OpClass::kContraction || n.outputs.size() != 1) continue;
    const int product = static_cast<int>(i);
    const Value& made = graph_.values[static_cast<size_t>(n.outputs[0].value)];
    if (made.readers.empty()) continue;
    const std::string why = why_no_epilogue(product);
    if (why.empty())
      merge(group_of(made.readers[0]), group_of(product));
    else
      for (int reader : made.readers)
        if (node(reader).kind != Kind::kOther) reasons_[{product, reader}] = text("no epilogue: {}", why);
  }
}

std::string Merger::why_no_epilogue(int product) const {
  const Value& made = graph_.values[static_cast<size_t>(node(product).outputs[0].value)];
  if (made.is_output || made.stays) return "its own result is needed in memory";
  const int reading = group_of(made.readers[0]);
  for (int reader : made.readers)
    if (group_of(reader) != reading) return "several kernels read its result";
  if (reaches(group_of(product), reading)) return "another kernel runs between them";
  const std::set<int>& steps = groups_[static_cast<size_t>(reading)].steps;
  return take_epilogue(graph_, product, {steps.begin(), steps.end()}).reason;
}

void Merger::merge(int into, int from) {
  Group& target = groups_[static_cast<size_t>(into)];
  target = joined(target, groups_[static_cast<size_t>(from)]);
  groups_[static_cast<size_t>(from)] = {};
  for (int step : target.steps) group_[static_cast<size_t>(step)] = into;
}

std::string Merger::reason(int before, int after) const {
  const auto at = reasons_.find({before, after});
  return at == reasons_.end() ? "" : at->second;
}

/// Whether a result of the step is read outside of `steps`, stays under a write to a part of it, or is a result of the
/// whole.
bool Merger::leaves(int step, const std::set<int>& steps) const {
  for (const Place& place : node(step).outputs) {
    const Value& v = graph_.values[static_cast<size_t>(place.value)];
    if (v.is_output || v.stays) return true;
    for (int reader : v.readers)
      if (!steps.count(reader)) return true;
  }
  return false;
}

bool Merger::is_stored(int value) const {
  const Value& v = graph_.values[static_cast<size_t>(value)];
  if (v.producer < 0 || v.is_output || v.stays) return true;
  return std::any_of(v.readers.begin(), v.readers.end(),
                     [&](int reader) { return group_of(reader) != group_of(v.producer); });
}

std::string Merger::why_not(const Group& made, const Group& reading, int producer, int consumer, int value) const {
  const Node &p = node(producer), &c = node(consumer);
  if (p.kind == Kind::kOther || (p.kind == Kind::kGather && !joins(*p.step))) return own_kernel(*p.step, true);
  if (p.kind == Kind::kJoin) return text("{} lays its pieces side by side in memory", p.step->op);
  if (c.kind == Kind::kOther) return own_kernel(*c.step, false);
  if (c.kind == Kind::kGather)
    return text("{} reads places that data names, so what it reads is in memory", c.step->op);
  if (reaches(group_of(producer), group_of(consumer)))
    return text("a kernel between them reads step {} and is read by step {}", producer, consumer);
  const Group both = joined(made, reading);
  if (const int arrays = arrays_of(both.steps); arrays > kMaxArrays)
    return text("one kernel would take {} arrays; {} is the most", arrays, kMaxArrays);
  if (both.steps.size() > kMaxSteps)
    return text("one kernel would take {} steps; {} is the most", both.steps.size(), kMaxSteps);
  if (overwrites(both.steps))
    return "an in-place step would write over what the same kernel still reads in another order";
  std::string why =
      both.reduces ? why_not_rows(made, reading, producer, consumer) : why_not_loops(both, producer, consumer, value);
  return why.empty() ? why_not_one_kernel(both) : why;
}

/// What the kernel's own form cannot express.
std::string Merger::why_not_one_kernel(const Group& both) const {
  const Lowered lowered = lower(graph_, {both.steps.begin(), both.steps.end()});
  return lowered.reason.empty() && decline_ ? decline_(lowered.program) : lowered.reason;
}

/// Loops alone: what is computed in part here must not be needed whole elsewhere.
std::string Merger::why_not_loops(const Group& both, int producer, int consumer, int value) const {
  if (!leaves(producer, both.steps)) return {};
  const int64_t whole = distinct_elements(graph_.values[static_cast<size_t>(value)].made);
  for (const Place& in : node(consumer).inputs)
    if (in.value == value && distinct_elements(in.tensor) < whole)
      return text("a part of step {} is read here, all of it elsewhere", producer);
  return {};
}

/// With a reduction: everything stays within the rows that it reduces.
std::string Merger::why_not_rows(const Group& made, const Group& reading, int producer, int consumer) const {
  const std::set<int> all = joined(made, reading).steps;
  if (made.reduces && reading.reduces && made.kept != reading.kept)
    return text("{} takes up other dims than the reduction before it, so it needs all of those rows first",
                node(consumer).step->op);
  if (crosses_rows(all)) return text("rows of step {} meet other rows here", producer);
  if (!made.reduces) return why_not_inside(made, reading.kept, all);
  if (!includes(axes_of(consumer), made.kept) && !reading.reduces)
    return text("rows of step {} meet other rows here", producer);
  if (!reading.reduces)
    if (std::string why = why_not_inside(reading, made.kept, all); !why.empty()) return why;
  std::set<int> needed = axes_of(consumer);
  needed.insert(reading.reduced.begin(), reading.reduced.end());
  if (!meets(needed, made.reduced)) return {};
  const core::Step& step = *node(producer).step;
  const Tensor& row = step.inputs.empty() || !step.inputs[0].defined() ? step.outputs[0] : step.inputs[0];
  int64_t bytes = static_cast<int64_t>(item_size(row.dtype()));
  for (int axis : made.reduced) bytes *= graph_.axes.size(axis);
  if (bytes > kRowBytes)
    return text("a row of {} does not stay on the chip, so it is read again after the reduction", bytes_text(bytes));
  return {};
}

/// Whether a loop meets something that comes of a reduction in other places than its own.
bool Merger::crosses_rows(const std::set<int>& steps) const {
  std::set<int> reduced;  // steps whose result hangs on a reduction among them
  for (int step : steps) {
    const Node& n = node(step);
    bool hangs = n.kind == Kind::kReduce;
    for (const Place& in : n.inputs) {
      const int made = graph_.values[static_cast<size_t>(in.value)].producer;
      if (made < 0 || !reduced.count(made)) continue;
      hangs = true;
      if (n.kind == Kind::kLoop && !aligned(in, n.outputs[0])) return true;
    }
    if (hangs) reduced.insert(step);
  }
  return false;
}

/// Whether each dim runs with the result's dim that it meets.
bool Merger::aligned(const Place& in, const Place& out) const {
  const size_t have = in.axes.size(), want = out.axes.size();
  for (size_t i = 1; i <= std::min(have, want); ++i) {
    const int axis = in.axes[have - i];
    if (axis != 0 && graph_.axes.find(axis) != graph_.axes.find(out.axes[want - i])) return false;
  }
  return true;
}

/// Loops join a kernel of rows where each result lies in the rows, or is only needed in this kernel.
std::string Merger::why_not_inside(const Group& loops, const std::set<int>& kept, const std::set<int>& both) const {
  for (int step : loops.steps)
    if (!includes(axes_of(step), kept) && leaves(step, both))
      return text("step {} does not lie in the rows that are reduced, and is needed elsewhere", step);
  return {};
}

/// Whether an in-place step writes what another of the steps reads in another layout.
bool Merger::overwrites(const std::set<int>& steps) const {
  for (int step : steps) {
    if (!node(step).in_place) continue;
    for (const Place& out : node(step).outputs) {
      for (int other : steps)
        for (const Place& in : node(other).inputs)
          if (in.tensor.storage() == out.tensor.storage() && !same_layout(in.tensor, out.tensor)) return true;
    }
  }
  return false;
}

/// Arrays in memory that the steps read and write.
int Merger::arrays_of(const std::set<int>& steps) const {
  std::set<int> arrays;
  for (int step : steps) {
    for (const Place& in : node(step).inputs)
      if (const int p = graph_.values[static_cast<size_t>(in.value)].producer; p < 0 || !steps.count(p))
        arrays.insert(in.value);
    if (leaves(step, steps))
      for (const Place& out : node(step).outputs) arrays.insert(out.value);
  }
  return static_cast<int>(arrays.size());
}

/// Whether a kernel other than the two runs after `from` and before `to`.
bool Merger::reaches(int from, int to) const {
  std::set<int> seen{from};
  std::vector<int> open{from};
  while (!open.empty()) {
    const int group = open.back();
    open.pop_back();
    for (int step : groups_[static_cast<size_t>(group)].steps)
      for (int later : before_[static_cast<size_t>(step)]) {
        const int next = group_of(later);
        if (next < 0 || next == group) continue;
        if (next == to && group != from) return true;
        if (next != to && seen.insert(next).second) open.push_back(next);
      }
  }
  return false;
}

}  // namespace tenor::fusion
