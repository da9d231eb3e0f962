#include "src/ops/contract/einsum_path.h"

#include <algorithm>
#include <limits>

#include "src/core/modes.h"
#include "src/core/step.h"

namespace tenor::contract {
namespace {

constexpr size_t kExhaustive = 8;  // operands up to which every order is tried: 3^8 splits of subsets

/// A cost: FLOPs first, then the elements of intermediate results.
struct Cost {
  double flops = 0, elements = 0;
  friend Cost operator+(Cost a, Cost b) { return {a.flops + b.flops, a.elements + b.elements}; }
  friend bool operator<(Cost a, Cost b) { return a.flops != b.flops ? a.flops < b.flops : a.elements < b.elements; }
};

class Planner {
 public:
  Planner(const Equation& equation, std::span<const Dims> shapes) : sizes_(equation.sizes) {
    for (int label : equation.out) out_.set(label);
    for (size_t i = 0; i < shapes.size(); ++i) {
      LabelSet own;
      for (size_t d = 0; d < equation.terms[i].size(); ++d)
        if (shapes[i][d] == sizes_[equation.terms[i][d]]) own.set(equation.terms[i][d]);
      operands_.push_back(own);
    }
  }

  std::vector<PathStep> plan(bool in_order) {
    sum_own_labels();
    if (in_order)
      left_to_right();
    else if (operands_.size() <= kExhaustive)
      exhaustive();
    else
      greedy();
    return std::move(steps_);
  }

 private:
  double volume(const LabelSet& labels) const {
    double v = 1;
    for (size_t l = 0; l < sizes_.size(); ++l)
      if (labels[l]) v *= static_cast<double>(sizes_[l]);
    return v;
  }
  Cost cost_of(const LabelSet& both, const LabelSet& kept) const {
    return {volume(both) * (both == kept ? 1 : 2), volume(kept)};
  }
  static int64_t whole(double flops) {
    return flops < 9e18 ? static_cast<int64_t>(flops) : std::numeric_limits<int64_t>::max();
  }

  /// Labels that the output or an operand other than a and b needs.
  LabelSet needed_without(size_t a, size_t b) const {
    LabelSet needed = out_;
    for (size_t i = 0; i < operands_.size(); ++i)
      if (i != a && i != b) needed |= operands_[i];
    return needed;
  }

  /// Labels of one operand alone are summed before it meets another.
  void sum_own_labels() {
    for (size_t i = 0; i < operands_.size();) {
      const LabelSet kept = operands_[i] & needed_without(i, i);
      if (kept == operands_[i]) {
        ++i;
        continue;
      }
      const int at = static_cast<int>(i);
      steps_.push_back({at, at, {operands_[i], operands_[i]}, kept, whole(volume(operands_[i]))});
      operands_.erase(operands_.begin() + at);
      operands_.push_back(kept);
    }
  }

  void contract(size_t a, size_t b) {
    const LabelSet both = operands_[a] | operands_[b], kept = both & needed_without(a, b);
    steps_.push_back({static_cast<int>(a),
                      static_cast<int>(b),
                      {operands_[a], operands_[b]},
                      kept,
                      whole(cost_of(both, kept).flops)});
    operands_.erase(operands_.begin() + static_cast<long>(b));
    operands_.erase(operands_.begin() + static_cast<long>(a));
    operands_.push_back(kept);
  }

  void left_to_right() {
    if (operands_.size() > 1) contract(0, 1);
    while (operands_.size() > 1) contract(0, operands_.size() - 1);
  }

  void greedy() {
    while (operands_.size() > 1) {
      size_t best_a = 0, best_b = 1;
      Cost best{std::numeric_limits<double>::infinity(), 0};
      for (size_t a = 0; a < operands_.size(); ++a)
        for (size_t b = a + 1; b < operands_.size(); ++b) {
          const LabelSet both = operands_[a] | operands_[b];
          const Cost cost = cost_of(both, both & needed_without(a, b));
          if (cost < best) best = cost, best_a = a, best_b = b;
        }
      contract(best_a, best_b);
    }
  }

  /// The best split of every subset of operands, from the small ones up.
  void exhaustive() {
    const size_t n = operands_.size(), all = size_t(1) << n;
    if (n < 2) return;
    std::vector<LabelSet> labels(all);
    std::vector<Cost> cost(all);
    std::vector<size_t> split(all, 0);
    for (size_t set = 1; set < all; ++set) {
      LabelSet inside, outside = out_;
      for (size_t i = 0; i < n; ++i) (set >> i & 1 ? inside : outside) |= operands_[i];
      labels[set] = inside & outside;
      if ((set & (set - 1)) == 0) continue;
      cost[set].flops = std::numeric_limits<double>::infinity();
      const size_t lowest = set & (~set + 1);
      for (size_t part = (set - 1) & set; part; part = (part - 1) & set) {
        if (!(part & lowest)) continue;  // each split once
        const Cost total = cost[part] + cost[set ^ part] + cost_of(labels[part] | labels[set ^ part], labels[set]);
        if (total < cost[set]) cost[set] = total, split[set] = part;
      }
    }
    std::vector<size_t> list;  // which original operands each entry of operands_ stands for
    for (size_t i = 0; i < n; ++i) list.push_back(size_t(1) << i);
    follow(all - 1, split, list);
  }

  void follow(size_t set, const std::vector<size_t>& split, std::vector<size_t>& list) {
    if ((set & (set - 1)) == 0) return;
    follow(split[set], split, list);
    follow(set ^ split[set], split, list);
    size_t a = std::find(list.begin(), list.end(), split[set]) - list.begin(),
           b = std::find(list.begin(), list.end(), set ^ split[set]) - list.begin();
    if (a > b) std::swap(a, b);
    contract(a, b);
    list.erase(list.begin() + static_cast<long>(b));
    list.erase(list.begin() + static_cast<long>(a));
    list.push_back(set);
  }

  Dims sizes_;
  LabelSet out_;
  std::vector<LabelSet> operands_;
  std::vector<PathStep> steps_;
};

/// Labels as letters: their own, and for the dims of "..." letters that the equation does not use.
std::vector<char> letters_of(const Equation& equation) {
  std::vector<char> letters;
  std::string used;
  for (const std::string& name : equation.names)
    if (name.size() == 1) used += name;
  char next = 'A';
  for (const std::string& name : equation.names) {
    while (name.size() > 1 && next <= 'Z' && used.find(next) != std::string::npos) ++next;
    letters.push_back(name.size() == 1 ? name[0] : next <= 'Z' ? next++ : '?');
  }
  return letters;
}

}  // namespace

std::vector<PathStep> plan_path(const Equation& equation, std::span<const Dims> shapes, bool in_order) {
  return Planner(equation, shapes).plan(in_order);
}

}  // namespace tenor::contract

namespace tenor {

EinsumPath einsum_path(std::string_view text, std::span<const Dims> shapes) {
  const contract::Equation equation = contract::parse_equation(text, shapes);
  const std::vector<char> letters = contract::letters_of(equation);
  const auto spell = [&](const contract::LabelSet& labels) {
    std::string s;
    for (size_t l = 0; l < letters.size(); ++l)
      if (labels[l]) s += letters[l];
    return s;
  };
  EinsumPath path;
  for (int label : equation.out) path.shape.push_back(equation.sizes[label]);
  for (const contract::PathStep& s : contract::plan_path(equation, shapes, core::batch_invariant())) {
    const std::string right = s.first == s.second ? "" : "," + spell(s.operands[1]);
    path.steps.push_back({s.first, s.second, spell(s.operands[0]) + right + "->" + spell(s.kept), s.flops});
    path.flops = core::count_sum(path.flops, s.flops);
  }
  return path;
}

}  // namespace tenor
