#include "src/fusion/explanation.h"

#include <algorithm>

#include "src/core/device_traits.h"
#include "src/core/text.h"
#include "src/fusion/backend.h"
#include "src/fusion/epilogue.h"
#include "src/fusion/planner.h"
#include "src/fusion/prediction.h"
#include "src/fusion/target.h"
#include "src/fusion/traffic.h"

namespace tenor::fusion {
namespace {

using core::OpClass;
using core::text;
using StepRow = Explanation::Step;

std::string sizes_of_dims(const Dims& dims, const Tensor& x) {
  std::string out;
  for (int64_t d : dims) out += text("{}{} ({})", out.empty() ? "" : ", ", d, x.shape(static_cast<int>(d)));
  return out;
}

/// "over dim 1 (8192)".
std::string reduction_note(const core::Step& s) {
  const Tensor &x = s.inputs[0], &out = s.outputs[0];
  const bool kept = out.ndim() == x.ndim();
  return text("takes up dim {} of {}{}", sizes_of_dims(s.reduced, x), x.shape(), kept ? ", kept as 1" : ", dropped");
}

/// "(4096, 1) meets (4096, 8192)".
std::string broadcast_note(const core::Step& s) {
  std::string out;
  for (const Tensor& x : s.inputs)
    if (x.defined() && x.shape() != s.outputs[0].shape() && out.find(to_string(x.shape())) == std::string::npos)
      out += (out.empty() ? "" : " and ") + to_string(x.shape());
  return out.empty() ? out : out + " broadcast to " + to_string(s.outputs[0].shape());
}

/// Of a read at places that data names: that what comes out is counted, not the whole table.
std::string reads_note(const core::Step& s) {
  for (size_t i = 0; i < s.reads.size() && s.writes.empty(); ++i) {
    const int64_t all = s.inputs[i].defined() ? distinct_elements(s.inputs[i]) : 0;
    if (s.reads[i] >= 0 && s.reads[i] < all)
      return text("counts the {} elements that come out, not all {} that data may name", s.reads[i], all);
  }
  return {};
}

std::string note_of(const core::Step& s) {
  if (const std::string reads = reads_note(s); !reads.empty()) return s.note.empty() ? reads : s.note + "; " + reads;
  if (!s.note.empty() || s.outputs.empty()) return s.note;
  if (!s.reduced.empty()) return reduction_note(s);
  return s.op_class == OpClass::kElementwise ? broadcast_note(s) : "";
}

/// What sets the pace. Of data smaller than the smallest whose rate was measured, memory's is taken from there, and
/// functions' rates from full vectors in the nearest cache: how near the two are is not known, so arithmetic has to
/// take far longer.
const char* bound_of(const core::Step& s, int64_t bytes, double memory, double compute, const Target& target) {
  constexpr double kFarLonger = 4;
  const bool known =
      s.op_class == core::OpClass::kContraction || static_cast<double>(bytes) >= target.memory.front().size;
  return compute > memory * (known ? 1 : kFarLonger) ? "compute" : "memory";
}

StepRow row_of(const Node& node, const Target& target) {
  const core::Step& s = *node.step;
  const StepBytes bytes = bytes_of(node);
  const Tensor first = s.outputs.empty() ? Tensor() : s.outputs[0];
  const Effort effort = effort_of(node);
  const double memory = target.memory_seconds(bytes.read, bytes.written, effort),
               compute = target.compute_seconds(s, effort);
  const bool view = node.kind == Kind::kView, idle = view || (bytes.read == 0 && bytes.written == 0 && s.flops == 0);
  return {s.op,
          static_cast<int>(s.op_class),
          first.shape(),
          first.dtype(),
          view,
          bytes.read,
          bytes.written,
          s.flops,
          idle ? "none" : bound_of(s, bytes.read + bytes.written, memory, compute, target),
          idle ? 0 : 1e6 * std::max(memory, compute),
          0,
          0,
          note_of(s)};
}

std::vector<std::string> lines_of(const std::string& all) {
  std::vector<std::string> lines;
  for (size_t at = 0; at < all.size();) {
    const size_t end = std::min(all.find('\n', at), all.size());
    if (end > at) lines.push_back(all.substr(at, end - at));
    at = end + 1;
  }
  return lines;
}

/// Of a contraction with its epilogue.
void state_epilogue(int product, const PlannedKernel& kernel, const Graph& graph, Explanation::Kernel& row) {
  std::vector<int> behind;
  for (int step : kernel.steps)
    if (step != product && graph.nodes[static_cast<size_t>(step)].kind != Kind::kView) behind.push_back(step);
  const core::Step& step = *graph.nodes[static_cast<size_t>(product)].step;
  const TakenEpilogue taken = take_epilogue(graph, product, behind);
  const std::vector<std::string> lines =
      lines_of(TakenEpilogue::recipe_of(step)->explain_epilogue(step.inputs, taken.chain, taken.operands, taken.out));
  row.strategy = lines[0];
  row.declined.assign(lines.begin() + 1, lines.end());
}

Explanation::Kernel kernel_row(const PlannedKernel& kernel, const Graph& graph, const Target& target) {
  Explanation::Kernel row{kernel.steps, kernel.bytes_read, kernel.bytes_written, 0, {}, {}, 0};
  double fused = 0, alone = 0;
  Effort across;
  int running = 0;
  const TablePlan tables = tables_of(kernel, graph, target);
  for (int step : kernel.steps) {
    const Node& node = graph.nodes[static_cast<size_t>(step)];
    if (node.kind == Kind::kView) continue;
    ++running;
    if (tables.leaves_out(step)) continue;
    across = effort_of(node);
    fused += target.fused_seconds(*node.step, across), alone = target.compute_seconds(*node.step, across);
    const std::vector<std::string> lines = lines_of(node.step->strategy);
    if (lines.empty()) continue;
    row.strategy = lines[0];
    row.declined.assign(lines.begin() + 1, lines.end());
  }
  if (running > 1) row.strategy = tables.looked_up > 0 ? "fused, looked up in tables" : "fused";
  if (const int product = product_of(graph, kernel.steps); product >= 0) state_epilogue(product, kernel, graph, row);
  if (running == 0) row.strategy = "view";
  if (running != 1) across = {};
  const double memory = target.memory_seconds(kernel.bytes_read, kernel.bytes_written, across);
  row.floor_us = running == 0 ? 0 : 1e6 * std::max(memory, running == 1 ? alone : fused);
  row.predicted_us = 1e6 * predicted_seconds(kernel, graph, target, 1e-6 * row.floor_us);
  return row;
}

bool converts(const core::Step& s) {
  static const std::set<std::string> kCasts{"to", "copy_", "clone", "contiguous", "fill_"};
  return kCasts.count(s.op) > 0;
}

/// The dtypes of its operands, masks aside, where they meet in another one that nobody wrote down.
void add_promotion(int index, const core::Step& s, std::vector<Explanation::Promotion>& out) {
  const bool combines = s.op_class == OpClass::kElementwise || s.op_class == OpClass::kContraction;
  if (!combines || converts(s) || s.outputs.empty()) return;
  std::vector<DType> dtypes;
  for (const Tensor& x : s.inputs)
    if (x.defined() && x.dtype() != boolean && std::find(dtypes.begin(), dtypes.end(), x.dtype()) == dtypes.end())
      dtypes.push_back(x.dtype());
  if (dtypes.empty() || (dtypes.size() > 1 && std::count(dtypes.begin(), dtypes.end(), uint64))) return;
  DType met = dtypes[0];
  for (DType d : dtypes) met = promote(met, d);
  const DType result = s.outputs[0].dtype();
  if (dtypes.size() == 1 && (is_float(met) || !is_float(result))) return;
  if (dtypes.size() == 1) met = result;  // integers in a float function
  if (result == met || result == boolean) out.push_back({index, dtypes, met});
}

void add_copies(int index, const core::Step& s, std::vector<Explanation::Copy>& out) {
  for (const core::Copy& copy : s.copies)
    out.push_back({index, copy.bytes, text("{}: {}", copy.argument, copy.reason)});
}

/// Memory that the device does not have.
void add_memory_remark(Explanation& e, const Target& target) {
  if (target.traits.memory == 0 || e.bytes_needed <= target.traits.memory) return;
  e.remarks.push_back(text("inputs and outputs take {:.0f} GB, {} has {:.0f} GB of memory",
                           static_cast<double>(e.bytes_needed) / 1e9, target.name,
                           static_cast<double>(target.traits.memory) / 1e9));
}

}  // namespace

Explanation explain_steps(const std::vector<core::Step>& steps, const std::vector<Tensor>& outputs,
                          const std::string& device, const std::vector<std::string>& sources, bool fast) {
  const Target target = target_of(device);
  const core::TraitsGuard stands(target.traits);  // contractions are asked what they take with them there
  const Graph graph(steps, outputs);
  const Plan plan = make_plan(graph, decline_of(target.traits.type), fast);
  Explanation e;
  e.device = target.name, e.device_source = target.source, e.limits = target.limits();
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    e.steps.push_back(row_of(graph.nodes[i], target));
    if (i < sources.size()) e.steps.back().source = sources[i];
    e.flops = core::count_sum(e.flops, steps[i].flops);
    add_copies(static_cast<int>(i), steps[i], e.copies);
    add_promotion(static_cast<int>(i), steps[i], e.promotions);
  }
  for (const PlannedKernel& kernel : plan.kernels) e.kernels.push_back(kernel_row(kernel, graph, target));
  for (const PlannedCut& cut : plan.cuts) e.cuts.push_back({cut.before, cut.after, cut.reason});
  e.intermediates = plan.intermediates;
  e.bytes_needed = plan.bytes_needed, e.bytes_moved = plan.bytes_moved;
  add_memory_remark(e, target);
  return e;
}

Tensor traced(const Tensor& x) {
  Tensor out = Tensor::empty(x.shape(), x.dtype(), {DeviceType::kMeta, 0}, x.strides());
  // The storage's own extent, which the strides of a view do not tell.
  out.storage()->bytes = static_cast<size_t>(x.numel()) * item_size(x.dtype());
  return out;
}

}  // namespace tenor::fusion
