#include "tenor/limits.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "src/core/cache_folder.h"
#include "src/cpu/amx.h"
#include "src/cpu/dots.h"
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

TEST(Limits, EveryRateIsKnown) {
  const DeviceLimits l = cpu::measure_limits();
  for (const MemoryRate& m : l.memory) EXPECT_GT(std::min({m.read_bytes, m.copy_bytes, m.turned_bytes}), 1e8) << m.size;
  for (const FunctionRates& f : {l.float32, l.float64}) EXPECT_GT(std::min(f.exponentials, f.divisions), 1e6);
  for (const ConversionRates& c : {l.float16, l.bfloat16}) EXPECT_GT(std::min(c.widened, c.rounded), 1e6);
  EXPECT_GT(std::min(l.float64_flops, l.float64_products), 1e8);
  EXPECT_LT(l.float32.exponentials, l.float32_flops);  // each is many operations
  EXPECT_LT(l.float64.exponentials, l.float32.exponentials);
}

TEST(Limits, AFileOfAnEarlierVersionIsPassedOver) {
  const std::string folder = testing::TempDir() + "/tenor-limits-earlier";
  std::filesystem::remove_all(folder);
  setenv("TENOR_CACHE_DIR", folder.c_str(), 1);
  std::filesystem::create_directories(folder);
  const int threads = num_threads();
  set_num_threads(threads + 7);
  {
    std::ofstream file(folder + "/limits.txt");
    file << "1e6 1e6 1e18";
    for (int i = 0; i < 5; ++i) file << ' ' << (1 << (20 + 2 * i)) << " 1e6 1e6";
    file << ' ' << core::machine_key() << '\n';
  }
  EXPECT_GT(device_limits().copy_bytes, 1e8);
  set_num_threads(threads);
  unsetenv("TENOR_CACHE_DIR");
}

TEST(Limits, AreMeasuredOnceAndKept) {
  const std::string folder = testing::TempDir() + "/tenor-limits";
  std::filesystem::remove_all(folder);
  setenv("TENOR_CACHE_DIR", folder.c_str(), 1);
  const DeviceLimits first = device_limits(kCpu, true);
  EXPECT_GT(first.copy_bytes, 1e8);
  EXPECT_GT(first.float32_flops, 1e8);
  // The dot instructions are measured where there are any: twice as fast, on a machine that others may disturb.
  EXPECT_GE(first.bfloat16_flops, first.float32_flops * (cpu::has_amx() || cpu::has_bfloat16_dots() ? 1.2 : 0.5));
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
    for (int i = 0; i < 5; ++i) file << (1 << (20 + 2 * i)) << ' ';
    file << "1e6 1e6 1e18";
    for (int i = 0; i < 25; ++i) file << " 1e6";
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
  EXPECT_EQ(line.find(" 1e+06"), std::string::npos) << "kept on disk: " << line;
  for (int i = 0; i < 5; ++i) raise_limits();
  EXPECT_FALSE(raise_limits()) << "three attempts a process are enough";
  set_num_threads(threads);
  unsetenv("TENOR_CACHE_DIR");
}

}  // namespace
}  // namespace tenor
