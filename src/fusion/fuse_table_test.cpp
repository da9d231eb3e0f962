// Results looked up in tables have the bits of the steps.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <numeric>

#include "src/core/testing.h"
#include "src/fusion/cpu_table.h"
#include "tenor/fuse.h"
#include "tenor/tenor.h"

namespace tenor {
namespace {

/// Every pattern of 16 bits, 17 times, so that runs do not end where vectors do.
Tensor patterns(DType dtype) {
  const Tensor x = Tensor::empty({17, 65536}, dtype);
  auto* bits = x.data<uint16_t>();
  for (int64_t i = 0; i < x.numel(); ++i) bits[i] = static_cast<uint16_t>(i * 40503);
  return x;
}

struct Case {
  const char* name;
  std::function<std::vector<Tensor>(const Tensor& x, const Tensor& y)> fn;
  bool looks_up = true;
};

std::vector<Case> cases() {
  const auto chain = [](Tensor x) {
    for (int i = 0; i < 2; ++i) x = relu(mul(sigmoid(tanh(x)), 1.5));
    return x;
  };
  return {
      {"chain of eight", [=](auto& x, auto&) { return std::vector{chain(x)}; }},
      {"in float32", [](auto& x, auto&) { return std::vector{tanh(exp(x.to(float32))).to(x.dtype())}; }},
      {"through x twice", [](auto& x, auto&) { return std::vector{mul(sigmoid(x), sub(1.0, tanh(x)))}; }},
      {"before a second array", [=](auto& x, auto& y) { return std::vector{add(chain(x), y)}; }},
      {"behind a second array", [=](auto& x, auto& y) { return std::vector{chain(add(x, y))}; }},
      {"behind a table and a second array", [=](auto& x, auto& y) { return std::vector{chain(add(chain(x), y))}; }},
      {"of each of two arrays", [=](auto& x, auto& y) { return std::vector{mul(chain(x), exp(gelu(y)))}; }},
      {"several results",
       [=](auto& x, auto&) {
         const Tensor a = tanh(sigmoid(x)), b = chain(a);
         return std::vector{a, b, relu(a), b.to(float32)};
       }},
      {"to the other dtype",
       [](auto& x, auto&) { return std::vector{gelu(tanh(x)).to(x.dtype() == bfloat16 ? float16 : bfloat16)}; }},
      {"beside a reduction",
       [=](auto& x, auto&) {
         const Tensor e = exp(tanh(sigmoid(x)));
         return std::vector{div(e, sum(e, {.dim = Dims{-1}, .keepdim = true}))};
       }},
      {"of a row's maximum",
       [](auto& x, auto& y) {  // as many as rows: too few
         return std::vector{add(y, exp(tanh(amax(x, {.dim = Dims{-1}, .keepdim = true}))))};
       },
       false},
      {"two arrays all along", [](auto& x, auto& y) { return std::vector{tanh(add(sigmoid(add(x, y)), y))}; }, false},
      {"cheap", [](auto& x, auto&) { return std::vector{relu(mul(x, 1.5))}; }, false},
      {"to float32", [](auto& x, auto&) { return std::vector{tanh(exp(x.to(float32)))}; }, false},
  };
}

/// A NaN's payload is not compared.
bool same(const Tensor& a, const Tensor& b) {
  if (a.dtype() != b.dtype() || a.shape() != b.shape()) return false;
  const Tensor x = where(isnan(a), 0.0, a).contiguous(), y = where(isnan(b), 0.0, b).contiguous();
  const Tensor p = isnan(a).contiguous(), q = isnan(b).contiguous();
  const auto count = static_cast<size_t>(x.numel());
  return std::memcmp(x.raw(), y.raw(), count * item_size(x.dtype())) == 0 && std::memcmp(p.raw(), q.raw(), count) == 0;
}

TEST(FuseTable, HaveTheBitsOfTheSteps) {
  for (const DType dtype : {bfloat16, float16}) {
    const Tensor x = patterns(dtype), y = flip(x, {1}).contiguous();
    for (const Case& c : cases()) {
      const FusedFunction fused([&](const std::vector<Tensor>& in) { return c.fn(in[0], in[1]); });
      const int64_t before = fusion::tables_made();
      const std::vector<Tensor> got = fused({x, y}), want = c.fn(x, y);
      EXPECT_EQ(fusion::tables_made() > before, c.looks_up) << c.name << " " << name(dtype);
      EXPECT_GE(fused.kernels({x, y}), 1) << c.name << " " << fused.why_not({x, y});
      for (size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(same(got[i], want[i])) << c.name << " " << name(dtype) << i;
    }
  }
}

TEST(FuseTable, OfAnyLayoutAndWrittenInPlace) {
  const auto chain = [](Tensor x) { return tanh(sigmoid(tanh(x))); };
  const auto fused = fuse(chain);
  const Tensor x = patterns(bfloat16);
  for (const Tensor& view : {transpose(x, 0, 1), narrow(x, 1, 3, 65530), expand(narrow(x, 0, 0, 1), {17, 65536})})
    EXPECT_TRUE(same(fused(view), chain(view))) << describe(view);
  const auto in_place = fuse([=](Tensor x) { return copy_(x, chain(x)); });
  const Tensor written = x.clone();
  in_place(written);
  EXPECT_TRUE(same(written, chain(x)));
}

TEST(FuseTable, AreSharedByTheKernelsThatWantThem) {
  const auto fused = fuse([](Tensor x) { return tanh(sigmoid(mul(tanh(x), 1.25))); });
  const auto other = fuse([](Tensor x) { return tanh(sigmoid(mul(tanh(x), 1.5))); });
  const Tensor x = patterns(bfloat16);
  const int64_t before = fusion::tables_made();
  for (int64_t rows : {17, 16, 17}) fused(narrow(x, 0, 0, rows).contiguous());
  EXPECT_EQ(fusion::tables_made(), before + 1);
  other(x);
  fused(x.to(float16));
  EXPECT_EQ(fusion::tables_made(), before + 3);
  EXPECT_TRUE(same(other(x), tanh(sigmoid(mul(tanh(x), 1.5)))));
}

TEST(FuseTable, OnlyWhereTheyPay) {
  const auto chain = [](Tensor x) { return tanh(sigmoid(tanh(x))); };
  const int64_t before = fusion::tables_made();
  fuse(chain)(narrow(patterns(bfloat16), 0, 0, 15).contiguous());  // fewer than 2^20 elements
  fuse(chain)(patterns(bfloat16).to(float32));
  EXPECT_EQ(fusion::tables_made(), before);
}

/// explain counts what is still computed: the floor and the prediction of a chain are those of its look-ups.
TEST(FuseTable, AreExplained) {
  const auto chain = [](const std::vector<Tensor>& in) { return std::vector{tanh(sigmoid(tanh(in[0])))}; };
  const auto sum_with = [](const std::vector<Tensor>& in) { return std::vector{add(tanh(sigmoid(in[0])), in[0])}; };
  const Tensor x = patterns(bfloat16), few = narrow(x, 0, 0, 15).contiguous();
  const Explanation looked_up = explain(chain, {x}), computed = explain(chain, {few});
  ASSERT_EQ(looked_up.kernels.size(), 1u);
  EXPECT_EQ(looked_up.kernels[0].strategy, "fused, looked up in tables");
  EXPECT_EQ(computed.kernels[0].strategy, "fused");
  EXPECT_LT(looked_up.kernels[0].predicted_us, computed.kernels[0].predicted_us);
  EXPECT_LT(looked_up.kernels[0].floor_us, computed.kernels[0].floor_us);
  EXPECT_EQ(explain(sum_with, {x}).kernels[0].strategy, "fused, looked up in tables");
}

}  // namespace
}  // namespace tenor
