#include "tenor/limits.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "src/core/cache_folder.h"
#include "src/cpu/amx.h"
#include "src/cpu/limits.h"
#include "tenor/error.h"
#include "tenor/stream.h"

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
  if (cuda_device_count() == 0) EXPECT_THROW(device_limits({DeviceType::kCuda, 0}), DeviceError);
  unsetenv("TENOR_CACHE_DIR");
}

TEST(Limits, AreRaisedNeverLowered) {
  const std::string folder = testing::TempDir() + "/tenor-limits-raised";
  std::filesystem::remove_all(folder);
  setenv("TENOR_CACHE_DIR", folder.c_str(), 1);
  const int threads = num_threads();
  set_num_threads(threads + 5);  // a machine of its own, which no other test has measured
  const std::string key = core::machine_key();
  std::filesystem::create_directories(folder);
  {
    std::ofstream file(folder + "/limits.txt");  // as a busy machine measured them, but for one
    file << "1e6 1e6 1e18";
    for (int i = 0; i < 5; ++i) file << ' ' << (1 << (20 + 2 * i)) << " 1e6 1e6";
    file << ' ' << key << '\n';
  }
  const DeviceLimits low = device_limits();
  EXPECT_EQ(low.copy_bytes, 1e6);
  EXPECT_TRUE(raise_limits());
  const DeviceLimits mended = device_limits();
  EXPECT_GT(mended.copy_bytes, 1e8);
  EXPECT_GT(mended.memory[4].read_bytes, 1e8);
  EXPECT_EQ(mended.bfloat16_flops, 1e18);
  std::ifstream file(folder + "/limits.txt");
  std::string line;
  std::getline(file, line);
  EXPECT_EQ(line.rfind("1e+06", 0), std::string::npos) << "kept on disk: " << line;
  for (int i = 0; i < 5; ++i) raise_limits();
  EXPECT_FALSE(raise_limits()) << "three attempts a process are enough";
  set_num_threads(threads);
  unsetenv("TENOR_CACHE_DIR");
}

}  // namespace
}  // namespace tenor
