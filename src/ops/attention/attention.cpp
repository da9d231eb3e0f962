#include "tenor/attention.h"

#include <algorithm>

#include "src/core/backend.h"
#include "src/core/candidates.h"
#include "src/core/check.h"
#include "src/core/device_traits.h"
#include "src/core/output.h"
#include "src/core/registry.h"
#include "src/core/sequences.h"
#include "src/core/step.h"
#include "src/ops/attention/attention_cuda.h"
#include "src/ops/attention/attention_range.h"

namespace tenor {
namespace {

using attn::Plane;
using attn::Problem;
using attn::Segment;
using core::fail;
using core::Named;
using core::OpClass;
using core::Output;
using core::Step;

const std::vector<std::string> kStrategies = {"flash_tensorcore", "flash_unit", "fallback"};
const core::OpRegistration kOps({
    {"attention", "attention", OpClass::kContraction,
     "q[B,Hq,Sq,D], k[B,Hkv,Sk,D], v[B,Hkv,Sk,Dv] -> softmax(scale q k^T + bias) v [B,Hq,Sq,Dv]", kStrategies},
    {"attention_varlen", "attention", OpClass::kContraction,
     "q[Tq,Hq,D], k[Tk,Hkv,D], v[Tk,Hkv,Dv], cu_seqlens -> attention of each sequence [Tq,Hq,Dv]", kStrategies},
});

/// What a flash strategy says of a problem, and its run on the problem's device.
enum class Flash { kTensorcore, kUnit };

template <Flash kStrategy>
std::string flash_why_not(const Problem& p) {
  constexpr bool kMatrix = kStrategy == Flash::kTensorcore;
  if (core::runs_on(p.device) == DeviceType::kCuda)
    return kMatrix ? attn::flash_tensorcore_why_not(p) : attn::flash_unit_why_not(p);
  return !kMatrix || attn::cpu_matrix_unit_takes(p.q.dtype, p.dim) ? "" : attn::kNoMatrixUnit;
}
/// A template in kBuilt, so that a build without CUDA names no kernel.
template <Flash kStrategy, bool kBuilt = core::kHasCuda>
void flash_run(const Problem& p) {
  constexpr bool kMatrix = kStrategy == Flash::kTensorcore;
  if constexpr (kBuilt)
    if (p.device.type == DeviceType::kCuda) return kMatrix ? attn::run_flash_tensorcore(p) : attn::run_flash_unit(p);
  attn::run_flash_cpu(p, kMatrix ? attn::CpuUnit::kMatrix : attn::CpuUnit::kVectors);
}

/// The flash strategies are of one numerics class: where both take a problem, they differ in how they round weights,
/// and each keeps to the operator's tolerance.
constexpr core::Candidate<Problem> kCandidates[] = {
    {"flash_tensorcore", &flash_why_not<Flash::kTensorcore>, &flash_run<Flash::kTensorcore>},
    {"flash_unit", &flash_why_not<Flash::kUnit>, &flash_run<Flash::kUnit>},
    {"fallback", &attn::fallback_why_not, &attn::run_fallback, core::kNeverTuned},
};

/// The options that both forms share, checked. `o` is AttentionOptions or AttentionVarlenOptions.
template <class Options>
Problem make_problem(const char* op, const Options& o, int64_t heads, int64_t kv_heads, int64_t dim, int64_t value_dim,
                     const Tensor& query) {
  const DType dtype = query.dtype();
  if (dim < 1) fail<ShapeError>("{}: query must have a head size of at least 1, got {}", op, dim);
  if (kv_heads == 0 || heads % kv_heads != 0)
    fail<ShapeError>("{}: key has {} heads, which does not divide query's {}", op, kv_heads, heads);
  Problem p{};
  p.heads = heads, p.kv_heads = kv_heads, p.dim = dim, p.value_dim = value_dim;
  p.device = core::stands_for(query.device()), p.q.dtype = dtype;
  p.scale = o.scale.value_or(1 / std::sqrt(static_cast<double>(dim)));
  core::check_positive(op, "scale", p.scale);
  p.scale = attn::scale_within(dtype, p.scale);
  p.causal = o.causal.kind();
  p.left = attn::checked_window(op, o.window, o.window.left);
  p.right = attn::checked_window(op, o.window, o.window.right);
  if (o.softcap) core::check_positive(op, "softcap", *o.softcap);
  p.softcap = attn::softcap_within(dtype, o.softcap.value_or(0));
  if (o.sinks.defined()) {
    core::check_shape(op, {"sinks", o.sinks}, {heads});
    if (o.sinks.dtype() != float32 && o.sinks.dtype() != dtype)
      fail<DTypeError>("{}: sinks must be float32 or query's {}, got {}", op, dtype, o.sinks.dtype());
  }
  p.sinks = o.sinks;
  if (o.out_lse.defined() && !o.return_lse) fail<ValueError>("{}: out has an lse, but return_lse is off", op);
  if (o.return_lse && o.out.defined() != o.out_lse.defined())
    fail<ValueError>("{}: with return_lse, out must be the pair (out, lse)", op);
  return p;
}

void check_operands(const char* op, const Tensor& q, const Tensor& k, const Tensor& v, int ndim) {
  for (const Named& x : {Named{"query", q}, Named{"key", k}, Named{"value", v}}) {
    core::check_ndim(op, x, ndim);
    core::check_float(op, x);
  }
  core::check_same_dtype(op, {"query", q}, {"key", k});
  core::check_same_dtype(op, {"query", q}, {"value", v});
}

/// Bias or mask `x` against the scores' [B, Hq, Sq, Sk]. @throws ShapeError, ended by `hint`, unless it broadcasts to
/// that
void check_scores(const char* op, Named x, const Dims& shape, const char* hint = "") {
  const Dims& have = x.tensor.shape();
  bool fits = have.size() <= shape.size();
  for (size_t i = 1; fits && i <= have.size(); ++i)
    fits = have[have.size() - i] == 1 || have[have.size() - i] == shape[shape.size() - i];
  if (!fits) fail<ShapeError>("{}: {} has shape {}, which does not broadcast to {}{}", op, x.name, have, shape, hint);
}

/// @throws DTypeError, ShapeError; both with the mend where the mask is of another library's kind
void check_mask(const char* op, const Tensor& mask, const Dims& shape) {
  if (is_float(mask.dtype()))
    fail<DTypeError>("{}: mask must be bool, got {}; what is added to the scores is bias", op, mask.dtype());
  core::check_dtype(op, {"mask", mask}, boolean);
  const bool of_keys = mask.shape() == Dims{shape[0], shape[3]};
  check_scores(op, {"mask", mask}, shape, of_keys ? "; a mask of each sequence's keys is mask[:, None, None, :]" : "");
}

Plane plane(const Tensor& x, int64_t head, int64_t row, int64_t col, int64_t batch = 0) {
  return {x.numel() ? x.raw() : nullptr, x.dtype(), head, row, col, batch};
}

/// Pairs of a query and a key that it sees. How many keys a query sees changes with its place by the same number, but
/// for a few places where the diagonal or a side of the window passes an end of the keys.
int64_t visible_pairs(const Problem& p, const Segment& s) {
  const auto keys_of = [&](int64_t i) { return attn::visible_keys(p, s, i).end - attn::visible_keys(p, s, i).begin; };
  const int64_t most = core::count_sum(s.keys, s.queries), left = std::clamp<int64_t>(p.left, 0, most),
                right = std::clamp<int64_t>(p.right, 0, most);
  const int64_t shift = p.causal == Causal::kTopLeft ? 0 : s.keys - s.queries;
  std::vector<int64_t> places{0, s.queries};
  for (const int64_t at : {int64_t{0}, s.keys, left, s.keys + left, -right, s.keys - right})
    for (int64_t near = at - 2; near <= at + 2; ++near)
      places.push_back(std::clamp<int64_t>(near - shift, 0, s.queries));
  std::sort(places.begin(), places.end());
  int64_t pairs = 0;
  for (size_t i = 0; i + 1 < places.size(); ++i) {
    const int64_t first = places[i], count = places[i + 1] - first;
    if (count == 0) continue;
    const __int128 sum = static_cast<__int128>(keys_of(first) + keys_of(first + count - 1)) * count / 2;
    pairs = core::count_sum(pairs, sum > INT64_MAX ? INT64_MAX : static_cast<int64_t>(sum));
  }
  return pairs;
}

/// FLOPs of the visible pairs, counted only when somebody asks. Without segments of the whole batch, and of packed
/// sequences on CUDA, whose lengths the host does not know, the most there can be: all rows one sequence.
int64_t visible_flops(const Problem& p) {
  int64_t pairs = 0;
  for (const Segment& s : p.segments) pairs = core::count_sum(pairs, visible_pairs(p, s));
  if (p.segments.empty())
    pairs = core::count_product(p.batch, visible_pairs(p, {p.queries, p.keys, 0, 0, 0, 0, 0, 0, 0}));
  return core::count_product(core::count_product(pairs, p.heads), 2 * (p.dim + p.value_dim));
}

std::string stated_strategy(const char* name, const Problem& p) {
  return std::string(name) + "\n" + core::declined<Problem>(kCandidates, p);
}

/// The problem in words, for the tuning store: sizes, options, and each operand's dtype and strides.
std::string tuning_key(const Problem& p, std::initializer_list<Tensor> operands) {
  std::string key = core::text("{}x{} heads of {} rows, {} of {} keys, {} and {} columns", p.batch, p.heads, p.queries,
                               p.kv_heads, p.keys, p.dim, p.value_dim);
  if (p.causal != Causal::kOff) key += p.causal == Causal::kTopLeft ? " top-left" : " causal";
  if (p.left >= 0 || p.right >= 0) key += core::text(" window {} {}", p.left, p.right);
  if (p.softcap > 0) key += " softcap";
  for (const Tensor& x : operands) key += x.defined() ? core::text(" {}{}", x.dtype(), x.strides()) : " -";
  return key;
}

/// `usual`, or with autotuning on the strategy measured to be the fastest; without `may_run` nothing is measured.
const core::Candidate<Problem>& chosen(const char* op, const Problem& p, const core::Candidate<Problem>& usual,
                                       const std::string& strategy, bool may_run,
                                       std::initializer_list<Tensor> operands) {
  if (!autotuning()) return usual;
  return core::choose_tuned<Problem>(op, kCandidates, p, p.device, strategy, may_run,
                                     [&] { return tuning_key(p, operands); });
}

/// Strides of what is added to the scores or hides them, broadcast to the scores' shape; 0 where it is not given.
struct ScoreStrides {
  Dims mask{0, 0, 0, 0}, bias = mask;
};
ScoreStrides take_scores(const char* op, const AttentionOptions& o, const Tensor& query, const Dims& scores,
                         Problem& p) {
  ScoreStrides at;
  if (o.mask.defined()) {
    check_mask(op, o.mask, scores);
    at.mask = core::broadcast_strides(o.mask, scores);
    p.mask = plane(o.mask, at.mask[1], at.mask[2], at.mask[3], at.mask[0]);
  }
  if (o.bias.defined()) {
    if (o.bias.dtype() != float32 && o.bias.dtype() != query.dtype())
      fail<DTypeError>("{}: bias must be float32 or query's {}, got {}", op, query.dtype(), o.bias.dtype());
    check_scores(op, {"bias", o.bias}, scores);
    at.bias = core::broadcast_strides(o.bias, scores);
    p.bias = plane(o.bias, at.bias[1], at.bias[2], at.bias[3], at.bias[0]);
  }
  return at;
}

/// Where the operands of a dense problem lie.
void place(Problem& p, const Tensor& query, const Tensor& key, const Tensor& value, const ScoreStrides& at,
           const Tensor& y, const Tensor& l) {
  for (int64_t b = 0; b < p.batch; ++b)
    p.segments.push_back({p.queries, p.keys, b * query.stride(0), b * key.stride(0), b * value.stride(0),
                          b * at.mask[0], b * at.bias[0], b * y.stride(0), l.defined() ? b * l.stride(0) : 0});
  const auto dense = [](const Tensor& x) { return plane(x, x.stride(1), x.stride(2), x.stride(3), x.stride(0)); };
  p.q = dense(query), p.k = dense(key), p.v = dense(value), p.out = dense(y);
  if (l.defined()) p.lse = plane(l, l.stride(1), l.stride(2), 0, l.stride(0));
}

AttentionResult finish(Output& out, std::optional<Output>& lse) {
  AttentionResult result{out.finish(), {}};
  if (lse) result.lse = lse->finish();
  return result;
}

}  // namespace

AttentionResult attention(const Tensor& query, const Tensor& key, const Tensor& value, const AttentionOptions& o) {
  constexpr const char* kOp = "attention";
  check_operands(kOp, query, key, value, 4);
  core::check_same_device(
      kOp, {{"query", query}, {"key", key}, {"value", value}, {"mask", o.mask}, {"bias", o.bias}, {"sinks", o.sinks}});
  const int64_t B = query.shape(0), Hq = query.shape(1), Sq = query.shape(2), D = query.shape(3);
  const int64_t Hkv = key.shape(1), Sk = key.shape(2), Dv = value.shape(3);
  core::check_shape(kOp, {"key", key}, {B, Hkv, Sk, D});
  core::check_shape(kOp, {"value", value}, {B, Hkv, Sk, Dv});
  Problem p = make_problem(kOp, o, Hq, Hkv, D, Dv, query);
  p.batch = B, p.queries = Sq, p.keys = Sk;
  const ScoreStrides strides = take_scores(kOp, o, query, {B, Hq, Sq, Sk}, p);
  const auto& candidate = core::choose<Problem>(kOp, kCandidates, p, o.strategy);

  const std::initializer_list<const Tensor*> inputs = {&query, &key, &value, &o.mask, &o.bias, &o.sinks};
  if (o.return_lse) core::check_distinct_outputs(kOp, {&o.out, &o.out_lse});
  Output out(kOp, o.out, {B, Hq, Sq, Dv}, query.dtype(), query, inputs, {.cuda = core::kHasCuda});
  std::optional<Output> lse;
  if (o.return_lse)
    lse.emplace(kOp, o.out_lse, Dims{B, Hq, Sq}, float32, query, inputs, core::OutputRules{.cuda = core::kHasCuda});
  const Tensor& y = out.target();
  const Tensor l = lse ? lse->target() : Tensor();
  const auto best = [&](bool may_run) -> const auto& {
    return chosen(kOp, p, candidate, o.strategy, may_run, {query, key, value, y, o.mask, o.bias});
  };
  core::StepScope step([&] {
    return Step{kOp,    OpClass::kContraction, {query, key, value, o.mask, o.bias, o.sinks},
                {y, l}, visible_flops(p),      stated_strategy(best(false).name, p)}
        .with(core::recipe([o](const auto& in, const auto& outs) {
          AttentionOptions again = o;
          again.mask = in[3], again.bias = in[4], again.sinks = in[5], again.out = outs[0], again.out_lse = outs[1];
          attention(in[0], in[1], in[2], again);
        }));
  });
  if (step.shape_only(y)) return {y, l};
  place(p, query, key, value, strides, y, l);
  best(true).run(p);
  return finish(out, lse);
}

AttentionResult attention_varlen(const Tensor& query, const Tensor& key, const Tensor& value,
                                 const Tensor& cu_seqlens_q, const Tensor& cu_seqlens_k,
                                 const AttentionVarlenOptions& o) {
  constexpr const char* kOp = "attention_varlen";
  check_operands(kOp, query, key, value, 3);
  const Named cu_q{"cu_seqlens_q", cu_seqlens_q}, cu_k{"cu_seqlens_k", cu_seqlens_k};
  core::check_cu_seqlens(kOp, cu_q);
  core::check_cu_seqlens(kOp, cu_k);
  core::check_shape(kOp, cu_k, cu_seqlens_q.shape());
  core::check_same_device(kOp, {{"query", query}, {"key", key}, {"value", value}, cu_q, cu_k, {"sinks", o.sinks}});
  const int64_t Tq = query.shape(0), Hq = query.shape(1), D = query.shape(2);
  const int64_t Tk = key.shape(0), Hkv = key.shape(1), Dv = value.shape(2);
  core::check_shape(kOp, {"key", key}, {Tk, Hkv, D});
  core::check_shape(kOp, {"value", value}, {Tk, Hkv, Dv});
  Problem p = make_problem(kOp, o, Hq, Hkv, D, Dv, query);
  p.cu_seqlens_q = cu_seqlens_q, p.cu_seqlens_k = cu_seqlens_k;
  p.batch = 1, p.queries = Tq, p.keys = Tk;
  const auto& candidate = core::choose<Problem>(kOp, kCandidates, p, o.strategy);
  const bool traced = core::StepScope::shape_only(query);
  const bool on_host = p.device.type == DeviceType::kCpu;
  std::vector<int64_t> at_q{0}, at_k{0};
  if (!traced && on_host) at_q = core::read_cu_seqlens(kOp, cu_q, Tq), at_k = core::read_cu_seqlens(kOp, cu_k, Tk);

  const std::initializer_list<const Tensor*> inputs = {&query, &key, &value, &cu_seqlens_q, &cu_seqlens_k, &o.sinks};
  if (o.return_lse) core::check_distinct_outputs(kOp, {&o.out, &o.out_lse});
  Output out(kOp, o.out, {Tq, Hq, Dv}, query.dtype(), query, inputs, {.cuda = core::kHasCuda});
  std::optional<Output> lse;
  if (o.return_lse)
    lse.emplace(kOp, o.out_lse, Dims{Tq, Hq}, float32, query, inputs, core::OutputRules{.cuda = core::kHasCuda});
  const Tensor& y = out.target();
  const Tensor l = lse ? lse->target() : Tensor();
  const auto add_segment = [&](int64_t q, int64_t queries, int64_t k, int64_t keys) {
    p.segments.push_back({queries, keys, q * query.stride(0), k * key.stride(0), k * value.stride(0), 0, 0,
                          q * y.stride(0), lse ? q * l.stride(0) : 0});
  };
  for (size_t n = 1; n < at_q.size(); ++n)
    add_segment(at_q[n - 1], at_q[n] - at_q[n - 1], at_k[n - 1], at_k[n] - at_k[n - 1]);
  if (on_host) add_segment(at_q.back(), Tq - at_q.back(), 0, 0);  // rows past the end are a sequence without keys
  const auto best = [&](bool may_run) -> const auto& {
    return chosen(kOp, p, candidate, o.strategy, may_run, {query, key, value, y, cu_seqlens_q});
  };
  core::StepScope step([&] {
    return Step{kOp,    OpClass::kContraction, {query, key, value, cu_seqlens_q, cu_seqlens_k, o.sinks},
                {y, l}, visible_flops(p),      stated_strategy(best(false).name, p)};
  });
  if (traced) return {y, l};
  const auto packed = [](const Tensor& x) { return plane(x, x.stride(1), x.stride(0), x.stride(2)); };
  p.q = packed(query), p.k = packed(key), p.v = packed(value), p.out = packed(y);
  if (lse) p.lse = plane(l, l.stride(1), l.stride(0), 0);
  best(true).run(p);
  return finish(out, lse);
}

}  // namespace tenor
