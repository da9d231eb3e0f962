// Creation, pad, tril and triu.
#include "tenor/create.h"

#include "src/core/testing.h"
#include "src/ops/create/create_reference.h"
#include "tenor/view.h"

namespace tenor {
namespace {

using namespace testing;

TEST(Create, ValuesAndDtypes) {
  EXPECT_EQ(values(zeros({2, 2})), std::vector<double>(4, 0));
  EXPECT_EQ(values(ones({3}, {.dtype = bfloat16})), std::vector<double>(3, 1));
  EXPECT_EQ(tenor::full({2}, true).dtype(), boolean);
  EXPECT_EQ(tenor::full({2}, 7).dtype(), int64);
  EXPECT_EQ(tenor::full({2}, 7.5).dtype(), float32);
  EXPECT_EQ(values(tenor::full({2}, 7.0, {.dtype = int8})), std::vector<double>(2, 7));
  EXPECT_EQ(empty({0, 3}).shape(), (Dims{0, 3}));
  const Tensor x = transpose(ones({3, 4}, {.dtype = int16}), 0, 1);
  EXPECT_EQ(zeros_like(x).strides(), (Dims{1, 4}));
  EXPECT_EQ(full_like(x, 3, {.dtype = float64}).dtype(), float64);
  const Tensor out = testing::full({4}, int32, 9).with_layout({2}, {2}, 1);
  ones({2}, {.out = out});
  EXPECT_EQ(values(out), std::vector<double>(2, 1));
}

TEST(Create, Errors) {
  expect_error<ShapeError>([] { zeros({2, -1}); }, "zeros: sizes must be >= 0, got (2, -1)");
  expect_error<ValueError>([] { tenor::full({2}, 300, {.dtype = uint8}); }, "full: fill_value 300 does not fit uint8");
  expect_error<ValueError>([] { tenor::full({2}, 7.5, {.dtype = int8}); }, "full: fill_value 7.5 does not fit int8");
  expect_error<ValueError>(
      [] {
        pad(ones({2}, {.dtype = int16}), {0, 1}, {.value = kNan});
      },
      "pad: value nan does not fit int16");
  expect_error<ShapeError>([] { zeros({2}, {.out = testing::full({3}, float32, 0)}); },
                           "zeros: out must have shape (2,), got (3,)");
  expect_error<DTypeError>([] { zeros({3}, {.dtype = int8, .out = testing::full({3}, float32, 0)}); },
                           "zeros: out must be int8, got float32");
}

TEST(Arange, CountsAndRounds) {
  EXPECT_EQ(values(arange(0, 5)), (std::vector<double>{0, 1, 2, 3, 4}));
  EXPECT_EQ(values(arange(5, -1, -2)), (std::vector<double>{5, 3, 1}));
  EXPECT_EQ(arange(3, 3).numel(), 0);
  EXPECT_EQ(arange(0, 5).dtype(), int64);
  const Tensor x = arange(1.0, 2.0, 0.3);
  EXPECT_EQ(x.dtype(), float32);
  EXPECT_EQ(values(x), (std::vector<double>{1, static_cast<float>(1.3), static_cast<float>(1.6),
                                            static_cast<float>(1 + 3 * 0.3)}));
  EXPECT_EQ(values(arange(0, 3, 1, {.dtype = float16})), (std::vector<double>{0, 1, 2}));
  EXPECT_EQ(values(arange(INT64_MAX - 2, INT64_MAX)).size(), 2u);
  expect_error<ValueError>([] { arange(0, 5, 0); }, "arange: step must not be 0");
  expect_error<ValueError>([] { arange(0, 5, -1); }, "arange: step -1 leads away from end 5, starting at 0");
  expect_error<ValueError>([] { arange(0, kInf); }, "arange: end must be finite, got inf");
  expect_error<ValueError>([] { arange(0, 300, 1, {.dtype = int8}); }, "arange: the last value 299 does not fit int8");
}

TEST(Linspace, EndsAreExact) {
  const std::vector<double> x = values(linspace(0, 1, 101, {.dtype = float64}));
  EXPECT_EQ(x.front(), 0);
  EXPECT_EQ(x.back(), 1);
  for (size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(x[i], static_cast<double>(i) / 100, 1e-15);
  EXPECT_EQ(values(linspace(3, 9, 1)), std::vector<double>{3});
  EXPECT_EQ(linspace(3, 9, 0).numel(), 0);
  EXPECT_EQ(values(linspace(0, kInf, 3)), (std::vector<double>{0, kInf, kInf}));
  expect_error<ValueError>([] { linspace(0, 1, -1); }, "linspace: steps must be >= 0, got -1");
}

TEST(Eye, Rectangles) {
  EXPECT_EQ(values(eye(2, 3)), (std::vector<double>{1, 0, 0, 0, 1, 0}));
  EXPECT_EQ(values(eye(2, {}, {.dtype = int8})), (std::vector<double>{1, 0, 0, 1}));
}

TEST(Pad, EveryModeAndLayout) {
  Draw draw(1);
  for (int i = 0; i < 300; ++i) {
    const char* mode = (const char*[]){"constant", "reflect", "replicate", "circular"}[i % 4];
    const DType dtype = i % 3 ? float32 : int16;
    const Tensor x = draw.view({2 + draw.upto(3), 1 + draw.upto(3), 3 + draw.upto(4)}, dtype);
    Dims pads{draw.upto(2), draw.upto(2)};
    if (draw.coin()) pads = {draw.upto(2), draw.upto(2), 0, 0, draw.upto(1), draw.upto(1)};
    if (i % 4 == 0) pads[0] = draw.upto(4) - 2;
    Dims shape = x.shape(), before(3, 0);
    for (size_t k = 0; k + 1 < pads.size(); k += 2) {
      before[2 - k / 2] = pads[k];
      shape[2 - k / 2] += pads[k] + pads[k + 1];
    }
    const std::vector<double> want = reference::pad({x.shape(), values(x)}, shape, before, mode, 7);
    const Scalar value = i % 4 == 0 ? 7 : 0;
    EXPECT_EQ(values(pad(x, pads, {.mode = mode, .value = value})), want)
        << mode << " " << describe(x) << to_string(pads);
    EXPECT_EQ(values(pad(x, pads, {.mode = mode, .value = value, .out = draw.poisoned(shape, dtype)})), want) << mode;
  }
}

TEST(Create, SizesBeyondSixtyFourBitsAreRefused) {
  EXPECT_THROW(pad(ones({3}), {INT64_MAX, 1}), OutOfMemoryError);
  EXPECT_THROW(arange(INT64_MIN, INT64_MAX), ValueError);
  EXPECT_EQ(arange(UINT64_MAX - 2, UINT64_MAX, 1, {.dtype = uint64}).data<uint64_t>()[1], UINT64_MAX - 1);
  EXPECT_THROW(zeros({int64_t{1} << 40, int64_t{1} << 40}), OutOfMemoryError);
}

TEST(Pad, NothingIsLeftOfX) {
  const Threads one(1);
  EXPECT_EQ(values(pad(ones({2, 2}), {-2, 2}, {.value = 3})), std::vector<double>(4, 3));
}

TEST(Pad, Errors) {
  const Tensor x = ones({3});
  expect_error<ValueError>([&] { pad(x, {1}); }, "pad: pad must hold pairs, got (1,)");
  expect_error<ShapeError>(
      [&] {
        pad(x, {1, 1, 1, 1});
      },
      "pad: pad (1, 1, 1, 1) has more pairs than x of shape (3,) has dims");
  expect_error<ShapeError>(
      [&] {
        pad(x, {3, 0}, {.mode = "reflect"});
      },
      "pad: mode 'reflect' needs a leading border below the size 3 of dim 0, got 3");
  expect_error<ShapeError>(
      [&] {
        pad(x, {0, 4}, {.mode = "circular"});
      },
      "pad: mode 'circular' needs a trailing border of at most the size 3 of dim 0, got 4");
  expect_error<ShapeError>([&] { pad(x, {-4, 2}); }, "pad: pad (-4, 2) cuts more than the size 3 of dim 0");
  expect_error<ValueError>(
      [&] {
        pad(x, {1, 1}, {.mode = "edge"});
      },
      "pad: mode must be 'constant', 'reflect', 'replicate' or 'circular', got 'edge'");
  expect_error<ValueError>(
      [&] {
        pad(x, {1, 1}, {.mode = "reflect", .value = 1});
      },
      "pad: value goes with mode 'constant', got 1 with 'reflect'");
}

TEST(Triangles, EveryDiagonalAndLayout) {
  Draw draw(2);
  for (int i = 0; i < 100; ++i) {
    const Tensor x = draw.view({1 + draw.upto(2), 1 + draw.upto(5), 1 + draw.upto(5)}, i % 2 ? float32 : bfloat16);
    const int64_t k = draw.upto(10) - 5;
    const reference::Array all{x.shape(), values(x)};
    const std::vector<double> lower = reference::triangle(all, k, true), upper = reference::triangle(all, k, false);
    EXPECT_EQ(values(tril(x, {.diagonal = k})), lower);
    EXPECT_EQ(values(triu(x, {.diagonal = k, .out = draw.poisoned(x.shape(), x.dtype())})), upper);
    tril(x, {.diagonal = k, .out = x});
    EXPECT_EQ(values(x), lower);
  }
  const Tensor x = ones({2, 3});
  EXPECT_EQ(values(tril(x, {.diagonal = INT64_MAX})), values(x));
  EXPECT_EQ(values(triu(x, {.diagonal = INT64_MIN})), values(x));
  EXPECT_EQ(values(triu(x, {.diagonal = INT64_MAX})), std::vector<double>(6, 0));
  EXPECT_EQ(values(tril(x, {.diagonal = INT64_MIN})), std::vector<double>(6, 0));
  expect_error<ShapeError>([] { tril(ones({3})); }, "tril: x must have at least 2 dims, got shape (3,)");
}

}  // namespace
}  // namespace tenor
