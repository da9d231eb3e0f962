// copy_into against core::cast one element at a time: all pairs of dtypes, layouts, overlaps.
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <utility>

#include "src/core/numeric.h"
#include "src/core/output.h"
#include "src/core/visit.h"
#include "tenor/create.h"
#include "tenor/view.h"

namespace tenor {
namespace {

using core::copy_into;

/// Random bits that cover special values; halves of them small numbers.
Tensor random_bits(const Dims& shape, DType dtype, std::mt19937_64& random) {
  Tensor x = Tensor::empty(shape, dtype);
  const size_t bytes = static_cast<size_t>(x.numel()) * item_size(dtype);
  auto* p = x.data<unsigned char>();
  for (size_t i = 0; i < bytes; ++i) p[i] = static_cast<unsigned char>(dtype == boolean ? random() & 1 : random());
  if (dtype == float32 || dtype == float64)
    for (int64_t i = 0; i < x.numel(); i += 2) {
      const double v = static_cast<double>(static_cast<int64_t>(random())) * 0x1p-40;
      if (dtype == float32)
        x.data<float>()[i] = static_cast<float>(v * 1e-3);
      else
        x.data<double>()[i] = v;
    }
  return x;
}

int64_t offset_of(const Tensor& x, int64_t i) {
  int64_t offset = 0;
  for (int d = x.ndim(); d-- > 0; i /= x.shape(d)) offset += i % x.shape(d) * x.stride(d);
  return offset;
}

/// Counts elements of dst that are not the cast of src's; any NaN stands for every other.
int64_t mismatches(const Tensor& src, const Tensor& dst) {
  return core::visit(src.dtype(), [&]<class From>() {
    return core::visit(dst.dtype(), [&]<class To>() {
      int64_t bad = 0;
      for (int64_t i = 0; i < src.numel(); ++i) {
        const To want = core::cast<To>(src.data<From>()[offset_of(src, i)]), got = dst.data<To>()[offset_of(dst, i)];
        if (std::memcmp(&want, &got, sizeof want) == 0) continue;
        if constexpr (!std::is_integral_v<To>)
          bad += !(core::widen(want) != core::widen(want) && core::widen(got) != core::widen(got));
        else
          ++bad;
      }
      return bad;
    });
  });
}

TEST(Copy, EveryPairOfDtypes) {
  std::mt19937_64 random(1);
  for (int a = 0; a < kDTypes; ++a) {
    const Tensor src = random_bits({3, 1021}, static_cast<DType>(a), random);
    for (int b = 0; b < kDTypes; ++b) {
      const Tensor dst = random_bits({3, 1021}, static_cast<DType>(b), random);
      copy_into(src, dst);
      EXPECT_EQ(mismatches(src, dst), 0) << describe(src) << " to " << describe(dst);
    }
  }
}

TEST(Copy, EdgesOfConversions) {
  const float values[] = {
      0.0f,          -0.0f,         0.5f,           -0.5f,         1.0f,          -1.0f,         127.0f,
      128.0f,        255.9f,        256.0f,         -129.0f,       32767.5f,      65519.0f,      65520.0f,
      2147483520.0f, 2147483648.0f, -2147483648.0f, 4294967040.0f, 4294967296.0f, 9.2233715e18f, 9.223372e18f,
      -9.223372e18f, 1.8446743e19f, 1.8446744e19f,  1e30f,         -1e30f,        INFINITY,      -INFINITY,
      NAN,           1e-40f,        5.9604645e-08f, 2.9802322e-08f};
  const Tensor f32 = Tensor::wrap(const_cast<float*>(values), kCpu, float32, {static_cast<int64_t>(std::size(values))});
  for (const Tensor& src : {f32, f32.to(float64), f32.to(bfloat16), f32.to(float16)})
    for (int b = 0; b < kDTypes; ++b) {
      const Tensor dst = src.to(static_cast<DType>(b));
      EXPECT_EQ(mismatches(src, dst), 0) << describe(src) << " to " << describe(dst);
    }
}

/// A random view: permuted, sliced with steps, with dims of size 1 and repeated dims.
Tensor random_view(DType dtype, std::mt19937_64& random, const Dims& shape, bool repeat) {
  Dims order, base;
  for (size_t d = 0; d < shape.size(); ++d) order.insert(random() % (order.size() + 1), static_cast<int64_t>(d));
  Dims steps(shape.size(), 1);
  for (size_t k = 0; k < shape.size(); ++k) {
    if (random() % 3 == 0) steps[order[k]] = 1 + static_cast<int64_t>(random() % 3);
    const bool one = repeat && random() % 5 == 0;
    if (one) steps[order[k]] = 0;
    base.push_back(one ? 1 : shape[order[k]] * steps[order[k]]);
  }
  const Tensor memory = random_bits(base, dtype, random);
  Dims strides(shape.size(), 0);
  for (size_t k = 0; k < shape.size(); ++k) strides[order[k]] = memory.strides()[k] * steps[order[k]];
  return memory.with_layout(shape, strides, 0);
}

TEST(Copy, RandomLayouts) {
  std::mt19937_64 random(2);
  const DType dtypes[] = {uint8, int16, bfloat16, float32, float64};
  for (int draw = 0; draw < 600; ++draw) {
    Dims shape;
    const size_t rank = random() % 6;
    for (size_t d = 0; d < rank; ++d)
      shape.push_back(static_cast<int64_t>(random() % (rank > 3 ? 7 : rank > 2 ? 24 : 150)) + (random() % 9 != 0));
    const DType from = dtypes[random() % 5], to = random() % 2 ? from : dtypes[random() % 5];
    const Tensor src = random_view(from, random, shape, true), dst = random_view(to, random, shape, false);
    copy_into(src, dst);
    ASSERT_EQ(mismatches(src, dst), 0) << draw << ": " << describe(src) << to_string(src.strides()) << " to "
                                       << describe(dst) << to_string(dst.strides());
  }
}

/// Large enough to be written past the caches: rows of whole cache lines and others, planes and stacks of them, into an
/// array of their own and into the middle of one.
TEST(Copy, LargeTransposes) {
  std::mt19937_64 random(11);
  for (DType dtype : {uint8, int16, int32, float64})
    for (const auto& [rows, columns] : {std::pair<int64_t, int64_t>{1024, 4160}, {1031, 4103}, {2050, 2080}}) {
      const Tensor x = random_bits({rows, columns * 4 / static_cast<int64_t>(item_size(dtype))}, dtype, random),
                   across = transpose(x, 0, 1);
      const Tensor dense = Tensor::empty(across.shape(), dtype);
      copy_into(across, dense);
      EXPECT_EQ(mismatches(across, dense), 0) << rows;
      const Tensor frame = zeros({across.shape(0), rows + 7}, {.dtype = dtype}), inner = slice(frame, 1, 3, 3 + rows);
      copy_into(across, inner);
      EXPECT_EQ(mismatches(across, inner), 0) << rows;
      EXPECT_EQ(mismatches(zeros({across.shape(0), 3}, {.dtype = dtype}), slice(frame, 1, 0, 3)), 0);
      EXPECT_EQ(mismatches(zeros({across.shape(0), 4}, {.dtype = dtype}), slice(frame, 1, 3 + rows, 7 + rows)), 0);
      const Tensor stack = transpose(reshape(slice(x, 0, 0, rows / 2 * 2), {2, rows / 2, x.shape(1)}), 1, 2);
      const Tensor planes = Tensor::empty(stack.shape(), dtype);
      copy_into(stack, planes);
      EXPECT_EQ(mismatches(stack, planes), 0) << rows;
    }
}

TEST(Copy, WritesNothingBetweenStridedElements) {
  const Tensor memory = Tensor::empty({64, 64}, int32);
  for (int i = 0; i < 64 * 64; ++i) memory.data<int32_t>()[i] = -7;
  std::mt19937_64 random(3);
  copy_into(random_bits({32, 20}, int32, random), memory.with_layout({32, 20}, {128, 3}, 1));
  int touched = 0;
  for (int i = 0; i < 64 * 64; ++i) {
    const int row = (i - 1) / 128, column = (i - 1) % 128;
    const bool inside = i >= 1 && column % 3 == 0 && column / 3 < 20 && row < 32;
    if (!inside) {
      EXPECT_EQ(memory.data<int32_t>()[i], -7) << i;
    }
    touched += inside;
  }
  EXPECT_EQ(touched, 640);
}

TEST(Copy, OverlapIsAsIfReadFirst) {
  const Tensor line = Tensor::empty({5000}, int32);
  for (int i = 0; i < 5000; ++i) line.data<int32_t>()[i] = i;
  copy_into(line.with_layout({4999}, {1}, 0), line.with_layout({4999}, {1}, 1));
  for (int i = 1; i < 5000; ++i) ASSERT_EQ(line.data<int32_t>()[i], i - 1);
  const Tensor square = Tensor::empty({70, 70}, float32);
  for (int i = 0; i < 4900; ++i) square.data<float>()[i] = static_cast<float>(i);
  copy_into(transpose(square, 0, 1), square);
  for (int r = 0; r < 70; ++r)
    for (int c = 0; c < 70; ++c) ASSERT_EQ(square.data<float>()[r * 70 + c], static_cast<float>(c * 70 + r));
}

}  // namespace
}  // namespace tenor
