#include "src/ops/gated_delta/gated_delta_testing.h"
#include "src/ops/norm/norm_reference.h"
#include "tenor/gated_delta.h"
#include "tenor/view.h"

namespace tenor {
namespace {

using testing::Draw;
using testing::expect_close;
using testing::expect_error;
using testing::full;
using testing::kFloats;
using testing::kNan;
using testing::list;
using testing::same_bits;
using testing::values;

TEST(GatedDeltaGate, MatchesTheReference) {
  Draw draw(1);
  for (DType dtype : kFloats)
    for (bool by_channel : {false, true})
      for (bool bounded : {false, true}) {
        const int64_t B = 2, H = 3, T = 1 + draw.upto(40), K = 1 + draw.upto(40);
        const Dims shape = by_channel ? Dims{B, H, T, K} : Dims{B, H, T};
        const Tensor a = draw.view(shape, dtype), A_log = draw.view({H}, bounded ? dtype : float32),
                     bias = draw.view(by_channel ? Dims{H, K} : Dims{H}, bounded ? float32 : dtype);
        const Tensor out = draw.poisoned(shape, float32);
        gated_delta_gate(a, A_log, bias,
                         {.lower_bound = bounded ? std::optional<double>(-5) : std::nullopt, .out = out});
        const auto x = values(a), rate = values(A_log), b = values(bias);
        std::vector<double> want;
        const int64_t width = by_channel ? K : 1;
        for (int64_t i = 0; i < a.numel(); ++i) {
          const int64_t h = i / width / T % H;
          const double offset = b[by_channel ? h * K + i % K : h];
          want.push_back(bounded ? reference::bounded_delta_gate(x[i], rate[h], offset, -5)
                                 : reference::delta_gate(x[i], rate[h], offset));
        }
        expect_close(out, want, std::string(name(dtype)), 2);
      }
}

TEST(GatedDeltaGate, ExtremesAndErrors) {
  const Tensor a = testing::tensor_of({1, 1, 4}, float32, {-1e4, 1e4, kNan, -testing::kInf}),
               zero = full({1}, float32, 0);
  const auto got = values(gated_delta_gate(a, zero, zero));
  EXPECT_EQ(got[0], 0);
  EXPECT_EQ(got[1], -1e4);
  EXPECT_TRUE(std::isnan(got[2]));
  EXPECT_EQ(got[3], 0);
  expect_error<ValueError>([&] { gated_delta_gate(a, zero, zero, {.lower_bound = 0.0}); },
                           "gated_delta_gate: lower_bound must be finite and < 0, got 0");
  expect_error<ShapeError>([&] { gated_delta_gate(a, full({2}, float32, 0), zero); },
                           "gated_delta_gate: A_log must have shape (1,), got (2,)");
  expect_error<DTypeError>([&] { gated_delta_gate(a, zero, full({1}, bfloat16, 0)); },
                           "gated_delta_gate: dt_bias must be float32 or a's dtype float32, got bfloat16");
}

struct ConvCase {
  Tensor x, weight;
  CausalConvOptions o;
};

/// y and the final states of the sequences from the reference.
std::pair<std::vector<double>, std::vector<double>> conv_wanted(const ConvCase& c) {
  const int64_t C = c.x.shape(1), T = c.x.shape(2), W = c.weight.shape(1);
  const auto x = values(c.x), taps = values(c.weight);
  const auto bias = c.o.bias.defined() ? values(c.o.bias) : std::vector<double>(C, 0);
  const Tensor first = c.o.state.defined() ? c.o.state : c.o.initial_state;
  const auto states = first.defined() ? values(first) : std::vector<double>();
  std::vector<double> y(x.size(), 0), last;
  const delta::StateOptions o{c.o.cu_seqlens, c.o.initial_state, c.o.state, c.o.state_indices, c.o.has_initial_state};
  for (const auto& s : delta::read_sequences("test", o, c.x.shape(0), T))
    for (int64_t channel = 0; channel < C; ++channel) {
      const auto at = x.begin() + (s.batch * C + channel) * T + s.begin;
      std::vector<double> before(W - 1, 0), own(at, at + s.length);
      if (!s.fresh && s.slot >= 0)
        std::copy_n(states.begin() + (s.slot * C + channel) * (W - 1), W - 1, before.begin());
      if (s.slot >= 0) {
        const auto out =
            reference::causal_conv(own, before, {taps.begin() + channel * W, taps.begin() + (channel + 1) * W},
                                   bias[channel], c.o.activation == "silu");
        std::copy(out.begin(), out.end(), y.begin() + (s.batch * C + channel) * T + s.begin);
      }
      before.insert(before.end(), own.begin(), own.end());
      last.insert(last.end(), before.end() - (W - 1), before.end());
    }
  return {y, last};
}

TEST(CausalConv, MatchesTheReference) {
  Draw draw(2);
  for (DType dtype : kFloats)
    for (int round = 0; round < 12; ++round) {
      const int64_t B = 1 + draw.upto(2), C = 1 + draw.upto(30), T = draw.upto(round % 3 ? 20 : 300),
                    W = 1 + draw.upto(4);
      ConvCase c{draw.view({B, C, T}, dtype), draw.view({C, W}, round % 2 ? dtype : float32), {}};
      if (round % 2) c.o.bias = draw.view({C}, float32);
      if (round % 3) c.o.activation = "silu";
      if (round % 4 == 1) c.o.initial_state = draw.view({B, C, W - 1}, dtype);
      if (round % 4 == 1 && B > 1) c.o.has_initial_state = full({B}, boolean, round % 8 == 1);
      c.o.out = {draw.poisoned({B, C, T}, dtype), draw.poisoned({B, C, W - 1}, dtype)};
      const auto [y, last] = conv_wanted(c);
      const CausalConvResult got = causal_conv1d(c.x, c.weight, c.o);
      expect_close(got.y, y, std::string(name(dtype)) + " y", 2, 1e-5);
      expect_close(got.final_state, last, "state", 1);
    }
}

TEST(CausalConv, PackedSequencesAndPools) {
  Draw draw(3);
  const int64_t C = 5, W = 4;
  ConvCase c{draw.view({1, C, 30}, bfloat16), draw.view({C, W}, bfloat16), {.activation = "silu"}};
  c.o.cu_seqlens = list({0, 0, 2, 11, 25}, int64);
  c.o.initial_state = draw.view({4, C, W - 1}, bfloat16);
  auto want = conv_wanted(c);
  CausalConvResult got = causal_conv1d(c.x, c.weight, c.o);
  expect_close(got.y, want.first, "packed", 2);
  expect_close(got.final_state, want.second, "states");
  const Tensor pool = draw.view({6, C, W - 1}, bfloat16), before = pool.clone();
  c.o.initial_state = {};
  c.o.state = pool, c.o.state_indices = list({5, -1, 2, 0}, int32), c.o.has_initial_state = list({1, 1, 0, 1}, boolean);
  want = conv_wanted(c);
  got = causal_conv1d(c.x, c.weight, c.o);
  EXPECT_EQ(got.final_state.raw(), pool.raw());
  expect_close(got.y, want.first, "pool", 2);
  for (int64_t slot : {1, 3, 4}) EXPECT_TRUE(same_bits(select(pool, 0, slot), select(before, 0, slot)));
  const int64_t n = C * (W - 1);
  for (const auto& [slot, sequence] : {std::pair{5, 0}, {2, 2}, {0, 3}})
    expect_close(select(pool, 0, slot), {want.second.begin() + sequence * n, want.second.begin() + (sequence + 1) * n},
                 "slot");
}

TEST(CausalConv, StepByStepGivesTheSameBits) {
  Draw draw(4);
  const Tensor x = draw.dense({2, 7, 9}, bfloat16), weight = draw.dense({7, 4}, float32);
  const CausalConvResult whole = causal_conv1d(x, weight, {.activation = "silu"});
  Tensor state = full({2, 7, 3}, bfloat16, 0);
  for (int64_t t = 0; t < 9; ++t) {
    const CausalConvResult one =
        causal_conv1d(slice(x, 2, t, t + 1), weight, {.initial_state = state, .activation = "silu"});
    EXPECT_TRUE(same_bits(one.y, slice(whole.y, 2, t, t + 1)));
    state = one.final_state;
  }
  EXPECT_TRUE(same_bits(state, whole.final_state));
}

TEST(CausalConv, Errors) {
  const Tensor x = full({1, 2, 3}, float32, 1), w = full({2, 4}, float32, 1);
  expect_error<ShapeError>(
      [&] {
        causal_conv1d(x, full({3, 4}, float32, 1));
      },
      "causal_conv1d: weight must have shape (2, 4), got (3, 4)");
  expect_error<ValueError>([&] { causal_conv1d(x, w, {.activation = "relu"}); },
                           "causal_conv1d: activation must be 'none' or 'silu', got 'relu'");
  expect_error<ShapeError>(
      [&] {
        causal_conv1d(x, w, {.initial_state = full({1, 2, 4}, float32, 0)});
      },
      "causal_conv1d: initial_state must have shape (1, 2, 3), got (1, 2, 4)");
  expect_error<DTypeError>(
      [&] {
        causal_conv1d(x, w, {.initial_state = full({1, 2, 3}, bfloat16, 0)});
      },
      "causal_conv1d: initial_state must be float32, got bfloat16");
}

TEST(GatedRmsNorm, MatchesTheReference) {
  Draw draw(5);
  for (DType dtype : kFloats)
    for (int64_t n : {1, 7, 64, 128, 1000}) {
      const Tensor x = draw.view({3, 5, n}, dtype), gate = draw.view({3, 5, n}, dtype), gamma = draw.view({n}, float32);
      const auto g = values(gate), scale = values(gamma), all = values(x);
      std::vector<double> want;
      for (int64_t r = 0; r < 15; ++r) {
        auto row = reference::rms_norm({all.begin() + r * n, all.begin() + (r + 1) * n}, scale, 1e-5, 0);
        for (int64_t i = 0; i < n; ++i) want.push_back(row[i] * g[r * n + i] / (1 + std::exp(-g[r * n + i])));
      }
      const Tensor out = draw.poisoned({3, 5, n}, dtype);
      gated_rms_norm(x, gate, gamma, {.epsilon = 1e-5, .out = out});
      expect_close(out, want, std::string(name(dtype)), 2);
    }
  const Tensor x = full({2, 3}, float32, 1);
  expect_error<ShapeError>(
      [&] {
        gated_rms_norm(x, full({2, 4}, float32, 1), full({3}, float32, 1));
      },
      "gated_rms_norm: gate must have shape (2, 3), got (2, 4)");
  expect_error<ValueError>([&] { gated_rms_norm(x, x, full({3}, float32, 1), {.epsilon = 0}); },
                           "gated_rms_norm: epsilon must be finite and > 0, got 0");
}

}  // namespace
}  // namespace tenor
