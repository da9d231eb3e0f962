#include <map>

#include "src/core/type_name.h"
#include "src/ops/sort/sort_reference.h"
#include "src/ops/sort/sort_testing.h"
#include "tenor/sort.h"
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

std::vector<double> doubles(const Tensor& x) {
  const reference::Row numbers = reference::numbers(x);
  return {numbers.begin(), numbers.end()};
}

TEST(Unique, MatchesTheReference) {
  std::mt19937_64 rng(11);
  for (DType dtype : kOrderable) {
    for (int round = 0; round < 12; ++round) {
      const Tensor x =
          draw({static_cast<int64_t>(rng() % 4), static_cast<int64_t>(rng() % 300)}, dtype, rng, rng() % 2);
      const reference::Row row = reference::numbers(x);
      const auto order = reference::sort_order(row, false), starts = reference::unique_starts(row, order);
      const UniqueResult got = unique(x, {.return_inverse = true, .return_counts = true});
      ASSERT_EQ(got.values.shape(), Dims{static_cast<int64_t>(starts.size())});
      ASSERT_EQ(got.inverse_indices.shape(), x.shape());
      const auto source = all_bits(x), values = all_bits(got.values);
      const auto inverse = ints(got.inverse_indices), counts = ints(got.counts);
      for (size_t g = 0; g < starts.size(); ++g) {
        const int64_t end = g + 1 < starts.size() ? starts[g + 1] : static_cast<int64_t>(order.size());
        ASSERT_EQ(values[g], source[order[starts[g]]]);
        ASSERT_EQ(counts[g], end - starts[g]);
        for (int64_t p = starts[g]; p < end; ++p) ASSERT_EQ(inverse[order[p]], static_cast<int64_t>(g));
      }
    }
  }
}

TEST(Unique, LongRowsAreTheSameOnAnyThreadCount) {
  std::mt19937_64 rng(12);
  const int threads = num_threads();
  for (DType dtype : {float32, int64, float64}) {
    const Tensor x = draw({70000}, dtype, rng, true);
    set_num_threads(1);
    const UniqueResult alone = unique(x, {.return_inverse = true, .return_counts = true});
    set_num_threads(7);
    const UniqueResult shared = unique(x, {.return_inverse = true, .return_counts = true});
    set_num_threads(threads);
    EXPECT_EQ(all_bits(alone.values), all_bits(shared.values));
    EXPECT_EQ(ints(alone.inverse_indices), ints(shared.inverse_indices));
    EXPECT_EQ(ints(alone.counts), ints(shared.counts));
  }
}

/// n integers from `low` on, `span` beyond it at most and both ends among them, against a std::map; on one thread and
/// on five.
template <class T>
void expect_counted(T low, uint64_t span, int64_t n, std::mt19937_64& rng) {
  const Tensor x = Tensor::empty({n}, core::kDTypeOf<T>);
  T* at = x.data<T>();
  for (int64_t i = 0; i < n; ++i)
    at[i] = static_cast<T>(static_cast<uint64_t>(low) + (span + 1 == 0 ? rng() : rng() % (span + 1)));
  at[0] = static_cast<T>(static_cast<uint64_t>(low) + span), at[n - 1] = low;
  std::map<T, int64_t> want;
  for (int64_t i = 0; i < n; ++i) ++want[at[i]];
  const int threads = num_threads();
  for (int used : {1, 5}) {
    set_num_threads(used);
    const UniqueResult got = unique(x, {.return_inverse = true, .return_counts = true});
    set_num_threads(threads);
    ASSERT_EQ(got.values.shape(), Dims{static_cast<int64_t>(want.size())});
    int64_t group = 0;
    for (const auto& [value, count] : want) {
      ASSERT_EQ(got.values.data<T>()[group], value) << group;
      ASSERT_EQ(got.counts.data<int64_t>()[group++], count);
    }
    for (int64_t i = 0; i < n; ++i) ASSERT_EQ(got.values.data<T>()[got.inverse_indices.data<int64_t>()[i]], at[i]);
  }
}

TEST(Unique, IntegersCloseTogetherAreCounted) {
  std::mt19937_64 rng(14);
  const auto each = [&]<class T>(T) {
    using Limits = std::numeric_limits<T>;
    const auto reach = static_cast<uint64_t>(Limits::max()) - static_cast<uint64_t>(Limits::min());
    for (uint64_t span :
         {uint64_t{0}, uint64_t{1}, uint64_t{99}, uint64_t{100}, uint64_t{255}, uint64_t{70000}, uint64_t{1} << 33}) {
      const uint64_t held = std::min(span, reach);
      for (int64_t n : {1, 100, 3000, 70000}) {  // 70000 are shared by threads
        if ((n == 1 && held > 0) || (n == 70000 && span != 99)) continue;
        expect_counted<T>(Limits::min(), held, n, rng);
        expect_counted<T>(static_cast<T>(static_cast<uint64_t>(Limits::max()) - held), held, n, rng);
      }
    }
  };
  each(int8_t());
  each(uint8_t());
  each(int16_t());
  each(uint16_t());
  each(int32_t());
  each(uint32_t());
  each(int64_t());
  each(uint64_t());
  expect_counted<int64_t>(std::numeric_limits<int64_t>::min(), ~uint64_t{0}, 5000, rng);  // the whole range
}

TEST(Unique, SlicesAreOrderedLexicographically) {
  const Tensor x = tensor_of<float>({4, 2}, float32, {1, 2, 0, 5, 1, 2, 0, -1});
  const UniqueResult rows = unique(x, {.return_inverse = true, .return_counts = true, .dim = 0});
  EXPECT_EQ(doubles(rows.values), (std::vector<double>{0, -1, 0, 5, 1, 2}));
  EXPECT_EQ(ints(rows.inverse_indices), (std::vector<int64_t>{2, 1, 2, 0}));
  EXPECT_EQ(ints(rows.counts), (std::vector<int64_t>{1, 1, 2}));
  const UniqueResult columns = unique(transpose(x, 0, 1), {.dim = 1});
  EXPECT_EQ(doubles(transpose(columns.values, 0, 1)), doubles(rows.values));
  EXPECT_FALSE(columns.counts.defined());
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Tensor with_nan = tensor_of<float>({3, 2}, float32, {nan, 1, nan, 1, 0, 1});
  EXPECT_EQ(unique(with_nan, {.dim = 0}).values.shape(), (Dims{3, 2}));
  EXPECT_EQ(unique(Tensor::empty({3, 0}, float32), {.dim = 0}).values.shape(), (Dims{1, 0}));
  EXPECT_EQ(unique(Tensor::empty({0, 3}, float32), {.dim = 0}).values.shape(), (Dims{0, 3}));
}

TEST(Unique, WritesOutOrRefusesIt) {
  const Tensor x = tensor_of<int64_t>({5}, int64, {3, 1, 3, 2, 1});
  const Tensor wide = poisoned({6}, int64), counts = poisoned({3}, int64);
  unique(x, {.return_counts = true, .out = {slice(wide, 0, {}, {}, 2), {}, counts}});
  EXPECT_EQ(ints(wide), (std::vector<int64_t>{1, -1, 2, -1, 3, -1}));
  EXPECT_EQ(ints(counts), (std::vector<int64_t>{2, 1, 2}));
  expect_refusal<ShapeError>(
      [&] {
        unique(x, {.out = {poisoned({2}, int64), {}, {}}});
      },
      "unique: out.values must have shape (3,)");
  expect_refusal<ValueError>([&] { unique(x, {.out = {{}, {}, counts}}); }, "unique: out.counts needs return_counts");
  expect_refusal<IndexError>([&] { unique(x, {.dim = 1}); }, "unique: dim 1");
  const Tensor shape_only = Tensor::empty({5}, int64, {DeviceType::kMeta, 0});
  expect_refusal<UnsupportedError>([&] { unique(shape_only); }, "unique: the result's size depends on x's data");
  expect_refusal<UnsupportedError>([&] { bincount(shape_only); }, "bincount");
}

TEST(Searchsorted, MatchesTheReference) {
  std::mt19937_64 rng(13);
  for (DType dtype : kOrderable) {
    for (int round = 0; round < 12; ++round) {
      const int64_t n = static_cast<int64_t>(rng() % 200), m = static_cast<int64_t>(rng() % 2000),
                    rows = 1 + static_cast<int64_t>(rng() % 3);
      const Tensor sequence = sort(draw({rows, n}, dtype, rng, rng() % 2)).values,
                   values = draw({rows, m}, dtype, rng, rng() % 2);
      const bool right = rng() % 2;
      const auto all = ints(searchsorted(sequence, values, {.right = right}));
      for (int64_t r = 0; r < rows; ++r) {
        const reference::Row seq = reference::numbers(select(sequence, 0, r)),
                             wanted = reference::numbers(select(values, 0, r));
        const auto one = ints(searchsorted(select(sequence, 0, r), select(values, 0, r), {.right = right}));
        for (int64_t i = 0; i < m; ++i) {
          ASSERT_EQ(all[r * m + i], reference::search_place(seq, wanted[i], right)) << name(dtype);
          ASSERT_EQ(one[i], all[r * m + i]);
        }
      }
    }
  }
}

TEST(Searchsorted, ScalarsCompareByValueAndDtypesMeet) {
  const auto place = [](const Tensor& seq, const Operand& value, bool right = false) {
    return searchsorted(seq, value, {.right = right}).item_int();
  };
  const Tensor bytes = tensor_of<uint8_t>({4}, uint8, {0, 5, 5, 255});
  EXPECT_EQ(place(bytes, -1), 0);
  EXPECT_EQ(place(bytes, 0, true), 1);
  EXPECT_EQ(place(bytes, 4.5, true), 1);
  EXPECT_EQ(place(bytes, 5), 1);
  EXPECT_EQ(place(bytes, 5.5), 3);
  EXPECT_EQ(place(bytes, 255), 3);
  EXPECT_EQ(place(bytes, 256), 4);
  EXPECT_EQ(place(bytes, std::numeric_limits<double>::quiet_NaN()), 4);
  EXPECT_EQ(place(bytes, -std::numeric_limits<double>::infinity(), true), 0);
  const Tensor wide = tensor_of<int64_t>({2}, int64, {INT64_MAX - 1, INT64_MAX});
  EXPECT_EQ(place(wide, INT64_MAX), 1);
  EXPECT_EQ(place(tensor_of<float>({3}, float32, {1, 2, 3}), 2), 1);
  EXPECT_EQ(ints(searchsorted(bytes, tensor_of<float>({2, 1}, float32, {4.5f, 300.f}))), (std::vector<int64_t>{1, 4}));
  EXPECT_EQ(place(bytes, tensor_of<int64_t>({}, int64, {-3})), 0);
}

TEST(Searchsorted, RefusesShapesThatDoNotFit) {
  const Tensor rows = Tensor::empty({2, 3}, float32);
  expect_refusal<ShapeError>(
      [&] {
        searchsorted(rows, Tensor::empty({3, 4}, float32));
      },
      "searchsorted: values of shape (3, 4) must agree with sorted_sequence of shape (2, 3)");
  expect_refusal<ShapeError>([&] { searchsorted(rows, 1.0); }, "searchsorted: a scalar needs a 1-d sorted_sequence");
  expect_refusal<ShapeError>([&] { searchsorted(Tensor::empty({}, float32), 1.0); },
                             "searchsorted: sorted_sequence must have at least 1 dim");
  expect_refusal<DTypeError>([&] { searchsorted(Tensor::empty({3}, uint64), Tensor::empty({3}, int8)); },
                             "searchsorted: uint64 and int8");
  EXPECT_EQ(ints(searchsorted(Tensor::empty({0}, float32), 1.0)), std::vector<int64_t>{0});
  EXPECT_EQ(searchsorted(Tensor::empty({2, 0}, float32), Tensor::empty({2, 0}, float32)).shape(), (Dims{2, 0}));
}

TEST(Bincount, CountsAndAddsInIndexOrder) {
  const Tensor x = tensor_of<int32_t>({6}, int32, {1, 3, 1, 0, 3, 3});
  EXPECT_EQ(ints(bincount(x)), (std::vector<int64_t>{1, 2, 0, 3}));
  EXPECT_EQ(ints(bincount(slice(x, 0, {}, {}, 2), {.minlength = 5})), (std::vector<int64_t>{0, 2, 0, 1, 0}));
  EXPECT_EQ(bincount(Tensor::empty({0}, uint8)).shape(), Dims{0});
  const Tensor w = tensor_of<float>({6}, float32, {1e8f, 1, -1e8f, 2, 0.5f, 0.25f});
  EXPECT_EQ(bincount(x, {.weights = w}).dtype(), float32);
  EXPECT_EQ(doubles(bincount(x, {.weights = w})), (std::vector<double>{2, 0, 0, 1.75}));
  EXPECT_EQ(bincount(x, {.weights = x}).dtype(), float64);
  EXPECT_EQ(doubles(bincount(x, {.weights = x})), (std::vector<double>{0, 2, 0, 9}));
  const Tensor out = poisoned({4}, int64);
  EXPECT_EQ(bincount(x, {.out = out}).raw(), out.raw());
  EXPECT_EQ(ints(out), (std::vector<int64_t>{1, 2, 0, 3}));
}

TEST(Bincount, RefusesWhatItCannotCount) {
  expect_refusal<ValueError>(
      [] {
        bincount(tensor_of<int8_t>({2}, int8, {1, -2}));
      },
      "bincount: x must hold integers >= 0, got -2 at 1");
  expect_refusal<ValueError>([] { bincount(Tensor::empty({0}, int8), {.minlength = -1}); },
                             "bincount: minlength must be >= 0, got -1");
  expect_refusal<ShapeError>([] { bincount(Tensor::empty({2, 2}, int8)); }, "bincount: x must have 1 dims");
  expect_refusal<ShapeError>([] { bincount(Tensor::empty({2}, int8), {.weights = Tensor::empty({3}, float32)}); },
                             "bincount: weights must have shape (2,)");
  const Tensor top = tensor_of<int64_t>({1}, int64, {INT64_MAX});
  expect_refusal<OutOfMemoryError>([&] { bincount(top); }, "bincount: x holds 9223372036854775807");
  expect_refusal<OutOfMemoryError>([&] { bincount(top, {.minlength = 4}); }, "bincount: x holds 9223372036854775807");
  expect_refusal<DTypeError>([] { bincount(Tensor::empty({2}, float32)); }, "bincount: x must be an integer array");
}

}  // namespace
}  // namespace tenor
