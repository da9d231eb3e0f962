// The contract of speculative_accept.
#include "src/core/backend.h"
#include "src/core/output.h"
#include "src/core/registry.h"
#include "src/core/step.h"
#include "src/ops/sampling/row_options.h"
#include "src/ops/sampling/sampling_cuda.h"
#include "tenor/sampling.h"

namespace tenor {
namespace {

using core::fail;
using core::OpClass;
using core::Output;

constexpr auto kOp = "speculative_accept";

const core::OpRegistration kOps({
    {kOp, "sampling", OpClass::kReduction,
     "target[B,n+1,V], draft[B,n,V], draft_ids[B,n] -> ids[B,n+1], accepted[B]: the accepted drafts, one token more, "
     "-1"},
});

void check_shapes(const Tensor& target, const Tensor& draft, const Tensor& ids) {
  core::check_float(kOp, {"target_probs", target});
  core::check_ndim(kOp, {"target_probs", target}, 3);
  core::check_index_dtype(kOp, {"draft_ids", ids});
  core::check_ndim(kOp, {"draft_ids", ids}, 2);
  const int64_t batch = ids.shape(0), drafts = ids.shape(1), tokens = target.shape(2);
  if (draft.defined()) {
    core::check_same_dtype(kOp, {"target_probs", target}, {"draft_probs", draft});
    core::check_ndim(kOp, {"draft_probs", draft}, 3);
    core::check_shape(kOp, {"target_probs", target}, {draft.shape(0), draft.shape(1) + 1, draft.shape(2)});
    core::check_shape(kOp, {"draft_ids", ids}, {draft.shape(0), draft.shape(1)});
  }
  core::check_shape(kOp, {"target_probs", target}, {batch, drafts + 1, tokens});
  if (tokens == 0 && batch > 0)
    fail<ShapeError>("{}: target_probs must have at least one token, got shape {}", kOp, target.shape());
  core::check_same_device(kOp, {{"target_probs", target}, {"draft_probs", draft}, {"draft_ids", ids}});
}

void check_ids(const Tensor& ids, int64_t tokens) {
  for (int64_t i = 0; i < ids.numel(); ++i) {
    const int64_t id = ids.data<int64_t>()[i];
    if (id < -1 || id >= tokens)
      fail<IndexError>("{}: draft_ids holds {} at {}, which is out of range (expected -1 to {})", kOp, id, i,
                       tokens - 1);
  }
}

Tensor dense(const Tensor& x) { return !x.defined() || x.shape(2) <= 1 || x.stride(2) == 1 ? x : x.contiguous(); }

void accept(const Tensor& target, const Tensor& draft, const Tensor& drafted, const RowValues& values,
            const Tensor& ids, const Tensor& accepted) {
  if constexpr (core::kHasCuda) {
    if (core::on_cuda(target)) return cuda::accept_rows(target, draft, drafted, values.on_device(), ids, accepted);
  }
  check_ids(drafted, target.shape(2));
  cpu::accept_rows({target, draft, drafted, values.on_host(kOp, target.shape(0))}, ids, accepted);
}

}  // namespace

SpeculativeResult speculative_accept(const Tensor& target_probs, const Tensor& draft_probs, const Tensor& draft_ids,
                                     const SpeculativeOptions& o) {
  check_shapes(target_probs, draft_probs, draft_ids);
  const int64_t batch = draft_ids.shape(0), drafts = draft_ids.shape(1);
  RowValues values;
  values.set_seed(kOp, o.seed, o.position, {"target_probs", target_probs}, batch);
  if (o.out.ids.defined() != o.out.accepted.defined()) fail<ValueError>("{}: out= needs both ids and accepted", kOp);
  core::check_distinct_outputs(kOp, {&o.out.ids, &o.out.accepted});
  const std::initializer_list<const Tensor*> inputs = {&target_probs, &draft_probs, &draft_ids};
  Output ids(kOp, o.out.ids, {batch, drafts + 1}, int64, target_probs, inputs,
             {.argument = "out.ids", .cuda = core::kHasCuda});
  Output accepted(kOp, o.out.accepted, {batch}, int64, target_probs, inputs,
                  {.argument = "out.accepted", .cuda = core::kHasCuda});
  core::StepScope step([&] {
    core::Step made{
        kOp, OpClass::kReduction, {target_probs, draft_probs, draft_ids}, {ids.target(), accepted.target()}};
    for (const Tensor& rows : values.arrays()) made.inputs.push_back(rows);
    made.recipe = core::recipe([values](const auto& in, const auto& outs) {
      const RowValues again = values.with_arrays(in, 3);
      speculative_accept(
          in[0], in[1], in[2],
          {.seed = again.seed.operand(), .position = again.position.operand(), .out = {outs[0], outs[1]}});
    });
    for (const auto& [name, x] : {std::pair{"target_probs", target_probs}, std::pair{"draft_probs", draft_probs}})
      if (dense(x).defined() && dense(x).raw() != x.raw())
        made.copies.push_back(
            {name, x.numel() * static_cast<int64_t>(item_size(x.dtype())), "a row's tokens are read side by side"});
    return made;
  });
  if (step.shape_only(ids.target())) return {ids.target(), accepted.target()};
  const Tensor named = draft_ids.to(int64).contiguous();
  if (batch > 0) accept(dense(target_probs), dense(draft_probs), named, values, ids.target(), accepted.target());
  return {ids.finish(), accepted.finish()};
}

}  // namespace tenor
