// Kernels with reductions along rows. The row's values stay in registers between their passes where they fit; longer
// rows are read, and what hangs on them computed, again by each pass.
#include <algorithm>

#include "src/cuda/fusion/kernels.h"
#include "src/cuda/fusion/passes.h"
#include "src/cuda/fusion/reductions.h"
#include "src/cuda/fusion/row_plan.h"
#include "src/cuda/fusion/writer.h"

namespace tenor::cuda {
namespace {

using fusion::Instruction;
using fusion::Program;

class RowKernel {
 public:
  RowKernel(const Program& program, const FusedOptions& options)
      : program_(program),
        walk_(walk_of(program)),
        writer_(program, walk_),
        steps_(program, walk_),
        ndim_(walk_.ndim()),
        passes_(steps_.reducing()),
        plan_(program, walk_, steps_, options) {
    if (plan_.chunks > 1) scratch_ = writer_.reserve_scalar();
  }

  FusedKernel kernel() const {
    FusedKernel out;
    out.text = text();
    out.parameters = writer_.parameters({walk_.rows(), plan_.chunks, walk_.length(), plan_.each, 1});
    out.arrays = walk_.arrays;
    out.flags = writer_.flags();
    out.threads = plan_.threads();
    out.blocks = plan_.blocks();
    if (plan_.chunks > 1) {
      out.counters = static_cast<size_t>((walk_.rows() + 1) / 2 * 2) * sizeof(int);
      out.scratch = out.counters + static_cast<size_t>(reductions() * walk_.rows() * plan_.chunks) * sizeof(uint64_t);
      out.scratch_at = writer_.place_of_scalar(scratch_);
    }
    out.layout = plan_.layout();
    return out;
  }

 private:
  const Instruction& code(int i) const { return steps_.code(i); }
  bool is_reduce(int i) const { return steps_.is_reduce(i); }
  bool in_row(int i) const { return steps_.in_row(i); }
  bool stores_row(size_t s) const { return steps_.stores_row(s); }
  int count() const { return steps_.count(); }
  int pass_of(int i) const { return steps_.first(i); }
  bool is_held(int i) const { return plan_.is_held(i); }
  static size_t at(int i) { return static_cast<size_t>(i); }

  int64_t reductions() const {
    int64_t n = 0;
    for (int i = 0; i < count(); ++i) n += is_reduce(i);
    return n;
  }

  /// What reduction i folds: the input, or of extremes the 16-bit floats that it widens.
  int folded(int i) const {
    const int in = code(i).inputs[0];
    const bool widens = is_extreme(code(i)) && code(in).kind == Instruction::Kind::kConvert && in_row(in) &&
                        code(in).dtype == float32 && is_short(code(code(in).inputs[0]).dtype);
    return widens ? code(in).inputs[0] : in;
  }
  static bool is_short(DType dtype) { return dtype == float16 || dtype == bfloat16; }

  // ---- text ----

  /// The declaration of reduction i's leaves in a block of the order.
  std::string leaves_of(int i) const {
    const DType dtype = code(folded(i)).dtype;
    if (is_deviation(code(i)))
      return joined("    MomentLeaves<", formed_in(code(i)), ", ", plan_.width, "> f", i, "(about", i, ");\n");
    if (is_extreme(code(i)) && is_short(dtype) && plan_.width > 1)
      return joined("    ShortExtremes<", type_of(dtype), ", ",
                    code(i).reduce.op == reduce::Op::kMin ? "true" : "false", ", ", plan_.width, "> f", i, ";\n");
    return joined("    Leaves<", core_of(code(i)), ", ", take_of(code(i)), ", ", plan_.width, "> f", i, ";\n");
  }

  std::string pack_type(int i) const {
    return joined("Pack<", type_of(code(i).dtype), ", ", in_row(i) ? plan_.width : 1, ">");
  }
  std::string register_of(int i) const { return is_held(i) ? joined("v", i, "[b * Row::kPacks + k]") : joined("v", i); }

  std::string load(int i) const {
    const int a = walk_.array_of[at(i)];
    const std::string type = type_of(code(i).dtype);
    const std::string place = joined("a", a, " + ", writer_.offset(a, walk_.kept, ndim_));
    if (code(i).kind == Instruction::Kind::kGather) return gathered(i, in_row(i) ? place : joined("a", a));
    if (!in_row(i)) return joined("load<", type, ", 1>(a", a, ")");
    const int64_t stride = walk_.arrays[at(a)].stride.back();
    if (stride == 1 || plan_.width == 1)
      return joined(is_held(i) && steps_.stores_rows() ? "load_lasting<" : "load<", type, ", ", plan_.width, ">(",
                    place, ")");
    if (stride == 0) return joined("spread<", plan_.width, ">(load<", type, ", 1>(", place, "))");
    return joined("load_apart<", type, ", ", plan_.width, ">(", place, ", static_cast<", writer_.index(), ">(p.stride[",
                  a, "][", ndim_ - 1, "]))");
  }
  /// The elements of gather i, the table's first of them at `place`.
  std::string gathered(int i, const std::string& place) const {
    const int entries = code(i).inputs[0], index = walk_.array_of[at(entries)];
    if (!in_row(entries))
      return writer_.gather(i, place, joined("a", index), joined("v", entries),
                            std::to_string(in_row(i) ? plan_.width : 1));
    return writer_.gather(i, place, joined("a", index, " + ", writer_.offset(index, walk_.kept, ndim_)),
                          is_held(entries) ? register_of(entries) : joined("l", entries, "[k]"),
                          std::to_string(plan_.width));
  }
  std::string store(int s) const {
    const int a = walk_.loads + s, value = program_.stores[at(s)].value;
    const std::string place = joined("a", a, " + ", writer_.offset(a, walk_.kept, ndim_)),
                      pack = joined("spread<", plan_.width, ">(", register_of(value), ")");
    if (walk_.arrays[at(a)].stride.back() == 1 || plan_.width == 1) return joined("store(", place, ", ", pack, ")");
    return joined("store_apart(", place, ", static_cast<", writer_.index(), ">(p.stride[", a, "][", ndim_ - 1, "]), ",
                  pack, ")");
  }

  /// What pass `pass` computes of the row: for the reductions it folds, the stores at the end, and what later ones
  /// hold.
  std::vector<bool> needed_in(int pass) const {
    std::vector<bool> needed(program_.code.size(), false);
    for (int i = 0; i < count(); ++i) {
      if (is_reduce(i) && pass_of(i) == pass) needed[at(folded(i))] = true;
      if (is_held(i) && pass_of(i) == pass) needed[at(i)] = true;
    }
    if (pass == passes_)
      for (const fusion::Store& s : program_.stores)
        if (in_row(s.value)) needed[at(s.value)] = true;
    for (int i = count(); i-- > 0;) {
      if (!needed[at(i)] || !in_row(i)) needed[at(i)] = false;
      if (needed[at(i)] && is_held(i) && pass_of(i) < pass) needed[at(i)] = false;  // there already
      if (!needed[at(i)] || is_reduce(i)) continue;
      for (int input : code(i).inputs) needed[at(input)] = true;
    }
    return needed;
  }

  /// fn's lines for every pack of this thread that the row has.
  std::string for_packs(const std::string& lines) const {
    std::string out = "#pragma unroll\n    for (int k = 0; k < Row::kPacks; ++k) {\n";
    out += joined("      const ", writer_.index(), " i = first + row.element(k);\n");
    if (!plan_.full) out += "      if (i >= length) continue;\n";
    std::string coordinates = writer_.coordinates("i", walk_.kept, ndim_);
    return out + coordinates + lines + "    }\n";
  }

  std::string pass_loop(int pass) const {
    const std::vector<bool> needed = needed_in(pass);
    std::string loads, steps, leaves, trees, values;
    const auto name = [&](int i) { return register_of(i); };
    for (int i = 0; i < count(); ++i) {
      if (needed[at(i)] && walk_.array_of[at(i)] >= 0) {
        if (!is_held(i)) values += joined("    ", pack_type(i), " l", i, "[Row::kPacks];\n");
        loads += joined("      ", is_held(i) ? register_of(i) : joined("l", i, "[k]"), " = ", load(i), ";\n");
        if (!is_held(i)) steps += joined("      const auto v", i, " = l", i, "[k];\n");
      } else if (needed[at(i)]) {
        const std::string made = writer_.step(i, name, std::to_string(plan_.width));
        steps += joined("      ", is_held(i) ? "" : "const auto ", register_of(i), " = ", made, ";\n");
      }
      if (is_reduce(i) && pass_of(i) == pass) {
        leaves += leaves_of(i);
        steps += joined("      f", i, ".fold(k, ", register_of(folded(i)), ");\n");
        trees += joined("    { const auto block = f", i, ".tree(", plan_.lanes, "); if (",
                        plan_.each == 1 ? "" : "row.lane == b || ", "each == 1) t", i, " = block; }\n");
      }
    }
    if (pass == passes_)
      for (size_t s = 0; s < program_.stores.size(); ++s)
        if (stores_row(s)) steps += joined("      ", store(static_cast<int>(s)), ";\n");
    if (loads.empty() && steps.empty()) return {};
    std::string out = plan_.held ? "#pragma unroll\n" : "#pragma unroll 1\n";
    out += "  for (int b = 0; b < each; ++b) {\n";
    out += joined("    const ", writer_.index(), " first = ", plan_.chunks > 1 ? "begin + " : "",
                  "(row.warp_of_row() * static_cast<", writer_.index(), ">(each) + b) * kOrderBlock;\n");
    if (!plan_.full && plan_.warps > 1 && !plan_.held) out += "    if (first >= length) break;\n";
    out += values + leaves;
    if (!loads.empty()) out += for_packs(loads);
    if (!steps.empty()) out += for_packs(steps);
    return out + trees + "  }\n";
  }

  /// What is alike for the whole row and known before pass `pass`.
  std::string row_values(int pass) const {
    std::string out;
    const auto name = [](int i) { return joined("v", i); };
    for (int i = 0; i < count(); ++i) {
      if (in_row(i) || is_reduce(i) || pass_of(i) != pass) continue;
      out +=
          joined("  const auto v", i, " = ", walk_.array_of[at(i)] >= 0 ? load(i) : writer_.step(i, name, "1"), ";\n");
    }
    return out;
  }

  /// The last thread block of a row takes up what all have left.
  std::string shared_totals() const {
    const auto meet = [&](int i, int n, const std::string& value, const char* each) {
      return joined("  t", i, " = row.template meet<", core_of(code(i)), ">(", value, ", ", each, ", scratch[", n % 2,
                    "]);\n");
    };
    std::string parts, left, out;
    int n = 0, k = 0;
    for (int i = 0; i < count(); ++i) {
      if (!is_reduce(i)) continue;
      parts += joined("  auto* const parts", i, " = reinterpret_cast<decltype(t", i,
                      ")*>(shared + (p.count + 1) / 2 + ", k++, " * p.count * p.tail) + place * p.tail;\n");
      left += meet(i, n++, joined("t", i), "each") + joined("  leave_part(parts", i, ", chunk, t", i, ");\n");
    }
    for (int i = 0; i < count(); ++i)
      if (is_reduce(i))
        out += meet(i, n++, joined("part_of<", core_of(code(i)), ">(parts", i, ", p.tail)"), "32") +
               joined("  const auto v", i, " = ", total_of(code(i), joined("t", i)), ";\n");
    return joined("  uint64_t* const shared = reinterpret_cast<uint64_t*>(p.scalar[", scratch_, "]);\n", parts, left,
                  "  if (!comes_last(reinterpret_cast<int*>(shared) + place, p.tail)) return;\n", out);
  }

  std::string totals(int pass, int& meetings) const {
    if (plan_.chunks > 1) return pass == 0 ? shared_totals() : std::string();
    std::string out;
    for (int i = 0; i < count(); ++i) {
      if (!is_reduce(i) || pass_of(i) != pass) continue;
      out += joined("  t", i, " = row.template meet<", core_of(code(i)), ">(t", i, ", each, ",
                    plan_.warps > 1 ? joined("scratch[", meetings++ % 2, "]") : "nullptr", ");\n");
      out += joined("  const auto v", i, " = ", total_of(code(i), joined("t", i)), ";\n");
    }
    return out;
  }
  std::string first_totals(int pass) const {
    std::string out;
    for (int i = 0; i < count(); ++i) {
      if (!is_reduce(i) || pass_of(i) != pass) continue;
      out += joined("  auto t", i, " = ", core_of(code(i)), "::identity();\n");
      if (is_deviation(code(i))) out += first_element(i);
    }
    return out;
  }
  /// `about<i>`: the first element of the row that reduction i takes up, which every thread works out.
  std::string first_element(int reduction) const {
    const std::vector<bool> needed = steps_.needed_for(code(reduction).inputs[0]);
    const auto name = [&](int i) { return joined(in_row(i) ? "s" : "v", i); };
    std::string lines;
    for (int i = 0; i < count(); ++i) {
      if (!needed[at(i)]) continue;
      const int a = walk_.array_of[at(i)];
      std::string made;
      if (a < 0)
        made = writer_.step(i, name, "1");
      else if (code(i).kind == Instruction::Kind::kGather)
        made = writer_.gather(i, joined("a", a), joined("a", walk_.array_of[at(code(i).inputs[0])]),
                              name(code(i).inputs[0]), "1");
      else
        made = joined("load<", type_of(code(i).dtype), ", 1>(a", a, ")");
      lines += joined("    const auto s", i, " = ", made, ";\n");
    }
    const std::string type = formed_in(code(reduction));
    return joined("  ", type, " about", reduction, ";\n  {\n", lines, "    about", reduction, " = convert<", type, ">(",
                  name(code(reduction).inputs[0]), ".at[0]);\n  }\n");
  }

  bool deviates() const {
    return std::any_of(program_.code.begin(), program_.code.end(),
                       [](const Instruction& in) { return in.kind == Instruction::Kind::kReduce && is_deviation(in); });
  }

  std::string row_stores() const {
    std::string out;
    for (size_t s = 0; s < program_.stores.size(); ++s)
      if (!stores_row(s))
        out += joined("    store(a", walk_.loads + static_cast<int>(s), ", v", program_.stores[s].value, ");\n");
    if (out.empty()) return out;
    return joined("  if (", plan_.warps > 1 ? "threadIdx.x == 0" : "row.lane == 0 && valid", ") {\n", out, "  }\n");
  }

  std::string opening() const {
    const std::string index = writer_.index();
    std::string out;
    if (plan_.quotients != 8) out = joined("#define TENOR_QUOTIENTS_AT_ONCE ", plan_.quotients, "\n");
    out += joined(
        "#include \"src/cuda/fusion/prelude/gather.cuh\"\n#include \"src/cuda/fusion/prelude/rows.cuh\"\nusing "
        "namespace tenor;\n",
        "using namespace tenor::fused;\nusing P = ", writer_.parameters_type(), ";\nusing Row = RowThreads<",
        plan_.width, ", ", plan_.lanes, ", ", plan_.warps, ">;\n");
    out +=
        joined("extern \"C\" __global__ void __launch_bounds__(", plan_.threads(),
               plan_.least_blocks ? joined(", ", plan_.least_blocks) : "", ") fused(const __grid_constant__ P p) {\n");
    if (plan_.warps > 1) out += joined("  __shared__ uint64_t scratch[2][", plan_.warps * (deviates() ? 3 : 1), "];\n");
    out += "  const Row row;\n";
    out += plan_.held ? joined("  constexpr int each = ", plan_.each, ";\n")
                      : "  const int each = static_cast<int>(p.each);\n";
    if (plan_.warps > 1) {
      out += joined("  const ", index, " place = blockIdx.x", plan_.chunks > 1 ? " / static_cast<int>(p.tail)" : "",
                    ", length = static_cast<", index, ">(p.length);\n");
      if (plan_.chunks > 1)
        out += joined("  const int chunk = blockIdx.x % static_cast<int>(p.tail);\n  const ", index,
                      " begin = static_cast<", index, ">(chunk) * each * ", plan_.warps, " * kOrderBlock;\n");
    } else {
      out +=
          joined("  const ", index, " mine = blockIdx.x * static_cast<", index, ">(", plan_.rows, ") + threadIdx.x / ",
                 plan_.lanes, ";\n  const bool valid = ", plan_.full ? "true" : "mine < p.count", ";\n  const ", index,
                 " place = valid ? mine : 0, length = valid ? static_cast<", index, ">(p.length) : 0;\n");
    }
    out += writer_.coordinates("place", 0, walk_.kept);
    for (size_t a = 0; a < walk_.arrays.size(); ++a) {
      const int n = static_cast<int>(a);
      out += joined("  auto* const a", a, " = ", writer_.pointer(n), " + (", writer_.offset(n, 0, walk_.kept), ");\n");
    }
    return out;
  }

  std::string text() const {
    std::string out = opening();
    for (int i = 0; i < count(); ++i)
      if (is_held(i)) out += joined("  ", pack_type(i), " v", i, "[each * Row::kPacks];\n");
    int meetings = 0;
    for (int pass = 0; pass <= passes_; ++pass)
      out += row_values(pass) + first_totals(pass) + pass_loop(pass) + totals(pass, meetings);
    return out + row_stores() + "}\n";
  }

  const Program& program_;
  Walk walk_;
  Writer writer_;
  Passes steps_;
  int ndim_, passes_;
  RowPlan plan_;
  int scratch_ = -1;  // the scalar that is the address of what thread blocks of a row share
};

/// Whether some result has many places a row.
bool stores_rows(const Program& program, const Walk& walk) {
  for (const fusion::Store& s : program.stores)
    for (size_t a = 0; a < program.axes.size(); ++a)
      if (program.axes[a].reduced && s.array.strides[a] != 0) return walk.length() > 1;
  return false;
}

/// Whether a row's neighbours lie apart while other elements lie side by side.
bool lies_across(const WalkArray& a) {
  if (a.stride.back() == 0 || a.stride.back() == 1) return false;
  return std::find(a.stride.begin(), a.stride.end(), 1) != a.stride.end();
}

}  // namespace

std::string why_no_row_kernel(const Program& program) {
  const Walk walk = walk_of(program);
  std::vector<int> all;
  for (size_t d = 0; d < program.axes.size(); ++d)
    if (program.axes[d].reduced) all.push_back(static_cast<int>(d));
  for (const Instruction& in : program.code) {
    if (in.kind != Instruction::Kind::kReduce) continue;
    if (in.reduce.axes != all) return "its reductions take different axes, or in another order than they lie in memory";
    if (const std::string why = why_not_reduced(program, in); !why.empty()) return why;
  }
  if (shares_rows(walk)) {
    if (exceeds_rows(walk)) return "its rows are too long";
    for (const Instruction& in : program.code)
      if (in.kind == Instruction::Kind::kReduce && is_deviation(in))
        return "its rows are long or few, so that several thread blocks share each, which deviations do not";
    if (program.phases > 1 || stores_rows(program, walk))
      return "its rows are long or few, so that several thread blocks share each and do not meet before the end";
  }
  if (walk.length() == 1) return "its rows have one element";
  for (const WalkArray& a : walk.arrays)
    if (lies_across(a)) return "its rows lie across memory";
  return {};
}

FusedKernel row_kernel(const Program& program, const FusedOptions& options) {
  return RowKernel(program, options).kernel();
}

}  // namespace tenor::cuda
