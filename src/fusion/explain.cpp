#include "tenor/explain.h"

#include "src/core/backend.h"
#include "src/fusion/explanation.h"
#include "src/fusion/measurement.h"
#include "src/fusion/recorder.h"
#include "src/fusion/target.h"

namespace tenor {
namespace {

using Function = std::function<std::vector<Tensor>(const std::vector<Tensor>&)>;

/// Where the inputs are.
std::string device_of(const std::vector<Tensor>& inputs) {
  for (const Tensor& x : inputs)
    if (core::on_cuda(x)) return to_string(x.device());
  return "cpu";
}

fusion::Measurement measure(const Function& fn, const std::vector<Tensor>& inputs, Device device) {
  std::vector<Tensor> real;
  for (const Tensor& x : inputs) real.push_back(fusion::measured_input(x, device));
  fusion::Measurement measurement(device);
  while (measurement.more()) {
    const auto recorder = measurement.recorder();
    {
      core::TracerGuard guard(recorder.get());
      fn(real);
    }
    measurement.add(*recorder);
  }
  return measurement;
}

}  // namespace

Explanation explain(const Function& fn, const std::vector<Tensor>& inputs, const ExplainOptions& options) {
  const std::string device = options.device.empty() ? device_of(inputs) : options.device;
  std::vector<Tensor> shapes;
  for (const Tensor& x : inputs) shapes.push_back(fusion::traced(x));
  fusion::Recorder recorder;
  std::vector<Tensor> outputs;
  {
    core::TraitsGuard traits(fusion::traits_of_target(device));
    core::TracerGuard guard(&recorder);
    outputs = fn(shapes);
  }
  const auto explained = [&] { return fusion::explain_steps(recorder.steps, outputs, device, {}, options.fast); };
  if (!options.measure) return explained();
  return fusion::with_times(measure(fn, inputs, fusion::device_to_measure(device)), explained);
}

}  // namespace tenor
