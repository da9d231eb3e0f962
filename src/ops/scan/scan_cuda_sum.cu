// Running sums and products.
#include "src/ops/scan/scan_launch.cuh"

namespace tenor::scan {

void sum_floats(const Plan& plan, DType x) {
  core::visit_float(x, [&]<class T>() { scan_with(plan, SumScan<T, core::Compute<T>, T>{}); });
}

void sum_integers(const Plan& plan, DType x) {
  if (x == uint8)
    scan_with(plan, SumScan<uint8_t, uint64_t, uint64_t>{});
  else if (x == int32)
    scan_with(plan, SumScan<int32_t, uint64_t, uint64_t>{});
  else
    scan_with(plan, SumScan<int64_t, uint64_t, uint64_t>{});
}

}  // namespace tenor::scan
