// Running logarithms of sums of exponentials.
#include "src/ops/scan/scan_launch.cuh"

namespace tenor::scan {

void log_sum(const Plan& plan, DType x) {
  core::visit_float(x, [&]<class T>() { scan_with(plan, LogSumScan<T>{}); });
}

}  // namespace tenor::scan
