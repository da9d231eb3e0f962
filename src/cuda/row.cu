#include <algorithm>

#include "src/cuda/capability.h"
#include "src/cuda/row.h"
#include "src/cuda/vector.cuh"

namespace tenor::cuda {
namespace {

constexpr int kBlock = 128;  // threads of a block of short rows

/// The least power of two >= n.
int64_t round_up(int64_t n) {
  int64_t power = 1;
  while (power < n) power *= 2;
  return power;
}

/// Whether rows whose elements lie `step` apart have neighbours that lie nearer than that.
bool lies_in_columns(const Tensor& x, int row_dims, int64_t step) {
  if (step <= 1) return false;
  for (int d = 0; d + row_dims < x.ndim(); ++d)
    if (x.shape(d) > 1 && x.stride(d) > 0 && x.stride(d) < step) return true;
  return false;
}

/// Whether every row begins at a multiple of 16 bytes.
bool is_row_aligned(const Tensor& x, int row_dims) {
  const size_t item = item_size(x.dtype());
  bool fits = is_aligned(x.raw(), 0, item);
  for (int d = 0; fits && d + row_dims < x.ndim(); ++d)
    fits = x.shape(d) == 1 || is_aligned(nullptr, x.stride(d), item);
  return fits;
}

/// Whether the kernels of rows in registers take that tensor.
bool fits_registers(const RowPlan& plan, const Tensor& x, int row_dims, int64_t step) {
  if (plan.columns) return true;
  return step == 1 && (!plan.wide || is_row_aligned(x, row_dims));
}

}  // namespace

std::string RowPlan::explain() const {
  const auto number = [](int value) { return std::to_string(value); };
  return number(threads) + (columns ? " warps of neighbouring rows, " : " threads a row, ") +
         (wide ? "16 bytes" : "one element") + " an access, " + number(rows) + " rows a block, cluster of " +
         number(cluster) +
         (registers ? ", row held in registers"
          : held    ? ", row held in shared memory"
                    : ", row read again by each pass");
}

RowPlan plan_rows(int64_t length, bool dense, size_t item, bool columns, int most_blocks) {
  constexpr int kWarp = 32, kMost = kRowThreads / kWarp;
  length = std::max<int64_t>(length, 1);  // empty rows have a plan that never runs
  const bool in_vectors = !columns && dense && length * static_cast<int64_t>(item) % kVectorBytes == 0;
  const bool is_long = in_vectors && length > kRowThreads * held_elements(item);
  const int64_t share = held_elements(item, is_long);
  const int64_t by_warp = columns ? share : share * kWarp, warps = (length + by_warp - 1) / by_warp;
  RowPlan plan{.columns = columns,
               .held = warps <= kMost * most_blocks * held_elements(item) / share,
               .cluster = std::min(kLoopCluster, most_blocks)};
  plan.is_long = is_long;
  plan.share = static_cast<int>(share);
  plan.wide = plan.held && in_vectors;
  if (plan.held) plan.cluster = static_cast<int>(round_up((warps + kMost - 1) / kMost));
  const int in_block = plan.held ? static_cast<int>((warps + plan.cluster - 1) / plan.cluster) : kMost;
  if (columns) {
    plan.threads = in_block;
    plan.rows = in_block == 1 ? kBlock : kWarp;
  } else {
    plan.threads = warps == 1 ? static_cast<int>(round_up((length + share - 1) / share)) : in_block * kWarp;
    plan.rows = plan.threads <= kWarp ? kBlock / plan.threads : 1;
  }
  return plan;
}

bool plan_problem(const char* op, const Tensor* tensors, int n, int row_dims, RowPlan& plan, int64_t& length,
                  int64_t& run, RowSpan* spans) {
  const Tensor& x = tensors[0];
  const auto inner = [&](const Dims& dims) { return Dims(dims.end() - row_dims, dims.end()); };
  constexpr int kMost = 4;
  Dims strides[kMost];
  for (int t = 0; t < n; ++t) strides[t] = inner(tensors[t].defined() ? tensors[t].strides() : x.strides());
  int64_t size[kMaxDims], stride[kMost][kMaxDims];
  Divider dividers[kMaxDims];
  int ndim = 0;
  collapse_into(op, inner(x.shape()), strides, n, 0, ndim, length, size, stride, dividers);
  if (ndim > 2) return false;
  run = ndim == 0 ? 1 : size[ndim - 1];
  plan = plan_rows(length, ndim < 2, item_size(x.dtype()), ndim == 1 && lies_in_columns(x, row_dims, stride[0][0]),
                   cluster_of(kRowCluster, x.device()));
  plan.registers = plan.held && ndim < 2;
  for (int t = 0; t < n; ++t) {
    spans[t] = {nullptr, ndim == 2 ? stride[t][0] : 0, ndim == 0 ? 1 : stride[t][ndim - 1]};
    if (!tensors[t].defined()) continue;
    spans[t].data = tensors[t].raw();
    plan.registers = plan.registers && fits_registers(plan, tensors[t], row_dims, spans[t].step);
  }
  return true;
}

}  // namespace tenor::cuda
