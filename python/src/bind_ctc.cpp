// CTC: ctc_loss, its gradient, and the decoders.
#include "call.h"
#include "src/core/text.h"
#include "tenor/ctc.h"

namespace tenor::python {
namespace {

/// An integer array, a sequence of ints, or None where the operator says so.
struct Lengths {
  nb::handle object;
};

CtcLengths lengths_of(Call& call, const char* name, Lengths x) {
  if (x.object.is_none()) return {};
  if (!is_array(x.object) && PySequence_Check(x.object.ptr())) {
    const Dims given = call.dims(name, DimList{x.object}, kAnyCount);
    return std::vector<int64_t>(given.begin(), given.end());
  }
  return call.array(name, Array{x.object});
}

/// ids and lengths.
template <class F>
nb::object run_decode(Call& call, nb::handle type, F&& fn) {
  return call.run_named(type, [&] {
    const CtcDecodeResult r = fn(CtcDecodeResult{call.out(0, 2), call.out(1, 2)});
    return std::vector<Tensor>{r.ids, r.lengths};
  });
}

}  // namespace
}  // namespace tenor::python

template <>
struct nanobind::detail::type_caster<tenor::python::Lengths> {
  NB_TYPE_CASTER(tenor::python::Lengths, const_name("ArrayLike | Sequence[int]"))
  bool from_python(handle src, uint8_t, cleanup_list*) noexcept {
    value.object = src;
    return true;
  }
};

namespace tenor::python {

void bind_ctc(nb::module_& m) {
  const nb::object both = named_tuple("CtcLossResult", {"loss", "gradient"});
  const nb::object decoded = named_tuple("CtcDecodeResult", {"ids", "lengths"});
  m.def(
      "ctc_loss",
      [both](Array log_probs, Array targets, Lengths input_lengths, Lengths target_lengths, Int blank,
             std::string reduction, bool zero_infinity, bool return_grad, Out out, Workspace workspace) {
        Call call("ctc_loss", out, workspace);
        const Tensor x = call.array("log_probs", log_probs), labels = call.array("targets", targets);
        const CtcLengths frames = lengths_of(call, "input_lengths", input_lengths),
                         counts = lengths_of(call, "target_lengths", target_lengths);
        CtcLossOptions o{blank, reduction, zero_infinity, return_grad, {}};
        o.out.loss = return_grad ? call.out(0, 2) : call.out();
        if (!return_grad) return call.run([&] { return ctc_loss(x, labels, frames, counts, o).loss; });
        o.out.gradient = call.out(1, 2);
        return call.run_named(both, [&] {
          const CtcLossResult r = ctc_loss(x, labels, frames, counts, o);
          return std::vector<Tensor>{r.loss, r.gradient};
        });
      },
      "log_probs"_a, "targets"_a, "input_lengths"_a, "target_lengths"_a, "blank"_a = 0, "reduction"_a = "mean",
      "zero_infinity"_a = false, "return_grad"_a = false, nb::kw_only(), "out"_a = nb::none(),
      "workspace"_a = nb::none(),
      "Connectionist temporal classification: -log of the probability that the frames of log_probs [T, N, C] spell the "
      "targets, over all\n"
      "alignments. targets: integers [N, S], or one after another [sum of target_lengths]; lengths: integer arrays [N] "
      "or sequences of ints.\n"
      "reduction 'mean' (each loss over max(target length, 1), then of the batch), 'sum' or 'none' [N]. A target that "
      "cannot be spelled has\n"
      "loss inf, or 0 with zero_infinity. return_grad=True: (loss, gradient) in one pass, as ctc_loss_backward for an "
      "upstream of 1.\n"
      "Source: Graves et al., ICML 2006. ValueError for a blank outside 0..C-1, another reduction, a length outside "
      "0..T (0..S); IndexError\n"
      "for a label outside 0..C-1; ShapeError, DTypeError, DeviceError. On CUDA a bad entry of an array raises the "
      "stream's flag, and its\n"
      "sample has loss 0.");
  m.def(
      "ctc_loss_backward",
      [](Array grad_output, Array log_probs, Array targets, Lengths input_lengths, Lengths target_lengths, Int blank,
         std::string reduction, bool zero_infinity, Out out, Workspace workspace) {
        Call call("ctc_loss_backward", out, workspace);
        const Tensor up = call.array("grad_output", grad_output), x = call.array("log_probs", log_probs),
                     labels = call.array("targets", targets);
        const CtcLengths frames = lengths_of(call, "input_lengths", input_lengths),
                         counts = lengths_of(call, "target_lengths", target_lengths);
        const CtcLossBackwardOptions o{blank, reduction, zero_infinity, call.out()};
        return call.run([&] { return ctc_loss_backward(up, x, labels, frames, counts, o); });
      },
      "grad_output"_a, "log_probs"_a, "targets"_a, "input_lengths"_a, "target_lengths"_a, "blank"_a = 0,
      "reduction"_a = "mean", "zero_infinity"_a = false, nb::kw_only(), "out"_a = nb::none(),
      "workspace"_a = nb::none(),
      "grad_output ([N] with reduction='none', else a scalar; float32 or log_probs' dtype) times exp(log_probs) - "
      "posterior [T, N, C]: the\n"
      "gradient with respect to the logits of a log_softmax, as PyTorch gives it. 0 past input_lengths; NaN in the "
      "frames of a target that\n"
      "cannot be spelled, or 0 with zero_infinity. Errors as ctc_loss.");
  m.def(
      "ctc_greedy_decode",
      [decoded](Array log_probs, Lengths input_lengths, Int blank, Out out, Workspace workspace) {
        Call call("ctc_greedy_decode", out, workspace);
        const Tensor x = call.array("log_probs", log_probs);
        const CtcLengths frames = lengths_of(call, "input_lengths", input_lengths);
        return run_decode(call, decoded, [&](const CtcDecodeResult& o) {
          return ctc_greedy_decode(x, {frames, blank, o});
        });
      },
      "log_probs"_a, "input_lengths"_a = nb::none(), "blank"_a = 0, nb::kw_only(), "out"_a = nb::none(),
      "workspace"_a = nb::none(),
      "The best class of each frame of log_probs [T, N, C], repeats merged, then blanks dropped: (ids int64 [N, T] "
      "padded with -1, lengths\n"
      "int64 [N]). The first NaN, else the lowest of equal classes. ValueError for a blank outside 0..C-1, a length "
      "outside 0..T.");
  m.def(
      "ctc_beam_decode",
      [decoded](Array log_probs, Lengths input_lengths, Int blank, Int beam_width, Out out, Workspace workspace) {
        Call call("ctc_beam_decode", out, workspace);
        const Tensor x = call.array("log_probs", log_probs);
        const CtcLengths frames = lengths_of(call, "input_lengths", input_lengths);
        return run_decode(call, decoded, [&](const CtcDecodeResult& o) {
          return ctc_beam_decode(x, {frames, blank, beam_width, o});
        });
      },
      "log_probs"_a, "input_lengths"_a = nb::none(), "blank"_a = 0, "beam_width"_a = 10, nb::kw_only(),
      "out"_a = nb::none(), "workspace"_a = nb::none(),
      "Prefix beam search: (ids int64 [N, T] padded with -1, lengths int64 [N]) of the label sequence with the largest "
      "probability, summed\n"
      "over its alignments, among those whose every prefix is one of its frame's beam_width best. Equal ones: the "
      "better ranked prefix, then\n"
      "the more probable class, then the lower. Classes of NaN and +inf are not taken. Source: Hannun et al., arXiv "
      "1408.2873. ValueError\n"
      "unless beam_width >= 1, for a blank outside 0..C-1, a length outside 0..T.");
}

}  // namespace tenor::python
