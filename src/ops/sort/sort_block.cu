// A block a row: which shape of block takes it.
#include "src/core/visit.h"
#include "src/cuda/launch.h"
#include "src/ops/sort/sort_block.cuh"
#include "src/ops/sort/sort_cuda.h"

namespace tenor::cuda {
namespace {

template <class K, int Threads, int Each>
void launch_blocks(const OrderRows& p, const Wanted& wanted) {
  const Grid grid{static_cast<unsigned>(p.rows), Threads, sizeof(typename BlockRow<K, Threads, Each>::Space)};
  launch(p.op, sort_block_kernel<K, Threads, Each>, grid, p.device, static_cast<const K*>(p.x), static_cast<int>(p.n),
         p.stride, p.code, wanted, static_cast<K*>(p.values), p.indices);
}

}  // namespace

void sort_blocks(const OrderRows& p, const Wanted& wanted) {
  core::visit_size(p.dtype, [&]<class K>() {
    if constexpr (sizeof(K) == 8) {
      if (p.n <= 128) return launch_blocks<K, 32, 4>(p, wanted);
      if (p.n <= 256) return launch_blocks<K, 32, 8>(p, wanted);
    }
    if (p.n <= 512) return launch_blocks<K, 64, 8>(p, wanted);
    if (p.n <= 1024) return launch_blocks<K, 128, 8>(p, wanted);
    if (p.n <= 2048) return launch_blocks<K, 256, 8>(p, wanted);
    if (p.n <= 4096) return launch_blocks<K, 512, 8>(p, wanted);
    if (p.n <= 8192) return launch_blocks<K, 512, 16>(p, wanted);
    if constexpr (sizeof(K) <= 2)
      if (p.n > 16384) return launch_blocks<K, 1024, 32>(p, wanted);
    launch_blocks<K, 1024, 16>(p, wanted);
  });
}

}  // namespace tenor::cuda
