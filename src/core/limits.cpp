// device_limits(): what was measured, kept in the process and on disk.
#include "tenor/limits.h"

#include <chrono>
#include <cmath>
#include <fstream>
#include <map>
#include <mutex>
#include <sstream>
#include <thread>

#include "src/core/cache_folder.h"
#include "src/core/instruments.h"
#include "src/core/tuning.h"
#include "src/cpu/limits.h"
#include "tenor/allocator.h"

namespace tenor {
namespace {

namespace fs = std::filesystem;
using Table = std::map<std::string, DeviceLimits>;

constexpr int kMostAttempts = 4, kMostRaises = 3;
constexpr auto kPause = std::chrono::milliseconds(150);  // between attempts: what disturbed one may be over
constexpr auto kPatience = std::chrono::seconds(5);  // the last attempt starts before; raise_limits() mends the rest
constexpr double kSettled = 1.02;                    // an attempt that adds less than this is the last

DeviceLimits attempt(Device device) {
  return device.type == DeviceType::kCpu ? cpu::measure_limits() : core::instruments(device).measure_limits(device);
}

/// Raises `best` to what `next` reached. The largest factor by which a rate rose.
double keep_greater(DeviceLimits& best, const DeviceLimits& next) {
  double most = 1;
  const auto keep = [&](double& a, double b) {
    if (b <= a) return;
    most = std::max(most, a > 0 ? b / a : INFINITY);
    a = b;
  };
  keep(best.copy_bytes, next.copy_bytes);
  keep(best.float32_flops, next.float32_flops);
  keep(best.bfloat16_flops, next.bfloat16_flops);
  for (size_t i = 0; i < best.memory.size(); ++i) {
    best.memory[i].size = next.memory[i].size;
    keep(best.memory[i].read_bytes, next.memory[i].read_bytes);
    keep(best.memory[i].copy_bytes, next.memory[i].copy_bytes);
  }
  return most;
}

DeviceLimits best_of_attempts(Device device) {
  const auto start = std::chrono::steady_clock::now();
  DeviceLimits best = attempt(device);
  for (int i = 1; i < kMostAttempts && std::chrono::steady_clock::now() - start < kPatience; ++i) {
    std::this_thread::sleep_for(kPause);
    if (keep_greater(best, attempt(device)) < kSettled) break;
  }
  empty_cache();  // of the buffers, which are larger than most operators'
  return best;
}

fs::path cache_file() {
  const fs::path folder = core::cache_folder();
  return folder.empty() ? folder : folder / "limits.txt";
}

bool read_rates(std::istream& in, DeviceLimits& l) {
  for (MemoryRate& m : l.memory)
    if (!(in >> m.size >> m.read_bytes >> m.copy_bytes) || m.size <= 0 || m.read_bytes <= 0 || m.copy_bytes <= 0)
      return false;
  return true;
}

/// A line each: copy, float32, bfloat16, the memory rates, then the machine. Lines that say anything else are passed
/// over.
Table read_table(const fs::path& path) {
  Table table;
  std::ifstream file(path);
  for (std::string line, key; std::getline(file, line);) {
    std::istringstream fields(line);
    DeviceLimits l;
    if (fields >> l.copy_bytes >> l.float32_flops >> l.bfloat16_flops && read_rates(fields, l) && fields >> std::ws &&
        std::getline(fields, key) && l.copy_bytes > 0 && l.float32_flops > 0 && l.bfloat16_flops > 0)
      table[key] = l;
  }
  return table;
}

/// A cache that cannot be written costs a measurement in the next process, nothing else.
void write_table(const fs::path& path, const Table& table) {
  if (path.empty()) return;
  std::ostringstream lines;
  for (const auto& [key, l] : table) {
    lines << l.copy_bytes << ' ' << l.float32_flops << ' ' << l.bfloat16_flops;
    for (const MemoryRate& m : l.memory) lines << ' ' << m.size << ' ' << m.read_bytes << ' ' << m.copy_bytes;
    lines << ' ' << key << '\n';
  }
  core::replace_file(path, lines.str());
}

/// What this process knows; measurements are made one at a time, under its lock.
struct Known {
  std::mutex mutex;
  Table limits;
  std::map<std::string, int> raises;
};
Known& known() {
  static auto* all = new Known;
  return *all;
}

}  // namespace

DeviceLimits device_limits(Device device, bool again) {
  const std::string key = core::tuning_machine(device);
  const std::lock_guard lock(known().mutex);
  Table& limits = known().limits;
  if (!again && limits.count(key)) return limits[key];
  const fs::path path = cache_file();
  Table table = read_table(path);
  if (again || !table.count(key)) {
    table[key] = best_of_attempts(device);
    write_table(path, table);
  }
  return limits[key] = table[key];
}

bool raise_limits(Device device) {
  DeviceLimits best = device_limits(device);
  const std::string key = core::tuning_machine(device);
  const std::lock_guard lock(known().mutex);
  if (++known().raises[key] > kMostRaises || keep_greater(best, attempt(device)) < 1.01) return false;
  const fs::path path = cache_file();
  Table table = read_table(path);
  table[key] = known().limits[key] = best;
  write_table(path, table);
  return true;
}

}  // namespace tenor
