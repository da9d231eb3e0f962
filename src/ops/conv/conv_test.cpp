// Convolutions on the CPU.
#include "src/ops/conv/conv_shared_tests.h"

namespace tenor::testing {
namespace {

TEST(Conv, DirectIsExactOnDraws) { check_draws(kCpu, 1, 2000, {"direct"}); }
TEST(Conv, ImplicitGemmIsExactOnDraws) { check_draws(kCpu, 2, 2000, {"implicit_gemm"}); }
TEST(Conv, VendorIsExactOnDraws) { check_draws(kCpu, 3, 2000, {"vendor"}); }
TEST(Conv, AutoIsExactOnDraws) { check_draws(kCpu, 4, 500, {"auto"}); }

}  // namespace
}  // namespace tenor::testing
