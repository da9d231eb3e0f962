#include "src/cuda/launch.h"
#include "src/ops/paged/paged_latent.cuh"
#include "src/ops/paged/paged_launch.h"

namespace tenor::cuda::paged {
namespace {

template <class T>
void launch_latent_as(const char* op, const LatentLaunch& l) {
  const Decode& p = l.problem;
  launch(op, latent_kernel<T>,
         Grid{.blocks = static_cast<unsigned>(multiprocessors(l.device)),
              .threads = kLatentThreads,
              .shared = sizeof(LatentShared)},
         l.device, l.maps, p);
  if (p.most_splits > 1) launch_merge(op, p, std::is_same_v<Stored<T>, BFloat16> ? bfloat16 : float16, l.device);
}

}  // namespace

void launch_latent(const char* op, const LatentLaunch& launch, DType dtype) {
  dtype == bfloat16 ? launch_latent_as<__nv_bfloat16>(op, launch) : launch_latent_as<__half>(op, launch);
}

}  // namespace tenor::cuda::paged
