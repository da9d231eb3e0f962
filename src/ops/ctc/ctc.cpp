// The contract of ctc_loss and ctc_loss_backward. Kernels: ctc_cpu.cpp, ctc_cuda.cu.
#include "tenor/ctc.h"

#include <algorithm>

#include "src/core/backend.h"
#include "src/core/numeric.h"
#include "src/core/output.h"
#include "src/core/registry.h"
#include "src/core/step.h"
#include "src/core/visit.h"
#include "src/ops/ctc/ctc_checks.h"
#include "src/ops/ctc/ctc_cuda.h"
#include "src/ops/ctc/ctc_kernels.h"

namespace tenor {
namespace {

using core::fail;
using core::OpClass;
using core::Output;

const core::OpRegistration kOps({
    {"ctc_loss", "ctc", OpClass::kReduction,
     "log_probs[T,N,C], targets[N,S] or [sum S], lengths[N] -> -log sum over alignments of prod_t exp(log_probs), "
     "mean, "
     "sum or [N]"},
    {"ctc_loss_backward", "ctc", OpClass::kReduction,
     "grad, log_probs[T,N,C], targets, lengths[N] -> grad * (exp(log_probs) - posterior) [T,N,C]"},
});

/// What the two operators share.
struct Arguments {
  const char* op;
  const Tensor &log_probs, &targets;
  const CtcLengths &input_lengths, &target_lengths;
  int64_t blank;
  const std::string& reduction;
  bool zero_infinity;

  bool flat() const { return targets.ndim() == 1; }
  int64_t samples() const { return log_probs.shape(1); }
  int64_t most_labels() const { return targets.shape(-1); }
};

void check(const Arguments& a) {
  ctc::check_log_probs(a.op, a.log_probs, a.blank);
  if (a.reduction != "mean" && a.reduction != "sum" && a.reduction != "none")
    fail<ValueError>("{}: reduction must be 'mean', 'sum' or 'none', got '{}'", a.op, a.reduction);
  core::check_index_dtype(a.op, {"targets", a.targets});
  if (a.targets.ndim() != 1 && a.targets.ndim() != 2)
    fail<ShapeError>("{}: targets must have shape [N, S] or [sum of target_lengths], got {}", a.op, a.targets.shape());
  if (!a.flat() && a.targets.shape(0) != a.samples())
    fail<ShapeError>("{}: targets must have {} rows, one a sample of log_probs, got shape {}", a.op, a.samples(),
                     a.targets.shape());
  core::check_same_device(a.op, {{"log_probs", a.log_probs}, {"targets", a.targets}});
  ctc::check_lengths(a.op, "input_lengths", a.input_lengths, a.log_probs);
  ctc::check_lengths(a.op, "target_lengths", a.target_lengths, a.log_probs);
}

void check_total(const Arguments& a, const std::vector<int64_t>& labels) {
  int64_t total = 0;
  for (int64_t n : labels) total = core::count_sum(total, n);
  if (a.flat() && total != a.most_labels())
    fail<ShapeError>("{}: targets must hold as many labels as target_lengths add up to, {}, got {}", a.op, total,
                     a.most_labels());
}

/// The labels of all samples, one after another. @throws IndexError for one that is no class
std::vector<int64_t> read_labels(const Arguments& a, const std::vector<int64_t>& counts) {
  std::vector<int64_t> labels;
  int64_t offset = 0;
  for (size_t n = 0; n < counts.size(); offset += counts[n], ++n) {
    const auto row = static_cast<int64_t>(n);
    const Tensor own = a.flat() ? a.targets.with_layout({counts[n]}, {a.targets.stride(0)},
                                                        a.targets.offset() + offset * a.targets.stride(0))
                                : a.targets.with_layout({counts[n]}, {a.targets.stride(1)},
                                                        a.targets.offset() + row * a.targets.stride(0));
    for (int64_t i = 0; i < counts[n]; ++i) {
      labels.push_back(ctc::integer_at(own, i));
      if (labels.back() < 0 || labels.back() >= a.log_probs.shape(2))
        fail<IndexError>("{}: targets holds {} at label {} of sample {}, which is out of range (expected 0 to {})",
                         a.op, labels.back(), i, n, a.log_probs.shape(2) - 1);
    }
  }
  return labels;
}

/// What the CPU computes with: contents read and checked before anything is written.
struct HostProblem {
  HostProblem(const Arguments& a) : mean(a.reduction == "mean"), each(a.reduction == "none") {
    const auto frames = ctc::read_lengths(a.op, "input_lengths", a.input_lengths, a.log_probs.shape(0));
    const auto counts = ctc::read_lengths(a.op, "target_lengths", a.target_lengths, a.most_labels());
    check_total(a, counts);
    labels = read_labels(a, counts);
    problem = {a.log_probs, a.blank, a.zero_infinity, {}};
    const int64_t* own = labels.data();
    for (size_t n = 0; n < counts.size(); own += counts[n], ++n)
      problem.samples.push_back({static_cast<int64_t>(n), frames[n], counts[n], own});
    losses.resize(counts.size());
  }
  /// d result / d the sample's loss.
  double weight(const cpu::CtcSample& s) const {
    if (!mean) return 1;
    return 1 / (static_cast<double>(std::max<int64_t>(s.labels, 1)) * static_cast<double>(problem.samples.size()));
  }
  std::vector<double> weights(const Tensor& upstream) const {
    std::vector<double> all;
    for (const auto& s : problem.samples) {
      const int64_t at = upstream.defined() && each ? s.n * upstream.stride(0) : 0;
      const double of_loss = !upstream.defined() ? 1.0 : core::visit_float(upstream.dtype(), [&]<class T>() {
        return static_cast<double>(core::widen(upstream.data<T>()[at]));
      });
      all.push_back(of_loss * weight(s));
    }
    return all;
  }
  void write_loss(const Tensor& loss) const {
    core::visit_float(loss.dtype(), [&]<class T>() {
      double sum = 0;
      for (const auto& s : problem.samples) {
        if (each)
          loss.data<T>()[s.n * loss.stride(0)] = core::cast<T>(losses[static_cast<size_t>(s.n)]);
        else
          sum += losses[static_cast<size_t>(s.n)] * weight(s);
      }
      if (!each) *loss.data<T>() = core::cast<T>(sum);
    });
  }

  bool mean, each;
  std::vector<int64_t> labels;
  cpu::CtcProblem problem;
  std::vector<double> losses;
};

/// Numbers are checked at once, wherever the rest lies.
void check_numbers(const Arguments& a) {
  if (a.input_lengths.numbers) ctc::read_lengths(a.op, "input_lengths", a.input_lengths, a.log_probs.shape(0));
  if (a.target_lengths.numbers)
    check_total(a, ctc::read_lengths(a.op, "target_lengths", a.target_lengths, a.most_labels()));
}

void run(const Arguments& a, const Tensor& upstream, const Tensor& loss, const Tensor& gradient, HostProblem* host) {
  if constexpr (core::kHasCuda) {
    if (core::on_cuda(a.log_probs))
      return ctc::loss_cuda({a.op, a.log_probs, a.targets, a.input_lengths, a.target_lengths, a.blank, a.zero_infinity,
                             a.reduction, upstream, loss, gradient});
  }
  if (gradient.defined())
    cpu::ctc_gradient(host->problem, host->weights(upstream).data(), gradient, host->losses.data());
  else
    cpu::ctc_losses(host->problem, host->losses.data());
  if (loss.defined()) host->write_loss(loss);
}

/// Lengths as they were given: numbers, or another array of them.
CtcLengths lengths_of(const std::optional<std::vector<int64_t>>& numbers, const Tensor& array) {
  return numbers ? CtcLengths(*numbers) : CtcLengths(array);
}

core::Step step_of(const Arguments& a, std::vector<Tensor> inputs, std::vector<Tensor> outputs, bool all_classes) {
  const int64_t frames = core::count_product(a.log_probs.shape(0), a.samples());
  const int64_t labels = a.flat() ? a.most_labels() / std::max<int64_t>(a.samples(), 1) : a.most_labels();
  const int64_t states = core::count_product(frames, 2 * labels + 1);
  core::Step made{a.op, OpClass::kReduction, std::move(inputs), std::move(outputs), a.log_probs.numel()};
  if (!all_classes) {
    made.flops = core::count_product(frames, labels + 1);
    made.reads.assign(made.inputs.size(), -1);
    made.reads[0] = std::min(a.log_probs.numel(), made.flops);
  }
  return std::move(made).with({.exponentials = all_classes ? a.log_probs.numel() : 0,
                               .operations = core::count_product(states, all_classes ? 70 : 30)});
}

}  // namespace

CtcLossResult ctc_loss(const Tensor& log_probs, const Tensor& targets, const CtcLengths& input_lengths,
                       const CtcLengths& target_lengths, const CtcLossOptions& o) {
  const Arguments a{"ctc_loss",     log_probs, targets,     input_lengths,
                    target_lengths, o.blank,   o.reduction, o.zero_infinity};
  check(a);
  if (o.out.gradient.defined() && !o.return_grad) fail<ValueError>("{}: out.gradient needs return_grad", a.op);
  if (o.return_grad && o.out.loss.defined() != o.out.gradient.defined())
    fail<ValueError>("{}: out= needs both loss and gradient", a.op);
  core::check_distinct_outputs(a.op, {&o.out.loss, &o.out.gradient});
  const std::initializer_list<const Tensor*> inputs = {&log_probs, &targets, &input_lengths.array,
                                                       &target_lengths.array};
  Output loss(a.op, o.out.loss, o.reduction == "none" ? Dims{a.samples()} : Dims{}, log_probs.dtype(), log_probs,
              inputs, {.argument = o.return_grad ? "out.loss" : "out", .cuda = core::kHasCuda});
  std::optional<Output> gradient;
  if (o.return_grad)
    gradient.emplace(a.op, o.out.gradient, log_probs.shape(), log_probs.dtype(), log_probs, inputs,
                     core::OutputRules{.argument = "out.gradient", .cuda = core::kHasCuda});
  const Tensor written = gradient ? gradient->target() : Tensor();
  core::StepScope step([&] {
    std::vector<Tensor> outputs = {loss.target()};
    if (gradient) outputs.push_back(written);
    return step_of(a, {log_probs, targets, input_lengths.array, target_lengths.array}, std::move(outputs),
                   o.return_grad)
        .with(core::recipe(
            [frames = input_lengths.numbers, labels = target_lengths.numbers, o](const auto& in, const auto& outs) {
              CtcLossOptions again = o;
              again.out = {outs[0], o.return_grad ? outs[1] : Tensor()};
              ctc_loss(in[0], in[1], lengths_of(frames, in[2]), lengths_of(labels, in[3]), again);
            }));
  });
  check_numbers(a);
  if (step.shape_only(loss.target())) return {loss.target(), written};
  std::optional<HostProblem> host;
  if (!core::on_cuda(log_probs)) host.emplace(a);
  run(a, {}, loss.target(), written, host ? &*host : nullptr);
  CtcLossResult result{loss.finish(), {}};
  if (gradient) result.gradient = gradient->finish();
  return result;
}

Tensor ctc_loss_backward(const Tensor& grad_output, const Tensor& log_probs, const Tensor& targets,
                         const CtcLengths& input_lengths, const CtcLengths& target_lengths,
                         const CtcLossBackwardOptions& o) {
  const Arguments a{"ctc_loss_backward", log_probs, targets,     input_lengths,
                    target_lengths,      o.blank,   o.reduction, o.zero_infinity};
  check(a);
  core::check_given(a.op, {"grad_output", grad_output});
  if (grad_output.dtype() != log_probs.dtype() && grad_output.dtype() != float32)
    fail<DTypeError>("{}: grad_output must have log_probs' dtype {} or float32, got {}", a.op, log_probs.dtype(),
                     grad_output.dtype());
  core::check_shape(a.op, {"grad_output", grad_output}, o.reduction == "none" ? Dims{a.samples()} : Dims{});
  core::check_same_device(a.op, {{"log_probs", log_probs}, {"grad_output", grad_output}});
  Output out(a.op, o.out, log_probs.shape(), log_probs.dtype(), log_probs,
             {&grad_output, &log_probs, &targets, &input_lengths.array, &target_lengths.array},
             {.cuda = core::kHasCuda});
  core::StepScope step([&] {
    return step_of(a, {log_probs, grad_output, targets, input_lengths.array, target_lengths.array}, {out.target()},
                   true)
        .with(core::recipe(
            [frames = input_lengths.numbers, labels = target_lengths.numbers, o](const auto& in, const auto& outs) {
              CtcLossBackwardOptions again = o;
              again.out = outs[0];
              ctc_loss_backward(in[1], in[0], in[2], lengths_of(frames, in[3]), lengths_of(labels, in[4]), again);
            }));
  });
  check_numbers(a);
  if (step.shape_only(out.target())) return out.target();
  std::optional<HostProblem> host;
  if (!core::on_cuda(log_probs)) host.emplace(a);
  run(a, grad_output, {}, out.target(), host ? &*host : nullptr);
  return out.finish();
}

}  // namespace tenor
