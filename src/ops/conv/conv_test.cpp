// Convolutions on the CPU.
#include "src/ops/conv/conv_shared_tests.h"

namespace tenor::testing {
namespace {

TEST(Conv, DrawsAreExactInEveryDirection) { check_draws(kCpu, 1, 2000, {"direct", "implicit_gemm", "vendor", "auto"}); }

}  // namespace
}  // namespace tenor::testing
