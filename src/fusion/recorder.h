// A tracer that keeps the steps of a call, and when they ran.
#pragma once

#include <chrono>
#include <vector>

#include "src/core/step.h"

namespace tenor::fusion {

/// Keeps every step stated on this thread while it is installed. Tensors stay alive with their steps, so storages are
/// told apart by their address.
class Recorder final : public core::Tracer {
 public:
  void record(const core::Step& step) override {
    steps.push_back(step);
    seconds.push_back(0);
    started_ = std::chrono::steady_clock::now();
  }
  void done() override {
    if (!seconds.empty())
      seconds.back() = std::chrono::duration<double>(std::chrono::steady_clock::now() - started_).count();
  }

  std::vector<core::Step> steps;
  std::vector<double> seconds;  ///< from statement to completion of each step; 0 for those that ran nothing

 private:
  std::chrono::steady_clock::time_point started_;
};

}  // namespace tenor::fusion
