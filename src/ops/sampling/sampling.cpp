// The contract of sample, sample_from_probs and multinomial. Kernels: sampling_cpu.cpp.
#include "tenor/sampling.h"

#include "src/core/backend.h"
#include "src/core/output.h"
#include "src/core/registry.h"
#include "src/core/step.h"
#include "src/ops/sampling/row_options.h"
#include "src/ops/sampling/sampling_cuda.h"
#include "tenor/sort.h"

namespace tenor {
namespace {

using core::fail;
using core::OpClass;
using core::Output;
using cpu::RowKind;
using sampling::Tag;

const core::OpRegistration kOps({
    {"sample", "sampling", OpClass::kReduction,
     "logits[B,V] -> ids[B]: softmax(logits / temperature), top-k, top-p, min-p, one draw a row"},
    {"sample_from_probs", "sampling", OpClass::kReduction, "probs[B,V] -> ids[B]: top-k, top-p, min-p, one draw a row"},
    {"multinomial", "sampling", OpClass::kReduction,
     "probs[V] or [B,V] -> ids[n] or [B,n], with or without replacement"},
});

void check_rows(const char* op, core::Named x) {
  core::check_float(op, x);
  core::check_ndim(op, x, 2);
  if (x.tensor.shape(1) == 0 && x.tensor.shape(0) > 0)
    fail<ShapeError>("{}: {} must have at least one token, got shape {}", op, x.name, x.tensor.shape());
}

/// Rows as the kernels read them: dense along the tokens.
Tensor dense_rows(const Tensor& x) { return x.shape(1) <= 1 || x.stride(1) == 1 ? x : x.contiguous(); }

void state_copy(core::Step& step, const char* name, const Tensor& x, const Tensor& rows) {
  if (rows.raw() != x.raw())
    step.copies.push_back(
        {name, x.numel() * static_cast<int64_t>(item_size(x.dtype())), "a row's tokens are read side by side"});
}

struct DrawArguments {
  core::Named x;
  RowKind kind;
  Tag tag;
  bool joint, return_valid;
  SampleResult out;
};

void draw_rows(const char* op, const DrawArguments& a, const RowValues& values, const Tensor& ids,
               const Tensor& valid) {
  const Tensor rows = dense_rows(a.x.tensor);
  if constexpr (core::kHasCuda) {
    if (core::on_cuda(rows))
      return cuda::sample_rows(
          {op, rows, a.kind == RowKind::kProbs, static_cast<uint32_t>(a.tag), a.joint, values.on_device()}, ids, valid);
  }
  cpu::sample_rows({rows, a.kind, a.tag, a.joint, values.on_host(op, rows.shape(0))}, ids, valid);
}

/// On a CUDA device: one token by a race, several different ones by the best of it, others by inversion.
void multinomial_cuda(const Tensor& rows, bool replacement, const RowValues& values, const Tensor& ids) {
  const Tag tag = replacement && ids.shape(1) > 1 ? Tag::kReplacement : Tag::kMultinomial;
  const cuda::SampleRows problem{"multinomial", rows, true, static_cast<uint32_t>(tag), false, values.on_device()};
  if (ids.shape(1) == 1)
    return cuda::sample_rows(problem, ids.with_layout({ids.shape(0)}, {ids.stride(0)}, ids.offset()), {}, -1);
  if (replacement) return cuda::replacement_rows(problem, ids);
  const Tensor scores = Tensor::empty(rows.shape(), compute_dtype(rows.dtype()), rows.device());
  cuda::score_rows(problem, scores);
  const Tensor best = Tensor::empty(ids.shape(), scores.dtype(), rows.device());
  topk(scores, ids.shape(1), {.out = {best, ids}});
  cuda::drop_undrawn(best, ids);
}

void multinomial_rows(const Tensor& rows, bool replacement, const RowValues& values, const Tensor& ids) {
  if constexpr (core::kHasCuda) {
    if (core::on_cuda(rows)) return multinomial_cuda(rows, replacement, values, ids);
  }
  cpu::multinomial_rows({rows, RowKind::kProbs, Tag::kMultinomial, false, values.on_host("multinomial", rows.shape(0))},
                        replacement, ids);
}

SampleResult draw(const char* op, const DrawArguments& a, const RowValues& values) {
  const Tensor& x = a.x.tensor;
  const int64_t batch = x.shape(0);
  if (a.out.valid.defined() && !a.return_valid) fail<ValueError>("{}: out.valid needs return_valid", op);
  if (a.return_valid && a.out.ids.defined() != a.out.valid.defined())
    fail<ValueError>("{}: out= needs both ids and valid", op);
  core::check_distinct_outputs(op, {&a.out.ids, &a.out.valid});
  Output ids(op, a.out.ids, {batch}, int64, x, {&x},
             {.argument = a.return_valid ? "out.ids" : "out", .cuda = core::kHasCuda});
  std::optional<Output> valid;
  if (a.return_valid)
    valid.emplace(op, a.out.valid, Dims{batch}, boolean, x, std::initializer_list<const Tensor*>{&x},
                  core::OutputRules{.argument = "out.valid", .cuda = core::kHasCuda});
  const Tensor flags = valid ? valid->target() : Tensor();
  core::StepScope step([&] {
    core::Step made{op, OpClass::kReduction, {x}, {ids.target()}};
    for (const Tensor& rows : values.arrays()) made.inputs.push_back(rows);
    if (valid) made.outputs.push_back(flags);
    made.recipe = core::recipe([op, name = a.x.name, kind = a.kind, tag = a.tag, joint = a.joint,
                                return_valid = a.return_valid, values](const auto& in, const auto& outs) {
      draw(op, {{name, in[0]}, kind, tag, joint, return_valid, {outs[0], return_valid ? outs[1] : Tensor()}},
           values.with_arrays(in, 1));
    });
    state_copy(made, a.x.name, x, dense_rows(x));
    return made;
  });
  if (step.shape_only(ids.target())) return {ids.target(), flags};
  if (batch > 0) draw_rows(op, a, values, ids.target(), flags);
  return {ids.finish(), valid ? valid->finish() : Tensor()};
}

/// multinomial once all is checked.
Tensor draw_several(const Tensor& probs, int64_t num_samples, bool replacement, const RowValues& values,
                    const Tensor& given) {
  const auto op = "multinomial";
  const bool one = probs.ndim() == 1;
  const Tensor x =
      one ? probs.with_layout({1, probs.shape(0)}, {probs.shape(0), probs.stride(0)}, probs.offset()) : probs;
  const int64_t batch = x.shape(0);
  Output out(op, given, one ? Dims{num_samples} : Dims{batch, num_samples}, int64, probs, {&probs},
             {.contiguous = core::on_cuda(probs), .cuda = core::kHasCuda});
  core::StepScope step([&] {
    core::Step made{op, OpClass::kReduction, {probs}, {out.target()}};
    for (const Tensor& rows : values.arrays()) made.inputs.push_back(rows);
    made.recipe = core::recipe([num_samples, replacement, values](const auto& in, const auto& outs) {
      draw_several(in[0], num_samples, replacement, values.with_arrays(in, 1), outs[0]);
    });
    state_copy(made, "probs", x, dense_rows(x));
    return made;
  });
  const Tensor& target = out.target();
  if (step.shape_only(target)) return target;
  const Tensor ids =
      one ? target.with_layout({1, num_samples}, {num_samples, target.stride(0)}, target.offset()) : target;
  if (batch > 0) multinomial_rows(dense_rows(x), replacement, values, ids);
  return out.finish();
}

}  // namespace

SampleResult sample(const Tensor& logits, const SampleOptions& o) {
  const core::Named x{"logits", logits};
  check_rows("sample", x);
  const int64_t batch = logits.shape(0);
  RowValues values;
  values.set_real("sample", values.temperature, o.temperature, x, batch);
  values.set_integer("sample", values.top_k, o.top_k, x, batch);
  values.set_real("sample", values.top_p, o.top_p, x, batch);
  values.set_real("sample", values.min_p, o.min_p, x, batch);
  values.set_seed("sample", o.seed, o.position, x, batch);
  return draw("sample", {x, RowKind::kLogits, Tag::kSample, o.joint, o.return_valid, o.out}, values);
}

SampleResult sample_from_probs(const Tensor& probs, const SampleFromProbsOptions& o) {
  const auto op = "sample_from_probs";
  const core::Named x{"probs", probs};
  check_rows(op, x);
  const int64_t batch = probs.shape(0);
  RowValues values;
  values.set_integer(op, values.top_k, o.top_k, x, batch);
  values.set_real(op, values.top_p, o.top_p, x, batch);
  values.set_real(op, values.min_p, o.min_p, x, batch);
  values.set_seed(op, o.seed, o.position, x, batch);
  return draw(op, {x, RowKind::kProbs, Tag::kProbs, false, o.return_valid, o.out}, values);
}

Tensor multinomial(const Tensor& probs, int64_t num_samples, const MultinomialOptions& o) {
  const auto op = "multinomial";
  core::check_float(op, {"probs", probs});
  if (probs.ndim() < 1 || probs.ndim() > 2)
    fail<ShapeError>("{}: probs must have 1 or 2 dims, got shape {}", op, probs.shape());
  const bool one = probs.ndim() == 1;
  const Tensor x =
      one ? probs.with_layout({1, probs.shape(0)}, {probs.shape(0), probs.stride(0)}, probs.offset()) : probs;
  check_rows(op, {"probs", x});
  const int64_t batch = x.shape(0), tokens = x.shape(1);
  if (num_samples < 1) fail<ValueError>("{}: num_samples must be >= 1, got {}", op, num_samples);
  if (!o.replacement && num_samples > tokens)
    fail<ValueError>("{}: num_samples must be <= {}, the tokens, without replacement, got {}", op, tokens, num_samples);
  RowValues values;
  values.set_seed(op, o.seed, o.position, {"probs", x}, batch);
  return draw_several(probs, num_samples, o.replacement, values, o.out);
}

}  // namespace tenor
