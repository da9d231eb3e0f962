// device_limits(): what was measured, kept in the process and on disk.
#include "tenor/limits.h"

#include <chrono>
#include <cmath>
#include <fstream>
#include <map>
#include <mutex>
#include <sstream>
#include <thread>
#include <vector>

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

/// Every rate, in the order of the file; the first kRequired are known of every device.
constexpr size_t kRequired = 13;
std::vector<double*> rates_of(DeviceLimits& l) {
  std::vector<double*> rates{&l.copy_bytes, &l.float32_flops, &l.bfloat16_flops};
  for (MemoryRate& m : l.memory) rates.insert(rates.end(), {&m.read_bytes, &m.copy_bytes});
  for (MemoryRate& m : l.memory) rates.push_back(&m.turned_bytes);
  for (FunctionRates* f : {&l.float32, &l.float64}) rates.insert(rates.end(), {&f->exponentials, &f->divisions});
  for (ConversionRates* c : {&l.float16, &l.bfloat16}) rates.insert(rates.end(), {&c->widened, &c->rounded});
  rates.insert(rates.end(), {&l.float64_flops, &l.float64_products});
  return rates;
}

/// Raises `best` to what `next` reached. The largest factor by which a rate rose.
double keep_greater(DeviceLimits& best, DeviceLimits next) {
  double most = 1;
  const std::vector<double*> rates = rates_of(best), others = rates_of(next);
  for (size_t i = 0; i < rates.size(); ++i) {
    if (*others[i] <= *rates[i]) continue;
    most = std::max(most, *rates[i] > 0 ? *others[i] / *rates[i] : INFINITY);
    *rates[i] = *others[i];
  }
  for (size_t i = 0; i < best.memory.size(); ++i) best.memory[i].size = next.memory[i].size;
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
    if (!(in >> m.size) || m.size <= 0) return false;
  const std::vector<double*> rates = rates_of(l);
  for (size_t i = 0; i < rates.size(); ++i)
    if (!(in >> *rates[i]) || *rates[i] < 0 || (*rates[i] == 0 && i < kRequired)) return false;
  return true;
}

/// A line each: the sizes of the memory rates, every rate, then the machine. Lines that say anything else (an earlier
/// version's) are passed over.
Table read_table(const fs::path& path) {
  Table table;
  std::ifstream file(path);
  for (std::string line, key; std::getline(file, line);) {
    std::istringstream fields(line);
    DeviceLimits l;
    if (read_rates(fields, l) && fields >> std::ws && std::getline(fields, key)) table[key] = l;
  }
  return table;
}

/// A cache that cannot be written costs a measurement in the next process, nothing else.
void write_table(const fs::path& path, const Table& table) {
  if (path.empty()) return;
  std::ostringstream lines;
  for (auto [key, l] : table) {
    for (const MemoryRate& m : l.memory) lines << m.size << ' ';
    for (const double* rate : rates_of(l)) lines << *rate << ' ';
    lines << key << '\n';
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
