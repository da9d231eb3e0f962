#include "src/fusion/program_checks.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace tenor::fusion {

using Kind = Instruction::Kind;

namespace {

/// Whether what is loaded is needed along more axes than it varies along, or copied as it is.
bool read_elsewhere(const Program& p, int load) {
  const auto& along = p.code[static_cast<size_t>(load)].varies;
  for (const Instruction& i : p.code)
    if (std::count(i.inputs.begin(), i.inputs.end(), load) && i.varies != along) return true;
  return std::any_of(p.stores.begin(), p.stores.end(), [&](const Store& s) { return s.value == load; });
}

/// Whether `distance` is a sum of strides times whole numbers below the sizes: whether a place of an array is one of
/// the same array moved by it. `order`: axes, the widest stride first.
bool meets(const Program& p, const Dims& strides, const std::vector<size_t>& order, size_t from, int64_t distance) {
  if (from == order.size()) return distance == 0;
  int64_t reach = 0;
  for (size_t i = from + 1; i < order.size(); ++i) reach += strides[order[i]] * (p.axes[order[i]].size - 1);
  const int64_t stride = strides[order[from]], most = p.axes[order[from]].size - 1;
  // Steps that bring what is left within the reach of the others.
  const int64_t first = std::max(-most, (distance - reach) / stride - 1),
                last = std::min(most, (distance + reach) / stride + 1);
  if (last - first > 8) return true;  // strides that are no nest
  for (int64_t n = first; n <= last; ++n)
    if (std::abs(distance - n * stride) <= reach && meets(p, strides, order, from + 1, distance - n * stride))
      return true;
  return false;
}

/// Whether two results of one array have no place in common, as far as is easily seen.
bool are_apart(const Program& p, const Array& a, const Array& b) {
  if (a.strides != b.strides) return false;
  std::vector<size_t> order;
  for (size_t i = 0; i < a.strides.size(); ++i) {
    if (a.strides[i] < 0) return false;
    if (a.strides[i] > 0) order.push_back(i);
  }
  std::sort(order.begin(), order.end(), [&](size_t x, size_t y) { return a.strides[x] > a.strides[y]; });
  return !meets(p, a.strides, order, 0, a.offset - b.offset);
}

/// Arrays that are written are read at the same places only, and in kernels without reductions.
std::string why_not_in_place(const Program& p) {
  for (const Store& store : p.stores) {
    for (const Store& other : p.stores)
      if (&other != &store && other.array.argument == store.array.argument && !are_apart(p, store.array, other.array))
        return "two results lie in one array";
    for (size_t i = 0; i < p.code.size(); ++i) {
      const Instruction& read = p.code[i];
      if (read.kind == Kind::kGather &&
          (read.array.argument == store.array.argument ||
           p.code[static_cast<size_t>(read.inputs[0])].array.argument == store.array.argument))
        return "an in-place step would write over what the same kernel gathers";
      if (read.kind != Kind::kLoad || read.array.argument != store.array.argument) continue;
      if (read.array.offset != store.array.offset || read.array.strides != store.array.strides || p.phases > 0 ||
          read_elsewhere(p, static_cast<int>(i)))
        return "an in-place step would write over what the same kernel still reads";
    }
  }
  return {};
}

/// Every result varies along all kept axes, and, without reductions, some along all.
std::string why_not_covered(const Program& p) {
  bool whole = p.phases > 0;
  for (const Store& store : p.stores) {
    bool all = true;
    for (size_t a = 0; a < p.axes.size(); ++a) {
      const bool along = store.array.strides[a] != 0 || p.axes[a].size == 1;
      all = all && along;
      if (p.phases > 0 && !p.axes[a].reduced && !along) return "a result does not lie in the rows that are reduced";
    }
    whole = whole || all;
  }
  return whole ? "" : "their results have no shape in common";
}

/// A reduction runs for every point of the kept axes. Where its result is the same along some of them, its elements
/// would be read again for each of their places, unless others that vary along all are taken up beside them anyway.
std::string why_not_once(const Program& p) {
  for (const Instruction& made : p.code) {
    if (made.kind != Kind::kReduce) continue;
    const auto covers = [&](const Instruction& i) {
      for (size_t a = 0; a < p.axes.size(); ++a)
        if (p.axes[a].size > 1 && !p.axes[a].reduced && !i.varies[a]) return false;
      return std::all_of(made.reduce.axes.begin(), made.reduce.axes.end(),
                         [&](int a) { return i.varies[static_cast<size_t>(a)]; });
    };
    if (std::none_of(p.code.begin(), p.code.end(), covers))
      return "what is reduced would be read again for each place of a dim that it does not have";
  }
  return {};
}

}  // namespace

/// Whether two instructions of one program give the same value.
bool same_value(const Instruction& a, const Instruction& b) {
  if (a.kind != b.kind || a.dtype != b.dtype || a.inputs != b.inputs || a.varies != b.varies) return false;
  switch (a.kind) {
    case Kind::kLoad:
      return a.array.argument == b.array.argument && a.array.offset == b.array.offset &&
             a.array.strides == b.array.strides;
    case Kind::kGather:
      return a.array.argument == b.array.argument && a.array.offset == b.array.offset &&
             a.array.strides == b.array.strides && a.gather.size == b.gather.size &&
             a.gather.stride == b.gather.stride && a.gather.index_offset == b.gather.index_offset &&
             a.gather.index_shape == b.gather.index_shape;
    case Kind::kScalar:
      return std::memcmp(a.element.data(), b.element.data(), item_size(a.dtype)) == 0;
    case Kind::kMap:
      return a.map.op == b.map.op && a.map.fn == b.map.fn && a.map.computed == b.map.computed &&
             std::equal(a.map.compute.begin(), a.map.compute.begin() + static_cast<long>(a.inputs.size()),
                        b.map.compute.begin()) &&
             a.map.has_params == b.map.has_params &&
             (!a.map.has_params || std::memcmp(a.map.params.data(), b.map.params.data(), sizeof(a.map.params)) == 0);
    case Kind::kConvert:
      return true;
    case Kind::kReduce:
      return a.reduce.op == b.reduce.op && a.reduce.accumulator == b.reduce.accumulator &&
             a.reduce.power == b.reduce.power && a.reduce.correction == b.reduce.correction &&
             a.reduce.axes == b.reduce.axes && a.reduce.count == b.reduce.count;
  }
  return false;
}

std::string why_not_safe(const Program& program) {
  for (const auto& check : {why_not_in_place, why_not_covered, why_not_once})
    if (std::string why = check(program); !why.empty()) return why;
  return {};
}

}  // namespace tenor::fusion
