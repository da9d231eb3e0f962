// What the family's tests share: random problems and comparisons with the reference, on any device.
#pragma once

#include "src/core/output.h"
#include "src/core/testing.h"
#include "src/core/text.h"
#include "src/ops/ctc/ctc_reference.h"
#include "tenor/ctc.h"
#include "tenor/modes.h"
#include "tenor/stream.h"

namespace tenor::testing {

namespace reference = ctc::reference;

/// A batch of samples, and as the operators take it.
struct CtcBatch {
  int64_t T, N, C, S, blank;
  DType dtype;
  std::vector<std::vector<int64_t>> labels;
  std::vector<int64_t> frames;
  std::vector<double> log_probs;  ///< [T, N, C], as the dtype holds them

  std::vector<reference::Row> rows(int64_t n) const {
    std::vector<reference::Row> all;
    for (int64_t t = 0; t < frames[static_cast<size_t>(n)]; ++t) {
      const auto first = log_probs.begin() + (t * N + n) * C;
      all.emplace_back(first, first + C);
    }
    return all;
  }
  std::vector<int64_t> counts() const {
    std::vector<int64_t> all;
    for (const auto& own : labels) all.push_back(static_cast<int64_t>(own.size()));
    return all;
  }
};

struct CtcShape {
  int64_t T, N, C, S;
  bool vary = true;   ///< lengths
  double spread = 1;  ///< of the logits
  bool infinities = false;
};

class CtcDraw : public Draw {
 public:
  CtcDraw(uint32_t seed, Device device) : Draw(seed), device_(device) {}

  CtcBatch batch(const CtcShape& s, DType dtype) {
    CtcBatch b{s.T, s.N, s.C, s.S, upto(s.C - 1), dtype, {}, {}, {}};
    for (int64_t n = 0; n < s.N; ++n) {
      b.frames.push_back(s.vary ? upto(s.T) : s.T);
      std::vector<int64_t> own(static_cast<size_t>(s.vary ? upto(s.S) : s.S));
      for (int64_t& k : own) {
        k = upto(s.C - 1);
        if (k == b.blank && upto(9) > 0) k = (k + 1) % s.C;  // a label may be the blank, though none should
      }
      b.labels.push_back(own);
    }
    for (int64_t row = 0; row < s.T * s.N; ++row) {
      std::vector<double> x(static_cast<size_t>(s.C));
      double sum = 0;
      for (double& v : x) v = s.infinities && upto(6) == 0 ? -kInf : s.spread * normal(), sum += std::exp(v);
      for (double v : x) b.log_probs.push_back(rounded(sum > 0 ? v - std::log(sum) : v, dtype));
    }
    return b;
  }

  /// Those numbers under any layout, on the device.
  Tensor placed(const Dims& shape, DType dtype, const std::vector<double>& elements) {
    const Tensor x = any_layout(shape, dtype);
    assign(x, elements);
    return on_device(x);
  }
  /// NaN past a sample's frames.
  Tensor log_probs(const CtcBatch& b) {
    std::vector<double> x = b.log_probs;
    for (int64_t i = 0; i < static_cast<int64_t>(x.size()); ++i)
      if (i / (b.N * b.C) >= b.frames[static_cast<size_t>(i / b.C % b.N)]) x[static_cast<size_t>(i)] = kNan;
    return placed({b.T, b.N, b.C}, b.dtype, x);
  }
  /// Padded with what is no label, or one after another.
  Tensor targets(const CtcBatch& b, bool flat, DType dtype) {
    std::vector<double> all;
    for (const auto& own : b.labels)
      for (int64_t i = 0; i < (flat ? static_cast<int64_t>(own.size()) : b.S); ++i)
        all.push_back(i < static_cast<int64_t>(own.size()) ? static_cast<double>(own[static_cast<size_t>(i)]) : 99);
    const auto count = static_cast<int64_t>(all.size());
    return placed(flat ? Dims{count} : Dims{b.N, b.S}, dtype, all);
  }
  CtcLengths lengths(const std::vector<int64_t>& values) {
    if (coin()) return values;
    return placed({static_cast<int64_t>(values.size())}, coin() ? int64 : int32,
                  std::vector<double>(values.begin(), values.end()));
  }
  Tensor on_device(const Tensor& x) const {
    if (device_ == kCpu || x.numel() == 0) return x.to(device_);
    int64_t reach = 1;  // gaps included
    for (int d = 0; d < x.ndim(); ++d) reach += (x.shape(d) - 1) * x.stride(d);
    return x.with_layout({x.offset() + reach}, {1}, 0).to(device_).with_layout(x.shape(), x.strides(), x.offset());
  }
  Tensor poisoned_there(const Dims& shape, DType dtype) { return on_device(poisoned(shape, dtype)); }

 private:
  Device device_;
};

/// The losses, and the gradient for those upstream weights.
struct CtcExpected {
  std::vector<double> losses, gradient;
};
inline CtcExpected ctc_expected(const CtcBatch& b, bool zero_infinity, const std::vector<double>& weights) {
  CtcExpected out{{}, std::vector<double>(b.log_probs.size(), 0)};
  for (int64_t n = 0; n < b.N; ++n) {
    const auto at = static_cast<size_t>(n);
    const reference::Sample s = reference::loss(b.rows(n), b.labels[at], b.blank);
    const bool zeroed = zero_infinity && s.loss == kInf;
    out.losses.push_back(zeroed ? 0 : s.loss);
    for (int64_t t = 0; t < b.frames[at]; ++t)
      for (int64_t c = 0; c < b.C; ++c)
        out.gradient[static_cast<size_t>((t * b.N + n) * b.C + c)] =
            zeroed ? 0 : s.gradient[static_cast<size_t>(t)][static_cast<size_t>(c)] * weights[at];
  }
  return out;
}

inline std::vector<double> ctc_weights(const CtcBatch& b, const std::string& reduction,
                                       const std::vector<double>& upstream) {
  std::vector<double> all;
  for (size_t n = 0; n < b.labels.size(); ++n) {
    const double own = static_cast<double>(std::max<size_t>(b.labels[n].size(), 1));
    all.push_back(upstream[reduction == "none" ? n : 0] *
                  (reduction == "mean" ? 1 / (own * static_cast<double>(b.N)) : 1));
  }
  return all;
}

inline double ctc_joined(const CtcBatch& b, const std::string& reduction, const std::vector<double>& losses) {
  const std::vector<double> weights = ctc_weights(b, reduction, std::vector<double>(losses.size() + 1, 1));
  double sum = 0;
  for (size_t n = 0; n < losses.size(); ++n) sum += losses[n] * weights[n];
  return sum;
}

/// Errors of the recursion add up over the frames: 2^-24 a step in float32, at random.
inline double ctc_floor(int64_t T) { return 1e-7 * (4 + std::sqrt(static_cast<double>(T))); }

/// One batch through every form of the operators.
inline void check_ctc(CtcDraw& draw, const CtcBatch& b, Device device) {
  const Tensor x = draw.log_probs(b);
  const bool flat = draw.coin(), zero_infinity = draw.coin();
  const Tensor targets = draw.targets(b, flat, draw.coin() ? int64 : draw.coin() || b.C > 256 ? int32 : uint8);
  const CtcLengths frames = draw.lengths(b.frames), counts = draw.lengths(b.counts());
  const char* reductions[] = {"mean", "sum", "none"};
  const std::string reduction = reductions[draw.upto(2)];
  const bool each = reduction == "none";
  const Dims loss_shape = each ? Dims{b.N} : Dims{};
  std::vector<double> upstream = draw.normals(each ? b.N : 1);
  for (double& u : upstream) u = rounded(u, b.dtype);
  const std::vector<double> weights = ctc_weights(b, reduction, upstream),
                            ones = ctc_weights(b, reduction, std::vector<double>(static_cast<size_t>(b.N) + 1, 1));
  const CtcExpected want = ctc_expected(b, zero_infinity, weights), unit = ctc_expected(b, zero_infinity, ones);
  const std::vector<double> losses = each ? want.losses : std::vector<double>{ctc_joined(b, reduction, want.losses)};
  const std::string what = core::text("T{} N{} C{} S{} {} {} flat {} zero {}", b.T, b.N, b.C, b.S,
                                      std::string(name(b.dtype)), reduction, flat, zero_infinity);
  const CtcLossOptions options{.blank = b.blank, .reduction = reduction, .zero_infinity = zero_infinity};
  const Tensor loss = ctc_loss(x, targets, frames, counts, options).loss;
  ASSERT_EQ(loss.shape(), loss_shape);
  expect_close(loss.to(kCpu), losses, what + " loss", 1, ctc_floor(b.T));

  CtcLossOptions both = options;
  both.return_grad = true;
  both.out = {draw.poisoned_there(loss_shape, b.dtype), draw.poisoned_there({b.T, b.N, b.C}, b.dtype)};
  const CtcLossResult pass = ctc_loss(x, targets, frames, counts, both);
  expect_close(pass.loss.to(kCpu), losses, what + " loss of both", 1, ctc_floor(b.T));
  expect_close(pass.gradient.to(kCpu), unit.gradient, what + " gradient of both", 1, 4 * ctc_floor(b.T));

  const Tensor up = draw.placed(loss_shape, draw.coin() ? b.dtype : b.dtype == float64 ? float64 : float32, upstream);
  const Tensor gradient = ctc_loss_backward(up, x, targets, frames, counts,
                                            {.blank = b.blank, .reduction = reduction, .zero_infinity = zero_infinity});
  expect_close(gradient.to(kCpu), want.gradient, what + " gradient", 1, 16 * ctc_floor(b.T));
  EXPECT_EQ(gradient.device(), device);
}

inline void test_ctc_random(Device device, const std::vector<CtcShape>& shapes, int rounds) {
  CtcDraw draw(11, device);
  for (const CtcShape& s : shapes)
    for (DType dtype : kFloats)
      for (int round = 0; round < rounds; ++round) check_ctc(draw, draw.batch(s, dtype), device);
}

inline const std::vector<CtcShape> kCtcShapes = {{0, 2, 3, 0},
                                                 {1, 2, 2, 1},
                                                 {3, 3, 4, 2},
                                                 {7, 4, 5, 3},
                                                 {17, 3, 9, 8},
                                                 {33, 5, 2, 4},
                                                 {40, 3, 65, 20},
                                                 {50, 2, 30, 16, false},
                                                 {20, 1, 1, 3},
                                                 {65, 3, 12, 33},
                                                 {6, 0, 5, 2},
                                                 {30, 4, 6, 6, true, 8},
                                                 {24, 4, 5, 4, true, 1, true},
                                                 {90, 2, 40, 40, false, 3}};

/// Equal bits alone and in a batch, and from one run to the next.
inline void test_ctc_bits(Device device) {
  CtcDraw draw(5, device);
  const CtcBatch b = draw.batch({60, 7, 33, 14}, float32);
  const Tensor x = tensor_of({b.T, b.N, b.C}, float32, b.log_probs).to(device), targets = draw.targets(b, false, int64);
  const CtcLossOptions options{.blank = b.blank, .reduction = "none", .return_grad = true};
  const auto run = [&](const Tensor& x, const Tensor& targets, const std::vector<int64_t>& frames,
                       const std::vector<int64_t>& counts) {
    CtcLossResult r = ctc_loss(x, targets, frames, counts, options);
    return CtcLossResult{r.loss.to(kCpu), r.gradient.to(kCpu).contiguous()};
  };
  const CtcLossResult all = run(x, targets, b.frames, b.counts()), again = run(x, targets, b.frames, b.counts());
  EXPECT_TRUE(same_bits(all.loss, again.loss));
  EXPECT_TRUE(same_bits(all.gradient, again.gradient));
  for (int64_t n = 0; n < b.N; ++n) {
    const auto at = static_cast<size_t>(n);
    const CtcLossResult alone =
        run(x.with_layout({b.T, 1, b.C}, x.strides(), x.offset() + n * x.stride(1)),
            targets.with_layout({1, b.S}, targets.strides(), targets.offset() + n * targets.stride(0)), {b.frames[at]},
            {b.counts()[at]});
    EXPECT_TRUE(same_bits(alone.loss, all.loss.with_layout({1}, {1}, all.loss.offset() + n)));
    EXPECT_TRUE(same_bits(alone.gradient, all.gradient.with_layout({b.T, 1, b.C}, all.gradient.strides(),
                                                                   all.gradient.offset() + n * b.C)));
  }
}

/// The numbers that float logarithms cannot hold, and those that no float holds.
inline void test_ctc_extremes(Device device) {
  const auto loss = [&](const std::vector<double>& log_probs, int64_t T, int64_t C, const std::vector<double>& labels) {
    const Tensor x = tensor_of({T, 1, C}, float32, log_probs).to(device),
                 targets = tensor_of({1, static_cast<int64_t>(labels.size())}, int64, labels).to(device);
    return values(
        ctc_loss(x, targets, {T}, {static_cast<int64_t>(labels.size())}, {.reduction = "sum"}).loss.to(kCpu))[0];
  };
  EXPECT_EQ(loss({-1e30, 0}, 1, 2, {}), rounded(1e30, float32));  // the one path is that improbable
  EXPECT_EQ(loss({-kInf, 0}, 1, 2, {}), kInf);
  EXPECT_TRUE(std::isnan(loss({kNan, 0}, 1, 2, {})));
  EXPECT_EQ(loss({0, -kInf, 0, -kInf}, 2, 2, {}), 0);
  EXPECT_NEAR(loss(std::vector<double>(3 * 5000, -40), 5000, 3, {}), 200000, 0.02);
  EXPECT_EQ(loss({0, 0}, 1, 2, {1, 1}), kInf);  // more labels than frames
  // Both of a label's neighbours out of reach of float32's exponents.
  EXPECT_NEAR(loss({-300, -200, -1000, 0}, 2, 2, {1}), 200, 1e-4);
}

/// A greedy decode, or one by beams, against sequences.
inline void expect_ids(const CtcDecodeResult& got, const std::vector<std::vector<int64_t>>& want, int64_t T) {
  const std::vector<double> ids = values(got.ids.to(kCpu)), lengths = values(got.lengths.to(kCpu));
  ASSERT_EQ(got.ids.shape(), (Dims{static_cast<int64_t>(want.size()), T}));
  for (size_t n = 0; n < want.size(); ++n) {
    ASSERT_EQ(lengths[n], static_cast<double>(want[n].size())) << "sample " << n;
    for (int64_t t = 0; t < T; ++t)
      ASSERT_EQ(ids[n * static_cast<size_t>(T) + static_cast<size_t>(t)],
                t < static_cast<int64_t>(want[n].size()) ? static_cast<double>(want[n][static_cast<size_t>(t)]) : -1)
          << "sample " << n << " place " << t;
  }
}

inline void test_ctc_greedy(Device device) {
  CtcDraw draw(3, device);
  for (const CtcShape& s :
       std::vector<CtcShape>{{0, 2, 3, 0}, {1, 1, 1, 0}, {9, 4, 3, 0}, {40, 3, 20, 0}, {700, 2, 4, 0}, {5, 0, 3, 0}})
    for (DType dtype : kFloats) {
      const CtcBatch b = draw.batch(s, dtype);
      std::vector<std::vector<int64_t>> want;
      for (int64_t n = 0; n < s.N; ++n) {
        std::vector<int64_t> path;
        for (const auto& row : b.rows(n)) path.push_back(std::max_element(row.begin(), row.end()) - row.begin());
        want.push_back(reference::collapsed(path, b.blank));
      }
      const Tensor x = draw.log_probs(b);
      const CtcDecodeResult out{draw.on_device(draw.any_layout({s.N, s.T}, int64)),
                                draw.on_device(draw.any_layout({s.N}, int64))};
      expect_ids(ctc_greedy_decode(x, {.input_lengths = draw.lengths(b.frames), .blank = b.blank, .out = out}), want,
                 s.T);
    }
}

/// Wide beams find the most probable of all sequences.
inline void test_ctc_beam_exhaustive(Device device) {
  CtcDraw draw(4, device);
  for (int round = 0; round < 60; ++round) {
    const int64_t C = 1 + draw.upto(3), T = draw.upto(C < 3 ? 8 : 5);
    const CtcBatch b = draw.batch({T, 3, C, 0, true, draw.coin() ? 0.3 : 2.0, draw.upto(3) == 0}, float64);
    const CtcDecodeResult got =
        ctc_beam_decode(draw.log_probs(b), {.input_lengths = b.frames, .blank = b.blank, .beam_width = 3000});
    const std::vector<double> ids = values(got.ids.to(kCpu)), lengths = values(got.lengths.to(kCpu));
    // As wide as one likes: no more prefixes than there are take memory.
    const CtcDecodeResult wider = ctc_beam_decode(
        draw.log_probs(b), {.input_lengths = b.frames, .blank = b.blank, .beam_width = int64_t{1} << 62});
    EXPECT_EQ(values(wider.ids.to(kCpu)), ids) << round;
    for (int64_t n = 0; n < b.N; ++n) {
      const auto every = reference::every_sequence(b.rows(n), b.blank);
      std::vector<int64_t> found;
      for (int64_t i = 0; i < static_cast<int64_t>(lengths[static_cast<size_t>(n)]); ++i)
        found.push_back(static_cast<int64_t>(ids[static_cast<size_t>(n * T + i)]));
      double best = 0;
      for (const auto& [sequence, p] : every) best = std::max(best, p);
      if (best == 0) {
        EXPECT_TRUE(found.empty());
        continue;
      }
      ASSERT_TRUE(every.count(found)) << round << " sample " << n;
      EXPECT_NEAR(every.at(found), best, 1e-12 * best) << round << " sample " << n;
    }
  }
}

}  // namespace tenor::testing
