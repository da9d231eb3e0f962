// Candidate lists: the ordered ways in which an operator can be computed, each saying why it declines a problem.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "src/core/text.h"
#include "tenor/error.h"

namespace tenor::core {

/// One way to compute a problem. Lists end with one that takes every valid problem.
template <class Problem>
struct Candidate {
  const char* name;
  std::string (*why_not)(const Problem&);  ///< empty: takes it
  void (*run)(const Problem&);
};

/// Takes every problem of its device.
template <class Problem>
std::string always(const Problem&) {
  return {};
}

/// "name: reason" of every candidate that declines, one a line.
template <class Problem>
std::string declined(std::span<const Candidate<Problem>> list, const Problem& problem) {
  std::string lines;
  for (const auto& c : list)
    if (std::string reason = c.why_not(problem); !reason.empty()) lines += std::string(c.name) + ": " + reason + "\n";
  return lines;
}

/// The first candidate that takes the problem ("auto"), or the one named.
/// @throws ValueError for an unknown name, UnsupportedError with its reason for one that declines.
template <class Problem>
const Candidate<Problem>& choose(const char* op, std::span<const Candidate<Problem>> list, const Problem& problem,
                                 std::string_view strategy = "auto") {
  std::string known = "'auto'";
  for (const auto& c : list) {
    if (strategy == "auto" && c.why_not(problem).empty()) return c;
    if (strategy == c.name) {
      const std::string reason = c.why_not(problem);
      if (!reason.empty()) fail<UnsupportedError>("{}: strategy '{}' cannot do this: {}", op, c.name, reason);
      return c;
    }
    known += std::string(", '") + c.name + "'";
  }
  if (strategy != "auto") fail<ValueError>("{}: strategy must be one of {}, got '{}'", op, known, std::string(strategy));
  fail<UnsupportedError>("{}: no strategy takes this problem:\n{}", op, declined(list, problem));
}

}  // namespace tenor::core
