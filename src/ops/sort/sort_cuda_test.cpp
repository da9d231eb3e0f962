// The family on CUDA: the bits of the CPU's results, on rows of every kernel.
#include "src/cuda/testing.h"
#include "src/ops/sort/sort_testing.h"
#include "tenor/sort.h"
#include "tenor/view.h"

namespace tenor {
namespace {

using testing::all_bits;
using testing::draw;
using testing::ints;
using testing::kOrderable;
using testing::on_cpu;
using testing::on_gpu;
using testing::poisoned;

using OrderCuda = testing::CudaTest;

/// As on_cpu, whatever bits the elements have.
void expect_same(const SortResult& got, const SortResult& want, const std::string& what) {
  ASSERT_EQ(got.values.shape(), want.values.shape()) << what;
  ASSERT_EQ(ints(on_cpu(got.indices)), ints(want.indices)) << what;
  ASSERT_EQ(all_bits(on_cpu(got.values)), all_bits(want.values)) << what;
}

std::string text(const Tensor& x, int64_t k, bool flag) {
  return std::string(name(x.dtype())) + " n " + std::to_string(x.shape(-1)) + " k " + std::to_string(k) +
         (flag ? " descending" : "");
}

/// Rows for each way of sorting: a warp, a block, the device; for wide and narrow keys.
constexpr int64_t kLengths[] = {1, 2, 3, 31, 33, 64, 100, 128, 200, 256, 257, 700, 1024, 3000, 4096, 4097, 9000};

TEST_F(OrderCuda, SortsLikeTheCpu) {
  std::mt19937_64 rng(1);
  for (DType dtype : kOrderable) {
    for (int64_t n : kLengths) {
      const Tensor x = draw({n > 2000 ? 3 : 5, n}, dtype, rng, rng() % 2);
      const bool descending = rng() % 2;
      const SortResult out{on_gpu(poisoned(x.shape(), dtype)), on_gpu(poisoned(x.shape(), int64))};
      expect_same(sort(on_gpu(x), {.descending = descending, .out = out}), sort(x, {.descending = descending}),
                  text(x, n, descending));
      EXPECT_EQ(ints(on_cpu(argsort(on_gpu(x)))), ints(argsort(x)));
    }
  }
}

TEST_F(OrderCuda, TakesTheFirstKLikeTheCpu) {
  std::mt19937_64 rng(2);
  for (DType dtype : kOrderable) {
    for (int64_t n : {5, 256, 4096, 5000, 30000, 100000, 170001}) {
      if (n > 30000 && dtype != float32 && dtype != bfloat16 && dtype != float64) continue;
      const Tensor x = draw({2, n}, dtype, rng, rng() % 2), on = on_gpu(x);
      for (int64_t k :
           {int64_t{0}, int64_t{1}, int64_t{5}, int64_t{64}, int64_t{300}, int64_t{1024}, int64_t{1500}, n}) {
        const bool largest = rng() % 2;
        if (k <= n)
          expect_same(topk(on, k, {.largest = largest}), topk(x, k, {.largest = largest}), text(x, k, largest));
      }
      const int64_t k = 1 + static_cast<int64_t>(rng() % static_cast<uint64_t>(n));
      expect_same(kthvalue(on, k, {.keepdim = true}), kthvalue(x, k, {.keepdim = true}), text(x, k, false));
      expect_same(median(on, {.dim = -1}), median(x, {.dim = -1}), text(x, -1, false));
      EXPECT_EQ(all_bits(on_cpu(median(on).values)), all_bits(median(x).values)) << text(x, -2, false);
    }
  }
}

/// Few long rows, which are cut into pieces; sizes that pieces do not divide, values that many pieces share.
TEST_F(OrderCuda, TakesTheFirstKOfLongRows) {
  std::mt19937_64 rng(12);
  for (DType dtype : {float32, bfloat16, int64, uint8})
    for (int64_t n : {524288, 1000003}) {
      const Tensor x = draw({2, n}, dtype, rng, true), on = on_gpu(x);
      for (int64_t k : {1, 64, 1000}) {
        const bool largest = rng() % 2;
        expect_same(topk(on, k, {.largest = largest}), topk(x, k, {.largest = largest}), text(x, k, largest));
      }
    }
}

TEST_F(OrderCuda, RowsOfEqualElementsComeInIndexOrder) {
  for (DType dtype : {float32, bfloat16, int64, uint8}) {
    for (int64_t n : {300, 40000, 3000000}) {
      const Tensor x = poisoned({1, n}, dtype), on = on_gpu(x);  // NaN, or the largest or -1
      for (int64_t k : {1, 700}) {
        const auto got = ints(on_cpu(topk(on, std::min(k, n)).indices));
        for (int64_t i = 0; i < std::min(k, n); ++i) ASSERT_EQ(got[i], i);
      }
      EXPECT_EQ(ints(on_cpu(kthvalue(on, n / 3).indices))[0], n / 3 - 1);
      EXPECT_EQ(ints(on_cpu(median(on, {.dim = 1}).indices))[0], is_float(dtype) ? 0 : (n - 1) / 2);
    }
  }
}

TEST_F(OrderCuda, LongRowsThatAreReadAnew) {
  std::mt19937_64 rng(3);
  for (DType dtype : {float32, float64, int16}) {
    const Tensor x = draw({1, 2500000}, dtype, rng, false), on = on_gpu(x);
    expect_same(topk(on, 100), topk(x, 100), text(x, 100, true));
    expect_same(median(on, {.dim = 1}), median(x, {.dim = 1}), text(x, 0, false));
    expect_same(sort(on), sort(x), text(x, 0, false));
  }
}

TEST_F(OrderCuda, AnyDimStrideAndOut) {
  std::mt19937_64 rng(4);
  for (DType dtype : {float32, int64, float16}) {
    for (int64_t dim = 0; dim < 3; ++dim) {
      const Tensor x = draw({7, 70, 9}, dtype, rng, rng() % 2), on = on_gpu(x);
      expect_same(sort(on, {.dim = dim}), sort(x, {.dim = dim}), "sort");
      expect_same(topk(on, 3, {.dim = dim}), topk(x, 3, {.dim = dim}), "topk");
      expect_same(kthvalue(on, 2, {.dim = dim}), kthvalue(x, 2, {.dim = dim}), "kthvalue");
      expect_same(median(on, {.dim = dim}), median(x, {.dim = dim}), "median");
      const Tensor wide = on_gpu(poisoned({7, 140, 9}, dtype)), places = on_gpu(poisoned({7, 70, 9}, int64));
      const SortResult out{slice(wide, 1, {}, {}, 2), places};
      expect_same(sort(on, {.dim = dim, .out = out}), sort(x, {.dim = dim}), "out");
      EXPECT_EQ(all_bits(on_cpu(slice(wide, 1, 1, {}, 2))), all_bits(slice(poisoned({7, 140, 9}, dtype), 1, 1, {}, 2)));
    }
  }
  const Tensor one = on_gpu(testing::tensor_of<float>({}, float32, {3}));
  EXPECT_EQ(on_cpu(sort(one).values).item_double(), 3);
  EXPECT_EQ(on_cpu(topk(one, 1).indices).item_int(), 0);
  EXPECT_EQ(on_cpu(median(one, {.dim = 0}).values).item_double(), 3);
  EXPECT_EQ(sort(Tensor::empty({0, 5}, float32, testing::kGpu)).values.shape(), (Dims{0, 5}));
  EXPECT_EQ(sort(Tensor::empty({5, 0}, float32, testing::kGpu)).indices.shape(), (Dims{5, 0}));
  Tensor mine = on_gpu(testing::tensor_of<float>({3}, float32, {3, 1, 2}));
  sort(mine, {.out = {mine, Tensor::empty({3}, int64, testing::kGpu)}});
  EXPECT_EQ(all_bits(on_cpu(mine)), all_bits(testing::tensor_of<float>({3}, float32, {1, 2, 3})));
}

/// Keys of 64 bits of which a block's radix sort sees the first 32 that differ: rows in which few, many or all agree in
/// those; every shape of block.
TEST_F(OrderCuda, KeysThatAgreeInTheirLeadingBits) {
  std::mt19937_64 rng(13);
  for (int64_t n : {65, 128, 129, 256, 300, 512, 1000, 2048, 2049, 4096, 5000, 8192, 10000, 16384, 16385})
    for (int kind = 0; kind < 4; ++kind) {
      const Tensor x = Tensor::empty({2, n}, kind % 2 ? int64 : float64);
      for (int64_t i = 0; i < 2 * n; ++i) {
        const uint64_t leading = kind == 0 ? rng() % 3 : kind == 1 ? rng() % static_cast<uint64_t>(n / 10 + 1) : rng();
        x.data<uint64_t>()[i] = leading << (kind < 2 ? 50 : 34) | (rng() & (kind == 3 ? 3 : 0xFFFFFF));
      }
      const bool descending = rng() % 2;
      expect_same(sort(on_gpu(x), {.descending = descending}), sort(x, {.descending = descending}),
                  text(x, kind, descending));
      const int64_t k = 1 + static_cast<int64_t>(rng() % static_cast<uint64_t>(n));
      expect_same(kthvalue(on_gpu(x), k), kthvalue(x, k), text(x, k, false));
    }
}

/// The lengths at which another kernel takes over.
TEST_F(OrderCuda, EveryShapeOfBlock) {
  std::mt19937_64 rng(14);
  for (DType dtype : {float32, float16, uint8, float64})
    for (int64_t n : {511, 513, 1025, 2047, 2049, 8191, 8193, 16383, 16384, 16385, 32768, 32769}) {
      const Tensor x = draw({2, n}, dtype, rng, rng() % 2);
      const bool descending = rng() % 2;
      expect_same(sort(on_gpu(x), {.descending = descending}), sort(x, {.descending = descending}),
                  text(x, n, descending));
      for (int64_t k : {1100, 2048, 2049})
        if (k <= n) expect_same(topk(on_gpu(x), k), topk(x, k), text(x, k, true));
    }
}

TEST_F(OrderCuda, ManyRowsAtOnce) {
  std::mt19937_64 rng(5);
  const Tensor x = draw({70000, 5}, float32, rng, true);
  expect_same(sort(on_gpu(x)), sort(x), "rows");
  const Tensor y = draw({40, 6000}, float32, rng, false);
  expect_same(sort(on_gpu(y), {.descending = true}), sort(y, {.descending = true}), "long rows");
  const Tensor z = draw({600, 4500}, uint8, rng, false);
  expect_same(topk(on_gpu(z), 10), topk(z, 10), "bytes");
}

TEST_F(OrderCuda, TheFirstFewOfTinyRows) {
  std::mt19937_64 rng(6);
  for (DType dtype : kOrderable) {
    for (int64_t n : {2, 7, 33, 64, 130, 255, 256}) {
      const Tensor x = draw({37, n}, dtype, rng, rng() % 2), on = on_gpu(x);
      for (int64_t k : {int64_t{1}, n / 3, n / 2})
        if (k <= 64)
          expect_same(topk(on, k, {.largest = k % 2 == 0}), topk(x, k, {.largest = k % 2 == 0}),
                      text(x, k, k % 2 == 0));
    }
  }
}

TEST_F(OrderCuda, UniqueLikeTheCpu) {
  std::mt19937_64 rng(7);
  const auto compare = [](const Tensor& x, std::optional<int64_t> dim) {
    const UniqueResult want = unique(x, {.return_inverse = true, .return_counts = true, .dim = dim}),
                       got = unique(on_gpu(x), {.return_inverse = true, .return_counts = true, .dim = dim});
    ASSERT_EQ(got.values.shape(), want.values.shape());
    EXPECT_EQ(all_bits(on_cpu(got.values)), all_bits(want.values)) << name(x.dtype());
    EXPECT_EQ(ints(on_cpu(got.inverse_indices)), ints(want.inverse_indices)) << name(x.dtype());
    EXPECT_EQ(ints(on_cpu(got.counts)), ints(want.counts)) << name(x.dtype());
  };
  for (DType dtype : kOrderable) {
    for (int64_t n : {0, 1, 50, 3000, 20000}) compare(draw({n}, dtype, rng, rng() % 2), {});
    for (int64_t dim : {0, 1, 2}) compare(draw({5, 30, 2}, dtype, rng, true), dim);
    compare(draw({40, 3}, dtype, rng, true), {});
  }
  for (DType dtype : {int16, int64, uint32}) {  // bins: more than a block's, and too many
    for (int64_t span : {9000, 60000, 100001}) {
      const Tensor x = Tensor::empty({100000}, dtype);
      core::visit_integer(dtype, [&]<class T>() {
        for (int64_t i = 0; i < x.numel(); ++i)
          x.data<T>()[i] = static_cast<T>(static_cast<int64_t>(rng() % static_cast<uint64_t>(span)) - 30000);
      });
      compare(x, {});
    }
  }
  EXPECT_EQ(unique(Tensor::empty({3, 0}, float32, testing::kGpu), {.dim = 0}).values.shape(), (Dims{1, 0}));
}

TEST_F(OrderCuda, SearchesLikeTheCpu) {
  std::mt19937_64 rng(8);
  for (DType dtype : kOrderable) {
    for (int64_t n : {0, 1, 200, 5000}) {
      const Tensor sequence = sort(draw({3, n}, dtype, rng, rng() % 2)).values,
                   values = draw({3, 700}, dtype, rng, rng() % 2);
      for (bool right : {false, true}) {
        EXPECT_EQ(ints(on_cpu(searchsorted(on_gpu(sequence), on_gpu(values), {.right = right}))),
                  ints(searchsorted(sequence, values, {.right = right})));
        const Tensor one = select(sequence, 0, 1);
        EXPECT_EQ(ints(on_cpu(searchsorted(on_gpu(one), on_gpu(values), {.right = right}))),
                  ints(searchsorted(one, values, {.right = right})));
        EXPECT_EQ(on_cpu(searchsorted(on_gpu(one), 1.5, {.right = right})).item_int(),
                  searchsorted(one, 1.5, {.right = right}).item_int());
        EXPECT_EQ(on_cpu(searchsorted(on_gpu(one), -1000, {.right = right})).item_int(),
                  searchsorted(one, -1000, {.right = right}).item_int());
      }
    }
  }
  const Tensor bytes = testing::tensor_of<uint8_t>({4}, uint8, {0, 5, 5, 255});
  EXPECT_EQ(on_cpu(searchsorted(on_gpu(bytes), 300)).item_int(), 4);
  EXPECT_EQ(ints(on_cpu(searchsorted(on_gpu(bytes), on_gpu(testing::tensor_of<float>({2}, float32, {4.5f, 300.f}))))),
            (std::vector<int64_t>{1, 4}));
}

/// Many values in one sequence, of which samples stand in shared memory.
TEST_F(OrderCuda, SearchesManyValues) {
  std::mt19937_64 rng(15);
  for (DType dtype : {float32, int64, uint8, bfloat16})
    for (int64_t n : {0, 1, 3, 1000, 8192, 16384, 16385, 100000, 300001}) {
      const Tensor sequence = sort(draw({n}, dtype, rng, rng() % 2)).values,
                   values = draw({20001}, dtype, rng, rng() % 2);
      for (bool right : {false, true})
        EXPECT_EQ(ints(on_cpu(searchsorted(on_gpu(sequence), on_gpu(values), {.right = right}))),
                  ints(searchsorted(sequence, values, {.right = right})))
            << name(dtype) << " " << n << " " << right;
    }
  const Tensor ends = testing::tensor_of<uint8_t>({3}, uint8, {0, 255, 255}), all = testing::poisoned({20000}, uint8);
  EXPECT_EQ(ints(on_cpu(searchsorted(on_gpu(ends), on_gpu(all), {.right = true}))), std::vector<int64_t>(20000, 3));
  EXPECT_EQ(ints(on_cpu(searchsorted(on_gpu(ends), on_gpu(all)))), std::vector<int64_t>(20000, 1));
}

TEST_F(OrderCuda, CountsLikeTheCpu) {
  std::mt19937_64 rng(9);
  for (int64_t n : {0, 1, 1000, 300000}) {
    for (int64_t bins : {1, 10, 5000, 100000}) {
      Tensor x = Tensor::empty({n}, int32), w = draw({n}, float32, rng, false);
      for (int64_t i = 0; i < n; ++i) x.data<int32_t>()[i] = static_cast<int32_t>(rng() % static_cast<uint64_t>(bins));
      testing::fill(w, rng, true);
      EXPECT_EQ(ints(on_cpu(bincount(on_gpu(x), {.minlength = 7}))), ints(bincount(x, {.minlength = 7})));
      const Tensor exact = testing::draw({n}, int16, rng, false);
      EXPECT_EQ(all_bits(on_cpu(bincount(on_gpu(x), {.weights = on_gpu(exact)}))),
                all_bits(bincount(x, {.weights = exact})));
    }
  }
  testing::expect_refusal<ValueError>(
      [] {
        bincount(on_gpu(testing::tensor_of<int8_t>({3}, int8, {1, -2, -3})));
      },
      "bincount: x must hold integers >= 0, got -2 at 1");
}

TEST_F(OrderCuda, FloatWeightsAreAddedInIndexOrder) {
  std::mt19937_64 rng(10);
  const int64_t n = 100000;
  Tensor x = Tensor::empty({n}, int64), w = Tensor::empty({n}, float64);
  for (int64_t i = 0; i < n; ++i) {
    x.data<int64_t>()[i] = static_cast<int64_t>(rng() % 50);
    w.data<double>()[i] = std::ldexp(static_cast<double>(rng() % 1000003) - 5e5, static_cast<int>(rng() % 60) - 30);
  }
  EXPECT_EQ(all_bits(on_cpu(bincount(on_gpu(x), {.weights = on_gpu(w)}))), all_bits(bincount(x, {.weights = w})));
}

}  // namespace
}  // namespace tenor
