// A tracer that keeps the steps of a call, and how long they took.
#pragma once

#include <array>
#include <chrono>
#include <cstring>
#include <memory>
#include <vector>

#include "src/core/constant_keeper.h"
#include "src/core/instruments.h"
#include "src/core/modes.h"
#include "src/core/step.h"

namespace tenor::fusion {

/// A number that an operator turned into a tensor.
struct TracedConstant {
  Tensor made;  ///< 0-d, without memory
  std::array<char, 8> element;
};

/// Keeps every step stated on this thread while it is installed. Tensors stay alive with their steps, so storages are
/// told apart by their address. With a device's timer the steps are timed there, else by the clock.
class Recorder final : public core::Tracer, public core::ConstantKeeper {
 public:
  explicit Recorder(std::shared_ptr<core::DeviceTimer> timer = {}) : timer_(std::move(timer)) {}

  void record(const core::Step& step) override {
    steps.push_back(step);
    same_modes = same_modes && core::batch_invariant() == batch_invariant_ && core::tf32_allowed() == tf32_allowed_;
    seconds.push_back(0);
    if (timer_) timer_->start();
    started_ = std::chrono::steady_clock::now();
  }
  void done() override {
    if (seconds.empty()) return;
    seconds.back() = std::chrono::duration<double>(std::chrono::steady_clock::now() - started_).count();
    if (timer_) timer_->stop(), timed_.push_back(seconds.size() - 1);
  }

  void keep(const Tensor& x, const void* element) override {
    constants.push_back({x, {}});
    std::memcpy(constants.back().element.data(), element, item_size(x.dtype()));
  }

  /// Waits for the device's timer and puts its times in place of the clock's.
  void settle() {
    if (!timer_) return;
    const std::vector<double> measured = timer_->seconds();
    for (size_t i = 0; i < measured.size(); ++i) seconds[timed_[i]] = measured[i];
    timed_.clear();
  }

  std::vector<core::Step> steps;
  std::vector<TracedConstant> constants;
  bool same_modes = true;       ///< whether every step was stated in the modes in which the recorder was made
  std::vector<double> seconds;  ///< from statement to completion of each step; 0 for those that ran nothing

 private:
  std::shared_ptr<core::DeviceTimer> timer_;
  bool batch_invariant_ = core::batch_invariant(), tf32_allowed_ = core::tf32_allowed();
  std::vector<size_t> timed_;  // steps that the timer has marks of
  std::chrono::steady_clock::time_point started_;
};

}  // namespace tenor::fusion
