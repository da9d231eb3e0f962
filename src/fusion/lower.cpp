// Every value is asked for where it is seen: an offset and one stride an axis, in elements of its storage. A value that
// a step of this kernel makes is asked for at an index of that step's result, which says where its operands are seen;
// so views, broadcasts and reshapes become strides, and what is left of them is where memory is read.
#include "src/fusion/lower.h"

#include <algorithm>

#include "src/core/layout.h"
#include "src/core/text.h"
#include "src/fusion/lowering.h"
#include "src/fusion/program_checks.h"

namespace tenor::fusion {

using core::text;
using Kind_ = Instruction::Kind;  // Kind is a step's

Lowered Lowering::run() {
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
    if (in.tensor.shape() != n.inputs[0].tensor.shape())
      throw Refusal{text("the pieces of {} differ in shape", n.step->op)};
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

void Lowering::finish() {
  Program& p = out_.program;
  for (const Instruction& i : p.code) {
    p.phases = std::max(p.phases, i.phase + (i.kind == Kind_::kReduce));
    if (i.step >= 0) p.name.append(p.name.empty() ? "" : "_").append(node(i.step).step->op);
  }
  if (std::string why = why_not_safe(p); !why.empty()) throw Refusal{std::move(why)};
}

Lowered lower(const Graph& graph, const std::vector<int>& steps) { return Lowering(graph, steps).run(); }

}  // namespace tenor::fusion
