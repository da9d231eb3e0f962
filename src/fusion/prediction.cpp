#include "src/fusion/prediction.h"

#include <algorithm>

namespace tenor::fusion {
namespace {

/// Between two events on a stream with nothing but an empty kernel in it, and between the call and the first element on
/// the CPU (an H200, and one thread of a CPU; both hardly differ between models).
constexpr double kLaunch = 4.4e-6, kStart = 1.8e-6;

/// What a pass of the CPU's program costs beside the operation: loads, a store and the loop, in float32 additions.
constexpr int64_t kPassAdditions = 6;
/// A rounding within the program widens nothing.
constexpr int64_t kRoundedPassAdditions = 2;

/// Beyond the caches kernels reach less than the best rate measured; a program's passes wait for their tile.
constexpr double kFarAlone = 0.5, kFarFused = 2;

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
  const int64_t additions = narrow ? kRoundedPassAdditions : kPassAdditions;
  return static_cast<double>(additions * elements) * addition + target.compute_seconds(s, e);
}

double program_seconds(const PlannedKernel& kernel, const Graph& graph, const Target& target) {
  double seconds = 0;
  for (const int step : kernel.steps)
    if (const Node& node = graph.nodes[static_cast<size_t>(step)]; node.kind != Kind::kView)
      seconds += pass_seconds(*node.step, effort_of(node), target);
  return seconds;
}

/// What the kernel's bytes take longer than they would in the caches.
double far_seconds(const PlannedKernel& kernel, const Target& target) {
  Target near = target;
  near.memory.resize(1);
  return std::max(0.0, target.memory_seconds(kernel.bytes_read, kernel.bytes_written) -
                           near.memory_seconds(kernel.bytes_read, kernel.bytes_written));
}

}  // namespace

double predicted_seconds(const PlannedKernel& kernel, const Graph& graph, const Target& target, double floor_seconds) {
  const auto runs = [&](int step) { return graph.nodes[static_cast<size_t>(step)].kind != Kind::kView; };
  const auto running = std::count_if(kernel.steps.begin(), kernel.steps.end(), runs);
  if (running == 0) return 0;
  if (target.traits.type != DeviceType::kCpu) return kLaunch + floor_seconds;
  const double far = far_seconds(kernel, target);
  if (running == 1) return kStart + floor_seconds + kFarAlone * far;
  return kStart + std::max(floor_seconds, program_seconds(kernel, graph, target) + kFarFused * far);
}

}  // namespace tenor::fusion
