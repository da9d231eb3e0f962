// Devices as rates: what a step takes at least.
#pragma once

#include <string>
#include <vector>

#include "src/core/step.h"
#include "tenor/limits.h"

namespace tenor::fusion {

/// Bytes and FLOPs a second.
struct Target {
  std::string name;
  std::string source;                            ///< where the rates come from
  std::vector<MemoryRate> memory;                ///< by rising size; beyond the last its rates hold
  double vector32, vector64;                     ///< arithmetic outside of contractions, float64 and all other
  double matrix8, matrix16, matrix32, matrix64;  ///< contractions, by operand

  /// Seconds to read and write that much, which share the caches.
  double memory_seconds(int64_t bytes_read, int64_t bytes_written) const;
  double compute_seconds(const core::Step& step) const;
};

/// "": this machine, measured. @throws ValueError for an unknown name, which it says.
Target target_of(const std::string& name);
/// The names that are built in.
std::vector<std::string> target_names();

}  // namespace tenor::fusion
