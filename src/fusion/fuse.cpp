#include "tenor/fuse.h"

#include <cstdlib>
#include <map>
#include <mutex>
#include <new>
#include <shared_mutex>
#include <string_view>

#include "src/core/check.h"
#include "src/core/layout.h"
#include "src/core/modes.h"
#include "src/core/read_observer.h"
#include "src/core/untraceable.h"
#include "src/fusion/compiled.h"
#include "src/fusion/entry.h"
#include "src/fusion/explanation.h"
#include "src/fusion/recorder.h"

namespace tenor {
namespace {

Device device_of(const std::vector<Tensor>& inputs) {
  for (const Tensor& x : inputs)
    if (x.defined()) return x.device();
  return kCpu;
}

/// Keeps steps, and refuses those on tensors that the function holds.
class FuseRecorder final : public core::Tracer, public core::ReadObserver, public core::ConstantKeeper {
 public:
  void record(const core::Step& step) override {
    fusion::refuse_held(step);
    recorder.record(step);
  }
  void done() override { recorder.done(); }
  void reads(const Tensor& x) override { fusion::refuse_held_value(x); }
  void keep(const Tensor& x, const void* element) override { recorder.keep(x, element); }

  fusion::Recorder recorder;
};

fusion::Trace trace(const FusedFunction::Function& fn, const std::vector<Tensor>& inputs) {
  fusion::Trace made;
  for (const Tensor& x : inputs) made.inputs.push_back(fusion::traced(x));
  FuseRecorder recorder;
  recorder.shapes_of = device_of(inputs);
  core::TracerGuard guard(&recorder);
  const int64_t errors = core::untraceable().count;
  made.outputs = fn(made.inputs);
  if (core::untraceable().count != errors)
    core::fail<UnsupportedError>("fuse: the function catches an error: {}", core::untraceable().last);
  for (const Tensor& x : made.outputs) fusion::refuse_held_result(x);
  made.steps = std::move(recorder.recorder.steps);
  made.constants = std::move(recorder.recorder.constants);
  made.same_modes = recorder.recorder.same_modes;
  return made;
}

}  // namespace

namespace fusion {

bool enabled() {
  static const bool on = [] {
    const char* value = std::getenv("TENOR_FUSE");
    return !value || std::string_view(value) != "0";
  }();
  return on;
}

std::vector<int64_t> layout_key(const std::vector<Tensor>& inputs) {
  std::vector<int64_t> key = {core::batch_invariant() ? 1 : 0};  // it decides whether contractions take epilogues
  for (const Tensor& x : inputs) {
    key.push_back(static_cast<int64_t>(x.device().type) << 32 | static_cast<int64_t>(x.device().index));
    key.push_back(static_cast<int64_t>(x.dtype()) << 32 | x.ndim());
    key.push_back(static_cast<int64_t>(alignment_of(x)));
    for (int d = 0; d < x.ndim(); ++d) key.push_back(x.shape(d)), key.push_back(x.shape(d) > 1 ? x.stride(d) : 0);
  }
  return key;
}

TracedDevice::TracedDevice(const std::vector<Tensor>& inputs) {
  const Device device = device_of(inputs);
  if (device.type == DeviceType::kCuda) guard_.emplace(core::device_traits(device));
}

void refuse_held(const core::Step& step) {
  for (const auto* tensors : {&step.inputs, &step.outputs})
    for (const Tensor& x : *tensors)
      if (x.defined() && x.device().type != DeviceType::kMeta)
        core::fail_untraceable<UnsupportedError>("fuse: the function holds an array of its own, which {} takes",
                                                 step.op);
}

void refuse_held_result(const Tensor& x) {
  if (!x.defined() || x.device().type != DeviceType::kMeta)
    core::fail<UnsupportedError>("fuse: a result does not come from the arguments");
}

void refuse_held_value(const Tensor& x) {
  if (x.device().type != DeviceType::kMeta)
    core::fail_untraceable<UnsupportedError>("fuse: the function holds an array of its own, whose value it reads");
}

std::string Entry::why_not(const std::vector<Tensor>& inputs) const {
  if (!enabled()) return "TENOR_FUSE=0 is set";
  if (!compiled) return reason;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!compiled->writes(i)) continue;
    if (inputs[i].read_only()) return "an input that is written is read-only";
    for (size_t j = 0; j < inputs.size(); ++j)
      if (i != j && core::spans_overlap(inputs[i], inputs[j])) return "an input that is written overlaps another input";
  }
  return {};
}

bool Entry::may_run_again(const std::vector<Tensor>& inputs) const {
  for (size_t i = 0; i < inputs.size(); ++i)
    if (inputs[i].device().type != DeviceType::kCpu || (compiled && compiled->writes(i))) return false;
  return true;
}

Entry compile(const std::function<Trace()>& trace, const std::vector<Tensor>& inputs, bool fast) {
  for (const Tensor& x : inputs)
    if (x.device() != inputs[0].device()) return {nullptr, "the inputs are on several devices"};
  const TracedDevice stands(inputs);
  Trace made;
  try {
    made = trace();
  } catch (const OutOfMemoryError&) {
    throw;
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& error) {  // the function itself says what is wrong, if anything is
    return {nullptr, error.what()};
  }
  try {
    return {std::make_shared<Compiled>(std::move(made), inputs, fast), {}};
  } catch (const UnsupportedError& error) {
    return {nullptr, error.what()};
  }
}

}  // namespace fusion

struct FusedFunction::State {
  Function fn;
  bool fast;
  std::shared_mutex mutex = {};
  std::map<std::vector<int64_t>, fusion::Entry> entries = {};

  fusion::Entry entry(const std::vector<Tensor>& inputs) {
    for (const Tensor& x : inputs)
      if (!x.defined() || x.device().type == DeviceType::kMeta) return {nullptr, "an input has no memory"};
    const std::vector<int64_t> key = fusion::layout_key(inputs);
    {
      const std::shared_lock lock(mutex);
      if (const auto at = entries.find(key); at != entries.end()) return at->second;
    }
    fusion::Entry made = fusion::compile([&] { return trace(fn, inputs); }, inputs, fast);
    const std::unique_lock lock(mutex);
    if (entries.size() >= fusion::kMaxEntries) entries.clear();
    return entries.emplace(key, std::move(made)).first->second;
  }
};

FusedFunction::FusedFunction(Function fn, const FuseOptions& options)
    : state_(std::make_shared<State>(std::move(fn), options.fast)) {}

std::vector<Tensor> FusedFunction::operator()(const std::vector<Tensor>& inputs) const {
  // Traced by another reader (explain, an outer fuse), it states its steps one by one.
  if (!fusion::enabled() || core::current_tracer) return state_->fn(inputs);
  const fusion::Entry entry = state_->entry(inputs);
  if (!entry.why_not(inputs).empty()) return state_->fn(inputs);
  try {
    return entry.compiled->run(inputs);
  } catch (const OutOfMemoryError&) {
    throw;
  } catch (const Error&) {
    if (!entry.may_run_again(inputs)) throw;
  }
  return state_->fn(inputs);  // which may catch the error of what its inputs hold
}

std::string FusedFunction::why_not(const std::vector<Tensor>& inputs) const {
  return state_->entry(inputs).why_not(inputs);
}

int FusedFunction::kernels(const std::vector<Tensor>& inputs) const {
  const fusion::Entry entry = state_->entry(inputs);
  return entry.why_not(inputs).empty() ? entry.compiled->kernels() : 0;
}

}  // namespace tenor
