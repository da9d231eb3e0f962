// Fused equals unfused, bit for bit.
#include "tenor/fuse.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "src/core/testing.h"
#include "src/fusion/backend.h"
#include "tenor/tenor.h"

namespace tenor {
namespace {

constexpr DType kFloats[] = {float32, float64, float16, bfloat16};

Tensor random(Dims shape, DType dtype, uint64_t seed) {
  Tensor x = Tensor::empty(std::move(shape), float32);
  uint64_t state = seed * 2654435761u + 88172645463325252u;
  for (int64_t i = 0; i < x.numel(); ++i) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    x.data<float>()[i] = static_cast<float>(static_cast<int64_t>(state >> 40) - (1 << 23)) / (1 << 21);
  }
  return x.to(dtype);
}

/// Whether both show the same shape, strides, dtype and bits.
::testing::AssertionResult same(const Tensor& a, const Tensor& b) {
  if (a.shape() != b.shape() || a.dtype() != b.dtype())
    return ::testing::AssertionFailure() << describe(a) << " " << describe(b);
  for (int d = 0; d < a.ndim(); ++d)
    if (a.shape(d) > 1 && a.stride(d) != b.stride(d)) return ::testing::AssertionFailure() << "stride of dim " << d;
  const Tensor x = a.contiguous(), y = b.contiguous();
  const size_t item = item_size(a.dtype());
  for (int64_t i = 0; i < a.numel(); ++i)
    if (std::memcmp(x.data<char>() + i * static_cast<int64_t>(item), y.data<char>() + i * static_cast<int64_t>(item),
                    item) != 0)
      return ::testing::AssertionFailure() << "element " << i << " of " << describe(a);
  return ::testing::AssertionSuccess();
}

Tensor softmax_of(Tensor x) {
  const Tensor e = exp(sub(x, amax(x, {.dim = Dims{-1}, .keepdim = true})));
  return div(e, sum(e, {.dim = Dims{-1}, .keepdim = true}));
}

TEST(Fuse, SoftmaxIsOneKernelWithTheSameBits) {
  const auto fused = fuse([](Tensor x) { return softmax_of(x); });
  for (DType dtype : kFloats)
    for (const Dims& shape : {Dims{64, 512}, Dims{3, 5, 7}, Dims{1, 1}, Dims{200, 4097}, Dims{1000}, Dims{5000, 3}}) {
      const Tensor x = random(shape, dtype, 1);
      EXPECT_EQ(fused.function().kernels({x}), 1) << fused.function().why_not({x});
      EXPECT_TRUE(same(fused(x), softmax_of(x)));
    }
}

TEST(Fuse, ColumnsAndTransposesKeepTheirBits) {
  const auto over_first = [](Tensor x) { return div(x, sum(x, {.dim = Dims{0}, .keepdim = true})); };
  const auto fused = fuse(over_first);
  for (DType dtype : kFloats)
    for (const Dims& shape : {Dims{64, 512}, Dims{300, 70}, Dims{5, 4, 33}, Dims{4097, 9}}) {
      const Tensor x = random(shape, dtype, 2);
      EXPECT_EQ(fused.function().kernels({x}), 1) << fused.function().why_not({x});
      EXPECT_TRUE(same(fused(x), over_first(x)));
      const Tensor turned = transpose(x, 0, -1);
      EXPECT_EQ(fused.function().kernels({turned}), 1);
      EXPECT_TRUE(same(fused(turned), over_first(turned)));
    }
}

TEST(Fuse, AChainIsOneKernel) {
  const auto chain = [](Tensor x, Tensor y) {
    const Tensor a = mul(tanh(x), sigmoid(y));
    return relu(add(mul(a, 2.5), gelu(sub(y, x))));
  };
  const auto fused = fuse(chain);
  for (DType dtype : kFloats)
    for (const Dims& shape : {Dims{64, 512}, Dims{1}, Dims{}, Dims{0, 3}, Dims{100003}}) {
      const Tensor x = random(shape, dtype, 3), y = random(shape, dtype, 4);
      EXPECT_EQ(fused.function().kernels({x, y}), x.numel() == 0 ? 0 : 1) << fused.function().why_not({x, y});
      EXPECT_TRUE(same(fused(x, y), chain(x, y)));
    }
}

TEST(Fuse, NarrowValuesAreComputedOnce) {
  const auto norm = [](Tensor x, Tensor gamma) {
    const Tensor wide = x.to(float32);
    const Tensor scale = rsqrt(add(mean(mul(wide, wide), {.dim = Dims{-1}, .keepdim = true}), 1e-6));
    return mul(mul(wide, scale).to(x.dtype()), add(gamma, 1));
  };
  const auto fused = fuse(norm);
  for (DType dtype : kFloats) {
    const Tensor x = random({37, 1000}, dtype, 5), gamma = random({1000}, dtype, 6);
    EXPECT_EQ(fused.function().kernels({x, gamma}), 1) << fused.function().why_not({x, gamma});
    EXPECT_TRUE(same(fused(x, gamma), norm(x, gamma)));
  }
}

TEST(Fuse, WritesToInputsTakeEffect) {
  const auto step = [](Tensor x, Tensor y) {
    add_(x, mul(y, 0.5));
    tanh_(x);
    return mul(x, y);
  };
  const auto fused = fuse(step);
  const Tensor x = random({40, 50}, float32, 7), y = random({40, 50}, float32, 8), a = x.clone(), b = x.clone();
  EXPECT_EQ(fused.function().kernels({a, y}), 1) << fused.function().why_not({a, y});
  EXPECT_TRUE(same(fused(a, y), step(b, y)));
  EXPECT_TRUE(same(a, b));
  // An alias: as the function itself.
  const Tensor c = x.clone(), d = x.clone();
  EXPECT_EQ(fused.function().why_not({c, c}), "an input that is written overlaps another input");
  EXPECT_TRUE(same(fused(c, c), step(d, d)));
  EXPECT_TRUE(same(c, d));
}

// What an in-place step does not write over is needed in memory, even where nothing of it is read by another kernel.
TEST(Fuse, AWriteToAPartLeavesTheRest) {
  const Tensor x = random({6, 40}, float32, 12);
  for (int64_t length : {0, 1, 5, 6}) {
    const auto own = [&](Tensor x) {
      const Tensor y = sub(x, 2), read = sum(y, {.dim = Dims{1}});
      fill_(narrow(y, 0, 6 - length, length), 7);
      return std::vector{read, y};
    };
    const auto given = [&](Tensor x) {
      sub_(x, 2);
      const Tensor read = mul(x, 3);
      fill_(narrow(x, 0, 0, length), 7);
      copy_(narrow(x, 1, 3, length), narrow(read, 1, 0, length));
      return std::vector{read};
    };
    const auto results = fuse(own)(x), want = own(x);
    for (size_t i = 0; i < want.size(); ++i) EXPECT_TRUE(same(results[i], want[i])) << length << " " << i;
    const Tensor a = x.clone(), b = x.clone();
    EXPECT_TRUE(same(fuse(given)(a)[0], given(b)[0])) << length;
    EXPECT_TRUE(same(a, b)) << length;
  }
}

// Each call begins with the numbers as they are written, whatever calls before made of them.
TEST(Fuse, NumbersAreEachCallsOwn) {
  const auto fn = [](Tensor x, Tensor index) { return scatter_add(exp(x), 1, index, 2.5); };
  const auto fused = fuse(fn);
  const Tensor x = random({20, 30}, float32, 13), index = zeros({20, 4}, {.dtype = int64});
  ASSERT_EQ(fused.function().why_not({x, index}), "");
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(same(fused(x, index), fn(x, index))) << i;
}

TEST(Fuse, OverlappingViewsAreNotMixedUp) {
  const auto shift = [](Tensor x) {
    const Tensor doubled = mul(x, 2);
    add_(narrow(x, 0, 1, x.shape(0) - 1), narrow(x, 0, 0, x.shape(0) - 1));
    return add(doubled, x);
  };
  const auto fused = fuse(shift);
  const Tensor x = random({1000}, float32, 9), a = x.clone(), b = x.clone();
  EXPECT_TRUE(same(fused(a), shift(b)));
  EXPECT_TRUE(same(a, b));
}

TEST(Fuse, JoinsAreStoredByTheKernelOfTheirPieces) {
  const auto rope = [](Tensor x, Tensor c, Tensor s) {
    const int64_t half = x.shape(-1) / 2;
    const Tensor a = narrow(x, -1, 0, half), b = narrow(x, -1, half, half);
    return cat({sub(mul(a, c), mul(b, s)), add(mul(a, s), mul(b, c))}, -1);
  };
  const auto pair = [](Tensor x) { return stack({exp(x), neg(x).to(float64)}, 1); };
  for (DType dtype : kFloats) {
    const auto fused = fuse(rope);
    const Tensor x = random({50, 4, 64}, dtype, 20), c = random({50, 1, 32}, dtype, 21),
                 s = random({50, 1, 32}, dtype, 22);
    EXPECT_EQ(fused.function().kernels({x, c, s}), 1);
    EXPECT_TRUE(same(fused(x, c, s), rope(x, c, s)));
    const auto pairs = fuse(pair);
    EXPECT_EQ(pairs.function().kernels({x}), 1);
    EXPECT_TRUE(same(pairs(x), pair(x)));
  }
  // Of pieces that differ in size, or are read again in the function, the join is a kernel of its own.
  const auto apart = [](Tensor x) { return exp(cat({add(narrow(x, 0, 0, 3), 1), neg(narrow(x, 0, 3, 4))}, 0)); };
  const Tensor x = random({7, 5}, float32, 23);
  EXPECT_TRUE(same(fuse(apart)(x), apart(x)));
}

TEST(Fuse, HeldTensorsRunAsWritten) {
  const Tensor x = random({3, 40}, float32, 10), w = random({3, 40}, float32, 11);
  const auto gives = fuse([w](Tensor x) { return std::vector{add(x, 1), w}; });
  EXPECT_NE(gives.function().why_not({x}), "");
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(same(gives(x)[1], w));
  // Steps on held tensors alone: as often as the function is called, and not at the trace.
  const Tensor steps = Tensor::empty({1}, float32);
  *steps.data<float>() = 0;
  const auto counts = fuse([steps](Tensor x) {
    add_(steps, 1);
    return mul(x, 2);
  });
  EXPECT_NE(counts.function().why_not({x}).find("holds an array of its own"), std::string::npos);
  for (int i = 1; i < 4; ++i) {
    EXPECT_TRUE(same(counts(x), mul(x, 2)));
    EXPECT_EQ(*steps.data<float>(), static_cast<float>(i));
  }
  const auto reads = fuse([steps](Tensor x) { return mul(x, steps.item_double()); });
  for (int i = 1; i < 4; ++i) {
    *steps.data<float>() = static_cast<float>(i);
    EXPECT_TRUE(same(reads(x), mul(x, i)));
  }
}

TEST(Fuse, AFailedCompilerIsAnError) {
  const Tensor x = random({3, 40}, float32, 12);
  const auto fused = fuse([](Tensor x) { return tanh(add(x, 1)); });
  const fusion::FusionBackend before = *fusion::fusion_backend(DeviceType::kCpu);
  fusion::register_fusion_backend(DeviceType::kCpu,
                                  {before.decline, before.unavailable,
                                   [](const fusion::Program&, Device) -> std::shared_ptr<const fusion::Executable> {
                                     throw CudaError("no compiler");
                                   }});
  EXPECT_THROW(fused(x), CudaError);
  EXPECT_THROW(fused(x), CudaError);  // not kept as a reason
  fusion::register_fusion_backend(DeviceType::kCpu, before);
  EXPECT_EQ(fused.function().why_not({x}), "");
  EXPECT_TRUE(same(fused(x), tanh(add(x, 1))));
  bool full = true;
  const auto traced = fuse([&full](Tensor x) {
    if (full && x.device().type == DeviceType::kMeta) throw std::bad_alloc();
    return tanh(add(x, 1));
  });
  EXPECT_THROW(traced(x), std::bad_alloc);
  full = false;
  EXPECT_EQ(traced.function().kernels({x}), 1);
}

TEST(Fuse, WhatADeviceDeclinesIsCutAndTheRestFuses) {
  const auto fn = [](Tensor x) {
    const Tensor e = exp(mul(x, 0.5));
    return relu(add(sub(e, sum(e, {.dim = Dims{-1}, .keepdim = true})), 1));
  };
  const Tensor x = random({30, 40}, float32, 14), want = fn(x);
  const fusion::FusionBackend before = *fusion::fusion_backend(DeviceType::kCpu);
  fusion::register_fusion_backend(DeviceType::kCpu, {[](const fusion::Program& p) -> std::string {
                                                       return p.phases > 0 ? "no reductions today" : "";
                                                     },
                                                     before.unavailable, before.compile});
  const auto fused = fuse(fn);
  EXPECT_EQ(fused.function().kernels({x}), 2);
  EXPECT_TRUE(same(fused(x), want));
  const Explanation e = explain([&](const std::vector<Tensor>& in) { return std::vector{fn(in[0])}; }, {x});
  EXPECT_TRUE(
      std::any_of(e.cuts.begin(), e.cuts.end(), [](const auto& cut) { return cut.reason == "no reductions today"; }));
  fusion::register_fusion_backend(DeviceType::kCpu, before);
  EXPECT_EQ(fuse(fn).function().kernels({x}), 1);
}

/// Counts the largest block that is asked for.
struct Watched final : Allocator {
  std::shared_ptr<void> allocate(size_t bytes, Device device) override {
    most = std::max(most, bytes);
    return default_allocator().allocate(bytes, device);
  }
  size_t most = 0;
};

TEST(Fuse, LargeScratchIsNotKeptByAThread) {
  const int before = num_threads();
  set_num_threads(1);
  const auto over_first = [](Tensor x) {
    const Tensor e = exp(x);
    return sum(mul(e, div(e, sum(e, {.dim = Dims{0}, .keepdim = true}))), {.dim = Dims{0}});
  };
  const Tensor x = random({2000, 1200}, float32, 13), want = over_first(x);
  const auto fused = fuse(over_first);
  EXPECT_EQ(fused.function().kernels({x}), 1);
  Watched watched;
  {
    const AllocatorGuard guard(&watched);
    EXPECT_TRUE(same(fused(x), want));
  }
  EXPECT_GE(watched.most, size_t{4} * 2000 * 1200);
  set_num_threads(before);
}

/// More arrays than a kernel takes: several kernels, and the function's bits.
TEST(Fuse, AHundredAndTwentyInputs) {
  const auto fn = [](const std::vector<Tensor>& in) {
    Tensor sum = mul(in[0], 0.5), product = in[0];
    for (size_t i = 1; i < in.size(); ++i) sum = add(sum, mul(in[i], 1.0 + 0.125 * static_cast<double>(i % 5)));
    for (size_t i = 1; i < in.size(); i += 7) product = mul(product, tanh(in[i]));
    return std::vector{sum, relu(product)};
  };
  for (const DType dtype : {float32, bfloat16}) {
    std::vector<Tensor> in;
    for (uint64_t i = 0; i < 120; ++i) in.push_back(random({37, 41}, dtype, 100 + i));
    const FusedFunction fused(fn);
    EXPECT_EQ(fused.why_not(in), "");
    EXPECT_GE(fused.kernels(in), 5);  // of 24 arrays at most
    EXPECT_LE(fused.kernels(in), 12);
    const std::vector<Tensor> got = fused(in), want = fn(in);
    for (size_t i = 0; i < want.size(); ++i) EXPECT_TRUE(same(got[i], want[i])) << i << " " << name(dtype);
  }
}

TEST(Fuse, ErrorsAreTheFunctions) {
  const auto fused = fuse([](Tensor x, Tensor y) { return add(x, y); });
  EXPECT_THROW(fused(random({2, 3}, float32, 1), random({2, 4}, float32, 1)), ShapeError);
}

/// What the function does where it catches an error is what it does with data.
TEST(Fuse, ErrorsThatTheFunctionCatches) {
  const Tensor x = abs(random({40, 30}, float32, 15)), own = random({30}, float32, 16);
  const auto guarded = [](auto body, auto otherwise) {
    return [=](Tensor x) {
      try {
        return body(x);
      } catch (const Error&) {
        return otherwise(x);
      }
    };
  };
  const auto less = [](const Tensor& v) { return exp(sub(v, 1.0)); };
  // Not with data: the trace went another way.
  const auto expect_as_written = [&](auto fn) {
    const auto fused = fuse(fn);
    EXPECT_TRUE(same(fused(x), fn(x)));
    EXPECT_NE(fused.function().why_not({x}).find("catches an error"), std::string::npos)
        << fused.function().why_not({x});
  };
  expect_as_written(guarded([](const Tensor& v) { return mul(masked_select(v, gt(v, 0.1)), 2.0); }, less));
  expect_as_written(guarded([](const Tensor& v) { return unique(add(v, 1.0)).values; }, less));
  expect_as_written(guarded([=](const Tensor& v) { return exp(add(v, mul(own, 2.0))); }, less));
  // With data as well: a shape.
  const auto shaped = guarded([](const Tensor& v) { return reshape(v, {7, 7}); }, less);
  EXPECT_EQ(fuse(shaped).function().kernels({x}), 1);
  EXPECT_TRUE(same(fuse(shaped)(x), less(x)));
}

/// With data only: an index.
TEST(Fuse, ErrorsOfContentsThatTheFunctionCatches) {
  const Tensor x = random({40, 30}, float32, 17), good = testing::tensor_of({2}, int64, {1, 39}),
               bad = testing::tensor_of({2}, int64, {1, 40});
  const auto fn = [](Tensor x, Tensor index) {
    try {
      return exp(mul(index_select(x, 0, index), 2.0));
    } catch (const IndexError&) {
      return sub(x, 1.0);
    }
  };
  const auto fused = fuse(fn);
  EXPECT_EQ(fused.function().kernels({x, good}), 1);
  for (const Tensor& index : {good, bad, good}) EXPECT_TRUE(same(fused(x, index), fn(x, index)));
  const auto uncaught = fuse([](Tensor x, Tensor index) { return exp(mul(index_select(x, 0, index), 2.0)); });
  EXPECT_THROW(uncaught(x, bad), IndexError);
  // What has been written is not written again.
  const auto writes = fuse([](Tensor x, Tensor index) {
    add_(x, 1.0);
    try {
      return softmax(index_select(x, 0, index));
    } catch (const IndexError&) {
      return exp(x);
    }
  });
  const Tensor y = x.clone();
  EXPECT_THROW(writes(y, bad), IndexError);
  EXPECT_TRUE(same(y, add(x, 1.0)) || same(y, x));
}

}  // namespace
}  // namespace tenor
