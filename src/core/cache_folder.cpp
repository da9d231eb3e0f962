#include "src/core/cache_folder.h"

#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "src/core/text.h"
#include "tenor/device.h"

namespace tenor::core {

namespace fs = std::filesystem;

namespace {

std::string processor_model() {
  std::string line;
  std::ifstream info("/proc/cpuinfo");
  while (std::getline(info, line))
    if (line.rfind("model name", 0) == 0) return line.substr(std::min(line.find(':') + 2, line.size()));
  return "unknown processor";
}

}  // namespace

fs::path cache_folder() {
  const auto variable = [](const char* name) { return fs::path(std::getenv(name) ? std::getenv(name) : ""); };
  if (fs::path own = variable("TENOR_CACHE_DIR"); !own.empty()) return own;
  if (const fs::path cache = variable("XDG_CACHE_HOME"); !cache.empty()) return cache / "tenor";
  const fs::path home = variable("HOME");
  return home.empty() ? fs::path() : home / ".cache" / "tenor";
}

std::string machine_key() {
  static const std::string model = processor_model();
  return text("{}, {} processors, {} threads", model, std::thread::hardware_concurrency(), num_threads());
}

bool replace_file(const fs::path& path, const std::string& text, bool private_file) {
  std::error_code ignored;
  fs::create_directories(path.parent_path(), ignored);
  const auto now = std::chrono::steady_clock::now().time_since_epoch().count();
  const fs::path draft = path.string() + "." + std::to_string(getpid()) + "." + std::to_string(now);
  // Made before it is written to: its mode holds from the first byte.
  const int made = open(draft.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, private_file ? 0600 : 0666);
  if (made < 0) return false;
  close(made);
  bool whole = false;
  {
    std::ofstream file(draft, std::ios::binary);
    file << text << std::flush;
    whole = file.good();
  }
  std::error_code failed;
  if (whole) fs::rename(draft, path, failed);
  whole = whole && !failed;
  if (!whole) fs::remove(draft, ignored);
  return whole;
}

}  // namespace tenor::core
