// interpolate and its gradient on a GPU.
#include "src/core/output.h"
#include "src/cuda/testing.h"
#include "src/ops/interpolate/interpolate_testing.h"
#include "tenor/interpolate.h"

namespace tenor {
namespace {

using namespace testing;
using InterpolateCuda = CudaTest;

double floor_of(DType dtype) { return dtype == float64 ? 1e-12 : 2e-5; }

TEST_F(InterpolateCuda, MatchesTheReferenceOnRandomCalls) {
  Draw draw(1);
  for (int i = 0; i < 500; ++i) {
    InterpolateCall call = random_call(draw, i % 10 == 0 ? 150 : 40);
    const DType dtype = kFloats[i % 4];
    const Tensor x = image(draw, call.reference.from, dtype);
    const Tensor out = draw.coin() ? on_gpu(draw.poisoned(call.reference.to, dtype)) : Tensor();
    call.options.out = out;
    const Tensor y = on_cpu(interpolate(on_gpu(x), call.options));
    expect_close(y, interpolate_reference(values(x), call.reference),
                 call.text() + " " + std::string(name(dtype)) + to_string(x.strides()), 4, floor_of(dtype));
  }
}

TEST_F(InterpolateCuda, BackwardMatchesTheReferenceOnRandomCalls) {
  Draw draw(2);
  for (int i = 0; i < 500; ++i) {
    InterpolateCall call = random_call(draw, i % 10 == 0 ? 150 : 40);
    const DType dtype = kFloats[i % 4];
    const Tensor g = image(draw, call.reference.to, dtype);
    call.options.out = draw.coin() ? on_gpu(draw.poisoned(call.reference.from, dtype)) : Tensor();
    const Tensor dx = on_cpu(interpolate_backward(on_gpu(g), call.reference.from, call.options));
    expect_close(dx, interpolate_reference(values(g), call.reference, true),
                 call.text() + " " + std::string(name(dtype)) + to_string(g.strides()), 4, 20 * floor_of(dtype));
  }
}

/// Twice or half the size, by kernels of their own where rows are as long as whole accesses and lie aligned.
struct Doubling {
  std::string mode;
  bool half, antialias = false;
};
const Doubling kDoublings[] = {{"nearest", false},       {"nearest-exact", false}, {"bilinear", false},
                               {"bicubic", false},       {"area", false},          {"area", true},
                               {"bilinear", true, true}, {"bicubic", true, true},  {"lanczos3", true, true}};

TEST_F(InterpolateCuda, TwiceAndHalfTheSizeMatchTheReference) {
  Draw draw(4);
  for (int i = 0; i < 300; ++i) {
    const Doubling& d = kDoublings[i % 9];
    const DType dtype = kFloats[draw.upto(3)];
    const int64_t h = 1 + draw.upto(40), w = draw.coin() ? 16 * (1 + draw.upto(5)) : 1 + draw.upto(60);
    const int64_t channels = draw.coin() ? 8 * (1 + draw.upto(3)) : 1 + draw.upto(4);
    const Dims small{1 + draw.upto(2), channels, h, w}, large{small[0], small[1], 2 * h, 2 * w},
        from = d.half ? large : small, to = d.half ? small : large;
    const bool sized = draw.coin();
    const double factor = d.half ? 0.5 : 2;
    InterpolateOptions o{.mode = d.mode, .antialias = d.antialias};
    if (sized)
      o.size = Dims{to[2], to[3]};
    else
      o.scale_factor = std::vector<double>{factor, factor};
    const ReferenceResize reference{
        d.mode, from,       to, sized || d.mode == "area" ? std::vector<double>{} : std::vector<double>{factor, factor},
        false,  d.antialias};
    const std::string what = d.mode + " " + to_string(from) + " to " + to_string(to) + " " + std::string(name(dtype));
    const Tensor x = image(draw, from, dtype), g = image(draw, to, dtype);
    o.out = draw.coin() ? on_gpu(draw.poisoned(to, dtype)) : Tensor();
    expect_close(on_cpu(interpolate(on_gpu(x), o)), interpolate_reference(values(x), reference), what, 4,
                 floor_of(dtype));
    o.out = draw.coin() ? on_gpu(draw.poisoned(from, dtype)) : Tensor();
    expect_close(on_cpu(interpolate_backward(on_gpu(g), from, o)), interpolate_reference(values(g), reference, true),
                 what + " backward", 4, 20 * floor_of(dtype));
  }
}

TEST_F(InterpolateCuda, DoublesBytesAndWidePixels) {
  for (const DType dtype : {uint8, float64, bfloat16}) {
    const Tensor x = filled({2, 3, 5, 48}, dtype, [](int64_t i) { return (i * 7) % 251; });
    for (const std::string mode : {"nearest", "nearest-exact"}) {
      const InterpolateOptions o{.scale_factor = std::vector<double>{2, 2}, .mode = mode};
      EXPECT_TRUE(same_bits(on_cpu(interpolate(on_gpu(x), o)), interpolate(x, o))) << mode << name(dtype);
    }
  }
}

TEST_F(InterpolateCuda, BytesAndTallWindows) {
  const Tensor x = filled({1, 1, 3}, uint8, [](int64_t i) { return 250 + i; });
  EXPECT_EQ(values(on_cpu(interpolate(on_gpu(x), {.size = Dims{6}}))),
            (std::vector<double>{250, 250, 251, 251, 252, 252}));
  Draw draw(3);  // windows of more rows than a ring holds
  const ReferenceResize tall{"area", {1, 2, 900, 3}, {1, 2, 2, 3}, {}};
  const Tensor image = draw.dense(tall.from, float32);
  expect_close(on_cpu(interpolate(on_gpu(image), {.size = Dims{2, 3}, .mode = "area"})),
               interpolate_reference(values(image), tall), "area", 4, 1e-5);
}

TEST_F(InterpolateCuda, NanAndInfinityReachTheirNeighboursOnly) {
  Tensor x = full({1, 1, 1, 40}, float32, 1);
  put(x, 20, kInf);
  const auto shrunk =
      values(on_cpu(interpolate(on_gpu(x), {.size = Dims{1, 17}, .mode = "bilinear", .antialias = true})));
  for (size_t i = 0; i < shrunk.size(); ++i)
    EXPECT_EQ(std::isfinite(shrunk[i]), i < 8 || i > 9) << i << " " << shrunk[i];
  Tensor wide = full({1, 1, 4, 64}, float32, 1);
  put(wide, 64 + 31, kInf);  // row 1
  for (const std::string mode : {"bilinear", "bicubic"}) {
    const InterpolateOptions twice{.size = Dims{8, 128}, .mode = mode},
        half{.size = Dims{2, 32}, .mode = mode, .antialias = true};
    for (const auto& o : {twice, half}) {
      const auto got = values(on_cpu(interpolate(on_gpu(wide), o))), want = values(interpolate(wide, o));
      for (size_t i = 0; i < got.size(); ++i)
        EXPECT_EQ(std::isfinite(got[i]), std::isfinite(want[i])) << mode << o.antialias << i << " " << got[i];
    }
  }
}

// Offsets beyond 2^31 elements: a row of planes, of which the last must be right.
TEST_F(InterpolateCuda, MoreThan31BitsOfElements) {
  constexpr int64_t kPlanes = (int64_t{1} << 31) / (64 * 64) + 3;
  Tensor x, y;
  try {
    x = Tensor::empty({1, kPlanes, 32, 32}, uint8, kGpu);
    y = Tensor::empty({1, kPlanes, 64, 64}, uint8, kGpu);
  } catch (const OutOfMemoryError&) {
    GTEST_SKIP() << "not enough memory";
  }
  const Tensor last = x.with_layout({1, 2, 32, 32}, contiguous_strides({1, 2, 32, 32}), (kPlanes - 2) * 32 * 32);
  const Tensor want = filled({1, 2, 32, 32}, uint8, [](int64_t i) { return (i * 7) % 251; });
  core::copy_into(want.to(kGpu), last);
  interpolate(x, {.size = Dims{64, 64}, .out = y});
  const Tensor got = y.with_layout({1, 2, 64, 64}, contiguous_strides({1, 2, 64, 64}), (kPlanes - 2) * 64 * 64);
  EXPECT_TRUE(same_bits(on_cpu(got.clone()), interpolate(want, {.size = Dims{64, 64}})));
}

}  // namespace
}  // namespace tenor
