// Kernels with reductions down columns: what is reduced lies apart in memory, and the outputs side by side. A thread
// block takes a few neighbouring columns whole, and reads them again for each pass: the L2 cache has them.
#include <algorithm>
#include <bit>

#include "src/cuda/fusion/kernels.h"
#include "src/cuda/fusion/passes.h"
#include "src/cuda/fusion/reductions.h"
#include "src/cuda/fusion/writer.h"

namespace tenor::cuda {
namespace {

using fusion::Instruction;
using fusion::Program;

constexpr int kThreads = 512;                 // as prelude/columns.cuh has it
constexpr int64_t kOrderLeaves = 256;         // columns of up to as many elements have leaves of one
constexpr int64_t kMostEach = 256;            // leaves of a thread
constexpr int64_t kFewBlocks = 64;            // below, the eager kernels, which split columns, are faster
constexpr int64_t kSmall = int64_t{1} << 18;  // elements that are read fast by few blocks, too
constexpr double kCached = 40e6;              // bytes that stay in L2 from one pass to the next
constexpr int kMostRegisters = 72;            // of a thread's counters
constexpr int kSharedBytes = 48 << 10;

int64_t power_above(int64_t n) { return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(n))); }

/// The dims with the columns' last.
Walk with_columns_last(Walk walk) {
  const auto column = static_cast<size_t>(walk.kept) - 1;
  const auto move = [&](Dims& d) {
    const int64_t own = d[column];
    d.erase(column);
    d.push_back(own);
  };
  move(walk.size);
  for (WalkArray& a : walk.arrays) move(a.stride);
  return walk;
}

class ColumnKernel {
 public:
  ColumnKernel(const Program& program, const FusedOptions& options)
      : program_(program),
        walk_(walk_of(program)),
        writer_(program, walk_),
        passes_(program, walk_),
        column_(walk_.kept - 1) {
    width_ = vector_width(program, with_columns_last(walk_), true, std::min(options.most_width, 4));
    const int64_t length = walk_.length();
    elements_ = length <= kOrderLeaves ? 1 : 4;
    leaves_ = elements_ == 1 ? length : (length + 1023) / 1024 * kOrderLeaves;
    while (width_ > 1 && counter_registers() > kMostRegisters) width_ /= 2;
    // As many columns a block as make 128 bytes, fewer where that leaves multiprocessors idle, more of short ones.
    across_ = static_cast<int>(128 / (width_ * narrowest()));
    while (across_ > 4 && (blocks() < 2 * kFewBlocks || each() > kMostEach)) across_ /= 2;
    while (across_ < 128 && kThreads / (2 * across_) >= leaves_ && blocks() >= 4 * kFewBlocks) across_ *= 2;
  }

  std::string why_not() const {
    if (each() > kMostEach) return "its columns are too long";
    if (blocks() < kFewBlocks && walk_.rows() * walk_.length() > kSmall)
      return "its columns are few, and are split by a kernel of their own";
    for (const Instruction& in : program_.code)
      if (in.kind == Instruction::Kind::kReduce && bytes_of(in) * width_ * kThreads > kSharedBytes)
        return "its accumulators do not fit a block's shared memory";
    if (reads_too_often()) return "its columns do not stay in the L2 cache, and are read again by each pass";
    return counter_registers() > kMostRegisters ? "its accumulators do not fit a thread's registers" : "";
  }

  FusedKernel kernel() const {
    FusedKernel out;
    out.text = text();
    out.parameters = writer_.parameters({units(), leaves_, walk_.length(), each(), width_, column_});
    out.arrays = walk_.arrays;
    out.threads = kThreads;
    out.blocks = blocks();
    out.layout = joined("columns of ", walk_.length(), ", ", across_ * width_, " of them a thread block");
    return out;
  }

 private:
  using Kind = Instruction::Kind;

  /// Whether what the passes read beyond the L2 cache is about what the operators would move one by one.
  bool reads_too_often() const {
    const auto elements = static_cast<double>(walk_.rows()) * static_cast<double>(walk_.length());
    double read = 0, written = 0, alone = 0;  // bytes an element
    bool deviates = false;
    for (int i = 0; i < passes_.count(); ++i) {
      const auto item = static_cast<double>(item_size(code(i).dtype));
      const bool loads = walk_.array_of[static_cast<size_t>(i)] >= 0, row = passes_.in_row(i);
      if (row && loads) read += item;
      if (row && code(i).kind == Kind::kMap) alone += item;
      if (code(i).kind != Kind::kMap && code(i).kind != Kind::kReduce) continue;
      for (int input : code(i).inputs)
        if (passes_.in_row(input)) alone += static_cast<double>(item_size(code(input).dtype));
      deviates =
          deviates || (passes_.is_reduce(i) && is_deviation(code(i)) && item_size(code(code(i).inputs[0]).dtype) > 2);
    }
    for (size_t s = 0; s < program_.stores.size(); ++s)
      if (passes_.stores_row(s)) written += static_cast<double>(item_size(code(program_.stores[s].value).dtype));
    if (written == 0 || elements * read < kCached) return false;
    return ((passes_.reducing() + 1) * read + written) * (deviates ? 2.1 : 1.25) > alone;
  }
  int64_t units() const { return walk_.rows() / width_; }
  int64_t blocks() const { return (units() + across_ - 1) / across_; }
  int64_t each() const { return power_above((leaves_ + kThreads / across_ - 1) / (kThreads / across_)); }
  int levels() const { return std::countr_zero(static_cast<uint64_t>(each())) + 1; }
  static int64_t bytes_of(const Instruction& in) {  // of an accumulator
    const int64_t item = is_float(in.reduce.accumulator) ? static_cast<int64_t>(item_size(in.reduce.accumulator)) : 8;
    return is_deviation(in) ? 3 * item : item;
  }
  int64_t narrowest() const {  // bytes of an element
    size_t item = 8;
    for (const WalkArray& a : walk_.arrays) item = std::min(item, std::max<size_t>(item_size(a.dtype), 2));
    return static_cast<int64_t>(item);
  }
  /// Words of the counters of the pass that has most of them.
  int counter_registers() const {
    std::vector<int> words(static_cast<size_t>(passes_.reducing()) + 1, 0);
    for (int i = 0; i < passes_.count(); ++i)
      if (passes_.is_reduce(i))
        words[static_cast<size_t>(passes_.first(i))] +=
            static_cast<int>(bytes_of(passes_.code(i)) / 4) * levels() * width_;
    return *std::max_element(words.begin(), words.end());
  }
  const Instruction& code(int i) const { return passes_.code(i); }
  int stride_of(int a) const {  // 0, 1 or 2 for all others: along the columns
    return static_cast<int>(
        std::min<int64_t>(std::abs(walk_.arrays[static_cast<size_t>(a)].stride[static_cast<size_t>(column_)]), 2));
  }
  /// How many values a pack of it has.
  int width_of(int i) const {
    return passes_.is_reduce(i) || walk_.varies[static_cast<size_t>(i)][static_cast<size_t>(column_)] ? width_ : 1;
  }
  std::string pack_type(int i) const { return joined("Pack<", type_of(code(i).dtype), ", ", width_of(i), ">"); }
  std::string apart(int a) const {
    return joined("static_cast<", writer_.index(), ">(p.stride[", a, "][", column_, "])");
  }

  /// The elements of load i; `place` is added to where its columns begin.
  std::string load(int i, const std::string& place) const {
    const int a = walk_.array_of[static_cast<size_t>(i)];
    const std::string type = type_of(code(i).dtype),
                      from = place.empty() ? joined("a", a) : joined("a", a, " + ", place);
    if (stride_of(a) <= 1 || width_ == 1) return joined("load<", type, ", ", width_of(i), ">(", from, ")");
    return joined("load_apart<", type, ", ", width_, ">(", from, ", ", apart(a), ")");
  }
  std::string store(size_t s, const std::string& place) const {
    const int a = walk_.loads + static_cast<int>(s), value = program_.stores[s].value;
    const std::string to = place.empty() ? joined("a", a) : joined("a", a, " + ", place);
    if (stride_of(a) == 0) return joined("store(", to, ", v", value, ")");
    const std::string pack = joined("spread<", width_, ">(v", value, ")");
    return stride_of(a) == 1 || width_ == 1 ? joined("store(", to, ", ", pack, ")")
                                            : joined("store_apart(", to, ", ", apart(a), ", ", pack, ")");
  }
  std::string step(int i, const char* prefix) const {
    return writer_.step(
        i, [&](int r) { return joined(passes_.in_row(r) ? prefix : "v", r); }, std::to_string(width_of(i)));
  }
  std::string row_offset(int a) const { return writer_.offset(a, walk_.kept, walk_.ndim()); }

  /// What is alike down each column and known before pass `pass`.
  std::string column_values(int pass) const {
    std::string out;
    for (int i = 0; i < passes_.count(); ++i)
      if (!passes_.in_row(i) && !passes_.is_reduce(i) && passes_.first(i) == pass)
        out += joined("  const auto v", i, " = ",
                      walk_.array_of[static_cast<size_t>(i)] >= 0 ? load(i, "") : step(i, "v"), ";\n");
    return out;
  }

  /// `about<i>`: the columns' first elements, which every thread works out.
  std::string first_elements(int reduction) const {
    const std::vector<bool> needed = passes_.needed_for(code(reduction).inputs[0]);
    std::string lines;
    for (int i = 0; i < passes_.count(); ++i)
      if (needed[static_cast<size_t>(i)])
        lines += joined("    const auto s", i, " = ",
                        walk_.array_of[static_cast<size_t>(i)] >= 0 ? load(i, "") : step(i, "s"), ";\n");
    const int from = code(reduction).inputs[0];
    return joined("  ", formed_in(code(reduction)), " about", reduction, "[", width_, "];\n  {\n", lines,
                  "    widen_into(", passes_.in_row(from) ? "s" : "v", from, ", about", reduction, ");\n  }\n");
  }

  /// Lines for element c of leaf q: its loads all before what is made of them.
  std::string leaf(int pass) const {
    const std::vector<bool> needed = passes_.needed(pass);
    std::string places, loads, steps;
    for (int i = 0; i < passes_.count(); ++i) {
      const int a = walk_.array_of[static_cast<size_t>(i)];
      if (needed[static_cast<size_t>(i)] && a >= 0) {
        places += joined("      ", pack_type(i), " l", i, "[", elements_, "];\n");
        loads += joined("        l", i, "[c] = ", load(i, row_offset(a)), ";\n");
        steps += joined("        const auto v", i, " = l", i, "[c];\n");
      } else if (needed[static_cast<size_t>(i)]) {
        steps += joined("        const auto v", i, " = ", step(i, "v"), ";\n");
      }
      if (passes_.is_reduce(i) && passes_.first(i) == pass)
        steps += joined("        f", i, ".fold(c, v", code(i).inputs[0], ");\n");
    }
    const std::string each =
        joined("#pragma unroll\n      for (int c = 0; c < ", elements_, "; ++c) {\n        const ", writer_.index(),
               " r = Column::element<", elements_, ">(q, c);\n        if (r >= length) continue;\n",
               writer_.coordinates("r", walk_.kept, walk_.ndim()));
    return places + (loads.empty() ? "" : each + loads + "      }\n") + each + steps + "      }\n";
  }

  std::string reductions(int pass) const {
    std::string counters, leaves, pushes, totals;
    for (int i = 0; i < passes_.count(); ++i) {
      if (!passes_.is_reduce(i) || passes_.first(i) != pass) continue;
      const std::string core = core_of(code(i)), form = formed_in(code(i));
      if (is_deviation(code(i))) counters += first_elements(i);
      counters += joined("  ColumnCounter<", core, ", ", width_, ", ", levels(), "> n", i, ";\n");
      leaves += is_deviation(code(i))
                    ? joined("      ColumnMoments<", form, ", ", width_, "> f", i, "(about", i, ");\n")
                    : joined("      ColumnLeaf<", core, ", ", take_of(code(i)), ", ", width_, "> f", i, ";\n");
      pushes += joined("      n", i, ".push(f", i, ");\n");
      totals += joined("  ", core, "::Acc t", i, "[", width_, "];\n  n", i, ".finish(t", i, ");\n  column.meet<", core,
                       ">(t", i, ", reinterpret_cast<", core, "::Acc*>(scratch));\n  ", pack_type(i), " v", i,
                       ";\n#pragma unroll\n  for (int n = 0; n < ", width_, "; ++n) v", i,
                       ".at[n] = ", total_of(code(i), joined("t", i, "[n]")), ".at[0];\n");
    }
    return joined(counters, "  for (int k = 0; k < each; ++k) {\n    const ", writer_.index(),
                  " q = column.down * static_cast<", writer_.index(),
                  ">(each) + k;\n    if (q >= leaves || !valid) break;\n    {\n", leaves, leaf(pass), pushes,
                  "    }\n  }\n", totals);
  }

  /// All rows once more, the loads of several before what is made of them: a store might alias the next load.
  std::string last_stores() const {
    std::string places, loads, steps, out;
    const std::vector<bool> needed = passes_.needed(passes_.reducing());
    for (int i = 0; i < passes_.count(); ++i) {
      const int a = walk_.array_of[static_cast<size_t>(i)];
      if (needed[static_cast<size_t>(i)] && a >= 0) {
        places += joined("    ", pack_type(i), " l", i, "[kAhead];\n");
        loads += joined("      l", i, "[c] = ", load(i, row_offset(a)), ";\n");
        steps += joined("      const auto v", i, " = l", i, "[c];\n");
      } else if (needed[static_cast<size_t>(i)]) {
        steps += joined("      const auto v", i, " = ", step(i, "v"), ";\n");
      }
    }
    bool some = false;
    for (size_t s = 0; s < program_.stores.size(); ++s)
      if (passes_.stores_row(s))
        steps += joined("      ", store(s, row_offset(walk_.loads + static_cast<int>(s))), ";\n"), some = true;
    const std::string each =
        joined("#pragma unroll\n    for (int c = 0; c < kAhead; ++c) {\n      const ", writer_.index(),
               " r = first + c * Column::kDown;\n      if (r >= length) continue;\n",
               writer_.coordinates("r", walk_.kept, walk_.ndim()));
    if (some)
      out += joined("  constexpr int kAhead = 4;\n  for (", writer_.index(),
                    " first = column.down; first < length && valid; ", "first += kAhead * Column::kDown) {\n", places,
                    loads.empty() ? "" : each + loads + "    }\n", each, steps, "    }\n  }\n");
    std::string tops;
    for (size_t s = 0; s < program_.stores.size(); ++s)
      if (!passes_.stores_row(s)) tops += joined("    ", store(s, ""), ";\n");
    if (!tops.empty()) out += joined("  if (column.down == 0 && valid) {\n", tops, "  }\n");
    return out;
  }

  std::string text() const {
    int64_t most = 4;
    for (const Instruction& in : program_.code)
      if (in.kind == Kind::kReduce) most = std::max(most, bytes_of(in));
    const std::string index = writer_.index();
    std::string out = joined(
        "#include \"src/cuda/fusion/prelude/gather.cuh\"\n#include \"src/cuda/fusion/prelude/columns.cuh\"\nusing "
        "namespace tenor;\nusing namespace tenor::fused;\nusing P = ",
        writer_.parameters_type(), ";\nusing Column = ColumnThreads<", across_,
        ">;\nextern \"C\" __global__ void __launch_bounds__(", kThreads, ") fused(const __grid_constant__ P p) {\n",
        "  __shared__ uint64_t scratch[", most * width_ * kThreads / 8,
        "];\n  const Column column;\n  const int each = ", each(), ";\n  const ", index,
        " unit = blockIdx.x * static_cast<", index, ">(", across_, ") + column.across, length = static_cast<", index,
        ">(p.length), leaves = static_cast<", index, ">(p.tail);\n  const bool valid = unit < p.count;\n  const ",
        index, " place = valid ? unit : 0;\n");
    out += writer_.coordinates("place", 0, walk_.kept);
    // The columns' coordinate counts units so far.
    out += joined("  const ", index, " group = c", column_, ";\n  {\n  const ", index, " c", column_, " = group * ",
                  width_, ";\n");
    for (size_t a = 0; a < walk_.arrays.size(); ++a) {
      const int n = static_cast<int>(a);
      out += joined("  auto* const a", a, " = ", writer_.pointer(n), " + (", writer_.offset(n, 0, walk_.kept), ");\n");
    }
    for (int pass = 0; pass <= passes_.reducing(); ++pass) {
      out += column_values(pass);
      if (pass < passes_.reducing()) out += reductions(pass);
    }
    return out + last_stores() + "  }\n}\n";
  }

  const Program& program_;
  Walk walk_;
  Writer writer_;
  Passes passes_;
  int column_;
  int width_ = 1, elements_ = 1, across_ = 8;
  int64_t leaves_ = 1;
};

/// Whether a column's neighbours lie side by side wherever any do.
bool lies_along_columns(const Walk& walk) {
  return std::all_of(walk.arrays.begin(), walk.arrays.end(), [&](const WalkArray& a) {
    const int64_t own = a.stride[static_cast<size_t>(walk.kept) - 1];
    return own == 1 || own == 0 || std::find(a.stride.begin(), a.stride.end(), 1) == a.stride.end();
  });
}

}  // namespace

std::string why_no_column_kernel(const Program& program) {
  const Walk walk = walk_of(program);
  if (walk.kept == 0 || walk.length() == 1) return "it has no columns";
  std::vector<int> all;
  for (size_t d = 0; d < program.axes.size(); ++d)
    if (program.axes[d].reduced) all.push_back(static_cast<int>(d));
  for (const Instruction& in : program.code) {
    if (in.kind == Instruction::Kind::kGather) return "down columns it gathers nothing";
    if (in.kind != Instruction::Kind::kReduce) continue;
    if (in.reduce.axes != all) return "its reductions take different axes, or in another order than they lie in memory";
    if (const std::string why = why_not_reduced(program, in); !why.empty()) return why;
  }
  if (!lies_along_columns(walk)) return "its rows lie across memory";
  return ColumnKernel(program, {}).why_not();
}

FusedKernel column_kernel(const Program& program, const FusedOptions& options) {
  return ColumnKernel(program, options).kernel();
}

}  // namespace tenor::cuda
