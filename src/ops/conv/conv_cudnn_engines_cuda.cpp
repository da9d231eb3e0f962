// Which of cuDNN's engines will do: those that add in a fixed order, in the compute type, without transforms (FFT,
// Winograd), which would carry what is not a number into results that do not read it, and whose workspace is within a
// bound.
#include "src/ops/conv/conv_cudnn.h"

#if TENOR_HAS_CUDA && __has_include(<cudnn.h>)

#include "src/core/modes.h"
#include "src/core/text.h"
#include "src/ops/conv/conv_launch.h"

namespace tenor::conv {
namespace {

using cuda::CudnnDescriptor;

/// An engine that states no transform though it is one (Winograd's): off by 1e-4 on small integers.
bool is_inexact(const ConvProblem& p, int64_t engine) {
  return p.direction == Direction::kWeightBackward && engine == 17;  // cuDNN 9.19
}

/// Whether an engine keeps the contract: order, precision, and what is not a number in its place.
bool keeps_contract(const ConvProblem& p, const CudnnDescriptor& engine) {
  if (is_inexact(p, engine.value(CUDNN_ATTR_ENGINE_GLOBAL_INDEX))) return false;
  const auto notes = engine.values<cudnnBackendNumericalNote_t>(
      CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE, CUDNN_NUMERICAL_NOTE_TYPE_COUNT);
  for (const cudnnBackendNumericalNote_t note : notes) switch (note) {
      case CUDNN_NUMERICAL_NOTE_TENSOR_CORE:  // of float32: TF32
        if (p.dtype == DType::kFloat32 && !core::tf32_allowed()) return false;
        break;
      case CUDNN_NUMERICAL_NOTE_STRICT_NAN_PROP:
        break;
      default:
        return false;
    }
  return true;
}

/// The engine that a configuration is of.
CudnnDescriptor engine_of(const CudnnDescriptor& config) {
  CudnnDescriptor engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  cudnnBackendDescriptor_t raw = engine.get();
  int64_t count = 0;
  cuda::check_cudnn(cuda::cudnn().BackendGetAttribute(config.get(), CUDNN_ATTR_ENGINECFG_ENGINE,
                                                      CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &raw),
                    "cudnnBackendGetAttribute");
  return engine;
}

/// The engine's number, and its settings as kind:value: cuDNN fills in descriptors that it is handed.
std::string name_of(const CudnnDescriptor& config, const CudnnDescriptor& engine) {
  std::vector<CudnnDescriptor> choices;
  std::vector<cudnnBackendDescriptor_t> raw;
  for (int i = 0; i < CUDNN_KNOB_TYPE_COUNTS; ++i)
    raw.push_back(choices.emplace_back(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR).get());
  int64_t count = 0;
  cuda::check_cudnn(
      cuda::cudnn().BackendGetAttribute(config.get(), CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                        CUDNN_KNOB_TYPE_COUNTS, &count, raw.data()),
      "cudnnBackendGetAttribute");
  std::string name = std::to_string(engine.value(CUDNN_ATTR_ENGINE_GLOBAL_INDEX));
  for (int64_t i = 0; i < std::min<int64_t>(count, CUDNN_KNOB_TYPE_COUNTS); ++i) {
    const CudnnDescriptor& choice = choices[static_cast<size_t>(i)];
    const auto kind = choice.values<cudnnBackendKnobType_t>(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1);
    name += core::text(" {}:{}", kind.empty() ? -1 : static_cast<int>(kind[0]),
                       choice.value(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE));
  }
  return name;
}

/// The configuration made ready, or none: it needs too much workspace.
std::shared_ptr<const CudnnPlan> ready(cudnnHandle_t handle, const CudnnDescriptor& config, std::string name) {
  CudnnDescriptor execution(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
  execution.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
  execution.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
  execution.finalize();
  const int64_t workspace = execution.value(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE);
  if (workspace > kMostWorkspace) return nullptr;
  return std::make_shared<CudnnPlan>(CudnnPlan{{}, std::move(name), execution, workspace});
}

}  // namespace

std::vector<std::shared_ptr<const CudnnPlan>> cudnn_plans(cudnnHandle_t handle, const ConvProblem& p,
                                                          const CudnnDescriptor& graph, cudnnBackendHeurMode_t mode,
                                                          size_t most,
                                                          const std::function<bool(const std::string&)>& wanted) {
  CudnnDescriptor heuristics(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  heuristics.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
  heuristics.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
  heuristics.finalize();
  std::vector<std::shared_ptr<const CudnnPlan>> plans;
  for (const CudnnDescriptor& config :
       heuristics.descriptors(CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR)) {
    if (plans.size() >= most) break;
    try {
      const CudnnDescriptor engine = engine_of(config);
      std::string name = name_of(config, engine);
      if (!keeps_contract(p, engine) || !wanted(name)) continue;
      if (auto plan = ready(handle, config, std::move(name))) plans.push_back(std::move(plan));
    } catch (const cuda::CudnnError& e) {
      if (!e.declines()) throw;  // the heuristics name engines that turn out not to take the problem
    }
  }
  return plans;
}

}  // namespace tenor::conv

#endif
