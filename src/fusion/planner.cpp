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
  for (int i = count; i-- > 0;) {
    if (graph.nodes[static_cast<size_t>(i)].kind != Kind::kView) continue;
    for (int later = i + 1; later < count && group[static_cast<size_t>(i)] < 0; ++later)
      for (const Place& in : graph.nodes[static_cast<size_t>(later)].inputs)
        for (const Place& out : graph.nodes[static_cast<size_t>(i)].outputs)
          if (in.value == out.value && elements_key(in.tensor) == elements_key(out.tensor))
            group[static_cast<size_t>(i)] = group[static_cast<size_t>(later)];
  }
  for (int i = 0; i < count; ++i) {
    int& own = group[static_cast<size_t>(i)];
    if (own >= 0) continue;
    const int value = graph.nodes[static_cast<size_t>(i)].inputs[0].value;
    if (const int by = graph.values[static_cast<size_t>(value)].producer; by >= 0) own = group[static_cast<size_t>(by)];
    for (int earlier = i; own < 0 && earlier-- > 0;)
      if (graph.nodes[static_cast<size_t>(earlier)].kind == Kind::kView &&
          graph.nodes[static_cast<size_t>(earlier)].inputs[0].value == value)
        own = group[static_cast<size_t>(earlier)];
    if (own < 0) own = groups++;
  }
}

/// Groups in an order in which they can run: by their last step, which only waits for earlier ones or its own kernel.
std::vector<int> running_order(const Graph& graph, const std::vector<int>& group, int groups) {
  std::vector<std::set<int>> waits(static_cast<size_t>(groups));
  std::vector<int> first(static_cast<size_t>(groups), -1);
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const int own = group[i];
    if (first[static_cast<size_t>(own)] < 0) first[static_cast<size_t>(own)] = static_cast<int>(i);
    for (int before : graph.nodes[i].after)
      if (group[static_cast<size_t>(before)] != own)
        waits[static_cast<size_t>(own)].insert(group[static_cast<size_t>(before)]);
  }
  std::vector<int> order;
  std::vector<bool> done(static_cast<size_t>(groups), false);
  for (bool moved = true; moved;) {
    moved = false;
    int next = -1;
    for (int g = 0; g < groups; ++g) {
      if (done[static_cast<size_t>(g)] || first[static_cast<size_t>(g)] < 0) continue;
      const auto& w = waits[static_cast<size_t>(g)];
      if (!std::all_of(w.begin(), w.end(), [&](int before) { return done[static_cast<size_t>(before)]; })) continue;
      if (next < 0 || first[static_cast<size_t>(g)] < first[static_cast<size_t>(next)]) next = g;
    }
    if (next >= 0) order.push_back(next), done[static_cast<size_t>(next)] = moved = true;
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

Plan make_plan(const Graph& graph) {
  Merger merger(graph);
  merger.run();
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
