#include "tenor/device.h"

#include <omp.h>
#include <pthread.h>

#include <atomic>
#include <charconv>
#include <string>

#include "src/core/text.h"
#include "tenor/error.h"

namespace tenor {
namespace {

std::atomic<int> thread_count{0};
std::atomic<bool> forked{false};

/// libgomp's worker threads do not survive fork(), and a parallel region in the child would wait for them for ever: the
/// child computes on one thread, whatever count it asks for.
void after_fork_in_child() {
  forked = true;
  omp_set_num_threads(1);
}

[[maybe_unused]] const int kForkHandler = pthread_atfork(nullptr, nullptr, after_fork_in_child);

}  // namespace

int num_threads() {
  if (forked) return 1;
  const int set = thread_count;
  return set > 0 ? set : omp_get_max_threads();
}

void set_num_threads(int count) {
  constexpr int kMost = 4096;  // beyond, starting them may end the process
  if (count < 1 || count > kMost)
    core::fail<ValueError>("set_num_threads: expected 1 to {} threads, got {}", kMost, count);
  thread_count = count;
}

Device device_from_name(std::string_view wanted) {
  if (wanted == "cpu") return kCpu;
  if (wanted == "meta") return {DeviceType::kMeta, 0};
  if (wanted == "cuda") return {DeviceType::kCuda, 0};
  if (wanted.starts_with("cuda:")) {
    int index = -1;
    const char* last = wanted.data() + wanted.size();
    if (auto [end, error] = std::from_chars(wanted.data() + 5, last, index);
        error == std::errc() && end == last && index >= 0)
      return {DeviceType::kCuda, index};
  }
  core::fail<ValueError>("device: expected 'cpu', 'cuda' or 'cuda:N', got '{}'", std::string(wanted));
}

}  // namespace tenor
