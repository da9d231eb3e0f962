// Contract of rope.
#include "tenor/rope.h"

#include "src/core/backend.h"
#include "src/core/check.h"
#include "src/core/output.h"
#include "src/core/registry.h"
#include "src/core/step.h"
#include "src/core/visit.h"
#include "src/ops/rope/rope_cuda.h"
#include "src/ops/rope/rope_kernels.h"

namespace tenor {
namespace {

using core::fail;
using core::Named;
using core::OpClass;
using core::Output;
using core::Step;
using core::StepScope;

const core::OpRegistration kOps({
    {"rope", "rope", OpClass::kElementwise,
     "x[..., S, H, D]: pairs (a, b) of a head -> (a cos - b sin, b cos + a sin) at its position"},
});

void check_table(Named table, const Tensor& x, int64_t columns) {
  core::check_given("rope", table);
  if (table.tensor.dtype() != float32 && table.tensor.dtype() != x.dtype())
    fail<DTypeError>("rope: {} must be float32 or x's dtype {}, got {}", table.name, x.dtype(), table.tensor.dtype());
  core::check_same_device("rope", {{"x", x}, table});
  core::check_ndim("rope", table, 2);
  if (table.tensor.shape(1) != columns)
    fail<ShapeError>("rope: {} must have rotary_dim/2 = {} columns, got shape {}", table.name, columns,
                     table.tensor.shape());
}

/// Checks the arguments; returns rotary_dim.
int64_t check_rope(const Tensor& x, const Tensor& cos, const Tensor& sin, const RopeOptions& o) {
  core::check_float("rope", {"x", x});
  if (x.ndim() < 3) fail<ShapeError>("rope: x must have shape [..., S, H, D], got {}", x.shape());
  const int64_t rotary_dim = o.rotary_dim.value_or(x.shape(-1));
  if (rotary_dim < 2 || rotary_dim > x.shape(-1) || rotary_dim % 2 != 0)
    fail<ValueError>("rope: rotary_dim must be even and in 2..{}, x's head size, got {}", x.shape(-1), rotary_dim);
  check_table({"cos", cos}, x, rotary_dim / 2);
  check_table({"sin", sin}, x, rotary_dim / 2);
  core::check_shape("rope", {"sin", sin}, cos.shape());
  return rotary_dim;
}

/// The position of every token, or of one sequence of tokens when that is what was given.
struct Positions {
  std::vector<int64_t> values;  // empty: token t stands at t % period
  int64_t period;
};

Dims token_shape(const Tensor& x) { return Dims(x.shape().begin(), x.shape().end() - 2); }

void check_positions(const Tensor& x, const Tensor& cos, const Tensor& positions) {
  const Dims tokens = token_shape(x);
  if (!positions.defined()) {
    if (tokens.back() > cos.shape(0))
      fail<ShapeError>("rope: cos has {} rows, fewer than x's {} positions", cos.shape(0), tokens.back());
    return;
  }
  core::check_index_dtype("rope", {"positions", positions});
  core::check_same_device("rope", {{"x", x}, {"positions", positions}});
  bool fits = positions.ndim() >= 1 && positions.ndim() <= static_cast<int>(tokens.size());
  for (int d = 1; fits && d <= positions.ndim(); ++d)
    fits = positions.shape(-d) == tokens[tokens.size() - d] || positions.shape(-d) == 1;
  if (!fits)
    fail<ShapeError>("rope: positions must be [S] or broadcast to {}, x's shape before [H, D], got {}", tokens,
                     positions.shape());
}

/// Reads the positions. @throws IndexError for one outside the tables.
Positions read_positions(const Tensor& x, const Tensor& cos, const Tensor& positions) {
  const Dims tokens = token_shape(x);
  if (!positions.defined()) return {{}, std::max<int64_t>(tokens.back(), 1)};
  const Dims shape = positions.ndim() == 1 ? Dims{tokens.back()} : tokens;
  const Dims strides = core::broadcast_strides(positions, shape);
  const int64_t count = product(shape), rows = cos.shape(0);
  Positions out{{}, std::max<int64_t>(count, 1)};
  out.values.reserve(static_cast<size_t>(count));
  core::visit_integer(positions.dtype(), [&]<class I>() {
    Dims at(shape.size(), 0);
    for (int64_t i = 0; i < count; ++i) {
      int64_t offset = 0;
      for (size_t d = 0; d < at.size(); ++d) offset += at[d] * strides[d];
      const I value = positions.data<I>()[offset];
      if (std::cmp_less(value, 0) || std::cmp_greater_equal(value, rows))
        fail<IndexError>("rope: positions holds {} at {}, outside the tables' rows 0 to {}", +value, at, rows - 1);
      out.values.push_back(static_cast<int64_t>(value));
      for (size_t d = at.size(); d-- > 0 && ++at[d] == shape[d];) at[d] = 0;
    }
  });
  return out;
}

}  // namespace

Tensor rope(const Tensor& x, const Tensor& cos, const Tensor& sin, const RopeOptions& o) {
  const int64_t rotary_dim = check_rope(x, cos, sin, o);
  check_positions(x, cos, o.positions);
  const bool on_host = x.device().type == DeviceType::kCpu;
  const Positions positions = on_host ? read_positions(x, cos, o.positions) : Positions{{}, 1};
  Output out("rope", o.out, x.shape(), x.dtype(), x, {&x, &cos, &sin, &o.positions},
             {.elementwise = true, .cuda = core::kHasCuda});
  StepScope step([&] {
    return Step{"rope", OpClass::kElementwise, {x, cos, sin, o.positions}, {out.target()}, x.numel()}.with(
        core::recipe([o](const auto& in, const auto& outs) {
          RopeOptions again = o;
          again.positions = in[3], again.out = outs[0];
          rope(in[0], in[1], in[2], again);
        }));
  });
  if (step.shape_only(out.target())) return out.target();
  if constexpr (core::kHasCuda) {
    if (core::on_cuda(x)) {
      cuda::rope({x, cos, sin, o.positions, out.target()}, rotary_dim, o.interleaved);
      return out.finish();
    }
  }
  const cpu::RopeParameters p{x.dtype(),
                              &cos,
                              &sin,
                              rotary_dim,
                              o.interleaved,
                              std::max<int64_t>(x.shape(-2), 1),
                              positions.values.empty() ? nullptr : positions.values.data(),
                              positions.period};
  cpu::RowWalk walk(x.shape(), 1);
  walk.read(x);
  walk.write(out.target());
  walk.run([&](const cpu::RowBlock& block) { cpu::rope_rows(block, p); });
  return out.finish();
}

}  // namespace tenor
