#include "src/fusion/effort.h"

#include <gtest/gtest.h>

#include "src/core/modes.h"
#include "src/fusion/recorder.h"
#include "tenor/tenor.h"

namespace tenor::fusion {
namespace {

Tensor shape(Dims dims, DType dtype = float32) { return Tensor::empty(dims, dtype, {DeviceType::kMeta}); }

/// Of the last step that fn states.
template <class Fn>
Effort effort_in(Fn fn) {
  Recorder recorder;
  std::vector<Tensor> outputs;
  {
    core::TracerGuard guard(&recorder);
    outputs.push_back(fn());
  }
  const Graph graph(recorder.steps, outputs);
  return effort_of(graph.nodes.back());
}

TEST(Effort, FunctionsAreCountedAnElementEach) {
  EXPECT_EQ(effort_in([] { return exp(shape({3, 4})); }).exponentials, 12);
  EXPECT_EQ(effort_in([] { return silu(shape({3, 4})); }).exponentials, 12);
  EXPECT_EQ(effort_in([] { return softmax(shape({3, 4})); }).exponentials, 12);
  EXPECT_EQ(effort_in([] { return logsumexp(shape({3, 4})); }).exponentials, 12);
  EXPECT_EQ(effort_in([] { return silu_mul(shape({3, 4})); }).exponentials, 6);
  EXPECT_EQ(effort_in([] { return sqrt(shape({5})); }).divisions, 5);
  EXPECT_EQ(effort_in([] { return div(shape({5}), shape({5})); }).divisions, 5);
  EXPECT_EQ(effort_in([] { return exp(shape({5}, float64)); }).width, float64);
  const Effort add = effort_in([] { return tenor::add(shape({5}), shape({5})); });
  EXPECT_EQ(add.exponentials + add.divisions + add.operations + add.widened + add.rounded, 0);
  EXPECT_EQ(effort_in([] { return floor_divide(shape({5}, int32), shape({5}, int32)); }).divisions, 0);
}

TEST(Effort, OperationsAreWhatAnOrderTakesBesideItsFlops) {
  EXPECT_EQ(effort_in([] { return var(shape({3, 4}), {.dim = Dims{1}}); }).operations, 3 * 12);
  EXPECT_EQ(effort_in([] { return std(shape({3, 4})); }).operations, 3 * 12);
  EXPECT_EQ(effort_in([] { return amax(shape({3, 4})); }).operations, 12);
  EXPECT_EQ(effort_in([] { return sum(shape({3, 4})); }).operations, 0);
  EXPECT_EQ(effort_in([] { return cumsum(shape({3, 32}), 1); }).operations, 5 * 96);
  EXPECT_EQ(effort_in([] { return cumsum(shape({32, 3}), 0); }).operations, 3 * 96);
  EXPECT_EQ(effort_in([] { return cumsum(shape({3, 8}), 1); }).operations, 0);  // shorter than a group
  EXPECT_EQ(effort_in([] { return cumsum(shape({3, 32}, int32), 1); }).operations, 0);
  EXPECT_EQ(effort_in([] { return cumprod(shape({3, 32}), 1); }).operations, 0);
  EXPECT_EQ(effort_in([] { return logcumsumexp(shape({3, 4}), 1); }).exponentials, 24);
}

TEST(Effort, ConversionsAreThoseOfArithmetic) {
  const Effort sum = effort_in([] { return tenor::add(shape({4, 8}, bfloat16), shape({8}, bfloat16)); });
  EXPECT_EQ(sum.widened, 32 + 8);
  EXPECT_EQ(sum.rounded, 32);
  EXPECT_EQ(sum.narrow, bfloat16);
  EXPECT_EQ(effort_in([] { return to(shape({6}, float16), float32); }).widened, 6);
  EXPECT_EQ(effort_in([] { return to(shape({6}), float16); }).rounded, 6);
  EXPECT_EQ(effort_in([] { return to(shape({6}), float16); }).narrow, float16);
  EXPECT_EQ(effort_in([] { return rms_norm(shape({2, 8}, bfloat16), shape({8})); }).widened, 16);
  EXPECT_EQ(effort_in([] { return neg(shape({6}, bfloat16)); }).rounded, 6);
  EXPECT_EQ(effort_in([] { return gt(shape({6}, bfloat16), shape({6}, bfloat16)); }).widened, 12);
  for (const Effort& e :
       {effort_in([] { return shape({6}, bfloat16).clone(); }),
        effort_in([] { return where(shape({6}, boolean), shape({6}, bfloat16), shape({6}, bfloat16)); }), effort_in([] {
          return matmul(shape({2, 2}, bfloat16), shape({2, 2}, bfloat16));
        })})
    EXPECT_EQ(e.widened + e.rounded, 0);
}

TEST(Effort, OperandsLieAcross) {
  const Tensor x = shape({128, 256});
  const auto turned = [](const Effort& e) { return std::pair(e.turned_read, e.turned_written); };
  const int64_t bytes = 4 * 128 * 256;
  EXPECT_EQ(turned(effort_in([&] { return transpose(x, 0, 1).contiguous(); })), (std::pair{bytes, bytes}));
  EXPECT_EQ(turned(effort_in([&] { return reshape(transpose(x, 0, 1), {128 * 256}); })), (std::pair{bytes, bytes}));
  EXPECT_EQ(turned(effort_in([&] {
              return tenor::add(x, transpose(shape({256, 128}), 0, 1));
            })),
            (std::pair{bytes, bytes}));
  const std::pair<int64_t, int64_t> none{0, 0};
  EXPECT_EQ(turned(effort_in([&] { return x.clone(); })), none);
  EXPECT_EQ(turned(effort_in([&] {
              return transpose(shape({8, 128, 64}), 0, 1).contiguous();
            })),
            none);  // rows stay whole
  EXPECT_EQ(turned(effort_in([&] {
              return transpose(shape({4, 256}), 0, 1).contiguous();
            })),
            none);  // too few to be apart
  EXPECT_EQ(turned(effort_in([&] { return transpose(shape({128, 256}, float64), 0, 1).contiguous(); })), none);
  EXPECT_EQ(turned(effort_in([&] { return sum(transpose(x, 0, 1), {.dim = Dims{0}}); })), none);
}

}  // namespace
}  // namespace tenor::fusion
