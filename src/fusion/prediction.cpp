#include "src/fusion/prediction.h"

#include <algorithm>

#include "src/fusion/lower.h"

namespace tenor::fusion {
namespace {

// Measured with bench/predictions.py; the times behind each constant are in src/fusion/README.md, "Predicted".

/// Between two events on a stream with nothing but an empty kernel in it (an H200), and between the call and the first
/// element on the CPU (one thread of an EPYC).
constexpr double kLaunch = 4.4e-6, kStart = 1.8e-6;

/// What a pass of the CPU's program costs beside the operation: loads, a store and the loop, in float32 additions.
constexpr double kPassAdditions = 2.7;
/// A rounding within the program widens nothing.
constexpr double kRoundedPassAdditions = 1;

/// A look into a table of 16-bit floats, whose entries for numbers of about one size lie in the first cache.
constexpr double kLookUpAdditions = 14;

/// Beyond the caches kernels reach less than the best rate measured, of which this is how much more of the difference
/// they take. A program's passes wait for their tile, unless those that widen it have it on its way.
constexpr double kFarAlone = 0.4, kFarFused = 2.4, kFarFusedNarrow = 1;

bool is_narrow(const Tensor& x) { return x.defined() && (x.dtype() == float16 || x.dtype() == bfloat16); }

/// Seconds of a step's pass over a tile that lies in the first cache.
double pass_seconds(const core::Step& s, const Effort& e, const Target& target) {
  if (s.outputs.empty()) return 0;
  const bool narrow = is_narrow(s.outputs[0]);
  int64_t elements = 0;
  for (const Tensor& x : s.inputs)
    if (x.defined()) elements = std::max(elements, x.numel());
  elements = std::max(elements, s.outputs[0].numel());
  const double addition = 2 / target.flop_rate(s).value;
  const double additions = narrow ? kRoundedPassAdditions : kPassAdditions;
  return additions * static_cast<double>(elements) * addition + target.compute_seconds(s, e);
}

double program_seconds(const PlannedKernel& kernel, const Graph& graph, const Target& target) {
  const TablePlan tables = tables_of(kernel, graph, target);
  const double addition = 2 / target.vector32.value;
  double seconds = kLookUpAdditions * static_cast<double>(tables.looked_up) * addition;
  for (const int step : kernel.steps) {
    if (tables.leaves_out(step)) continue;
    if (const Node& node = graph.nodes[static_cast<size_t>(step)]; node.kind != Kind::kView)
      seconds += pass_seconds(*node.step, effort_of(node), target);
  }
  return seconds;
}

/// What the kernel's bytes take in the second cache, and what they take longer where they lie.
struct Memory {
  double near, far;
};
Memory memory_seconds(const PlannedKernel& kernel, const Target& target) {
  Target cached = target;
  cached.memory.resize(1);
  const double near = cached.memory_seconds(kernel.bytes_read, kernel.bytes_written);
  return {near, std::max(0.0, target.memory_seconds(kernel.bytes_read, kernel.bytes_written) - near)};
}

/// An operator whose results hang on their whole row, such as a norm, goes through it once more, in the caches.
double again_seconds(const core::Step& s, const Target& target) {
  const bool again = s.op_class == core::OpClass::kReduction && !s.inputs.empty() && !s.outputs.empty() &&
                     s.inputs[0].defined() && s.outputs[0].numel() == s.inputs[0].numel();
  if (!again) return 0;
  Target cached = target;
  cached.memory.resize(1);
  return cached.memory_seconds(s.inputs[0].numel() * static_cast<int64_t>(item_size(s.inputs[0].dtype())), 0);
}

/// Whether the program reads 16-bit floats alone.
bool reads_narrow(const PlannedKernel& kernel, const Graph& graph) {
  return std::all_of(kernel.steps.begin(), kernel.steps.end(), [&](int step) {
    const Node& node = graph.nodes[static_cast<size_t>(step)];
    return node.kind == Kind::kView || is_narrow(node.step->inputs.empty() ? Tensor() : node.step->inputs[0]);
  });
}

}  // namespace

TablePlan tables_of(const PlannedKernel& kernel, const Graph& graph, const Target& target) {
  if (target.traits.type != DeviceType::kCpu || kernel.steps.size() < 2) return {};
  const Lowered lowered = lower(graph, kernel.steps);
  return lowered.reason.empty() ? plan_tables(lowered.program) : TablePlan();
}

double predicted_seconds(const PlannedKernel& kernel, const Graph& graph, const Target& target, double floor_seconds) {
  const core::Step* last = nullptr;
  int running = 0;
  for (const int step : kernel.steps)
    if (const Node& node = graph.nodes[static_cast<size_t>(step)]; node.kind != Kind::kView)
      last = node.step, ++running;
  if (running == 0) return 0;
  if (target.traits.type != DeviceType::kCpu) return kLaunch + floor_seconds;
  const Memory memory = memory_seconds(kernel, target);
  if (running == 1) return kStart + floor_seconds + again_seconds(*last, target) + kFarAlone * memory.far;
  const double far = memory.far * (reads_narrow(kernel, graph) ? kFarFusedNarrow : kFarFused);
  return kStart + std::max(floor_seconds, program_seconds(kernel, graph, target) + memory.near + far);
}

}  // namespace tenor::fusion
