// Random programs: fused equals unfused, bit for bit, in results and in what is written to inputs.
#include <utility>

#include "src/fusion/cpu_table.h"
#include "src/fusion/random_programs.h"

namespace tenor {
namespace {

using namespace random_programs;

/// TENOR_FUSE_SEED: the first program, to look at one that failed, or at others.
void run_programs(int programs) {
  const int first = from_environment("TENOR_FUSE_SEED", 1);
  int ran = 0, kernels = 0;
  for (int seed = first; seed < first + programs && !::testing::Test::HasFailure(); ++seed) {
    ran += expect_same(
        seed, [](const Tensor& x) { return x; }, kernels);
    if (::testing::Test::HasFailure())
      std::printf("%s\n",
                  to_string(explain(program_of(seed), inputs_of(static_cast<uint64_t>(seed) * 7919)), 140).c_str());
  }
  EXPECT_GT(ran, programs / 2);
  EXPECT_GT(kernels, programs / 4);
  std::printf("%d programs, %d kernels of several steps\n", ran, kernels);
}

TEST(FuseRandom, FusedEqualsUnfused) { run_programs(from_environment("TENOR_FUSE_PROGRAMS", 1000)); }

/// What hangs on one 16-bit float alone comes from a table, of however few elements and steps.
TEST(FuseRandom, FusedEqualsUnfusedWithTables) {
  const fusion::TableRule rule = std::exchange(fusion::table_rule(), {.elements = 1, .cost = 1});
  run_programs(from_environment("TENOR_FUSE_PROGRAMS", 300));
  fusion::table_rule() = rule;
}

}  // namespace
}  // namespace tenor
