#include "call.h"
#include "src/core/text.h"
#include "tenor/sampling.h"

namespace tenor::python {
namespace {

/// A number or an array, or None.
struct OptionalNumber {
  nb::handle object;
};

std::optional<Operand> optional(Call& call, const char* name, OptionalNumber x) {
  if (x.object.is_none()) return {};
  return call.operand(name, ArrayOrScalar{x.object});
}

/// ids, or (ids, valid) as a named tuple.
template <class Options, class F>
nb::object run_draw(Call& call, nb::handle type, Options& o, F&& fn) {
  o.out.ids = o.return_valid ? call.out(0, 2) : call.out();
  if (!o.return_valid) return call.run([&] { return fn().ids; });
  o.out.valid = call.out(1, 2);
  return call.run_named(type, [&] {
    const SampleResult r = fn();
    return std::vector<Tensor>{r.ids, r.valid};
  });
}

}  // namespace
}  // namespace tenor::python

template <>
struct nanobind::detail::type_caster<tenor::python::OptionalNumber> {
  NB_TYPE_CASTER(tenor::python::OptionalNumber, const_name("ArrayLike | int | float"))
  bool from_python(handle src, uint8_t, cleanup_list*) noexcept {
    value.object = src;
    return true;
  }
};

namespace tenor::python {

void bind_sampling(nb::module_& m) {
  const nb::object sampled = named_tuple("SampleResult", {"ids", "valid"});
  const nb::object speculative = named_tuple("SpeculativeResult", {"ids", "accepted"});

  m.def(
      "sample",
      [sampled](Array logits, ArrayOrScalar temperature, OptionalNumber top_k, OptionalNumber top_p,
                OptionalNumber min_p, ArrayOrScalar seed, ArrayOrScalar position, bool joint, bool return_valid,
                Out out, Workspace workspace) {
        Call call("sample", out, workspace);
        const Tensor x = call.array("logits", logits);
        SampleOptions o{call.operand("temperature", temperature),
                        optional(call, "top_k", top_k),
                        optional(call, "top_p", top_p),
                        optional(call, "min_p", min_p),
                        call.operand("seed", seed),
                        call.operand("position", position),
                        joint,
                        return_valid,
                        {}};
        return run_draw(call, sampled, o, [&] { return sample(x, o); });
      },
      "logits"_a, nb::kw_only(), "temperature"_a = 1.0, "top_k"_a = nb::none(), "top_p"_a = nb::none(),
      "min_p"_a = nb::none(), "seed"_a, "position"_a = 0, "joint"_a = false, "return_valid"_a = false,
      "out"_a = nb::none(), "workspace"_a = nb::none(),
      "One token a row of logits [B, V]: ids int64 [B]. Every option is a number or an array [B]. Order: logits / "
      "temperature, top-k,\n"
      "top-p, min-p, each on the distribution renormalised by those before it (joint=True: each on the unfiltered "
      "one). Tokens stand\n"
      "in descending order, lower index first: top-k keeps the first k, top-p those before which lies a mass <= top_p, "
      "min-p those\n"
      "with at least min_p of the largest probability. temperature 0 is argmax. top_k None, <= 0 or >= V, top_p >= 1, "
      "min_p <= 0: no\n"
      "filter. The draw is a function of the row, seed, position and token: neighbours do not matter, rows with one "
      "seed and position\n"
      "draw alike. return_valid=True also returns bool [B], False where a row holds NaN or +inf or only -inf; its id "
      "is 0.\n"
      "ValueError for a negative or NaN temperature, NaN top_p or min_p, min_p > 1; ShapeError for options of another "
      "shape.");
  m.def(
      "sample_from_probs",
      [sampled](Array probs, OptionalNumber top_k, OptionalNumber top_p, OptionalNumber min_p, ArrayOrScalar seed,
                ArrayOrScalar position, bool return_valid, Out out, Workspace workspace) {
        Call call("sample_from_probs", out, workspace);
        const Tensor x = call.array("probs", probs);
        SampleFromProbsOptions o{optional(call, "top_k", top_k),
                                 optional(call, "top_p", top_p),
                                 optional(call, "min_p", min_p),
                                 call.operand("seed", seed),
                                 call.operand("position", position),
                                 return_valid,
                                 {}};
        return run_draw(call, sampled, o, [&] { return sample_from_probs(x, o); });
      },
      "probs"_a, nb::kw_only(), "top_k"_a = nb::none(), "top_p"_a = nb::none(), "min_p"_a = nb::none(), "seed"_a,
      "position"_a = 0, "return_valid"_a = false, "out"_a = nb::none(), "workspace"_a = nb::none(),
      "As sample, from probabilities [B, V] whose rows need not sum to 1. A row with a negative, NaN or infinite "
      "entry, or of zeros\n"
      "alone, is not valid. Tokens of probability 0 are never drawn.");
  m.def(
      "multinomial",
      [](Array probs, Int num_samples, bool replacement, OptionalNumber seed, ArrayOrScalar position, Out out,
         Workspace workspace) {
        Call call("multinomial", out, workspace);
        const Tensor x = call.array("probs", probs);
        const MultinomialOptions o{replacement, optional(call, "seed", seed), call.operand("position", position),
                                   call.out()};
        const int64_t count = call.count("num_samples", num_samples);
        return call.run([&] { return multinomial(x, count, o); });
      },
      "probs"_a, "num_samples"_a, "replacement"_a = false, "seed"_a = nb::none(), "position"_a = 0, nb::kw_only(),
      "out"_a = nb::none(), "workspace"_a = nb::none(),
      "num_samples tokens from probs [V] or [B, V] (rows need not sum to 1): int64 [n] or [B, n]. Without replacement "
      "the tokens\n"
      "differ, in the order drawn; -1 once the tokens of positive probability are used up, and in rows without a "
      "distribution.\n"
      "seed (required) and position are integers or arrays [B]. ValueError unless num_samples >= 1, and at most V "
      "without replacement.");
  m.def(
      "top_k_mask_logits",
      [](Array logits, ArrayOrScalar top_k, Out out, Workspace workspace) {
        Call call("top_k_mask_logits", out, workspace);
        const Tensor x = call.array("logits", logits);
        const Operand k = call.operand("top_k", top_k);
        const Tensor into = call.out();
        return call.run([&] { return top_k_mask_logits(x, k, {into}); });
      },
      "logits"_a, "top_k"_a, nb::kw_only(), "out"_a = nb::none(), "workspace"_a = nb::none(),
      "logits [B, V] with -inf outside of each row's first top_k (a number or [B]) in descending order, lower index "
      "first on ties.\n"
      "top_k <= 0 or >= V leaves a row as it is. NaN is the greatest, as in topk.");
  m.def(
      "top_p_normalize_probs",
      [](Array probs, ArrayOrScalar top_p, Out out, Workspace workspace) {
        Call call("top_p_normalize_probs", out, workspace);
        const Tensor x = call.array("probs", probs);
        const Operand p = call.operand("top_p", top_p);
        const Tensor into = call.out();
        return call.run([&] { return top_p_normalize_probs(x, p, {into}); });
      },
      "probs"_a, "top_p"_a, nb::kw_only(), "out"_a = nb::none(), "workspace"_a = nb::none(),
      "probs [B, V] with 0 outside of each row's nucleus, the tokens before which lies a mass <= top_p (a number or "
      "[B]; at least one\n"
      "token), the rest divided by its sum. A row with a negative, NaN or infinite entry, or of zeros alone, is NaN.");
  m.def(
      "speculative_accept",
      [speculative](Array target_probs, OptionalArray draft_probs, Array draft_ids, ArrayOrScalar seed,
                    ArrayOrScalar position, Out out, Workspace workspace) {
        Call call("speculative_accept", out, workspace);
        const Tensor p = call.array("target_probs", target_probs), q = call.array("draft_probs", draft_probs),
                     ids = call.array("draft_ids", draft_ids);
        const SpeculativeOptions o{
            call.operand("seed", seed), call.operand("position", position), {call.out(0, 2), call.out(1, 2)}};
        return call.run_named(speculative, [&] {
          const SpeculativeResult r = speculative_accept(p, q, ids, o);
          return std::vector<Tensor>{r.ids, r.accepted};
        });
      },
      "target_probs"_a, "draft_probs"_a.none(), "draft_ids"_a, "seed"_a, "position"_a = 0, nb::kw_only(),
      "out"_a = nb::none(), "workspace"_a = nb::none(),
      "Speculative acceptance: (ids int64 [B, n+1], accepted int64 [B]) from target_probs [B, n+1, V], draft_probs [B, "
      "n, V] (None: the\n"
      "drafts were certain) and draft_ids [B, n] (-1 ends a chain). Draft i is accepted if u * q < p, u in [0, 1) "
      "hashed from (seed,\n"
      "position + i); then comes one token from the normalised max(p - q, 0), or from the target where all were "
      "accepted or nothing is\n"
      "left, then -1. IndexError for a draft id outside of -1..V-1.");
}

}  // namespace tenor::python
