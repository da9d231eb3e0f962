// The contract of the convolutions proper: forward, data and weight gradients, transposed. A transposed convolution is
// the data direction of a forward one whose output is its input, so everything comes down to one ConvProblem.
#include "tenor/conv.h"

#include "src/core/backend.h"
#include "src/core/modes.h"
#include "src/core/output.h"
#include "src/core/registry.h"
#include "src/ops/conv/conv_candidates.h"
#include "src/ops/conv/conv_options.h"
#include "tenor/elementwise.h"

namespace tenor {
namespace {

using namespace conv;
using core::fail;
using core::Named;
using core::OpClass;
using core::Output;
using core::Step;

const core::OpRegistration kOps({
    {"conv_forward", "conv", OpClass::kContraction, "input[N,C,*S], weight[O,C/groups,*K], bias[O] -> [N,O,*P]",
     conv_strategies()},
    {"conv_forward_nhwc", "conv", OpClass::kContraction, "input[N,*S,C], weight[O,*K,C/groups], bias[O] -> [N,*P,O]",
     conv_strategies()},
    {"conv_data_backward", "conv", OpClass::kContraction,
     "grad_output[N,O,*P], weight[O,C/groups,*K] -> grad_input[N,C,*S]", conv_strategies()},
    {"conv_data_backward_nhwc", "conv", OpClass::kContraction,
     "grad_output[N,*P,O], weight[O,*K,C/groups] -> grad_input[N,*S,C]", conv_strategies()},
    {"conv_weight_backward", "conv", OpClass::kContraction,
     "input[N,C,*S], grad_output[N,O,*P] -> grad_weight[O,C/groups,*K]", conv_strategies()},
    {"conv_weight_backward_nhwc", "conv", OpClass::kContraction,
     "input[N,*S,C], grad_output[N,*P,O] -> grad_weight[O,*K,C/groups]", conv_strategies()},
    {"conv_transpose", "conv", OpClass::kContraction, "input[N,C,*S], weight[C,O/groups,*K], bias[O] -> [N,O,*P]",
     conv_strategies()},
    {"conv_transpose_data_backward", "conv", OpClass::kContraction,
     "grad_output[N,O,*P], weight[C,O/groups,*K] -> grad_input[N,C,*S]", conv_strategies()},
    {"conv_transpose_weight_backward", "conv", OpClass::kContraction,
     "input[N,C,*S], grad_output[N,O,*P] -> grad_weight[C,O/groups,*K]", conv_strategies()},
});

/// A call: its problem without memory, and what is read and written by whom.
struct Call {
  const char* op;
  ConvProblem problem;
  Layout layout;
  Tensor input, weight, output;  ///< of the forward convolution; the one that is written is undefined until it is made
  Tensor bias = {};
  std::string_view strategy;
  bool transposed = false;  ///< the caller's input is the forward convolution's output
};

/// @throws ShapeError unless x has as many dims as `of`.
void check_rank_of(const char* op, core::Named x, core::Named of) {
  core::check_given(op, x);
  if (x.tensor.ndim() != of.tensor.ndim())
    fail<ShapeError>("{}: {} must have {}'s {} dims, got {} with shape {}", op, x.name, of.name, of.tensor.ndim(),
                     x.tensor.ndim(), x.tensor.shape());
}

void check_groups(const char* op, int64_t groups) {
  if (groups < 1) fail<ValueError>("{}: groups must be at least 1, got {}", op, groups);
}

/// Of the shape of a gradient. @throws ShapeError
void check_sizes(const char* op, const char* argument, const Dims& shape, int ndim) {
  if (static_cast<int>(shape.size()) != ndim)
    fail<ShapeError>("{}: {} must have {} sizes, got {}", op, argument, ndim, shape);
  int64_t bytes = 8;
  for (const int64_t size : shape)
    if (size < 0 || (bytes = core::count_product(bytes, size)) == INT64_MAX)
      fail<ShapeError>("{}: {} must be sizes of at least 0 and less than 2^63 bytes, got {}", op, argument, shape);
}

/// Channels, outputs and groups of [N,C,*S] and [O,C/groups,*K]. @throws ShapeError
void check_channels(const char* op, const char* input, const Dims& image, const char* weight, const Dims& filter,
                    int64_t groups) {
  if (image[1] % groups != 0)
    fail<ShapeError>("{}: {} has {} channels, which groups {} does not divide", op, input, image[1], groups);
  if (filter[0] % groups != 0)
    fail<ShapeError>("{}: {} has {} output channels, which groups {} does not divide", op, weight, filter[0], groups);
  if (filter[1] == image[1] / groups) return;
  const std::string called = op;
  const bool last = !called.ends_with("_nhwc") && image.back() == core::count_product(filter.back(), groups);
  fail<ShapeError>("{}: {} must have {} channels ({}'s {} over groups {}), got {}{}", op, weight, image[1] / groups,
                   input, image[1], groups, filter[1], last ? "; channels last are " + called + "_nhwc's" : "");
}

/// The problem of [N,C,*S], [O,C/groups,*K] and windows between them.
ConvProblem problem_of(Direction direction, DType dtype, const Dims& image, const Dims& filter, const Windows& windows,
                       int64_t groups, Device device) {
  ConvProblem p;
  p.direction = direction;
  p.dtype = dtype;
  p.batch = image[0], p.channels = image[1], p.out_channels = filter[0], p.groups = groups;
  p.dims = windows.dims;
  std::copy(windows.window, windows.window + kSpatial, p.window);
  p.device = core::stands_for(device);
  p.batch_invariant = core::batch_invariant();
  return p;
}

/// [N, channels, *outputs] of those windows.
Dims output_sizes(const char* op, const Dims& image, int64_t channels, const Windows& windows) {
  Dims sizes = {image[0], channels};
  for (const int64_t size : windows.outputs()) sizes.push_back(size);
  check_sizes(op, "the result", sizes, static_cast<int>(image.size()));
  return sizes;
}

void check_bias(const char* op, const Tensor& bias, Named x, int64_t channels) {
  if (!bias.defined()) return;
  core::check_same_dtype(op, x, {"bias", bias});
  core::check_shape(op, {"bias", bias}, {channels});
}

/// With the memory of every operand.
ConvProblem placed(const Call& call) {
  ConvProblem p = call.problem;
  p.input = image_of(call.input, call.layout);
  p.output = image_of(call.output, call.layout);
  p.weight = filter_of(call.weight, call.layout);
  if (call.bias.defined()) p.bias = static_cast<const char*>(call.bias.raw()), p.bias_stride = call.bias.stride(0);
  return p;
}

/// Where nothing is summed up: the bias, or zeros.
void write_bias(const Call& call, const Tensor& to) {
  if (!call.bias.defined()) {
    fill_(to, 0);
    return;
  }
  Dims strides(static_cast<size_t>(to.ndim()), 0);
  strides[call.layout == Layout::kChannelsLast ? strides.size() - 1 : 1] = call.bias.stride(0);
  core::copy_into(call.bias.with_layout(to.shape(), strides, call.bias.offset()), to);
}

int64_t flops_of(const ConvProblem& p) {
  const int64_t sums = core::count_product(core::count_product(p.batch, p.out_channels), p.output_pixels());
  return core::count_product(core::count_product(2, sums), core::count_product(p.group_channels(), p.taps()));
}

/// Of the call that is complete but for `written`.
Step step_of(const Call& call, const ConvProblem& p, const Tensor& written) {
  Step step{call.op, OpClass::kContraction, {}, {written}, flops_of(p)};
  for (const Tensor* x : {&call.input, &call.output, &call.weight, &call.bias})
    if (x->defined()) step.inputs.push_back(*x);
  if (call.bias.defined()) step.flops = core::count_sum(step.flops, written.numel());
  step.note = core::text("sums {} taps of {} channels", p.taps(), p.group_channels());
  if (sums_nothing(p)) return step;
  const ConvCandidate& taken = chosen(call.op, p, call.strategy, false);
  step.strategy = explain_choice(taken, p);
  step.copies = copies_of(taken, p);
  if (const std::string more = note_of(taken, p); !more.empty()) step.note += "; " + more;
  return step;
}

void compute(const Call& call, const ConvProblem& p, const Tensor& to) {
  if (!sums_nothing(p))
    chosen(call.op, p, call.strategy, true).run(p);
  else if (to.numel() != 0)
    write_bias(call, to);
}

/// The call on other tensors, in the order of step_of().
std::shared_ptr<const core::Recipe> recipe_of(const Call& call, Tensor Call::*written) {
  return core::recipe([call, written, strategy = std::string(call.strategy)](const auto& in, const auto& outs) {
    Call again = call;
    again.strategy = strategy;
    size_t next = 0;
    for (Tensor Call::*x : {&Call::input, &Call::output, &Call::weight, &Call::bias})
      if ((call.*x).defined()) again.*x = in[next++];
    again.*written = outs[0];
    again.problem.device = outs[0].device();
    compute(again, placed(again), outs[0]);
  });
}

/// Makes the result for `written` (call.input, call.weight or call.output) and computes it.
Tensor run(const Call& call, Tensor Call::*written, const Dims& shape, const Tensor& first, const Tensor& given) {
  const char *image = call.transposed ? "grad_output" : "input", *output = call.transposed ? "input" : "grad_output";
  core::check_same_device(call.op,
                          {{image, call.input}, {"weight", call.weight}, {output, call.output}, {"bias", call.bias}});
  Output out(call.op, given, shape, first.dtype(), first, {&call.input, &call.weight, &call.output, &call.bias},
             {.cuda = core::kHasCuda});
  const Tensor to = out.target();
  Call whole = call;
  whole.*written = to;
  const ConvProblem p = placed(whole);
  chosen(call.op, p, call.strategy, false);  // its errors come before the step is stated; of empty problems alike
  core::StepScope step([&] { return step_of(call, p, to).with(recipe_of(call, written)); });
  if (step.shape_only(to)) return to;
  compute(call, p, to);
  return out.finish();
}

Tensor forward(const char* op, const Tensor& input, const Tensor& weight, const Tensor& bias, const ConvOptions& o,
               Layout layout) {
  check_image(op, {"input", input});
  core::check_same_dtype(op, {"input", input}, {"weight", weight});
  check_rank_of(op, {"weight", weight}, {"input", input});
  check_groups(op, o.groups);
  const Dims image = canonical(input.shape(), layout), filter = canonical(weight.shape(), layout);
  const Sliding sliding = read_sliding(op, spatial_dims(image), o.stride, o.padding, o.dilation);
  check_channels(op, "input", image, "weight", filter, o.groups);
  check_bias(op, bias, {"input", input}, filter[0]);
  const Windows windows = read_windows(op, sliding, spatial_sizes(image), spatial_sizes(filter));
  Call call{op,     problem_of(Direction::kForward, input.dtype(), image, filter, windows, o.groups, input.device()),
            layout, input,
            weight, {},
            bias,   o.strategy};
  return run(call, &Call::output, in_layout(output_sizes(op, image, filter[0], windows), layout), input, o.out);
}

Tensor data_backward(const char* op, const Tensor& grad_output, const Tensor& weight, const Dims& input_shape,
                     const ConvOptions& o, Layout layout) {
  check_image(op, {"grad_output", grad_output});
  core::check_same_dtype(op, {"grad_output", grad_output}, {"weight", weight});
  check_rank_of(op, {"weight", weight}, {"grad_output", grad_output});
  check_sizes(op, "input_shape", input_shape, grad_output.ndim());
  check_groups(op, o.groups);
  const Dims image = canonical(input_shape, layout), filter = canonical(weight.shape(), layout);
  const Sliding sliding = read_sliding(op, spatial_dims(image), o.stride, o.padding, o.dilation);
  check_channels(op, "input_shape", image, "weight", filter, o.groups);
  const Windows windows =
      read_windows(op, sliding, spatial_sizes(image), spatial_sizes(filter), "weight", "input_shape");
  core::check_shape(op, {"grad_output", grad_output}, in_layout(output_sizes(op, image, filter[0], windows), layout));
  Call call{
      op,
      problem_of(Direction::kDataBackward, grad_output.dtype(), image, filter, windows, o.groups, grad_output.device()),
      layout,
      {},
      weight,
      grad_output,
      {},
      o.strategy};
  return run(call, &Call::input, input_shape, grad_output, o.out);
}

Tensor weight_backward(const char* op, const Tensor& input, const Tensor& grad_output, const Dims& weight_shape,
                       const ConvOptions& o, Layout layout) {
  check_image(op, {"input", input});
  core::check_same_dtype(op, {"input", input}, {"grad_output", grad_output});
  check_rank_of(op, {"grad_output", grad_output}, {"input", input});
  check_sizes(op, "weight_shape", weight_shape, input.ndim());
  check_groups(op, o.groups);
  const Dims image = canonical(input.shape(), layout), filter = canonical(weight_shape, layout);
  const Sliding sliding = read_sliding(op, spatial_dims(image), o.stride, o.padding, o.dilation);
  check_channels(op, "input", image, "weight_shape", filter, o.groups);
  const Windows windows = read_windows(op, sliding, spatial_sizes(image), spatial_sizes(filter), "weight_shape");
  core::check_shape(op, {"grad_output", grad_output}, in_layout(output_sizes(op, image, filter[0], windows), layout));
  Call call{
      op,     problem_of(Direction::kWeightBackward, input.dtype(), image, filter, windows, o.groups, input.device()),
      layout, input,
      {},     grad_output,
      {},     o.strategy};
  return run(call, &Call::weight, weight_shape, input, o.out);
}

/// What the transposed operators check of their operands: the windows between `image` (conv_transpose's input [N,C,*S])
/// and its result, of which [N,O,*P] is given where `result` has sizes.
struct Transposed {
  Dims wide;  ///< [N,O,*P]: the forward convolution's input
  Windows windows;
};
Transposed read_transposed_call(const char* op, const Dims& image, const char* image_name, const Dims& filter,
                                const char* filter_name, const Dims* result, const ConvTransposeOptions& o) {
  check_groups(op, o.groups);
  const Sliding sliding = read_sliding(op, spatial_dims(image), o.stride, o.padding, o.dilation);
  if (image[1] % o.groups != 0)
    fail<ShapeError>("{}: {} has {} channels, which groups {} does not divide", op, image_name, image[1], o.groups);
  if (filter[0] != image[1])
    fail<ShapeError>("{}: {} must have {}'s {} channels first, got {}", op, filter_name, image_name, image[1],
                     filter[0]);
  const Dims sizes = result ? spatial_sizes(*result) : Dims();
  Transposed t{{image[0], core::count_product(filter[1], o.groups)},
               read_transposed(op, sliding, spatial_sizes(image), spatial_sizes(filter), o.output_padding,
                               result ? &sizes : nullptr)};
  for (int d = kSpatial - t.windows.dims; d < kSpatial; ++d) t.wide.push_back(t.windows.window[d].input);
  check_sizes(op, "the result", t.wide, static_cast<int>(image.size()));
  return t;
}

}  // namespace

Tensor conv_forward(const Tensor& input, const Tensor& weight, const Tensor& bias, const ConvOptions& options) {
  return forward("conv_forward", input, weight, bias, options, Layout::kChannelsSecond);
}
Tensor conv_forward_nhwc(const Tensor& input, const Tensor& weight, const Tensor& bias, const ConvOptions& options) {
  return forward("conv_forward_nhwc", input, weight, bias, options, Layout::kChannelsLast);
}

Tensor conv_data_backward(const Tensor& grad_output, const Tensor& weight, const Dims& input_shape,
                          const ConvOptions& options) {
  return data_backward("conv_data_backward", grad_output, weight, input_shape, options, Layout::kChannelsSecond);
}
Tensor conv_data_backward_nhwc(const Tensor& grad_output, const Tensor& weight, const Dims& input_shape,
                               const ConvOptions& options) {
  return data_backward("conv_data_backward_nhwc", grad_output, weight, input_shape, options, Layout::kChannelsLast);
}

Tensor conv_weight_backward(const Tensor& input, const Tensor& grad_output, const Dims& weight_shape,
                            const ConvOptions& options) {
  return weight_backward("conv_weight_backward", input, grad_output, weight_shape, options, Layout::kChannelsSecond);
}
Tensor conv_weight_backward_nhwc(const Tensor& input, const Tensor& grad_output, const Dims& weight_shape,
                                 const ConvOptions& options) {
  return weight_backward("conv_weight_backward_nhwc", input, grad_output, weight_shape, options, Layout::kChannelsLast);
}

Tensor conv_transpose(const Tensor& input, const Tensor& weight, const Tensor& bias, const ConvTransposeOptions& o) {
  constexpr const char* kOp = "conv_transpose";
  check_image(kOp, {"input", input});
  core::check_same_dtype(kOp, {"input", input}, {"weight", weight});
  check_rank_of(kOp, {"weight", weight}, {"input", input});
  const auto [wide, windows] = read_transposed_call(kOp, input.shape(), "input", weight.shape(), "weight", nullptr, o);
  check_bias(kOp, bias, {"input", input}, wide[1]);
  Call call{
      kOp,
      problem_of(Direction::kDataBackward, input.dtype(), wide, weight.shape(), windows, o.groups, input.device()),
      Layout::kChannelsSecond,
      {},
      weight,
      input,
      bias,
      o.strategy,
      true};
  return run(call, &Call::input, wide, input, o.out);
}

Tensor conv_transpose_data_backward(const Tensor& grad_output, const Tensor& weight, const Dims& input_shape,
                                    const ConvTransposeOptions& o) {
  constexpr const char* kOp = "conv_transpose_data_backward";
  check_image(kOp, {"grad_output", grad_output});
  core::check_same_dtype(kOp, {"grad_output", grad_output}, {"weight", weight});
  check_rank_of(kOp, {"weight", weight}, {"grad_output", grad_output});
  check_sizes(kOp, "input_shape", input_shape, grad_output.ndim());
  const auto [wide, windows] =
      read_transposed_call(kOp, input_shape, "input_shape", weight.shape(), "weight", &grad_output.shape(), o);
  core::check_shape(kOp, {"grad_output", grad_output}, wide);
  Call call{kOp,
            problem_of(Direction::kForward, grad_output.dtype(), wide, weight.shape(), windows, o.groups,
                       grad_output.device()),
            Layout::kChannelsSecond,
            grad_output,
            weight,
            {},
            {},
            o.strategy,
            true};
  return run(call, &Call::output, input_shape, grad_output, o.out);
}

Tensor conv_transpose_weight_backward(const Tensor& input, const Tensor& grad_output, const Dims& weight_shape,
                                      const ConvTransposeOptions& o) {
  constexpr const char* kOp = "conv_transpose_weight_backward";
  check_image(kOp, {"input", input});
  core::check_same_dtype(kOp, {"input", input}, {"grad_output", grad_output});
  check_rank_of(kOp, {"grad_output", grad_output}, {"input", input});
  check_sizes(kOp, "weight_shape", weight_shape, input.ndim());
  const auto [wide, windows] =
      read_transposed_call(kOp, input.shape(), "input", weight_shape, "weight_shape", &grad_output.shape(), o);
  core::check_shape(kOp, {"grad_output", grad_output}, wide);
  Call call{
      kOp,
      problem_of(Direction::kWeightBackward, input.dtype(), wide, weight_shape, windows, o.groups, input.device()),
      Layout::kChannelsSecond,
      grad_output,
      {},
      input,
      {},
      o.strategy,
      true};
  return run(call, &Call::weight, weight_shape, input, o.out);
}

}  // namespace tenor
