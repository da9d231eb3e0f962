// The contract of top_k_mask_logits and top_p_normalize_probs.
#include "src/core/backend.h"
#include "src/core/output.h"
#include "src/core/registry.h"
#include "src/core/step.h"
#include "src/ops/sampling/row_options.h"
#include "src/ops/sampling/sampling_cuda.h"
#include "tenor/sampling.h"

namespace tenor {
namespace {

using core::OpClass;
using core::Output;
using cpu::RowKind;

const core::OpRegistration kOps({
    {"top_k_mask_logits", "sampling", OpClass::kReduction, "logits[B,V] -> [B,V], -inf outside of the first top_k"},
    {"top_p_normalize_probs", "sampling", OpClass::kReduction,
     "probs[B,V] -> [B,V], the nucleus of top_p, summing to 1"},
});

void filter_rows(const char* op, const Tensor& x, RowKind kind, const RowValues& values, const Tensor& out) {
  if constexpr (core::kHasCuda) {
    if (core::on_cuda(x)) {
      const cuda::SampleRows problem{op, x, kind == RowKind::kProbs, 0, false, values.on_device()};
      return (kind == RowKind::kLogits ? cuda::mask_rows : cuda::normalize_rows)(problem, out);
    }
  }
  const cpu::SampleRows problem{x, kind, {}, false, values.on_host(op, x.shape(0))};
  (kind == RowKind::kLogits ? cpu::mask_rows : cpu::normalize_rows)(problem, out);
}

Tensor filter(const char* op, core::Named x, RowKind kind, const RowValues& values, const Tensor& given) {
  Output out(op, given, x.tensor.shape(), x.tensor.dtype(), x.tensor, {&x.tensor},
             {.elementwise = true, .contiguous = core::on_cuda(x.tensor), .cuda = core::kHasCuda});
  const Tensor rows = x.tensor.shape(1) <= 1 || x.tensor.stride(1) == 1 ? x.tensor : Tensor();
  core::StepScope step([&] {
    core::Step made{op, OpClass::kReduction, {x.tensor}, {out.target()}};
    for (const Tensor& option : values.arrays()) made.inputs.push_back(option);
    made.recipe = core::recipe([op, name = x.name, kind, values](const auto& in, const auto& outs) {
      filter(op, {name, in[0]}, kind, values.with_arrays(in, 1), outs[0]);
    });
    if (!rows.defined())
      made.copies.push_back({x.name, x.tensor.numel() * static_cast<int64_t>(item_size(x.tensor.dtype())),
                             "a row's tokens are read side by side"});
    return made;
  });
  if (step.shape_only(out.target())) return out.target();
  if (out.target().numel() > 0)
    filter_rows(op, rows.defined() ? rows : x.tensor.contiguous(), kind, values, out.target());
  return out.finish();
}

}  // namespace

Tensor top_k_mask_logits(const Tensor& logits, const Operand& top_k, const TopKMaskOptions& o) {
  const auto op = "top_k_mask_logits";
  const core::Named x{"logits", logits};
  core::check_float(op, x);
  core::check_ndim(op, x, 2);
  RowValues values;
  values.set_integer(op, values.top_k, top_k, x, logits.shape(0));
  return filter(op, x, RowKind::kLogits, values, o.out);
}

Tensor top_p_normalize_probs(const Tensor& probs, const Operand& top_p, const TopPNormalizeOptions& o) {
  const auto op = "top_p_normalize_probs";
  const core::Named x{"probs", probs};
  core::check_float(op, x);
  core::check_ndim(op, x, 2);
  RowValues values;
  values.set_real(op, values.top_p, top_p, x, probs.shape(0));
  return filter(op, x, RowKind::kProbs, values, o.out);
}

}  // namespace tenor
