// The family's CPU kernels, behind plain functions. Arguments are checked.
#pragma once

#include <vector>

#include "tenor/tensor.h"

namespace tenor::cpu {

/// One sample: its column of log_probs, its lengths and its labels.
struct CtcSample {
  int64_t n, frames, labels;
  const int64_t* label;
};

struct CtcProblem {
  Tensor log_probs;  ///< [T, N, C], any strides
  int64_t blank;
  bool zero_infinity;
  std::vector<CtcSample> samples;
};

/// The N losses.
void ctc_losses(const CtcProblem& problem, double* losses);
/// The same, and gradient [T, N, C], any strides: weights[n] * (exp(log_probs) - posterior).
void ctc_gradient(const CtcProblem& problem, const double* weights, const Tensor& gradient, double* losses);

/// best int64 [T, N] as it comes from argmax; frames [N]. ids [N, T] and lengths [N] of any strides.
void ctc_collapse(const Tensor& best, const std::vector<int64_t>& frames, int64_t blank, const Tensor& ids,
                  const Tensor& lengths);

/// Prefix beam search over every sample.
void ctc_beam(const Tensor& log_probs, const std::vector<int64_t>& frames, int64_t blank, int64_t width,
              const Tensor& ids, const Tensor& lengths);

// The vector loops, one set an instruction set. C is float or double.

/// Forward (or, from the other end, backward) probabilities of one frame, mantissas and exponents apart. Each array has
/// `kCtcPad` elements before its first, zeros, and runs to a multiple of kCtcPad past its last.
template <class C>
struct CtcRow {
  C *blank_m, *blank_e, *label_m, *label_e;
};
inline constexpr int64_t kCtcPad = 16;
/// Elements of each array of a row with S labels.
inline int64_t ctc_row_length(int64_t labels) { return kCtcPad + (labels / kCtcPad + 1) * kCtcPad; }

template <class C>
struct CtcVectorLoops {
  /// state becomes the next frame's, p being its log probabilities: p[0] the blank's, p[1 + i] label i's. skips[i] is 1
  /// where label i - 1 may be followed by label i, else 0. Where `reach` is given, the sums before p joined.
  void (*step)(const CtcRow<C>& state, const C* p, const C* skips, int64_t labels, const CtcRow<C>* reach);
  /// Mantissas to [1, 2).
  void (*normalize)(const CtcRow<C>& state, int64_t labels);
  /// Posteriors of a frame from both directions' rows, backward's counting from the other end: posts[i] of label i;
  /// returns the blanks' sum. 1 / likelihood = scale_m * 2^scale_e.
  C (*posteriors)(const CtcRow<C>& forward, const CtcRow<C>& backward, int64_t labels, C scale_m, C scale_e, C* posts);
  /// out = exp(x), dense.
  void (*exponentials)(const void* x, DType dtype, int64_t n, C* out);
  /// out = x * weight, dense, rounded to the dtype.
  void (*weigh)(const C* x, C weight, int64_t n, DType dtype, void* out);
};
template <class C>
const CtcVectorLoops<C>& ctc_loops();

}  // namespace tenor::cpu
