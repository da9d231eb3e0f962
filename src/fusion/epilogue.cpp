#include "src/fusion/epilogue.h"

#include <algorithm>

#include "src/core/numeric.h"
#include "src/core/text.h"
#include "src/core/visit.h"
#include "src/fusion/lower.h"

namespace tenor::fusion {
namespace {

using core::text;
using Kind_ = Instruction::Kind;

struct Refused {
  std::string reason;
};

bool is_narrow_float(DType dtype) { return dtype == float32 || dtype == bfloat16 || dtype == float16; }

float float_of(const Instruction& scalar) {
  return core::visit(scalar.dtype, [&]<class T>() {
    T element;
    std::memcpy(&element, scalar.element.data(), sizeof(T));
    return core::cast<float>(element);
  });
}

/// Reads the chain out of a lowered kernel.
class Chain {
 public:
  Chain(const Graph& graph, const Lowered& lowered, const Tensor& sums, int value)
      : graph_(graph), lowered_(lowered), program_(lowered.program), sums_(sums) {
    find_sum(value);
    find_axes();
    for (size_t i = static_cast<size_t>(y_) + 1; i < program_.code.size(); ++i) follow(static_cast<int>(i));
    if (taken_.chain.steps.empty()) throw Refused{"it has no step that a product takes"};
    if (program_.stores.size() != 1 || program_.stores[0].value != y_)
      throw Refused{"the kernel behind it stores more than the end of one chain"};
    taken_.out = seen(program_.stores[0].array);
  }
  TakenEpilogue taken() && { return std::move(taken_); }

 private:
  const Instruction& code(int i) const { return program_.code[static_cast<size_t>(i)]; }
  int value_of(const Array& array) const { return lowered_.arguments[static_cast<size_t>(array.argument)]; }

  void find_sum(int value) {
    for (size_t i = 0; i < program_.code.size(); ++i) {
      if (program_.code[i].kind != Kind_::kLoad || value_of(program_.code[i].array) != value) continue;
      if (y_ >= 0) throw Refused{"the kernel behind it reads it at several places"};
      y_ = static_cast<int>(i);
    }
    if (y_ < 0) throw Refused{"the kernel behind it reads it by other means"};
  }

  /// Which axis of the kernel runs along each of the result's dims.
  void find_axes() {
    const Array& array = code(y_).array;
    size_t matched = 0;
    for (int d = 0; d < sums_.ndim(); ++d) {
      axis_.push_back(-1);
      for (size_t a = 0; a < program_.axes.size() && sums_.shape(d) > 1; ++a)
        if (array.strides[a] == sums_.stride(d) && program_.axes[a].size == sums_.shape(d))
          axis_.back() = static_cast<int>(a), ++matched;
    }
    const auto wide = static_cast<size_t>(
        std::count_if(program_.axes.begin(), program_.axes.end(), [](const Axis& axis) { return axis.size > 1; }));
    const auto dims = static_cast<size_t>(
        std::count_if(sums_.shape().begin(), sums_.shape().end(), [](int64_t size) { return size > 1; }));
    if (array.offset != 0 || matched != dims || wide != dims)
      throw Refused{"the kernel behind it sees it in another shape, or a part of it"};
  }

  /// An array of the kernel as a tensor of the result's shape.
  Tensor seen(const Array& array) const {
    const Tensor& made = graph_.values[static_cast<size_t>(value_of(array))].made;
    if (program_.arguments[static_cast<size_t>(array.argument)].dtype != made.dtype())
      throw Refused{"a view between them has another dtype"};
    Dims strides;
    for (int axis : axis_) strides.push_back(axis < 0 ? 0 : array.strides[static_cast<size_t>(axis)]);
    return made.with_layout(sums_.shape(), strides, array.offset);
  }

  int other_of(int i, contract::EpilogueStep& step) {
    while (code(i).kind == Kind_::kConvert && is_narrow_float(code(i).dtype)) i = code(i).inputs[0];
    if (code(i).kind == Kind_::kScalar) return step.scalar = float_of(code(i)), -1;
    if (code(i).kind != Kind_::kLoad || !is_narrow_float(code(i).dtype))
      throw Refused{"what meets its result is no number and no float array in memory"};
    taken_.operands.push_back(seen(code(i).array));
    return static_cast<int>(taken_.operands.size()) - 1;
  }

  void follow(int i) {
    const Instruction& in = code(i);
    const auto uses = std::count(in.inputs.begin(), in.inputs.end(), y_);
    for (int input : in.inputs)
      if (input != y_ && std::find(passed_.begin(), passed_.end(), input) != passed_.end())
        throw Refused{"what follows reads a step of the chain twice"};
    if (uses == 0) return;
    if (in.kind != Kind_::kMap && in.kind != Kind_::kConvert)
      throw Refused{in.kind == Kind_::kReduce ? "a reduction follows" : "a gather follows"};
    if (!is_narrow_float(in.dtype)) throw Refused{"a step of the chain gives another dtype than a float's"};
    passed_.push_back(std::exchange(y_, i));
    if (in.kind == Kind_::kConvert) return;
    contract::EpilogueStep step{in.map.op, in.inputs.size() == 1};
    if (uses != 1 || in.inputs.size() > 2 || in.map.has_params || !is_narrow_float(in.map.computed) ||
        !contract::is_epilogue_op(step.op, step.alone))
      throw Refused{text("{} is no epilogue step", elementwise::row(step.op).name)};
    if (!step.alone) {
      step.reversed = in.inputs[1] == passed_.back();
      step.operand = other_of(in.inputs[step.reversed ? 0 : 1], step);
    }
    taken_.chain.steps.push_back(step);
  }

  const Graph& graph_;
  const Lowered& lowered_;
  const Program& program_;
  const Tensor& sums_;
  int y_ = -1;
  std::vector<int> passed_;  // registers that the chain has left behind
  std::vector<int> axis_;
  TakenEpilogue taken_;
};

}  // namespace

const contract::ProductRecipe* TakenEpilogue::recipe_of(const core::Step& step) {
  return dynamic_cast<const contract::ProductRecipe*>(step.recipe.get());
}

int product_of(const Graph& graph, const std::vector<int>& steps) {
  int running = 0, product = -1;
  for (int s : steps) {
    const Node& n = graph.nodes[static_cast<size_t>(s)];
    running += n.kind != Kind::kView;
    if (n.kind == Kind::kOther && TakenEpilogue::recipe_of(*n.step)) product = s;
  }
  return running > 1 ? product : -1;
}

TakenEpilogue take_epilogue(const Graph& graph, int product, const std::vector<int>& steps) {
  const core::Step& step = *graph.nodes[static_cast<size_t>(product)].step;
  const contract::ProductRecipe* recipe = TakenEpilogue::recipe_of(step);
  if (!recipe) return {.reason = text("{} takes no epilogue", step.op)};
  const Place& made = graph.nodes[static_cast<size_t>(product)].outputs[0];
  if (graph.values[static_cast<size_t>(made.value)].previous >= 0)
    return {.reason = text("{} writes to an array that was there before", step.op)};
  for (int s : steps)
    if (graph.nodes[static_cast<size_t>(s)].kind == Kind::kOther)
      return {.reason = "the kernel behind it is another contraction's epilogue"};
  const Lowered lowered = lower(graph, steps);
  if (!lowered.reason.empty()) return {.reason = lowered.reason};
  try {
    TakenEpilogue taken = Chain(graph, lowered, made.tensor, made.value).taken();
    for (const Tensor& x : step.inputs)
      if (x.defined() && x.storage() == taken.out.storage()) throw Refused{"what follows writes over its operands"};
    taken.reason = recipe->why_no_epilogue(step.inputs, taken.chain, taken.operands, taken.out);
    return taken;
  } catch (const Refused& refused) {
    return {.reason = refused.reason};
  }
}

}  // namespace tenor::fusion
