// An einsum equation over shapes, and the order of its pairwise contractions.
#pragma once

#include <bitset>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tenor/contract.h"

namespace tenor::contract {

inline constexpr size_t kMaxLabels = 128;  // 52 letters and the dims of "..."
using LabelSet = std::bitset<kMaxLabels>;

/// Labels are numbers from 0; each stands for a letter or for one dim of "...".
struct Equation {
  const char* op;                       ///< named in errors
  std::vector<std::vector<int>> terms;  ///< labels of each operand, one a dim
  std::vector<int> out;
  std::vector<std::string> names = {};  ///< of each label
  Dims sizes = {};                      ///< of each label, after broadcasting
};

/// @throws ValueError for a malformed equation, ShapeError for shapes that do not fit it.
Equation parse_equation(std::string_view text, std::span<const Dims> shapes);
/// Fills `sizes` from the operands' shapes. @throws ShapeError naming label, operands and sizes.
void set_sizes(Equation& equation, std::span<const Dims> shapes);

/// A step on the list of operands: `first` and `second` leave it (they may be one operand, which is then only summed),
/// the result is appended.
struct PathStep {
  int first, second;
  LabelSet operands[2];  ///< labels that each really has: dims of size 1 that broadcast are left out
  LabelSet kept;         ///< labels of the result
  int64_t flops;
};

/// The steps, each operand's own sums first. `in_order`: left to right, whatever the sizes.
std::vector<PathStep> plan_path(const Equation& equation, std::span<const Dims> shapes, bool in_order);

}  // namespace tenor::contract
