#include <algorithm>

#include "src/ops/ctc/ctc_beam.h"
#include "src/ops/ctc/ctc_testing.h"

namespace tenor {
namespace {

using testing::expect_error;
using testing::kInf;
using testing::kNan;
using testing::list;

TEST(Ctc, Random) { testing::test_ctc_random(kCpu, testing::kCtcShapes, 3); }
TEST(Ctc, LongLabels) {
  testing::test_ctc_random(kCpu, {{700, 2, 20, 320, false}, {1500, 1, 5, 600}, {300, 2, 3000, 40}}, 1);
}
TEST(Ctc, Bits) { testing::test_ctc_bits(kCpu); }
TEST(Ctc, Extremes) { testing::test_ctc_extremes(kCpu); }
TEST(Ctc, Greedy) { testing::test_ctc_greedy(kCpu); }
TEST(Ctc, BeamFindsTheBest) { testing::test_ctc_beam_exhaustive(kCpu); }

TEST(Ctc, ThreadsDoNotShow) {
  testing::CtcDraw draw(8, kCpu);
  const testing::CtcBatch b = draw.batch({70, 5, 40, 12}, bfloat16);
  const Tensor x = draw.log_probs(b), targets = draw.targets(b, true, int32);
  const auto run = [&](int threads) {
    const testing::Threads count(threads);
    return ctc_loss(x, targets, b.frames, b.counts(), {.blank = b.blank, .zero_infinity = true, .return_grad = true});
  };
  const CtcLossResult one = run(1);
  for (int threads : {2, 7}) {
    const CtcLossResult other = run(threads);
    EXPECT_TRUE(testing::same_bits(one.loss, other.loss));
    EXPECT_TRUE(testing::same_bits(one.gradient, other.gradient));
  }
}

/// The gradient is that of the loss with respect to logits, by differences in float64.
TEST(Ctc, FiniteDifferences) {
  testing::CtcDraw draw(6, kCpu);
  const int64_t T = 9, N = 2, C = 5;
  std::vector<double> logits = draw.normals(T * N * C);
  const Tensor targets = testing::tensor_of({N, 4}, int64, {1, 1, 2, 4, 3, 1, 0, 0});
  const auto loss_at = [&](const std::vector<double>& z) {
    std::vector<double> x = z;
    for (size_t row = 0; row < x.size(); row += C) {
      double sum = 0;
      for (size_t c = 0; c < C; ++c) sum += std::exp(z[row + c]);
      for (size_t c = 0; c < C; ++c) x[row + c] -= std::log(sum);
    }
    return ctc_loss(testing::tensor_of({T, N, C}, float64, x), targets, {9, 7}, {4, 2}, {.return_grad = true});
  };
  const std::vector<double> gradient = testing::values(loss_at(logits).gradient);
  for (size_t i = 0; i < logits.size(); ++i) {
    const double step = 1e-5, at = logits[i];
    logits[i] = at + step;
    const double more = testing::values(loss_at(logits).loss)[0];
    logits[i] = at - step;
    const double less = testing::values(loss_at(logits).loss)[0];
    logits[i] = at;
    EXPECT_NEAR(gradient[i], (more - less) / (2 * step), 1e-9) << i;
  }
}

TEST(Ctc, ScaledNumbers) {
  using namespace ctc;
  testing::Draw draw(2);
  for (int i = 0; i < 3000; ++i) {
    const double x = draw.normal() * std::exp(3 * draw.normal());
    const Scaled<double> p = exponential(x);
    EXPECT_NEAR(logarithm(p), x, 1e-14 * (1 + std::abs(x)));
    EXPECT_NEAR(logarithm(exponential(static_cast<float>(x))), static_cast<double>(static_cast<float>(x)),
                2e-7 * (1 + std::abs(x)));
    const double y = x + draw.normal();
    EXPECT_NEAR(logarithm(add(p, exponential(y))), static_cast<double>(ctc::reference::log_add(x, y)),
                1e-14 * (1 + std::abs(x)));
    EXPECT_NEAR(logarithm(add(p, exponential(y), exponential(x + y))),
                static_cast<double>(ctc::reference::log_add(ctc::reference::log_add(x, y), x + y)),
                2e-14 * (2 + std::abs(x) + std::abs(y)));
    const Scaled<double> n = normalized(multiply(p, exponential(y)));
    EXPECT_TRUE(n.m >= 1 && n.m < 2);
    EXPECT_NEAR(logarithm(n), x + y, 1e-14 * (2 + std::abs(x + y)));
  }
  EXPECT_EQ(logarithm(add(zero<float>(), zero<float>())), -kInf);
  EXPECT_EQ(normalized(zero<float>()).m, 0);
  EXPECT_EQ(logarithm(exponential(-kInf)), -kInf);
  EXPECT_TRUE(std::isnan(logarithm(exponential(kNan))));
  EXPECT_EQ(power_of_two(-127.0f), 0.0f);
  EXPECT_EQ(power_of_two(-126.0f), 0x1p-126f);
  EXPECT_EQ(power_of_two(-1023.0), 0.0);
}

/// Narrow beams, against a search that keeps every prefix in a map and prunes by sorting.
TEST(Ctc, NarrowBeams) {
  testing::CtcDraw draw(14, kCpu);
  for (int round = 0; round < 40; ++round) {
    const int64_t C = 2 + draw.upto(40), T = draw.upto(30), width = 1 + draw.upto(12);
    const testing::CtcBatch b = draw.batch({T, 2, C, 0, true, 1.5}, float32);
    std::vector<std::vector<int64_t>> want;
    for (int64_t n = 0; n < b.N; ++n) {
      using Prefix = std::vector<int64_t>;
      struct Ends {
        double blank = 0, label = 0;
      };
      std::map<Prefix, Ends> beam = {{{}, {1, 0}}};
      for (const auto& row : b.rows(n)) {
        std::map<Prefix, Ends> next;
        for (const auto& [prefix, p] : beam)
          for (int64_t c = 0; c < C; ++c) {
            const double q = std::exp(row[static_cast<size_t>(c)]);
            if (c == b.blank) {
              next[prefix].blank += (p.blank + p.label) * q;
              continue;
            }
            Prefix longer = prefix;
            longer.push_back(c);
            const bool repeats = !prefix.empty() && prefix.back() == c;
            if (repeats) next[prefix].label += p.label * q;
            next[longer].label += (repeats ? p.blank : p.blank + p.label) * q;
          }
        std::vector<std::pair<double, Prefix>> order;
        for (const auto& [prefix, p] : next)
          if (p.blank + p.label > 0) order.push_back({-(p.blank + p.label), prefix});
        std::sort(order.begin(), order.end());
        beam.clear();
        for (size_t i = 0; i < order.size() && i < static_cast<size_t>(width); ++i)
          beam[order[i].second] = next[order[i].second];
      }
      double best = 0;
      Prefix found;
      for (const auto& [prefix, p] : beam)
        if (p.blank + p.label > best) best = p.blank + p.label, found = prefix;
      want.push_back(found);
    }
    testing::expect_ids(
        ctc_beam_decode(draw.log_probs(b), {.input_lengths = b.frames, .blank = b.blank, .beam_width = width}), want,
        T);
  }
}

TEST(Ctc, Errors) {
  const Tensor x = testing::full({3, 2, 4}, float32, -1), targets = testing::full({2, 2}, int64, 1);
  const auto loss = [&](const Tensor& t, const CtcLengths& il, const CtcLengths& tl, const CtcLossOptions& o = {}) {
    return [=] { ctc_loss(x, t, il, tl, o); };
  };
  const CtcLengths frames = {3, 3}, counts = {2, 2};
  expect_error<ValueError>(loss(targets, frames, counts, {.blank = 4}),
                           "ctc_loss: blank must be one of log_probs' 4 classes, 0 to 3, got 4");
  expect_error<ValueError>(loss(targets, frames, counts, {.reduction = "avg"}),
                           "ctc_loss: reduction must be 'mean', 'sum' or 'none', got 'avg'");
  expect_error<ValueError>(loss(targets, {3, 4}, counts), "ctc_loss: input_lengths must be 0 to 3, got 4 at 1");
  expect_error<ValueError>(loss(targets, list({-1, 3}, int32), counts),
                           "ctc_loss: input_lengths must be 0 to 3, got -1 at 0");
  expect_error<ValueError>(loss(targets, frames, {3, 2}), "ctc_loss: target_lengths must be 0 to 2, got 3 at 0");
  expect_error<ShapeError>(loss(targets, {3}, counts),
                           "ctc_loss: input_lengths must hold 2 lengths, one a sample of log_probs, got 1");
  expect_error<ShapeError>(loss(targets, list({3, 3, 3}, int64), counts),
                           "ctc_loss: input_lengths must have shape (2,), got (3,)");
  expect_error<DTypeError>(loss(targets, list({3, 3}), counts),
                           "ctc_loss: input_lengths must be an integer array, got float32");
  expect_error<DTypeError>(loss(testing::full({2, 2}, float32, 1), frames, counts),
                           "ctc_loss: targets must be an integer array, got float32");
  expect_error<ShapeError>(loss(testing::full({3, 2}, int64, 1), frames, counts),
                           "ctc_loss: targets must have 2 rows, one a sample of log_probs, got shape (3, 2)");
  expect_error<ShapeError>(loss(testing::full({2, 2, 1}, int64, 1), frames, counts),
                           "ctc_loss: targets must have shape [N, S] or [sum of target_lengths], got (2, 2, 1)");
  expect_error<ShapeError>(loss(testing::full({5}, int64, 1), frames, counts),
                           "ctc_loss: targets must hold as many labels as target_lengths add up to, 4, got 5");
  expect_error<IndexError>(loss(testing::tensor_of({2, 2}, int64, {1, 2, 1, 4}), frames, counts),
                           "ctc_loss: targets holds 4 at label 1 of sample 1, which is out of range (expected 0 to 3)");
  expect_error<ValueError>(loss(targets, frames, counts, {.out = {{}, x}}), "ctc_loss: out.gradient needs return_grad");
  expect_error<ValueError>(loss(targets, frames, counts, {.return_grad = true, .out = {{}, x}}),
                           "ctc_loss: out= needs both loss and gradient");
  expect_error<ShapeError>([&] { ctc_loss(targets.to(float32), targets, frames, counts); },
                           "ctc_loss: log_probs must have 3 dims, got 2 with shape (2, 2)");
  expect_error<DTypeError>([&] { ctc_loss(x.to(int32), targets, frames, counts); },
                           "ctc_loss: log_probs must be float16, bfloat16, float32 or float64, got int32");
  expect_error<ShapeError>(
      [&] {
        ctc_loss_backward(list({1, 1}), x, targets, frames, counts);
      },
      "ctc_loss_backward: grad_output must have shape (), got (2,)");
  expect_error<DTypeError>([&] { ctc_loss_backward(testing::full({}, float64, 1), x, targets, frames, counts); },
                           "ctc_loss_backward: grad_output must have log_probs' dtype float32 or float32, got float64");
  expect_error<ValueError>([&] { ctc_beam_decode(x, {.beam_width = 0}); },
                           "ctc_beam_decode: beam_width must be >= 1, got 0");
  expect_error<ValueError>(
      [&] {
        ctc_greedy_decode(x, {.input_lengths = {3, 4}});
      },
      "ctc_greedy_decode: input_lengths must be 0 to 3, got 4 at 1");
  expect_error<ValueError>(
      [&] {
        ctc_greedy_decode(x, {.out = {testing::full({2, 3}, int64, 0), {}}});
      },
      "ctc_greedy_decode: out= needs both ids and lengths");
}

/// A bad entry is found before anything is written.
TEST(Ctc, NothingWritten) {
  const Tensor x = testing::full({3, 1, 4}, float32, -1), bad = testing::tensor_of({1, 2}, int64, {1, 9});
  const CtcLossResult out{testing::full({}, float32, 7), testing::full({3, 1, 4}, float32, 7)};
  EXPECT_THROW(ctc_loss(x, bad, {3}, {2}, {.return_grad = true, .out = out}), IndexError);
  EXPECT_EQ(testing::values(out.loss), std::vector<double>{7});
  EXPECT_EQ(testing::values(out.gradient), std::vector<double>(12, 7));
}

/// out.gradient on log_probs: as if computed before writing.
TEST(Ctc, OutOnInput) {
  testing::CtcDraw draw(12, kCpu);
  const testing::CtcBatch b = draw.batch({12, 3, 6, 4, false}, float32);
  const Tensor x = testing::tensor_of({12, 3, 6}, float32, b.log_probs), targets = draw.targets(b, false, int64);
  const CtcLossResult want = ctc_loss(x, targets, b.frames, b.counts(), {.blank = b.blank, .return_grad = true});
  const Tensor loss = Tensor::empty({}, float32);
  ctc_loss(x, targets, b.frames, b.counts(), {.blank = b.blank, .return_grad = true, .out = {loss, x}});
  EXPECT_TRUE(testing::same_bits(x, want.gradient));
}

}  // namespace
}  // namespace tenor
