// dispatch and combine on the CPU.
#include <cstring>
#include <vector>

#include "src/core/numeric.h"
#include "src/core/visit.h"
#include "src/cpu/move.h"
#include "src/cpu/parallel.h"
#include "src/ops/moe/moe_kernels.h"
#include "src/ops/moe/moe_plan.h"

namespace tenor::moe {
namespace {

/// Rows of a tensor [N,H] with dense rows, as bytes.
struct Rows {
  char* data;
  int64_t step, bytes;
  explicit Rows(const Tensor& x)
      : data(static_cast<char*>(x.raw())),
        step(x.stride(0) * static_cast<int64_t>(item_size(x.dtype()))),
        bytes(x.shape(1) * static_cast<int64_t>(item_size(x.dtype()))) {}
  char* operator[](int64_t row) const { return data + row * step; }
};

}  // namespace

void dispatch_cpu(const RoutingPlan::State& plan, const Tensor& x, const Tensor& tokens) {
  const int64_t T = plan.ids.shape(0), K = plan.ids.shape(1);
  const int32_t* rows = plan.rows.data<int32_t>();
  const Rows from(x), to(tokens);
  cpu::parallel_for(T, cpu::grain_of((K + 1) * from.bytes), [&](int64_t first, int64_t last) {
    for (int64_t i = first * K; i < last * K; ++i) {
      if (rows[i] >= 0)
        std::memcpy(to[rows[i]], from[i / K], static_cast<size_t>(from.bytes));
      else
        std::memset(to[-1 - rows[i]], 0, static_cast<size_t>(to.bytes));
    }
  });
}

void combine_cpu(const RoutingPlan::State& plan, const Tensor& y, const Tensor& shared, const Tensor& out) {
  const int64_t T = plan.ids.shape(0), K = plan.ids.shape(1), H = y.shape(1);
  const int32_t* rows = plan.rows.data<int32_t>();
  const DType wide = compute_dtype(y.dtype());
  const Rows from(y), to(out);
  const cpu::Converter round(wide, out.dtype());
  cpu::parallel_for(T, cpu::grain_of((K + 1) * from.bytes), [&](int64_t first, int64_t last) {
    const Tensor sums = Tensor::empty({H}, wide);
    const auto n = static_cast<size_t>(H);
    for (int64_t t = first; t < last; ++t) {
      std::memset(sums.raw(), 0, n * item_size(wide));
      for (int64_t i = t * K; i < (t + 1) * K; ++i) {
        if (rows[i] < 0) continue;
        const double weight = core::visit_float(plan.weights.dtype(), [&]<class W>() {
          return static_cast<double>(
              core::widen(plan.weights.data<W>()[i / K * plan.weights.stride(0) + i % K * plan.weights.stride(1)]));
        });
        cpu::add_weighted_row(y.dtype(), weight, from[rows[i]], sums.raw(), n);
      }
      if (shared.defined()) cpu::add_weighted_row(shared.dtype(), 1, Rows(shared)[t], sums.raw(), n);
      if (n > 0) round(sums.raw(), to[t], n);
    }
  });
}

void clear_tail_cpu(const Tensor& offsets, const Tensor& y) {
  const Rows rows(y);
  for (int64_t i = offsets.data<int64_t>()[offsets.shape(0) - 1]; i < y.shape(0); ++i)
    std::memset(rows[i], 0, static_cast<size_t>(rows.bytes));
}

}  // namespace tenor::moe
