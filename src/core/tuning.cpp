#include "src/core/tuning.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <sstream>
#include <tuple>

#include "src/core/cache_folder.h"
#include "src/core/instruments.h"
#include "src/core/text.h"

namespace tenor {
namespace {

std::atomic<bool>& setting() {
  static std::atomic<bool> on{std::getenv("TENOR_AUTOTUNE") && std::string_view(std::getenv("TENOR_AUTOTUNE")) == "1"};
  return on;
}

}  // namespace

bool autotune(bool on) { return setting().exchange(on); }
bool autotuning() { return setting(); }

namespace core {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using Key = std::tuple<std::string, std::string, std::string, std::string>;  // operator, problem, machine, version
using Table = std::map<Key, Tuning>;

constexpr double kClearlyFaster = 0.97;                // less is noise
constexpr uintmax_t kMostBytes = uintmax_t{64} << 20;  // a larger file is no tuning table

fs::path store_path() {
  const fs::path folder = cache_folder();
  return folder.empty() ? folder : folder / "tuning.json";
}

Key key_of(const Tuning& t) { return {t.op, t.problem, t.machine, t.version}; }

/// An entry of the file, nothing for one that is not as remember_tuning writes it.
std::optional<Tuning> parse(const json& entry) {
  Tuning t;
  for (auto [field, name] : {std::pair{&t.op, "op"},
                             {&t.problem, "problem"},
                             {&t.machine, "machine"},
                             {&t.version, "version"},
                             {&t.winner, "winner"}}) {
    if (!entry.is_object() || !entry.contains(name) || !entry[name].is_string()) return {};
    *field = entry[name].get<std::string>();
  }
  if (!entry.contains("microseconds") || !entry["microseconds"].is_array()) return {};
  for (const json& pair : entry["microseconds"]) {
    if (!pair.is_array() || pair.size() != 2 || !pair[0].is_string() || !pair[1].is_number()) return {};
    t.microseconds.emplace_back(pair[0].get<std::string>(), pair[1].get<double>());
  }
  return t;
}

constexpr int kFormat = 1;

/// The entries of a file's text; whether all of it is a tuning table of this format.
bool parse_table(const json& all, Table& table) {
  if (!all.is_object() || all.value("format", json()) != kFormat || !all.contains("entries") ||
      !all["entries"].is_array())
    return false;
  bool whole = true;
  for (const json& entry : all["entries"]) {
    const auto t = parse(entry);
    if (t) table[key_of(*t)] = *t;
    whole = whole && t;
  }
  return whole;
}

/// The table on disk; a missing or broken file is an empty one. `warn` says on stderr what is wrong with it.
Table read_store(const fs::path& path, bool warn = false) {
  Table table;
  std::error_code error;
  const uintmax_t bytes = path.empty() ? 0 : fs::file_size(path, error);
  if (path.empty() || error) return table;
  std::ifstream file(path, std::ios::binary);
  const bool whole = bytes <= kMostBytes && parse_table(json::parse(file, nullptr, /*allow_exceptions=*/false), table);
  if (!whole && warn)
    std::fprintf(stderr,
                 "tenor: %s is %s tuning table of this version; %s ignored, and replaced at the next measurement\n",
                 path.c_str(), table.empty() ? "no" : "not in all of its entries a",
                 table.empty() ? "it is" : "those that are not are");
  return table;
}

bool write_store(const fs::path& path, const Table& table) {
  json entries = json::array();
  for (const auto& [key, t] : table)
    entries.push_back({{"op", t.op},
                       {"problem", t.problem},
                       {"machine", t.machine},
                       {"version", t.version},
                       {"winner", t.winner},
                       {"microseconds", t.microseconds}});
  return replace_file(
      path,
      json({{"format", kFormat}, {"entries", entries}}).dump(1, ' ', false, json::error_handler_t::replace) + "\n");
}

/// Keeps other processes from changing the file between our reading and writing it.
class FileLock {
 public:
  explicit FileLock(const fs::path& path) {
    std::error_code ignored;
    fs::create_directories(path.parent_path(), ignored);
    file_ = open((path.string() + ".lock").c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0644);
    if (file_ >= 0) flock(file_, LOCK_EX);
  }
  ~FileLock() {
    if (file_ >= 0) close(file_);
  }
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

 private:
  int file_ = -1;
};

struct Store {
  std::mutex mutex;
  fs::path path;
  Table table;
};

/// The process's table, read at its first use and again where the folder has become another.
Store& locked_store(std::unique_lock<std::mutex>& lock) {
  static auto* store = new Store;
  lock = std::unique_lock(store->mutex);
  if (fs::path path = store_path(); path != store->path) store->path = path, store->table = read_store(path, true);
  return *store;
}

/// Applies a change to the file's newest table and keeps the result; where it cannot be written, to the process's
/// alone.
template <class Change>
void update(Change change) {
  std::unique_lock<std::mutex> lock;
  Store& store = locked_store(lock);
  if (store.path.empty()) return change(store.table);
  const FileLock others(store.path);
  Table newest = read_store(store.path);
  change(newest);
  if (write_store(store.path, newest))
    store.table = std::move(newest);
  else
    change(store.table);
}

std::recursive_mutex& measuring() {
  static auto* mutex = new std::recursive_mutex;
  return *mutex;
}

}  // namespace

std::string tuning_machine(Device device) {
  return device.type == DeviceType::kCuda ? instruments(device).machine_key(device) : machine_key();
}

std::optional<std::string> tuned_winner(std::string_view op, const std::string& problem, Device device) {
  std::unique_lock<std::mutex> lock;
  Store& store = locked_store(lock);
  const auto found = store.table.find({std::string(op), problem, tuning_machine(device), TENOR_VERSION});
  if (found == store.table.end()) return {};
  return found->second.winner;
}

void remember_tuning(std::string_view op, const std::string& problem,
                     std::vector<std::pair<std::string, double>> microseconds, Device device) {
  if (microseconds.empty()) return;
  const auto fastest = std::min_element(microseconds.begin(), microseconds.end(),
                                        [](const auto& a, const auto& b) { return a.second < b.second; });
  const std::string winner =
      fastest->second < kClearlyFaster * microseconds.front().second ? fastest->first : microseconds.front().first;
  const Tuning t{std::string(op), problem, tuning_machine(device), TENOR_VERSION, winner, std::move(microseconds)};
  update([&](Table& table) { table[key_of(t)] = t; });
}

std::vector<Tuning> tunings() {
  std::unique_lock<std::mutex> lock;
  Store& store = locked_store(lock);
  std::vector<Tuning> all;
  for (const auto& [key, t] : store.table) all.push_back(t);
  return all;
}

int forget_tunings(std::string_view op, std::string_view problem, std::string_view machine) {
  const auto meant = [&](const Tuning& t) {
    return (op.empty() || t.op == op) && (problem.empty() || t.problem == problem) &&
           (machine.empty() || t.machine == machine);
  };
  int count = 0;
  update([&](Table& table) {
    count = static_cast<int>(std::erase_if(table, [&](const auto& e) { return meant(e.second); }));
  });
  return count;
}

namespace {
thread_local TuningLog* current_log = nullptr;
}

TuningLog::TuningLog() : previous_(std::exchange(current_log, this)) {}
TuningLog::~TuningLog() { current_log = previous_; }
void TuningLog::add(std::string_view op, const std::string& problem) {
  if (current_log) current_log->problems.emplace_back(op, problem);
}

namespace {

/// By the clock: the least time, which a busy machine disturbs least.
double least_time(const std::function<void()>& run, double give_up) {
  using Clock = std::chrono::steady_clock;
  const auto timed = [&] {
    const auto start = Clock::now();
    run();
    return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
  };
  const double first = timed();
  if (first > give_up) return first;
  constexpr double kLong = 100e3, kEnough = 20e3;  // a busy machine's single calls say little, a long call's do
  double best = timed(), total = best;
  for (int i = 0; i < 200 && (total < kEnough || (i < 3 && best < kLong)); ++i) {
    const double t = timed();
    best = std::min(best, t), total += t;
  }
  return best;
}

/// By events: the median.
double median_time(const std::function<void()>& run, double give_up, Device device) {
  const auto timer = instruments(device).timer(device);
  const auto timed = [&](int count) {
    for (int i = 0; i < count; ++i) {
      timer->start();
      run();
      timer->stop();
    }
    std::vector<double> all = timer->seconds();
    std::sort(all.begin(), all.end());
    return 1e6 * all[all.size() / 2];
  };
  timed(1);  // plans, workspaces, modules
  const double first = timed(1);
  if (first > give_up) return first;
  constexpr double kEnough = 20e3;
  return timed(static_cast<int>(std::clamp(kEnough / first, 3.0, 15.0)));
}

}  // namespace

double time_call(const std::function<void()>& run, double give_up, Device device) {
  return device.type == DeviceType::kCuda ? median_time(run, give_up, device) : least_time(run, give_up);
}

bool may_measure(Device device) {
  if (device.type == DeviceType::kMeta) return false;
  return device.type != DeviceType::kCuda || !instruments(device).capturing(device);
}

MeasuringLock::MeasuringLock() { measuring().lock(); }
MeasuringLock::~MeasuringLock() { measuring().unlock(); }

}  // namespace core
}  // namespace tenor
