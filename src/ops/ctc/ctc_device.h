// What the family's CUDA kernels are given: pointers, strides in elements, workspace.
#pragma once

#include "src/cuda/runtime.h"
#include "src/ops/ctc/ctc_scaled.h"

namespace tenor::ctc {

/// int32 or int64 numbers.
struct Integers {
  const void* data;
  int64_t stride;
  bool wide;
  TENOR_HOST_DEVICE int64_t at(int64_t element, int64_t row, int64_t i) const {
    const int64_t k = element + row + i * stride;
    return wide ? static_cast<const int64_t*>(data)[k] : static_cast<const int32_t*>(data)[k];
  }
};

/// How a sample's recursion ended.
enum class Outcome : int32_t {
  kFine,  ///< its posteriors are written
  kNan,   ///< no path spells the target
  kZero,  ///< likewise, and zero_infinity
};

/// What the class pass needs to know of a sample.
struct Found {
  int64_t frames, labels, offset;
  Outcome outcome;
  double scale_m, scale_e;  ///< 1 / likelihood
};

/// Ids of what the contents may be wrong with.
struct ContentOps {
  int targets, input_lengths, target_lengths, flat;
};

template <class T>
struct WalkArguments {
  using C = core::Compute<T>;
  const T* log_probs;
  int64_t frame_stride, sample_stride, class_stride;
  int64_t frames, samples, classes;  ///< T, N, C
  Integers targets, input_lengths, target_lengths;
  int64_t target_row, target_step;  ///< elements between samples: target_row padded, target_step a label flat; else 0
  int64_t most_labels;              ///< S of padded targets, all of flat ones
  bool flat;
  int64_t blank;
  bool zero_infinity;
  Scaled<C>* edges;    ///< [2, states]: where the halves met
  Scaled<C>* columns;  ///< [N, 2, 2, T]: the last label of a panel, where there are several
  double* losses;      ///< [N]
  // For the gradient:
  Scaled<C>* rows[2];  ///< forward, backward: [T, states] of a sample, samples one after another; blanks, then labels
  int64_t *order, *sorted;
  Found* found;
  cuda::ContentError* flag;
  ContentOps ops;
};

/// The class pass: gradient[t, n, c] = weight * (exp(log_probs) - posterior).
template <class T>
struct ClassArguments {
  using C = core::Compute<T>;
  const T* log_probs;
  T* gradient;
  int64_t frame_stride, sample_stride, class_stride;  ///< of log_probs
  int64_t to_frame_stride, to_sample_stride, to_class_stride;
  int64_t frames, samples, classes, blank;
  const Scaled<C>* rows[2];
  const int64_t *order, *sorted;
  const Found* found;
  const void* upstream;  ///< null: 1
  bool upstream_wide;    ///< float32 beside a 16-bit T
  int64_t upstream_stride;
  bool mean;
  Integers input_lengths, target_lengths;
  bool vectors;  ///< rows are aligned and their classes side by side
};

}  // namespace tenor::ctc
