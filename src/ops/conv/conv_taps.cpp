#include "src/ops/conv/conv_taps.h"

#include <numeric>

#include "src/core/step.h"

namespace tenor::conv {
namespace {

/// Calls fn(k) for every tap of the filter, row-major.
template <class F>
void for_each_tap(const ConvProblem& p, F&& fn) {
  for (int64_t d = 0; d < p.window[0].kernel; ++d)
    for (int64_t h = 0; h < p.window[1].kernel; ++h)
      for (int64_t w = 0; w < p.window[2].kernel; ++w) {
        const int64_t k[] = {d, h, w};
        fn(k);
      }
}

int64_t weight_offset(const Filter& weight, const int64_t* k) {
  return k[0] * weight.spatial[0] + k[1] * weight.spatial[1] + k[2] * weight.spatial[2];
}

/// A tap of one dim, and its offset in a pass.
struct DimTap {
  int64_t k, offset;
};

/// The taps of one dim that meet the inputs of that remainder; `size` of them lie in the pass.
std::vector<DimTap> backward_taps(const core::WindowDim& w, int64_t remainder, int64_t size) {
  std::vector<DimTap> taps;
  const int64_t apart = w.stride / std::gcd(w.stride, w.dilation);
  int64_t k = 0;
  while (k < std::min(apart, w.kernel) && (remainder + w.before - k * w.dilation) % w.stride != 0) ++k;
  if (k == std::min(apart, w.kernel)) return taps;
  for (; k < w.kernel; k += apart) {
    const int64_t offset = (remainder + w.before - k * w.dilation) / w.stride;
    // No output of the pass lies that far from an input: the tap would only ever meet padding.
    if (offset < w.output && offset + size > 0) taps.push_back({k, offset});
  }
  return taps;
}

/// The inputs that leave remainder[d] by the stride in each dim.
Pass backward_pass(const ConvProblem& p, const int64_t* remainder) {
  Pass pass{};
  std::vector<DimTap> taps[kSpatial];
  for (int i = 0; i < kSpatial; ++i) {
    const core::WindowDim& w = p.window[i];
    pass.size[i] = (w.input - remainder[i] + w.stride - 1) / w.stride;
    pass.scale[i] = 1, pass.base[i] = remainder[i], pass.step[i] = w.stride;
    taps[i] = backward_taps(w, remainder[i], pass.size[i]);
  }
  for (const DimTap& d : taps[0])
    for (const DimTap& h : taps[1])
      for (const DimTap& w : taps[2]) {
        const int64_t k[] = {d.k, h.k, w.k};
        pass.taps.push_back({{d.offset, h.offset, w.offset}, weight_offset(p.weight, k)});
      }
  return pass;
}

int64_t remainders(const core::WindowDim& w) { return std::min(w.stride, w.input); }

}  // namespace

Pass forward_pass(const ConvProblem& p) {
  Pass pass{};
  for (int i = 0; i < kSpatial; ++i)
    pass.size[i] = p.window[i].output, pass.scale[i] = p.window[i].stride, pass.step[i] = 1;
  for_each_tap(p, [&](const int64_t* k) {
    Tap tap{{}, weight_offset(p.weight, k)};
    for (int i = 0; i < kSpatial; ++i) tap.offset[i] = p.window[i].position(0, k[i]);
    pass.taps.push_back(tap);
  });
  return pass;
}

TapProblem operands_of(const ConvProblem& p) {
  const bool forward = p.direction == Direction::kForward;
  TapProblem t{};
  t.dtype = p.dtype, t.batch = p.batch, t.groups = p.groups;
  t.in = forward ? p.group_channels() : p.group_outputs();
  t.out = forward ? p.group_outputs() : p.group_channels();
  t.source = read_image(p), t.target = written_image(p);
  t.weight = p.weight.data, t.weight_group = p.weight.out * p.group_outputs();
  t.weight_in = forward ? p.weight.in : p.weight.out;
  t.weight_out = forward ? p.weight.out : p.weight.in;
  t.bias = p.bias, t.bias_stride = p.bias_stride;
  for (int i = 0; i < kSpatial; ++i) t.source_size[i] = forward ? p.window[i].input : p.window[i].output;
  return t;
}

int64_t passes_of(const ConvProblem& p) {
  if (p.direction == Direction::kForward) return 1;
  int64_t passes = 1;
  for (const core::WindowDim& w : p.window) passes = core::count_product(passes, remainders(w));
  return passes;
}

TapProblem taps_of(const ConvProblem& p) {
  TapProblem t = operands_of(p);
  if (p.direction == Direction::kForward) {
    t.passes.push_back(forward_pass(p));
    return t;
  }
  int64_t r[kSpatial];
  for (r[0] = 0; r[0] < remainders(p.window[0]); ++r[0])
    for (r[1] = 0; r[1] < remainders(p.window[1]); ++r[1])
      for (r[2] = 0; r[2] < remainders(p.window[2]); ++r[2]) t.passes.push_back(backward_pass(p, r));
  return t;
}

}  // namespace tenor::conv
