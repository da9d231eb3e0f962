#include "tenor/sampling.h"

#include <limits>
#include <set>

#include "src/core/philox.h"
#include "src/core/testing.h"
#include "src/ops/sampling/random.h"
#include "src/ops/sampling/sampling_testing.h"
#include "tenor/sort.h"
#include "tenor/view.h"

namespace tenor {
namespace {

using reference::Row;
using sampling::Tag;
using testing::Draw;
using testing::expect_error;
using testing::ints;
using testing::kFloats;
using testing::kInf;
using testing::kNan;
using testing::tensor_of;
using testing::values;

Row row_of(const Tensor& x, int64_t r) { return values(select(x, 0, r)); }
Tensor iota(int64_t n) {
  return testing::filled({n}, int64, [](int64_t i) { return i; });
}
constexpr uint32_t id_of(Tag tag) { return static_cast<uint32_t>(tag); }

TEST(Philox, GivesTheKnownAnswers) {
  // From the test vectors of Random123.
  const auto check = [](core::PhiloxBlock counter, uint64_t key, std::vector<uint32_t> want) {
    const core::PhiloxBlock got = core::philox(counter, key);
    EXPECT_EQ(std::vector<uint32_t>(got.word, got.word + 4), want);
    EXPECT_EQ(reference::philox4x32({counter.word, counter.word + 4}, static_cast<uint32_t>(key),
                                    static_cast<uint32_t>(key >> 32)),
              want);
  };
  check({{0, 0, 0, 0}}, 0, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  check({{~0u, ~0u, ~0u, ~0u}}, ~0ull, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  check({{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}}, 0x299f31d0a4093822,
        {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST(Sample, NumbersAreTheReferences) {
  // Including words below kFewDigits, which few tokens have.
  const sampling::Stream stream{7, 3, Tag::kSample};
  int small = 0;
  for (uint64_t t = 0; t < 3'000'000 && small < 2; t += 1) {
    if (stream.word(t) >= sampling::kFewDigits && t > 2000) continue;
    small += stream.word(t) < sampling::kFewDigits;
    const double want = reference::uniform(7, 3, id_of(Tag::kSample), t);
    ASSERT_EQ(sampling::uniform<double>(stream, t), want);
    ASSERT_NEAR(sampling::uniform<float>(stream, t) / want, 1, 1e-7);
  }
}

/// Random options of a row.
reference::Options draw_options(Draw& draw, int64_t n) {
  reference::Options o;
  constexpr double kTemperatures[] = {1, 0.5, 0.8, 2, 0}, kPs[] = {1, 0.9, 0.5, 0.99, 0, 0.2},
                   kMins[] = {0, 0.05, 0.5, 1};
  o.temperature = kTemperatures[draw.upto(4)];
  o.top_k = draw.coin() ? 0 : draw.upto(n + 1);
  o.top_p = draw.coin() ? 1 : kPs[draw.upto(5)];
  o.min_p = draw.coin() ? 0 : kMins[draw.upto(3)];
  o.seed = static_cast<uint64_t>(draw.upto(1'000'000'000));
  o.position = static_cast<uint64_t>(draw.upto(1000));
  return o;
}

Tensor column(const std::vector<reference::Options>& all, DType dtype, double (*field)(const reference::Options&)) {
  std::vector<double> out;
  for (const auto& o : all) out.push_back(field(o));
  return tensor_of({static_cast<int64_t>(all.size())}, dtype, out);
}
SampleOptions to_options(const std::vector<reference::Options>& all, bool joint) {
  return {.temperature = column(all, float64, [](const auto& o) { return o.temperature; }),
          .top_k = column(all, int32, [](const auto& o) { return static_cast<double>(o.top_k); }),
          .top_p = column(all, float64, [](const auto& o) { return o.top_p; }),
          .min_p = column(all, float64, [](const auto& o) { return o.min_p; }),
          .seed = column(all, int64, [](const auto& o) { return static_cast<double>(o.seed); }),
          .position = column(all, int64, [](const auto& o) { return static_cast<double>(o.position); }),
          .joint = joint,
          .return_valid = true};
}

int64_t wanted(const Row& x, const reference::Options& o, uint32_t tag, bool* close) {
  if (o.temperature == 0) return std::max_element(x.begin(), x.end()) - x.begin();
  const Row p = reference::softmax(x, o.temperature);
  *close = reference::is_close_call(p, x, o);
  return reference::winner(reference::filtered(p, x, o), o.seed, o.position, tag);
}

TEST(Sample, MatchesTheReference) {
  Draw draw(1);
  int decided = 0, total = 0;
  for (DType dtype : kFloats) {
    for (int round = 0; round < 40; ++round) {
      const int64_t rows = draw.upto(6), n = 1 + draw.upto(round % 4 ? 60 : 3000);
      const Tensor x = draw.view({rows, n}, dtype);
      std::vector<reference::Options> all;
      const bool joint = draw.coin();
      for (int64_t r = 0; r < rows; ++r) {
        all.push_back(draw_options(draw, n));
        all.back().joint = joint;
      }
      SampleOptions o = to_options(all, joint);
      o.out = {draw.any_layout({rows}, int64), draw.any_layout({rows}, boolean)};
      const SampleResult got = sample(x, o);
      for (int64_t r = 0; r < rows; ++r) {
        bool close = false;
        const int64_t want = wanted(row_of(x, r), all[r], id_of(Tag::kSample), &close);
        ++total;
        if (close) continue;
        ++decided;
        EXPECT_EQ(ints(got.ids)[r], want) << name(dtype) << " n " << n << " row " << r;
        EXPECT_EQ(ints(got.valid)[r], 1);
      }
    }
  }
  EXPECT_GT(decided, total * 3 / 4);
}

TEST(Sample, FrequenciesAreTheProbabilities) {
  const int64_t n = 40000;
  const std::vector<double> p{0.5, 0.25, 0.125, 0.1, 0.025};
  for (DType dtype : {float32, float64}) {
    const Tensor x = broadcast_to(tensor_of({1, 5}, dtype, p), {n, 5});
    std::vector<int64_t> counts(5, 0);
    for (int64_t id : ints(sample_from_probs(x, {.seed = 5, .position = iota(n)}).ids)) ++counts[id];
    double chi = 0;
    for (size_t i = 0; i < 5; ++i) chi += std::pow(counts[i] - p[i] * n, 2) / (p[i] * n);
    EXPECT_LT(chi, 18.5);  // 0.1 % of draws lie beyond, for 4 degrees of freedom
  }
}

TEST(Sample, ADrawKnowsNothingOfItsNeighboursThreadsOrStrides) {
  Draw draw(2);
  const int64_t rows = 5, n = 40000;  // long enough for several threads
  for (DType dtype : kFloats) {
    const Tensor x = draw.dense({rows, n}, dtype);
    for (const SampleOptions& o :
         {SampleOptions{.seed = 9, .position = 4}, SampleOptions{.top_p = 0.999, .seed = 9, .position = 4},
          SampleOptions{.top_k = 50, .top_p = 0.9, .seed = 9, .position = 4}}) {
      std::vector<int64_t> whole;
      {
        const testing::Threads one(1);
        whole = ints(sample(x, o).ids);
      }
      const testing::Threads several(3);
      EXPECT_EQ(ints(sample(x, o).ids), whole);
      EXPECT_EQ(ints(sample(transpose(transpose(x, 0, 1).contiguous(), 0, 1), o).ids), whole);
      for (int64_t r = 0; r < rows; ++r) EXPECT_EQ(ints(sample(slice(x, 0, r, r + 1), o).ids)[0], whole[r]);
    }
  }
}

TEST(Sample, RowsWithoutADistribution) {
  const Tensor x =
      tensor_of({6, 3}, float32,
                {0, kNan, 1, -kInf, -kInf, -kInf, kInf, 0, 0, -kInf, 7, -kInf, 3e38, -3e38, 3e38, -0.0, 0.0, -9});
  const SampleResult got = sample(x, {.temperature = 0, .seed = 1, .return_valid = true});
  EXPECT_EQ(ints(got.ids), (std::vector<int64_t>{0, 0, 0, 1, 0, 0}));
  EXPECT_EQ(ints(got.valid), (std::vector<int64_t>{0, 0, 0, 1, 1, 1}));
  EXPECT_EQ(ints(sample(x, {.temperature = 1e-300, .seed = 1}).ids)[3], 1);
  const Tensor p = tensor_of({5, 2}, float32, {0, 0, -1, 2, kInf, 1, kNan, 1, 0, 1e-45});
  const SampleResult q = sample_from_probs(p, {.seed = 1, .return_valid = true});
  EXPECT_EQ(ints(q.valid), (std::vector<int64_t>{0, 0, 0, 0, 1}));
  EXPECT_EQ(ints(q.ids), (std::vector<int64_t>{0, 0, 0, 0, 1}));
}

TEST(Sample, TiesAtAnEdgeGoToTheLowerIndex) {
  const int64_t n = 3000;
  const Tensor x = broadcast_to(tensor_of({1, 6}, bfloat16, {1, 2, 2, 2, 2, 0}), {n, 6});
  const auto drawn = [&](const SampleOptions& o) {
    const auto ids = ints(sample(x, o).ids);
    return std::set<int64_t>(ids.begin(), ids.end());
  };
  EXPECT_EQ(drawn({.top_k = 2, .seed = 1, .position = iota(n)}), (std::set<int64_t>{1, 2}));
  // Half of the mass of four equal tokens lies before the third, which is kept, and more before the fourth.
  EXPECT_EQ(drawn({.top_k = 4, .top_p = 0.5, .seed = 1, .position = iota(n)}), (std::set<int64_t>{1, 2, 3}));
  EXPECT_EQ(drawn({.min_p = 1, .seed = 1, .position = iota(n)}), (std::set<int64_t>{1, 2, 3, 4}));
  EXPECT_EQ(drawn({.top_p = 0, .seed = 1, .position = iota(n)}), (std::set<int64_t>{1}));
}

TEST(Sample, RefusesWhatItCannotDraw) {
  const Tensor x = testing::full({2, 5}, float32, 0);
  const auto bad = [&](SampleOptions o) {
    if (!o.seed) o.seed = 0;
    return [&x, o] { sample(x, o); };
  };
  expect_error<ValueError>([&] { sample(x, {}); }, "sample: seed is required: a draw is a function of it");
  expect_error<ValueError>(bad({.temperature = -1.0}), "sample: temperature must be >= 0, got -1");
  expect_error<ValueError>(bad({.temperature = testing::list({1, kNan})}),
                           "sample: temperature must be >= 0, got nan at 1");
  expect_error<ValueError>(bad({.top_p = kNan}), "sample: top_p must be a number, got nan");
  expect_error<ValueError>(bad({.min_p = 1.5}), "sample: min_p must be <= 1, got 1.5");
  expect_error<ShapeError>(bad({.top_k = iota(3)}), "sample: top_k must be a number or have shape (2,), got (3,)");
  expect_error<DTypeError>(bad({.top_k = 2.5}), "sample: top_k must be an integer, got 2.5");
  expect_error<DTypeError>(bad({.seed = testing::list({1, 2})}), "sample: seed must be an integer array, got float32");
  expect_error<ShapeError>(
      [] {
        sample(Tensor::empty({2, 0}, float32), {.seed = 0});
      },
      "sample: logits must have at least one token, got shape (2, 0)");
  expect_error<DTypeError>(
      [] {
        sample(Tensor::empty({2, 3}, int32), {.seed = 0});
      },
      "sample: logits must be float16, bfloat16, float32 or float64, got int32");
  EXPECT_EQ(sample(Tensor::empty({0, 5}, float32), {.seed = 0}).ids.shape(), Dims{0});
  EXPECT_EQ(ints(sample(x, {.seed = UINT64_MAX, .position = -1}).ids),
            ints(sample(x, {.seed = -1, .position = -1}).ids));
}

TEST(Multinomial, DrawsDifferentTokensInTheRacesOrder) {
  Draw draw(3);
  for (DType dtype : kFloats) {
    const int64_t rows = 3, n = 1 + draw.upto(200), count = 1 + draw.upto(n - 1);
    Tensor x = draw.view({rows, n}, dtype);
    std::vector<double> p;
    for (double v : values(x)) p.push_back(std::max(v, 0.0));
    testing::assign(x, p);
    const Tensor got = multinomial(x, count, {.seed = 17, .position = iota(rows)});
    for (int64_t r = 0; r < rows; ++r) {
      const Row row = row_of(x, r);
      const Row s = reference::scores(row, 17, static_cast<uint64_t>(r), id_of(Tag::kMultinomial));
      std::vector<int64_t> want = reference::descending(s);
      want.resize(count);
      for (int64_t& id : want) id = row[id] > 0 ? id : -1;
      EXPECT_EQ(ints(select(got, 0, r)), want) << name(dtype);
    }
  }
}

TEST(Multinomial, WithReplacementFollowsTheProbabilities) {
  const int64_t n = 40000;
  const Tensor p = tensor_of({4}, float32, {1, 0, 2, 5});
  const auto ids = ints(multinomial(p, n, {.replacement = true, .seed = 3}));
  std::vector<int64_t> counts(4, 0);
  for (int64_t id : ids) ++counts[id];
  EXPECT_EQ(counts[1], 0);
  EXPECT_NEAR(counts[0], n / 8.0, 5 * std::sqrt(n / 8.0));
  EXPECT_NEAR(counts[3], n * 5 / 8.0, 5 * std::sqrt(n / 4.0));
  EXPECT_EQ(ints(multinomial(p, n, {.replacement = true, .seed = 3})), ids);
  // One token alone is one race, whichever way.
  EXPECT_EQ(ints(multinomial(p, 1, {.replacement = true, .seed = 8})), ints(multinomial(p, 1, {.seed = 8})));
  EXPECT_EQ(ints(multinomial(p, 2, {.seed = 8}))[0], ints(multinomial(p, 1, {.seed = 8}))[0]);
}

TEST(Multinomial, RunsOutOfTokens) {
  const Tensor p = tensor_of({3, 3}, float64, {0, 1, 0, kNan, 1, 1, 0, 0, 0});
  EXPECT_EQ(ints(multinomial(p, 2, {.seed = 1})), (std::vector<int64_t>{1, -1, -1, -1, -1, -1}));
  EXPECT_EQ(ints(multinomial(p, 2, {.replacement = true, .seed = 1})), (std::vector<int64_t>{1, 1, -1, -1, -1, -1}));
  expect_error<ValueError>([&] { multinomial(p, 4, {.seed = 1}); },
                           "multinomial: num_samples must be <= 3, the tokens, without replacement, got 4");
  expect_error<ValueError>([&] { multinomial(p, 0, {.seed = 1}); }, "multinomial: num_samples must be >= 1, got 0");
  expect_error<ValueError>(
      [&] {
        multinomial(Tensor::empty({0, 3}, float32), 4, {.seed = 1});
      },
      "multinomial: num_samples must be <= 3, the tokens, without replacement, got 4");
  expect_error<ShapeError>([&] { multinomial(testing::full({}, float32, 1), 1, {.seed = 1}); },
                           "multinomial: probs must have 1 or 2 dims, got shape ()");
}

TEST(TopKMask, KeepsTheFirstOfTheSort) {
  Draw draw(4);
  for (DType dtype : kFloats) {
    const int64_t rows = 1 + draw.upto(4), n = 1 + draw.upto(500);
    const Tensor x = draw.view({rows, n}, dtype);
    std::vector<double> ks;
    for (int64_t r = 0; r < rows; ++r) ks.push_back(static_cast<double>(draw.upto(n + 1)));
    const Tensor k = tensor_of({rows}, int32, ks), out = draw.poisoned({rows, n}, dtype);
    top_k_mask_logits(x, k, {out});
    for (int64_t r = 0; r < rows; ++r) {
      Row want = row_of(x, r);
      const auto order = reference::descending(want);
      for (size_t i = static_cast<size_t>(ks[r]); ks[r] > 0 && i < order.size(); ++i) want[order[i]] = -kInf;
      EXPECT_EQ(row_of(out, r), want);
    }
  }
  Tensor x = tensor_of({2, 4}, float16, {1, kNan, 3, 3, 1, 1, 1, 1});
  top_k_mask_logits(x, 2, {x});
  const auto got = values(x);
  EXPECT_TRUE(std::isnan(got[1]));
  EXPECT_EQ((std::vector<double>(got.begin() + 2, got.end())), (std::vector<double>{3, -kInf, 1, 1, -kInf, -kInf}));
}

TEST(TopPNormalize, IsTheNucleusOverItsSum) {
  Draw draw(5);
  for (DType dtype : kFloats) {
    for (double top_p : {0.0, 0.3, 0.9, 1.0}) {
      const int64_t rows = 1 + draw.upto(4), n = 1 + draw.upto(700);
      Tensor x = draw.any_layout({rows, n}, dtype);
      std::vector<double> p;
      for (double v : draw.normals(rows * n)) p.push_back(std::exp(2 * v));
      testing::assign(x, p);
      const Tensor got = top_p_normalize_probs(x, top_p, {draw.poisoned({rows, n}, dtype)});
      for (int64_t r = 0; r < rows; ++r) {
        const Row row = row_of(x, r);
        if (reference::is_close_call(row, row, {.top_p = top_p})) continue;
        Row want = reference::filtered(row, row, {.top_p = top_p});
        const double sum = reference::sum_of(want);
        for (double& v : want) v /= sum;
        testing::expect_close(select(got, 0, r), want, std::string(name(dtype)), 1, dtype == float16 ? 0x1p-24 : 1e-30);
      }
    }
  }
  const auto got = values(top_p_normalize_probs(tensor_of({3, 2}, float32, {0, 0, kNan, 1, -1, 2}), 0.5));
  for (double v : got) EXPECT_TRUE(std::isnan(v));
}

TEST(Sampling, ShapesAloneAreTraced) {
  const Tensor x = Tensor::empty({3, 7}, float32, {DeviceType::kMeta, 0});
  EXPECT_EQ(sample(x, {.seed = 1}).ids.shape(), Dims{3});
  EXPECT_EQ(multinomial(x, 4, {.seed = 1}).shape(), (Dims{3, 4}));
  EXPECT_EQ(top_k_mask_logits(x, 2).shape(), (Dims{3, 7}));
}

}  // namespace
}  // namespace tenor
