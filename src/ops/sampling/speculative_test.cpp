#include "src/core/testing.h"
#include "src/ops/sampling/random.h"
#include "src/ops/sampling/sampling_testing.h"
#include "tenor/sampling.h"
#include "tenor/view.h"

namespace tenor {
namespace {

using reference::Row;
using sampling::Tag;
using testing::Draw;
using testing::expect_error;
using testing::ints;
using testing::kFloats;
using testing::tensor_of;
using testing::values;

/// u in [0, 1): the top 53 of the first 64 bits of the place's own block.
double unit(uint64_t seed, uint64_t position) {
  const auto w = reference::philox4x32({0, uint32_t(position), uint32_t(position >> 32), uint32_t(Tag::kAccept)},
                                       uint32_t(seed), uint32_t(seed >> 32));
  return static_cast<double>((uint64_t{w[1]} << 32 | w[0]) >> 11) / 9007199254740992.0;
}

/// A chain by the book: p is [n + 1] rows, q [n] rows.
std::vector<int64_t> chain(const std::vector<Row>& p, const std::vector<Row>& q, const std::vector<int64_t>& drafts,
                           uint64_t seed, uint64_t position) {
  std::vector<int64_t> ids;
  size_t i = 0;
  while (i < drafts.size() && drafts[i] >= 0 && unit(seed, position + i) * q[i][drafts[i]] < p[i][drafts[i]])
    ids.push_back(drafts[i++]);
  Row rest = p[i];
  if (i < drafts.size() && drafts[i] >= 0)
    for (size_t t = 0; t < rest.size(); ++t) rest[t] = std::max(p[i][t] - q[i][t], 0.0);
  if (reference::sum_of(rest) == 0) rest = p[i];
  ids.push_back(reference::winner(rest, seed, position + i, static_cast<uint32_t>(Tag::kResidual)));
  ids.resize(drafts.size() + 1, -1);
  return ids;
}

/// Rows that sum to 1, as their dtype rounds them.
Tensor distributions(Draw& draw, const Dims& shape, DType dtype) {
  Tensor x = draw.any_layout(shape, dtype);
  std::vector<double> all;
  const int64_t n = shape.back();
  for (int64_t r = 0; r < product(shape) / n; ++r) {
    const Row p = reference::softmax(draw.normals(n), 0.7);
    all.insert(all.end(), p.begin(), p.end());
  }
  testing::assign(x, all);
  return x;
}

TEST(Speculative, MatchesTheReference) {
  Draw draw(1);
  int64_t accepted = 0, drafted = 0;
  for (DType dtype : kFloats) {
    for (int round = 0; round < 30; ++round) {
      const int64_t batch = draw.upto(4), n = draw.upto(5), v = 1 + draw.upto(50);
      const bool certain = round % 5 == 0;
      const Tensor p = distributions(draw, {batch, n + 1, v}, dtype), q = distributions(draw, {batch, n, v}, dtype);
      std::vector<double> drafts;
      for (int64_t i = 0; i < batch * n; ++i)
        drafts.push_back(draw.upto(9) == 0 ? -1.0 : static_cast<double>(draw.upto(v - 1)));
      const Tensor ids = tensor_of({batch, n}, int32, drafts);
      const SpeculativeResult got =
          speculative_accept(p, certain ? Tensor() : q, ids,
                             {.seed = round,
                              .position = 5,
                              .out = {draw.any_layout({batch, n + 1}, int64), draw.any_layout({batch}, int64)}});
      for (int64_t b = 0; b < batch; ++b) {
        std::vector<Row> mine, theirs;
        const auto row = ints(select(ids, 0, b));
        for (int64_t i = 0; i <= n; ++i) mine.push_back(values(select(select(p, 0, b), 0, i)));
        for (int64_t i = 0; i < n; ++i) {
          Row sure(static_cast<size_t>(v), 0.0);
          if (row[i] >= 0) sure[row[i]] = 1;
          theirs.push_back(certain ? sure : values(select(select(q, 0, b), 0, i)));
        }
        const auto want = chain(mine, theirs, row, static_cast<uint64_t>(round), 5);
        EXPECT_EQ(ints(select(got.ids, 0, b)), want) << name(dtype);
        const int64_t length = std::count_if(want.begin(), want.end(), [](int64_t id) { return id >= 0; }) - 1;
        EXPECT_EQ(ints(got.accepted)[b], length);
        accepted += length;
        drafted += n;
      }
    }
  }
  EXPECT_GT(accepted, drafted / 10);  // both outcomes occur
  EXPECT_LT(accepted, drafted * 9 / 10);
}

TEST(Speculative, TheTokensFollowTheTarget) {
  // Whatever the draft, the first token is distributed as the target.
  const int64_t n = 30000;
  const Row p{0.1, 0.2, 0.3, 0.4}, q{0.4, 0.3, 0.2, 0.1};
  const Tensor positions = testing::filled({n}, int64, [](int64_t i) { return 2 * i; });
  const Tensor drafts =
      sample_from_probs(broadcast_to(tensor_of({1, 4}, float32, q), {n, 4}), {.seed = 1, .position = positions}).ids;
  const SpeculativeResult got = speculative_accept(broadcast_to(tensor_of({1, 1, 4}, float32, p), {n, 2, 4}),
                                                   broadcast_to(tensor_of({1, 1, 4}, float32, q), {n, 1, 4}),
                                                   unsqueeze(drafts, 1), {.seed = 1, .position = positions});
  std::vector<double> counts(4, 0);
  for (int64_t id : ints(select(got.ids, 1, 0))) ++counts[id];
  double chi = 0;
  for (size_t i = 0; i < 4; ++i) chi += std::pow(counts[i] - p[i] * n, 2) / (p[i] * n);
  EXPECT_LT(chi, 16.3);  // 0.1 % of draws lie beyond, for 3 degrees of freedom
}

TEST(Speculative, RefusesWhatDoesNotFit) {
  const Tensor p = testing::full({2, 3, 5}, float32, 0.2), q = testing::full({2, 2, 5}, float32, 0.2);
  const Tensor ids = testing::full({2, 2}, int64, 0), bad = tensor_of({2, 2}, int64, {0, -1, 5, 0});
  expect_error<ShapeError>([&] { speculative_accept(q, q, ids, {.seed = 1}); },
                           "speculative_accept: target_probs must have shape (2, 3, 5), got (2, 2, 5)");
  expect_error<IndexError>([&] { speculative_accept(p, q, bad, {.seed = 1}); },
                           "speculative_accept: draft_ids holds 5 at 2, which is out of range (expected -1 to 4)");
  expect_error<DTypeError>([&] { speculative_accept(p, q.to(float64), ids, {.seed = 1}); },
                           "speculative_accept: draft_probs must have target_probs's dtype float32, got float64");
  expect_error<ValueError>([&] { speculative_accept(p, q, ids, {}); },
                           "speculative_accept: seed is required: a draw is a function of it");
  EXPECT_EQ(
      speculative_accept(Tensor::empty({0, 3, 5}, float32), {}, Tensor::empty({0, 2}, int64), {.seed = 1}).ids.shape(),
      (Dims{0, 3}));
}

}  // namespace
}  // namespace tenor
