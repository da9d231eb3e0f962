#include "src/fusion/planner.h"

#include <algorithm>

#include "src/fusion/merge.h"
#include "src/fusion/traffic.h"

namespace tenor::fusion {
namespace {

using core::count_sum;

int64_t item_bytes(const Tensor& x) { return static_cast<int64_t>(item_size(x.dtype())); }

/// Bytes that a step reads of input i.
int64_t read_bytes(const Node& node, size_t i, const Tensor& x) {
  const int64_t all = distinct_elements(x);
  const auto& reads = node.step->reads;
  const int64_t some = i < reads.size() && reads[i] >= 0 ? std::min(all, reads[i]) : all;
  return some * item_bytes(x);
}

int64_t written_bytes(const Node& node, size_t i, const Tensor& x) {
  const int64_t all = distinct_elements(x);
  const auto& writes = node.step->writes;
  return (i < writes.size() && writes[i] >= 0 ? std::min(all, writes[i]) : all) * item_bytes(x);
}

/// Bytes read of each value, the same elements once, never more than the value has.
class Reads {
 public:
  void add(const Node& node, const std::set<int>& inside, const Graph& graph) {
    size_t place = 0;
    for (size_t i = 0; i < node.step->inputs.size(); ++i) {
      if (!node.step->inputs[i].defined()) continue;
      const Place& in = node.inputs[place++];
      const Value& value = graph.values[static_cast<size_t>(in.value)];
      if (value.producer >= 0 && inside.count(value.producer)) continue;
      auto& parts = parts_[in.value];
      int64_t& part = parts[elements_key(in.tensor)];
      part = std::max(part, read_bytes(node, i, in.tensor));
      int64_t& whole = whole_[in.value];
      whole = std::max(whole, capacity(value, in.tensor));
    }
  }
  int64_t total() const {
    int64_t bytes = 0;
    for (const auto& [value, parts] : parts_) {
      int64_t sum = 0;
      for (const auto& [key, part] : parts) sum = count_sum(sum, part);
      bytes = count_sum(bytes, std::min(sum, whole_.at(value)));
    }
    return bytes;
  }

 private:
  static int64_t capacity(const Value& value, const Tensor& seen) {
    const auto storage = static_cast<int64_t>(seen.storage()->bytes);
    return std::max(storage, std::max(distinct_bytes(value.made), distinct_bytes(seen)));
  }
  std::map<int, std::map<std::vector<int64_t>, int64_t>> parts_;
  std::map<int, int64_t> whole_;
};

/// Views join the kernel that reads them, else the one that made what they show.
void place_views(const Graph& graph, std::vector<int>& group, int& groups) {
  const auto count = static_cast<int>(graph.nodes.size());
  std::map<std::pair<int, std::vector<int64_t>>, int> reading;  // the group of the first later step that reads it
  for (int i = count; i-- > 0;) {
    const Node& node = graph.nodes[static_cast<size_t>(i)];
    int& own = group[static_cast<size_t>(i)];
    if (node.kind == Kind::kView)
      for (const Place& out : node.outputs)
        if (const auto at = reading.find({out.value, elements_key(out.tensor)}); at != reading.end() && own < 0)
          own = at->second;
    for (const Place& in : node.inputs)
      if (own >= 0) reading[{in.value, elements_key(in.tensor)}] = own;
  }
  std::map<int, int> shown;  // the group of the last view of a value that has one
  for (int i = 0; i < count; ++i) {
    const Node& node = graph.nodes[static_cast<size_t>(i)];
    if (node.kind != Kind::kView) continue;
    int& own = group[static_cast<size_t>(i)];
    const int value = node.inputs[0].value;
    if (const int by = graph.values[static_cast<size_t>(value)].producer; own < 0 && by >= 0)
      own = group[static_cast<size_t>(by)];
    if (const auto at = shown.find(value); own < 0 && at != shown.end()) own = at->second;
    if (own < 0) own = groups++;
    shown[value] = own;
  }
}

/// Groups in an order in which they can run: by their last step, which only waits for earlier ones or its own kernel.
std::vector<int> running_order(const Graph& graph, const std::vector<int>& group, int groups) {
  struct Waiting {
    int first = -1;            // step
    std::set<int> on = {};     // groups that run before
    std::vector<int> by = {};  // groups that wait for this one
  };
  std::vector<Waiting> all(static_cast<size_t>(groups));
  const auto of = [&](int g) -> Waiting& { return all[static_cast<size_t>(g)]; };
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const int own = group[i];
    if (of(own).first < 0) of(own).first = static_cast<int>(i);
    for (int before : graph.nodes[i].after)
      if (const int other = group[static_cast<size_t>(before)]; other != own && of(own).on.insert(other).second)
        of(other).by.push_back(own);
  }
  std::set<std::pair<int, int>> ready;  // (first step, group): the earliest goes first
  for (int g = 0; g < groups; ++g)
    if (of(g).first >= 0 && of(g).on.empty()) ready.insert({of(g).first, g});
  std::vector<int> order;
  while (!ready.empty()) {
    const int next = ready.begin()->second;
    ready.erase(ready.begin());
    order.push_back(next);
    for (int later : of(next).by)
      if (of(later).on.erase(next) && of(later).on.empty()) ready.insert({of(later).first, later});
  }
  return order;
}

int64_t copied_bytes(const Node& node) {
  int64_t bytes = 0;
  if (node.kind == Kind::kOther || node.kind == Kind::kGather)  // a loop's copy is what the loop itself moves
    for (const core::Copy& copy : node.step->copies) bytes = count_sum(bytes, copy.bytes);
  return bytes;
}

PlannedKernel kernel_of(const Graph& graph, const Merger& merger, std::vector<int> steps) {
  PlannedKernel kernel{std::move(steps)};
  const std::set<int> inside(kernel.steps.begin(), kernel.steps.end());
  Reads reads;
  for (int step : kernel.steps) {
    const Node& node = graph.nodes[static_cast<size_t>(step)];
    if (node.kind == Kind::kView) continue;
    reads.add(node, inside, graph);
    // A copy is written, then read in the operand's place.
    kernel.bytes_read = count_sum(kernel.bytes_read, copied_bytes(node));
    kernel.bytes_written = count_sum(kernel.bytes_written, copied_bytes(node));
    for (size_t i = 0; i < node.outputs.size(); ++i)
      if (merger.is_stored(node.outputs[i].value) ||
          !graph.values[static_cast<size_t>(node.outputs[i].value)].readers.size())
        kernel.bytes_written = count_sum(kernel.bytes_written, written_bytes(node, i, node.outputs[i].tensor));
  }
  kernel.bytes_read = count_sum(kernel.bytes_read, reads.total());
  return kernel;
}

/// Inputs once and outputs once, whatever the plan.
int64_t needed_bytes(const Graph& graph) {
  std::set<int> made;
  for (size_t i = 0; i < graph.nodes.size(); ++i) made.insert(static_cast<int>(i));
  Reads reads;
  int64_t bytes = 0;
  for (const Node& node : graph.nodes) {
    if (node.kind == Kind::kView) continue;
    reads.add(node, made, graph);
    for (size_t i = 0; i < node.outputs.size(); ++i)
      if (graph.values[static_cast<size_t>(node.outputs[i].value)].is_output)
        bytes = count_sum(bytes, written_bytes(node, i, node.outputs[i].tensor));
  }
  return count_sum(bytes, reads.total());
}

void add_cuts(const Graph& graph, const Merger& merger, Plan& plan) {
  std::set<std::pair<int, int>> stated;  // (value, reading kernel)
  for (size_t v = 0; v < graph.values.size(); ++v) {
    const Value& value = graph.values[v];
    if (value.producer < 0) continue;
    bool crosses = false;
    for (int reader : value.readers) {
      if (merger.group_of(reader) == merger.group_of(value.producer)) continue;
      crosses = true;
      if (stated.insert({static_cast<int>(v), merger.group_of(reader)}).second)
        plan.cuts.push_back({value.producer, reader, merger.reason(value.producer, reader)});
    }
    if (crosses && !value.is_output) plan.intermediates.push_back(value.producer);
  }
  std::sort(plan.cuts.begin(), plan.cuts.end(), [](const PlannedCut& a, const PlannedCut& b) {
    return std::pair(a.after, a.before) < std::pair(b.after, b.before);
  });
  std::sort(plan.intermediates.begin(), plan.intermediates.end());
  plan.intermediates.erase(std::unique(plan.intermediates.begin(), plan.intermediates.end()), plan.intermediates.end());
}

}  // namespace

StepBytes bytes_of(const Node& node) {
  StepBytes bytes;
  if (node.kind == Kind::kView) return bytes;
  std::map<std::pair<int, std::vector<int64_t>>, int64_t> once;
  size_t place = 0;
  for (size_t i = 0; i < node.step->inputs.size(); ++i) {
    if (!node.step->inputs[i].defined()) continue;
    const Place& in = node.inputs[place++];
    int64_t& part = once[{in.value, elements_key(in.tensor)}];
    part = std::max(part, read_bytes(node, i, in.tensor));
  }
  for (const auto& [key, part] : once) bytes.read = count_sum(bytes.read, part);
  for (size_t i = 0; i < node.outputs.size(); ++i)
    bytes.written = count_sum(bytes.written, written_bytes(node, i, node.outputs[i].tensor));
  return bytes;
}

Plan make_plan(const Graph& graph, Decline decline, bool fast) {
  Merger merger(graph, decline);
  merger.run();
  if (fast) merger.take_epilogues();
  std::vector<int> group;
  for (size_t i = 0; i < graph.nodes.size(); ++i) group.push_back(merger.group_of(static_cast<int>(i)));
  int groups = static_cast<int>(merger.groups().size());
  place_views(graph, group, groups);
  std::vector<std::vector<int>> steps(static_cast<size_t>(groups));
  for (size_t i = 0; i < group.size(); ++i) steps[static_cast<size_t>(group[i])].push_back(static_cast<int>(i));
  Plan plan;
  for (int g : running_order(graph, group, groups)) {
    plan.kernels.push_back(kernel_of(graph, merger, std::move(steps[static_cast<size_t>(g)])));
    const PlannedKernel& kernel = plan.kernels.back();
    plan.bytes_moved = count_sum(plan.bytes_moved, count_sum(kernel.bytes_read, kernel.bytes_written));
  }
  plan.bytes_needed = needed_bytes(graph);
  add_cuts(graph, merger, plan);
  return plan;
}

}  // namespace tenor::fusion
