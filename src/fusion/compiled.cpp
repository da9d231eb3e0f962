#include "src/fusion/compiled.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "src/core/backend.h"
#include "src/core/check.h"
#include "src/core/workspace.h"
#include "src/fusion/backend.h"
#include "src/fusion/epilogue.h"
#include "src/fusion/lower.h"

namespace tenor::fusion {
namespace {

/// What allocators give at least.
size_t allocated_alignment(Device device) { return device.type == DeviceType::kCuda ? 128 : 64; }

/// `x`, of no memory, seen in the memory of `real`, whose first element is the storage's first of x.
Tensor placed(const Tensor& x, const Tensor& real) {
  if (!x.defined()) return x;
  if (x.dtype() == real.dtype()) return real.with_layout(x.shape(), x.strides(), real.offset() + x.offset());
  const auto item = static_cast<int64_t>(item_size(x.dtype()));
  return Tensor::wrap(static_cast<char*>(real.raw()) + x.offset() * item, real.device(), x.dtype(), x.shape(),
                      x.strides(), real.storage(), real.read_only());
}

/// Writes a number on the call's stream. Each call writes its own: a step may change it, and a call within a graph
/// capture may not wait for a device.
void write_constant(const Tensor& x, const std::array<char, 8>& element) {
  if (core::on_cuda(x)) return core::backend(x.device()).fill(x, element.data());
  std::memcpy(x.raw(), element.data(), item_size(x.dtype()));
}

Device device_of(const std::vector<Tensor>& given) {
  for (const Tensor& x : given)
    if (x.device().type != DeviceType::kCpu) return x.device();
  return kCpu;
}

}  // namespace

size_t alignment_of(const Tensor& x) {
  const auto address = reinterpret_cast<uintptr_t>(x.raw());
  return address == 0 ? 128 : std::min<size_t>(128, address & ~(address - 1));
}

/// A kernel, or a step on its own.
struct Compiled::Launch {
  std::shared_ptr<const Executable> kernel = {};
  std::vector<int> slots = {};  // of the kernel's arguments
  const core::Step* step = nullptr;
  std::vector<int> input_slots = {}, output_slots = {};
  std::shared_ptr<const TakenEpilogue> epilogue = {};  // of a product; its operands are further inputs
};

Compiled::~Compiled() = default;

Compiled::Compiled(Trace trace, const std::vector<Tensor>& given, bool fast)
    : trace_(std::move(trace)),
      graph_(trace_.steps, trace_.outputs, trace_.inputs),
      device_(device_of(given)),
      plan_(make_plan(graph_, decline_of(device_.type), fast)) {
  if (!trace_.same_modes)
    core::fail<UnsupportedError>("fuse: it switches batch_invariant() or allow_tf32() on or off inside");
  for (const core::Step& s : trace_.steps)
    if (!s.recipe && s.op_class != core::OpClass::kView)
      core::fail<UnsupportedError>("fuse: {} cannot be run again from a trace yet", s.op);
  check_sources();
  for (const Tensor& x : given) alignments_.push_back(alignment_of(x));
  written_.assign(given.size(), false);
  find_slots();
  for (const PlannedKernel& kernel : plan_.kernels) {
    std::vector<int> running;
    for (int step : kernel.steps)
      if (graph_.nodes[static_cast<size_t>(step)].kind != Kind::kView) running.push_back(step);
    if (running.empty()) continue;
    if (const int product = product_of(graph_, running); product >= 0)
      add_product(product, std::move(running));
    else
      add_kernel(running);
  }
  find_lives();
}

/// Every array that a step reads came in, or was made by a step before.
void Compiled::check_sources() const {
  std::set<const Storage*> known;
  for (const Tensor& x : trace_.inputs) known.insert(x.storage().get());
  for (const TracedConstant& x : trace_.constants) known.insert(x.made.storage().get());
  for (const core::Step& s : trace_.steps) {
    for (const Tensor& x : s.inputs)
      if (x.defined() && x.numel() > 0 && !known.count(x.storage().get()))
        core::fail<UnsupportedError>("fuse: {} reads a value that its trace does not hold", s.op);
    for (const Tensor& x : s.outputs)
      if (x.defined()) known.insert(x.storage().get());
  }
}

int Compiled::slot_of(const Tensor& x) {
  const auto [at, is_new] = slots_by_storage_.emplace(x.storage().get(), static_cast<int>(slots_.size()));
  if (is_new) slots_.push_back({x});
  return at->second;
}

void Compiled::find_slots() {
  for (size_t i = 0; i < trace_.inputs.size(); ++i) {
    const int slot = slot_of(trace_.inputs[i]);
    slots_[static_cast<size_t>(slot)].input = static_cast<int>(i);
  }
  for (const TracedConstant& x : trace_.constants) slots_[static_cast<size_t>(slot_of(x.made))].constant = x.element;
  // In the order in which they are made: a storage is first seen as a whole.
  for (const core::Step& s : trace_.steps)
    for (const Tensor& x : s.outputs) {
      if (!x.defined()) continue;
      const int slot = slot_of(x);
      if (s.op_class == core::OpClass::kView) continue;
      if (const int input = slots_[static_cast<size_t>(slot)].input; input >= 0)
        written_[static_cast<size_t>(input)] = true;
    }
  for (const Tensor& x : trace_.outputs) {
    const int slot = slot_of(x);
    slots_[static_cast<size_t>(slot)].is_output = true;
    outputs_.emplace_back(slot, x);
  }
}

void Compiled::add_kernel(const std::vector<int>& steps) {
  const FusionBackend* backend = fusion_backend(device_.type);
  Lowered lowered = steps.size() > 1 && backend ? lower(graph_, steps) : Lowered{.reason = "one step"};
  if (lowered.reason.empty()) lowered.reason = backend->decline(lowered.program);
  if (lowered.reason.empty()) lowered.reason = backend->unavailable();
  if (!lowered.reason.empty()) {
    for (int step : steps) add_step(step);
    return;
  }
  auto launch = std::make_unique<Launch>();
  for (size_t a = 0; a < lowered.arguments.size(); ++a) {
    const Tensor& first = graph_.values[static_cast<size_t>(lowered.arguments[a])].made;
    const int slot = slot_of(first), input = slots_[static_cast<size_t>(slot)].input;
    launch->slots.push_back(slot);
    lowered.program.arguments[a].alignment =
        input >= 0 ? alignments_[static_cast<size_t>(input)] : allocated_alignment(device_);
  }
  launch->kernel = backend->compile(lowered.program, device_);
  launches_.push_back(std::move(launch));
}

void Compiled::add_step(int step) {
  auto launch = std::make_unique<Launch>();
  launch->step = graph_.nodes[static_cast<size_t>(step)].step;
  if (!launch->step->recipe)
    core::fail<UnsupportedError>("fuse: {} cannot be run again from a trace yet", launch->step->op);
  for (const Tensor& x : launch->step->inputs) launch->input_slots.push_back(x.defined() ? slot_of(x) : -1);
  for (const Tensor& x : launch->step->outputs) launch->output_slots.push_back(x.defined() ? slot_of(x) : -1);
  launches_.push_back(std::move(launch));
}

/// A contraction with those of the steps that are its epilogue.
void Compiled::add_product(int product, std::vector<int> steps) {
  steps.erase(std::find(steps.begin(), steps.end(), product));
  auto launch = std::make_unique<Launch>();
  launch->step = graph_.nodes[static_cast<size_t>(product)].step;
  launch->epilogue = std::make_shared<TakenEpilogue>(take_epilogue(graph_, product, steps));
  for (const auto* inputs : {&launch->step->inputs, &launch->epilogue->operands})
    for (const Tensor& x : *inputs) launch->input_slots.push_back(x.defined() ? slot_of(x) : -1);
  launch->output_slots = {slot_of(launch->epilogue->out)};
  launches_.push_back(std::move(launch));
}

/// From which launch to which each slot's memory is needed.
void Compiled::find_lives() {
  for (size_t i = 0; i < launches_.size(); ++i) {
    const auto use = [&](const std::vector<int>& slots) {
      for (int s : slots) {
        if (s < 0) continue;
        Slot& slot = slots_[static_cast<size_t>(s)];
        if (slot.first < 0) slot.first = static_cast<int>(i);
        slot.last = static_cast<int>(i);
      }
    };
    use(launches_[i]->slots), use(launches_[i]->input_slots), use(launches_[i]->output_slots);
  }
}

int Compiled::kernels() const {
  return static_cast<int>(std::count_if(launches_.begin(), launches_.end(),
                                        [](const auto& l) { return l->kernel != nullptr || l->epilogue != nullptr; }));
}

void Compiled::run_step(const Launch& launch, const std::vector<Tensor>& memory) const {
  const auto seen = [&](const Tensor& x, int slot) {
    return slot < 0 ? Tensor() : placed(x, memory[static_cast<size_t>(slot)]);
  };
  std::vector<Tensor> in, out, operands;
  const size_t own = launch.step->inputs.size();
  for (size_t k = 0; k < own; ++k) in.push_back(seen(launch.step->inputs[k], launch.input_slots[k]));
  if (!launch.epilogue) {
    for (size_t k = 0; k < launch.output_slots.size(); ++k)
      out.push_back(seen(launch.step->outputs[k], launch.output_slots[k]));
    return launch.step->recipe->run(in, out);
  }
  const TakenEpilogue& taken = *launch.epilogue;
  for (size_t k = own; k < launch.input_slots.size(); ++k)
    operands.push_back(seen(taken.operands[k - own], launch.input_slots[k]));
  TakenEpilogue::recipe_of(*launch.step)->run_with(in, taken.chain, operands, seen(taken.out, launch.output_slots[0]));
}

std::vector<Tensor> Compiled::run(const std::vector<Tensor>& inputs, int* failed) const {
  std::vector<Tensor> memory(slots_.size());
  const auto at = [&](int slot) -> Tensor& { return memory[static_cast<size_t>(slot)]; };
  for (size_t s = 0; s < slots_.size(); ++s) {
    const Slot& slot = slots_[s];
    if (slot.input >= 0) memory[s] = inputs[static_cast<size_t>(slot.input)];
  }
  const auto allocate = [&](size_t s) {
    const Slot& slot = slots_[s];
    const auto item = static_cast<int64_t>(item_size(slot.made.dtype()));
    const auto elements = static_cast<int64_t>(slot.made.storage()->bytes) / item;
    const auto make = [&] {
      memory[s] = Tensor::empty({elements}, slot.made.dtype(), device_);
      if (slot.constant) write_constant(memory[s], *slot.constant);
    };
    if (!slot.is_output) return make();
    const AllocatorGuard results(&core::result_allocator());
    make();
  };
  for (size_t i = 0; i < launches_.size(); ++i) {
    const Launch& launch = *launches_[i];
    const int now = static_cast<int>(i);
    for (size_t s = 0; s < slots_.size(); ++s)
      if (slots_[s].first == now && !memory[s].defined()) allocate(s);
    if (launch.kernel) {
      std::vector<void*> arguments;
      for (int slot : launch.slots) arguments.push_back(at(slot).raw());
      int step = -1;
      launch.kernel->run(arguments, failed ? *failed : step);
    } else {
      if (failed) *failed = static_cast<int>(launch.step - trace_.steps.data());
      run_step(launch, memory);
      if (failed) *failed = -1;
    }
    for (size_t s = 0; s < slots_.size(); ++s)
      if (slots_[s].last == now && !slots_[s].is_output && slots_[s].input < 0) memory[s] = Tensor();
  }
  std::vector<Tensor> results;
  for (const auto& [slot, layout] : outputs_) {
    if (!at(slot).defined()) allocate(static_cast<size_t>(slot));  // no step writes to it: it is empty or a constant
    results.push_back(placed(layout, at(slot)));
  }
  return results;
}

}  // namespace tenor::fusion
