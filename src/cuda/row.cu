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

}  // namespace

std::string RowPlan::explain() const {
  const auto number = [](int value) { return std::to_string(value); };
  return number(threads) + (columns ? " warps of neighbouring rows, " : " threads a row, ") +
         (wide ? "16 bytes" : "one element") + " an access, " + number(rows) + " rows a block, cluster of " +
         number(cluster) +
         (registers && split && aligned ? ", rows in turn"
          : registers                   ? ", row held in registers"
          : held                        ? ", row held in shared memory"
                                        : ", row read again by each pass");
}

RowPlan plan_rows(int64_t length, bool dense, size_t item, bool columns, int most_blocks) {
  constexpr int kWarp = 32;
  length = std::max<int64_t>(length, 1);  // empty rows have a plan that never runs
  const bool held = length <= int64_t{kRowThreads} / (columns ? kWarp : 1) * held_elements(item) * most_blocks;
  RowPlan plan{.columns = columns, .held = held, .wide = held && !columns && dense};
  plan.split = plan.wide && length > kRowThreads * held_elements(item);
  plan.share = held_elements(item, plan.split);
  const int most = kRowThreads / kWarp / (plan.split ? 2 : 1), by_warp = columns ? plan.share : plan.share * kWarp;
  const int64_t warps = (length + by_warp - 1) / by_warp;
  plan.cluster = held ? static_cast<int>(round_up((warps + most - 1) / most)) : std::min(kLoopCluster, most_blocks);
  const int in_block = held ? static_cast<int>((warps + plan.cluster - 1) / plan.cluster) : most;
  if (columns) {
    plan.threads = in_block;
    plan.rows = in_block == 1 ? kBlock : kWarp;
  } else {
    const int64_t lanes = round_up((length + kLanesShare - 1) / kLanesShare);
    if (lanes < kWarp) plan.share = kLanesShare;
    plan.threads = warps == 1 ? static_cast<int>(std::min<int64_t>(lanes, kWarp)) : in_block * kWarp;
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
  plan.aligned = length * static_cast<int64_t>(item_size(x.dtype())) % kVectorBytes == 0;
  for (int t = 0; t < n; ++t) {
    spans[t] = {nullptr, ndim == 2 ? stride[t][0] : 0, ndim == 0 ? 1 : stride[t][ndim - 1]};
    if (!tensors[t].defined()) continue;
    spans[t].data = tensors[t].raw();
    plan.registers = plan.registers && (plan.columns || spans[t].step == 1);
    plan.aligned = plan.aligned && is_row_aligned(tensors[t], row_dims);
  }
  return true;
}

}  // namespace tenor::cuda
