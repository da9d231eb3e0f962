// The largest and the smallest, and where they stand.
#include "src/ops/reduce/reduce_launch.cuh"

namespace tenor::reduce {

void arg(const Plan& plan, DType x, bool largest, const Result& result) {
  core::visit(x, [&]<class T>() {
    if constexpr (!std::is_same_v<T, bool> && !std::is_same_v<T, Float8E4M3> && !std::is_same_v<T, Float8E5M2>)
      reduce_with<T>(plan, Arg<T>{{!largest}}, result);
  });
}

}  // namespace tenor::reduce
