// Every value is asked for where it is seen: an offset and one stride an axis, in elements of its storage. A value that
// a step of this kernel makes is asked for at an index of that step's result, which says where its operands are seen;
// so views, broadcasts and reshapes become strides, and what is left of them is where memory is read.
#include "src/fusion/lower.h"

#include <algorithm>
#include <map>

#include "src/core/layout.h"
#include "src/core/text.h"
#include "src/fusion/program_checks.h"
#include "src/ops/elementwise/elementwise_recipe.h"
#include "src/ops/index/index_recipe.h"
#include "src/ops/reduce/reduce_recipe.h"

namespace tenor::fusion {
namespace {

using core::text;
using Kind_ = Instruction::Kind;  // Kind is a step's

struct Refusal {
  std::string reason;
};

/// Where a value is seen, over the axes of the kernel.
struct Seen {
  int64_t offset = 0;
  Dims strides;  // one an axis
};

/// An index of a tensor, affine in the axes: of each dim.
using Index = std::vector<Seen>;

class Lowering {
 public:
  Lowering(const Graph& graph, const std::vector<int>& steps) : graph_(graph) {
    for (int s : steps)
      if (node(s).kind != Kind::kView) steps_.push_back(s), inside_.insert(s);
  }

  Lowered run() {
    try {
      check_steps();
      find_axes();
      for (int step : steps_) store_results(node(step));
      finish();
    } catch (const Refusal& refusal) {
      return {.reason = refusal.reason};
    }
    return std::move(out_);
  }

 private:
  const Node& node(int step) const { return graph_.nodes[static_cast<size_t>(step)]; }
  const Value& value(int v) const { return graph_.values[static_cast<size_t>(v)]; }
  size_t axes() const { return out_.program.axes.size(); }
  Seen nowhere() const { return {0, Dims(axes(), 0)}; }

  void check_steps() const;
  void find_axes();
  void add_axes(const Place& place, const std::set<int>& reduced, bool of_reduced);
  int axis_of(int axis, int64_t size);
  bool leaves(int v) const;
  bool overwritten(int v) const;
  void store_results(const Node& n);
  void store_pieces(const Node& n, const index::JoinRecipe& join);
  void finish();

  int get(int v, const Seen& seen, DType dtype);
  int load(int v, const Seen& seen, DType dtype);
  int make(int v, const Seen& seen);
  int map(const Node& n, const elementwise::Recipe& recipe, const Index& at);
  int reduce(const Node& n, const reduce::Recipe& recipe, const Index& at);
  int gather(const Node& n, const index::GatherForm& form, const Index& at);
  const Place& in_memory(const Node& n, size_t input) const;
  int convert(int from, DType dtype, int step);
  int add(Instruction made);
  int argument(int v, DType dtype, bool written);
  Index index_of(const Tensor& made, const Seen& seen) const;
  Seen operand(const Tensor& x, const Index& at, size_t rank) const;

  const Graph& graph_;
  std::vector<int> steps_;
  std::set<int> inside_;
  std::map<int, int> known_axes_;              // of the graph's table to the kernel's
  std::map<std::vector<int64_t>, int> known_;  // by value, place and dtype
  std::map<int, int> arguments_;               // by value
  Lowered out_;
};

/// Which steps have a form that a kernel can take.
void Lowering::check_steps() const {
  for (int step : steps_) {
    const core::Step& s = *node(step).step;
    const core::Recipe* r = s.recipe.get();
    const auto* taken = dynamic_cast<const reduce::Recipe*>(r);
    const bool loop = dynamic_cast<const elementwise::Recipe*>(r) || dynamic_cast<const elementwise::Copy*>(r) ||
                      dynamic_cast<const elementwise::Reorder*>(r) || dynamic_cast<const elementwise::Fill*>(r) ||
                      dynamic_cast<const index::GatherRecipe*>(r) || dynamic_cast<const index::JoinRecipe*>(r);
    if (!loop && !taken) throw Refusal{text("{} has a kernel of its own", s.op)};
    if (taken && !taken->direct) throw Refusal{text("{} converts its elements in a pass of their own", s.op)};
    for (const Tensor& x : s.outputs)
      if (x.numel() == 0) throw Refusal{text("{} has no elements here", s.op)};
    for (const Tensor& x : s.inputs)
      if (x.defined() && x.numel() == 0) throw Refusal{text("{} reads no elements here", s.op)};
  }
}

/// The kernel's axis for one of the graph's, or a new one.
int Lowering::axis_of(int axis, int64_t size) {
  axis = graph_.axes.find(axis);
  const auto [at, is_new] = known_axes_.emplace(axis, static_cast<int>(axes()));
  if (is_new) out_.program.axes.push_back({size});
  return at->second;
}

/// Those of a place in the order of its strides, the widest first.
void Lowering::add_axes(const Place& place, const std::set<int>& reduced, bool of_reduced) {
  std::vector<size_t> order(place.axes.size());
  for (size_t d = 0; d < order.size(); ++d) order[d] = d;
  const Dims memory = core::result_strides(place.tensor.shape(), place.tensor);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return memory[a] > memory[b]; });
  for (size_t d : order) {
    const int axis = place.axes[d] ? graph_.axes.find(place.axes[d]) : 0;
    if (axis == 0 || reduced.count(axis) != of_reduced) continue;
    out_.program.axes[static_cast<size_t>(axis_of(axis, place.tensor.shape(static_cast<int>(d))))].reduced = of_reduced;
  }
}

void Lowering::find_axes() {
  std::set<int> reduced;
  for (int step : steps_) {
    if (node(step).kind != Kind::kReduce) continue;
    const Place& in = node(step).inputs[0];
    for (int64_t d : node(step).step->reduced)
      if (const int axis = in.axes[static_cast<size_t>(d)]; axis != 0) reduced.insert(graph_.axes.find(axis));
  }
  // The largest results first: their order in memory is the order of the loops.
  std::vector<const Place*> places;
  for (int step : steps_) {
    const bool joins = node(step).kind == Kind::kJoin;  // whose kernel runs over one of its pieces
    for (const Place& p : joins ? node(step).inputs : node(step).outputs)
      if (joins || leaves(p.value)) places.push_back(&p);
    if (node(step).kind == Kind::kReduce) places.push_back(&node(step).inputs[0]);
  }
  std::stable_sort(places.begin(), places.end(),
                   [](const Place* a, const Place* b) { return a->tensor.numel() > b->tensor.numel(); });
  for (bool of_reduced : {false, true})
    for (const Place* p : places) add_axes(*p, reduced, of_reduced);
  for (int step : steps_) {  // a reduction over a dim that repeats one element has an axis of its own
    if (node(step).kind != Kind::kReduce) continue;
    const Place& in = node(step).inputs[0];
    for (int64_t d : node(step).step->reduced)
      if (in.axes[static_cast<size_t>(d)] == 0 && in.tensor.shape(static_cast<int>(d)) > 1)
        throw Refusal{text("{} takes up a dim that repeats elements", node(step).step->op)};
  }
  if (axes() > 8) throw Refusal{"one kernel would run over more than 8 dims"};
}

/// Whether a value is read by other kernels, is a result, or lies in one that a later step writes in part.
bool Lowering::leaves(int v) const {
  const Value& x = value(v);
  return x.is_output || x.stays || x.readers.empty() ||
         std::any_of(x.readers.begin(), x.readers.end(), [&](int r) { return !inside_.count(r); });
}

/// Whether a later step of this kernel writes the same places again.
bool Lowering::overwritten(int v) const {
  for (int s : steps_)
    for (const Place& p : node(s).outputs) {
      if (value(p.value).previous != v) continue;
      if (!same_layout(p.tensor, value(v).made)) throw Refusal{"a part of a result is written over in the same kernel"};
      return true;
    }
  return false;
}

void Lowering::store_results(const Node& n) {
  if (const auto* join = dynamic_cast<const index::JoinRecipe*>(n.step->recipe.get())) return store_pieces(n, *join);
  for (const Place& p : n.outputs) {
    const bool again = overwritten(p.value);
    if (again && value(p.value).is_output) throw Refusal{"a result is written over in the same kernel"};
    if (again && leaves(p.value) && !value(p.value).readers.empty())
      throw Refusal{"what an in-place step writes over is read by another kernel"};
    if (again || !leaves(p.value)) continue;
    Seen seen{p.tensor.offset(), Dims(axes(), 0)};
    for (int d = 0; d < p.tensor.ndim(); ++d) {
      if (p.tensor.shape(d) == 1) continue;
      const int axis = p.axes[static_cast<size_t>(d)];
      if (axis == 0) throw Refusal{text("{} writes through a view that repeats elements", n.step->op)};
      int64_t& stride = seen.strides[static_cast<size_t>(known_axes_.at(graph_.axes.find(axis)))];
      if (stride != 0) throw Refusal{text("{} has one axis in two dims", n.step->op)};
      stride = p.tensor.stride(d);
    }
    const int made = get(p.value, seen, p.tensor.dtype());
    const int to = argument(p.value, p.tensor.dtype(), true);
    out_.program.stores.push_back({made, {to, seen.offset, seen.strides}});
  }
}

/// Each piece goes to its own part of the result.
void Lowering::store_pieces(const Node& n, const index::JoinRecipe& join) {
  const Place& out = n.outputs[0];
  if (!leaves(out.value) || overwritten(out.value)) throw Refusal{"what is joined is written over in the same kernel"};
  int64_t start = 0;
  for (const Place& in : n.inputs) {
    if (in.tensor.shape() != n.inputs[0].tensor.shape()) throw Refusal{text("the pieces of {} differ in shape", n.step->op)};
    const auto rank = static_cast<size_t>(in.tensor.ndim());
    Seen to{out.tensor.offset() + start * out.tensor.stride(join.dim), Dims(axes(), 0)};
    Index at(rank, nowhere());
    for (size_t d = 0; d < rank; ++d) {
      if (in.tensor.shape()[d] == 1) continue;
      const auto axis = known_axes_.find(in.axes[d] == 0 ? 0 : graph_.axes.find(in.axes[d]));
      if (in.axes[d] == 0 || axis == known_axes_.end() || to.strides[static_cast<size_t>(axis->second)] != 0)
        throw Refusal{text("the pieces of {} do not run together", n.step->op)};
      const auto a = static_cast<size_t>(axis->second);
      to.strides[a] = out.tensor.strides()[d + (join.stacks && d >= static_cast<size_t>(join.dim))];
      at[d].strides[a] = 1;
    }
    const int made = get(in.value, operand(in.tensor, at, rank), in.tensor.dtype());
    const int value = convert(made, out.tensor.dtype(), static_cast<int>(&n - graph_.nodes.data()));
    out_.program.stores.push_back({value, {argument(out.value, out.tensor.dtype(), true), to.offset, to.strides}});
    start += join.stacks ? 1 : in.tensor.shape(join.dim);
  }
}

/// The index of `made` that shows the storage's places at `seen`, where each place is one of its elements.
Index Lowering::index_of(const Tensor& made, const Seen& seen) const {
  const auto rank = static_cast<size_t>(made.ndim());
  Index index(rank, nowhere());
  std::vector<size_t> order;
  for (size_t d = 0; d < rank; ++d)
    if (made.shape(static_cast<int>(d)) > 1) order.push_back(d);
  for (size_t d : order)
    if (made.strides()[d] == 0) throw Refusal{"a result repeats elements"};
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return made.strides()[a] > made.strides()[b]; });
  const auto split = [&](int64_t rest, auto&& put) {
    for (size_t d : order) {
      put(d, rest / made.strides()[d]);
      rest %= made.strides()[d];
    }
    return rest == 0;
  };
  bool fits = seen.offset >= made.offset() &&
              split(seen.offset - made.offset(), [&](size_t d, int64_t n) { index[d].offset = n; });
  for (size_t a = 0; a < axes(); ++a)
    fits = fits && split(seen.strides[a], [&](size_t d, int64_t n) { index[d].strides[a] = n; });
  for (size_t d = 0; fits && d < rank; ++d) {
    int64_t last = index[d].offset;
    for (size_t a = 0; a < axes(); ++a) last += index[d].strides[a] * (out_.program.axes[a].size - 1);
    fits = last < made.shape(static_cast<int>(d));
  }
  if (!fits) throw Refusal{"a view between them cuts or joins the dims that the kernel runs over"};
  return index;
}

/// Where x is seen by a step whose result, of `rank` dims, is asked for at an index.
Seen Lowering::operand(const Tensor& x, const Index& at, size_t rank) const {
  Seen seen = nowhere();
  seen.offset = x.offset();
  for (size_t d = 0; d < static_cast<size_t>(x.ndim()); ++d) {
    if (x.shape()[d] == 1) continue;
    const Seen& index = at[rank - static_cast<size_t>(x.ndim()) + d];
    seen.offset += index.offset * x.strides()[d];
    for (size_t a = 0; a < axes(); ++a) seen.strides[a] += index.strides[a] * x.strides()[d];
  }
  return seen;
}

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
  const auto rule = elementwise::row(recipe.op).rule;
  made.map.mixed = rule == elementwise::Rule::kCompare && recipe.arity == 2 &&
                   recipe.sources[0].compute != recipe.sources[1].compute;
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
  const Index named = form.along ? at : Index(at.begin() + static_cast<long>(dim), at.begin() + static_cast<long>(dim + places));
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

void Lowering::finish() {
  Program& p = out_.program;
  for (const Instruction& i : p.code) {
    p.phases = std::max(p.phases, i.phase + (i.kind == Kind_::kReduce));
    if (i.step >= 0) p.name.append(p.name.empty() ? "" : "_").append(node(i.step).step->op);
  }
  if (std::string why = why_not_safe(p); !why.empty()) throw Refusal{std::move(why)};
}

}  // namespace

Lowered lower(const Graph& graph, const std::vector<int>& steps) { return Lowering(graph, steps).run(); }

}  // namespace tenor::fusion
