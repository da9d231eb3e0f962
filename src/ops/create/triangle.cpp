// tril, triu.
#include <algorithm>
#include <cstring>

#include "src/core/backend.h"
#include "src/core/check.h"
#include "src/core/output.h"
#include "src/core/registry.h"
#include "src/core/step.h"
#include "src/core/visit.h"
#include "src/cpu/parallel.h"
#include "src/ops/create/create_cuda.h"
#include "tenor/create.h"

namespace tenor {
namespace {

using core::OpClass;

const core::OpRegistration kOps({
    {"tril", "create", OpClass::kElementwise, "x[..., i, j] where j <= i + diagonal, else 0"},
    {"triu", "create", OpClass::kElementwise, "x[..., i, j] where j >= i + diagonal, else 0"},
});

/// Elements [first, last) of a row.
struct Span {
  int64_t first, last;
};

int64_t row_offset(const Dims& outer, const Dims& strides, int64_t row) {
  int64_t offset = 0;
  for (size_t d = outer.size(); d-- > 0; row /= outer[d]) offset += row % outer[d] * strides[d];
  return offset;
}

/// to = from but for zeros; both may be one row.
template <class T>
void write_row(const T* from, T* to, Span zero, int64_t columns) {
  const auto copy = [&](int64_t first, int64_t last) {
    if (last > first && from != to)
      std::memcpy(to + first, from + first, static_cast<size_t>(last - first) * sizeof(T));
  };
  copy(0, zero.first);
  if (zero.last > zero.first) std::memset(to + zero.first, 0, static_cast<size_t>(zero.last - zero.first) * sizeof(T));
  copy(std::max(zero.first, zero.last), columns);
}

/// x with the elements zeros(i, columns, diagonal) of each matrix's row i set to 0.
template <class Zeros>
Tensor triangle(const char* op, const Tensor& x, bool lower, const TriangleOptions& options, Zeros zeros) {
  core::check_given(op, {"x", x});
  if (x.ndim() < 2) core::fail<ShapeError>("{}: x must have at least 2 dims, got shape {}", op, x.shape());
  // Beyond the matrix every diagonal means the same; so bounded, sums with it stay in 64 bits.
  const int64_t diagonal = std::clamp(options.diagonal, -x.shape(-2), x.shape(-1));
  core::Output out(op, options.out, x.shape(), x.dtype(), x, {&x}, {.elementwise = true, .cuda = core::kHasCuda});
  const Tensor& target = out.target();
  core::StepScope step([&] {
    return core::Step{op, OpClass::kElementwise, {x}, {target}, x.numel()}
        .with({.as_bits = true})
        .with(core::recipe([op, lower, diagonal, zeros](const auto& in, const auto& outs) {
          triangle(op, in[0], lower, {.diagonal = diagonal, .out = outs[0]}, zeros);
        }));
  });
  if (step.shape_only(target)) return target;
  if constexpr (core::kHasCuda) {
    if (core::on_cuda(x)) {
      create::triangle_on_device(op, x, target, lower, diagonal);
      return out.finish();
    }
  }
  const bool dense_rows = x.stride(-1) == 1 && target.stride(-1) == 1;
  if (!dense_rows) core::copy_into(x, target);
  const Dims outer(x.shape().begin(), x.shape().end() - 1);
  const int64_t rows = x.shape(-2), columns = x.shape(-1), stride = target.stride(-1);
  core::visit_size(x.dtype(), [&]<class T>() {
    cpu::parallel_for(product(outer), cpu::grain_of(columns * static_cast<int64_t>(sizeof(T)) / 2),
                      [&](int64_t begin, int64_t end) {
                        for (int64_t r = begin; r < end; ++r) {
                          const Span zero = zeros(r % rows, columns, diagonal);
                          T* row = target.data<T>() + row_offset(outer, target.strides(), r);
                          if (dense_rows) {
                            write_row(x.data<T>() + row_offset(outer, x.strides(), r), row, zero, columns);
                          } else {
                            for (int64_t j = zero.first; j < zero.last; ++j) row[j * stride] = 0;
                          }
                        }
                      });
  });
  return out.finish();
}

}  // namespace

Tensor tril(const Tensor& x, const TriangleOptions& options) {
  return triangle("tril", x, true, options, [](int64_t i, int64_t columns, int64_t k) {
    return Span{std::clamp<int64_t>(i + k + 1, 0, columns), columns};
  });
}

Tensor triu(const Tensor& x, const TriangleOptions& options) {
  return triangle("triu", x, false, options, [](int64_t i, int64_t columns, int64_t k) {
    return Span{0, std::clamp<int64_t>(i + k, 0, columns)};
  });
}

}  // namespace tenor
