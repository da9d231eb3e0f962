// The cost statement: what an operator is and what it must move and compute, stated once, at each call, before anything
// runs. `explain`, fusion and the benchmarks read it; without a reader it costs one thread-local load.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tenor/tensor.h"

namespace tenor::core {

/// Which input elements one output element depends on.
enum class OpClass : uint8_t {
  kView = 1,         ///< none: only shape, strides and offset change
  kElementwise = 2,  ///< the element at its own place
  kReduction = 3,    ///< a row: reductions, scans, sorts, row operators
  kIndex = 4,        ///< places that data names
  kContraction = 5,  ///< a row and a column
};

/// A copy that the operator makes because its kernel cannot read an input as it lies.
struct Copy {
  std::string argument;
  int64_t bytes;
  std::string reason;
};

/// Counts of a cost statement, at most INT64_MAX: a stated shape may be beyond any machine. a, b >= 0.
inline int64_t count_sum(int64_t a, int64_t b) {
  int64_t out;
  return __builtin_add_overflow(a, b, &out) ? INT64_MAX : out;
}
inline int64_t count_product(int64_t a, int64_t b) {
  int64_t out;
  return __builtin_mul_overflow(a, b, &out) ? INT64_MAX : out;
}

/// Arithmetic that FLOPs do not tell apart, and that sets a pace of its own where data is in a cache.
struct Work {
  int64_t exponentials = 0;  ///< evaluations of exp and of functions that take as long or longer
  int64_t divisions = 0;     ///< quotients and square roots
  int64_t operations = 0;    ///< of one instruction each, beside those counted as FLOPs
  bool as_bits = false;      ///< 16-bit floats are moved as they lie, neither widened nor rounded
};

/// How a step is run again, on other tensors of the shapes, strides and dtypes that it states. Families whose steps
/// fusion puts into kernels derive their own, which say what is computed.
class Recipe {
 public:
  virtual ~Recipe() = default;
  /// Inputs and outputs as the step lists them; outputs have memory, which may overlap inputs'.
  virtual void run(const std::vector<Tensor>& inputs, const std::vector<Tensor>& outputs) const = 0;
};

/// A recipe that calls fn(inputs, outputs).
template <class F>
std::shared_ptr<const Recipe> recipe(F fn) {
  struct Called final : Recipe {
    explicit Called(F f) : fn(std::move(f)) {}
    void run(const std::vector<Tensor>& inputs, const std::vector<Tensor>& outputs) const override {
      fn(inputs, outputs);
    }
    F fn;
  };
  return std::make_shared<Called>(std::move(fn));
}

struct Step {
  const char* op;
  OpClass op_class;
  std::vector<Tensor> inputs;  ///< undefined ones are absent optional arguments
  std::vector<Tensor> outputs;
  int64_t flops = 0;          ///< as api.md counts: 0 for views, index and order steps
  std::string strategy = {};  ///< the candidate chosen, and why others declined, one a line
  std::vector<Copy> copies = {};
  Dims reduced = {};  ///< of a reduction: the dims of inputs[0] that it takes up
  std::vector<int64_t> reads =
      {};  ///< of a read at places that data names: elements read of each input at most, -1 all
  std::vector<int64_t> writes = {};  ///< of a write at such places: elements written of each output at most
  std::string note = {};             ///< why the result has its shape, where the shapes alone do not say
  Work work = {};
  std::shared_ptr<const Recipe> recipe = {};  ///< absent where fusion runs the whole function as it is written

  Step with(const Work& stated) && {
    work = stated;
    return std::move(*this);
  }
  Step with(std::shared_ptr<const Recipe> stated) && {
    recipe = std::move(stated);
    return std::move(*this);
  }
};

/// Receives the steps of this thread while installed.
class Tracer {
 public:
  virtual ~Tracer() = default;
  virtual void record(const Step& step) = 0;
  /// The step recorded last is complete: its operator returns.
  virtual void done() {}
  /// Tensors made on this device are shapes without memory, too; meta: none are.
  Device shapes_of = {DeviceType::kMeta};
};

/// Installs a tracer on this thread while it lives.
class TracerGuard {
 public:
  explicit TracerGuard(Tracer* tracer);
  ~TracerGuard();
  TracerGuard(const TracerGuard&) = delete;
  TracerGuard& operator=(const TracerGuard&) = delete;

 private:
  Tracer* previous_;
};

extern thread_local Tracer* current_tracer;

/// Where a tensor is made that was asked for on `device`.
inline Device traced_device(Device device) {
  return current_tracer && current_tracer->shapes_of == device ? Device{DeviceType::kMeta} : device;
}

/// States an operator's step. While it lives, operators called inside are parts of this one and state nothing.
///
///     StepScope step([&] { return Step{"softmax", OpClass::kReduction, {x}, {out}, x.numel()}; });
///     if (step.shape_only(out)) return out;
class StepScope {
 public:
  template <class F>
  explicit StepScope(F&& make) {
    if (current_tracer) [[unlikely]] {
      current_tracer->record(make());
      suspended_ = current_tracer;
      current_tracer = nullptr;
    }
  }
  ~StepScope() {
    if (!suspended_) return;
    current_tracer = suspended_;
    suspended_->done();
  }
  StepScope(const StepScope&) = delete;
  StepScope& operator=(const StepScope&) = delete;

  /// True when the result has no memory (a traced shape): the operator returns without running.
  static bool shape_only(const Tensor& out) { return out.device().type == DeviceType::kMeta; }

 private:
  Tracer* suspended_ = nullptr;
};

}  // namespace tenor::core
