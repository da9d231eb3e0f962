// Masks, joining and rearranging.
#include "src/core/testing.h"
#include "src/ops/index/index_reference.h"
#include "tenor/index.h"
#include "tenor/view.h"

namespace tenor {
namespace {

using namespace testing;
using reference::Array;
using reference::for_each;

Array array_of(const Tensor& x) { return {x.shape(), values(x)}; }

/// out[at] = x[from(at)].
std::vector<double> mapped(const Tensor& x, const Dims& shape, const std::function<Dims(Dims)>& from) {
  const Array all = array_of(x);
  std::vector<double> out;
  for_each(shape, [&](const Dims& at) { out.push_back(all[from(at)]); });
  return out;
}

Tensor mask_of(Draw& draw, const Dims& shape) {
  const Tensor m = draw.any_layout(shape, boolean);
  std::vector<double> v(static_cast<size_t>(product(shape)));
  for (double& e : v) e = draw.coin();
  assign(m, v);
  return m;
}

TEST(Masks, RowMajorOrderOfTheView) {
  Draw draw(1);
  for (int i = 0; i < 120; ++i) {
    const Dims shape = i % 30 == 0 ? Dims{70, 500} : Dims{1 + draw.upto(6), 1 + draw.upto(5), 1 + draw.upto(7)};
    const DType dtype = i % 2 ? float32 : bfloat16;
    const Tensor x = draw.view(shape, dtype), mask = mask_of(draw, shape);
    const std::vector<double> all = values(x), bits = values(mask);
    std::vector<double> want, places, filled = all;
    for (size_t k = 0; k < all.size(); ++k)
      if (bits[k] != 0) want.push_back(all[k]);
    EXPECT_EQ(values(masked_select(x, mask)), want);
    std::vector<double> found;
    const Array truth = array_of(mask);
    for_each(shape, [&](const Dims& at) {
      if (truth[at] != 0) found.insert(found.end(), at.begin(), at.end());
    });
    const Tensor where = nonzero(mask);
    EXPECT_EQ(where.shape(), (Dims{static_cast<int64_t>(want.size()), static_cast<int64_t>(shape.size())}));
    EXPECT_EQ(values(where), found);
    const Tensor source = draw.view({static_cast<int64_t>(want.size()) + 2}, dtype);
    const std::vector<double> given = values(source);
    for (size_t k = 0, next = 0; k < all.size(); ++k)
      if (bits[k] != 0) filled[k] = given[next++];
    EXPECT_EQ(values(masked_scatter(x, mask, source)), filled);
    EXPECT_EQ(values(x), all);
    masked_scatter_(x, mask, source);
    EXPECT_EQ(values(x), filled);
    EXPECT_EQ(values(index_get(x, {mask})), values(masked_select(x, mask)));
  }
}

TEST(Masks, BroadcastAndErrors) {
  const Tensor x = tensor_of({2, 3}, float32, {0, 1, 2, 3, 4, 5}), row = tensor_of({3}, boolean, {1, 0, 1});
  EXPECT_EQ(values(masked_select(x, row)), (std::vector<double>{0, 2, 3, 5}));
  EXPECT_EQ(values(masked_select(narrow(x, 0, 0, 1), tensor_of({2, 1}, boolean, {1, 1}))),
            (std::vector<double>{0, 1, 2, 0, 1, 2}));
  expect_error<DTypeError>([&] { masked_select(x, x); }, "masked_select: mask must be bool, got float32");
  expect_error<ShapeError>([&] { masked_scatter(x, row, full({3}, float32, 0)); },
                           "masked_scatter: source of shape (3,) has 3 elements, mask selects 4");
  expect_error<DTypeError>([&] { masked_scatter(x, row, full({4}, int32, 0)); },
                           "masked_scatter: source must have x's dtype float32, got int32");
  EXPECT_EQ(values(nonzero(tensor_of({4}, float32, {0, -0.0, kNan, 1}))), (std::vector<double>{2, 3}));
  EXPECT_EQ(nonzero(full({}, float32, 1)).shape(), (Dims{1, 0}));
  expect_error<ShapeError>(
      [&] {
        index_get(x, {tensor_of({2}, boolean, {1, 1}), tensor_of({2}, boolean, {1, 1})});
      },
      "index_get: mask indices[1] has shape (2,), which does not fit x of shape (2, 3) at dim 1");
}

TEST(Cat, AllDtypesAndLayouts) {
  Draw draw(2);
  for (int i = 0; i < 200; ++i) {
    Dims shape{1 + draw.upto(4), 1 + draw.upto(4), 1 + draw.upto(4)};
    const auto dim = static_cast<size_t>(draw.upto(2));
    std::vector<Tensor> pieces;
    DType dtype = boolean;
    std::vector<std::pair<size_t, int64_t>> origin;  // piece and place of each place along dim
    for (int64_t k = draw.upto(3); k >= 0; --k) {
      shape[dim] = draw.upto(4);
      constexpr DType kTypes[] = {float32, bfloat16, int32, float16};
      pieces.push_back(draw.view(shape, kTypes[i % 3 == 0 ? draw.upto(3) : 0]));
      dtype = promote(dtype, pieces.back().dtype());
      for (int64_t j = 0; j < shape[dim]; ++j) origin.emplace_back(pieces.size() - 1, j);
    }
    shape[dim] = static_cast<int64_t>(origin.size());
    std::vector<double> want;
    std::vector<Array> parts;
    for (const Tensor& piece : pieces) parts.push_back(array_of(piece));
    for_each(shape, [&](const Dims& at) {
      Dims from = at;
      const auto [piece, place] = origin[static_cast<size_t>(at[dim])];
      from[dim] = place;
      want.push_back(parts[piece][from]);
    });
    const Tensor got = cat(pieces, static_cast<int64_t>(dim));
    EXPECT_EQ(got.dtype(), dtype);
    EXPECT_EQ(values(got), want);
    EXPECT_EQ(values(cat(pieces, static_cast<int64_t>(dim) - 3, {.out = draw.poisoned(shape, dtype)})), want);
  }
}

TEST(Cat, ManyNarrowPieces) {
  std::vector<Tensor> pieces;
  std::vector<double> want;
  for (int k = 0; k < 50; ++k) pieces.push_back(full({333, k % 3}, int16, k));
  for (int r = 0; r < 333; ++r)
    for (int k = 0; k < 50; ++k)
      for (int j = 0; j < k % 3; ++j) want.push_back(k);
  EXPECT_EQ(values(cat(pieces, 1)), want);
}

TEST(Cat, OutMayBeAPiece) {
  const Tensor x = tensor_of({4}, float32, {1, 2, 3, 4});
  cat({narrow(x, 0, 2, 2), narrow(x, 0, 0, 2)}, 0, {.out = x});
  EXPECT_EQ(values(x), (std::vector<double>{3, 4, 1, 2}));
}

TEST(Cat, Errors) {
  const Tensor two = full({2, 3}, float32, 0), none = full({0}, float32, 0);
  expect_error<ValueError>([&] { cat({}); }, "cat: tensors must not be empty");
  expect_error<IndexError>(
      [&] {
        cat({none, none}, 999);
      },
      "cat: dim 999 is out of range for 1 dims (expected -1 to 0)");
  expect_error<ShapeError>(
      [&] {
        cat({two, none}, 1);
      },
      "cat: tensors[1] has shape (0,), which does not fit tensors[0]'s (2, 3) but for dim 1");
  expect_error<ShapeError>([&] { cat({full({}, float32, 0)}); },
                           "cat: tensors[0] has no dims; stack joins 0-d tensors");
  expect_error<ShapeError>([&] { stack({two, none}); }, "stack: tensors[1] has shape (0,), tensors[0] has (2, 3)");
  expect_error<DTypeError>(
      [&] {
        cat({two.to(uint64), two.to(int64)});
      },
      "cat: uint64 and int64 have no common dtype; convert one of them");
}

TEST(Stack, NewDim) {
  const Tensor a = tensor_of({2}, int8, {1, 2}), b = tensor_of({2}, int8, {3, 4});
  EXPECT_EQ(values(stack({a, b}, -1)), (std::vector<double>{1, 3, 2, 4}));
  EXPECT_EQ(stack({a, b}, 0).shape(), (Dims{2, 2}));
  EXPECT_EQ(values(stack({full({}, int8, 5), full({}, int8, 6)})), (std::vector<double>{5, 6}));
}

TEST(Tile, RepeatAndInterleave) {
  Draw draw(3);
  for (int i = 0; i < 100; ++i) {
    const Tensor x = draw.view({1 + draw.upto(4), 1 + draw.upto(3)}, i % 2 ? float32 : uint8);
    const Dims counts{draw.upto(2), 1 + draw.upto(2), draw.upto(3)};
    const Dims shape{counts[0], x.shape(0) * counts[1], x.shape(1) * counts[2]};
    const auto want = mapped(x, shape, [&](const Dims& at) { return Dims{at[1] % x.shape(0), at[2] % x.shape(1)}; });
    EXPECT_EQ(values(repeat(x, counts)), want);
    EXPECT_EQ(values(tile(x, counts, {.out = draw.poisoned(shape, x.dtype())})), want);
    const int64_t n = draw.upto(3);
    EXPECT_EQ(values(repeat_interleave(x, n, {.dim = 1})), mapped(x, {x.shape(0), x.shape(1) * n}, [&](const Dims& at) {
                return Dims{at[0], at[1] / n};
              }));
    EXPECT_EQ(values(repeat_interleave(x, full({x.shape(0)}, uint8, static_cast<double>(n)), {.dim = 0})),
              values(repeat_interleave(x, n, {.dim = 0})));
  }
  const Tensor x = tensor_of({2, 2}, int32, {1, 2, 3, 4});
  EXPECT_EQ(values(repeat_interleave(x, tensor_of({4}, int64, {0, 2, 1, 0}))), (std::vector<double>{2, 2, 3}));
  EXPECT_EQ(values(tile(x, {2})), (std::vector<double>{1, 2, 1, 2, 3, 4, 3, 4}));
  expect_error<ShapeError>([&] { repeat(x, {2}); },
                           "repeat: sizes (2,) must have an entry for each dim of x, which has shape (2, 2)");
  expect_error<ValueError>([&] { tile(x, {-1}); }, "tile: counts must be >= 0, got (-1,)");
  expect_error<ValueError>([&] { repeat_interleave(x, -1); }, "repeat_interleave: repeats must be >= 0, got -1");
  expect_error<ShapeError>([&] { repeat_interleave(x, full({3}, int64, 1), {.dim = 0}); },
                           "repeat_interleave: repeats must have 1 or 2 entries, got shape (3,)");
  expect_error<ValueError>([&] { repeat_interleave(x, 2, {.dim = 0, .output_size = 5}); },
                           "repeat_interleave: output_size must be the sum of the repeats, 4, got 5");
}

TEST(Flip, AndRoll) {
  Draw draw(4);
  for (int i = 0; i < 100; ++i) {
    const Tensor x =
        draw.view({1 + draw.upto(5), 1 + draw.upto(4), 1 + draw.upto(i % 10 ? 6 : 300)}, i % 2 ? float32 : int8);
    const Dims n = x.shape();
    EXPECT_EQ(values(flip(x, {2, 0})), mapped(x, n, [&](const Dims& at) {
                return Dims{n[0] - 1 - at[0], at[1], n[2] - 1 - at[2]};
              }));
    EXPECT_EQ(values(flip(x, {-2}, {.out = draw.poisoned(n, x.dtype())})), mapped(x, n, [&](const Dims& at) {
                return Dims{at[0], n[1] - 1 - at[1], at[2]};
              }));
    const int64_t a = draw.upto(14) - 7, b = draw.upto(14) - 7;
    EXPECT_EQ(values(roll(x, {a, b}, {1, 2})), mapped(x, n, [&](const Dims& at) {
                return Dims{at[0], (at[1] - a + 700 * n[1]) % n[1], (at[2] - b + 700 * n[2]) % n[2]};
              }));
  }
  const Tensor x = tensor_of({2, 2}, int32, {1, 2, 3, 4});
  EXPECT_EQ(values(roll(x, {1})), (std::vector<double>{4, 1, 2, 3}));
  flip(x, {0}, {.out = x});
  EXPECT_EQ(values(x), (std::vector<double>{3, 4, 1, 2}));
  expect_error<ValueError>([&] { flip(x, {0, -2}); }, "flip: dims -2 is given twice in (0, -2)");
  expect_error<ValueError>([&] { roll(x, {1, 2}, {0}); }, "roll: shifts (1, 2) and dims (0,) differ in length");
}

TEST(Sizes, BeyondSixtyFourBitsAreRefused) {
  const Tensor x = full({4}, int8, 1), wide = expand(full({1}, int8, 1), {INT64_MAX});
  EXPECT_THROW(tile(x, {int64_t{1} << 62}), OutOfMemoryError);
  EXPECT_THROW(repeat_interleave(x, int64_t{1} << 62), OutOfMemoryError);
  EXPECT_THROW(repeat_interleave(x, full({4}, int64, 0x1p62)), OutOfMemoryError);
  expect_error<OutOfMemoryError>([&] { repeat_interleave(x, full({4}, uint64, 0x1p63)); },
                                 "repeat_interleave: repeats 9223372036854775808 at 0 exceeds the address space");
  EXPECT_THROW(cat({wide, x}), OutOfMemoryError);
  EXPECT_THROW(one_hot(tensor_of({1}, int64, {0x1p63})), OutOfMemoryError);
}

TEST(OneHot, ClassesFromZero) {
  EXPECT_EQ(values(one_hot(tensor_of({2}, uint8, {2, 0}))), (std::vector<double>{0, 0, 1, 1, 0, 0}));
  EXPECT_EQ(one_hot(full({2, 0}, int64, 0), {.num_classes = 4}).shape(), (Dims{2, 0, 4}));
  expect_error<IndexError>(
      [&] {
        one_hot(tensor_of({2}, int64, {0, -1}), {.num_classes = 3});
      },
      "one_hot: class at (1,) is -1, out of range for size 3 (expected 0 to 2)");
  expect_error<IndexError>([&] { one_hot(tensor_of({1}, int32, {3}), {.num_classes = 3}); },
                           "one_hot: class at (0,) is 3, out of range for size 3 (expected 0 to 2)");
  expect_error<ShapeError>([&] { one_hot(full({0}, int64, 0)); },
                           "one_hot: num_classes is not determined by an empty x of shape (0,); give it");
}

}  // namespace
}  // namespace tenor
