#include "src/cuda/fusion/writer.h"

#include <cstring>

#include "src/cuda/content_kind.h"
#include "src/cuda/layout.h"
#include "src/ops/elementwise/elementwise_cuda.h"

namespace tenor::cuda {
namespace {

using elementwise::Op;
using elementwise::Rule;
using fusion::Instruction;
using fusion::Program;

/// What the kernels compute in, as the eager ones do: 64 bits for every integer, float32 for 16-bit floats.
DType kernel_compute(DType compute) {
  return is_integer(compute) && compute != uint64 ? int64 : compute_dtype(compute);
}

/// Doubles that an operator's formula takes.
int parameters_of(Op op) {
  switch (op) {
    case Op::kLeakyRelu:
    case Op::kElu:
    case Op::kSoftplus:
      return 1;
    case Op::kIsclose:
      return 3;
    default:
      return 0;
  }
}

uint64_t bits_of(double value) {
  uint64_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

template <class T>
void append(std::vector<char>& bytes, const T& value) {
  const auto* from = reinterpret_cast<const char*>(&value);
  bytes.insert(bytes.end(), from, from + sizeof(value));
}

}  // namespace

std::string type_of(DType dtype) {
  switch (dtype) {
    case DType::kBool:
      return "bool";
    case DType::kFloat16:
      return "Float16";
    case DType::kBFloat16:
      return "BFloat16";
    case DType::kFloat32:
      return "float";
    case DType::kFloat64:
      return "double";
    case DType::kFloat8E4M3:
      return "Float8E4M3";
    case DType::kFloat8E5M2:
      return "Float8E5M2";
    default:
      return std::string(name(dtype)) + "_t";
  }
}

Writer::Writer(const Program& program, const Walk& walk) : program_(program), walk_(walk) {
  for (const Instruction& in : program.code) {
    slot_.push_back(static_cast<int>(scalars_.size()));
    if (in.kind == Instruction::Kind::kScalar) {
      uint64_t bits = 0;
      std::memcpy(&bits, in.element.data(), item_size(in.dtype));
      scalars_.push_back(bits);
    } else if (in.kind == Instruction::Kind::kGather) {  // as gather_of() of the prelude reads them
      const fusion::Gather& g = in.gather;
      const auto& entries = program.code[static_cast<size_t>(in.inputs[0])].array;
      for (int64_t n : {g.size, g.stride, entries.offset - g.index_offset,
                        static_cast<int64_t>(named_content_op(g.op, g.argument)), int64_t{0}})
        scalars_.push_back(static_cast<uint64_t>(n));
    } else if (in.kind == Instruction::Kind::kMap) {
      for (int i = 0; i < parameters_of(in.map.op); ++i)
        scalars_.push_back(bits_of(in.map.params[static_cast<size_t>(i)]));
    }
  }
}

std::string Writer::scalar(int instruction) const {
  const auto i = static_cast<size_t>(instruction);
  return joined("scalar<", type_of(program_.code[i].dtype), ">(p.scalar[", slot_[i], "])");
}

/// Operand i as the kernel reads it: converted first where the eager one would be.
std::string Writer::input(int instruction, size_t i, const std::string& value) const {
  const Instruction& in = program_.code[static_cast<size_t>(instruction)];
  const DType stored = program_.code[static_cast<size_t>(in.inputs[i])].dtype;
  const bool selects = elementwise::row(in.map.op).rule == Rule::kSelect;
  const DType wanted = selects ? (i == 0 ? boolean : in.map.computed) : compute_dtype(in.map.compute[i]);
  const bool direct = selects ? stored == wanted : elementwise::reads_on_cuda(kernel_compute(wanted), stored);
  return direct ? value : joined("converted<", type_of(wanted), ">(", value, ")");
}

std::string Writer::formula(int instruction) const {
  const auto i = static_cast<size_t>(instruction);
  const fusion::Map& map = program_.code[i].map;
  const std::string op = joined("static_cast<Op>(", static_cast<int>(map.op), ")");
  const std::string type = type_of(kernel_compute(map.compute[0]));
  const auto parameter = [&](int k) { return joined("scalar_of<double>(p.scalar[", slot_[i] + k, "])"); };
  std::string values;
  if (map.op == Op::kIsclose)
    values = joined(parameter(0), ", ", parameter(1), ", ", parameter(2), " != 0");
  else if (parameters_of(map.op) == 1)
    values = joined("static_cast<", type, ">(", parameter(0), ")");
  return joined("Formula<", op, ", ", type, ">{", values, "}");
}

std::string Writer::step(int instruction, const std::function<std::string(int)>& name, const std::string& width) const {
  const Instruction& in = program_.code[static_cast<size_t>(instruction)];
  if (in.kind == Instruction::Kind::kScalar) return scalar(instruction);
  if (in.kind == Instruction::Kind::kConvert)
    return program_.code[static_cast<size_t>(in.inputs[0])].dtype == in.dtype
               ? name(in.inputs[0])
               : joined("converted<", type_of(in.dtype), ">(", name(in.inputs[0]), ")");
  std::string operands;
  for (size_t i = 0; i < in.inputs.size(); ++i)
    operands += (i == 0 ? "" : ", ") + input(instruction, i, name(in.inputs[i]));
  if (elementwise::row(in.map.op).rule == Rule::kSelect) {
    const std::string moved = joined("select<", type_of(in.map.computed), ", ", width, ">(", operands, ")");
    return in.map.computed == in.dtype ? moved : joined("converted<", type_of(in.dtype), ">(", moved, ")");
  }
  const DType computed = kernel_compute(in.map.computed);
  const bool direct = elementwise::reads_on_cuda(computed, in.dtype);
  const std::string made = joined("map<", type_of(direct ? in.dtype : computed), ", ", type_of(computed), ", ", width,
                                  ">(", formula(instruction), ", ", operands, ")");
  return direct ? made : joined("converted<", type_of(in.dtype), ">(", made, ")");
}

std::string Writer::gather(int instruction, const std::string& table, const std::string& entries,
                           const std::string& named, const std::string& width) const {
  const auto i = static_cast<size_t>(instruction);
  const int a = walk_.array_of[i], index = walk_.arrays[static_cast<size_t>(a)].index;
  const auto last = static_cast<size_t>(walk_.ndim()) - 1;
  const std::string type = type_of(program_.code[i].dtype), form = joined("gather_of(p.scalar + ", slot_[i], ")"),
                    position = joined("(", entries, ") - ", pointer(index));
  const bool single = walk_.ndim() == 0;
  if (single || width == "1" || walk_.is_dense(walk_.arrays[static_cast<size_t>(a)]))
    return joined("gather<", type, ", ", width, ">(", table, ", ", form, ", ", named, ", ", position, ")");
  return joined("gather_apart<", type, ", ", width, ">(", table, ", p.stride[", a, "][", last, "], ", form, ", ", named,
                ", ", position, ", p.stride[", index, "][", last, "])");
}

std::vector<size_t> Writer::flags() const {
  std::vector<size_t> places;
  for (size_t i = 0; i < program_.code.size(); ++i)
    if (program_.code[i].kind == Instruction::Kind::kGather) places.push_back(place_of_scalar(slot_[i] + 4));
  return places;
}

int Writer::reserve_scalar() {
  scalars_.push_back(0);
  return static_cast<int>(scalars_.size()) - 1;
}

size_t Writer::place_of_scalar(int slot) const {
  const size_t arrays = walk_.arrays.size(), dims = std::max<size_t>(walk_.size.size(), 1);
  return arrays * sizeof(void*) + (arrays + 1) * dims * sizeof(int64_t) + static_cast<size_t>(slot) * sizeof(uint64_t);
}

std::string Writer::parameters_type() const {
  const auto some = [](size_t n) { return std::max<size_t>(n, 1); };
  return joined("Parameters<", some(walk_.arrays.size()), ", ", some(walk_.size.size()), ", ", some(scalars_.size()),
                ">");
}

std::vector<char> Writer::parameters(const Counts& counts) const {
  std::vector<char> bytes;
  const size_t dims = std::max<size_t>(walk_.size.size(), 1);
  for (size_t a = 0; a < walk_.arrays.size(); ++a) append(bytes, static_cast<const void*>(nullptr));
  for (const WalkArray& a : walk_.arrays)
    for (size_t d = 0; d < dims; ++d) append(bytes, d < a.stride.size() ? a.stride[d] : int64_t{0});
  Dims size = walk_.size;
  size.resize(dims, 1);
  if (!walk_.size.empty()) {
    int64_t& divided = counts.dim < 0 ? size.back() : size[static_cast<size_t>(counts.dim)];
    divided = std::max<int64_t>(divided / counts.width, 1);
  }
  for (int64_t s : size) append(bytes, s);
  for (uint64_t s : scalars_) append(bytes, s);
  if (scalars_.empty()) append(bytes, uint64_t{0});
  for (int64_t n : {counts.count, counts.tail, counts.length, counts.each}) append(bytes, n);
  for (int64_t s : size) append(bytes, s <= INT32_MAX ? make_divider(s) : Divider{});
  bytes.resize((bytes.size() + 7) / 8 * 8);
  return bytes;
}

std::string Writer::pointer(int a) const {
  const WalkArray& array = walk_.arrays[static_cast<size_t>(a)];
  return joined("static_cast<", a < walk_.loads ? "const " : "", type_of(array.dtype), "*>(p.data[", a, "])");
}

std::string Writer::offset(int a, int from, int to) const {
  std::string sum;
  for (int d = from; d < to; ++d) {
    const int64_t stride = walk_.arrays[static_cast<size_t>(a)].stride[static_cast<size_t>(d)];
    if (stride == 0) continue;
    if (!sum.empty()) sum += " + ";
    sum += stride == 1 ? joined("c", d) : joined("c", d, " * static_cast<", index(), ">(p.stride[", a, "][", d, "])");
  }
  return sum.empty() ? "0" : sum;
}

std::string Writer::coordinates(const std::string& at, int from, int to) const {
  std::string lines, rest = at;
  for (int d = to - 1; d > from; --d) {
    const std::string next = joined("r", d);
    lines += joined("  const ", index(), " ", next, " = divide(p, ", d, ", ", rest, "), c", d, " = ", rest, " - ", next,
                    " * static_cast<", index(), ">(p.size[", d, "]);\n");
    rest = next;
  }
  if (to > from) lines += joined("  const ", index(), " c", from, " = ", rest, ";\n");
  return lines;
}

}  // namespace tenor::cuda
