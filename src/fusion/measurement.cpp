#include "src/fusion/measurement.h"

#include <algorithm>
#include <random>

#include "src/core/backend.h"
#include "src/core/text.h"
#include "src/fusion/target.h"
#include "tenor/create.h"
#include "tenor/view.h"

namespace tenor::fusion {
namespace {

constexpr int kWarmUps = 2, kMostRuns = 50;  // on CUDA the first runs are not counted
constexpr double kEnough = 0.5;              // seconds

/// Random numbers in [0, 1), a block of them repeated.
Tensor random_numbers(const Dims& shape, DType dtype, Device device) {
  constexpr int64_t kBlock = 65521;
  const Tensor block = Tensor::empty({1, kBlock}, float32);
  std::mt19937 random(0);
  for (int64_t i = 0; i < kBlock; ++i) block.data<float>()[i] = static_cast<float>(random() >> 8) * 0x1p-24f;
  const int64_t count = product(shape), blocks = (count + kBlock - 1) / kBlock;
  const Tensor all = reshape(expand(block.to(dtype).to(device), {blocks, kBlock}).contiguous(), {blocks * kBlock});
  return reshape(narrow(all, 0, 0, count), shape);
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// Whether steps of more than a megabyte took less than 95% of their floor, which no step does where the limits are
/// right.
bool beats_limits(const Explanation& e) {
  constexpr double kTooMuch = 1.05;
  return std::any_of(e.steps.begin(), e.steps.end(), [](const Explanation::Step& s) {
    return s.share > kTooMuch && s.bytes_read + s.bytes_written > int64_t{1} << 20;
  });
}

}  // namespace

Device device_to_measure(const std::string& target) {
  const core::DeviceTraits wanted = traits_of_target(target);
  if (wanted.type == DeviceType::kCpu) return kCpu;
  if (wanted.index >= 0) return {DeviceType::kCuda, wanted.index};
  std::string model = target;
  std::transform(model.begin(), model.end(), model.begin(), [](unsigned char c) { return std::toupper(c); });
  for (int i = 0; i < cuda_device_count(); ++i)
    if (const Device device{DeviceType::kCuda, i}; core::device_traits(device).name.find(model) != std::string::npos)
      return device;
  core::fail<ValueError>("explain: measure runs on this machine, which has no {}; device must be 'cpu' or 'cuda' then",
                         target);
}

Tensor measured_input(const Tensor& x, Device device) {
  if (x.device() == device) return x.clone();
  if (x.device().type != DeviceType::kMeta) return x.to(device);
  if (is_float(x.dtype()) && x.numel() > 0) return random_numbers(x.shape(), x.dtype(), device);
  return zeros(x.shape(), {.dtype = x.dtype(), .device = device});
}

Measurement::Measurement(Device device) : device_(device), start_(std::chrono::steady_clock::now()) {
  if (device.type == DeviceType::kCuda) timer_ = core::instruments(device).timer(device);
}

bool Measurement::more() const {
  const int least = timer_ ? kWarmUps + 10 : 3;
  const double spent = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  return runs_ < least || (runs_ < kMostRuns && spent < kEnough);
}

void Measurement::add(Recorder& recorder) {
  recorder.settle();
  if (timer_) synchronize(device_);  // what a kernel found wrong with an index is an error here too
  if (++runs_ <= kWarmUps && timer_) return;
  std::vector<std::string> ops;
  for (const core::Step& s : recorder.steps) ops.emplace_back(s.op);
  if (ops != ops_) ops_ = std::move(ops), seconds_.assign(ops_.size(), {});
  for (size_t i = 0; i < ops_.size(); ++i) seconds_[i].push_back(recorder.seconds[i]);
}

void Measurement::finish(Explanation& e) const {
  size_t at = 0;
  for (Explanation::Step& row : e.steps) {
    size_t found = at;
    while (found < ops_.size() && ops_[found] != row.op) ++found;
    if (found == ops_.size()) continue;
    at = found + 1;
    const std::vector<double>& all = seconds_[found];
    if (row.view || all.empty()) continue;
    row.time_us = 1e6 * (timer_ ? median(all) : *std::min_element(all.begin(), all.end()));
    if (row.time_us > 0) row.share = row.floor_us / row.time_us;
  }
  if (timer_)
    e.remarks.push_back(
        core::text("measured on {} by events on the current stream, median of {} runs, the L2 cache emptied "
                   "before each step",
                   core::device_traits(device_).name, runs_ - kWarmUps));
  else
    e.remarks.push_back(core::text("measured on this machine, least time of {} runs", runs_));
}

Explanation with_times(const Measurement& measurement, const std::function<Explanation()>& explained) {
  Explanation e = explained();
  measurement.finish(e);
  if (!beats_limits(e)) return e;
  const bool own_limits = e.device == to_string(measurement.device());  // not a table's
  if (own_limits && raise_limits(measurement.device())) {
    e = explained();
    measurement.finish(e);
  }
  if (beats_limits(e))
    e.remarks.push_back(
        "a share above 100%: the step's data was in a cache, or the machine was busy whenever its limits were "
        "measured (tenor info --again measures them anew)");
  return e;
}

}  // namespace tenor::fusion
