// Random programs: fused equals unfused, bit for bit, in results and in what is written to inputs.
#include "src/fusion/random_programs.h"

namespace tenor {
namespace {

using namespace random_programs;

/// TENOR_FUSE_SEED: the first program, to look at one that failed, or at others.
TEST(FuseRandom, FusedEqualsUnfused) {
  const int programs = from_environment("TENOR_FUSE_PROGRAMS", 1000), first = from_environment("TENOR_FUSE_SEED", 1);
  int ran = 0, kernels = 0;
  for (int seed = first; seed < first + programs && !HasFailure(); ++seed) {
    ran += expect_same(
        seed, [](const Tensor& x) { return x; }, kernels);
    if (HasFailure())
      std::printf("%s\n",
                  to_string(explain(program_of(seed), inputs_of(static_cast<uint64_t>(seed) * 7919)), 140).c_str());
  }
  EXPECT_GT(ran, programs / 2);
  EXPECT_GT(kernels, programs / 4);
  std::printf("%d programs, %d kernels of several steps\n", ran, kernels);
}

}  // namespace
}  // namespace tenor
