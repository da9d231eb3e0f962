#include <cmath>

#include "src/core/backend.h"
#include "src/core/check.h"
#include "src/core/numeric.h"
#include "src/core/output.h"
#include "src/core/registry.h"
#include "src/core/step.h"
#include "src/core/visit.h"
#include "src/cpu/parallel.h"
#include "src/ops/attention/attention_cuda.h"
#include "tenor/attention.h"

namespace tenor {
namespace {

using core::OpClass;

const core::OpRegistration kOps({
    {"merge_states", "attention", OpClass::kElementwise,
     "(out_a[...,Dv], lse_a[...]), (out_b, lse_b) -> attention over both sets of keys (out, lse)"},
});

/// The offset of row r of a shape whose last dim is left out.
int64_t row_offset(const Dims& shape, const Dims& strides, size_t dims, int64_t r) {
  int64_t at = 0;
  for (size_t d = dims; d-- > 0; r /= shape[d]) at += r % shape[d] * strides[d];
  return at;
}

template <class T>
void merge_row(const T* a, int64_t col_a, float lse_a, const T* b, int64_t col_b, float lse_b, T* out, int64_t col,
               float* lse, int64_t n) {
  if (lse_b == -INFINITY || lse_a == -INFINITY) {  // no keys on one side: the other as it is
    const bool take_a = lse_b == -INFINITY;
    for (int64_t c = 0; c < n; ++c) out[c * col] = take_a ? a[c * col_a] : b[c * col_b];
    *lse = take_a ? lse_a : lse_b;
    return;
  }
  const double top = std::fmax(lse_a, lse_b), wa = std::exp(lse_a - top), wb = std::exp(lse_b - top), sum = wa + wb;
  for (int64_t c = 0; c < n; ++c) {
    const double x = wa * core::widen(a[c * col_a]) + wb * core::widen(b[c * col_b]);
    out[c * col] = core::cast<T>(x / sum);
  }
  *lse = static_cast<float>(top + std::log(sum));
}

void merge(const Tensor& out_a, const Tensor& lse_a, const Tensor& out_b, const Tensor& lse_b, const Tensor& out,
           const Tensor& lse) {
  if constexpr (core::kHasCuda)
    if (core::on_cuda(out)) return attn::merge_states_cuda(out_a, lse_a, out_b, lse_b, out, lse);
  const Dims& shape = out.shape();
  const size_t dims = shape.size() - 1;
  const int64_t width = shape[dims];
  core::visit_float(out.dtype(), [&]<class T>() {
    cpu::parallel_for(
        lse.numel(), cpu::grain_of(3 * width * static_cast<int64_t>(sizeof(T))), [&](int64_t begin, int64_t end) {
          const auto at = [&](const Tensor& x, int64_t r) { return row_offset(shape, x.strides(), dims, r); };
          for (int64_t r = begin; r < end; ++r)
            merge_row(out_a.data<T>() + at(out_a, r), out_a.strides()[dims], lse_a.data<float>()[at(lse_a, r)],
                      out_b.data<T>() + at(out_b, r), out_b.strides()[dims], lse_b.data<float>()[at(lse_b, r)],
                      out.data<T>() + at(out, r), out.strides()[dims], lse.data<float>() + at(lse, r), width);
        });
  });
}

}  // namespace

AttentionResult merge_states(const Tensor& out_a, const Tensor& lse_a, const Tensor& out_b, const Tensor& lse_b,
                             const MergeStatesOptions& o) {
  constexpr const char* kOp = "merge_states";
  core::check_float(kOp, {"out_a", out_a});
  if (out_a.ndim() < 1) core::fail<ShapeError>("{}: out_a must have at least 1 dim, got a 0-d array", kOp);
  core::check_same_dtype(kOp, {"out_a", out_a}, {"out_b", out_b});
  core::check_shape(kOp, {"out_b", out_b}, out_a.shape());
  Dims rows = out_a.shape();
  rows.pop_back();
  for (const core::Named& lse : {core::Named{"lse_a", lse_a}, core::Named{"lse_b", lse_b}}) {
    core::check_shape(kOp, lse, rows);
    core::check_dtype(kOp, lse, float32);
  }
  core::check_same_device(kOp, {{"out_a", out_a}, {"lse_a", lse_a}, {"out_b", out_b}, {"lse_b", lse_b}});
  if (o.out.defined() != o.out_lse.defined()) core::fail<ValueError>("{}: out must be the pair (out, lse)", kOp);
  core::check_distinct_outputs(kOp, {&o.out, &o.out_lse});

  constexpr core::OutputRules kRules{.cuda = core::kHasCuda};
  core::Output out(kOp, o.out, out_a.shape(), out_a.dtype(), out_a, {&out_a, &lse_a, &out_b, &lse_b}, kRules);
  core::Output lse(kOp, o.out_lse, rows, float32, lse_a, {&out_a, &lse_a, &out_b, &lse_b}, kRules);
  core::StepScope step([&] {
    return core::Step{
        kOp, OpClass::kElementwise, {out_a, lse_a, out_b, lse_b}, {out.target(), lse.target()}, out_a.numel()}
        .with(core::recipe([](const auto& in, const auto& outs) {
          merge_states(in[0], in[1], in[2], in[3], {.out = outs[0], .out_lse = outs[1]});
        }));
  });
  if (step.shape_only(out.target())) return {out.target(), lse.target()};
  if (lse.target().numel() > 0) merge(out_a, lse_a, out_b, lse_b, out.target(), lse.target());
  AttentionResult result{out.finish(), {}};
  result.lse = lse.finish();
  return result;
}

}  // namespace tenor
