// Sums of squares, magnitudes, powers and exponentials of floats.
#include "src/ops/reduce/reduce_launch.cuh"

namespace tenor::reduce {

void mapped_sum(const Plan& plan, DType x, Map map, double power, const void* shifts, const Result& result) {
  core::visit_float(x, [&]<class T>() {
    using C = core::Compute<T>;
    reduce_with<T>(plan, MappedSum<T, C>{{}, map, static_cast<C>(power), static_cast<const C*>(shifts)}, result);
  });
}

}  // namespace tenor::reduce
