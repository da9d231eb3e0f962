// pad: constant, reflect, replicate, circular.
#include <algorithm>
#include <vector>

#include "src/core/backend.h"
#include "src/core/check.h"
#include "src/core/output.h"
#include "src/core/registry.h"
#include "src/core/scalar_value.h"
#include "src/core/step.h"
#include "src/cpu/parallel.h"
#include "src/cuda/remap.h"
#include "src/ops/index/index_check.h"
#include "src/ops/index/index_rows.h"
#include "tenor/create.h"

namespace tenor {
namespace {

using core::fail;
using core::OpClass;

const core::OpRegistration kOps({
    {"pad", "create", OpClass::kIndex,
     "x [..., n, ...] -> [..., before + n + after, ...]: constant, reflected, replicated or circular borders"},
});

enum class Mode : uint8_t { kConstant, kReflect, kReplicate, kCircular };

Mode mode_of(std::string_view mode) {
  if (mode == "constant") return Mode::kConstant;
  if (mode == "reflect") return Mode::kReflect;
  if (mode == "replicate") return Mode::kReplicate;
  if (mode == "circular") return Mode::kCircular;
  fail<ValueError>("pad: mode must be 'constant', 'reflect', 'replicate' or 'circular', got '{}'", std::string(mode));
}

/// `length` places of the result along one dim, from `start` on: they come from source, source + step, ... of x, or are
/// the value.
struct Run {
  int64_t start, length, source, step;
  bool is_value = false;
};

/// The runs of a dim of size n with borders a and b.
std::vector<Run> runs_of(Mode mode, int64_t n, int64_t a, int64_t b) {
  std::vector<Run> runs;
  const int64_t front = std::max<int64_t>(a, 0), back = std::max<int64_t>(b, 0), cut = std::max<int64_t>(-a, 0);
  const int64_t middle = std::max<int64_t>(n + std::min<int64_t>(a, 0) + std::min<int64_t>(b, 0), 0);
  const auto border = [&](int64_t start, int64_t length, int64_t reflected, int64_t edge, int64_t around) {
    if (length == 0) return;
    if (mode == Mode::kConstant) runs.push_back({start, length, 0, 0, true});
    if (mode == Mode::kReflect) runs.push_back({start, length, reflected, -1});
    if (mode == Mode::kReplicate) runs.push_back({start, length, edge, 0});
    if (mode == Mode::kCircular) runs.push_back({start, length, around, 1});
  };
  border(0, front, front, 0, n - front);
  if (middle > 0) runs.push_back({front, middle, cut, 1});
  border(front + middle, back, n - 2, n - 1, 0);
  return runs;
}

struct Pad {
  Tensor x, target, value;
  std::vector<std::vector<Run>> runs;  // by dim
};

/// Fills the part of the target that runs of the dims before `dim` have chosen; the later dims are whole as yet.
void fill_boxes(const Pad& p, size_t dim, Dims sizes, Dims steps, int64_t source, int64_t place, bool is_value) {
  if (is_value || dim == p.runs.size()) {
    const auto item = static_cast<int64_t>(item_size(p.x.dtype()));
    if (is_value) steps = Dims(sizes.size(), 0);
    const char* from = is_value ? p.value.data<char>() : p.x.data<char>() + source * item;
    return index::copy_strided(from, steps, p.target.data<char>() + place * item, p.target.strides(), sizes,
                               p.x.dtype());
  }
  for (const Run& run : p.runs[dim]) {
    sizes[dim] = run.length;
    steps[dim] = run.step * p.x.strides()[dim];
    fill_boxes(p, dim + 1, sizes, steps, source + run.source * p.x.strides()[dim],
               place + run.start * p.target.strides()[dim], run.is_value);
  }
}

/// Fills the target: where leading dims without borders hold enough positions, one thread takes all boxes of a
/// position.
void fill_target(const Pad& p) {
  const Dims& shape = p.target.shape();
  size_t lead = 0;
  int64_t positions = 1;
  const auto is_whole = [&](size_t d) {
    return p.runs[d].size() == 1 && !p.runs[d][0].is_value && p.runs[d][0].length == p.x.shape()[d];
  };
  while (lead < shape.size() && is_whole(lead)) positions *= shape[lead++];
  if (positions < 2 * num_threads()) return fill_boxes(p, 0, shape, Dims(shape.size(), 0), 0, 0, false);
  Dims sizes = shape;
  std::fill_n(sizes.begin(), lead, 1);
  const int64_t bytes = 2 * product(sizes) * static_cast<int64_t>(item_size(p.x.dtype()));
  cpu::parallel_for(positions, cpu::grain_of(bytes), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      int64_t rest = i, source = 0, place = 0;
      for (size_t d = lead; d-- > 0; rest /= shape[d]) {
        source += rest % shape[d] * p.x.strides()[d];
        place += rest % shape[d] * p.target.strides()[d];
      }
      fill_boxes(p, lead, sizes, Dims(shape.size(), 0), source, place, false);
    }
  });
}

/// The rule of a dim of size n with `before` in front and `after` behind, on CUDA.
cuda::CoordinateRule rule_of(Mode mode, int64_t n, int64_t before, int64_t after) {
  using Rule = cuda::CoordinateRule;
  if (before <= 0 && after <= 0) return {Rule::kForward, -before, n};
  switch (mode) {
    case Mode::kReflect:
      return {Rule::kReflect, before, n};
    case Mode::kReplicate:
      return {Rule::kClamp, before, n};
    case Mode::kCircular:
      return {Rule::kWrap, (n - before % n) % n, n};
    default:
      return {Rule::kInside, before, n};
  }
}

void check_border(Mode mode, const char* name, int64_t border, int64_t n, int dim) {
  if (border <= 0) return;
  if (mode == Mode::kReflect && border >= n)
    fail<ShapeError>("pad: mode 'reflect' needs a {} border below the size {} of dim {}, got {}", name, n, dim, border);
  if (mode == Mode::kCircular && border > n)
    fail<ShapeError>("pad: mode 'circular' needs a {} border of at most the size {} of dim {}, got {}", name, n, dim,
                     border);
  if (mode == Mode::kReplicate && n == 0)
    fail<ShapeError>("pad: mode 'replicate' has no edge to repeat in dim {} of size 0", dim);
}

}  // namespace

Tensor pad(const Tensor& x, const Dims& pad, const PadOptions& options) {
  const char* op = "pad";
  core::check_given(op, {"x", x});
  const Mode mode = mode_of(options.mode);
  if (pad.size() % 2 != 0) fail<ValueError>("{}: pad must hold pairs, got {}", op, pad);
  if (pad.size() / 2 > x.shape().size())
    fail<ShapeError>("{}: pad {} has more pairs than x of shape {} has dims", op, pad, x.shape());
  if (mode != Mode::kConstant && options.value.as_double() != 0)
    fail<ValueError>("{}: value goes with mode 'constant', got {} with '{}'", op, options.value.as_double(),
                     std::string(options.mode));
  Pad p{x, {}, core::scalar_tensor(op, "value", options.value, x.dtype(), kCpu), {}};
  Dims shape = x.shape();
  std::vector<cuda::CoordinateRule> rules;
  for (int d = 0; d < x.ndim(); ++d) {
    const size_t pair = 2 * static_cast<size_t>(x.ndim() - 1 - d);
    const int64_t n = x.shape(d), before = pair < pad.size() ? pad[pair] : 0,
                  after = pair < pad.size() ? pad[pair + 1] : 0;
    shape[d] = index::plus(op, index::plus(op, n, before), after);
    if (index::plus(op, n + std::min<int64_t>(before, 0), std::min<int64_t>(after, 0)) < 0)
      fail<ShapeError>("{}: pad {} cuts more than the size {} of dim {}", op, pad, n, d);
    check_border(mode, "leading", before, n, d);
    check_border(mode, "trailing", after, n, d);
    p.runs.push_back(runs_of(mode, n, before, after));
    rules.push_back(rule_of(mode, n, before, after));
  }
  core::Output out(op, options.out, shape, x.dtype(), x, {&x}, {.cuda = core::kHasCuda});
  core::StepScope step([&] {
    return core::Step{op, OpClass::kIndex, {x}, {out.target()}}.with(
        core::recipe([pad, options, border = std::string(options.mode)](const auto& in, const auto& outs) {
          PadOptions again = options;
          again.mode = border, again.out = outs[0];
          tenor::pad(in[0], pad, again);
        }));
  });
  if (step.shape_only(out.target()) || product(shape) == 0) return out.finish();
  if constexpr (core::kHasCuda) {
    if (core::on_cuda(x)) {
      cuda::remap(op, x, rules, out.target(), p.value.raw());
      return out.finish();
    }
  }
  p.target = out.target();
  fill_target(p);
  return out.finish();
}

}  // namespace tenor
