// The vendor candidate: oneDNN's convolution primitives, in layouts of the library's choice.
//
// A primitive is kept by problem with the reorders that its layouts need, one cache a thread, as the contraction family
// keeps its own (src/ops/contract/gemm_vendor.cpp): no lock is shared, so neither threads nor a fork() meet one.
#include "src/ops/conv/conv_candidates.h"
#include "src/ops/conv/conv_plain.h"
#include "tenor/tensor.h"

#ifndef TENOR_HAS_ONEDNN

namespace tenor::conv {
std::string vendor_why_not(const ConvProblem&) { return "this build has no oneDNN"; }
void vendor_run(const ConvProblem&) {}
std::vector<core::Copy> vendor_copies(const ConvProblem&) { return {}; }
}  // namespace tenor::conv

#else

#include <cstring>
#include <map>
#include <memory>
#include <unordered_map>

#include "src/cpu/onednn.h"

namespace tenor::conv {
namespace {

using cpu::OmpThreads;
using dnnl::memory;

constexpr size_t kMaxPrimitives = 128;  // a thread's; beyond, the cache starts anew

memory::data_type type_of(DType dtype) {
  return dtype == DType::kFloat32 ? memory::data_type::f32 : memory::data_type::bf16;
}

/// Places of the operands in a Plan.
enum Operand { kInput, kWeight, kOutput, kOperands };
constexpr const char* kNames[] = {"input", "weight", "output"};

/// An operand as the caller has it, and as the primitive wants it.
struct Side {
  memory::desc given, wanted;
  dnnl::reorder reorder;  // from one to the other; of what is written, back
  bool copies = false;
};

struct Plan {
  std::string declined;  // why oneDNN has nothing fast for the problem
  dnnl::primitive primitive;
  Side sides[kOperands];
  memory::desc bias, scratch;
};

/// The spatial dims that oneDNN is told of: those that the caller has.
template <class F>
memory::dims spatial(const ConvProblem& p, F&& of) {
  memory::dims dims;
  for (int d = kSpatial - p.dims; d < kSpatial; ++d) dims.push_back(of(d));
  return dims;
}
memory::dims with(memory::dims front, const memory::dims& back) {
  front.insert(front.end(), back.begin(), back.end());
  return front;
}

/// The caller's memory. Strides of dims of size 1 carry no meaning, but oneDNN tells layouts by them.
memory::desc given_desc(const ConvProblem& p, memory::dims sizes, memory::dims strides) {
  int64_t dense = 1;
  for (size_t i = sizes.size(); i-- > 0;) {
    if (sizes[i] == 1) strides[i] = dense;
    dense = std::max(dense, sizes[i] * strides[i]);
  }
  return memory::desc(sizes, type_of(p.dtype), strides);
}

memory::desc image_desc(const ConvProblem& p, const Image& x, int64_t channels, bool input) {
  const auto sizes = spatial(p, [&](int d) { return input ? p.window[d].input : p.window[d].output; });
  return given_desc(p, with({p.batch, channels}, sizes),
                    with({x.batch, x.channel}, spatial(p, [&](int d) { return x.spatial[d]; })));
}

memory::desc weight_desc(const ConvProblem& p) {
  const auto kernel = spatial(p, [&](int d) { return p.window[d].kernel; });
  const auto strides = spatial(p, [&](int d) { return p.weight.spatial[d]; });
  if (p.groups == 1)
    return given_desc(p, with({p.out_channels, p.channels}, kernel), with({p.weight.out, p.weight.in}, strides));
  return given_desc(p, with({p.groups, p.group_outputs(), p.group_channels()}, kernel),
                    with({p.group_outputs() * p.weight.out, p.weight.out, p.weight.in}, strides));
}

memory::desc any_desc(const memory::desc& given) { return {given.dims(), given.data_type(), memory::format_tag::any}; }

struct Geometry {
  memory::dims strides, dilations, before, after;
};
Geometry geometry_of(const ConvProblem& p) {
  return {spatial(p, [&](int d) { return p.window[d].stride; }),
          spatial(p, [&](int d) { return p.window[d].dilation - 1; }),
          spatial(p, [&](int d) { return p.window[d].before; }), spatial(p, [&](int d) { return p.window[d].after; })};
}

dnnl::convolution_forward::primitive_desc forward_desc(const ConvProblem& p, const memory::desc* any,
                                                       const memory::desc& bias,
                                                       const dnnl::primitive_attr& attributes) {
  const Geometry g = geometry_of(p);
  constexpr auto kKind = dnnl::prop_kind::forward_training;
  constexpr auto kAlgorithm = dnnl::algorithm::convolution_direct;
  using Desc = dnnl::convolution_forward::desc;
  const Desc op =
      p.direction == Direction::kForward && p.bias
          ? Desc(kKind, kAlgorithm, any[kInput], any[kWeight], bias, any[kOutput], g.strides, g.dilations, g.before,
                 g.after)
          : Desc(kKind, kAlgorithm, any[kInput], any[kWeight], any[kOutput], g.strides, g.dilations, g.before, g.after);
  return {op, attributes, cpu::onednn_engine()};
}

/// Declines a reference implementation; else takes the primitive and its layouts.
template <class Primitive, class Chosen>
void take(Plan& plan, const Chosen& chosen, const memory::desc& input, const memory::desc& weight,
          const memory::desc& output) {
  if (std::strstr(chosen.impl_info_str(), "ref")) {
    plan.declined = "oneDNN has only its reference kernel for it";
    return;
  }
  plan.primitive = Primitive(chosen);
  plan.scratch = chosen.scratchpad_desc();
  plan.sides[kInput].wanted = input, plan.sides[kWeight].wanted = weight, plan.sides[kOutput].wanted = output;
}

Operand written(const ConvProblem& p) {
  return p.direction == Direction::kForward ? kOutput : p.direction == Direction::kDataBackward ? kInput : kWeight;
}

void make(Plan& plan, const ConvProblem& p) {
  plan.sides[kInput].given = image_desc(p, p.input, p.channels, true);
  plan.sides[kOutput].given = image_desc(p, p.output, p.out_channels, false);
  plan.sides[kWeight].given = weight_desc(p);
  memory::desc any[kOperands];
  // Images whose channels are innermost are computed with as they are; of others and of filters the library chooses.
  const bool last = p.channels_last() && p.channels > 1 && p.out_channels > 1;
  for (int i = 0; i < kOperands; ++i)
    any[i] = last && i != kWeight ? plan.sides[i].given : any_desc(plan.sides[i].given);
  if (p.bias) plan.bias = memory::desc({p.out_channels}, type_of(p.dtype), memory::dims{1});
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  const auto forward = forward_desc(p, any, plan.bias, attributes);
  const Geometry g = geometry_of(p);
  constexpr auto kAlgorithm = dnnl::algorithm::convolution_direct;
  if (p.direction == Direction::kForward) {
    take<dnnl::convolution_forward>(plan, forward, forward.src_desc(), forward.weights_desc(), forward.dst_desc());
  } else if (p.direction == Direction::kDataBackward) {
    const dnnl::convolution_backward_data::primitive_desc chosen(
        {kAlgorithm, any[kInput], any[kWeight], any[kOutput], g.strides, g.dilations, g.before, g.after}, attributes,
        cpu::onednn_engine(), forward);
    take<dnnl::convolution_backward_data>(plan, chosen, chosen.diff_src_desc(), chosen.weights_desc(),
                                          chosen.diff_dst_desc());
  } else {
    const dnnl::convolution_backward_weights::primitive_desc chosen(
        {kAlgorithm, any[kInput], any[kWeight], any[kOutput], g.strides, g.dilations, g.before, g.after}, attributes,
        cpu::onednn_engine(), forward);
    take<dnnl::convolution_backward_weights>(plan, chosen, chosen.src_desc(), chosen.diff_weights_desc(),
                                             chosen.diff_dst_desc());
  }
  if (!plan.declined.empty()) return;
  for (int i = 0; i < kOperands; ++i) {
    Side& side = plan.sides[i];
    side.copies = side.given != side.wanted;
    if (!side.copies) continue;
    const bool back = i == written(p);
    side.reorder = dnnl::reorder(
        {cpu::onednn_engine(), back ? side.wanted : side.given, cpu::onednn_engine(), back ? side.given : side.wanted});
  }
}

using Key = std::vector<int64_t>;

Plan& plan_of(const ConvProblem& p, int threads) {
  thread_local std::map<Key, std::unique_ptr<Plan> > cache;
  Key key = numbers_of(p);
  key.push_back(threads);
  if (const auto found = cache.find(key); found != cache.end()) return *found->second;
  if (cache.size() >= kMaxPrimitives) cache.clear();
  const OmpThreads guard(threads);
  auto made = std::make_unique<Plan>();
  try {
    make(*made, p);
  } catch (const dnnl::error& e) {
    made->declined = std::string("oneDNN declines: ") + e.what();
  }
  return *(cache[std::move(key)] = std::move(made));
}

}  // namespace

std::string vendor_why_not(const ConvProblem& p) {
  if (p.batch_invariant) return "oneDNN's order of additions may depend on the batch";
  if (p.dtype != DType::kFloat32 && p.dtype != DType::kBFloat16) return "takes float32 and bfloat16";
  if (p.dtype == DType::kBFloat16 && !cpu::onednn_has_bfloat16()) return "this CPU has no bfloat16 instructions";
  if (p.bias && p.direction != Direction::kForward) return "oneDNN adds no bias to a data gradient";
  if (std::string reason = vendors_why_not(p); !reason.empty()) return reason;
  if (passes_of(p) > kMostPasses) return core::text("more than {} remainders modulo the stride", kMostPasses);
  return sums_nothing(p) ? std::string() : plan_of(p, cpu::onednn_threads()).declined;
}

std::vector<core::Copy> vendor_copies(const ConvProblem& p) {
  std::vector<core::Copy> copies;
  const Plan& plan = plan_of(p, cpu::onednn_threads());
  for (int i = 0; i < kOperands; ++i)
    if (plan.sides[i].copies)
      copies.push_back({kNames[i], static_cast<int64_t>(plan.sides[i].wanted.get_size()),
                        "oneDNN's kernel has a layout of its own"});
  return copies;
}

void vendor_run(const ConvProblem& p) {
  const int threads = cpu::onednn_threads();
  Plan& plan = plan_of(p, threads);
  const OmpThreads guard(threads);
  dnnl::stream stream(cpu::onednn_engine());
  char* data[] = {p.input.data, p.weight.data, p.output.data};
  const int to = written(p);
  Tensor held[kOperands];
  memory given[kOperands], wanted[kOperands];
  for (int i = 0; i < kOperands; ++i) {
    Side& side = plan.sides[i];
    given[i] = memory(side.given, cpu::onednn_engine(), data[i]);
    wanted[i] = given[i];
    if (!side.copies) continue;
    held[i] = Tensor::empty({static_cast<int64_t>(side.wanted.get_size())}, uint8);
    wanted[i] = memory(side.wanted, cpu::onednn_engine(), held[i].raw());
    if (i != to) side.reorder.execute(stream, given[i], wanted[i]);
  }
  const Tensor scratch = Tensor::empty({static_cast<int64_t>(plan.scratch.get_size())}, uint8);
  const bool forward = p.direction == Direction::kForward;
  std::unordered_map<int, memory> arguments = {
      {to == kInput ? DNNL_ARG_DIFF_SRC : DNNL_ARG_SRC, wanted[kInput]},
      {to == kWeight ? DNNL_ARG_DIFF_WEIGHTS : DNNL_ARG_WEIGHTS, wanted[kWeight]},
      {forward ? DNNL_ARG_DST : DNNL_ARG_DIFF_DST, wanted[kOutput]},
      {DNNL_ARG_SCRATCHPAD, memory(plan.scratch, cpu::onednn_engine(), scratch.raw())}};
  if (forward && p.bias)
    arguments.insert({DNNL_ARG_BIAS, memory(plan.bias, cpu::onednn_engine(), const_cast<char*>(p.bias))});
  plan.primitive.execute(stream, arguments);
  if (plan.sides[to].copies) plan.sides[to].reorder.execute(stream, wanted[to], given[to]);
  stream.wait();
  mend(p);
}

}  // namespace tenor::conv

#endif
