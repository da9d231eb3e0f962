// Sums of integers, modulo 2^64.
#include "src/ops/reduce/reduce_launch.cuh"

namespace tenor::reduce {

void sum_integers(const Plan& plan, DType x, const Result& result) {
  core::visit_integer(x, [&]<class T>() { reduce_with<T>(plan, Sum<T, uint64_t>{}, result); });
}

}  // namespace tenor::reduce
