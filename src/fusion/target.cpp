#include "src/fusion/target.h"

#include <algorithm>
#include <cmath>

#include "src/core/backend.h"
#include "src/core/text.h"

namespace tenor::fusion {
namespace {

constexpr double kTera = 1e12;

/// What is built in of a GPU model, in TB/s and TFLOP/s.
struct Model {
  const char* name;
  const char* full_name;
  int capability;
  double gigabytes;
  double read, copy;
  const char* memory_source;
  double vector32, vector64;
  Rate matrix8, matrix16;
  double matrix64;
};

constexpr Model kModels[] = {
    {"h200", "NVIDIA H200 SXM", 90, 141, 4.24, 4.27, kMeasured, 66.9, 33.5, {1358, kMeasured}, {779, kMeasured}, 66.9},
    {"h100",
     "NVIDIA H100 SXM 80 GB",
     90,
     80,
     3.35,
     3.35,
     kDataSheet,
     66.9,
     33.5,
     {1979, kDataSheet},
     {989, kDataSheet},
     66.9},
    {"a100",
     "NVIDIA A100 SXM 80 GB",
     80,
     80,
     2.039,
     2.039,
     kDataSheet,
     19.5,
     9.7,
     {312, kDataSheet},
     {312, kDataSheet},
     19.5},
};

core::DeviceTraits traits_of(const Model& m) {
  return {DeviceType::kCuda, m.full_name, m.capability, static_cast<int64_t>(m.gigabytes * 1e9)};
}

Target target_of_model(const Model& m) {
  const Rate vector32{m.vector32 * kTera, kDataSheet};
  // float32 contractions keep the accuracy of float32 multiply-adds, so plain TF32 is not their limit.
  return {m.name,
          m.full_name,
          traits_of(m),
          {{1, m.read * kTera, m.copy * kTera, 0}},
          m.memory_source,
          vector32,
          {m.vector64 * kTera, kDataSheet},
          {m.matrix8.value * kTera, m.matrix8.source},
          {m.matrix16.value * kTera, m.matrix16.source},
          vector32,
          {m.matrix64 * kTera, kDataSheet}};
}

/// A device of this machine, measured. No operator multiplies float8, so there is no rate of that.
Target target_of_device(Device device) {
  const DeviceLimits l = device_limits(device);
  const bool on_cpu = device.type == DeviceType::kCpu;
  return {on_cpu ? "cpu" : to_string(device),
          on_cpu ? core::text("this machine with {} thread{}", num_threads(), num_threads() == 1 ? "" : "s")
                 : core::device_traits(device).name,
          core::device_traits(device),
          {l.memory.begin(), l.memory.end()},
          kMeasured,
          {l.float32_flops, kMeasured},
          {l.float64_flops, kMeasured},
          {0, kMeasured},
          {l.bfloat16_flops, kMeasured},
          {l.float32_flops, kMeasured},
          {l.float64_products, kMeasured},
          l.float32,
          l.float64,
          l.float16,
          l.bfloat16};
}

/// "4.27 TB/s", "779 TFLOP/s".
std::string rate_text(double value, const std::string& unit) {
  const char* prefix = value >= 1e12 ? "T" : value >= 1e9 ? "G" : "M";
  value /= value >= 1e12 ? 1e12 : value >= 1e9 ? 1e9 : 1e6;
  const int digits = value < 10 ? 2 : value < 100 ? 1 : 0;
  return core::vtext("{:.{}f} {}{}", fmt::make_format_args(value, digits, prefix, unit));
}

/// "measured: copy 4.27 TB/s, float16 and bfloat16 products 779 TFLOP/s; data sheet: float32 66.9 TFLOP/s".
std::string sources_text(const std::vector<Explanation::Limit>& limits) {
  std::string out;
  for (const char* source : {kMeasured, kDataSheet, kAssumed}) {
    std::string part;
    for (const Explanation::Limit& l : limits)
      if (l.source == source && l.unit != "/s")
        part += (part.empty() ? "" : ", ") + l.name + " " + rate_text(l.value, l.unit);
    if (!part.empty()) out += core::text("{}{}: {}", out.empty() ? "" : "; ", source, part);
  }
  return out;
}

Target with_sources(Target t) {
  t.source = core::text("{}; {}", t.source, sources_text(t.limits()));
  return t;
}

const Model* find_model(const std::string& name) {
  std::string lower = name;
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
  for (const Model& m : kModels)
    if (lower == m.name) return &m;
  return nullptr;
}

/// The device of this machine that a name means.
Device device_named(const std::string& name) {
  if (name == "cpu") return kCpu;
  if (name.rfind("cuda", 0) == 0) {
    const Device device = device_from_name(name);
    core::backend(device);  // throws where it is not there
    return device;
  }
  std::string known;
  for (const std::string& n : target_names()) known += (known.empty() ? "'" : ", '") + n + "'";
  core::fail<ValueError>("explain: device must be one of {}, got '{}'", known, name);
}

/// Rates at that size, between the sizes measured along its logarithm.
MemoryRate rate_at(const std::vector<MemoryRate>& rates, double size) {
  if (size <= rates.front().size) return rates.front();
  for (size_t i = 1; i < rates.size(); ++i) {
    if (size > rates[i].size) continue;
    const double w = std::log(size / rates[i - 1].size) / std::log(rates[i].size / rates[i - 1].size);
    const auto between = [&](double a, double b) { return a * std::pow(b / a, w); };
    return {size, between(rates[i - 1].read_bytes, rates[i].read_bytes),
            between(rates[i - 1].copy_bytes, rates[i].copy_bytes),
            rates[i].turned_bytes > 0 ? between(rates[i - 1].turned_bytes, rates[i].turned_bytes) : 0};
  }
  return rates.back();
}

/// Of a count at a rate; 0 where the rate is unknown.
double seconds_of(int64_t count, double rate) { return rate > 0 ? static_cast<double>(count) / rate : 0; }

}  // namespace

double Target::memory_seconds(int64_t bytes_read, int64_t bytes_written, const Effort& effort) const {
  auto read = static_cast<double>(bytes_read), written = static_cast<double>(bytes_written);
  const MemoryRate rate = rate_at(memory, read + written);
  double turning = 0;
  if (rate.turned_bytes > 0) {
    const double across = std::min(read, static_cast<double>(effort.turned_read)),
                 back = std::min(written, static_cast<double>(effort.turned_written));
    turning = (across + back) / std::min(rate.turned_bytes, rate.copy_bytes), read -= across, written -= back;
  }
  // A copy of n bytes reads n and writes n, so its time less the reading's is the writing's.
  const double per_read = 1 / rate.read_bytes,
               per_written = std::max(2 / rate.copy_bytes - per_read, 0.5 / rate.copy_bytes);
  return turning + read * per_read + written * per_written;
}

Rate Target::flop_rate(const core::Step& step) const {
  const DType dtype = step.inputs.empty() ? float32 : step.inputs[0].dtype();
  const bool contracts = step.op_class == core::OpClass::kContraction;
  if (!contracts) return dtype == float64 ? vector64 : vector32;
  if (dtype == float64) return matrix64;
  if (is_float8(dtype) && matrix8.value > 0) return matrix8;
  return item_size(dtype) <= 2 && is_float(dtype) ? matrix16 : matrix32;
}

double Target::compute_seconds(const core::Step& step, const Effort& e) const {
  const ConversionRates& narrow = e.narrow == DType::kFloat16 ? float16 : bfloat16;
  const FunctionRates& functions = e.width == DType::kFloat64 ? functions64 : functions32;
  const double each = step.op_class == core::OpClass::kContraction ? 1 : 2;  // halves of a fused multiply-add
  // Vector units share what is not a division, which has a unit of its own. The rate of widening has an addition in it.
  const int64_t operations = std::max<int64_t>(0, core::count_sum(step.flops, e.operations) - e.widened);
  const double vectors = each * seconds_of(operations, flop_rate(step).value) +
                         seconds_of(e.exponentials, functions.exponentials) + seconds_of(e.widened, narrow.widened) +
                         seconds_of(e.rounded, narrow.rounded);
  return std::max(vectors, seconds_of(e.divisions, functions.divisions));
}

double Target::fused_seconds(const core::Step& step, const Effort& e) const {
  const FunctionRates& functions = e.width == DType::kFloat64 ? functions64 : functions32;
  return std::max(seconds_of(step.flops, flop_rate(step).value), seconds_of(e.exponentials, functions.exponentials));
}

std::vector<Explanation::Limit> Target::limits() const {
  std::vector<Explanation::Limit> out{{"memory copy", memory.back().copy_bytes, "B/s", memory_source},
                                      {"memory read", memory.back().read_bytes, "B/s", memory_source}};
  for (const auto& [name, rate] : {std::pair{"float32", vector32},
                                   {"float64", vector64},
                                   {"16-bit products", matrix16},
                                   {"float8 products", matrix8},
                                   {"float64 products", matrix64}})
    if (rate.value > 0) out.push_back({name, rate.value, "FLOP/s", rate.source});
  const auto add = [&](const char* name, double value, const char* unit) {
    if (value > 0) out.push_back({name, value, unit, kMeasured});
  };
  add("transposing copy", memory.back().turned_bytes, "B/s");
  add("exponentials", functions32.exponentials, "/s"), add("divisions", functions32.divisions, "/s");
  add("bfloat16 widened", bfloat16.widened, "/s"), add("bfloat16 rounded", bfloat16.rounded, "/s");
  return out;
}

Target target_of(const std::string& name) {
  if (const Model* model = find_model(name)) return with_sources(target_of_model(*model));
  return with_sources(target_of_device(device_named(name)));
}

core::DeviceTraits traits_of_target(const std::string& name) {
  if (const Model* model = find_model(name)) return traits_of(*model);
  return core::device_traits(device_named(name));
}

std::vector<std::string> target_names() {
  std::vector<std::string> names{"cpu", "cuda"};
  for (const Model& m : kModels) names.push_back(m.name);
  return names;
}

}  // namespace tenor::fusion
