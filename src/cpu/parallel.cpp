#include "src/cpu/parallel.h"

#include <omp.h>

#include <algorithm>
#include <exception>

#include "tenor/device.h"

namespace tenor::cpu {

void parallel_for(int64_t n, int64_t grain, FunctionRef<void(int64_t, int64_t)> fn) {
  if (n <= 0) return;
  const int64_t ranges = std::min<int64_t>(num_threads(), (n + grain - 1) / std::max<int64_t>(grain, 1));
  if (ranges <= 1 || omp_in_parallel()) return fn(0, n);
  std::exception_ptr error;
#pragma omp parallel num_threads(static_cast<int>(ranges))
  {
    // OpenMP may give fewer threads than asked for: every range is still walked.
    for (int64_t r = omp_get_thread_num(); r < ranges; r += omp_get_num_threads()) {
      try {
        fn(n * r / ranges, n * (r + 1) / ranges);
      } catch (...) {
#pragma omp critical(tenor_parallel_for)
        error = std::current_exception();
      }
    }
  }
  if (error) std::rethrow_exception(error);
}

}  // namespace tenor::cpu
