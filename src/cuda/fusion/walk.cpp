#include "src/cuda/fusion/walk.h"

#include <algorithm>
#include <cstdlib>

namespace tenor::cuda {
namespace {

using fusion::Array;
using fusion::Instruction;
using fusion::Program;

WalkArray walk_array(const Program& program, const Array& array) {
  return {array.argument, program.arguments[static_cast<size_t>(array.argument)].dtype, array.offset, array.strides};
}

std::vector<WalkArray> arrays_of(const Program& program, std::vector<int>& array_of) {
  std::vector<WalkArray> arrays;
  for (const Instruction& in : program.code) {
    const bool gathers = in.kind == Instruction::Kind::kGather, loads = gathers || in.kind == Instruction::Kind::kLoad;
    array_of.push_back(loads ? static_cast<int>(arrays.size()) : -1);
    if (loads) arrays.push_back(walk_array(program, in.array));
    if (gathers) {
      arrays.back().index = array_of[static_cast<size_t>(in.inputs[0])];
      arrays.back().place_stride = in.gather.stride;
    }
  }
  for (const fusion::Store& store : program.stores) arrays.push_back(walk_array(program, store.array));
  return arrays;
}

/// Whether every array goes on from one element of dim `outer` to the next as it does along `inner`.
bool merges(const std::vector<WalkArray>& arrays, size_t outer, size_t inner, int64_t inner_size) {
  return std::all_of(arrays.begin(), arrays.end(),
                     [&](const WalkArray& a) { return a.stride[outer] == a.stride[inner] * inner_size; });
}

void drop_dim(Walk& walk, size_t d) {
  walk.size.erase(d);
  for (WalkArray& a : walk.arrays) a.stride.erase(d);
  if (static_cast<int>(d) < walk.kept) --walk.kept;
}

void merge_dims(Walk& walk) {
  for (size_t d = walk.size.size(); d-- > 0;)
    if (walk.size[d] == 1) drop_dim(walk, d);
  for (size_t d = walk.size.size(); d-- > 1;) {
    const bool same_group = (static_cast<int>(d) < walk.kept) == (static_cast<int>(d) - 1 < walk.kept);
    if (!same_group || !merges(walk.arrays, d - 1, d, walk.size[d])) continue;
    // The outer dim goes; the inner one's strides stay.
    walk.size[d] *= walk.size[d - 1];
    drop_dim(walk, d - 1);
  }
}

void find_varies(const Program& program, Walk& walk) {
  for (size_t i = 0; i < program.code.size(); ++i) {
    const Instruction& in = program.code[i];
    std::vector<bool> varies(walk.size.size(), false);
    for (size_t d = 0; d < varies.size(); ++d) {
      if (const int a = walk.array_of[i]; a >= 0) varies[d] = walk.arrays[static_cast<size_t>(a)].stride[d] != 0;
      for (int input : in.inputs) varies[d] = varies[d] || walk.varies[static_cast<size_t>(input)][d];
      if (in.kind == Instruction::Kind::kReduce && static_cast<int>(d) >= walk.kept) varies[d] = false;
    }
    walk.varies.push_back(std::move(varies));
  }
}

int64_t product_of(const Dims& size, int from, int to) {
  int64_t n = 1;
  for (int d = from; d < to; ++d) n *= size[static_cast<size_t>(d)];
  return n;
}

/// Whether accesses of `width` elements at this array's places along the innermost dim are aligned.
bool takes_width(const Program& program, const Walk& walk, const WalkArray& a, int width) {
  if (!walk.is_dense(a)) return true;  // single elements
  const auto item = static_cast<int64_t>(item_size(a.dtype));
  const int64_t bytes = std::min<int64_t>(16, width * item);
  if (program.arguments[static_cast<size_t>(a.argument)].alignment % static_cast<size_t>(bytes) != 0) return false;
  if (a.offset * item % bytes != 0 || a.place_stride * item % bytes != 0) return false;
  return std::all_of(a.stride.begin(), a.stride.end() - 1, [&](int64_t s) { return s * item % bytes == 0; });
}

}  // namespace

int64_t Walk::rows() const { return product_of(size, 0, kept); }
int64_t Walk::length() const { return product_of(size, kept, ndim()); }

bool Walk::varies_in_row(int instruction) const {
  const auto& v = varies[static_cast<size_t>(instruction)];
  return std::find(v.begin() + kept, v.end(), true) != v.end();
}

bool Walk::is_dense(const WalkArray& a) const {
  return a.stride.back() == 1 && (a.index < 0 || arrays[static_cast<size_t>(a.index)].stride.back() == 0);
}

bool Walk::is_wide() const {
  constexpr int64_t kMost = INT32_MAX - (int64_t{1} << 20);  // places behind the last that idle threads count
  int64_t places = product_of(size, 0, ndim());
  bool wide = places > kMost;
  for (const WalkArray& a : arrays) {
    int64_t reach = 0;
    for (size_t d = 0; d < size.size(); ++d) reach += std::abs(a.stride[d]) * (size[d] - 1);
    wide = wide || reach > kMost;
  }
  return wide;
}

Walk walk_of(const Program& program) {
  Walk walk;
  walk.arrays = arrays_of(program, walk.array_of);
  walk.loads = static_cast<int>(walk.arrays.size() - program.stores.size());
  for (const fusion::Axis& axis : program.axes) {
    walk.size.push_back(axis.size);
    walk.kept += !axis.reduced;
  }
  merge_dims(walk);
  find_varies(program, walk);
  return walk;
}

int vector_width(const Program& program, const Walk& walk, bool whole, int most) {
  if (walk.size.empty()) return 1;
  size_t least = 16;
  for (const WalkArray& a : walk.arrays)
    if (walk.is_dense(a)) least = std::min(least, item_size(a.dtype));
  if (least == 16) return 1;
  const int64_t inner = walk.size.back();
  for (int width = std::min(static_cast<int>(16 / least), most); width > 1; width /= 2) {
    if (inner < width || (inner % width != 0 && (whole || walk.ndim() > 1))) continue;
    if (std::all_of(walk.arrays.begin(), walk.arrays.end(),
                    [&](const WalkArray& a) { return takes_width(program, walk, a, width); }))
      return width;
  }
  return 1;
}

}  // namespace tenor::cuda
