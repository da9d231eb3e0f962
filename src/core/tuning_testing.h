// What tests of autotuned operators share.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "src/core/tuning.h"
#include "tenor/autotune.h"

namespace tenor::testing {

/// While it lives, a cache folder of its own, with nothing remembered, and autotuning on.
class FreshTuning {
 public:
  FreshTuning() : folder_(::testing::TempDir() + "/tenor-tuning-" + std::to_string(getpid())) {
    std::filesystem::remove_all(folder_);
    setenv("TENOR_CACHE_DIR", folder_.c_str(), 1);
    core::forget_tunings("");
    autotune(true);
  }
  ~FreshTuning() {
    autotune(false);
    unsetenv("TENOR_CACHE_DIR");
    std::filesystem::remove_all(folder_);
  }
  FreshTuning(const FreshTuning&) = delete;
  FreshTuning& operator=(const FreshTuning&) = delete;
  const std::string& folder() const { return folder_; }

 private:
  std::string folder_;
};

}  // namespace tenor::testing
