#include "src/fusion/graph.h"

#include <algorithm>

#include "src/ops/index/index_recipe.h"

namespace tenor::fusion {
namespace {

using core::OpClass;

bool shares(const Tensor& a, const Tensor& b) { return a.defined() && b.defined() && a.storage() == b.storage(); }

bool is_view(const core::Step& s) {
  return s.op_class == OpClass::kView && !s.inputs.empty() &&
         std::all_of(s.outputs.begin(), s.outputs.end(), [&](const Tensor& t) { return shares(t, s.inputs[0]); });
}

Kind kind_of(const core::Step& s) {
  if (is_view(s)) return Kind::kView;
  if (dynamic_cast<const index::JoinRecipe*>(s.recipe.get())) return Kind::kJoin;
  switch (s.op_class) {
    case OpClass::kView:
    case OpClass::kElementwise:
      return Kind::kLoop;
    case OpClass::kReduction:
      return s.reduced.empty() ? Kind::kOther : Kind::kReduce;
    case OpClass::kIndex:
      return !s.reads.empty() && s.writes.empty() ? Kind::kGather : Kind::kOther;
    default:
      return Kind::kOther;
  }
}

std::vector<int64_t> layout_of(const Tensor& x) {
  std::vector<int64_t> key{x.offset()};
  for (int d = 0; d < x.ndim(); ++d) key.push_back(x.shape(d)), key.push_back(x.shape(d) > 1 ? x.stride(d) : 0);
  return key;
}

bool varies(const Tensor& x, int dim) { return x.shape(dim) > 1 && x.stride(dim) != 0; }

/// A view's dims keep the axis of the dim that has their size and stride; those cut, split or merged get one of their
/// own.
Axes axes_of_view(const Place& from, const Tensor& out, AxisTable& table) {
  Axes axes(static_cast<size_t>(out.ndim()), 0);
  std::vector<bool> used(from.axes.size(), false);
  for (int d = 0; d < out.ndim(); ++d) {
    if (!varies(out, d)) continue;
    for (int i = 0; i < from.tensor.ndim() && axes[static_cast<size_t>(d)] == 0; ++i) {
      if (used[static_cast<size_t>(i)] || from.tensor.shape(i) != out.shape(d) ||
          from.tensor.stride(i) != out.stride(d))
        continue;
      used[static_cast<size_t>(i)] = true;
      axes[static_cast<size_t>(d)] = from.axes[static_cast<size_t>(i)];
    }
    if (axes[static_cast<size_t>(d)] == 0) axes[static_cast<size_t>(d)] = table.fresh(out.shape(d));
  }
  return axes;
}

/// Of a reshape that copies: dims in front and behind that keep their sizes keep their axes.
Axes axes_of_reshape(const Place& from, const Tensor& out, AxisTable& table) {
  const int have = from.tensor.ndim(), want = out.ndim();
  Axes axes(static_cast<size_t>(want), -1);
  int front = 0, back = 0;
  while (front < std::min(have, want) && from.tensor.shape(front) == out.shape(front)) {
    axes[static_cast<size_t>(front)] = from.axes[static_cast<size_t>(front)];
    ++front;
  }
  while (back < std::min(have, want) - front && from.tensor.shape(have - 1 - back) == out.shape(want - 1 - back)) {
    axes[static_cast<size_t>(want - 1 - back)] = from.axes[static_cast<size_t>(have - 1 - back)];
    ++back;
  }
  for (int d = 0; d < want; ++d)
    if (axes[static_cast<size_t>(d)] < 0)
      axes[static_cast<size_t>(d)] = out.shape(d) > 1 ? table.fresh(out.shape(d)) : 0;
  return axes;
}

/// Dims that meet, aligned from the right, run together.
Axes axes_of_loop(const std::vector<Place>& inputs, const Tensor& out, AxisTable& table) {
  Axes axes(static_cast<size_t>(out.ndim()), 0);
  const auto taken = [&](int axis, int by) {
    for (int d = 0; d < by; ++d)
      if (axes[static_cast<size_t>(d)] != 0 && table.find(axes[static_cast<size_t>(d)]) == table.find(axis))
        return true;
    return false;
  };
  for (int d = 0; d < out.ndim(); ++d) {
    if (out.shape(d) <= 1) continue;
    int& axis = axes[static_cast<size_t>(d)];
    for (const Place& in : inputs) {
      const int at = d - out.ndim() + in.tensor.ndim();
      if (at < 0 || in.tensor.shape(at) != out.shape(d) || in.axes[static_cast<size_t>(at)] == 0) continue;
      if (taken(in.axes[static_cast<size_t>(at)], d)) continue;  // another dim of the result runs along it
      if (axis == 0)
        axis = in.axes[static_cast<size_t>(at)];
      else
        table.unite(axis, in.axes[static_cast<size_t>(at)]);
    }
    if (axis == 0) axis = table.fresh(out.shape(d));
  }
  return axes;
}

/// Pieces of one shape run together.
void unite_pieces(const std::vector<Place>& pieces, AxisTable& table) {
  for (size_t i = 1; i < pieces.size(); ++i)
    for (size_t d = 0; d < pieces[0].axes.size() && pieces[i].tensor.shape() == pieces[0].tensor.shape(); ++d)
      if (pieces[0].axes[d] != 0 && pieces[i].axes[d] != 0) table.unite(pieces[0].axes[d], pieces[i].axes[d]);
}

Axes axes_of_reduction(const Place& in, const Dims& reduced, const Tensor& out) {
  Axes axes;
  const bool keepdim = out.ndim() == in.tensor.ndim();
  for (size_t d = 0; d < in.axes.size(); ++d) {
    const bool gone = std::find(reduced.begin(), reduced.end(), static_cast<int64_t>(d)) != reduced.end();
    if (!gone)
      axes.push_back(in.axes[d]);
    else if (keepdim)
      axes.push_back(0);
  }
  return axes;
}

}  // namespace

Axes Graph::fresh_axes(const Tensor& x) {
  Axes out;
  for (int d = 0; d < x.ndim(); ++d) out.push_back(varies(x, d) ? axes.fresh(x.shape(d)) : 0);
  return out;
}

int Graph::value_of(const Tensor& x) {
  const auto [at, is_new] = current_.emplace(x.storage().get(), static_cast<int>(values.size()));
  if (is_new) values.push_back({.made = x});
  return at->second;
}

/// Axes of a layout of a value; an in-place step leaves those of the value before it.
Axes Graph::axes_of(int value, const Tensor& x) {
  const auto key = layout_of(x);
  for (int v = value; v >= 0; v = values[static_cast<size_t>(v)].previous)
    if (const auto at = known_.find({v, key}); at != known_.end()) return at->second;
  const Axes made = fresh_axes(x);
  axes.separate(made);
  known_[{value, key}] = made;
  return made;
}

Place Graph::seen(const Tensor& x) {
  const int value = value_of(x);
  return {value, x, axes_of(value, x)};
}

void Graph::add_input(Node& node, const Tensor& x, int index) {
  Place place = seen(x);
  Value& value = values[static_cast<size_t>(place.value)];
  if (node.kind != Kind::kView) {
    if (value.readers.empty() || value.readers.back() != index) value.readers.push_back(index);
    for (int v = place.value; v >= 0; v = values[static_cast<size_t>(v)].previous)
      if (const int by = values[static_cast<size_t>(v)].producer; by >= 0) node.after.insert(by);
  }
  node.inputs.push_back(std::move(place));
}

Axes Graph::axes_made(const Node& node, const Tensor& out) {
  if (node.kind == Kind::kView) return axes_of_view(node.inputs[0], out, axes);
  if (node.kind == Kind::kReduce) return axes_of_reduction(node.inputs[0], node.step->reduced, out);
  if (node.kind == Kind::kJoin) unite_pieces(node.inputs, axes);
  if (node.kind != Kind::kLoop) return fresh_axes(out);
  return node.step->op_class == OpClass::kView ? axes_of_reshape(node.inputs[0], out, axes)
                                               : axes_of_loop(node.inputs, out, axes);
}

void Graph::add_output(Node& node, const Tensor& x, int index) {
  if (!x.defined()) return;
  const Axes made = axes_made(node, x);
  int value = node.kind == Kind::kView ? node.inputs[0].value : static_cast<int>(values.size());
  if (node.kind != Kind::kView) {
    const auto before = current_.find(x.storage().get());
    Value next{.producer = index, .made = x};
    if (before != current_.end()) {  // in place: after everything that read or wrote what it writes over
      next.previous = before->second;
      Value& old = values[static_cast<size_t>(before->second)];
      old.stays = !same_layout(x, old.made);
      for (int reader : old.readers)
        if (reader != index) node.after.insert(reader);
      if (old.producer >= 0) node.after.insert(old.producer);
      node.in_place = true;
    }
    values.push_back(next);
    current_[x.storage().get()] = value;
  }
  axes.separate(made);
  known_[{value, layout_of(x)}] = made;
  node.outputs.push_back({value, x, made});
}

Graph::Graph(const std::vector<core::Step>& steps, const std::vector<Tensor>& outputs,
             const std::vector<Tensor>& inputs) {
  for (const Tensor& x : inputs) value_of(x);
  for (size_t i = 0; i < steps.size(); ++i) {
    const core::Step& step = steps[i];
    Node node{&step, kind_of(step), {}, {}};
    for (const Tensor& x : step.inputs)
      if (x.defined()) add_input(node, x, static_cast<int>(i));
    for (const Tensor& x : step.outputs) add_output(node, x, static_cast<int>(i));
    nodes.push_back(std::move(node));
  }
  for (const Tensor& x : outputs)
    if (x.defined()) values[static_cast<size_t>(value_of(x))].is_output = true;
  // What an in-place step leaves in memory from outside is a result too.
  for (const auto& [storage, value] : current_) {
    int first = value;
    while (values[static_cast<size_t>(first)].previous >= 0) first = values[static_cast<size_t>(first)].previous;
    if (first != value && values[static_cast<size_t>(first)].producer < 0)
      values[static_cast<size_t>(value)].is_output = true;
  }
}

bool same_layout(const Tensor& a, const Tensor& b) {
  if (a.shape() != b.shape() || a.offset() != b.offset()) return false;
  for (int d = 0; d < a.ndim(); ++d)
    if (a.shape(d) > 1 && a.stride(d) != b.stride(d)) return false;
  return true;
}

}  // namespace tenor::fusion
