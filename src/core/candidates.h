// Candidate lists: the ordered ways in which an operator can be computed, each saying why it declines a problem.
#pragma once

#include <algorithm>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/core/modes.h"
#include "src/core/text.h"
#include "src/core/tuning.h"
#include "tenor/error.h"

namespace tenor::core {

/// One way to compute a problem. Lists end with one that takes every valid problem.
template <class Problem>
struct Candidate {
  const char* name;
  std::string (*why_not)(const Problem&);  ///< empty: takes it
  void (*run)(const Problem&);
  /// Candidates of one class round alike (what is accumulated, in which precision), so autotuning may choose among
  /// them.
  int numerics = 0;
};

/// The class of a plain candidate that ends a list: too slow to be worth timing.
inline constexpr int kNeverTuned = -1;

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

/// The candidates that autotuning may put in place of `usual`: of its numerics class, and taking the problem.
template <class Problem>
std::vector<const Candidate<Problem>*> rivals(std::span<const Candidate<Problem>> list, const Problem& problem, const Candidate<Problem>& usual) {
  std::vector<const Candidate<Problem>*> found;
  for (const auto& c : list)
    if (usual.numerics != kNeverTuned && c.numerics == usual.numerics && c.why_not(problem).empty()) found.push_back(&c);
  return found;
}

/// Runs every rival and keeps what it took on that device. Writes the problem's output.
template <class Problem>
void measure(const char* op, std::span<const Candidate<Problem>* const> rivals, const Problem& problem, Device device,
             const std::string& key) {
  constexpr double kForever = std::numeric_limits<double>::infinity();
  std::vector<std::pair<std::string, double>> microseconds;
  for (const auto* c : rivals) microseconds.emplace_back(c->name, kForever);
  double best = kForever;
  for (int round = 0; round < 3; ++round)  // in turn, so that a slow moment of the machine meets them all
    for (size_t i = 0; i < rivals.size(); ++i) {
      double& time = microseconds[i].second;
      if (round > 0 && time > 2 * best) continue;  // it will not win any more
      time = std::min(time, time_call([&] { rivals[i]->run(problem); }, 4 * best, device));
      best = std::min(best, time);
    }
  remember_tuning(op, key, std::move(microseconds), device);
}

/// choose(), and with autotuning on the fastest candidate measured for this problem. `key()` writes the problem down:
/// everything that speed may depend on beside the device that it is on. Where nothing is known yet, `may_run` says
/// whether to measure now (running each candidate, so the problem must have its memory, and its output may not be an
/// input); while the device's current stream is captured nothing is.
template <class Problem, class KeyOf>
const Candidate<Problem>& choose_tuned(const char* op, std::span<const Candidate<Problem>> list, const Problem& problem,
                                       Device device, std::string_view strategy, bool may_run, KeyOf key) {
  const Candidate<Problem>& usual = choose(op, list, problem, strategy);
  if (!autotuning() || strategy != "auto" || batch_invariant() || is_described(device)) return usual;
  const auto among = rivals(list, problem, usual);
  if (among.size() < 2) return usual;
  const std::string problem_key = key();
  TuningLog::add(op, problem_key);
  auto winner = tuned_winner(op, problem_key, device);
  if (!winner && may_run && may_measure(device)) {
    const MeasuringLock lock;
    winner = tuned_winner(op, problem_key, device);  // another thread may have measured it
    if (!winner) measure<Problem>(op, among, problem, device, problem_key);
    winner = tuned_winner(op, problem_key, device);
  }
  for (const auto* c : among)
    if (winner == c->name) return *c;
  return usual;
}

}  // namespace tenor::core
