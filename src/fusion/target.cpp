#include "src/fusion/target.h"

#include <algorithm>
#include <cmath>

#include "src/core/text.h"

namespace tenor::fusion {
namespace {

constexpr double kTera = 1e12;

Target gpu(const char* name, const char* source, double read, double copy, double vector32, double vector64,
           double matrix8, double matrix16, double matrix64) {
  // float32 contractions keep the accuracy of float32 multiply-adds, so plain TF32 is not their limit.
  return {name,
          source,
          {{1, read * kTera, copy * kTera}},
          vector32 * kTera,
          vector64 * kTera,
          matrix8 * kTera,
          matrix16 * kTera,
          vector32 * kTera,
          matrix64 * kTera};
}

std::vector<Target> built_in() {
  return {
      gpu("h200", "H200 SXM: memory, bf16 and fp8 as measured on one, the rest from its data sheet", 4.24, 4.27, 66.9,
          33.5, 1358, 779, 66.9),
      gpu("h100", "H100 SXM 80 GB, from its data sheet", 3.35, 3.35, 66.9, 33.5, 1979, 989, 66.9),
      gpu("a100", "A100 SXM 80 GB, from its data sheet", 2.039, 2.039, 19.5, 9.7, 312, 312, 19.5),
  };
}

Target this_machine() {
  const DeviceLimits l = device_limits();
  Target t{"cpu",
           core::text("this machine, measured with {} threads", num_threads()),
           {l.memory.begin(), l.memory.end()},
           l.float32_flops,
           l.float32_flops / 2,
           l.float32_flops,
           l.bfloat16_flops,
           l.float32_flops,
           l.float32_flops / 2};
  return t;
}

/// Rates at that size, between the sizes measured along its logarithm.
MemoryRate rate_at(const std::vector<MemoryRate>& rates, double size) {
  if (size <= rates.front().size) return rates.front();
  for (size_t i = 1; i < rates.size(); ++i) {
    if (size > rates[i].size) continue;
    const double w = std::log(size / rates[i - 1].size) / std::log(rates[i].size / rates[i - 1].size);
    const auto between = [&](double a, double b) { return a * std::pow(b / a, w); };
    return {size, between(rates[i - 1].read_bytes, rates[i].read_bytes),
            between(rates[i - 1].copy_bytes, rates[i].copy_bytes)};
  }
  return rates.back();
}

}  // namespace

double Target::memory_seconds(int64_t bytes_read, int64_t bytes_written) const {
  const auto read = static_cast<double>(bytes_read), written = static_cast<double>(bytes_written);
  const MemoryRate rate = rate_at(memory, read + written);
  // A copy of n bytes reads n and writes n, so its time less the reading's is the writing's.
  const double per_read = 1 / rate.read_bytes,
               per_written = std::max(2 / rate.copy_bytes - per_read, 0.5 / rate.copy_bytes);
  return read * per_read + written * per_written;
}

double Target::compute_seconds(const core::Step& step) const {
  const DType dtype = step.inputs.empty() ? float32 : step.inputs[0].dtype();
  const bool contracts = step.op_class == core::OpClass::kContraction;
  double rate = dtype == float64 ? vector64 : vector32;
  if (contracts)
    rate = dtype == float64                           ? matrix64
           : is_float8(dtype)                         ? matrix8
           : item_size(dtype) == 2 && is_float(dtype) ? matrix16
                                                      : matrix32;
  return static_cast<double>(step.flops) / rate;
}

Target target_of(const std::string& name) {
  if (name.empty() || name == "cpu") return this_machine();
  std::string lower = name, known = "'cpu'";
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
  for (Target& t : built_in()) {
    if (t.name == lower) return t;
    known += ", '" + t.name + "'";
  }
  core::fail<ValueError>("explain: device must be one of {}, got '{}'", known, name);
}

std::vector<std::string> target_names() {
  std::vector<std::string> names{"cpu"};
  for (const Target& t : built_in()) names.push_back(t.name);
  return names;
}

}  // namespace tenor::fusion
