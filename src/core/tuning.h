// The tuning store, and the timing of candidates: what choose_tuned() (candidates.h) is made of.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/core/device_traits.h"
#include "tenor/autotune.h"

namespace tenor::core {

/// What was measured for one problem of one operator.
struct Tuning {
  std::string op;
  std::string problem;  ///< shapes, strides and dtypes, as the operator writes them
  std::string machine;  ///< tuning_machine()
  std::string version;  ///< of the library
  std::string winner;
  std::vector<std::pair<std::string, double>> microseconds;  ///< of each candidate, in the list's order
};

/// What a measurement on that device depends on, on one line: machine_key(), or a CUDA device with its driver's and
/// cuBLASLt's versions.
std::string tuning_machine(Device device = kCpu);
/// The candidate remembered for a problem on this device, version and (on the CPU) thread count.
std::optional<std::string> tuned_winner(std::string_view op, const std::string& problem, Device device = kCpu);
/// Keeps the fastest of these, in the process and on disk, the first unless another is 3% faster. Other processes'
/// entries stay.
void remember_tuning(std::string_view op, const std::string& problem,
                     std::vector<std::pair<std::string, double>> microseconds, Device device = kCpu);
/// Everything kept, other machines' and versions' entries too.
std::vector<Tuning> tunings();
/// Forgets an operator's entries (of one problem, or of all for ""; of one machine, or all), or every operator's for "".
/// Returns how many.
int forget_tunings(std::string_view op, std::string_view problem = {}, std::string_view machine = {});

/// While it lives, collects the (operator, problem) of every tuned choice on this thread: for `tenor tune`.
class TuningLog {
 public:
  TuningLog();
  ~TuningLog();
  TuningLog(const TuningLog&) = delete;
  TuningLog& operator=(const TuningLog&) = delete;
  /// Adds to this thread's log, if there is one.
  static void add(std::string_view op, const std::string& problem);

  std::vector<std::pair<std::string, std::string>> problems;

 private:
  TuningLog* previous_;
};

/// Microseconds of a call, after one that is not counted: on the CPU the least of several by the clock, on CUDA the
/// median by events, the L2 cache flushed before each. Gives up after the first when that took longer than `give_up`
/// microseconds, and returns its time.
double time_call(const std::function<void()>& run, double give_up, Device device = kCpu);

/// Whether candidates may be timed now: not while the device's current stream is captured, nor for a traced shape.
bool may_measure(Device device);
/// Whether the device is one that a traced shape stands for, so that nothing is remembered of it.
inline bool is_described(Device device) {
  return device.type == DeviceType::kMeta && runs_on(device) != DeviceType::kCpu;
}

/// Held while candidates are timed, so that no two measurements disturb each other; a candidate may call an operator
/// that is measured itself.
class MeasuringLock {
 public:
  MeasuringLock();
  ~MeasuringLock();
  MeasuringLock(const MeasuringLock&) = delete;
  MeasuringLock& operator=(const MeasuringLock&) = delete;
};

}  // namespace tenor::core
