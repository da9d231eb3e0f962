// Sums of floats.
#include "src/ops/reduce/reduce_launch.cuh"

namespace tenor::reduce {

void sum_floats(const Plan& plan, DType x, const Result& result) {
  core::visit_float(x, [&]<class T>() { reduce_with<T>(plan, Sum<T, core::Compute<T>>{}, result); });
}

}  // namespace tenor::reduce
