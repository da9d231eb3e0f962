#include "tenor/limits.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "src/cpu/amx.h"
#include "src/cpu/limits.h"
#include "tenor/error.h"

namespace tenor {
namespace {

TEST(Limits, WorkIsCounted) {
  EXPECT_GT(cpu::multiply_adds(10), 0);
  EXPECT_EQ(cpu::multiply_adds(20), 2 * cpu::multiply_adds(10));
  if (!cpu::has_amx()) return;
  EXPECT_EQ(cpu::amx_products(3), 3 * 4 * 2 * 16 * 16 * 32);
}

TEST(Limits, AreMeasuredOnceAndKept) {
  const std::string folder = testing::TempDir() + "/tenor-limits";
  std::filesystem::remove_all(folder);
  setenv("TENOR_CACHE_DIR", folder.c_str(), 1);
  const DeviceLimits first = device_limits(kCpu, true);
  EXPECT_GT(first.copy_bytes, 1e8);
  EXPECT_GT(first.float32_flops, 1e8);
  EXPECT_GE(first.bfloat16_flops, first.float32_flops * 0.5);
  EXPECT_EQ(device_limits().copy_bytes, first.copy_bytes);
  std::ifstream file(folder + "/limits.txt");
  std::string line;
  EXPECT_TRUE(std::getline(file, line));
  EXPECT_NE(line.find("threads"), std::string::npos) << line;
  EXPECT_THROW(device_limits({DeviceType::kCuda, 0}), UnsupportedError);
  unsetenv("TENOR_CACHE_DIR");
}

}  // namespace
}  // namespace tenor
