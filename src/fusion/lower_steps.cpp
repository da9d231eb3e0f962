// Instructions of a lowered kernel, each asked for at the places where its step's result is seen.
#include <algorithm>

#include "src/core/layout.h"
#include "src/core/text.h"
#include "src/fusion/lowering.h"
#include "src/fusion/program_checks.h"

namespace tenor::fusion {

using core::text;
using Kind_ = Instruction::Kind;  // Kind is a step's

int Lowering::get(int v, const Seen& seen, DType dtype) {
  std::vector<int64_t> key{v, static_cast<int64_t>(dtype), seen.offset};
  key.insert(key.end(), seen.strides.begin(), seen.strides.end());
  if (const auto at = known_.find(key); at != known_.end()) return at->second;
  const int producer = value(v).producer;
  const bool here = producer >= 0 && inside_.count(producer);
  if (here && value(v).made.dtype() != dtype) throw Refusal{"a view between them has another dtype"};
  const int made = here ? make(v, seen) : load(v, seen, dtype);
  known_.emplace(key, made);
  return made;
}

int Lowering::argument(int v, DType dtype, bool written) {
  int first = v;  // what is written over lies in the same memory
  while (value(first).previous >= 0) first = value(first).previous;
  const auto [at, is_new] = arguments_.emplace(first, static_cast<int>(out_.arguments.size()));
  if (is_new) out_.arguments.push_back(first), out_.program.arguments.push_back({dtype, 1});
  Argument& argument = out_.program.arguments[static_cast<size_t>(at->second)];
  if (argument.dtype != dtype) throw Refusal{"an array is seen in two dtypes"};
  argument.written = argument.written || written;
  return at->second;
}

int Lowering::add(Instruction made) {
  int phase = 0;
  for (int in : made.inputs) {
    const Instruction& from = out_.program.code[static_cast<size_t>(in)];
    phase = std::max(phase, from.phase + (from.kind == Kind_::kReduce));
  }
  made.phase = phase;
  if (out_.program.code.size() > 4 * steps_.size() + 256)
    throw Refusal{"one kernel would compute its values again for too many views of them"};
  if (made.varies.empty()) {
    made.varies.assign(axes(), false);
    for (int in : made.inputs)
      for (size_t a = 0; a < axes(); ++a)
        if (out_.program.code[static_cast<size_t>(in)].varies[a]) made.varies[a] = true;
  }
  auto& code = out_.program.code;
  for (size_t i = 0; i < code.size(); ++i)
    if (same_value(code[i], made)) return static_cast<int>(i);
  code.push_back(std::move(made));
  return static_cast<int>(code.size()) - 1;
}

int Lowering::load(int v, const Seen& seen, DType dtype) {
  Instruction made{Kind_::kLoad, dtype};
  made.array = {argument(v, dtype, false), seen.offset, seen.strides};
  made.varies.assign(axes(), false);
  for (size_t a = 0; a < axes(); ++a) made.varies[a] = seen.strides[a] != 0;
  return add(std::move(made));
}

int Lowering::convert(int from, DType dtype, int step) {
  if (out_.program.code[static_cast<size_t>(from)].dtype == dtype) return from;
  Instruction made{Kind_::kConvert, dtype, {from}};
  made.step = step;
  return add(std::move(made));
}

int Lowering::make(int v, const Seen& seen) {
  const int step = value(v).producer;
  const Node& n = node(step);
  const Place* out = nullptr;
  for (const Place& p : n.outputs)
    if (p.value == v) out = &p;
  const Tensor& made = out->tensor;
  Index at = index_of(made, seen);
  const core::Recipe* r = n.step->recipe.get();
  if (n.kind == Kind::kJoin) throw Refusal{text("{} lays its pieces side by side in memory", n.step->op)};
  if (const auto* recipe = dynamic_cast<const elementwise::Recipe*>(r)) return map(n, *recipe, at);
  if (const auto* recipe = dynamic_cast<const reduce::Recipe*>(r)) return reduce(n, *recipe, at);
  if (const auto* recipe = dynamic_cast<const index::GatherRecipe*>(r)) return gather(n, recipe->form, at);
  if (const auto* recipe = dynamic_cast<const elementwise::Fill*>(r)) {
    Instruction fill{Kind_::kScalar, made.dtype()};
    fill.element = recipe->element, fill.varies.assign(axes(), false);
    return add(std::move(fill));
  }
  const Place& in = n.inputs[0];
  if (dynamic_cast<const elementwise::Reorder*>(r)) {
    const Tensor flat = in.tensor.with_layout(in.tensor.shape(), contiguous_strides(in.tensor.shape()), made.offset());
    at = index_of(flat, seen);
  }
  const int from = get(in.value, operand(in.tensor, at, at.size()), in.tensor.dtype());
  return convert(from, made.dtype(), step);
}

int Lowering::map(const Node& n, const elementwise::Recipe& recipe, const Index& at) {
  const int step = static_cast<int>(&n - graph_.nodes.data());
  Instruction made{Kind_::kMap, n.outputs[0].tensor.dtype()};
  made.step = step;
  for (int i = 0; i < recipe.arity; ++i) {
    const elementwise::Source& source = recipe.sources[static_cast<size_t>(i)];
    if (source.input < 0) {
      Instruction scalar{Kind_::kScalar, source.dtype};
      scalar.element = source.element, scalar.varies.assign(axes(), false);
      made.inputs.push_back(add(std::move(scalar)));
    } else {
      const Place& in = n.inputs[static_cast<size_t>(source.input)];
      made.inputs.push_back(get(in.value, operand(in.tensor, at, at.size()), in.tensor.dtype()));
    }
    made.map.compute[static_cast<size_t>(i)] = source.compute;
  }
  made.map.op = recipe.op, made.map.fn = recipe.fn, made.map.computed = recipe.computed;
  made.map.params = recipe.params, made.map.has_params = recipe.has_params;
  return add(std::move(made));
}

int Lowering::reduce(const Node& n, const reduce::Recipe& recipe, const Index& at) {
  const Place& in = n.inputs[0];
  const Tensor& out = n.outputs[0].tensor;
  const auto gone = [&](int d) { return std::find(recipe.dims.begin(), recipe.dims.end(), d) != recipe.dims.end(); };
  Index index(static_cast<size_t>(in.tensor.ndim()), nowhere());
  Instruction made{Kind_::kReduce, out.dtype()};
  made.step = static_cast<int>(&n - graph_.nodes.data());
  made.reduce = {recipe.op, recipe.accumulator, recipe.power, recipe.correction};
  const bool keepdim = out.ndim() == in.tensor.ndim();
  for (int d = 0, o = 0; d < in.tensor.ndim(); ++d) {
    if (!gone(d)) {
      index[static_cast<size_t>(d)] = at[static_cast<size_t>(o++)];
      continue;
    }
    o += keepdim;
    if (in.tensor.shape(d) == 1) continue;
    index[static_cast<size_t>(d)]
        .strides[static_cast<size_t>(known_axes_.at(graph_.axes.find(in.axes[static_cast<size_t>(d)])))] = 1;
  }
  for (int64_t d : core::in_memory_order(in.tensor, recipe.dims)) {
    made.reduce.count *= in.tensor.shape(static_cast<int>(d));
    if (in.tensor.shape(static_cast<int>(d)) > 1)
      made.reduce.axes.push_back(known_axes_.at(graph_.axes.find(in.axes[static_cast<size_t>(d)])));
  }
  for (size_t i = 0; i < made.reduce.axes.size(); ++i)
    if (std::count(made.reduce.axes.begin(), made.reduce.axes.end(), made.reduce.axes[i]) > 1)
      throw Refusal{text("{} has one axis in two dims", n.step->op)};
  for (const Seen& kept : at)
    for (int axis : made.reduce.axes)
      if (kept.strides[static_cast<size_t>(axis)] != 0) throw Refusal{"rows meet other rows here"};
  made.inputs = {get(in.value, operand(in.tensor, index, index.size()), in.tensor.dtype())};
  made.varies = out_.program.code[static_cast<size_t>(made.inputs[0])].varies;
  for (int axis : made.reduce.axes) made.varies[static_cast<size_t>(axis)] = false;
  return add(std::move(made));
}

/// An operand that other places of the same kernel cannot have made: which of them it reads, data says.
const Place& Lowering::in_memory(const Node& n, size_t input) const {
  const Place& in = n.inputs[input];
  for (int v = in.value; v >= 0; v = value(v).previous)
    if (const int by = value(v).producer; by >= 0 && inside_.count(by))
      throw Refusal{text("{} reads places that data names, so what it reads is in memory", n.step->op)};
  return in;
}

int Lowering::gather(const Node& n, const index::GatherForm& form, const Index& at) {
  const Place &table = in_memory(n, form.table), &index = in_memory(n, form.index);
  if (!index.tensor.is_contiguous())
    throw Refusal{text("the indices of {} are copied first: they do not lie in row-major order", n.step->op)};
  if (table.tensor.ndim() == 0) throw Refusal{text("{} reads a 0-d array", n.step->op)};
  const auto dim = static_cast<size_t>(form.dim), rank = static_cast<size_t>(table.tensor.ndim());
  const size_t places = form.along ? 1 : at.size() + 1 - rank;  // dims of the result in place of dim
  Seen seen{table.tensor.offset(), Dims(axes(), 0)};
  for (size_t d = 0; d < rank; ++d) {
    if (d == dim || table.tensor.shape()[d] == 1) continue;
    const Seen& from = at[d < dim ? d : d + places - 1];
    seen.offset += from.offset * table.tensor.strides()[d];
    for (size_t a = 0; a < axes(); ++a) seen.strides[a] += from.strides[a] * table.tensor.strides()[d];
  }
  const Index named =
      form.along ? at : Index(at.begin() + static_cast<long>(dim), at.begin() + static_cast<long>(dim + places));
  Instruction made{Kind_::kGather, n.outputs[0].tensor.dtype()};
  made.step = static_cast<int>(&n - graph_.nodes.data());
  made.inputs = {get(index.value, operand(index.tensor, named, named.size()), index.tensor.dtype())};
  made.array = {argument(table.value, table.tensor.dtype(), false), seen.offset, seen.strides};
  made.gather = {form.op,
                 form.argument,
                 table.tensor.shape()[dim],
                 table.tensor.strides()[dim],
                 form.along && index.tensor.ndim() == 0 ? Dims{1} : index.tensor.shape(),
                 index.tensor.offset()};
  made.varies = out_.program.code[static_cast<size_t>(made.inputs[0])].varies;
  for (size_t a = 0; a < axes(); ++a) made.varies[a] = made.varies[a] || seen.strides[a] != 0;
  return add(std::move(made));
}

}  // namespace tenor::fusion
