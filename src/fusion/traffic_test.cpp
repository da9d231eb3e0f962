#include "src/fusion/traffic.h"

#include <gtest/gtest.h>

#include "src/fusion/axes.h"

namespace tenor::fusion {
namespace {

TEST(Traffic, CountsDistinctElements) {
  EXPECT_EQ(distinct_elements({4, 8}, {8, 1}), 32);
  EXPECT_EQ(distinct_elements({4, 8}, {0, 1}), 8);   // expanded
  EXPECT_EQ(distinct_elements({8, 4}, {1, 8}), 32);  // transposed
  EXPECT_EQ(distinct_elements({}, {}), 1);
  EXPECT_EQ(distinct_elements({4, 0}, {0, 1}), 0);
  EXPECT_EQ(distinct_elements({6, 3}, {1, 1}), 8);           // windows of 3, one apart
  EXPECT_EQ(distinct_elements({3, 3}, {4, 1}), 9);           // windows with gaps
  EXPECT_EQ(distinct_elements({2, 6, 3}, {100, 1, 1}), 16);  // windows in each of two rows
}

TEST(Traffic, SameElementsHaveOneKey) {
  const Tensor x = Tensor::empty({4, 8}, float32, {DeviceType::kMeta});
  const Tensor t = x.with_layout({8, 4}, {1, 8}, 0), part = x.with_layout({4, 4}, {8, 1}, 4);
  EXPECT_EQ(elements_key(x), elements_key(t));
  EXPECT_NE(elements_key(x), elements_key(part));
}

TEST(Axes, UniteUnlessAValueHasBoth) {
  AxisTable table;
  const int a = table.fresh(4), b = table.fresh(4), c = table.fresh(4);
  table.separate({a, b});
  EXPECT_TRUE(table.unite(b, c));
  EXPECT_EQ(table.find(b), table.find(c));
  EXPECT_FALSE(table.unite(a, c)) << "c is b, which is apart from a";
  EXPECT_EQ(table.set_of({a, 0, b, c}).size(), 2u);
}

}  // namespace
}  // namespace tenor::fusion
