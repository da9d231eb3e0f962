// softmax, log_softmax, softmax_last_axis, normalize.
#include "src/core/testing.h"
#include "src/ops/norm/norm_reference.h"
#include "tenor/norm.h"
#include "tenor/view.h"

namespace tenor {
namespace {

using namespace testing;
using reference::Row;

/// fn of each row along dim, in x's logical order.
template <class F>
std::vector<double> along(const Tensor& x, int dim, F fn) {
  const Tensor rows = x.ndim() == 0 ? view(x, {1}) : movedim(x, {dim}, {-1});
  const std::vector<double> all = values(rows);
  const Tensor result = Tensor::empty(x.shape(), float64);
  const Tensor moved = x.ndim() == 0 ? view(result, {1}) : movedim(result, {dim}, {-1});
  std::vector<double> out;
  const size_t n = static_cast<size_t>(rows.shape(-1));
  for (size_t start = 0; start < all.size(); start += n) {
    const Row row = fn(Row(all.begin() + start, all.begin() + start + n));
    out.insert(out.end(), row.begin(), row.end());
  }
  assign(moved, out);
  return values(result);
}

TEST(Softmax, MatchesTheReferenceOnRandomShapesAndStrides) {
  constexpr int64_t kLengths[] = {1, 3, 16, 31, 200, 1025, 8200};
  Draw draw(1);
  for (int i = 0; i < 160; ++i) {
    const DType dtype = kFloats[i % 4];
    const int ndim = 1 + static_cast<int>(draw.upto(3)), dim = static_cast<int>(draw.upto(ndim - 1));
    Dims shape;
    for (int d = 0; d < ndim; ++d) shape.push_back(d == dim ? kLengths[draw.upto(6)] : draw.upto(d == 0 ? 5 : 20));
    if (product(shape) > 200000) continue;
    const Tensor x = draw.view(shape, dtype), out = draw.poisoned(shape, dtype);
    const std::string what = std::string(name(dtype)) + to_string(shape) + " dim " + std::to_string(dim);
    softmax(x, {.dim = dim, .out = out});
    expect_close(out, along(x, dim, [](Row r) { return reference::softmax(r, false); }), "softmax " + what, 1, 1e-7);
    expect_close(log_softmax(x, {.dim = dim - ndim}), along(x, dim, [](Row r) { return reference::softmax(r, true); }),
                 "log_softmax " + what);
    constexpr double kOrders[] = {2, 1, kInf, -kInf, 0, 3, 0.5, -1};
    const double p = kOrders[draw.upto(7)];
    expect_close(normalize(x, {.p = p, .dim = dim}),
                 along(x, dim, [&](Row r) { return reference::normalize(r, p, 1e-12); }),
                 "normalize " + std::to_string(p) + " " + what, 2, 1e-7);
  }
}

TEST(Softmax, RowsWithoutADistribution) {
  const Tensor x =
      tensor_of({6, 3}, float32,
                {-kInf, -kInf, -kInf, -kInf, 2, -kInf, 0, kInf, 0, 0, kNan, -kInf, kNan, -kInf, -kInf, 1e4, 1e4, -1e4});
  const std::vector<double> want = {kNan, kNan, kNan, 0,    1,    0,    kNan, kNan, kNan,
                                    kNan, kNan, kNan, kNan, kNan, kNan, 0.5,  0.5,  0};
  const std::vector<double> logs = {
      kNan, kNan, kNan, -kInf, 0,    -kInf, kNan,         kNan,         kNan,
      kNan, kNan, kNan, kNan,  kNan, kNan,  -std::log(2), -std::log(2), -20000 - std::log(2)};
  for (DType dtype : kFloats) {
    const Tensor t = x.to(dtype);
    expect_close(softmax(t), want, "softmax");
    expect_close(softmax_last_axis(t), want, "softmax_last_axis");
    expect_close(log_softmax(t), logs, "log_softmax", dtype == float32 || dtype == float64 ? 1 : 2);
    const Tensor columns = transpose(transpose(t, 0, 1).contiguous(), 0, 1);
    expect_close(softmax(columns), want, "softmax of columns");
  }
  // A NaN anywhere in a long row, and an all -inf one.
  for (int64_t place : {0, 1, 17, 4095, 4096, 4999}) {
    const Tensor row = full({5000}, float32, 1);
    row.data<float>()[place] = static_cast<float>(kNan);
    for (double v : values(softmax(row))) ASSERT_TRUE(std::isnan(v));
  }
  for (double v : values(softmax(full({5000}, float32, -kInf)))) ASSERT_TRUE(std::isnan(v));
}

TEST(Softmax, ARowsBitsAreItsOwnWhateverTheLayout) {
  Draw draw(2);
  for (DType dtype : kFloats) {
    const Tensor x = draw.dense({67, 333}, dtype), turned = transpose(transpose(x, 0, 1).contiguous(), 0, 1);
    const Tensor all = softmax(x), logs = log_softmax(x), unit_rows = normalize(x);
    for (int threads : {1, 2, 5}) {
      const Threads use(threads);
      EXPECT_TRUE(same_bits(softmax(turned), all));
      EXPECT_TRUE(same_bits(log_softmax(turned), logs));
      EXPECT_TRUE(same_bits(normalize(turned), unit_rows));
      EXPECT_TRUE(same_bits(softmax(narrow(x, 0, 66, 1)), narrow(all, 0, 66, 1)));
      EXPECT_TRUE(same_bits(softmax(narrow(turned, 0, 3, 5)), narrow(all, 0, 3, 5)));
    }
    EXPECT_EQ(softmax(turned).strides(), turned.strides());
    const Tensor own = x.clone();
    EXPECT_TRUE(same_bits(softmax(own, {.out = own}), all));
    const Tensor own_turned = transpose(transpose(x, 0, 1).contiguous(), 0, 1);
    EXPECT_TRUE(same_bits(log_softmax(own_turned, {.out = own_turned}), logs));
  }
}

TEST(Softmax, EdgesOfShapes) {
  EXPECT_EQ(values(softmax(full({}, float32, 3))), std::vector<double>{1});
  EXPECT_EQ(softmax(Tensor::empty({3, 0}, float32)).shape(), Dims({3, 0}));
  EXPECT_EQ(log_softmax(Tensor::empty({0, 3}, float32), {.dim = 0}).shape(), Dims({0, 3}));
  EXPECT_EQ(values(softmax(expand(full({1, 4}, float32, 3), {3, 4}))), std::vector<double>(12, 0.25));
  expect_error<ShapeError>(
      [] {
        softmax_last_axis(Tensor::empty({3, 0}, float32));
      },
      "softmax_last_axis: x must have a last axis of length > 0, got shape (3, 0)");
  expect_error<IndexError>(
      [] {
        softmax(full({2, 3}, float32, 0), {.dim = 2});
      },
      "softmax: dim 2 is out of range for 2 dims (expected -2 to 1)");
  expect_error<DTypeError>([] { log_softmax(full({2}, int64, 0)); },
                           "log_softmax: x must be float16, bfloat16, float32 or float64, got int64");
}

TEST(Normalize, DividesByTheNormOrEpsilon) {
  const Tensor x = tensor_of({3, 2}, float32, {3, 4, 0, 0, 1e-20, 0});
  expect_close(normalize(x, {.epsilon = 1e-12}), {0.6, 0.8, 0, 0, 1e-8, 0}, "epsilon", 1, 1e-15);
  expect_close(normalize(x, {.epsilon = 10}), {0.3, 0.4, 0, 0, 1e-21, 0}, "large epsilon", 1, 1e-27);
  expect_close(normalize(full({4}, float32, 0), {.epsilon = 1e-300}), {0, 0, 0, 0}, "tiny epsilon");
  for (double p : {2.0, 1.0, kInf, -kInf, 3.0}) {
    const Tensor bad = tensor_of({2, 3}, float32, {1, kNan, 2, 1, 1, 1});
    const std::vector<double> v = values(normalize(bad, {.p = p}));
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(std::isnan(v[i]) && std::isfinite(v[3 + i])) << p;
  }
  expect_error<ValueError>([&] { normalize(x, {.p = kNan}); }, "normalize: p must be a number, got nan");
  expect_error<ValueError>([&] { normalize(x, {.epsilon = -1}); },
                           "normalize: epsilon must be finite and >= 0, got -1");
}

}  // namespace
}  // namespace tenor
