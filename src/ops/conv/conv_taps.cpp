#include "src/ops/conv/conv_taps.h"

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

/// The inputs that leave remainder[d] by the stride in each dim.
Pass backward_pass(const ConvProblem& p, const int64_t* remainder) {
  Pass pass{};
  for (int i = 0; i < kSpatial; ++i) {
    const core::WindowDim& w = p.window[i];
    pass.size[i] = (w.input - remainder[i] + w.stride - 1) / w.stride;
    pass.scale[i] = 1, pass.base[i] = remainder[i], pass.step[i] = w.stride;
  }
  for_each_tap(p, [&](const int64_t* k) {
    Tap tap{{}, weight_offset(p.weight, k)};
    for (int i = 0; i < kSpatial; ++i) {
      const core::WindowDim& w = p.window[i];
      const int64_t reach = remainder[i] + w.before - k[i] * w.dilation;
      if (reach % w.stride != 0) return;
      tap.offset[i] = reach / w.stride;
      // No output of the pass lies that far from an input: the tap would only ever meet padding.
      if (tap.offset[i] >= w.output || tap.offset[i] + pass.size[i] <= 0) return;
    }
    pass.taps.push_back(tap);
  });
  return pass;
}

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

TapProblem taps_of(const ConvProblem& p) {
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
  if (forward) {
    t.passes.push_back(forward_pass(p));
    return t;
  }
  int64_t r[kSpatial];
  const auto remainders = [&](int i) { return std::min(p.window[i].stride, p.window[i].input); };
  for (r[0] = 0; r[0] < remainders(0); ++r[0])
    for (r[1] = 0; r[1] < remainders(1); ++r[1])
      for (r[2] = 0; r[2] < remainders(2); ++r[2]) t.passes.push_back(backward_pass(p, r));
  return t;
}

}  // namespace tenor::conv
