// Connectionist temporal classification (Graves et al., ICML 2006): the negative log likelihood of a label sequence
// under per-frame class probabilities, summed over every alignment, its gradient, and decoders. A path gives each frame
// a class; merging repeats and then dropping blanks must leave the target. log_probs [T, N, C] are float64, float32,
// float16 or bfloat16 of any strides, 16-bit ones computed in float32. Probabilities are a mantissa with an exponent of
// its own, so nothing is clamped and no length underflows. A sample's result never depends on the others of its batch.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tenor/tensor.h"

namespace tenor {

/// One length a sample: an integer array [N] on log_probs' device, or numbers, which are checked at once on every
/// device.
struct CtcLengths {
  CtcLengths() = default;
  CtcLengths(Tensor lengths) : array(std::move(lengths)) {}
  CtcLengths(std::vector<int64_t> lengths) : numbers(std::move(lengths)) {}
  CtcLengths(std::initializer_list<int64_t> lengths) : numbers(lengths) {}

  Tensor array;
  std::optional<std::vector<int64_t>> numbers;
};

/// The loss, and where asked for the gradient of log_probs' shape for an upstream gradient of 1.
struct CtcLossResult {
  Tensor loss, gradient;
};

struct CtcLossOptions {
  int64_t blank = 0;
  std::string reduction =
      "mean";                  ///< "none" [N], "sum" [], "mean" []: each over max(target length, 1), then of the batch
  bool zero_infinity = false;  ///< 0 in place of the infinite loss of a target that cannot be spelled, and its gradient
  bool return_grad = false;    ///< forward and gradient in one pass
  CtcLossResult out = {};
};
/// -log of the probability that the first input_lengths[n] frames spell the first target_lengths[n] labels of
/// targets[n]; targets integers [N, S], or [sum of target_lengths] one after another. Entries past a sample's lengths
/// are not looked at. A target that cannot be spelled (more frames needed than there are) has loss inf, or 0 with
/// zero_infinity. No samples: 0. The dtype is log_probs'. Cost: reads T * N * (S + 1) entries of log_probs; with the
/// gradient all of them, once more.
/// @throws ValueError for blank outside of 0..C-1, a reduction of another name, a length outside of 0..T (0..S);
/// IndexError for a label outside of 0..C-1; ShapeError, also where flat targets are not as many as target_lengths add
/// up to; DTypeError; DeviceError. On CUDA what arrays hold raises the stream's flag instead, and a sample with a bad
/// entry has loss 0 and gradient 0.
CtcLossResult ctc_loss(const Tensor& log_probs, const Tensor& targets, const CtcLengths& input_lengths,
                       const CtcLengths& target_lengths, const CtcLossOptions& options = {});

struct CtcLossBackwardOptions {
  int64_t blank = 0;
  std::string reduction = "mean";
  bool zero_infinity = false;
  Tensor out = {};
};
/// grad_output (float32 or log_probs' dtype, [N] with reduction "none", else []) times d loss / d logits, where
/// log_probs = log_softmax(logits): exp(log_probs) - posterior, [T, N, C], as PyTorch has it. The posterior of class c
/// at frame t is the share of the target's alignments, by probability, that pass through c there. 0 past
/// input_lengths[n]; NaN in the frames of a target that cannot be spelled, or 0 with zero_infinity. @throws as ctc_loss
Tensor ctc_loss_backward(const Tensor& grad_output, const Tensor& log_probs, const Tensor& targets,
                         const CtcLengths& input_lengths, const CtcLengths& target_lengths,
                         const CtcLossBackwardOptions& options = {});

/// ids int64 [N, T], -1 past a sample's labels, and how many there are, int64 [N].
struct CtcDecodeResult {
  Tensor ids, lengths;
};

struct CtcGreedyDecodeOptions {
  CtcLengths input_lengths = {};  ///< absent: T for all
  int64_t blank = 0;
  CtcDecodeResult out = {};
};
/// The best class of each frame (the first NaN, else the lowest of equal ones), repeats merged, then blanks dropped.
/// @throws ValueError for a blank outside of 0..C-1, a length outside of 0..T (on CUDA the flag; such a sample is
/// empty); ShapeError, DTypeError, DeviceError
CtcDecodeResult ctc_greedy_decode(const Tensor& log_probs, const CtcGreedyDecodeOptions& options = {});

struct CtcBeamDecodeOptions {
  CtcLengths input_lengths = {};
  int64_t blank = 0;
  int64_t beam_width = 10;
  CtcDecodeResult out = {};
};
/// Prefix beam search (Hannun et al. 2014, arXiv 1408.2873): the label sequence of the largest probability, summed over
/// its alignments, among those whose every prefix stayed within the beam_width best of its frame. With a wide enough
/// beam that is the most probable sequence. Equal ones: that of the better ranked prefix, then of the more probable
/// class of the frame, then the lower. Computed in float64 with the same bits on every device. A class whose log
/// probability is NaN or +inf is not taken; a sample without any sequence of positive probability is empty.
/// @throws as ctc_greedy_decode; ValueError unless beam_width >= 1
CtcDecodeResult ctc_beam_decode(const Tensor& log_probs, const CtcBeamDecodeOptions& options = {});

}  // namespace tenor
