// Sums of squared deviations from the mean, by one reading of x.
#include "src/ops/reduce/reduce_launch.cuh"

namespace tenor::reduce {

void moments(const Plan& plan, DType x, const Result& result) {
  core::visit_float(x, [&]<class T>() { reduce_with<T>(plan, Moments<T, core::Compute<T>>{}, result); });
}

}  // namespace tenor::reduce
