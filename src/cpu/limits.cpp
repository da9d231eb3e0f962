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

/// The best rate of several runs on that many threads; run(slot, threads) returns the work that it did.
template <class Run>
double best_rate(int runs, int64_t threads, Run run) {
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
  return best_rate(12, num_threads(), [&](int64_t slot, int64_t threads) {
    const int64_t begin = kBytes * slot / threads, end = kBytes * (slot + 1) / threads;
    std::memcpy(to.data<char>() + begin, from.data<char>() + begin, static_cast<size_t>(end - begin));
    return 2.0 * static_cast<double>(end - begin);
  });
}

/// Rates of going through `size` bytes again and again, 16 MiB at a time, the threads' start and end included, as an
/// operator pays them. Short pieces and many: on a busy machine some are left alone. Every other one goes to this
/// thread by itself, for all threads together are no slower than one.
MemoryRate measure_memory(int64_t size) {
  const Tensor data = Tensor::empty({size}, uint8);
  std::memset(data.raw(), 1, static_cast<size_t>(size));
  const int64_t piece = std::min(size, int64_t{16} << 20), pieces = size / piece;
  const auto runs = std::clamp<int64_t>((int64_t{1} << 30) / piece, 3 * pieces, 200);
  const auto rate = [&](auto&& pass) {
    double best = 0;
    for (int64_t run = 0; run < 2 * runs; ++run)
      best = std::max(best, best_rate(1, run % 2 ? 1 : num_threads(), [&](int64_t slot, int64_t threads) {
                        const int64_t bytes = piece / threads / 128 * 128;
                        pass(data.data<char>() + piece * (run / 2 % pieces) + bytes * slot, bytes);
                        return static_cast<double>(bytes);
                      }));
    return best;
  };
  const auto read = [](const char* from, int64_t bytes) {
    volatile uint64_t used = cpu::read_words(reinterpret_cast<const uint64_t*>(from), bytes / 8);
    (void)used;
  };
  const auto copy = [](char* from, int64_t bytes) {
    std::memcpy(from + bytes / 2, from, static_cast<size_t>(bytes / 2));
  };
  return {static_cast<double>(size), rate(read), rate(copy)};
}

DeviceLimits measure() {
  DeviceLimits limits;
  limits.copy_bytes = measure_copy();
  for (size_t i = 0; i < limits.memory.size(); ++i) limits.memory[i] = measure_memory(int64_t{1} << (20 + 2 * i));
  for (size_t i = limits.memory.size() - 1; i-- > 0;) {  // less data is never slower; what measured so was disturbed
    MemoryRate &less = limits.memory[i], &more = limits.memory[i + 1];
    less.read_bytes = std::max(less.read_bytes, more.read_bytes),
    less.copy_bytes = std::max(less.copy_bytes, more.copy_bytes);
  }
  limits.float32_flops =
      best_rate(24, num_threads(), [](int64_t, int64_t) { return static_cast<double>(cpu::multiply_adds(1 << 20)); });
  limits.bfloat16_flops = limits.float32_flops;
  if (cpu::has_amx())
    limits.bfloat16_flops =
        best_rate(24, num_threads(), [](int64_t, int64_t) { return static_cast<double>(cpu::amx_products(1 << 18)); });
  return limits;
}

fs::path cache_file() {
  const fs::path folder = core::cache_folder();
  return folder.empty() ? folder : folder / "limits.txt";
}

using Table = std::map<std::string, DeviceLimits>;

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
  std::ostringstream lines;
  for (const auto& [key, l] : table) {
    lines << l.copy_bytes << ' ' << l.float32_flops << ' ' << l.bfloat16_flops;
    for (const MemoryRate& m : l.memory) lines << ' ' << m.size << ' ' << m.read_bytes << ' ' << m.copy_bytes;
    lines << ' ' << key << '\n';
  }
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
