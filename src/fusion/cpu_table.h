// Steps that hang on one 16-bit float alone are a function of 65536 places. Where they cost more than a look into a
// table, and there are enough elements, their results are computed once, by the steps themselves, and looked up.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "src/fusion/cpu_layout.h"

namespace tenor::fusion {

/// Where a table is worth it. Measured: src/fusion/README.md, "CPU".
struct TableRule {
  int64_t elements = int64_t{1} << 20;  ///< at least
  int64_t cost = 30;                    ///< of the steps, at least: what elementwise::OpRow says, and 3 for each
};
/// For tests: not while kernels are being made.
TableRule& table_rule();

/// How many have been made in this process.
int64_t tables_made();

/// Which values of a pass have tables.
class TableFinder {
 public:
  TableFinder(const Program& program, const std::vector<Home>& homes) : p_(program), homes_(homes) {}

  /// The value that a table of `value` is looked up by: the one nearest to memory. -1 where there is none, or none
  /// worth it. `computed`: whether the pass has the value already.
  int root_of(int value, const std::function<bool(int)>& computed);

 private:
  using Roots = std::optional<std::vector<int>>;  // sorted; none of a value of scalars alone

  const Instruction& at(int value) const { return p_.code[static_cast<size_t>(value)]; }
  bool is_leaf(int value, const Instruction& like) const;
  const Roots& roots_of(int value, const Instruction& like);
  void add_cost(int value, int root, const std::function<bool(int)>& computed, std::map<int, bool>& seen,
                int64_t& cost) const;

  const Program& p_;
  const std::vector<Home>& homes_;
  std::map<int, Roots> found_;
};

/// What tables leave of a program.
struct TablePlan {
  std::set<int> computed;  ///< steps of the graph that are still computed, an element at a time
  int64_t looked_up = 0;   ///< elements that come from tables
  bool leaves_out(int step) const { return looked_up > 0 && !computed.count(step); }
};
TablePlan plan_tables(const Program& program);

/// The bits of `value` for each pattern of the 16 bits of `root`.
Table make_table(const Program& program, int value, int root);

/// out[i] = table[in[i]], a cpu::StepFn; params: the table's first entry.
void look_up(const void* const* in, void* out, size_t n, const void* table);

}  // namespace tenor::fusion
