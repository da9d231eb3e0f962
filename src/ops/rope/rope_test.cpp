// rope and rope_tables.
#include "tenor/rope.h"

#include <numbers>

#include "src/core/testing.h"
#include "src/ops/rope/rope_testing.h"
#include "tenor/view.h"

namespace tenor {
namespace {

using namespace testing;

TEST(Rope, MatchesTheReferenceOnRandomShapesAndStrides) {
  Draw draw(1);
  for (int i = 0; i < 160; ++i) {
    const DType dtype = kFloats[i % 4], table = draw.coin() ? dtype : float32;
    const int64_t batch = draw.upto(3), tokens = draw.upto(5), heads = 1 + draw.upto(3), half = 1 + draw.upto(40),
                  rest = draw.coin() ? 0 : draw.upto(9);
    const int64_t maxpos = tokens + 1 + draw.upto(3);
    const Tensor x = draw.view({batch, tokens, heads, 2 * half + rest}, dtype), cos = draw.view({maxpos, half}, table),
                 sin = draw.view({maxpos, half}, table);
    const Tensor out = draw.poisoned(x.shape(), dtype);
    const std::string what = std::string(name(dtype)) + to_string(x.shape()) + to_string(x.strides());
    for (bool interleaved : {false, true}) {
      RopeOptions options{.interleaved = interleaved, .rotary_dim = 2 * half, .out = out};
      rope(x, cos, sin, options);
      expect_close(out, rope_reference(x, cos, sin, counted(batch, tokens), interleaved), what, 1, 1e-6);
      std::vector<double> places;
      for (int64_t t = 0; t < batch * tokens; ++t) places.push_back(static_cast<double>(draw.upto(maxpos - 1)));
      options.positions = tensor_of({batch, tokens}, draw.coin() ? int32 : int64, places);
      rope(x, cos, sin, options);
      expect_close(out, rope_reference(x, cos, sin, places, interleaved), what + " positions", 1, 1e-6);
    }
  }
}

TEST(Rope, PositionsOfOneSequenceServeEveryBatch) {
  Draw draw(2);
  const Tensor x = draw.view({2, 3, 4, 2, 8}, float32), cos = draw.dense({9, 4}, float32),
               sin = draw.dense({9, 4}, float32);
  const Tensor line = tensor_of({4}, uint8, {8, 0, 3, 3}), spread = expand(line, {2, 3, 4}),
               rows = tensor_of({3, 1}, int64, {5, 0, 7});
  const Tensor by_line = rope(x, cos, sin, {.positions = line});
  EXPECT_TRUE(same_bits(by_line, rope(x, cos, sin, {.positions = spread})));
  EXPECT_TRUE(
      same_bits(rope(x, cos, sin, {.positions = rows}), rope(x, cos, sin, {.positions = expand(rows, {2, 3, 4})})));
  for (int threads : {1, 3}) {
    const Threads use(threads);
    EXPECT_TRUE(same_bits(rope(select(x, 0, 1), cos, sin, {.positions = line}), select(by_line, 0, 1)));
  }
  // [B, H, S, D] memory seen as [B, S, H, D], in place.
  const Tensor seen = transpose(draw.dense({2, 5, 4, 8}, float32), 1, 2), want = rope(seen, cos, sin);
  EXPECT_EQ(want.strides(), seen.strides());
  EXPECT_TRUE(same_bits(rope(seen, cos, sin, {.out = seen}), want));
}

TEST(Rope, BothPairingsTurnAlike) {
  Draw draw(3);
  for (DType dtype : kFloats) {
    const Tensor x = draw.dense({3, 2, 10}, dtype), cos = draw.dense({3, 5}, float32),
                 sin = draw.dense({3, 5}, float32);
    const Tensor pairs = permute(view(x, {3, 2, 2, 5}), {0, 1, 3, 2}).contiguous();
    const Tensor turned = rope(view(pairs, {3, 2, 10}), cos, sin, {.interleaved = true});
    EXPECT_TRUE(
        same_bits(view(permute(view(turned, {3, 2, 5, 2}), {0, 1, 3, 2}).contiguous(), {3, 2, 10}), rope(x, cos, sin)));
  }
}

TEST(Rope, Errors) {
  const Tensor x = full({3, 2, 8}, float32, 1), table = full({3, 4}, float32, 1);
  expect_error<ShapeError>(
      [&] {
        rope(full({3, 8}, float32, 1), table, table);
      },
      "rope: x must have shape [..., S, H, D], got (3, 8)");
  expect_error<ShapeError>(
      [&] {
        rope(x, full({3, 2}, float32, 1), table);
      },
      "rope: cos must have rotary_dim/2 = 4 columns, got shape (3, 2)");
  expect_error<ShapeError>(
      [&] {
        rope(x, table, full({2, 4}, float32, 1));
      },
      "rope: sin must have shape (3, 4), got (2, 4)");
  expect_error<ShapeError>(
      [&] {
        rope(x, full({2, 4}, float32, 1), full({2, 4}, float32, 1));
      },
      "rope: cos has 2 rows, fewer than x's 3 positions");
  for (int64_t bad : {0, 3, 10, -2})
    expect_error<ValueError>([&] { rope(x, table, table, {.rotary_dim = bad}); },
                             "rope: rotary_dim must be even and in 2..8, x's head size, got " + std::to_string(bad));
  expect_error<DTypeError>(
      [&] {
        rope(x, full({3, 4}, float16, 1), table);
      },
      "rope: cos must be float32 or x's dtype float32, got float16");
  expect_error<DTypeError>([&] { rope(x, table, table, {.positions = full({3}, float32, 0)}); },
                           "rope: positions must be an integer array, got float32");
  expect_error<ShapeError>([&] { rope(x, table, table, {.positions = full({2}, int64, 0)}); },
                           "rope: positions must be [S] or broadcast to (3,), x's shape before [H, D], got (2,)");
  const Tensor out = full({3, 2, 8}, float32, 7);
  expect_error<IndexError>(
      [&] {
        rope(x, table, table, {.positions = tensor_of({3}, int64, {0, 1, 3}), .out = out});
      },
      "rope: positions holds 3 at (2,), outside the tables' rows 0 to 2");
  EXPECT_THROW(rope(x, table, table, {.positions = tensor_of({3}, int8, {0, -1, 2}), .out = out}), IndexError);
  EXPECT_EQ(values(out), std::vector<double>(48, 7));
}

TEST(RopeTables, AreTheAnglesInFloat64) {
  const RopeTables t = rope_tables(2000, 6, {.theta = 500000});
  EXPECT_EQ(t.cos.shape(), Dims({2000, 3}));
  for (int64_t p : {0, 1, 1999})
    for (int64_t i = 0; i < 3; ++i) {
      const double angle = static_cast<double>(p) * std::pow(500000.0, -2.0 * static_cast<double>(i) / 6);
      EXPECT_EQ(t.cos.data<float>()[p * 3 + i], static_cast<float>(std::cos(angle)));
      EXPECT_EQ(t.sin.data<float>()[p * 3 + i], static_cast<float>(std::sin(angle)));
    }
  EXPECT_EQ(rope_tables(0, 2).sin.shape(), Dims({0, 1}));
  const RopeTables own{Tensor::empty({5, 2}, float32), Tensor::empty({5, 2}, float32)};
  EXPECT_EQ(rope_tables(5, 4, {.out = own}).cos.raw(), own.cos.raw());
  EXPECT_TRUE(same_bits(own.sin, rope_tables(5, 4).sin));
}

/// The frequency of column i: the angle at position 1 of tables that are not magnified.
double frequency(const RopeTables& t, int64_t i) {
  return std::atan2(t.sin.data<float>()[t.sin.shape(1) + i], t.cos.data<float>()[t.cos.shape(1) + i]);
}

TEST(RopeTables, Scalings) {
  const RopeTables plain = rope_tables(2, 128, {.theta = 500000});
  const RopeTables linear = rope_tables(2, 128, {.theta = 500000, .scaling = {.type = "linear", .factor = 4}});
  const RopeTables llama = rope_tables(2, 128,
                                       {.theta = 500000,
                                        .scaling = {.type = "llama3",
                                                    .factor = 8,
                                                    .original_max_position_embeddings = 8192,
                                                    .low_freq_factor = 1,
                                                    .high_freq_factor = 4}});
  const RopeTables yarn = rope_tables(
      2, 128,
      {.theta = 500000,
       .scaling = {.type = "yarn", .factor = 8, .original_max_position_embeddings = 8192, .attention_factor = 1.0}});
  for (int64_t i = 0; i < 64; ++i) {
    const double f = std::pow(500000.0, -static_cast<double>(i) / 64), turns = 8192 * f / (2 * std::numbers::pi);
    EXPECT_NEAR(frequency(plain, i), f, 2e-7 * f);
    EXPECT_NEAR(frequency(linear, i), f / 4, 2e-7 * f);
    const double share = std::clamp((turns - 1) / 3, 0.0, 1.0);
    EXPECT_NEAR(frequency(llama, i), f * share + f / 8 * (1 - share), 2e-7 * f);
    // yarn keeps what turns above 32 times and stretches what turns less than once.
    if (turns > 33) {
      EXPECT_NEAR(frequency(yarn, i), f, 2e-7 * f);
    }
    if (turns < 0.8) {
      EXPECT_NEAR(frequency(yarn, i), f / 8, 2e-7 * f);
    }
  }
  // Magnitude: 0.1 ln(factor) + 1, or the ratio of the two mscales.
  RopeScaling s{.type = "yarn", .factor = 40, .original_max_position_embeddings = 4096};
  EXPECT_EQ(rope_tables(1, 64, {.scaling = s}).cos.data<float>()[0], static_cast<float>(0.1 * std::log(40) + 1));
  s.mscale = 0.707, s.mscale_all_dim = 1;
  EXPECT_EQ(rope_tables(1, 64, {.scaling = s}).cos.data<float>()[0],
            static_cast<float>((0.0707 * std::log(40) + 1) / (0.1 * std::log(40) + 1)));
}

TEST(RopeTables, Errors) {
  expect_error<ValueError>([] { rope_tables(-1, 4); }, "rope_tables: maxpos must be >= 0, got -1");
  expect_error<ValueError>([] { rope_tables(4, 3); }, "rope_tables: rotary_dim must be even and >= 2, got 3");
  expect_error<ValueError>([] { rope_tables(4, 4, {.theta = 0}); }, "rope_tables: theta must be finite and > 0, got 0");
  expect_error<ValueError>([] { rope_tables(4, 4, {.scaling = {.type = "dynamic"}}); },
                           "rope_tables: scaling type must be 'default', 'linear', 'llama3' or 'yarn', got 'dynamic'");
  expect_error<ValueError>([] { rope_tables(4, 4, {.scaling = {.type = "linear", .factor = 0.5}}); },
                           "rope_tables: scaling factor must be finite and >= 1, got 0.5");
  expect_error<ValueError>([] { rope_tables(4, 4, {.scaling = {.type = "yarn", .factor = 2}}); },
                           "rope_tables: scaling original_max_position_embeddings must be finite and > 0, got 0");
}

}  // namespace
}  // namespace tenor
