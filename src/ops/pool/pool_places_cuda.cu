// max_pool with places.
#include "src/ops/pool/pool_max_cuda.h"
#include "src/ops/pool/pool_small_places.cuh"

namespace tenor::cuda {

void max_pool_places(const pool::Problem& p, const Gather& g, const Tensor& x, const Tensor& values,
                     const Tensor& indices) {
  const PlacesTarget places{indices.data<int64_t>(), p.other};
  const auto run = [&]<class T>() {
    const GatherCall<T> call{p.op, g, x, values};
    if constexpr (kTuned<T>) {
      if (small_places(call, places)) return;
    }
    gather_places(call, places);
  };
  is_integer(x.dtype()) ? core::visit_integer(x.dtype(), run) : core::visit_float(x.dtype(), run);
}

}  // namespace tenor::cuda
