// explain: what operators on these shapes cost, what bounds them, and what fusing them would save, before anything
// runs.
//
//     Explanation e = explain([](Tensor x) { return div(x, sum(x, {.dim = Dims{-1}, .keepdim = true})); },
//                             Tensor::empty({4096, 8192}, bfloat16, {DeviceType::kMeta}));
//     std::puts(to_string(e).c_str());
//
// Counting: views nothing; elementwise 1 FLOP an output element; reductions 1 an input element; index and order steps
// 0; contractions 2 a multiply-add (1 where nothing is summed) and 1 an output element for a bias. Operands count by
// distinct elements; of a read at places that data names, no more than what comes out. bytes_needed is the inputs once
// and the outputs once; bytes_moved is what the plan's kernels read and write.
#pragma once

#include <functional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "tenor/tensor.h"

namespace tenor {

/// What explain() says.
struct Explanation {
  struct Step {
    std::string op;
    int op_class;  ///< 1 view, 2 elementwise, 3 reduction or scan, 4 index, 5 contraction
    Dims shape;    ///< of its first result
    DType dtype;
    bool view;  ///< no copy: the result is the operand's memory
    int64_t bytes_read, bytes_written, flops;
    std::string bound;        ///< "memory", "compute" or "none"
    double floor_us;          ///< the least time that the device's limits allow
    double time_us = 0;       ///< measured; 0 before
    double share = 0;         ///< floor_us / time_us: the share of the limit; 0 before
    std::string note = {};    ///< why the result has its shape
    std::string source = {};  ///< the text that it comes from, where there is one
  };
  struct Kernel {
    std::vector<int> steps;  ///< each step is in one kernel
    int64_t bytes_read, bytes_written;
    double floor_us;
    /// The one that the device's candidates choose, "fused" for several steps; empty where there is one way.
    std::string strategy;
    std::vector<std::string> declined;  ///< "name: reason" of each strategy passed over
    double predicted_us = 0;            ///< what it is expected to take, its start included; floor_us at least
  };
  struct Cut {
    int before, after;  ///< the step whose result passes through memory, a step that reads it
    std::string reason;
  };
  struct Copy {
    int step;
    int64_t bytes;
    std::string reason;
  };
  struct Promotion {
    int step;
    std::vector<DType> dtypes;  ///< of the operands
    DType to;                   ///< what they meet in
  };
  /// A rate of the device.
  struct Limit {
    std::string name;  ///< "memory copy", "float32", "16-bit products"
    double value;      ///< a second
    std::string unit;  ///< "B/s" or "FLOP/s"
    std::string
        source;  ///< "measured" (on this machine, or on one of a model that is built in), "data sheet" or "assumed"
  };

  std::string device;         ///< whose limits the floors are of
  std::string device_source;  ///< what it is, and where its limits come from
  std::vector<Limit> limits;
  std::vector<Step> steps;
  std::vector<Kernel> kernels;
  std::vector<Cut> cuts;
  std::vector<Copy> copies;  ///< that operators make on their own
  std::vector<Promotion> promotions;
  std::vector<int> intermediates;  ///< steps whose result reaches memory, outputs excluded
  int64_t flops = 0, bytes_needed = 0, bytes_moved = 0;
  std::vector<std::string> remarks;  ///< on the whole: how it was measured, memory that the device lacks
};

struct ExplainOptions {
  /// Empty: where the inputs are, the CPU for shapes. "cpu", "cuda", "cuda:1": of this machine, measured; "h200",
  /// "h100", "a100": their limits and what their kernels take, no such device needed.
  std::string device = {};
  /// Also runs fn on the device, on copies of the inputs, several times, and states each step's time.
  bool measure = false;
  /// The plan of fuse() with FuseOptions::fast; what is measured stays step by step.
  bool fast = false;
};

/// Traces fn on shapes alone: it is called with tensors of the inputs' shapes, strides and dtypes on the meta device,
/// so nothing is computed or allocated unless `measure`. Tensors on the meta device may be given as inputs; measured,
/// they are random numbers in [0, 1), integers zeros. fn must not capture tensors of another device.
///
/// Measuring. On the CPU a clock takes each step's least time of at least three runs. On CUDA events on the current
/// stream stand before and after each step, and the median of at least ten runs counts, after two that do not (plans,
/// modules, memory). Nothing waits inside a run, except an operator whose result's size depends on data. Before each
/// step the L2 cache is filled with something else, so that it reads from memory, as its floor has it, also what the
/// step before has just written. A step takes a few microseconds however small it is.
/// @throws ValueError for an unknown device, or one that is not here with `measure`; DeviceError for "cuda" where there
/// is none; and whatever fn throws.
Explanation explain(const std::function<std::vector<Tensor>(const std::vector<Tensor>&)>& fn,
                    const std::vector<Tensor>& inputs, const ExplainOptions& options = {});

/// The same for a function of tensors that returns one tensor: explain(fn, x, w).
template <class Fn, class... Inputs>
requires(std::is_invocable_r_v<Tensor, Fn&, Inputs...>) Explanation explain(Fn&& fn, const Inputs&... inputs) {
  return explain(
      [&](const std::vector<Tensor>& given) {
        const auto call = [&]<size_t... I>(std::index_sequence<I...>) { return std::vector<Tensor>{fn(given[I]...)}; };
        return call(std::index_sequence_for<Inputs...>{});
      },
      std::vector<Tensor>{inputs...});
}

/// A table of at most `width` columns; `color` adds terminal colours.
std::string to_string(const Explanation& explanation, int width = 100, bool color = false);

}  // namespace tenor
