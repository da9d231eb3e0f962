// What the family's tests share on both devices: random problems with options crossed.
#pragma once

#include <string>

#include "src/core/testing.h"
#include "src/ops/attention/attention_reference.h"
#include "tenor/attention.h"

namespace tenor::testing {

class AttentionDraw : public Draw {
 public:
  using Draw::Draw;
  Tensor mask(const Dims& shape, double p) {
    const Tensor x = Tensor::empty(shape, boolean);
    for (int64_t i = 0; i < x.numel(); ++i) x.data<bool>()[i] = static_cast<double>(upto(99)) < 100 * p;
    return x;
  }
  int64_t from_one_to(int64_t n) { return 1 + upto(n - 1); }
};

/// Sizes and options of a problem.
struct AttentionProblem {
  int64_t B, Hq, G, Sq, Sk, D, Dv;
  AttentionOptions options;

  std::string text() const {
    return "B" + std::to_string(B) + " Hq" + std::to_string(Hq) + " G" + std::to_string(G) + " Sq" +
           std::to_string(Sq) + " Sk" + std::to_string(Sk) + " D" + std::to_string(D) + " Dv" + std::to_string(Dv);
  }
};

/// Every option meets every other within a few dozen rounds.
inline AttentionProblem draw_problem(AttentionDraw& random, int round, DType dtype) {
  AttentionProblem p{};
  p.B = random.from_one_to(2), p.G = random.from_one_to(3), p.Hq = p.G * random.from_one_to(4);
  p.Sq = random.from_one_to(round % 3 ? 20 : 150), p.Sk = random.from_one_to(round % 4 ? 90 : 300);
  p.D = random.from_one_to(round % 2 ? 10 : 90), p.Dv = random.from_one_to(round % 5 ? 12 : 130);
  AttentionOptions& o = p.options;
  if (round % 2) o.causal = round % 4 == 1 ? Causal(true) : Causal(Causal::kTopLeft);
  if (round % 3 == 0) o.window = {random.from_one_to(30) - 2, random.from_one_to(30) - 2};
  if (round % 5 == 0) o.softcap = 0.5 * static_cast<double>(random.from_one_to(10));
  if (round % 7 < 2) o.scale = 0.3;
  if (round % 4 == 0) o.mask = random.mask(round % 8 ? Dims{p.B, 1, 1, p.Sk} : Dims{p.Sq, p.Sk}, 0.7);
  if (round % 6 == 1) o.bias = random.dense({p.Hq, 1, p.Sk}, round % 12 == 1 ? float32 : dtype);
  if (round % 5 == 2) o.sinks = random.dense({p.Hq}, round % 2 ? float32 : dtype);
  return p;
}

/// Runs into poisoned memory and compares out and lse with the float64 reference: one rounding for 16 bits, what is
/// left of a few thousand float32 operations otherwise, and `absolute`.
inline void expect_attention(const Tensor& q, const Tensor& k, const Tensor& v, AttentionOptions o, double absolute) {
  o.return_lse = true;
  o.out = full({q.shape(0), q.shape(1), q.shape(2), v.shape(3)}, q.dtype(), kNan);
  o.out_lse = full({q.shape(0), q.shape(1), q.shape(2)}, float32, kNan);
  const AttentionResult got = attention(q, k, v, o);
  const reference::Attention want = reference::attention(q, k, v, o);
  expect_close(got.out, want.out, "out", item_size(q.dtype()) == 2 ? 0.5 : 2, absolute);
  expect_close(got.lse, want.lse, "lse", 2, absolute);
}

}  // namespace tenor::testing
