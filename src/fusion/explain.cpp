#include "tenor/explain.h"

#include <chrono>

#include "src/core/backend.h"
#include "src/core/text.h"
#include "src/fusion/explanation.h"
#include "src/fusion/recorder.h"
#include "tenor/create.h"

namespace tenor {
namespace {

using Function = std::function<std::vector<Tensor>(const std::vector<Tensor>&)>;

/// Runs on copies, so that in-place steps leave the caller's data alone; shapes without memory become zeros.
std::vector<Tensor> real_inputs(const std::vector<Tensor>& inputs) {
  std::vector<Tensor> out;
  for (const Tensor& x : inputs)
    out.push_back(x.device().type == DeviceType::kMeta ? zeros(x.shape(), {.dtype = x.dtype()}) : x.clone());
  return out;
}

void measure(Explanation& e, const Function& fn, const std::vector<Tensor>& inputs) {
  for (const Tensor& x : inputs)  // a clock here would time the launches alone
    if (core::on_cuda(x)) core::fail<UnsupportedError>("explain: measure takes arrays on the CPU, got one on {}", x.device());
  const std::vector<Tensor> real = real_inputs(inputs);
  const auto start = std::chrono::steady_clock::now();
  const auto spent = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(); };
  for (int run = 0; run < 3 || (run < 50 && spent() < 0.5); ++run) {
    fusion::Recorder recorder;
    {
      core::TracerGuard guard(&recorder);
      fn(real);
    }
    std::vector<std::string> ops;
    for (const core::Step& s : recorder.steps) ops.emplace_back(s.op);
    fusion::add_times(e, ops, recorder.seconds);
  }
}

}  // namespace

Explanation explain(const Function& fn, const std::vector<Tensor>& inputs, const ExplainOptions& options) {
  std::vector<Tensor> shapes;
  for (const Tensor& x : inputs) shapes.push_back(fusion::traced(x));
  fusion::Recorder recorder;
  std::vector<Tensor> outputs;
  {
    core::TracerGuard guard(&recorder);
    outputs = fn(shapes);
  }
  Explanation e = fusion::explain_steps(recorder.steps, outputs, options.device);
  if (options.measure) measure(e, fn, inputs);
  return e;
}

}  // namespace tenor
