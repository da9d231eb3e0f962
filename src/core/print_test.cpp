#include "tenor/print.h"

#include <gtest/gtest.h>

#include <cmath>
#include <sstream>

namespace tenor {
namespace {

template <class T>
Tensor made(DType dtype, Dims shape, std::vector<T> values, Dims strides = {}) {
  auto held = std::make_shared<std::vector<T>>(std::move(values));
  return Tensor::wrap(held->data(), kCpu, dtype, std::move(shape), std::move(strides), held);
}

TEST(Print, ValuesDtypeShapeAndDevice) {
  const Tensor x = made<float>(float32, {2, 3}, {1, 2.5f, -3, NAN, INFINITY, 0.1f});
  EXPECT_EQ(to_string(x), "tensor([[1, 2.5, -3], [nan, inf, 0.1]], float32, (2, 3), cpu)");
  std::ostringstream out;
  out << x;
  EXPECT_EQ(out.str(), to_string(x));
}

TEST(Print, StridesAreFollowed) {
  EXPECT_EQ(to_string(made<int32_t>(int32, {3, 2}, {0, 1, 2, 3, 4, 5}, {1, 3})),
            "tensor([[0, 3], [1, 4], [2, 5]], int32, (3, 2), cpu)");
}

TEST(Print, LongDimsShowTheirEnds) {
  std::vector<int64_t> all(100);
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int64_t>(i);
  const Tensor x = made<int64_t>(int64, {100}, all);
  EXPECT_EQ(to_string(x), "tensor([0, 1, 2, ..., 97, 98, 99], int64, (100,), cpu)");
  EXPECT_EQ(to_string(x, 1), "tensor([0, ..., 99], int64, (100,), cpu)");
  EXPECT_EQ(to_string(x, 0), "tensor([...], int64, (100,), cpu)");
  EXPECT_EQ(to_string(made<int64_t>(int64, {6}, {0, 1, 2, 3, 4, 5})), "tensor([0, 1, 2, 3, 4, 5], int64, (6,), cpu)");
  EXPECT_EQ(to_string(made<int64_t>(int64, {7}, {0, 1, 2, 3, 4, 5, 6})),
            "tensor([0, 1, 2, ..., 4, 5, 6], int64, (7,), cpu)");
  EXPECT_NE(to_string(x, INT64_MAX).find("50"), std::string::npos);
}

TEST(Print, EveryKindOfElement) {
  EXPECT_EQ(to_string(made<uint8_t>(boolean, {2}, {1, 0})), "tensor([true, false], bool, (2,), cpu)");
  EXPECT_EQ(to_string(made<uint64_t>(uint64, {1}, {UINT64_MAX})), "tensor([18446744073709551615], uint64, (1,), cpu)");
  EXPECT_EQ(to_string(made<int8_t>(int8, {1}, {-128})), "tensor([-128], int8, (1,), cpu)");
  EXPECT_EQ(to_string(made<uint16_t>(bfloat16, {1}, {0x3fc0})), "tensor([1.5], bfloat16, (1,), cpu)");
  EXPECT_EQ(to_string(made<uint8_t>(DType::kFloat8E4M3, {1}, {0x38})), "tensor([1], float8_e4m3fn, (1,), cpu)");
}

TEST(Print, ScalarsEmptyAndUndefined) {
  EXPECT_EQ(to_string(made<double>(float64, {}, {2})), "tensor(2, float64, (), cpu)");
  EXPECT_EQ(to_string(made<double>(float64, {0, 3}, {})), "tensor([], float64, (0, 3), cpu)");
  EXPECT_EQ(to_string(Tensor()), "tensor(undefined)");
}

}  // namespace
}  // namespace tenor
