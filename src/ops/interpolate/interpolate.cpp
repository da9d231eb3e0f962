// Contract of interpolate and its gradient.
#include "tenor/interpolate.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "src/core/backend.h"
#include "src/core/check.h"
#include "src/core/output.h"
#include "src/core/registry.h"
#include "src/core/step.h"
#include "src/ops/interpolate/interpolate_cuda.h"
#include "src/ops/interpolate/resample_kernels.h"

namespace tenor {
namespace {

using core::fail;
using core::OpClass;
using core::Output;
using core::ResampleKind;
using core::Step;
using core::StepScope;

const core::OpRegistration kOps({
    {"interpolate", "interpolate", OpClass::kContraction,
     "x[N, C, *S] -> [N, C, *size]: S resampled dim by dim, by a mode's kernel"},
    {"interpolate_backward", "interpolate", OpClass::kContraction,
     "grad_output[N, C, *size] -> [N, C, *S]: each input sums over the outputs that read it"},
});

/// What the modes can do.
struct Mode {
  const char* name;
  ResampleKind kind;
  int least_dims, most_dims;  // spatial
  bool aligns, antialiases;
};
constexpr Mode kModes[] = {
    {"nearest", ResampleKind::kNearest, 1, 3, false, false},
    {"nearest-exact", ResampleKind::kNearestExact, 1, 3, false, false},
    {"linear", ResampleKind::kLinear, 1, 1, true, false},
    {"bilinear", ResampleKind::kLinear, 2, 2, true, true},
    {"bicubic", ResampleKind::kCubic, 2, 2, true, true},
    {"trilinear", ResampleKind::kLinear, 3, 3, true, false},
    {"area", ResampleKind::kArea, 1, 3, false, false},
    {"lanczos3", ResampleKind::kLanczos, 2, 2, true, true},
};

const Mode& find_mode(const char* op, const InterpolateOptions& o) {
  for (const Mode& m : kModes) {
    if (o.mode != m.name) continue;
    if (o.align_corners && !m.aligns)
      fail<ValueError>(
          "{}: align_corners has no meaning for mode '{}'; linear, bilinear, bicubic, trilinear and lanczos3 have it",
          op, o.mode);
    if (o.antialias && !m.antialiases)
      fail<ValueError>("{}: antialias needs mode 'bilinear', 'bicubic' or 'lanczos3', got '{}'", op, o.mode);
    return m;
  }
  fail<ValueError>(
      "{}: mode must be 'nearest', 'nearest-exact', 'linear', 'bilinear', 'bicubic', 'trilinear', 'area' or "
      "'lanczos3', got '{}'",
      op, o.mode);
}

/// The image's shape; `argument` is what has it.
void check_image(const char* op, const char* argument, const Dims& shape, const Mode& mode) {
  const int dims = static_cast<int>(shape.size()) - 2;
  if (dims < 1 || dims > 3) fail<ShapeError>("{}: {} must be [N, C, *S] with 3 to 5 dims, got {}", op, argument, shape);
  if (dims < mode.least_dims || dims > mode.most_dims)
    fail<ShapeError>("{}: mode '{}' needs {} with {} dims, got {}", op, mode.name, argument, mode.least_dims + 2,
                     shape);
  for (size_t d = 0; d < shape.size(); ++d)
    if (shape[d] < (d < 2 ? 0 : 1))
      fail<ShapeError>("{}: {} must be an image that is not empty, got {}", op, argument, shape);
}

void check_count(const char* op, const char* argument, size_t count, size_t dims) {
  if (count != dims)
    fail<ValueError>("{}: {} must have an entry for each of {} spatial dims, got {}", op, argument, dims, count);
}

/// floor(in * factor). @throws ValueError
int64_t scaled_size(const char* op, int64_t in, double factor) {
  if (!(std::isfinite(factor) && factor > 0))
    fail<ValueError>("{}: scale_factor must be finite and > 0, got {}", op, factor);
  const double size = std::floor(static_cast<double>(in) * factor);
  if (size < 1) fail<ValueError>("{}: scale_factor {} makes nothing of a dim of size {}", op, factor, in);
  if (size >= 0x1p62) fail<ValueError>("{}: scale_factor {} of a dim of size {} is beyond 64 bits", op, factor, in);
  return static_cast<int64_t>(size);
}

/// The axes of depth, height and width; dims that the image has not are identities.
std::array<core::ResampleAxis, 3> axes_of(const char* op, const char* argument, const Dims& shape,
                                          const InterpolateOptions& o) {
  const Mode& mode = find_mode(op, o);
  check_image(op, argument, shape, mode);
  if (o.size.has_value() == o.scale_factor.has_value())
    fail<ValueError>("{}: exactly one of size and scale_factor must be given, got {}", op, o.size ? "both" : "neither");
  const size_t dims = shape.size() - 2;
  if (o.size)
    check_count(op, "size", o.size->size(), dims);
  else
    check_count(op, "scale_factor", o.scale_factor->size(), dims);
  std::array<core::ResampleAxis, 3> axes;
  for (size_t d = 0; d < dims; ++d) {
    core::ResampleAxis& a = axes[3 - dims + d];
    a = {shape[d + 2], 1, mode.kind, o.align_corners, o.antialias, 0};
    if (o.size) {
      a.out = (*o.size)[d];
      if (a.out < 1) fail<ValueError>("{}: size must be at least 1 in every dim, got {}", op, *o.size);
    } else {
      a.out = scaled_size(op, a.in, (*o.scale_factor)[d]);
      if (mode.kind != ResampleKind::kArea) a.scale = (*o.scale_factor)[d];
    }
  }
  // Sampled where it lies, an image is itself in every mode, and an infinite pixel stays with itself.
  const auto kept = [](const core::ResampleAxis& a) { return a.out == a.in && (a.scale == 0 || a.scale == 1); };
  if (std::all_of(axes.begin(), axes.end(), kept))
    for (core::ResampleAxis& a : axes) a = {a.in, a.out, ResampleKind::kNearest, false, false, 0};
  return axes;
}

Dims result_shape(const Dims& shape, const std::array<core::ResampleAxis, 3>& axes) {
  Dims out = shape;
  for (size_t d = 2; d < shape.size(); ++d) out[d] = axes[3 - shape.size() + d].out;
  return out;
}

/// As [N, C, D, H, W].
Tensor as_volume(const Tensor& x) {
  Dims shape{x.shape(0), x.shape(1)}, strides{x.stride(0), x.stride(1)};
  for (int d = x.ndim(); d < 5; ++d) shape.push_back(1), strides.push_back(0);
  for (int d = 2; d < x.ndim(); ++d) shape.push_back(x.shape(d)), strides.push_back(x.shape(d) == 1 ? 0 : x.stride(d));
  return x.with_layout(shape, strides, x.offset());
}

/// Multiply-adds of an output (forward) element, as the weights' tables hold them at most.
int64_t taps_of(const std::array<core::ResampleAxis, 3>& axes) {
  int64_t taps = 1;
  for (const core::ResampleAxis& a : axes) taps = core::count_product(taps, core::resample_width(a, false));
  return taps;
}

void run(const Tensor& from, const Tensor& to, const std::array<core::ResampleAxis, 3>& axes, bool transposed) {
  ResampleProblem problem{as_volume(from), as_volume(to), {axes[0], axes[1], axes[2]}, transposed};
  if constexpr (core::kHasCuda) {
    if (core::on_cuda(from)) return cuda::resample(problem);
  }
  cpu::resample(problem);
}

}  // namespace

Tensor interpolate(const Tensor& x, const InterpolateOptions& o) {
  constexpr const char* kOp = "interpolate";
  core::check_given(kOp, {"x", x});
  const auto axes = axes_of(kOp, "x", x.shape(), o);
  const bool nearest = o.mode == "nearest" || o.mode == "nearest-exact";
  if (!(nearest && x.dtype() == uint8)) core::check_float(kOp, {"x", x});
  Output out(kOp, o.out, result_shape(x.shape(), axes), x.dtype(), x, {&x}, {.cuda = core::kHasCuda});
  StepScope step([&] {
    const int64_t flops = nearest ? 0 : core::count_product(2 * taps_of(axes), product(out.target().shape()));
    return Step{kOp, nearest ? OpClass::kIndex : OpClass::kContraction, {x}, {out.target()}, flops}.with(
        core::recipe([o](const auto& in, const auto& outs) {
          InterpolateOptions again = o;
          again.out = outs[0];
          interpolate(in[0], again);
        }));
  });
  if (step.shape_only(out.target())) return out.target();
  run(x, out.target(), axes, false);
  return out.finish();
}

Tensor interpolate_backward(const Tensor& grad_output, const Dims& input_shape, const InterpolateOptions& o) {
  constexpr const char* kOp = "interpolate_backward";
  core::check_float(kOp, {"grad_output", grad_output});
  const auto axes = axes_of(kOp, "input_shape", input_shape, o);
  core::check_shape(kOp, {"grad_output", grad_output}, result_shape(input_shape, axes));
  Output out(kOp, o.out, input_shape, grad_output.dtype(), grad_output, {&grad_output}, {.cuda = core::kHasCuda});
  StepScope step([&] {
    const int64_t flops = core::count_product(2 * taps_of(axes), grad_output.numel());
    return Step{kOp, OpClass::kContraction, {grad_output}, {out.target()}, flops}.with(
        core::recipe([input_shape, o](const auto& in, const auto& outs) {
          InterpolateOptions again = o;
          again.out = outs[0];
          interpolate_backward(in[0], input_shape, again);
        }));
  });
  if (step.shape_only(out.target())) return out.target();
  run(grad_output, out.target(), axes, true);
  return out.finish();
}

}  // namespace tenor
