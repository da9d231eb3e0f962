// Contract of group_norm, instance_norm and batch_norm: x[N, C, *S] with a scale and an offset per channel.
#include "src/core/backend.h"
#include "src/core/output.h"
#include "src/core/registry.h"
#include "src/core/step.h"
#include "src/core/visit.h"
#include "src/ops/norm/norm_checks.h"
#include "src/ops/norm/norm_cuda.h"
#include "src/ops/norm/norm_kernels.h"
#include "tenor/norm.h"

namespace tenor {
namespace {

using core::fail;
using core::OpClass;
using core::Output;
using core::Step;
using core::StepScope;
using cpu::DenseVector;
using cpu::RowBlock;
using cpu::RowWalk;

const core::OpRegistration kOps({
    {"group_norm", "norm", OpClass::kReduction,
     "x[N, C, *S]: each group of channels normalised with its *S, then gamma[C], beta[C]"},
    {"instance_norm", "norm", OpClass::kReduction,
     "x[N, C, *S]: each channel normalised over its *S, then gamma[C], beta[C]"},
    {"batch_norm", "norm", OpClass::kElementwise,
     "x[N, C, *S] -> (x - mean[C]) / sqrt(variance[C] + epsilon) * gamma[C] + beta[C]"},
});

void check_channels(const char* op, const Tensor& x, const ChannelNormOptions& o) {
  core::check_float(op, {"x", x});
  if (x.ndim() < 2) fail<ShapeError>("{}: x must have shape [N, C, ...], got {}", op, x.shape());
  check_optional_vector(op, {"gamma", o.gamma}, x, x.shape(1));
  check_optional_vector(op, {"beta", o.beta}, x, x.shape(1));
  core::check_positive(op, "epsilon", o.epsilon);
}

/// x[N, C, *S] as [N, groups, C / groups, *S].
Tensor grouped(const Tensor& x, int64_t groups) {
  Dims shape = x.shape(), strides = x.strides();
  const int64_t channels = shape[1] / groups;
  shape[1] = channels;
  shape.insert(1, groups);
  strides.insert(1, strides[1] * channels);
  return x.with_layout(std::move(shape), std::move(strides), x.offset());
}

Tensor run_group_norm(const char* op, const Tensor& x, int64_t groups, const ChannelNormOptions& o) {
  Output out(op, o.out, x.shape(), x.dtype(), x, {&x, &o.gamma, &o.beta},
             {.elementwise = true, .cuda = core::kHasCuda});
  StepScope step([&] {
    return Step{op, OpClass::kReduction, {x, o.gamma, o.beta}, {out.target()}, x.numel()}.with(
        core::recipe([op, groups, o](const auto& in, const auto& outs) {
          ChannelNormOptions again = o;
          again.gamma = in[1], again.beta = in[2], again.out = outs[0];
          run_group_norm(op, in[0], groups, again);
        }));
  });
  if (step.shape_only(out.target()) || x.numel() == 0) return out.finish();
  const Tensor from = grouped(x, groups);
  if constexpr (core::kHasCuda) {
    if (core::on_cuda(x)) {
      cuda::group_norm_rows(op, from, o.gamma, o.beta, grouped(out.target(), groups), o.epsilon);
      return out.finish();
    }
  }
  const DType compute = compute_dtype(x.dtype());
  const DenseVector gamma(o.gamma, compute), beta(o.beta, compute);
  const cpu::GroupParameters p{{x.dtype(), gamma.data(), beta.data(), o.epsilon}, groups, x.shape(1) / groups};
  RowWalk walk(from.shape(), from.ndim() - 2);
  walk.read(from);
  walk.write(grouped(out.target(), groups));
  walk.run([&](const RowBlock& block) { cpu::group_norm_rows(block, p); });
  return out.finish();
}

/// batch_norm's vectors in the compute type, scale = gamma / sqrt(variance + epsilon) rounded once.
template <class C>
struct BatchVectors {
  std::vector<C> mean, scale, offset;

  BatchVectors(const Tensor& means, const Tensor& variances, const ChannelNormOptions& o) {
    const DType compute = sizeof(C) == sizeof(double) ? float64 : float32;
    const DenseVector m(means, compute), v(variances, float64), g(o.gamma, float64), b(o.beta, compute);
    for (int64_t c = 0; c < means.numel(); ++c) {
      const double gamma = g.data() ? static_cast<const double*>(g.data())[c] : 1.0;
      mean.push_back(static_cast<const C*>(m.data())[c]);
      scale.push_back(static_cast<C>(gamma / std::sqrt(static_cast<const double*>(v.data())[c] + o.epsilon)));
      offset.push_back(b.data() ? static_cast<const C*>(b.data())[c] : C(-0.0));
    }
  }
};

/// Whether a place's channels lie together, so that they make the better row.
bool channels_last(const Tensor& x) {
  if (x.ndim() == 2) return true;
  int64_t finest = INT64_MAX;
  for (int d = 2; d < x.ndim(); ++d)
    if (x.shape(d) > 1) finest = std::min(finest, x.stride(d));
  return x.shape(1) > 1 && x.stride(1) < finest;
}

void run_batch_norm(const Tensor& x, const Tensor& out, const cpu::BatchParameters& p) {
  const bool last = channels_last(x);
  const Tensor from = last ? cpu::dim_last(x, 1) : x;
  RowWalk walk(from.shape(), last ? 1 : x.ndim() - 2);
  walk.read(from);
  walk.write(last ? cpu::dim_last(out, 1) : out);
  walk.run(
      [&](const RowBlock& block) { last ? cpu::batch_norm_channels(block, p) : cpu::batch_norm_planes(block, p); });
}

}  // namespace

Tensor group_norm(const Tensor& x, int64_t groups, const ChannelNormOptions& o) {
  check_channels("group_norm", x, o);
  if (groups <= 0 || x.shape(1) % groups != 0)
    fail<ValueError>("group_norm: groups must be > 0 and divide x's {} channels, got {}", x.shape(1), groups);
  return run_group_norm("group_norm", x, groups, o);
}

Tensor instance_norm(const Tensor& x, const ChannelNormOptions& o) {
  check_channels("instance_norm", x, o);
  return run_group_norm("instance_norm", x, std::max<int64_t>(x.shape(1), 1), o);
}

Tensor batch_norm(const Tensor& x, const Tensor& mean, const Tensor& variance, const ChannelNormOptions& o) {
  check_channels("batch_norm", x, o);
  check_vector("batch_norm", {"mean", mean}, x, x.shape(1));
  check_vector("batch_norm", {"variance", variance}, x, x.shape(1));
  Output out("batch_norm", o.out, x.shape(), x.dtype(), x, {&x, &mean, &variance, &o.gamma, &o.beta},
             {.elementwise = true, .cuda = core::kHasCuda});
  StepScope step([&] {
    return Step{"batch_norm", OpClass::kElementwise, {x, mean, variance, o.gamma, o.beta}, {out.target()}, x.numel()}
        .with(core::recipe([o](const auto& in, const auto& outs) {
          ChannelNormOptions again = o;
          again.gamma = in[3], again.beta = in[4], again.out = outs[0];
          batch_norm(in[0], in[1], in[2], again);
        }));
  });
  if (step.shape_only(out.target())) return out.target();
  if constexpr (core::kHasCuda) {
    if (core::on_cuda(x)) {
      cuda::batch_norm_elements(x, {mean, variance, o.gamma, o.beta}, out.target(), o.epsilon);
      return out.finish();
    }
  }
  core::visit_float(compute_dtype(x.dtype()), [&]<class C>() {
    if constexpr (std::is_floating_point_v<C>) {
      const BatchVectors<C> v(mean, variance, o);
      run_batch_norm(x, out.target(), {x.dtype(), v.mean.data(), v.scale.data(), v.offset.data(), x.shape(1)});
    }
  });
  return out.finish();
}

}  // namespace tenor
