// What every use of oneDNN shares: its engine, its thread count, what this CPU lets it do. Only where TENOR_HAS_ONEDNN.
//
// oneDNN takes its thread count from OpenMP when a primitive is made and when it runs; both happen under tenor's own
// count, which is restored afterwards.
#pragma once

#include <omp.h>

#include <dnnl.hpp>

#include "src/cpu/parallel.h"
#include "tenor/device.h"

namespace tenor::cpu {

/// Sets OpenMP's thread count of this thread while it lives.
class OmpThreads {
 public:
  explicit OmpThreads(int count) : previous_(omp_get_max_threads()) { omp_set_num_threads(count); }
  ~OmpThreads() { omp_set_num_threads(previous_); }
  OmpThreads(const OmpThreads&) = delete;
  OmpThreads& operator=(const OmpThreads&) = delete;

 private:
  int previous_;
};

/// The threads that oneDNN may use from here.
inline int onednn_threads() { return omp_in_parallel() ? 1 : num_threads(); }

inline const dnnl::engine& onednn_engine() {
  static const dnnl::engine cpu(dnnl::engine::kind::cpu, 0);
  return cpu;
}

inline bool onednn_has_bfloat16() { return dnnl::get_effective_cpu_isa() >= dnnl::cpu_isa::avx512_core_bf16; }

}  // namespace tenor::cpu
