// The contract of the CTC decoders. Kernels: ctc_decode_cpu.cpp, ctc_decode_cuda.cu.
#include <algorithm>

#include "src/core/backend.h"
#include "src/core/output.h"
#include "src/core/registry.h"
#include "src/core/step.h"
#include "src/ops/ctc/ctc_checks.h"
#include "src/ops/ctc/ctc_cuda.h"
#include "src/ops/ctc/ctc_kernels.h"
#include "tenor/reduce.h"

namespace tenor {
namespace {

using core::fail;
using core::OpClass;
using core::Output;

const core::OpRegistration kOps({
    {"ctc_greedy_decode", "ctc", OpClass::kReduction,
     "log_probs[T,N,C] -> ids[N,T], lengths[N]: each frame's best class, repeats merged, blanks dropped"},
    {"ctc_beam_decode", "ctc", OpClass::kReduction,
     "log_probs[T,N,C] -> ids[N,T], lengths[N]: the most probable labels by prefix beam search"},
});

/// A beam no wider than needed: one that holds every sequence of at most `frames` labels drops nothing.
int64_t useful_width(int64_t width, int64_t frames, int64_t classes) {
  int64_t prefixes = 1, longest = 1;
  for (int64_t t = 0; t < frames && prefixes < width; ++t) {
    longest = core::count_product(longest, classes - 1);
    if (longest == 0) break;
    prefixes = core::count_sum(prefixes, longest);
  }
  constexpr int64_t kMost = int64_t{1} << 28;  // wider beams hold every prefix that memory does
  return std::min({width, prefixes, kMost});
}

struct Decode {
  const char* op;
  const Tensor& log_probs;
  const CtcLengths& input_lengths;
  int64_t blank, width;  ///< width 0: greedy
  CtcDecodeResult out;
};

bool has_lengths(const Decode& d) { return d.input_lengths.array.defined() || d.input_lengths.numbers; }

void run(const Decode& d, const std::vector<int64_t>& frames, const Tensor& ids, const Tensor& lengths) {
  const int64_t width = d.width == 0 ? 0 : useful_width(d.width, d.log_probs.shape(0), d.log_probs.shape(2));
  if constexpr (core::kHasCuda) {
    if (core::on_cuda(d.log_probs)) {
      const ctc::CudaDecode problem{d.op, d.log_probs, d.input_lengths, d.blank, width, ids, lengths};
      return width == 0 ? ctc::greedy_cuda(problem) : ctc::beam_cuda(problem);
    }
  }
  if (width == 0)
    cpu::ctc_collapse(argmax(d.log_probs, {.dim = 2}), frames, d.blank, ids, lengths);
  else
    cpu::ctc_beam(d.log_probs, frames, d.blank, width, ids, lengths);
}

CtcDecodeResult decode(const Decode& d) {
  ctc::check_log_probs(d.op, d.log_probs, d.blank);
  const int64_t T = d.log_probs.shape(0), N = d.log_probs.shape(1);
  if (has_lengths(d)) ctc::check_lengths(d.op, "input_lengths", d.input_lengths, d.log_probs);
  if (d.out.ids.defined() != d.out.lengths.defined()) fail<ValueError>("{}: out= needs both ids and lengths", d.op);
  core::check_distinct_outputs(d.op, {&d.out.ids, &d.out.lengths});
  const std::initializer_list<const Tensor*> inputs = {&d.log_probs, &d.input_lengths.array};
  Output ids(d.op, d.out.ids, {N, T}, int64, d.log_probs, inputs, {.argument = "out.ids", .cuda = core::kHasCuda});
  Output lengths(d.op, d.out.lengths, {N}, int64, d.log_probs, inputs,
                 {.argument = "out.lengths", .cuda = core::kHasCuda});
  core::StepScope step([&] {
    return core::Step{d.op,
                      OpClass::kReduction,
                      {d.log_probs, d.input_lengths.array},
                      {ids.target(), lengths.target()},
                      d.log_probs.numel()}
        .with(core::recipe([op = d.op, numbers = d.input_lengths.numbers, blank = d.blank, width = d.width](
                               const auto& in, const auto& outs) {
          const CtcLengths frames = numbers ? CtcLengths(*numbers) : CtcLengths(in[1]);
          decode({op, in[0], frames, blank, width, {outs[0], outs[1]}});
        }));
  });
  std::vector<int64_t> frames(static_cast<size_t>(N), T);
  if (d.input_lengths.numbers) frames = ctc::read_lengths(d.op, "input_lengths", d.input_lengths, T);
  if (step.shape_only(ids.target())) return {ids.target(), lengths.target()};
  if (has_lengths(d) && ctc::on_host(d.input_lengths))
    frames = ctc::read_lengths(d.op, "input_lengths", d.input_lengths, T);
  if (N > 0) run(d, frames, ids.target(), lengths.target());
  return {ids.finish(), lengths.finish()};
}

}  // namespace

CtcDecodeResult ctc_greedy_decode(const Tensor& log_probs, const CtcGreedyDecodeOptions& o) {
  return decode({"ctc_greedy_decode", log_probs, o.input_lengths, o.blank, 0, o.out});
}

CtcDecodeResult ctc_beam_decode(const Tensor& log_probs, const CtcBeamDecodeOptions& o) {
  if (o.beam_width < 1) fail<ValueError>("ctc_beam_decode: beam_width must be >= 1, got {}", o.beam_width);
  return decode({"ctc_beam_decode", log_probs, o.input_lengths, o.blank, o.beam_width, o.out});
}

}  // namespace tenor
