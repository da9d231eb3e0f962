// Running extremes and their places.
#include "src/ops/scan/scan_launch.cuh"

namespace tenor::scan {

/// The dtypes, with places of type I.
template <class I>
void extreme_with(const Plan& plan, DType x, bool largest) {
  if (is_float(x))
    core::visit_float(x, [&]<class T>() { scan_with(plan, ExtremeScan<T, I>{!largest}); });
  else if (x == int32)
    scan_with(plan, ExtremeScan<int32_t, I>{!largest});
  else if (x == uint64)
    scan_with(plan, ExtremeScan<uint64_t, I>{!largest});
  else
    scan_with(plan, ExtremeScan<int64_t, I>{!largest});
}

void extreme(const Plan& plan, DType x, bool largest) {
  if (plan.lines.count <= INT32_MAX)
    extreme_with<int32_t>(plan, x, largest);
  else
    extreme_with<int64_t>(plan, x, largest);
}

}  // namespace tenor::scan
