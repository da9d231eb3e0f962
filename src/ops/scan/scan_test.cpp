// Scans against the published order, bit for bit, and against the float64 reference, on every layout.
#include "tenor/scan.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <random>

#include "src/core/testing.h"
#include "src/ops/scan/scan_kernels.h"
#include "src/ops/scan/scan_reference.h"
#include "src/ops/scan/scan_testing.h"
#include "tenor/view.h"

namespace tenor {
namespace {

using Random = std::mt19937_64;
using namespace tenor::testing;

int64_t pick(Random& random, int64_t low, int64_t high) {
  return std::uniform_int_distribution<int64_t>(low, high)(random);
}

Tensor numbers(const Dims& shape, DType dtype, Random& random) {
  std::normal_distribution<double> normal;
  return filled(shape, dtype, [&](int64_t) {
    return is_float(dtype) ? normal(random) : static_cast<double>(pick(random, is_signed(dtype) ? -3 : 0, 3));
  });
}
Tensor any_layout(DType dtype, Random& random, int64_t longest) {
  static constexpr int64_t kSizes[] = {0, 1, 2, 3, 5, 8, 17, 31, 33, 70, 130};
  Dims shape;
  const int64_t ndim = pick(random, 1, 3);
  for (int64_t d = 0; d < ndim; ++d)
    shape.push_back(kSizes[pick(random, d == 0 ? 0 : 1, product(shape) > 100 ? 5 : 10)]);
  if (pick(random, 0, 4) == 0) shape = {pick(random, 1, longest)};
  if (pick(random, 0, 4) == 0) shape = {pick(random, longest / 8, longest / 4), pick(random, 1, 9)};
  Tensor x = numbers(shape, dtype, random);
  if (pick(random, 0, 1)) x = transpose(x, 0, -1);
  if (pick(random, 0, 3) == 0) x = slice(x, pick(random, 0, x.ndim() - 1), pick(random, 0, 2), {}, pick(random, 1, 3));
  if (pick(random, 0, 7) == 0) {
    Dims wide = x.shape();
    wide.insert(0, 3);
    x = expand(x, wide);
  }
  return x;
}

/// Running sums of a group, by halves.
template <class C>
std::vector<C> ordered_group(const std::vector<C>& x) {
  if (x.size() == 1) return x;
  const auto middle = x.begin() + static_cast<int64_t>(x.size() / 2);
  std::vector<C> sums = ordered_group(std::vector<C>(x.begin(), middle));
  const C half = sums.back();
  for (C v : ordered_group(std::vector<C>(middle, x.end()))) sums.push_back(half + v);
  return sums;
}

/// The order of scan_kernels.h, one group at a time.
template <class C>
Line ordered_sum(const Line& x) {
  Line out;
  C before = 0, local = 0;
  for (size_t i = 0; i < x.size(); i += scan::kScanGroup) {
    if (i % scan::kScanBlock == 0) before = before + local, local = 0;
    std::vector<C> group(scan::kScanGroup, C(0));
    for (size_t k = 0; k < group.size() && i + k < x.size(); ++k) group[k] = static_cast<C>(x[i + k]);
    const std::vector<C> sums = ordered_group(group);
    for (size_t k = 0; k < group.size() && i + k < x.size(); ++k)
      out.push_back(static_cast<double>(static_cast<C>(before + (local + sums[k]))));
    local = local + sums.back();
  }
  return out;
}
template <class C>
Line ordered_prod(const Line& x) {
  Line out;
  C product = 1;
  for (double v : x) out.push_back(static_cast<double>(product = product * static_cast<C>(v)));
  return out;
}

void expect_lines(const char* name, const Tensor& x, int64_t dim, const Tensor& got,
                  const std::function<Line(const Line&)>& want, double tolerance = 0) {
  const auto from = lines(x, dim), to = lines(got, dim);
  ASSERT_EQ(got.shape(), x.shape());
  for (size_t l = 0; l < from.size(); ++l) {
    const Line w = want(from[l]);
    for (size_t i = 0; i < w.size(); ++i) {
      const double r = rounded(w[i], got.dtype()), g = to[l][i];
      ASSERT_TRUE(tolerance == 0 ? same(g, r) : same(g, r) || std::abs(g - r) <= tolerance * (1 + std::abs(r)))
          << name << " of " << describe(x) << " strides " << to_string(x.strides()) << " along " << dim << ", line "
          << l << " at " << i << ": " << g << ", want " << r;
    }
  }
}

TEST(Scan, SumsAndProductsFollowTheOrderBitForBit) {
  Random random(1);
  for (int round = 0; round < 30; ++round)
    for (DType dtype : kFloats) {
      const Tensor x = any_layout(dtype, random, 9000);
      const int64_t dim = pick(random, -x.ndim(), x.ndim() - 1);
      expect_lines("cumsum", x, dim, cumsum(x, dim), dtype == float64 ? ordered_sum<double> : ordered_sum<float>);
      expect_lines("cumprod", x, dim, cumprod(x, dim), dtype == float64 ? ordered_prod<double> : ordered_prod<float>);
      if (HasFatalFailure()) return;
    }
}

TEST(Scan, OneLongLineAndFewLines) {
  Random random(2);
  const int before = num_threads();
  set_num_threads(4);
  for (DType dtype : {float32, bfloat16, float64, int32})
    for (const Dims& shape : {Dims{100000}, Dims{2, 40000}, Dims{40000, 2}, Dims{16384}}) {
      const Tensor x = numbers(shape, dtype, random);
      for (const Tensor& view : {x, slice(x, -1, 0, {}, x.shape(-1) > 2 ? 2 : 1)})
        for (int64_t dim = 0; dim < x.ndim(); ++dim)
          expect_lines("cumsum", view, dim, cumsum(view, dim),
                       dtype == float64 || dtype == int32 ? ordered_sum<double> : ordered_sum<float>);
    }
  set_num_threads(before);
}

TEST(Scan, IntegersWrapAndExtremesKeepTheirPlaces) {
  Random random(3);
  for (int round = 0; round < 15; ++round)
    for (DType dtype : kAll) {
      Tensor x = any_layout(dtype, random, 3000);
      const int64_t dim = pick(random, 0, x.ndim() - 1);
      if (is_float(dtype) && x.numel() > 0 && round % 3 == 0)
        put(x, offset_of(x, pick(random, 0, x.numel() - 1)), kNan);
      if (!is_float(dtype)) expect_lines("cumsum", x, dim, cumsum(x, dim), scan::reference_sum);
      if (!is_float(dtype))
        expect_lines("cumprod", x, dim, cumprod(x, dim, {.dtype = int8}), [](const Line& line) {
          Line out;
          int8_t product = 1;
          for (double v : line) out.push_back(product = static_cast<int8_t>(product * static_cast<int>(v)));
          return out;
        });
      for (bool largest : {true, false}) {
        const ExtremeScanResult r = largest ? cummax(x, dim) : cummin(x, dim);
        const auto from = lines(x, dim), values = lines(r.values, dim), places = lines(r.indices, dim);
        for (size_t l = 0; l < from.size(); ++l) {
          ASSERT_EQ(places[l], scan::reference_places(from[l], largest)) << describe(x) << " along " << dim;
          for (size_t i = 0; i < from[l].size(); ++i)
            ASSERT_TRUE(same(values[l][i], from[l][static_cast<size_t>(places[l][i])]));
        }
      }
      if (HasFatalFailure()) return;
    }
  const ExtremeScanResult r = cummax(list({1, 3, kNan, 5, 3}), 0);
  EXPECT_EQ(lines(r.indices, 0)[0], (Line{0, 1, 2, 2, 2}));
}

TEST(Scan, LogOfSumsAgreesWithFloat64) {
  Random random(4);
  for (int round = 0; round < 20; ++round)
    for (DType dtype : kFloats) {
      Tensor x = any_layout(dtype, random, 400);
      for (int64_t i = 0; i < x.numel() && round % 2; i += 7)
        put(x, offset_of(x, i), i % 2 ? -kInf : 30.0 * static_cast<double>(i % 50));
      const int64_t dim = pick(random, 0, x.ndim() - 1);
      const double tolerance = dtype == float64 ? 1e-12 : dtype == float32 ? 1e-6 : dtype == float16 ? 1e-3 : 8e-3;
      expect_lines("logcumsumexp", x, dim, logcumsumexp(x, dim), scan::reference_logsumexp, tolerance);
      if (HasFatalFailure()) return;
    }
  const auto values = [](std::initializer_list<double> x) { return lines(logcumsumexp(list(x), 0), 0)[0]; };
  EXPECT_EQ(values({-kInf, -kInf, 0, -kInf}), (Line{-kInf, -kInf, 0, 0}));
  EXPECT_EQ(values({1, kInf, 2, -kInf}), (Line{1, kInf, kInf, kInf}));
  EXPECT_TRUE(std::isnan(values({1, kNan, 2})[2]) && std::isnan(values({kInf, kNan})[1]) &&
              std::isnan(values({-kInf, kNan, kInf})[2]));
  EXPECT_EQ(values({1000, 1000})[1], rounded(1000 + std::log(2), float32));
}

TEST(Scan, ThreadsDoNotShowInTheBits) {
  Random random(5);
  const int before = num_threads();
  for (const Dims& shape : {Dims{200001}, Dims{3, 50001}, Dims{5000, 6}, Dims{300, 300}}) {
    const Tensor x = numbers(shape, float32, random);
    const auto run = [&](int threads) {
      set_num_threads(threads);
      return std::vector<Tensor>{cumsum(x, 0), cumsum(x, -1), cumprod(x, -1), logcumsumexp(x, 0),
                                 cummax(x, -1).indices};
    };
    const auto one = run(1), seven = run(7);
    for (size_t i = 0; i < one.size(); ++i)
      EXPECT_EQ(
          std::memcmp(one[i].raw(), seven[i].raw(), static_cast<size_t>(one[i].numel()) * item_size(one[i].dtype())), 0)
          << i << to_string(shape);
  }
  set_num_threads(before);
}

TEST(Scan, ALineAloneHasTheBitsItHasInABatch) {
  Random random(6);
  for (DType dtype : kFloats)
    for (int64_t length : {3, 40, 1025, 5000}) {
      const Tensor x = numbers({21, length}, dtype, random), t = transpose(x, 0, 1).contiguous();
      for (const auto& op :
           {std::function<Tensor(const Tensor&, int64_t)>([](const Tensor&v, int64_t d) { return cumsum(v, d); }),
            std::function<Tensor(const Tensor&, int64_t)>(
                [](const Tensor&v, int64_t d) { return logcumsumexp(v, d); })}) {
        const auto rows = lines(op(x, 1), 1), columns = lines(op(t, 0), 0);
        for (int64_t i : {0, 7, 20}) {
          const Line alone = lines(op(select(x, 0, i), 0), 0)[0];
          EXPECT_EQ(rows[static_cast<size_t>(i)], alone) << length;
          EXPECT_EQ(columns[static_cast<size_t>(i)], alone) << length;
        }
      }
    }
}

TEST(Scan, DtypesAndAccuracy) {
  EXPECT_EQ(lines(cumsum(list({100, 100, 50}, int8), 0), 0)[0], (Line{100, 200, 250}));
  EXPECT_EQ(cumsum(list({1}, uint8), 0).dtype(), uint64);
  EXPECT_EQ(cumprod(list({1}, boolean), 0).dtype(), int64);
  EXPECT_EQ(lines(cumsum(list({1.9, 2.9}), 0, {.dtype = int64}), 0)[0], (Line{1, 3}));
  EXPECT_EQ(lines(cumsum(list({300, -1e30}), 0, {.dtype = int8}), 0)[0], (Line{127, -1}));
  EXPECT_EQ(lines(cumprod(list({-1, 3}), 0, {.dtype = uint8}), 0)[0], (Line{0, 0}));
  EXPECT_EQ(lines(cumsum(filled({512}, bfloat16, [](int64_t) { return 1; }), 0), 0)[0].back(), 512);
  EXPECT_NEAR(lines(cumsum(filled({1000000}, float32, [](int64_t) { return 0.1; }), 0), 0)[0].back(), 1e5, 1e5 * 1e-4);
  EXPECT_EQ(get(cumsum(select(list({4}), 0, 0), -1), 0), 4);
  EXPECT_EQ(cumsum(Tensor::empty({0, 3}, float32), 0).shape(), (Dims{0, 3}));
}

TEST(Scan, ErrorsAndOut) {
  const Tensor x = list({1, 2, 3});
  expect_error<IndexError>([&] { cumsum(x, 1); }, "cumsum: dim 1 is out of range for 1 dims (expected -1 to 0)");
  expect_error<DTypeError>([&] { cumsum(x, 0, {.dtype = boolean}); },
                           "cumsum: dtype must be an integer or a float of 16 bits or more, got bool");
  expect_error<DTypeError>([&] { cummax(Tensor::empty({2}, float8_e4m3fn), 0); },
                           "cummax: x must not be an 8-bit float, got float8_e4m3fn; convert it with to(float32)");
  expect_error<DTypeError>([&] { logcumsumexp(list({1}, int32), 0); },
                           "logcumsumexp: x must be float16, bfloat16, float32 or float64, got int32");
  expect_error<ShapeError>([&] { cumsum(x, 0, {.out = Tensor::empty({2}, float32)}); },
                           "cumsum: out must have shape (3,), got (2,)");
  // In place, and into every other element of poisoned memory.
  const Tensor y = x.clone();
  EXPECT_EQ(cumsum(y, 0, {.out = y}).raw(), y.raw());
  EXPECT_EQ(lines(y, 0)[0], (Line{1, 3, 6}));
  const Tensor memory = filled({6}, float32, [](int64_t) { return kNan; });
  cumprod(x, 0, {.out = slice(memory, 0, 0, {}, 2)});
  EXPECT_EQ(get(memory, 4), 6);
  EXPECT_TRUE(std::isnan(get(memory, 1)));
  const Tensor square = numbers({3, 3}, float32, *std::make_unique<Random>(1));
  const ExtremeScanResult r = cummin(square, 1, {.out_indices = transpose(Tensor::empty({3, 3}, int64), 0, 1)});
  EXPECT_EQ(lines(r.indices, 1), lines(cummin(square, 1).indices, 1));
}

}  // namespace
}  // namespace tenor
