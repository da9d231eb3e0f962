#include "src/cpu/parallel.h"

#include <omp.h>

#include <algorithm>
#include <exception>
#include <mutex>

#include "tenor/device.h"

#ifdef __SANITIZE_THREAD__
#include <thread>
#include <utility>
#include <vector>
#endif

namespace tenor::cpu {
namespace {

#ifdef __SANITIZE_THREAD__
// ThreadSanitizer does not see libgomp's barriers and would call every result a race: plain threads stand in for it.
thread_local bool inside = false;
bool in_parallel() { return inside; }
void on_threads(int threads, FunctionRef<void(int, int)> work) {
  const auto one = [&](int t) {
    const bool outer = std::exchange(inside, true);
    work(t, threads);
    inside = outer;
  };
  std::vector<std::thread> others;
  for (int t = 1; t < threads; ++t) others.emplace_back(one, t);
  one(0);
  for (std::thread& t : others) t.join();
}
#else
bool in_parallel() { return omp_in_parallel(); }
/// work(thread, threads) on that many threads; OpenMP may give fewer than asked for.
void on_threads(int threads, FunctionRef<void(int, int)> work) {
#pragma omp parallel num_threads(threads)
  work(omp_get_thread_num(), omp_get_num_threads());
}
#endif

}  // namespace

void parallel_for(int64_t n, int64_t grain, FunctionRef<void(int64_t, int64_t)> fn) {
  if (n <= 0) return;
  const int64_t ranges = std::min<int64_t>(num_threads(), (n + grain - 1) / std::max<int64_t>(grain, 1));
  // Light work for a small part of the team is not worth waking all of it. Of single items nothing is known: they may
  // be long.
  const bool light = grain > 1 && 2 * ranges <= num_threads();
  if (ranges <= 1 || light || in_parallel()) return fn(0, n);
  std::exception_ptr error;
  std::mutex error_mutex;
  // Always the whole team: libgomp ends the threads that a smaller one leaves out and makes them anew for the next.
  on_threads(num_threads(), [&](int thread, int threads) {
    for (int64_t r = thread; r < ranges; r += threads) {  // every range, however few the threads
      try {
        fn(n * r / ranges, n * (r + 1) / ranges);
      } catch (...) {
        std::lock_guard lock(error_mutex);
        error = std::current_exception();
      }
    }
  });
  if (error) std::rethrow_exception(error);
}

}  // namespace tenor::cpu
