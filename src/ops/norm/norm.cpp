// Contract of layer_norm, rms_norm and their forms behind an addition.
#include "tenor/norm.h"

#include "src/core/backend.h"
#include "src/core/output.h"
#include "src/core/registry.h"
#include "src/core/step.h"
#include "src/ops/norm/norm_checks.h"
#include "src/ops/norm/norm_cuda.h"
#include "src/ops/norm/norm_kernels.h"

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
    {"layer_norm", "norm", OpClass::kReduction,
     "x[..., H] -> (x - mean) / sqrt(variance + epsilon) * gamma[H] + beta[H]"},
    {"rms_norm", "norm", OpClass::kReduction,
     "x[..., H] -> x / sqrt(mean(x^2) + epsilon) * (gamma[H] + weight_offset)"},
    {"add_layer_norm", "norm", OpClass::kReduction, "x, residual [..., H] -> layer_norm(x + residual), x + residual"},
    {"add_rms_norm", "norm", OpClass::kReduction, "x, residual [..., H] -> rms_norm(x + residual), x + residual"},
});

enum class Formula : uint8_t { kLayer, kRms };

/// One normalisation of rows: what the four operators differ in.
struct RowNorm {
  const char* op;
  Formula formula;
  const Tensor& gamma;
  Tensor beta;
  double epsilon;
  double weight_offset;
};

void check_row_norm(const RowNorm& norm, const Tensor& x) {
  core::check_float(norm.op, {"x", x});
  check_last_axis(norm.op, x);
  check_vector(norm.op, {"gamma", norm.gamma}, x, x.shape(-1));
  check_optional_vector(norm.op, {"beta", norm.beta}, x, x.shape(-1));
  core::check_positive(norm.op, "epsilon", norm.epsilon);
  if (!std::isfinite(norm.weight_offset))
    fail<ValueError>("{}: weight_offset must be finite, got {}", norm.op, norm.weight_offset);
}

using RowKernel = void (*)(const RowBlock&, const cpu::NormParameters&);

void run_row_norm(const RowNorm& norm, RowWalk& walk, DType dtype, RowKernel kernel) {
  const DType compute = compute_dtype(dtype);
  const DenseVector gamma(norm.gamma, compute, norm.weight_offset), beta(norm.beta, compute);
  const cpu::NormParameters p{dtype, gamma.data(), beta.data(), norm.epsilon};
  walk.run([&](const RowBlock& block) { kernel(block, p); });
}

/// On a CUDA device; residual and sum are undefined but for the add forms.
void run_on_cuda(const RowNorm& norm, const Tensor& x, const Tensor& residual, const Tensor& y, const Tensor& sum) {
  if constexpr (core::kHasCuda) {
    const cuda::NormTensors tensors{x, residual, norm.gamma, norm.beta, y, sum};
    if (norm.formula == Formula::kLayer) {
      cuda::layer_norm_rows(norm.op, tensors, norm.epsilon);
    } else {
      cuda::rms_norm_rows(norm.op, tensors, norm.epsilon, norm.weight_offset);
    }
  }
}

Tensor row_norm(const RowNorm& norm, const Tensor& x, const Tensor& given, RowKernel kernel) {
  check_row_norm(norm, x);
  Output out(norm.op, given, x.shape(), x.dtype(), x, {&x, &norm.gamma, &norm.beta},
             {.elementwise = true, .cuda = core::kHasCuda});
  StepScope step([&] {
    return Step{norm.op, OpClass::kReduction, {x, norm.gamma, norm.beta}, {out.target()}, x.numel()}
        .with({.operations = core::count_product(norm.formula == Formula::kLayer ? 4 : 2, x.numel())})
        .with(core::recipe([op = norm.op, formula = norm.formula, epsilon = norm.epsilon, offset = norm.weight_offset,
                            kernel](const auto& in, const auto& outs) {
          row_norm({op, formula, in[1], in[2], epsilon, offset}, in[0], outs[0], kernel);
        }));
  });
  if (step.shape_only(out.target())) return out.target();
  if (core::on_cuda(x)) {
    run_on_cuda(norm, x, {}, out.target(), {});
    return out.finish();
  }
  RowWalk walk(x.shape(), 1);
  walk.read(x);
  walk.write(out.target());
  run_row_norm(norm, walk, x.dtype(), kernel);
  return out.finish();
}

AddNormResult add_row_norm(const RowNorm& norm, const Tensor& x, const Tensor& residual, const AddNormResult& given,
                           RowKernel kernel) {
  check_row_norm(norm, x);
  core::check_same_dtype(norm.op, {"x", x}, {"residual", residual});
  core::check_same_device(norm.op, {{"x", x}, {"residual", residual}});
  core::check_shape(norm.op, {"residual", residual}, x.shape());
  if (given.y.defined() != given.new_residual.defined())
    fail<ValueError>("{}: out must hold both y and new_residual", norm.op);
  core::check_distinct_outputs(norm.op, {&given.y, &given.new_residual});
  const std::initializer_list<const Tensor*> inputs = {&x, &residual, &norm.gamma, &norm.beta};
  Output y(norm.op, given.y, x.shape(), x.dtype(), x, inputs,
           {.elementwise = true, .argument = "out.y", .cuda = core::kHasCuda});
  Output sum(norm.op, given.new_residual, x.shape(), x.dtype(), x, inputs,
             {.elementwise = true, .argument = "out.new_residual", .cuda = core::kHasCuda});
  StepScope step([&] {
    return Step{
        norm.op, OpClass::kReduction, {x, residual, norm.gamma, norm.beta}, {y.target(), sum.target()}, 2 * x.numel()}
        .with(core::recipe([op = norm.op, formula = norm.formula, epsilon = norm.epsilon, offset = norm.weight_offset,
                            kernel](const auto& in, const auto& outs) {
          add_row_norm({op, formula, in[2], in[3], epsilon, offset}, in[0], in[1], {outs[0], outs[1]}, kernel);
        }));
  });
  if (step.shape_only(y.target())) return {y.target(), sum.target()};
  if (core::on_cuda(x)) {
    run_on_cuda(norm, x, residual, y.target(), sum.target());
    return {y.finish(), sum.finish()};
  }
  RowWalk walk(x.shape(), 1);
  walk.read(x);
  walk.read(residual);
  walk.write(y.target());
  walk.write(sum.target());
  run_row_norm(norm, walk, x.dtype(), kernel);
  return {y.finish(), sum.finish()};
}

}  // namespace

Tensor layer_norm(const Tensor& x, const Tensor& gamma, const LayerNormOptions& o) {
  return row_norm({"layer_norm", Formula::kLayer, gamma, o.beta, o.epsilon, 0}, x, o.out, cpu::layer_norm_rows);
}

Tensor rms_norm(const Tensor& x, const Tensor& gamma, const RmsNormOptions& o) {
  return row_norm({"rms_norm", Formula::kRms, gamma, {}, o.epsilon, o.weight_offset}, x, o.out, cpu::rms_norm_rows);
}

AddNormResult add_rms_norm(const Tensor& x, const Tensor& residual, const Tensor& gamma, const AddRmsNormOptions& o) {
  return add_row_norm({"add_rms_norm", Formula::kRms, gamma, {}, o.epsilon, o.weight_offset}, x, residual, o.out,
                      cpu::add_rms_norm_rows);
}

AddNormResult add_layer_norm(const Tensor& x, const Tensor& residual, const Tensor& gamma,
                             const AddLayerNormOptions& o) {
  return add_row_norm({"add_layer_norm", Formula::kLayer, gamma, o.beta, o.epsilon, 0}, x, residual, o.out,
                      cpu::add_layer_norm_rows);
}

}  // namespace tenor
