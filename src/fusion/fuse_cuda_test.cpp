// fuse() on CUDA: the kernels that are compiled at run time give the bits of the function as it is written.
#include <bit>
#include <tuple>

#include "src/cuda/capture_testing.h"
#include "src/cuda/nvrtc.h"
#include "tenor/fuse.h"
#include "tenor/tenor.h"

namespace tenor {
namespace {

using testing::Draw;
using testing::kGpu;

class FuseCudaTest : public testing::CudaTest {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    if (!IsSkipped() && !cuda::why_no_nvrtc().empty()) GTEST_SKIP() << cuda::why_no_nvrtc();
  }
};

constexpr DType kTried[] = {float32, bfloat16, float16, float64};

Tensor random(const Dims& shape, DType dtype, uint32_t seed) { return testing::on_gpu(Draw(seed).dense(shape, dtype)); }
/// One kernel, and the function's own bits.
template <class Fn, class... X>
void expect_one_kernel(const char* what, Fn fn, const X&... x) {
  const auto fused = fuse(fn);
  EXPECT_EQ(fused.function().kernels({x...}), 1) << what << ": " << fused.function().why_not({x...});
  EXPECT_TRUE(testing::same_bits(testing::on_cpu(fused(x...)), testing::on_cpu(fn(x...))))
      << what << (std::string() + ... + (" of " + describe(x)));
}

const auto softmax_of = [](Tensor x) {
  const Tensor e = exp(sub(x, amax(x, {.dim = Dims{-1}, .keepdim = true})));
  return div(e, sum(e, {.dim = Dims{-1}, .keepdim = true}));
};
const auto rms_norm_of = [](Tensor x, Tensor gamma) {
  const Tensor wide = x.to(float32);
  const Tensor scale = rsqrt(add(mean(mul(wide, wide), {.dim = Dims{-1}, .keepdim = true}), 1e-6));
  return mul(mul(wide, scale).to(x.dtype()), gamma);
};

TEST_F(FuseCudaTest, ChainsAreOneKernel) {
  const auto chain = [](Tensor x, Tensor y) {
    const Tensor a = mul(tanh(add(mul(x, 1.5), y)), sigmoid(x));
    return relu(sub(a, mul(mul(x, 0.25), x)));
  };
  for (const DType dtype : kTried) {
    expect_one_kernel("rows and a row", chain, random({300, 512}, dtype, 1), random({512}, dtype, 2));
    expect_one_kernel("an odd length", chain, random({77, 13}, dtype, 3), random({77, 1}, dtype, 4));
    const Tensor wide = random({64, 200}, dtype, 5);
    expect_one_kernel("views", chain, narrow(wide, 1, 3, 100), narrow(wide, 1, 100, 100));
  }
}

/// More arrays than a kernel takes.
TEST_F(FuseCudaTest, AHundredAndTwentyInputs) {
  const auto fn = [](const std::vector<Tensor>& in) {
    Tensor sum = in[0];
    for (size_t i = 1; i < in.size(); ++i) sum = add(sum, mul(in[i], 1.0 + 0.125 * static_cast<double>(i % 5)));
    return std::vector{relu(sum)};
  };
  std::vector<Tensor> in;
  for (uint32_t i = 0; i < 120; ++i) in.push_back(random({37, 41}, bfloat16, 100 + i));
  const FusedFunction fused(fn);
  EXPECT_EQ(fused.why_not(in), "");
  EXPECT_GE(fused.kernels(in), 5);
  EXPECT_TRUE(testing::same_bits(testing::on_cpu(fused(in)[0]), testing::on_cpu(fn(in)[0])));
}

TEST_F(FuseCudaTest, RowsAreOneKernel) {
  for (const DType dtype : {float32, bfloat16, float16})
    for (const Dims& shape : {Dims{100, 64}, Dims{70, 1000}, Dims{5, 20, 4096}, Dims{65, 40000}, Dims{333, 7}}) {
      expect_one_kernel("softmax", softmax_of, random(shape, dtype, 6));
      expect_one_kernel("rms_norm", rms_norm_of, random(shape, dtype, 7), random({shape.back()}, dtype, 8));
    }
}

const auto layer_norm_of = [](Tensor x) {
  const Tensor centre = mean(x, {.dim = Dims{-1}, .keepdim = true}),
               spread = var(x, {.dim = Dims{-1}, .keepdim = true, .correction = 0});
  return mul(sub(x, centre), rsqrt(add(spread, 1e-5)));
};
const auto log_softmax_of = [](Tensor x) { return sub(x, logsumexp(x, {.dim = Dims{-1}, .keepdim = true})); };

template <class Fn>
void expect_rows_are_one_kernel(const char* what, Fn fn) {
  for (const DType dtype : {float32, bfloat16})
    for (const Dims& shape : {Dims{300, 5}, Dims{70, 1000}, Dims{500, 9001}, Dims{65, 40000}})
      expect_one_kernel(what, fn, random(shape, dtype, 6));
}
TEST_F(FuseCudaTest, VariancesAreOneKernel) { expect_rows_are_one_kernel("layer_norm", layer_norm_of); }
TEST_F(FuseCudaTest, LogSumsAreOneKernel) { expect_rows_are_one_kernel("log_softmax", log_softmax_of); }
TEST_F(FuseCudaTest, DeviationsAreOneKernel) {
  const auto spread = [](Tensor x) {
    const Tensor twice = mul(sub(x, 1), 2.0);
    return mul(twice, tenor::std(twice, {.dim = Dims{-1}, .keepdim = true}));
  };
  expect_rows_are_one_kernel("std", spread);
  expect_one_kernel("std", spread, random({100, 300}, float64, 9));
}

template <class Fn>
void expect_columns_are_one_kernel(const char* what, Fn fn) {
  for (const DType dtype : {float32, bfloat16})
    for (const Dims& shape : {Dims{300, 200}, Dims{257, 17}, Dims{1025, 130}, Dims{600, 4096}})
      expect_one_kernel(what, fn, random(shape, dtype, 10));
}
const auto over_columns = [](Tensor x) { return div(x, sum(x, {.dim = Dims{0}, .keepdim = true})); };

TEST_F(FuseCudaTest, ColumnSumsAreOneKernel) {
  expect_columns_are_one_kernel("x / x.sum(0)", over_columns);
  expect_columns_are_one_kernel("products", [](Tensor x) { return relu(sum(mul(x, add(x, 1)), {.dim = Dims{0}})); });
}
TEST_F(FuseCudaTest, ColumnMeansAreOneKernel) {
  expect_columns_are_one_kernel("around the mean", [](Tensor x) {
    const Tensor e = exp(mul(x, 0.5));
    return relu(sub(e, mean(e, {.dim = Dims{0}, .keepdim = true})));
  });
}
TEST_F(FuseCudaTest, ColumnsOfTwoPassesAreOneKernel) {
  expect_columns_are_one_kernel("softmax", [](Tensor x) {
    const Tensor e = exp(sub(x, amax(x, {.dim = Dims{0}, .keepdim = true})));
    return div(e, sum(e, {.dim = Dims{0}, .keepdim = true}));
  });
}
TEST_F(FuseCudaTest, ColumnDeviationsAreOneKernel) {
  expect_columns_are_one_kernel("std, logsumexp", [](Tensor x) {
    return sub(var(mul(x, 2.0), {.dim = Dims{0}, .keepdim = true}),
               logsumexp(mul(x, 2.0), {.dim = Dims{0}, .keepdim = true}));
  });
}
TEST_F(FuseCudaTest, ColumnsOfSeveralDimsAreOneKernel) {
  const auto inner = [](Tensor x, Tensor b) {
    const Tensor y = mul(x, b);
    return sub(y, amax(y, {.dim = Dims{1}, .keepdim = true}));
  };
  expect_one_kernel("an inner dim", inner, random({7, 50, 96}, bfloat16, 15), random({96}, bfloat16, 16));
  const auto channels = [](Tensor x) { return sub(x, mean(x, {.dim = Dims{0, 1, 2}, .keepdim = true})); };
  expect_one_kernel("channels last", channels, random({6, 9, 11, 32}, float32, 17));
  const auto planes = [](Tensor x) { return sub(x, mean(x, {.dim = Dims{0, 2}, .keepdim = true})); };
  const Tensor x = random({40, 12, 30}, float32, 18);
  EXPECT_TRUE(testing::same_bits(testing::on_cpu(fuse(planes)(x)), testing::on_cpu(planes(x))));
}

/// Floats of random bits: with exponents of `exponents` values about that of 1, and now and then 0, -0, the least and
/// the largest numbers, infinity and NaN.
Tensor random_bits(const Dims& shape, int exponents, uint32_t seed) {
  constexpr uint32_t kSpecial[] = {0, 1, 0x007fffff, 0x00800000, 0x7f7fffff, 0x7f800000, 0x7fc00000, 0x3f800000};
  Draw draw(seed);
  const Tensor x = Tensor::empty(shape, float32);
  for (int64_t i = 0; i < x.numel(); ++i) {
    const auto low = static_cast<uint32_t>(draw.upto((1 << 23) - 1)), sign = static_cast<uint32_t>(draw.upto(1)) << 31;
    const auto exponent = static_cast<uint32_t>(127 - exponents / 2 + draw.upto(exponents - 1));
    const uint32_t bits = draw.upto(500) ? exponent << 23 | low : kSpecial[draw.upto(std::size(kSpecial) - 1)];
    x.data<float>()[i] = std::bit_cast<float>(sign | bits);
  }
  return x;
}

// Quotients by one number for the whole row come from its reciprocal.
TEST_F(FuseCudaTest, QuotientsOfFloatsAreExact) {
  const auto shares = [](Tensor x, Tensor by) {  // where() brings both arrays together: they are rows of one kernel
    return div(where(eq(by, by), x, x), amax(by, {.dim = Dims{-1}, .keepdim = true}));
  };
  for (const auto& [exponents, rows, n] :
       {std::tuple{2, 4000, 1024}, {40, 4000, 1024}, {254, 4000, 1024}, {12, 900, 77}}) {
    const auto seed = static_cast<uint32_t>(exponents);
    const Tensor x = testing::on_gpu(random_bits({rows, n}, exponents, seed)),
                 by = testing::on_gpu(expand(random_bits({rows, 1}, exponents, seed + 1), {rows, n}).contiguous());
    expect_one_kernel("x / number", shares, x, by);
  }
}

TEST_F(FuseCudaTest, WhatIsNoKernelHereRunsItsOperators) {
  const Tensor x = random({100000, 8}, float32, 9);  // few columns, which are split
  EXPECT_EQ(fuse(over_columns).function().kernels({x}), 0);
  EXPECT_TRUE(testing::same_bits(testing::on_cpu(fuse(over_columns)(x)), testing::on_cpu(over_columns(x))));
}

Tensor entries(const Dims& shape, int64_t size, DType dtype, uint32_t seed) {
  Draw draw(seed);
  const Tensor x = Tensor::empty(shape, int64);
  for (int64_t i = 0; i < x.numel(); ++i) x.data<int64_t>()[i] = draw.upto(2 * size - 1) - size;
  return testing::on_gpu(x.to(dtype));
}

TEST_F(FuseCudaTest, GathersFeedKernels) {
  const auto embedded = [](Tensor ids, Tensor weight, Tensor bias) {
    return relu(add(mul(embedding(ids, weight), 0.5), bias));
  };
  const auto normed = [](Tensor ids, Tensor weight, Tensor gamma) {
    return rms_norm_of(embedding(ids, weight), gamma);
  };
  for (const DType dtype : {float32, bfloat16})
    for (const DType index : {int64, int32})
      for (const int64_t width : {4096, 7}) {
        const Tensor weight = random({50, width}, dtype, 20), row = random({width}, dtype, 21);
        expect_one_kernel("embedding", embedded, entries({30, 4}, 50, index, 22), weight, row);
        expect_one_kernel("embedding and norm", normed, entries({100}, 50, index, 23), weight, row);
      }
  const Tensor x = random({40, 32}, float32, 24), rows = entries({24}, 40, int64, 25);
  expect_one_kernel(
      "columns", [](Tensor x, Tensor i) { return add(exp(index_select(x, 1, i)), 1); }, x,
      entries({16}, 32, int32, 26));
  expect_one_kernel(
      "gather", [](Tensor x, Tensor i) { return mul(gather(x, 1, i), 2).to(float16); }, x,
      entries({40, 16}, 32, int64, 27));
  expect_one_kernel(
      "gather along rows", [](Tensor x, Tensor i) { return sub(gather(x, 0, i), 2); }, x,
      entries({6, 32}, 40, int32, 28));
  expect_one_kernel(
      "rows of entries",
      [](Tensor x, Tensor i) {
        const Tensor e = gather(x, 1, i);
        return div(e, sum(e, {.dim = Dims{-1}, .keepdim = true}));
      },
      x, entries({40, 24}, 32, int64, 29));
  expect_one_kernel(
      "entries along an outer dim of a row",
      [](Tensor x, Tensor i) {
        return sum(index_select(x, 1, i), {.dim = Dims{1, 2}});
      },
      random({100, 30, 64}, bfloat16, 30), entries({20}, 30, int32, 31));
  expect_one_kernel(
      "a part", [](Tensor x, Tensor i) { return abs(narrow(index_select(x, 0, i), 0, 3, 8)); }, x, rows);
}

TEST_F(FuseCudaTest, BadEntriesOfGathersAreReported) {
  const auto fn = [](Tensor x, Tensor i) { return add(narrow(index_select(x, 0, i), 0, 1, 3), 1); };
  const Tensor x = random({40, 64}, float32, 30), host = Tensor::empty({4}, int64);
  for (int64_t k = 0; k < 4; ++k) host.data<int64_t>()[k] = k == 2 ? 40 : k;
  const Tensor i = testing::on_gpu(host);
  const auto fused = fuse(fn);
  EXPECT_EQ(fused.function().kernels({x, i}), 1);
  const auto error_of = [&](auto&& call) -> std::string {
    try {
      call(x, i).to(kCpu);
    } catch (const IndexError& e) {
      return e.what();
    }
    return "no IndexError";
  };
  const std::string want = error_of(fn);
  EXPECT_NE(want, "no IndexError");
  EXPECT_EQ(error_of(fused), want);
}

TEST_F(FuseCudaTest, ResultsWithoutDims) {
  const auto total = [](Tensor x) { return mul(add(x, 1), sub(x, 2)); };
  expect_one_kernel("one element", total, random({}, float32, 31));
  const auto parts = [](Tensor x, Tensor s) { return std::vector{mul(x, s), add(mul(s, 2), 1)}; };
  const FusedFunction fused([&](const std::vector<Tensor>& in) { return parts(in[0], in[1]); });
  const Tensor x = random({20, 30}, float32, 32), s = random({}, float32, 33);
  const std::vector<Tensor> got = fused({x, s}), want = parts(x, s);
  for (size_t k = 0; k < 2; ++k) EXPECT_TRUE(testing::same_bits(testing::on_cpu(got[k]), testing::on_cpu(want[k])));
}

TEST_F(FuseCudaTest, JoinsAreStoredByTheKernelOfTheirPieces) {
  const auto rope = [](Tensor x, Tensor c, Tensor s) {
    const int64_t half = x.shape(-1) / 2;
    const Tensor a = narrow(x, -1, 0, half), b = narrow(x, -1, half, half);
    return cat({sub(mul(a, c), mul(b, s)), add(mul(a, s), mul(b, c))}, -1);
  };
  for (const int64_t head : {128, 36})
    expect_one_kernel("rope", rope, random({50, 4, head}, bfloat16, 35), random({50, 1, head / 2}, bfloat16, 36),
                      random({50, 1, head / 2}, bfloat16, 37));
  expect_one_kernel(
      "stack",
      [](Tensor x) {
        return stack({exp(x), neg(x)}, -1);
      },
      random({30, 40}, float32, 38));
}

TEST_F(FuseCudaTest, ThreadBlocksShareLongRows) {
  const auto error = [](Tensor x, Tensor y) {
    const Tensor d = sub(x, y);
    return sqrt(mean(mul(d, d)));
  };
  const auto extremes = [](Tensor x) { return sub(amax(x, {.dim = Dims{-1}}), amin(mul(x, 2), {.dim = Dims{-1}})); };
  const auto sums = [](Tensor x) { return add(sum(exp(x), {.dim = Dims{-1}, .keepdim = true}), 1); };
  for (const DType dtype : {float32, bfloat16}) {
    for (const Dims& shape : {Dims{1024, 1024}, Dims{1000, 1001}, Dims{16385}})
      expect_one_kernel("mean square", error, random(shape, dtype, 40), random(shape, dtype, 41));
    expect_one_kernel("extremes", extremes, random({3, 5, 100001}, dtype, 42));
  }
  const Tensor rows = Tensor::empty({70, 600000}, bfloat16, kGpu);
  copy_(rows, random({600000}, bfloat16, 43));
  expect_one_kernel("sums of rows", sums, rows);
}

TEST_F(FuseCudaTest, RowsOfOneValueAreWhole) {
  const auto fn = [](Tensor x) {
    const Tensor total = sum(x, {.dim = Dims{-1}, .keepdim = true});
    return std::vector{mul(zeros_like(x), 2), add(mul(zeros_like(x), x), total), expand(total, x.shape()).contiguous()};
  };
  const FusedFunction fused([&](const std::vector<Tensor>& in) { return fn(in[0]); });
  for (const Dims& shape : {Dims{70, 17}, Dims{100, 4096}, Dims{64}}) {
    const Tensor x = random(shape, float32, 34);
    const std::vector<Tensor> got = fused({x}), want = fn(x);
    for (size_t k = 0; k < want.size(); ++k)
      EXPECT_TRUE(testing::same_bits(testing::on_cpu(got[k]), testing::on_cpu(want[k]))) << k << to_string(shape);
  }
}

TEST_F(FuseCudaTest, WritesToInputsTakeEffect) {
  const auto step = [](Tensor x, Tensor y) {
    add_(x, mul(y, 0.5));
    tanh_(x);
    return mul(x, y);
  };
  const auto fused = fuse(step);
  const Tensor x = random({40, 50}, bfloat16, 10), y = random({40, 50}, bfloat16, 11), a = x.clone(), b = x.clone();
  EXPECT_TRUE(testing::same_bits(testing::on_cpu(fused(a, y)), testing::on_cpu(step(b, y))));
  EXPECT_TRUE(testing::same_bits(testing::on_cpu(a), testing::on_cpu(b)));
}

TEST_F(FuseCudaTest, AWriteToAPartLeavesTheRest) {
  for (int64_t length : {0, 1, 5, 6}) {
    const auto part = [&](Tensor x) {
      const Tensor y = sub(x, 2), read = sum(y, {.dim = Dims{1}});
      fill_(narrow(y, 0, 6 - length, length), 7);
      return std::vector{read, y};
    };
    const Tensor x = random({6, 40}, float32, 12);
    const auto results = fuse(part)(x), want = part(x);
    for (size_t i = 0; i < want.size(); ++i)
      EXPECT_TRUE(testing::same_bits(testing::on_cpu(results[i]), testing::on_cpu(want[i]))) << length << " " << i;
  }
}

TEST_F(FuseCudaTest, AnElementWrittenInPlaceIsReadBefore) {
  const auto fn = [](Tensor x, Tensor y) {
    mul_(x, 0.75);
    return mul(x, y);
  };
  const Tensor y = random({100000}, float32, 44), x = random({1}, float32, 45);
  for (int i = 0; i < 20; ++i) {
    const Tensor a = x.clone(), b = x.clone();
    EXPECT_TRUE(testing::same_bits(testing::on_cpu(fuse(fn)(a, y)), testing::on_cpu(fn(b, y))));
    EXPECT_TRUE(testing::same_bits(testing::on_cpu(a), testing::on_cpu(b)));
  }
}

class FuseCaptureTest : public testing::CudaCaptureTest {};

TEST_F(FuseCaptureTest, Replays) {
  const Tensor x = normal({70, 512}, bfloat16), out = result({70, 512}, bfloat16);
  const auto fused = fuse(softmax_of);
  fused(x);  // traced and compiled before the capture
  expect_replays("fuse", {out}, [&] { core::copy_into(fused(x), out); });
}

// Traced, compiled and loaded within the capture; the number that scatter turns into an array is written by the graph.
TEST_F(FuseCaptureTest, FirstCallsAreCaptured) {
  const Tensor x = normal({70, 300}, bfloat16), index = integers({70, 1}, 300), out = result({70, 300}, bfloat16);
  const auto fused = fuse([](Tensor x, Tensor index) {
    const Tensor e = exp(mul(x, 0.5));
    return relu(sub(scatter(e, 1, index, 3.0), 1));
  });
  expect_replays("fuse", {out}, [&] { core::copy_into(fused(x, index), out); });
  EXPECT_GT(fused.function().kernels({x, index}), 0) << fused.function().why_not({x, index});
}

}  // namespace
}  // namespace tenor
