#include "tenor/sort.h"

#include "src/ops/sort/sort_reference.h"
#include "src/ops/sort/sort_testing.h"
#include "tenor/view.h"

namespace tenor {
namespace {

using testing::all_bits;
using testing::draw;
using testing::expect_refusal;
using testing::ints;
using testing::kOrderable;
using testing::poisoned;
using testing::tensor_of;

/// Row r of x along dim, as a 1-d view; rows in index order of the other dims.
Tensor row_of(const Tensor& x, int dim, int64_t r) {
  Tensor rows = movedim(x, {dim}, {-1});
  for (int d = rows.ndim() - 2; d >= 0; --d) {
    const int64_t size = rows.shape(d);
    rows = select(rows, d, r % size);
    r /= size;
  }
  return rows;
}
int64_t rows_in(const Tensor& x, int dim) { return x.shape(dim) == 0 ? 0 : x.numel() / x.shape(dim); }

/// values and indices along dim are x's elements at `places`, bit for bit.
void expect_row(const Tensor& x, const Tensor& values, const Tensor& indices, const std::vector<int64_t>& places,
                const std::string& what) {
  ASSERT_EQ(ints(indices), places) << what;
  const std::vector<uint64_t> source = all_bits(x), got = all_bits(values);
  for (size_t i = 0; i < places.size(); ++i) ASSERT_EQ(got[i], source[places[i]]) << what << " at " << i;
}

std::vector<int64_t> prefix(std::vector<int64_t> places, int64_t k) {
  places.resize(static_cast<size_t>(k));
  return places;
}

struct Drawn {
  Tensor x;
  int dim;
  bool descending;
  std::string what;
};

Drawn draw_case(std::mt19937_64& rng, DType dtype) {
  constexpr int64_t kLengths[] = {1, 2, 3, 16, 31, 32, 33, 64, 65, 100, 513, 1024, 2100, 5000};
  Dims shape;
  const int ndim = 1 + static_cast<int>(rng() % 3), dim = static_cast<int>(rng() % ndim);
  for (int d = 0; d < ndim; ++d)
    shape.push_back(d == dim ? kLengths[rng() % std::size(kLengths)] : static_cast<int64_t>(rng() % 4));
  const bool ties = rng() % 2;
  Tensor x = draw(shape, dtype, rng, ties);
  return {x, dim, rng() % 2 == 1, std::string(name(dtype)) + to_string(shape) + " dim " + std::to_string(dim)};
}

TEST(Sort, MatchesTheReferenceOnRandomShapesStridesAndDtypes) {
  std::mt19937_64 rng(1);
  for (DType dtype : kOrderable) {
    for (int round = 0; round < 25; ++round) {
      const auto [x, dim, descending, what] = draw_case(rng, dtype);
      const SortResult out{poisoned(x.shape(), dtype), poisoned(x.shape(), int64)};
      const SortResult given = sort(x, {.dim = dim, .descending = descending, .out = out});
      const SortResult fresh = sort(x, {.dim = dim - x.ndim(), .descending = descending});
      EXPECT_EQ(given.values.raw(), out.values.raw());
      EXPECT_EQ(all_bits(argsort(x, {.dim = dim, .descending = descending})), all_bits(fresh.indices));
      for (int64_t r = 0; r < rows_in(x, dim); ++r) {
        const Tensor row = row_of(x, dim, r);
        const auto order = reference::sort_order(reference::numbers(row), descending);
        expect_row(row, row_of(out.values, dim, r), row_of(out.indices, dim, r), order, what + " out=");
        expect_row(row, row_of(fresh.values, dim, r), row_of(fresh.indices, dim, r), order, what);
      }
    }
  }
}

TEST(Topk, IsTheBeginningOfTheSort) {
  std::mt19937_64 rng(2);
  for (DType dtype : kOrderable) {
    for (int round = 0; round < 25; ++round) {
      const auto [x, dim, largest, what] = draw_case(rng, dtype);
      const int64_t n = x.shape(dim), most = rng() % 2 ? n : std::min<int64_t>(n, 7),
                    k = static_cast<int64_t>(rng() % (most + 1));
      const SortResult got = topk(x, k, {.dim = dim, .largest = largest, .sorted = rng() % 2 == 1});
      for (int64_t r = 0; r < rows_in(x, dim); ++r) {
        const Tensor row = row_of(x, dim, r);
        const auto order = prefix(reference::sort_order(reference::numbers(row), largest), k);
        if (k > 0)
          expect_row(row, row_of(got.values, dim, r), row_of(got.indices, dim, r), order,
                     what + " k " + std::to_string(k));
      }
    }
  }
}

TEST(KthvalueAndMedian, MatchTheReference) {
  std::mt19937_64 rng(3);
  for (DType dtype : kOrderable) {
    for (int round = 0; round < 25; ++round) {
      const auto [x, dim, unused, what] = draw_case(rng, dtype);
      const int64_t k = 1 + static_cast<int64_t>(rng() % x.shape(dim));
      const SortResult kth = kthvalue(x, k, {.dim = dim, .keepdim = true}),
                       mid = median(x, {.dim = dim, .keepdim = true});
      const SortResult flat = kthvalue(x, k, {.dim = dim});
      EXPECT_EQ(flat.values.ndim(), x.ndim() - 1);
      EXPECT_EQ(all_bits(flat.indices), all_bits(kth.indices));
      for (int64_t r = 0; r < rows_in(x, dim); ++r) {
        const Tensor row = row_of(x, dim, r);
        const reference::Row numbers = reference::numbers(row);
        expect_row(row, row_of(kth.values, dim, r), row_of(kth.indices, dim, r),
                   {reference::sort_order(numbers, false)[k - 1]}, what);
        expect_row(row, row_of(mid.values, dim, r), row_of(mid.indices, dim, r), {reference::median_place(numbers)},
                   what);
      }
      if (x.numel() == 0) continue;
      const int64_t place = reference::median_place(reference::numbers(x));
      EXPECT_EQ(all_bits(median(x).values)[0], all_bits(x)[place]) << what;
      EXPECT_FALSE(median(x).indices.defined());
    }
  }
}

TEST(Sort, RowsThatAreNeighboursInMemory) {
  std::mt19937_64 rng(8);
  for (DType dtype : {uint8, float16, float32, int64}) {
    for (int64_t n : {5, 20, 70, 300}) {
      const Tensor packed = draw({2, n, 37}, dtype, rng, true);
      for (const Tensor& x : {packed, permute(packed, {2, 1, 0}), slice(packed, 2, 1, 36)}) {
        const SortResult all = sort(x, {.dim = 1}), best = topk(x, 2, {.dim = 1, .largest = false}),
                         mid = median(x, {.dim = 1, .keepdim = true});
        for (int64_t r = 0; r < rows_in(x, 1); ++r) {
          const Tensor row = row_of(x, 1, r);
          const auto order = reference::sort_order(reference::numbers(row), false);
          expect_row(row, row_of(all.values, 1, r), row_of(all.indices, 1, r), order, "sort");
          expect_row(row, row_of(best.values, 1, r), row_of(best.indices, 1, r), prefix(order, 2), "topk");
          ASSERT_EQ(ints(row_of(mid.indices, 1, r))[0], reference::median_place(reference::numbers(row)));
        }
      }
    }
  }
}

TEST(Sort, EveryNanIsTheGreatestAndKeepsItsBits) {
  const Tensor x = Tensor::empty({6}, float32);
  const uint32_t bits[] = {0xBF800000, 0xFFC00001, 0x7F800000,
                           0x7F800001, 0x80000000, 0x00000000};  // -1 -nan inf snan -0 0
  std::memcpy(x.raw(), bits, sizeof bits);
  EXPECT_EQ(ints(argsort(x)), (std::vector<int64_t>{0, 4, 5, 2, 1, 3}));
  EXPECT_EQ(ints(argsort(x, {.descending = true})), (std::vector<int64_t>{1, 3, 2, 4, 5, 0}));
  EXPECT_EQ(all_bits(sort(x).values), (std::vector<uint64_t>{bits[0], bits[4], bits[5], bits[2], bits[1], bits[3]}));
  EXPECT_EQ(ints(topk(x, 3).indices), (std::vector<int64_t>{1, 3, 2}));
  EXPECT_EQ(ints(median(x, {.dim = 0}).indices), (std::vector<int64_t>{1}));
  EXPECT_EQ(ints(kthvalue(x, 3).indices), (std::vector<int64_t>{5}));
}

TEST(Sort, SharesLongRowsAmongThreadsWithTheSameResult) {
  std::mt19937_64 rng(4);
  const int threads = num_threads();
  for (DType dtype : {float32, float64, int64, float16}) {
    for (bool ties : {false, true}) {
      const Tensor x = draw({1, 70001}, dtype, rng, ties);
      const auto order = reference::sort_order(reference::numbers(x), true);
      for (int count : {1, 3, 16}) {
        set_num_threads(count);
        const std::string what = std::string(name(dtype)) + " threads " + std::to_string(count);
        const SortResult all = sort(x, {.descending = true}), few = topk(x, 100), many = topk(x, 20000);
        expect_row(x, all.values, all.indices, order, what);
        expect_row(x, few.values, few.indices, prefix(order, 100), what);
        expect_row(x, many.values, many.indices, prefix(order, 20000), what);
        EXPECT_EQ(ints(kthvalue(x, 70001 - 777).indices)[0],
                  reference::sort_order(reference::numbers(x), false)[70000 - 777])
            << what;
      }
      set_num_threads(threads);
    }
  }
}

TEST(Select, RowsThatDeceiveASampleAreStillExact) {
  // Every place that an even sample looks at holds another value than the rest.
  const int64_t n = 8192;
  const Tensor x = Tensor::empty({n}, int32);
  for (int64_t i = 0; i < n; ++i)
    x.data<int32_t>()[i] = i % 64 == 0 ? static_cast<int32_t>(i) : i % 2 ? -static_cast<int32_t>(i) : 5;
  const auto order = reference::sort_order(reference::numbers(x), false);
  for (int64_t k : {1, 100, 1000, 4096, 5000, 8192}) EXPECT_EQ(ints(kthvalue(x, k).indices)[0], order[k - 1]) << k;
  for (int64_t k : {200, 1000}) {
    expect_row(x, topk(x, k, {.largest = false}).values, topk(x, k, {.largest = false}).indices, prefix(order, k),
               "smallest");
    const auto down = reference::sort_order(reference::numbers(x), true);
    expect_row(x, topk(x, k).values, topk(x, k).indices, prefix(down, k), "largest");
  }
  const Tensor same = expand(tensor_of<float>({1}, float32, {2}), {n});
  EXPECT_EQ(ints(median(same, {.dim = 0}).indices)[0], (n - 1) / 2);
  EXPECT_EQ(ints(topk(same, 300).indices)[299], 299);
}

TEST(Topk, SurvivesTheWorstOrder) {
  const Tensor x = Tensor::empty({2, 40000}, float32);
  for (int64_t i = 0; i < x.numel(); ++i) x.data<float>()[i] = static_cast<float>(i % 40000);
  const SortResult got = topk(x, 300);
  for (int64_t r = 0; r < 2; ++r)
    for (int64_t i = 0; i < 300; ++i) ASSERT_EQ(ints(got.indices)[r * 300 + i], 39999 - i);
}

TEST(Sort, ARowAloneEqualsTheRowInABatch) {
  std::mt19937_64 rng(5);
  const Tensor x = draw({9, 300}, float32, rng, true);
  const SortResult batch = sort(x), best = topk(x, 5);
  for (int64_t r = 0; r < 9; ++r) {
    EXPECT_EQ(all_bits(sort(select(x, 0, r)).indices), all_bits(select(batch.indices, 0, r)));
    EXPECT_EQ(all_bits(topk(select(x, 0, r), 5).values), all_bits(select(best.values, 0, r)));
  }
}

TEST(Sort, OutMayBeTheInputStridedAndNothingElseIsWritten) {
  std::mt19937_64 rng(6);
  const Tensor x = draw({3, 50}, int64, rng, true), before = x.clone();
  const SortResult want = sort(before);
  sort(x, {.out = {x, poisoned({3, 50}, int64)}});
  EXPECT_EQ(all_bits(x), all_bits(want.values));
  const Tensor y = before.clone();
  sort(y, {.out = {poisoned({3, 50}, int64), y}});  // the indices over the input
  EXPECT_EQ(all_bits(y), all_bits(want.indices));
  const Tensor wide = poisoned({12}, float32), places = poisoned({12}, int64);
  const Tensor v = slice(wide, 0, {}, {}, 4), i = slice(places, 0, {}, {}, 4);
  topk(tensor_of<float>({4}, float32, {1, 4, 3, 2}), 3, {.out = {v, i}});
  EXPECT_EQ(ints(places), (std::vector<int64_t>{1, -1, -1, -1, 2, -1, -1, -1, 3, -1, -1, -1}));
}

TEST(Sort, KeepsTheDimensionOrderAndTakesBroadcastAndEmptyInputs) {
  const Tensor x = transpose(Tensor::empty({3, 5}, float32), 0, 1);
  std::mt19937_64 rng(7);
  testing::fill(x, rng, true);
  EXPECT_EQ(sort(x, {.dim = 0}).values.strides(), x.strides());
  EXPECT_EQ(topk(x, 2, {.dim = 0}).indices.strides(), (Dims{1, 2}));
  const Tensor wide = expand(tensor_of<float>({3, 1}, float32, {2, 1, 3}), {3, 40});
  EXPECT_EQ(ints(argsort(select(wide, 0, 1)))[39], 39);
  EXPECT_EQ(ints(argsort(select(wide, 1, 0))), (std::vector<int64_t>{1, 0, 2}));
  EXPECT_EQ(sort(Tensor::empty({0, 3}, float32), {.dim = 0}).indices.shape(), (Dims{0, 3}));
  EXPECT_EQ(topk(Tensor::empty({2, 3}, float32), 0).values.shape(), (Dims{2, 0}));
  EXPECT_EQ(median(Tensor::empty({0, 0}, float32), {.dim = 1}).values.shape(), (Dims{0}));
}

TEST(Sort, AScalarIsARowOfOne) {
  const Tensor x = tensor_of<float>({}, float32, {7});
  EXPECT_EQ(sort(x).values.ndim(), 0);
  EXPECT_EQ(ints(sort(x).indices), std::vector<int64_t>{0});
  EXPECT_EQ(topk(x, 1).values.item_double(), 7);
  EXPECT_EQ(kthvalue(x, 1).values.item_double(), 7);
  EXPECT_EQ(median(x, {.dim = 0, .keepdim = true}).values.item_double(), 7);
  EXPECT_EQ(median(x).values.item_double(), 7);
}

TEST(Sort, ShapesAloneGiveShapes) {
  const Tensor x = Tensor::empty({4, 9}, float16, {DeviceType::kMeta, 0});
  EXPECT_EQ(sort(x, {.dim = 0}).indices.shape(), (Dims{4, 9}));
  EXPECT_EQ(argsort(x).device().type, DeviceType::kMeta);
  EXPECT_EQ(topk(x, 3).values.shape(), (Dims{4, 3}));
  EXPECT_EQ(kthvalue(x, 3, {.dim = 0}).values.shape(), Dims{9});
  EXPECT_EQ(median(x).values.shape(), Dims());
  EXPECT_EQ(searchsorted(x, x).dtype(), int64);
}

TEST(Sort, ErrorsNameOperatorArgumentAndBothSides) {
  const Tensor x = Tensor::empty({2, 3}, float32);
  expect_refusal<IndexError>([&] { sort(x, {.dim = 2}); }, "sort: dim 2 is out of range");
  expect_refusal<IndexError>([&] { argsort(x, {.dim = -3}); }, "argsort: dim -3");
  expect_refusal<ValueError>([&] { topk(x, 4); }, "topk: k must be in 0..3, the size of dim -1, got 4");
  expect_refusal<ValueError>([&] { topk(x, -1); }, "topk: k must be in 0..3");
  expect_refusal<ValueError>([&] { kthvalue(x, 0); }, "kthvalue: k must be in 1..3, the size of dim -1, got 0");
  expect_refusal<ShapeError>([&] { median(Tensor::empty({2, 0}, float32), {.dim = 1}); }, "median: dim 1");
  expect_refusal<ShapeError>([&] { median(Tensor::empty({0}, float32)); }, "median: x of shape (0,)");
  expect_refusal<DTypeError>([&] { sort(Tensor::empty({2}, float8_e5m2)); }, "sort: x must be float16 to float64");
  expect_refusal<DTypeError>([&] { sort(Tensor()); }, "sort: x is required");
  expect_refusal<ShapeError>(
      [&] {
        topk(x, 2, {.out = {Tensor::empty({2, 3}, float32), Tensor::empty({2, 2}, int64)}});
      },
      "topk: out.values must have shape (2, 2), got (2, 3)");
  expect_refusal<DTypeError>(
      [&] {
        sort(x, {.out = {Tensor::empty({2, 3}, float32), Tensor::empty({2, 3}, int32)}});
      },
      "sort: out.indices must be int64, got int32");
  expect_refusal<ValueError>([&] { sort(x, {.out = {Tensor::empty({2, 3}, float32), {}}}); }, "sort: out= needs both");
}

}  // namespace
}  // namespace tenor
