// explain(measure): a program run several times, each step's time.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "src/fusion/recorder.h"
#include "tenor/explain.h"

namespace tenor::fusion {

/// The device of this machine on which the steps of that target run: "h200" is the GPU at hand if it is one.
/// @throws ValueError where it is not here
Device device_to_measure(const std::string& target);

/// x on that device in memory of its own, so that in-place steps leave the caller's data alone. Of a shape without
/// memory, numbers in [0, 1), which are in the domain of most functions (products of zeros draw less power and run
/// faster), and for integers zeros, which are in range for every index.
Tensor measured_input(const Tensor& x, Device device);

/// The times of several runs. while (m.more()) { auto r = m.recorder(); run with r installed; m.add(*r); } m.finish(e);
class Measurement {
 public:
  explicit Measurement(Device device);

  /// Whether to run once more: a few times, then while half a second lasts.
  bool more() const;
  /// A tracer for one run.
  std::unique_ptr<Recorder> recorder() const { return std::make_unique<Recorder>(timer_); }
  /// Keeps a run's times; waits for the device.
  void add(Recorder& recorder);
  /// Writes each step's time and share: the least on the CPU, the median on CUDA. A run may state steps that the trace
  /// did not (copies that only real data needs), which are passed over.
  void finish(Explanation& e) const;
  Device device() const { return device_; }

 private:
  Device device_;
  std::shared_ptr<core::DeviceTimer> timer_;
  int runs_ = 0;
  std::chrono::steady_clock::time_point start_;
  std::vector<std::string> ops_;              // of the steps of a run
  std::vector<std::vector<double>> seconds_;  // of each step, a run each
};

/// explained(), of the program that was measured, with the times. Where work beat limits that were measured on this
/// machine, they are raised and it is explained once more: core's raise_limits().
Explanation with_times(const Measurement& measurement, const std::function<Explanation()>& explained);

}  // namespace tenor::fusion
