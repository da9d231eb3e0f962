#include "tenor/dtype.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "tenor/dims.h"
#include "tenor/error.h"

namespace tenor {
namespace {

// Row and column in the order of DType; "--" is refused.
constexpr const char* kNames[kDTypes] = {"b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4",
                                         "u8", "f2", "bf", "f4", "f8", "e4", "e5"};
constexpr const char* kPromotion[kDTypes] = {
    /* b1 */ "b1 i1 i2 i4 i8 u1 u2 u4 u8 f2 bf f4 f8 e4 e5",
    /* i1 */ "i1 i1 i2 i4 i8 i2 i4 i8 -- f2 bf f4 f8 e4 e5",
    /* i2 */ "i2 i2 i2 i4 i8 i2 i4 i8 -- f2 bf f4 f8 e4 e5",
    /* i4 */ "i4 i4 i4 i4 i8 i4 i4 i8 -- f2 bf f4 f8 e4 e5",
    /* i8 */ "i8 i8 i8 i8 i8 i8 i8 i8 -- f2 bf f4 f8 e4 e5",
    /* u1 */ "u1 i2 i2 i4 i8 u1 u2 u4 u8 f2 bf f4 f8 e4 e5",
    /* u2 */ "u2 i4 i4 i4 i8 u2 u2 u4 u8 f2 bf f4 f8 e4 e5",
    /* u4 */ "u4 i8 i8 i8 i8 u4 u4 u4 u8 f2 bf f4 f8 e4 e5",
    /* u8 */ "u8 -- -- -- -- u8 u8 u8 u8 f2 bf f4 f8 e4 e5",
    /* f2 */ "f2 f2 f2 f2 f2 f2 f2 f2 f2 f2 f4 f4 f8 f2 f2",
    /* bf */ "bf bf bf bf bf bf bf bf bf f4 bf f4 f8 bf bf",
    /* f4 */ "f4 f4 f4 f4 f4 f4 f4 f4 f4 f4 f4 f4 f8 f4 f4",
    /* f8 */ "f8 f8 f8 f8 f8 f8 f8 f8 f8 f8 f8 f8 f8 f8 f8",
    /* e4 */ "e4 e4 e4 e4 e4 e4 e4 e4 e4 f2 bf f4 f8 e4 f4",
    /* e5 */ "e5 e5 e5 e5 e5 e5 e5 e5 e5 f2 bf f4 f8 f4 e5",
};

TEST(DType, PromotionTable) {
  for (int a = 0; a < kDTypes; ++a) {
    for (int b = 0; b < kDTypes; ++b) {
      const std::string want(kPromotion[a] + 3 * b, 2);
      const auto da = static_cast<DType>(a), db = static_cast<DType>(b);
      if (want == "--") {
        EXPECT_THROW(promote(da, db), DTypeError) << kNames[a] << " " << kNames[b];
      } else {
        EXPECT_EQ(kNames[static_cast<int>(promote(da, db))], want) << kNames[a] << " " << kNames[b];
      }
    }
  }
}

TEST(DType, NamesAreUniqueAndReadBack) {
  std::set<std::string_view> seen;
  for (int i = 0; i < kDTypes; ++i) {
    const auto d = static_cast<DType>(i);
    EXPECT_TRUE(seen.insert(name(d)).second);
    EXPECT_EQ(dtype_from_name(name(d)), d);
    EXPECT_EQ(is_float(d) + is_integer(d) + (d == boolean), 1);
    EXPECT_EQ(is_integer(d), is_signed(d) || is_unsigned(d));
  }
  EXPECT_EQ(dtype_from_name("bf16"), bfloat16);
  EXPECT_EQ(dtype_from_name("double"), float64);
  EXPECT_THROW(dtype_from_name("float31"), DTypeError);
  EXPECT_THROW(dtype_from_name(""), DTypeError);
}

TEST(DType, Sizes) {
  EXPECT_EQ(item_size(boolean), 1u);
  EXPECT_EQ(item_size(bfloat16), sizeof(BFloat16));
  EXPECT_EQ(item_size(float8_e5m2), sizeof(Float8E5M2));
  EXPECT_EQ(item_size(uint64), 8u);
}

TEST(Dims, GrowsPastItsInlineSpaceAndBack) {
  Dims d;
  for (int64_t i = 0; i < 40; ++i) {
    d.push_back(i);
    ASSERT_EQ(d.size(), static_cast<size_t>(i + 1));
    ASSERT_EQ(d.back(), i);
  }
  for (int64_t i = 0; i < 40; ++i) EXPECT_EQ(d[i], i);
  Dims copy = d, moved = std::move(d);
  EXPECT_EQ(copy, moved);
  EXPECT_TRUE(d.empty());  // NOLINT: a moved-from Dims is empty and usable
  d.push_back(7);
  EXPECT_EQ(d, Dims({7}));
  copy = d;
  EXPECT_EQ(copy, Dims({7}));
  copy = moved;
  EXPECT_EQ(copy.size(), 40u);
  copy = std::move(moved);
  EXPECT_EQ(copy[39], 39);
}

TEST(Dims, InsertErase) {
  Dims d{1, 2, 3};
  d.insert(0, 9);
  d.insert(4, 8);
  EXPECT_EQ(d, Dims({9, 1, 2, 3, 8}));
  d.erase(0);
  d.erase(3);
  EXPECT_EQ(d, Dims({1, 2, 3}));
  EXPECT_EQ(to_string(d), "(1, 2, 3)");
  EXPECT_EQ(to_string(Dims({5})), "(5,)");
  EXPECT_EQ(to_string(Dims()), "()");
  EXPECT_EQ(product(d), 6);
  EXPECT_EQ(product(Dims()), 1);
}

TEST(Dims, InsertAtTheEdgeOfTheInlineSpace) {
  Dims d(8, 1);
  d.insert(3, 5);
  EXPECT_EQ(d, Dims({1, 1, 1, 5, 1, 1, 1, 1, 1}));
}

}  // namespace
}  // namespace tenor
