// A traced function that runs again: its plan's kernels, compiled, in order.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/fusion/planner.h"
#include "src/fusion/program.h"
#include "src/fusion/recorder.h"

namespace tenor::fusion {

/// What was recorded of a function, on tensors without memory.
struct Trace {
  std::vector<core::Step> steps = {};
  std::vector<Tensor> inputs = {};  ///< what stands for each argument, then for what it captured
  std::vector<Tensor> outputs = {};
  std::vector<TracedConstant> constants = {};
  bool same_modes = true;  ///< as Recorder says
};

class Compiled {
 public:
  /// `given`: tensors for the trace's inputs; those to come have their layouts, and the same alignment (alignment_of).
  /// `fast`: contractions may take epilogues. @throws UnsupportedError where a step cannot be run again
  Compiled(Trace trace, const std::vector<Tensor>& given, bool fast = false);
  ~Compiled();

  /// The function's results; what it writes to its inputs is written. Where a step throws, `failed` says which.
  std::vector<Tensor> run(const std::vector<Tensor>& inputs, int* failed = nullptr) const;

  /// Whether the function writes to input i.
  bool writes(size_t i) const { return written_[i]; }
  const Plan& plan() const { return plan_; }
  /// Kernels that were made, of one step or several; the other steps run their operators.
  int kernels() const;

 private:
  struct Launch;
  /// A piece of memory while the function runs.
  struct Slot {
    Tensor made;     ///< in which it was first seen, without memory
    int input = -1;  ///< which input it is; -1: made here
    bool is_output = false;
    std::optional<std::array<char, 8>> constant = {};  ///< the element that it begins with, of one element
    int first = -1, last = -1;                         ///< launches that use it
  };

  int slot_of(const Tensor& x);
  void check_sources() const;
  void find_slots();
  void add_kernel(const std::vector<int>& steps);
  void add_step(int step);
  void add_product(int product, std::vector<int> steps);
  void run_step(const Launch& launch, const std::vector<Tensor>& memory) const;
  void find_lives();

  Trace trace_;
  Graph graph_;
  Device device_;
  Plan plan_;
  std::vector<Slot> slots_;
  std::map<const Storage*, int> slots_by_storage_;
  std::vector<bool> written_;
  std::vector<size_t> alignments_;  // of inputs
  std::vector<std::unique_ptr<Launch>> launches_;
  std::vector<std::pair<int, Tensor>> outputs_;  // slot, layout
};

/// The largest power of two, up to 128, that divides the address of x's first element.
size_t alignment_of(const Tensor& x);

}  // namespace tenor::fusion
