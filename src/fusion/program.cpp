#include "src/fusion/program.h"

#include "src/core/text.h"

namespace tenor::fusion {
namespace {

using core::text;

std::string listed(const std::vector<int>& values) {
  std::string out;
  for (int v : values) out.append(out.empty() ? "" : ", ").append(std::to_string(v));
  return out;
}

std::string array_text(const Array& a) { return text("array {} at {} strides {}", a.argument, a.offset, a.strides); }

std::string reduce_name(reduce::Op op) {
  static constexpr const char* kNames[] = {"sum", "mean",  "prod", "max", "min", "any",
                                           "all", "count", "norm", "var", "std", "logsumexp"};
  return kNames[static_cast<size_t>(op)];
}

std::string instruction_text(const Instruction& i) {
  switch (i.kind) {
    case Instruction::Kind::kLoad:
      return "load " + array_text(i.array);
    case Instruction::Kind::kScalar:
      return "scalar";
    case Instruction::Kind::kMap:
      return text("{} {} in {}", std::string(elementwise::row(i.map.op).name), listed(i.inputs), i.map.computed);
    case Instruction::Kind::kConvert:
      return "convert " + listed(i.inputs);
    case Instruction::Kind::kReduce:
      return text("reduce {} of {} over axes {} in {}", reduce_name(i.reduce.op), listed(i.inputs),
                  listed(i.reduce.axes), i.reduce.accumulator);
  }
  return {};
}

}  // namespace

std::string to_string(const Program& program) {
  std::string out = program.name + "\naxes";
  for (const Axis& a : program.axes) out += text(" {}{}", a.size, std::string(a.reduced ? " reduced" : ""));
  for (size_t i = 0; i < program.code.size(); ++i) {
    const Instruction& made = program.code[i];
    std::string along;
    for (size_t a = 0; a < made.varies.size(); ++a)
      if (made.varies[a]) along.append(along.empty() ? "" : ", ").append(std::to_string(a));
    out += text("\n{} {} {} along ({}) phase {}", i, made.dtype, instruction_text(made), along, made.phase);
  }
  for (const Store& s : program.stores) out += text("\nstore {} to {}", s.value, array_text(s.array));
  return out + "\n";
}

}  // namespace tenor::fusion
