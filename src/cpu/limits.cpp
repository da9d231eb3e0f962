// Measures what device_limits() states.
#include "tenor/limits.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <sstream>

#include "src/core/cache_folder.h"
#include "src/core/text.h"
#include "src/cpu/amx.h"
#include "src/cpu/limits.h"
#include "src/cpu/parallel.h"
#include "tenor/tensor.h"

namespace tenor {
namespace {

namespace fs = std::filesystem;

/// The best rate of several runs on all threads; run(slot) returns the work that it did.
template <class Run>
double best_rate(int runs, Run run) {
  const int64_t threads = num_threads();
  double best = 0;
  for (int i = 0; i < runs; ++i) {
    std::vector<double> work(static_cast<size_t>(threads));
    const auto start = std::chrono::steady_clock::now();
    cpu::parallel_for(threads, 1, [&](int64_t begin, int64_t end) {
      for (int64_t slot = begin; slot < end; ++slot) work[static_cast<size_t>(slot)] = run(slot, threads);
    });
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    double done = 0;
    for (double w : work) done += w;
    best = std::max(best, done / seconds);
  }
  return best;
}

double measure_copy() {
  constexpr int64_t kBytes = int64_t{256} << 20;
  const Tensor from = Tensor::empty({kBytes}, uint8), to = Tensor::empty({kBytes}, uint8);
  std::memset(from.raw(), 1, kBytes);
  return best_rate(12, [&](int64_t slot, int64_t threads) {
    const int64_t begin = kBytes * slot / threads, end = kBytes * (slot + 1) / threads;
    std::memcpy(to.data<char>() + begin, from.data<char>() + begin, static_cast<size_t>(end - begin));
    return 2.0 * static_cast<double>(end - begin);
  });
}

DeviceLimits measure() {
  DeviceLimits limits;
  limits.copy_bytes = measure_copy();
  limits.float32_flops =
      best_rate(24, [](int64_t, int64_t) { return static_cast<double>(cpu::multiply_adds(1 << 20)); });
  limits.bfloat16_flops = limits.float32_flops;
  if (cpu::has_amx())
    limits.bfloat16_flops =
        best_rate(24, [](int64_t, int64_t) { return static_cast<double>(cpu::amx_products(1 << 18)); });
  return limits;
}

fs::path cache_file() {
  const fs::path folder = core::cache_folder();
  return folder.empty() ? folder : folder / "limits.txt";
}

using Table = std::map<std::string, DeviceLimits>;

/// A line each: copy, float32, bfloat16, then the machine. Lines that say anything else are passed over.
Table read_table(const fs::path& path) {
  Table table;
  std::ifstream file(path);
  for (std::string line, key; std::getline(file, line);) {
    std::istringstream fields(line);
    DeviceLimits l;
    if (fields >> l.copy_bytes >> l.float32_flops >> l.bfloat16_flops >> std::ws && std::getline(fields, key) &&
        l.copy_bytes > 0 && l.float32_flops > 0 && l.bfloat16_flops > 0)
      table[key] = l;
  }
  return table;
}

/// A cache that cannot be written costs a measurement in the next process, nothing else.
void write_table(const fs::path& path, const Table& table) {
  std::ostringstream lines;
  for (const auto& [key, l] : table) lines << l.copy_bytes << ' ' << l.float32_flops << ' ' << l.bfloat16_flops << ' ' << key << '\n';
  core::replace_file(path, lines.str());
}

}  // namespace

DeviceLimits device_limits(Device device, bool again) {
  if (device.type != DeviceType::kCpu)
    core::fail<UnsupportedError>("device_limits: measured on the CPU only, got {}", device);
  static std::mutex mutex;
  static Table known;
  const std::lock_guard lock(mutex);
  const std::string key = core::machine_key();
  if (!again && known.count(key)) return known[key];
  const fs::path path = cache_file();
  Table table = read_table(path);
  if (again || !table.count(key)) {
    table[key] = measure();
    if (!path.empty()) write_table(path, table);
  }
  return known[key] = table[key];
}

}  // namespace tenor
