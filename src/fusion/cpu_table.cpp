#include "src/fusion/cpu_table.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <iterator>
#include <mutex>
#include <string>
#include <utility>

#include "src/fusion/cpu_pass.h"

namespace tenor::fusion {
namespace {

using Kind = Instruction::Kind;

constexpr size_t kPatterns = 65536;
std::atomic<int64_t> all_made = 0;

bool is_short(DType dtype) { return dtype == float16 || dtype == bfloat16; }
bool computes(const Instruction& i) { return i.kind == Kind::kMap || i.kind == Kind::kConvert; }

/// Elements of a value along all axes.
int64_t elements_of(const Program& p, const Instruction& i) {
  int64_t n = 1;
  for (size_t a = 0; a < p.axes.size(); ++a)
    if (i.varies[a]) n *= p.axes[a].size;
  return n;
}

/// Both, or what is there of them.
std::optional<std::vector<int>> common(std::optional<std::vector<int>> a, const std::optional<std::vector<int>>& b) {
  if (!a || !b) return a ? a : b;
  std::vector<int> both;
  std::set_intersection(a->begin(), a->end(), b->begin(), b->end(), std::back_inserter(both));
  return both;
}

}  // namespace

TableRule& table_rule() {
  static TableRule rule;
  return rule;
}

int64_t tables_made() { return all_made; }

/// Whether a pass of `like` reads the value from memory.
bool TableFinder::is_leaf(int value, const Instruction& like) const {
  const Instruction& i = at(value);
  const bool here = i.phase == like.phase && i.varies == like.varies;
  return !computes(i) || (homes_[static_cast<size_t>(value)].kind != Home::Kind::kNone && !here);
}

/// The 16-bit values that every path from the value's inputs to memory goes through.
const TableFinder::Roots& TableFinder::roots_of(int value, const Instruction& like) {
  if (const auto known = found_.find(value); known != found_.end()) return known->second;
  Roots all;
  for (int in : at(value).inputs) {
    if (at(in).kind == Kind::kScalar) continue;
    Roots through = is_leaf(in, like) ? Roots(std::vector<int>()) : roots_of(in, like);
    if (through && is_short(at(in).dtype)) through->insert(std::lower_bound(through->begin(), through->end(), in), in);
    all = common(std::move(all), through);
  }
  return found_[value] = std::move(all);
}

void TableFinder::add_cost(int value, int root, const std::function<bool(int)>& computed, std::map<int, bool>& seen,
                           int64_t& cost) const {
  if (value == root || !computes(at(value)) || computed(value) || std::exchange(seen[value], true)) return;
  cost += 3 + (at(value).kind == Kind::kMap ? elementwise::row(at(value).map.op).cost : 0);
  for (int in : at(value).inputs) add_cost(in, root, computed, seen, cost);
}

int TableFinder::root_of(int value, const std::function<bool(int)>& computed) {
  const Instruction& made = at(value);
  if (!is_short(made.dtype) || p_.axes.empty() || elements_of(p_, made) < table_rule().elements) return -1;
  const Roots& roots = roots_of(value, made);
  if (!roots || roots->empty()) return -1;
  const int root = roots->front();  // instructions stand in the order in which they run
  if (at(root).varies != made.varies) return -1;
  int64_t cost = 0;
  std::map<int, bool> seen;
  add_cost(value, root, computed, seen, cost);
  return cost >= table_rule().cost ? root : -1;
}

TablePlan plan_tables(const Program& program) {
  const std::vector<Home> homes(program.code.size());
  TableFinder finder(program, homes);
  TablePlan plan;
  std::vector<bool> needed(program.code.size());
  for (const Store& s : program.stores) needed[static_cast<size_t>(s.value)] = true;
  for (size_t i = program.code.size(); i-- > 0;) {
    const Instruction& made = program.code[i];
    if (made.kind != Kind::kReduce && !needed[i]) continue;
    const int root = computes(made) ? finder.root_of(static_cast<int>(i), [](int) { return false; }) : -1;
    if (root >= 0) {
      plan.looked_up += elements_of(program, made);
      needed[static_cast<size_t>(root)] = true;
      continue;
    }
    plan.computed.insert(made.step);
    for (int in : made.inputs) needed[static_cast<size_t>(in)] = true;
  }
  return plan;
}

namespace {

/// What a table's entries follow from: the instructions from the root to the value, whose numbers count from there.
std::string recipe_of(const Program& program, int value, int root) {
  std::set<int> needed{value};
  for (int i = value; i >= 0; --i)  // steps on scalars alone may stand before the root
    if (i != root && needed.count(i) && computes(program.code[static_cast<size_t>(i)]))
      needed.insert(program.code[static_cast<size_t>(i)].inputs.begin(),
                    program.code[static_cast<size_t>(i)].inputs.end());
  std::string key;
  std::map<int, int> numbers;
  const auto add = [&](const auto& part) { key.append(reinterpret_cast<const char*>(&part), sizeof(part)); };
  for (int i : needed) {
    const Instruction& made = program.code[static_cast<size_t>(i)];
    numbers[i] = static_cast<int>(numbers.size());
    add(i == root ? Kind::kLoad : made.kind), add(made.dtype);
    if (i == root || made.kind == Kind::kScalar) {
      if (i != root) add(made.element);
      continue;
    }
    for (int in : made.inputs) add(numbers.at(in));
    if (made.kind != Kind::kMap) continue;
    add(made.map.op), add(made.map.fn), add(made.map.computed), add(made.map.has_params);
    if (made.map.has_params) add(made.map.params);
    for (size_t k = 0; k < made.inputs.size(); ++k) add(made.map.compute[k]);
  }
  return key;
}

Table made_table(const Program& program, int value, int root) {
  std::vector<uint16_t> patterns(kPatterns);
  for (size_t i = 0; i < kPatterns; ++i) patterns[i] = static_cast<uint16_t>(i);
  auto table = std::make_shared<std::vector<uint16_t>>(kPatterns);
  Dims along(program.axes.size(), 0);
  along[0] = 1;
  std::vector<Home> homes(program.code.size());
  for (size_t i = 0; i < homes.size(); ++i)
    if (program.code[i].kind == Kind::kScalar) homes[i] = {Home::Kind::kElement, -1, 0, Dims(along.size(), 0)};
  homes[static_cast<size_t>(root)] = {Home::Kind::kArgument, 0, 0, along};
  PassBuilder builder(program, homes, {0}, false);
  builder.compute(value, false);
  builder.store(value, {Home::Kind::kArgument, 1, 0, along});
  Pass pass = builder.finish();
  pass.tiles.shape = {static_cast<int64_t>(kPatterns)};
  for (size_t i = 0; i < pass.inputs.size(); ++i) {
    const int read = pass.inputs[i].value;
    const auto& element = program.code[static_cast<size_t>(read)].element;
    pass.tiles.inputs[i].data = read == root ? static_cast<void*>(patterns.data()) : const_cast<char*>(element.data());
  }
  pass.tiles.outputs[0].data = table->data();
  cpu::run_tiles(pass.tiles);
  ++all_made;
  return table;
}

}  // namespace

/// One for all kernels that want it at a time: a function's kernels of other shapes have the same.
Table make_table(const Program& program, int value, int root) {
  static std::mutex mutex;
  static std::map<std::string, std::weak_ptr<const std::vector<uint16_t>>> tables;
  const std::string key = recipe_of(program, value, root);
  const std::lock_guard lock(mutex);
  if (const auto at = tables.find(key); at != tables.end())
    if (Table held = at->second.lock()) return held;
  std::erase_if(tables, [](const auto& entry) { return entry.second.expired(); });
  Table table = made_table(program, value, root);
  tables[key] = table;
  return table;
}

void look_up(const void* const* in, void* out, size_t n, const void* table) {
  typedef uint16_t Eight __attribute__((vector_size(16)));
  const auto* from = static_cast<const uint16_t*>(in[0]);
  const auto* t = static_cast<const uint16_t*>(table);
  auto* to = static_cast<uint16_t*>(out);
  size_t i = 0;
  for (; i + 8 <= n; i += 8) {
    uint64_t a, b;  // two loads of four places, rather than eight
    std::memcpy(&a, from + i, sizeof(a));
    std::memcpy(&b, from + i + 4, sizeof(b));
    const auto at = [t](uint64_t places, int k) { return t[places >> 16 * k & 0xFFFF]; };
    const Eight found{at(a, 0), at(a, 1), at(a, 2), at(a, 3), at(b, 0), at(b, 1), at(b, 2), at(b, 3)};
    std::memcpy(to + i, &found, sizeof(found));
  }
  for (; i < n; ++i) to[i] = t[from[i]];
}

}  // namespace tenor::fusion
