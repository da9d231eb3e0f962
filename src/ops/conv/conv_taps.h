// Forward and data direction as one: every output of a pass is a sum over the same taps, each reading its source at a
// place that is a fixed offset from the output's.
//
// The data direction with stride s is prod(s) passes: inputs that leave the same remainder meet the same taps, and
// their neighbours in the pass read neighbours of the gradient.
#pragma once

#include <vector>

#include "src/ops/conv/conv_problem.h"

namespace tenor::conv {

struct Tap {
  int64_t offset[kSpatial];  ///< output q of a pass reads its source at q * scale + offset, where that exists
  int64_t weight;            ///< of the tap's filter element, in elements
};

/// Outputs q = 0..size-1 in each dim, which lie at q * step + base in the target.
struct Pass {
  int64_t size[kSpatial], scale[kSpatial], base[kSpatial], step[kSpatial];
  std::vector<Tap> taps;
  int64_t pixels() const { return size[0] * size[1] * size[2]; }
};

struct TapProblem {
  DType dtype;
  int64_t batch, groups, in, out;  ///< channels a group: of the source, of the target
  Image source, target;
  int64_t source_size[kSpatial];
  const char* weight;
  int64_t weight_in, weight_out, weight_group;  ///< strides: a channel of the source, of the target, a group
  const char* bias;
  int64_t bias_stride;
  std::vector<Pass> passes;
};

/// Of a forward or data direction, without passes.
TapProblem operands_of(const ConvProblem& p);
/// Of a forward or data direction.
TapProblem taps_of(const ConvProblem& p);
/// Passes beyond which a problem is not cut into them: each costs as much as thousands of products.
inline constexpr int64_t kMostPasses = 4096;
/// How many passes there are: of the data direction one a remainder modulo the strides.
int64_t passes_of(const ConvProblem& p);
/// The taps of the forward convolution, as a pass over its outputs: what the weight direction sums over.
Pass forward_pass(const ConvProblem& p);

}  // namespace tenor::conv
