// rope and rope_tables on a GPU.
#include "src/cuda/testing.h"
#include "src/ops/rope/rope_testing.h"
#include "tenor/rope.h"
#include "tenor/view.h"

namespace tenor {
namespace {

using namespace testing;
using RopeCuda = CudaTest;

TEST_F(RopeCuda, MatchesTheReferenceOnRandomShapesAndStrides) {
  Draw draw(1);
  for (int i = 0; i < 160; ++i) {
    const DType dtype = kFloats[i % 4], table = draw.coin() ? dtype : float32;
    const bool plain = draw.coin();  // dense, of whole accesses
    const int64_t batch = draw.upto(3), tokens = draw.upto(5), heads = 1 + draw.upto(9),
                  half = plain ? 8 * (1 + draw.upto(8)) : 1 + draw.upto(40),
                  rest = draw.coin() ? 0
                         : plain     ? 16
                                     : draw.upto(9);
    const int64_t maxpos = tokens + 1 + draw.upto(3);
    const auto input = [&](const Dims& shape, DType t) { return plain ? draw.dense(shape, t) : draw.view(shape, t); };
    const Tensor x = input({batch, tokens, heads, 2 * half + rest}, dtype), cos = input({maxpos, half}, table),
                 sin = input({maxpos, half}, draw.coin() ? table : float32);
    const Tensor out = on_gpu(draw.poisoned(x.shape(), dtype)), gx = on_gpu(x), gc = on_gpu(cos), gs = on_gpu(sin);
    const std::string what = std::string(name(dtype)) + to_string(x.shape()) + to_string(x.strides());
    for (bool interleaved : {false, true}) {
      RopeOptions options{.interleaved = interleaved, .rotary_dim = 2 * half, .out = out};
      rope(gx, gc, gs, options);
      expect_close(on_cpu(out), rope_reference(x, cos, sin, counted(batch, tokens), interleaved), what, 1, 1e-6);
      std::vector<double> places;
      for (int64_t t = 0; t < batch * tokens; ++t) places.push_back(static_cast<double>(draw.upto(maxpos - 1)));
      options.positions = on_gpu(tensor_of({batch, tokens}, draw.coin() ? int32 : int64, places));
      options.out = {};
      const Tensor got = on_cpu(rope(gx, gc, gs, options));
      expect_close(got, rope_reference(x, cos, sin, places, interleaved), what + " positions", 1, 1e-6);
      EXPECT_TRUE(same_bits(
          got, rope(x, cos, sin,
                    {.interleaved = interleaved, .rotary_dim = 2 * half, .positions = on_cpu(options.positions)})))
          << what;
    }
  }
}

TEST_F(RopeCuda, PositionsOfOneSequenceServeEveryBatch) {
  Draw draw(2);
  const Tensor x = on_gpu(draw.view({2, 3, 4, 2, 8}, float32)), cos = on_gpu(draw.dense({9, 4}, float32)),
               sin = on_gpu(draw.dense({9, 4}, float32));
  const Tensor line = on_gpu(tensor_of({4}, uint8, {8, 0, 3, 3})), rows = on_gpu(tensor_of({3, 1}, int64, {5, 0, 7}));
  const auto turned = [&](const Tensor& positions) { return on_cpu(rope(x, cos, sin, {.positions = positions})); };
  EXPECT_TRUE(same_bits(turned(line), turned(expand(line, {2, 3, 4}))));
  EXPECT_TRUE(same_bits(turned(rows), turned(expand(rows, {2, 3, 4}))));
  // [B, H, S, D] memory seen as [B, S, H, D], in place.
  const Tensor seen = transpose(on_gpu(draw.dense({2, 5, 4, 8}, float32)), 1, 2), want = on_cpu(rope(seen, cos, sin));
  rope(seen, cos, sin, {.out = seen});
  EXPECT_TRUE(same_bits(on_cpu(seen), want));
}

TEST_F(RopeCuda, ABadPositionIsReportedAndItsTokenPassesThrough) {
  Draw draw(3);
  for (DType dtype : {bfloat16, float32})
    for (double bad : {-1.0, 7.0}) {
      const Tensor x = draw.dense({3, 2, 16}, dtype), cos = draw.dense({7, 8}, float32),
                   sin = draw.dense({7, 8}, float32);
      const Tensor got =
          rope(on_gpu(x), on_gpu(cos), on_gpu(sin), {.positions = on_gpu(tensor_of({3}, int64, {6, bad, 2}))});
      const std::optional<std::string> error =
          (on_cpu(Tensor::empty({1}, float32)), [&]() -> std::optional<std::string> {
            try {
              synchronize(kGpu);
            } catch (const IndexError& e) {
              return e.what();
            }
            return {};
          }());
      ASSERT_TRUE(error.has_value());
      EXPECT_EQ(*error, "rope: positions holds " + std::to_string(static_cast<int>(bad)) +
                            " at position 1, which is out of range");
      const Tensor fine = rope(x, cos, sin, {.positions = tensor_of({3}, int64, {6, 0, 2})}), have = on_cpu(got);
      for (int64_t t : {0, 2}) EXPECT_TRUE(same_bits(select(have, 0, t), select(fine, 0, t)));
      EXPECT_TRUE(same_bits(select(have, 0, 1), select(x, 0, 1)));
    }
}

TEST_F(RopeCuda, TablesAreThoseOfTheCpu) {
  for (int64_t rotary : {2, 64, 128, 600}) {
    const RopeTables host = rope_tables(5000, rotary), device = rope_tables(5000, rotary, {.device = kGpu});
    expect_close(on_cpu(device.cos), values(host.cos), "cos", 1, 1e-7);
    expect_close(on_cpu(device.sin), values(host.sin), "sin", 1, 1e-7);
  }
  const RopeScaling yarn{.type = "yarn", .factor = 4, .original_max_position_embeddings = 1024};
  expect_close(on_cpu(rope_tables(100, 64, {.scaling = yarn, .device = kGpu}).cos),
               values(rope_tables(100, 64, {.scaling = yarn}).cos), "yarn", 1, 1e-7);
  EXPECT_EQ(rope_tables(0, 8, {.device = kGpu}).cos.shape(), Dims({0, 4}));
}

}  // namespace
}  // namespace tenor
