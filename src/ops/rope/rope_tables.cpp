// rope_tables: the angles, and the three ways in which model configurations stretch them.
#include <cmath>
#include <numbers>

#include "src/core/backend.h"
#include "src/core/check.h"
#include "src/core/output.h"
#include "src/core/registry.h"
#include "src/core/step.h"
#include "src/cpu/parallel.h"
#include "src/ops/rope/rope_cuda.h"
#include "tenor/rope.h"

namespace tenor {
namespace {

using core::check_positive;
using core::fail;
using core::OpClass;
using core::Output;
using core::Step;
using core::StepScope;

constexpr const char* kOp = "rope_tables";

const core::OpRegistration kOps({
    {kOp, "rope", OpClass::kElementwise,
     "[maxpos, rotary_dim/2]: cos, sin of position * theta^(-2i/rotary_dim), scaled"},
});

void check_scaling(const RopeScaling& s, double theta) {
  if (s.type != "default" && s.type != "linear" && s.type != "llama3" && s.type != "yarn")
    fail<ValueError>("rope_tables: scaling type must be 'default', 'linear', 'llama3' or 'yarn', got '{}'", s.type);
  if (s.type == "default") return;
  if (!(std::isfinite(s.factor) && s.factor >= 1))
    fail<ValueError>("rope_tables: scaling factor must be finite and >= 1, got {}", s.factor);
  if (s.type == "linear") return;
  check_positive(kOp, "scaling original_max_position_embeddings", s.original_max_position_embeddings);
  if (s.type == "llama3") {
    check_positive(kOp, "scaling low_freq_factor", s.low_freq_factor);
    if (!(std::isfinite(s.high_freq_factor) && s.high_freq_factor > s.low_freq_factor))
      fail<ValueError>("rope_tables: scaling high_freq_factor must be finite and above low_freq_factor {}, got {}",
                       s.low_freq_factor, s.high_freq_factor);
    return;
  }
  check_positive(kOp, "scaling beta_slow", s.beta_slow);
  if (!(std::isfinite(s.beta_fast) && s.beta_fast >= s.beta_slow))
    fail<ValueError>("rope_tables: scaling beta_fast must be finite and >= beta_slow {}, got {}", s.beta_slow,
                     s.beta_fast);
  if (s.attention_factor) check_positive(kOp, "scaling attention_factor", *s.attention_factor);
  if (theta <= 1) fail<ValueError>("rope_tables: yarn scaling needs theta > 1, got {}", theta);
}

/// llama3: long waves are stretched by `factor`, short ones are kept, those between are blended.
double llama3_frequency(double frequency, const RopeScaling& s) {
  const double turns =
      s.original_max_position_embeddings * frequency / (2 * std::numbers::pi);  // over the original context
  if (turns < s.low_freq_factor) return frequency / s.factor;
  if (turns > s.high_freq_factor) return frequency;
  const double smooth = (turns - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor);
  return (1 - smooth) * frequency / s.factor + smooth * frequency;
}

/// yarn: dims that turn more than beta_fast times over the original context are kept, those below beta_slow are
/// stretched, with a linear ramp over the dims between.
double yarn_frequency(double frequency, int64_t i, int64_t rotary_dim, double theta, const RopeScaling& s) {
  const auto dim_of = [&](double turns) {
    return static_cast<double>(rotary_dim) *
           std::log(s.original_max_position_embeddings / (turns * 2 * std::numbers::pi)) / (2 * std::log(theta));
  };
  double low = dim_of(s.beta_fast), high = dim_of(s.beta_slow);
  if (s.truncate) low = std::floor(low), high = std::ceil(high);
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(rotary_dim - 1));
  if (low == high) high += 0.001;
  const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
  return frequency / s.factor * ramp + frequency * (1 - ramp);
}

double yarn_attention_factor(const RopeScaling& s) {
  const auto magnitude = [&](double mscale) { return s.factor <= 1 ? 1.0 : 0.1 * mscale * std::log(s.factor) + 1.0; };
  if (s.attention_factor) return *s.attention_factor;
  if (s.mscale != 0 && s.mscale_all_dim != 0) return magnitude(s.mscale) / magnitude(s.mscale_all_dim);
  return magnitude(1.0);
}

std::vector<double> frequencies(int64_t rotary_dim, double theta, const RopeScaling& s) {
  std::vector<double> out;
  for (int64_t i = 0; i < rotary_dim / 2; ++i) {
    double f = std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(rotary_dim));
    if (s.type == "linear") f /= s.factor;
    if (s.type == "llama3") f = llama3_frequency(f, s);
    if (s.type == "yarn") f = yarn_frequency(f, i, rotary_dim, theta, s);
    out.push_back(f);
  }
  return out;
}

void fill_tables(const std::vector<double>& frequency, double magnitude, const Tensor& cos, const Tensor& sin) {
  if constexpr (core::kHasCuda) {
    if (core::on_cuda(cos)) return cuda::rope_tables(frequency, magnitude, cos, sin);
  }
  const int64_t half = cos.shape(1);
  cpu::parallel_for(cos.shape(0), cpu::grain_of(half * 160), [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) {
      for (int64_t i = 0; i < half; ++i) {
        const double angle = static_cast<double>(p) * frequency[static_cast<size_t>(i)];
        cos.data<float>()[p * half + i] = static_cast<float>(magnitude * std::cos(angle));
        sin.data<float>()[p * half + i] = static_cast<float>(magnitude * std::sin(angle));
      }
    }
  });
}

}  // namespace

RopeTables rope_tables(int64_t maxpos, int64_t rotary_dim, const RopeTablesOptions& o) {
  if (maxpos < 0) fail<ValueError>("rope_tables: maxpos must be >= 0, got {}", maxpos);
  if (rotary_dim < 2 || rotary_dim % 2 != 0)
    fail<ValueError>("rope_tables: rotary_dim must be even and >= 2, got {}", rotary_dim);
  check_positive(kOp, "theta", o.theta);
  check_scaling(o.scaling, o.theta);
  if (o.out.cos.defined() != o.out.sin.defined()) fail<ValueError>("rope_tables: out must hold both cos and sin");
  core::check_distinct_outputs(kOp, {&o.out.cos, &o.out.sin});
  const Tensor like = Tensor::empty({0}, float32, core::traced_device(o.device));
  const Dims shape{maxpos, rotary_dim / 2};
  Output cos(kOp, o.out.cos, shape, float32, like, {},
             {.contiguous = true, .argument = "out.cos", .cuda = core::kHasCuda});
  Output sin(kOp, o.out.sin, shape, float32, like, {&o.out.cos},
             {.contiguous = true, .argument = "out.sin", .cuda = core::kHasCuda});
  StepScope step([&] {
    return Step{kOp, OpClass::kElementwise, {}, {cos.target(), sin.target()}, 2 * product(shape)}.with(
        core::recipe([maxpos, rotary_dim, o](const auto&, const auto& outs) {
          RopeTablesOptions again = o;
          again.device = outs[0].device(), again.out = {outs[0], outs[1]};
          rope_tables(maxpos, rotary_dim, again);
        }));
  });
  if (!step.shape_only(cos.target())) {
    const double magnitude = o.scaling.type == "yarn" ? yarn_attention_factor(o.scaling) : 1.0;
    fill_tables(frequencies(rotary_dim, o.theta, o.scaling), magnitude, cos.target(), sin.target());
  }
  return {cos.finish(), sin.finish()};
}

}  // namespace tenor
