// Devices as rates: what a step takes at least.
#pragma once

#include <string>
#include <vector>

#include "src/core/device_traits.h"
#include "src/core/step.h"
#include "src/fusion/effort.h"
#include "tenor/explain.h"
#include "tenor/limits.h"

namespace tenor::fusion {

/// How a rate is known.
inline constexpr const char *kMeasured = "measured", *kDataSheet = "data sheet", *kAssumed = "assumed";

struct Rate {
  double value;  ///< FLOPs, or elements, a second; 0 unknown
  const char* source;
};

struct Target {
  std::string name;                ///< "cpu", "cuda:0", "h200"
  std::string source;              ///< what the device is, and where the rates come from, on one line
  core::DeviceTraits traits;       ///< what candidates ask
  std::vector<MemoryRate> memory;  ///< by rising size; beyond the last its rates hold
  const char* memory_source;
  Rate vector32, vector64;                           ///< arithmetic outside of contractions, float64 and all other
  Rate matrix8, matrix16, matrix32, matrix64;        ///< contractions, by operand
  FunctionRates functions32 = {}, functions64 = {};  ///< measured, like the next
  ConversionRates float16 = {}, bfloat16 = {};

  /// Seconds to read and write that much, which share the caches; `effort` says how much of it lies across.
  double memory_seconds(int64_t bytes_read, int64_t bytes_written, const Effort& effort = {}) const;
  /// Seconds of a step's arithmetic by itself, where an addition is an instruction of its own.
  double compute_seconds(const core::Step& step, const Effort& effort) const;
  /// At least what a step adds to a kernel of several, where it may meet another in a fused multiply-add, and what
  /// passes between them stays in float32.
  double fused_seconds(const core::Step& step, const Effort& effort) const;
  Rate flop_rate(const core::Step& step) const;
  /// Its rates by name.
  std::vector<Explanation::Limit> limits() const;
};

/// "cpu": this machine's CPU, "cuda" and "cuda:1": its GPUs, measured both; "h200", "h100", "a100" from a table.
/// @throws ValueError for an unknown name, which it says; DeviceError where this machine has no such GPU.
Target target_of(const std::string& name);
/// What the candidates of that target ask of it, without measuring anything.
core::DeviceTraits traits_of_target(const std::string& name);
/// The names that are built in.
std::vector<std::string> target_names();

}  // namespace tenor::fusion
