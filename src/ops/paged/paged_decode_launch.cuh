// The decode kernel's instantiations: one table of configurations, compiled once for each operand type.
#pragma once

#include "src/cuda/launch.h"
#include "src/ops/paged/paged_decode.cuh"
#include "src/ops/paged/paged_launch.h"

namespace tenor::cuda::paged {

template <class Config>
void launch_config(const char* op, const DecodeLaunch& l) {
  launch(op, decode_kernel<Config>,
         Grid{dim3(static_cast<unsigned>(multiprocessors(l.device))), dim3(Config::kThreads),
              sizeof(DecodeShared<Config>) + 1024},
         l.device, l.k, l.v, l.problem);
  if (l.problem.most_splits > 1)
    launch_merge(op, l.problem, std::is_same_v<typename Config::T, BFloat16> ? bfloat16 : float16, l.device);
}

template <class T>
void launch_decode(const char* op, const DecodeLaunch& l) {
  const int dim = std::max(l.problem.dim, l.problem.value_dim);
  if (dim <= 64) return launch_config<DecodeConfig<T, 64, decode_keys(64), 2, 4>>(op, l);
  if (dim <= 128) return launch_config<DecodeConfig<T, 128, decode_keys(128), 2, 4>>(op, l);
  launch_config<DecodeConfig<T, 256, decode_keys(256), 2, 4>>(op, l);
}

}  // namespace tenor::cuda::paged
