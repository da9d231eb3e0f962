#include "src/cuda/launch.h"
#include "src/ops/paged/paged_latent.cuh"
#include "src/ops/paged/paged_launch.h"

namespace tenor::cuda::paged {
namespace {

template <class T>
void launch_latent_of(const char* op, const LatentLaunch& l) {
  const Latent p{l.problem, l.q_tail, l.q_tail_row, l.q_tail_head, l.tail_dim};
  launch(op, latent_kernel<T>,
         Grid{dim3(static_cast<unsigned>(multiprocessors(l.device))), dim3(kLatentThreads), sizeof(LatentShared)},
         l.device, l.map, l.tail_map, p);
  if (p.most_splits > 1)
    launch(op, merge_decoded<Stored<T>>,
           Grid{.blocks = merge_blocks(l.problem), .threads = kMergeThreads, .early = true}, l.device, l.problem);
}

}  // namespace

void launch_latent(const char* op, const LatentLaunch& launch, DType dtype) {
  dtype == bfloat16 ? launch_latent_of<__nv_bfloat16>(op, launch) : launch_latent_of<__half>(op, launch);
}

}  // namespace tenor::cuda::paged
