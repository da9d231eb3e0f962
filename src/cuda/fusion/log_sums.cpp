#include "src/cuda/fusion/log_sums.h"

#include <algorithm>

namespace tenor::cuda {
namespace {

using elementwise::Op;
using fusion::Instruction;
using fusion::Program;
using Kind = Instruction::Kind;

/// Leaves `varies` and `phase` of what it adds as they are: a walk works out the one, a kernel's passes the other.
class Expansion {
 public:
  explicit Expansion(const Program& from) : from_(from), out_(from) { out_.code.clear(); }

  Program run() {
    for (const Instruction& in : from_.code) {
      Instruction moved = in;
      for (int& input : moved.inputs) input = place_[static_cast<size_t>(input)];
      place_.push_back(in.kind == Kind::kReduce && in.reduce.op == reduce::Op::kLogSumExp ? expand(moved)
                                                                                          : add(std::move(moved)));
    }
    for (fusion::Store& s : out_.stores) s.value = place_[static_cast<size_t>(s.value)];
    return std::move(out_);
  }

 private:
  int add(Instruction in) {
    out_.code.push_back(std::move(in));
    return static_cast<int>(out_.code.size()) - 1;
  }
  const Instruction& at(int i) const { return out_.code[static_cast<size_t>(i)]; }
  int map(Op op, DType dtype, std::vector<int> inputs) {
    Instruction made{Kind::kMap, dtype, std::move(inputs)};
    for (size_t i = 0; i < made.inputs.size(); ++i) made.map.compute[i] = at(made.inputs[i]).dtype;
    made.map.op = op, made.map.computed = dtype;
    return add(std::move(made));
  }
  int converted(int from, DType dtype) {
    if (at(from).dtype == dtype) return from;
    return add({Kind::kConvert, dtype, {from}});
  }
  int reduced(const Instruction& like, reduce::Op op, int of) {
    Instruction made = like;
    made.reduce.op = op, made.dtype = like.reduce.accumulator, made.inputs = {of};
    return add(std::move(made));
  }

  int expand(const Instruction& in) {
    const DType wide = in.reduce.accumulator;
    const int x = converted(in.inputs[0], wide), top = reduced(in, reduce::Op::kMax, x);
    const int nothing = add({Kind::kScalar, wide});
    // An infinite maximum is not subtracted.
    const int shift = map(Op::kWhere, wide, {map(Op::kIsinf, boolean, {top}), nothing, top});
    out_.code[static_cast<size_t>(shift)].map.compute[0] = boolean;
    const int power = map(Op::kExp, wide, {map(Op::kSub, wide, {x, shift})});
    const int total = reduced(in, reduce::Op::kSum, power);
    ++out_.phases;
    return converted(map(Op::kAdd, wide, {map(Op::kLog, wide, {total}), shift}), in.dtype);
  }

  const Program& from_;
  Program out_;
  std::vector<int> place_;
};

}  // namespace

Program without_log_sums(const Program& program) {
  const bool has_some = std::any_of(program.code.begin(), program.code.end(), [](const Instruction& in) {
    return in.kind == Kind::kReduce && in.reduce.op == reduce::Op::kLogSumExp;
  });
  return has_some ? Expansion(program).run() : program;
}

}  // namespace tenor::cuda
