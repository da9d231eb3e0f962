// Between the choice of kernels and their launches.
#pragma once

#include <cuda.h>

#include "src/ops/paged/paged_cuda.h"
#include "src/ops/paged/paged_problem.cuh"
#include "tenor/device.h"

namespace tenor::cuda::paged {

/// What the general kernel reads besides: everything at any stride, and latent attention's position parts.
struct General : Decode {
  const void *k, *v, *q_tail, *k_tail;
  int64_t q_col, k_at[4], v_at[4], q_tail_at[3], k_tail_at[4];
  int tail_dim;
  double score_scale, score_cap;
  const void* sink;  // [heads] of the compute type, or null
};

/// Writes results where most_splits is 1, else partial states that launch_merge adds up.
void launch_general(const char* op, const General& problem, DType dtype, Device device);
/// Its fast form: whether it takes a problem of float32, and its launch.
bool takes_float(const General& problem);
void launch_float(const char* op, const General& problem, Device device);
/// Adds the partial states of each row's splits up; may start while the kernel that writes them ends.
void launch_merge(const char* op, const Decode& problem, DType dtype, Device device);

/// The Hopper decode kernel for heads of up to 64, 128 or 256.
struct DecodeLaunch {
  CUtensorMap k, v;
  Decode problem;
  Device device;
};
void launch_decode_bfloat16(const char* op, const DecodeLaunch& launch);
void launch_decode_float16(const char* op, const DecodeLaunch& launch);
/// The Hopper kernel of latent attention: ranks up to 512, position parts up to 64; at most kLatentLaunchRows rows.
struct LatentMaps {
  CUtensorMap query, query_tail, keys, keys_tail;
};
struct LatentLaunch {
  LatentMaps maps;
  Decode problem;
  Device device;
};
inline constexpr int64_t kLatentLaunchRows = 256, kLatentLaunchRank = ::tenor::paged::kMostLatentRank,
                         kLatentLaunchTail = ::tenor::paged::kMostLatentTail, kLatentLaunchHeads = 64;
inline constexpr int kLatentStep = 64;  // keys of a block
void launch_latent(const char* op, const LatentLaunch& launch, DType dtype);

/// Keys of a stage for heads of up to `dim`.
constexpr int decode_keys(int dim) { return dim <= 64 ? 64 : dim <= 128 ? 32 : 16; }

}  // namespace tenor::cuda::paged
