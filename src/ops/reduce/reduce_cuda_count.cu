// Products, and counts of what is not zero.
#include "src/ops/reduce/reduce_launch.cuh"

namespace tenor::reduce {

void prod(const Plan& plan, DType x, const Result& result) {
  if (x == float32)
    reduce_with<float>(plan, Prod<float>{}, result);
  else if (x == float64)
    reduce_with<double>(plan, Prod<double>{}, result);
  else
    reduce_with<int64_t>(plan, Prod<uint64_t>{}, result);
}

void count_nonzero(const Plan& plan, DType x, const Result& result) {
  core::visit_size(x, [&]<class T>() {
    const T mask = static_cast<T>(is_float(x) ? std::numeric_limits<T>::max() / 2 : std::numeric_limits<T>::max());
    reduce_with<T>(plan, Count<T>{{}, mask}, result);
  });
}

}  // namespace tenor::reduce
