// Scans on CUDA: against CUDA's published order, bit for bit, and against the CPU's operators, on every layout.
#include <gtest/gtest.h>

#include <functional>

#include "src/core/output.h"
#include "src/cuda/scan_order.h"
#include "src/cuda/testing.h"
#include "src/ops/scan/scan_testing.h"
#include "tenor/scan.h"
#include "tenor/view.h"

namespace tenor {
namespace {

using namespace tenor::testing;
using ScanCuda = CudaTest;

Tensor numbers(const Dims& shape, DType dtype, Draw& draw) {
  return filled(shape, dtype, [&](int64_t) {
    return is_float(dtype) ? draw.normal()
                           : static_cast<double>(draw.upto(is_signed(dtype) ? 6 : 3)) - (is_signed(dtype) ? 3 : 0);
  });
}
Tensor any_view(DType dtype, Draw& draw, int64_t longest) {
  static constexpr int64_t kSizes[] = {0, 1, 2, 3, 4, 8, 17, 31, 33, 70, 130, 257};
  Dims shape;
  for (int64_t d = draw.upto(2); d >= 0; --d) shape.push_back(kSizes[draw.upto(product(shape) > 300 ? 5 : 11)]);
  if (draw.upto(4) == 0) shape = {1 + draw.upto(longest)};
  if (draw.upto(4) == 0) shape = {longest / 8 + draw.upto(longest / 8), 1 + draw.upto(40)};
  Tensor x = numbers(shape, dtype, draw);
  if (draw.coin()) x = transpose(x, 0, -1);
  if (draw.upto(3) == 0) x = slice(x, draw.upto(x.ndim() - 1), draw.upto(2), {}, 1 + draw.upto(2));
  if (draw.upto(7) == 0) {
    Dims wide = x.shape();
    wide.insert(0, 3);
    x = expand(x, wide);
  }
  return x;
}

template <class C>
Line ordered_sum(const Line& x) {
  Line out(x.size());
  cuda::ordered_scan<C>(
      static_cast<int64_t>(x.size()), 0, [&](int64_t i) { return static_cast<C>(x[static_cast<size_t>(i)]); },
      [](C a, C b) { return a + b; }, [&](int64_t i, C v) { out[static_cast<size_t>(i)] = static_cast<double>(v); });
  return out;
}
Line ordered_prod(const Line& x) {
  Line out(x.size());
  cuda::ordered_scan<double>(
      static_cast<int64_t>(x.size()), 1, [&](int64_t i) { return x[static_cast<size_t>(i)]; },
      [](double a, double b) { return a * b; }, [&](int64_t i, double v) { out[static_cast<size_t>(i)] = v; });
  return out;
}

void expect_lines(const char* name, const Tensor& x, int64_t dim, const Tensor& got,
                  const std::function<Line(const Line&)>& want, size_t step = 1) {
  ASSERT_EQ(got.shape(), x.shape());
  const auto from = lines(x, dim), to = lines(on_cpu(got), dim);
  for (size_t l = 0; l < from.size(); l += step) {
    const Line w = want(from[l]);
    for (size_t i = 0; i < w.size(); ++i)
      ASSERT_TRUE(same(to[l][i], rounded(w[i], got.dtype())))
          << name << " of " << describe(x) << " strides " << to_string(x.strides()) << " along " << dim << ", line "
          << l << " at " << i << ": " << to[l][i] << ", want " << rounded(w[i], got.dtype());
  }
}

TEST_F(ScanCuda, SumsAndProductsFollowTheOrderBitForBit) {
  Draw draw(1);
  for (int round = 0; round < 40; ++round)
    for (DType dtype : kFloats) {
      const Tensor x = any_view(dtype, draw, 9000), g = on_gpu(x);
      const int64_t dim = draw.upto(x.ndim() - 1);
      expect_lines("cumsum", x, dim, cumsum(g, dim), dtype == float64 ? ordered_sum<double> : ordered_sum<float>);
      expect_lines("cumprod", x, dim, cumprod(g, dim - x.ndim()), ordered_prod);
      if (HasFatalFailure()) return;
    }
}

TEST_F(ScanCuda, FollowsTheOrderWhereLinesAreCut) {
  Draw draw(2);
  for (const Dims& shape : {Dims{1}, Dims{1023}, Dims{1025}, Dims{8193}, Dims{300001}, Dims{3, 300005}, Dims{300005, 3},
                            Dims{70000, 20}, Dims{20, 70000}, Dims{2, 40000, 33}, Dims{4, 600000}, Dims{300, 5000},
                            Dims{5000, 300}, Dims{3400, 1040}, Dims{8, 8, 1024}})
    for (DType dtype : {float32, bfloat16, float64}) {
      if (dtype != float32 && product(shape) > 1000000) continue;
      const Tensor x = numbers(shape, dtype, draw), g = on_gpu(x);
      for (int64_t dim = 0; dim < x.ndim(); ++dim) {
        const int64_t count = x.numel() / x.shape(static_cast<int>(dim));
        expect_lines("cumsum", x, dim, cumsum(g, dim), dtype == float64 ? ordered_sum<double> : ordered_sum<float>,
                     static_cast<size_t>(1 + count / 20));
        if (HasFatalFailure()) return;
      }
    }
}

void expect_alike(const char* name, const Tensor& x, int64_t dim, const Tensor& got, const Tensor& want) {
  const double tolerance = want.dtype() == float64    ? 1e-12
                           : want.dtype() == float16  ? 1e-3
                           : want.dtype() == bfloat16 ? 8e-3
                                                      : 2e-6;
  const Tensor g = on_cpu(got);
  ASSERT_EQ(g.shape(), want.shape()) << name;
  ASSERT_EQ(g.dtype(), want.dtype()) << name;
  EXPECT_EQ(got.strides(), want.strides()) << name;
  for (int64_t i = 0; i < want.numel(); ++i) {
    const double a = get(g, offset_of(g, i)), b = get(want, offset_of(want, i));
    ASSERT_TRUE((std::isnan(a) && std::isnan(b)) || a == b ||
                (is_float(want.dtype()) && std::abs(a - b) <= tolerance * (1 + std::abs(b))))
        << name << " of " << describe(x) << " strides " << to_string(x.strides()) << " along " << dim << " at " << i
        << ": " << a << ", want " << b;
  }
}

TEST_F(ScanCuda, EveryOperatorAgreesWithTheCpu) {
  Draw draw(3);
  for (int round = 0; round < 25; ++round)
    for (DType dtype : kAll) {
      const Tensor x = any_view(dtype, draw, 6000);
      if (is_float(dtype) && x.numel() > 0 && round % 3 == 0)
        put(x, offset_of(x, draw.upto(x.numel() - 1)), draw.coin() ? kNan : draw.coin() ? kInf : -kInf);
      const Tensor g = on_gpu(x);
      const int64_t dim = draw.upto(x.ndim() - 1);
      if (!is_float(dtype))
        for (DType result : {int64, uint64, int8, float32, uint16, float64}) {
          expect_alike("cumsum", x, dim, cumsum(g, dim, {.dtype = result}), cumsum(x, dim, {.dtype = result}));
          if (!is_float(result))
            expect_alike("cumprod", x, dim, cumprod(g, dim, {.dtype = result}), cumprod(x, dim, {.dtype = result}));
        }
      else {
        for (DType result : {float64, int64})
          expect_alike("cumsum", x, dim, cumsum(g, dim, {.dtype = result}), cumsum(x, dim, {.dtype = result}));
        expect_alike("logcumsumexp", x, dim, logcumsumexp(g, dim), logcumsumexp(x, dim));
      }
      const ExtremeScanResult high = cummax(g, dim), low = cummin(g, dim), h = cummax(x, dim), l = cummin(x, dim);
      expect_alike("cummax", x, dim, high.values, h.values);
      expect_alike("cummax indices", x, dim, high.indices, h.indices);
      expect_alike("cummin", x, dim, low.values, l.values);
      expect_alike("cummin indices", x, dim, low.indices, l.indices);
      if (HasFatalFailure()) return;
    }
}

TEST_F(ScanCuda, ExtremesAndLogsOfLongLines) {
  Draw draw(4);
  for (const Dims& shape : {Dims{300001}, Dims{40000, 5}, Dims{5, 40000}})
    for (DType dtype : {float32, bfloat16, int32, uint8}) {
      const Tensor x = numbers(shape, dtype, draw), g = on_gpu(x);
      if (is_float(dtype)) put(x, x.numel() / 2, kNan), core::copy_into(x.to(kGpu), g);
      for (int64_t dim = 0; dim < x.ndim(); ++dim) {
        expect_alike("cummax indices", x, dim, cummax(g, dim).indices, cummax(x, dim).indices);
        if (dtype == float32) expect_alike("logcumsumexp", x, dim, logcumsumexp(g, dim), logcumsumexp(x, dim));
        if (dtype == uint8) expect_alike("cumsum", x, dim, cumsum(g, dim), cumsum(x, dim));
      }
      if (HasFatalFailure()) return;
    }
}

TEST_F(ScanCuda, ALineAloneHasTheBitsItHasInABatch) {
  Draw draw(5);
  for (DType dtype : kFloats)
    for (int64_t length : {3, 40, 1025, 5000, 70001}) {
      const Tensor x = on_gpu(numbers({21, length}, dtype, draw)), t = on_gpu(on_cpu(transpose(x, 0, 1)).contiguous());
      for (const auto& op :
           {std::function<Tensor(const Tensor&, int64_t)>([](const Tensor&v, int64_t d) { return cumsum(v, d); }),
            std::function<Tensor(const Tensor&, int64_t)>(
                [](const Tensor&v, int64_t d) { return logcumsumexp(v, d); })}) {
        const auto rows = lines(on_cpu(op(x, 1)), 1), columns = lines(on_cpu(op(t, 0)), 0),
                   again = lines(on_cpu(op(x, 1)), 1);
        EXPECT_EQ(rows, again);
        for (int64_t i : {0, 7, 20}) {
          const Line alone = lines(on_cpu(op(select(x, 0, i), 0)), 0)[0];
          EXPECT_EQ(rows[static_cast<size_t>(i)], alone) << length;
          EXPECT_EQ(columns[static_cast<size_t>(i)], alone) << length;
        }
      }
    }
}

TEST_F(ScanCuda, AccuracyInfinitiesAndOut) {
  const auto line = [](const Tensor& x) { return lines(on_cpu(x), 0)[0]; };
  EXPECT_NEAR(line(cumsum(on_gpu(filled({1000000}, float32, [](int64_t) { return 0.1; })), 0)).back(), 1e5, 1);
  EXPECT_EQ(line(cumsum(on_gpu(filled({512}, bfloat16, [](int64_t) { return 1; })), 0)).back(), 512);
  EXPECT_EQ(line(logcumsumexp(on_gpu(list({-kInf, -kInf, 0, -kInf})), 0)), (Line{-kInf, -kInf, 0, 0}));
  EXPECT_EQ(line(logcumsumexp(on_gpu(list({1, kInf, 2, -kInf})), 0)), (Line{1, kInf, kInf, kInf}));
  EXPECT_TRUE(std::isnan(line(logcumsumexp(on_gpu(list({kInf, kNan})), 0))[1]));
  EXPECT_EQ(line(cummax(on_gpu(list({1, 3, kNan, 5, 3})), 0).indices), (Line{0, 1, 2, 2, 2}));
  // What a block multiplies to would overflow where the line does not.
  EXPECT_EQ(line(cumprod(on_gpu(list({0x1p-120, 1, 1, 1, 0x1p100, 0x1p100, 0x1p-100, 1})), 0)).back(), 0x1p-20);
  EXPECT_EQ(cumsum(Tensor::empty({0, 3}, float32, kGpu), 0).shape(), (Dims{0, 3}));
  EXPECT_EQ(values(on_cpu(cumsum(select(on_gpu(list({4})), 0, 0), -1))), (Line{4}));
  const Tensor y = on_gpu(list({1, 2, 3}));
  EXPECT_EQ(cumsum(y, 0, {.out = y}).raw(), y.raw());
  EXPECT_EQ(line(y), (Line{1, 3, 6}));
  const Tensor memory = on_gpu(filled({6}, float32, [](int64_t) { return kNan; }));
  cumprod(on_gpu(list({1, 2, 3})), 0, {.out = slice(memory, 0, 0, {}, 2)});
  EXPECT_EQ(line(memory)[4], 6);
  EXPECT_TRUE(std::isnan(line(memory)[1]));
  const Tensor square = on_gpu(filled({3, 3}, float32, [](int64_t i) { return (i * 5) % 7; }));
  const ExtremeScanResult r = cummin(square, 1, {.out_indices = transpose(Tensor::empty({3, 3}, int64, kGpu), 0, 1)});
  EXPECT_EQ(lines(on_cpu(r.indices), 1), lines(cummin(on_cpu(square), 1).indices, 1));
}

TEST_F(ScanCuda, OffsetsBeyondTwoToThe31) {
  const int64_t far = (int64_t{1} << 31) + 4099;
  const Tensor x = Tensor::empty({far}, uint8, kGpu);
  core::copy_into(expand(on_gpu(list({1}, uint8)), {far}), x);
  const Tensor sums = cumsum(x, 0);
  EXPECT_EQ(values(on_cpu(narrow(sums, 0, far - 2, 2))),
            (Line{static_cast<double>(far - 1), static_cast<double>(far)}));
}

}  // namespace
}  // namespace tenor
