#include "src/cuda/fusion/reductions.h"

#include <cmath>
#include <cstdio>

#include "src/cuda/fusion/writer.h"

namespace tenor::cuda {
namespace {

using fusion::Instruction;
using fusion::Program;
using reduce::Op;

DType input_dtype(const Program& program, const Instruction& in) {
  return program.code[static_cast<size_t>(in.inputs[0])].dtype;
}

bool is_count(Op op) { return op == Op::kAny || op == Op::kAll || op == Op::kCount; }

/// What extremes are compared in.
std::string compared(DType dtype) {
  if (is_float(dtype)) return type_of(compute_dtype(dtype));
  if (item_size(dtype) == 8) return type_of(dtype);
  return is_signed(dtype) ? "int" : "unsigned";
}
/// A double that a compiler reads back as itself.
std::string exact_text(double value) {
  char text[40];
  std::snprintf(text, sizeof text, "%a", value);
  return std::isfinite(value) ? text : value < 0 ? "-INFINITY" : "INFINITY";
}
/// The instruction's input has the dtype that extremes have.
std::string extreme_arguments(const Instruction& in) {
  return joined("<", compared(in.dtype), ", ", in.reduce.op == Op::kMin ? "true" : "false", ">");
}
}  // namespace

bool is_extreme(const Instruction& in) { return in.reduce.op == Op::kMax || in.reduce.op == Op::kMin; }
bool is_deviation(const Instruction& in) { return in.reduce.op == Op::kVar || in.reduce.op == Op::kStd; }

std::string formed_in(const Instruction& in) {
  return is_float(in.reduce.accumulator) ? type_of(in.reduce.accumulator) : "uint64_t";
}

std::string why_not_reduced(const Program& program, const Instruction& in) {
  switch (in.reduce.op) {
    case Op::kSum:
    case Op::kMean:
    case Op::kProd:
    case Op::kAny:
    case Op::kAll:
    case Op::kCount:
      return {};
    case Op::kMax:
    case Op::kMin:
      // Which of 0 and -0 such a comparison keeps depends on the order.
      return input_dtype(program, in) == float64 ? "extremes of float64 have a kernel of their own" : "";
    case Op::kNorm:
      return in.reduce.power == 1 || in.reduce.power == 2 ? "" : "only norms of p = 1 and 2 join a fused kernel";
    case Op::kVar:
    case Op::kStd: {
      const DType x = input_dtype(program, in);
      return is_float(x) && compute_dtype(x) == in.reduce.accumulator ? "" : "its elements are converted first";
    }
    default:
      return "it has a kernel of its own";
  }
}

std::string core_of(const Instruction& in) {
  if (is_extreme(in)) return "ExtremeOf" + extreme_arguments(in);
  if (is_count(in.reduce.op)) return "SumOf<uint64_t>";
  if (is_deviation(in)) return joined("MomentsOf<", formed_in(in), ">");
  return joined(in.reduce.op == Op::kProd ? "ProductOf<" : "SumOf<", formed_in(in), ">");
}

std::string take_of(const Instruction& in) {
  if (is_extreme(in)) return "TakeExtreme" + extreme_arguments(in);
  if (is_count(in.reduce.op)) return "TakeNonzero";
  if (in.reduce.op == Op::kNorm)
    return joined(in.reduce.power == 2 ? "TakeSquare<" : "TakeMagnitude<", formed_in(in), ">");
  return joined("TakeValue<", formed_in(in), ", ", type_of(in.reduce.accumulator), ">");
}

std::string total_of(const Instruction& in, const std::string& total) {
  std::string value = total;
  switch (in.reduce.op) {
    case Op::kMax:
    case Op::kMin:
      value = joined("ExtremeOf", extreme_arguments(in), "::mirrored(", total, ")");
      break;
    case Op::kMean:
      value = joined(total, " / static_cast<", formed_in(in), ">(", in.reduce.count, ".0)");
      break;
    case Op::kNorm:
      if (in.reduce.power == 2) value = joined("sqrt(", total, ")");
      break;
    case Op::kVar:
    case Op::kStd:
      value =
          joined("deviation<", in.reduce.op == Op::kStd ? "true" : "false", ">(", total, ", static_cast<",
                 formed_in(in), ">(", exact_text(static_cast<double>(in.reduce.count) - in.reduce.correction), "))");
      break;
    case Op::kAny:
      value = joined(total, " != 0");
      break;
    case Op::kAll:
      value = joined(total, " == ", in.reduce.count, "u");
      break;
    default:
      if (!is_float(in.reduce.accumulator) || in.reduce.op == Op::kCount)
        value = joined("static_cast<int64_t>(", total, ")");
      break;
  }
  return joined("Pack<", type_of(in.dtype), ", 1>{convert<", type_of(in.dtype), ">(", value, ")}");
}

}  // namespace tenor::cuda
