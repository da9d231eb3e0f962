// Overlap, broadcasting and result strides, against enumeration of every element.
#include "src/core/layout.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

#include "src/core/check.h"

namespace tenor::core {
namespace {

int64_t offset_of(const Tensor& x, int64_t i) {
  int64_t at = 0;
  for (int d = x.ndim(); d-- > 0; i /= x.shape(d)) at += i % x.shape(d) * x.stride(d);
  return at;
}

bool overlaps_by_enumeration(const Tensor& x) {
  std::set<int64_t> seen;
  for (int64_t i = 0; i < x.numel(); ++i)
    if (!seen.insert(offset_of(x, i)).second) return true;
  return false;
}

TEST(Layout, InternalOverlapAgreesWithEnumeration) {
  std::mt19937 random(7);
  const auto pick = [&](std::initializer_list<int64_t> from) { return from.begin()[random() % from.size()]; };
  static char memory[1 << 16];
  int found = 0;
  for (int round = 0; round < 3000; ++round) {
    Dims shape, strides;
    for (int d = static_cast<int>(random() % 4); d-- > 0;) {
      shape.push_back(pick({0, 1, 1, 2, 3, 4, 5}));
      strides.push_back(pick({0, 1, 2, 3, 4, 5, 6, 10, 12, 20, 60}));
    }
    const Tensor x = Tensor::wrap(memory, kCpu, int8, shape, strides);
    ASSERT_EQ(has_internal_overlap(x), overlaps_by_enumeration(x)) << to_string(shape) << to_string(strides);
    found += has_internal_overlap(x);
  }
  EXPECT_GT(found, 300);
}

TEST(Layout, HugeTensorsAreJudgedByTheirStridesAlone) {
  static char memory[1];
  EXPECT_FALSE(has_internal_overlap(Tensor::wrap(memory, kCpu, int8, {1 << 20, 1 << 20}, {1 << 20, 1})));
  EXPECT_TRUE(has_internal_overlap(Tensor::wrap(memory, kCpu, int8, {1 << 20, 1 << 20}, {1, 0})));
  EXPECT_TRUE(has_internal_overlap(Tensor::wrap(memory, kCpu, int8, {1 << 20, 1 << 20}, {1, 1})));
}

TEST(Layout, Extent) {
  static float memory[100];
  const Tensor x = Tensor::wrap(memory + 10, kCpu, float32, {3, 4}, {8, 2});
  const char* base = reinterpret_cast<const char*>(memory + 10);
  EXPECT_EQ(extent(x).first, base);
  EXPECT_EQ(extent(x).last, base + (2 * 8 + 3 * 2 + 1) * 4);
  const Tensor none = Tensor::wrap(memory, kCpu, float32, {3, 0});
  EXPECT_EQ(extent(none).first, extent(none).last);
  EXPECT_FALSE(spans_overlap(none, none));
}

TEST(Layout, SpansAndSameElements) {
  static float memory[100];
  const Tensor a = Tensor::wrap(memory, kCpu, float32, {4, 5}), b = Tensor::wrap(memory + 20, kCpu, float32, {4, 5});
  EXPECT_FALSE(spans_overlap(a, b));
  EXPECT_TRUE(spans_overlap(a, Tensor::wrap(memory + 19, kCpu, float32, {1})));
  EXPECT_TRUE(same_elements(a, Tensor::wrap(memory, kCpu, int32, {4, 5})));
  EXPECT_FALSE(same_elements(a, Tensor::wrap(memory, kCpu, float32, {4, 5}, {1, 4})));
  EXPECT_FALSE(same_elements(a, Tensor::wrap(memory, kCpu, float64, {4, 5})));
  EXPECT_FALSE(same_elements(a, Tensor::wrap(memory + 1, kCpu, float32, {4, 5})));
  EXPECT_TRUE(same_elements(a.with_layout({1, 4, 5}, {77, 5, 1}, 0), a.with_layout({1, 4, 5}, {-3, 5, 1}, 0)));
}

TEST(Check, Dims) {
  EXPECT_EQ(normalize_dim("op", -1, 3), 2);
  EXPECT_EQ(normalize_dim("op", 0, 0), 0);
  EXPECT_EQ(normalize_dim("op", -1, 0), 0);
  EXPECT_THROW(normalize_dim("op", 3, 3), IndexError);
  EXPECT_THROW(normalize_dim("op", -4, 3), IndexError);
  EXPECT_THROW(normalize_dim("op", 1, 0), IndexError);
  EXPECT_EQ(normalize_dims("op", {-1, 0}, 3), Dims({2, 0}));
  EXPECT_THROW(normalize_dims("op", {0, -3}, 3), ValueError);
  try {
    normalize_dim("softmax", 5, 3);
  } catch (const IndexError& e) {
    EXPECT_STREQ(e.what(), "softmax: dim 5 is out of range for 3 dims (expected -3 to 2)");
  }
}

TEST(Check, Broadcast) {
  EXPECT_EQ(broadcast_shapes("op", {3, 1}, {4}), Dims({3, 4}));
  EXPECT_EQ(broadcast_shapes("op", {}, {2, 0}), Dims({2, 0}));
  EXPECT_EQ(broadcast_shapes("op", {1}, {0}), Dims({0}));
  EXPECT_EQ(broadcast_shapes("op", {5, 1, 7}, {1, 6, 1}), Dims({5, 6, 7}));
  EXPECT_THROW(broadcast_shapes("op", {2}, {3}), ShapeError);
  EXPECT_THROW(broadcast_shapes("op", {2}, {0}), ShapeError);
  static float memory[12];
  EXPECT_EQ(broadcast_strides(Tensor::wrap(memory, kCpu, float32, {3, 1}), {2, 3, 4}), Dims({0, 1, 0}));
}

TEST(Check, ResultStridesKeepTheDimensionOrder) {
  static float memory[1000];
  const auto order = [&](Dims shape, Dims strides, Dims result) {
    return result_strides(result, Tensor::wrap(memory, kCpu, float32, shape, strides));
  };
  // Channels-last stays channels-last, also when the size of a dim changes or the rows have gaps.
  EXPECT_EQ(order({2, 3, 4, 5}, {60, 1, 15, 3}, {2, 3, 4, 5}), Dims({60, 1, 15, 3}));
  EXPECT_EQ(order({2, 3, 4, 5}, {80, 1, 20, 4}, {2, 3, 4, 5}), Dims({60, 1, 15, 3}));
  EXPECT_EQ(order({2, 3}, {1, 2}, {2, 1}), Dims({1, 2}));
  EXPECT_EQ(order({2, 3}, {1, 2}, {2, 3, 1}), Dims({3, 1, 1}));  // another rank: row-major
  EXPECT_EQ(order({2, 3}, {3, 1}, {2, 3}), Dims({3, 1}));
}

TEST(Tensor, WrapChecksAndCleansWhatItIsGiven) {
  static float memory[100];
  EXPECT_THROW(Tensor::wrap(memory, kCpu, float32, {-1}), ShapeError);
  EXPECT_THROW(Tensor::wrap(memory, kCpu, float32, {2, 3}, {1}), ShapeError);
  EXPECT_THROW(Tensor::wrap(memory, kCpu, float32, {2, 3}, {-3, 1}), ValueError);
  EXPECT_THROW(Tensor::empty({int64_t{1} << 40, int64_t{1} << 40}, float32), OutOfMemoryError);
  EXPECT_THROW(Tensor::empty({int64_t{1} << 40, int64_t{1} << 40, 0}, float32), OutOfMemoryError);
  EXPECT_NO_THROW(Tensor::empty({int64_t{1} << 40, 0}, float32));
  const Tensor one = Tensor::wrap(memory, kCpu, float32, {1, 1});
  EXPECT_THROW(one.with_layout({int64_t{1} << 40, int64_t{1} << 40}, {0, 0}, 0), ShapeError);
  EXPECT_EQ(one.with_layout({int64_t{1} << 40, 1 << 20}, {0, 0}, 0).numel(), int64_t{1} << 60);
  const Tensor junk = Tensor::wrap(memory, kCpu, float32, {1, 3, 1}, {-9, 1, int64_t{1} << 50});
  EXPECT_TRUE(junk.is_contiguous());
  EXPECT_FALSE(Tensor::wrap(memory, kCpu, float32, {2, 3}, {6, 2}).is_contiguous());
  EXPECT_TRUE(Tensor::wrap(memory, kCpu, float32, {0, 3}, {6, 2}).is_contiguous());
  EXPECT_FALSE(Tensor().defined());
}

TEST(Tensor, WrapKeepsTheOwner) {
  auto owner = std::make_shared<std::vector<float>>(6, 2.0f);
  std::weak_ptr<void> watch = owner;
  Tensor view = Tensor::wrap(owner->data(), kCpu, float32, {2, 3}, {}, owner).with_layout({3}, {1}, 3);
  owner.reset();
  EXPECT_FALSE(watch.expired());
  EXPECT_EQ(view.data<float>()[0], 2.0f);
  view = Tensor();
  EXPECT_TRUE(watch.expired());
}

TEST(Tensor, Items) {
  static int64_t big = (int64_t{1} << 62) + 1;
  EXPECT_EQ(Tensor::wrap(&big, kCpu, int64, {}).item_int(), big);
  EXPECT_THROW(Tensor::wrap(&big, kCpu, int8, {2}).item_double(), ShapeError);
}

}  // namespace
}  // namespace tenor::core
