// Running products. Those of floats are formed in float64, whose range keeps a block's product finite where the line's
// is.
#include "src/ops/scan/scan_launch.cuh"

namespace tenor::scan {

void prod(const Plan& plan, DType x) {
  if (is_float(x))
    core::visit_float(x, [&]<class T>() { scan_with(plan, ProdScan<T, double>{}); });
  else
    scan_with(plan, ProdScan<int64_t, uint64_t>{});
}

}  // namespace tenor::scan
