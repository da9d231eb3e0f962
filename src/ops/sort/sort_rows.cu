// Rows along any dim for kernels that read and write dense ones, and which kernel takes them.
#include <algorithm>

#include "src/core/output.h"
#include "src/cuda/capability.h"
#include "src/ops/sort/sort_cuda.h"

namespace tenor::cuda {
namespace {

/// x with dim at the end; of a 0-d tensor one row of one element.
Tensor dim_last(const Tensor& x, int dim) {
  if (x.ndim() == 0) return x.with_layout({1}, {1}, x.offset());
  Dims shape = x.shape(), strides = x.strides();
  std::rotate(shape.begin() + dim, shape.begin() + dim + 1, shape.end());
  std::rotate(strides.begin() + dim, strides.begin() + dim + 1, strides.end());
  return x.with_layout(shape, strides, x.offset());
}

/// Whether the rows lie dense, evenly spaced; *stride is their distance.
bool are_even(const Tensor& rows, int64_t* stride) {
  const int last = rows.ndim() - 1;
  if (rows.shape(last) > 1 && rows.stride(last) != 1) return false;
  *stride = rows.shape(last);
  int64_t reach = -1;  // distance from one step of the dims so far to the next
  for (int d = last - 1; d >= 0; --d) {
    if (rows.shape(d) == 1) continue;
    if (reach < 0) *stride = rows.stride(d);
    if (reach >= 0 && rows.stride(d) != reach) return false;
    reach = rows.stride(d) * rows.shape(d);
  }
  return true;
}

/// The rows of x, copied where they lie otherwise.
struct Source {
  Tensor rows;
  int64_t stride = 0;
  Source(const Tensor& x, int dim) : rows(dim_last(x, dim)) {
    if (are_even(rows, &stride)) return;
    rows = rows.contiguous();
    stride = rows.shape(-1);
  }
};

/// Where results are written: the target, dim last, or a dense stand-in that finish() copies.
class Target {
 public:
  Target(const Tensor& given, int dim, bool has_dim) {
    if (!given.defined()) return;
    target_ = has_dim ? dim_last(given, dim) : given;
    dense_ = target_.is_contiguous() ? target_ : Tensor::empty(target_.shape(), target_.dtype(), target_.device());
  }
  void* data() const { return dense_.defined() ? dense_.raw() : nullptr; }
  void finish() const {
    if (dense_.defined() && dense_.raw() != target_.raw()) core::copy_into(dense_, target_);
  }

 private:
  Tensor target_, dense_;
};

template <class F>
void run(const char* op, const Tensor& x, int dim, core::KeyCode code, const Tensor& values, const Tensor& indices,
         F&& fn) {
  const Source source(x, dim);
  const bool has_dim = x.ndim() == 0 || (values.defined() ? values : indices).ndim() == x.ndim();
  const Target to_values(values, dim, has_dim && x.ndim() > 0), to_indices(indices, dim, has_dim && x.ndim() > 0);
  const int64_t n = source.rows.shape(-1);
  OrderRows rows{op, source.rows.raw(), x.device(), code, x.dtype(), 1, n, source.stride};
  for (int d = 0; d + 1 < source.rows.ndim(); ++d) rows.rows *= source.rows.shape(d);
  rows.values = to_values.data();
  rows.indices = static_cast<int64_t*>(to_indices.data());
  fn(rows);
  to_values.finish();
  to_indices.finish();
}

/// The longest rows of a block take shared memory that not every device has; half as long ones fit all.
constexpr size_t kLongRowShared = 161 << 10;
bool fits_block(const OrderRows& rows) {
  const int64_t longest = longest_block_row(rows.dtype);
  return rows.n <= (capability(rows.device).shared < kLongRowShared ? longest / 2 : longest);
}
bool fits_selection(const OrderRows& rows) { return rows.n < int64_t{UINT32_MAX}; }

}  // namespace

void order_rows(const char* op, const Tensor& x, int dim, core::KeyCode code, int64_t k, const Tensor& values,
                const Tensor& indices) {
  run(op, x, dim, code, values, indices, [&](const OrderRows& rows) {
    if (rows.n == 0) return;
    const bool tiny = rows.n <= kTinyRow && k <= kMostOfTiny && k <= rows.n / 2 && item_size(rows.dtype) <= 4;
    if (tiny) return topk_tiny(rows, k);
    if (rows.n <= kShortRow) return sort_short(rows, k);
    if (k <= kMostSelected && fits_selection(rows)) return topk_selected(rows, k);
    if (fits_block(rows)) return sort_short(rows, k);
    sort_long(rows, k);
  });
}

void pick_rows(const char* op, const Tensor& x, int dim, int64_t k, bool nan_wins, const Tensor& values,
               const Tensor& indices) {
  run(op, x, dim, core::key_code(x.dtype()), values, indices, [&](const OrderRows& rows) {
    if (rows.n == 0) return;
    if (rows.n <= kShortRow) return pick_short(rows, k, nan_wins);
    if (!fits_selection(rows))
      throw UnsupportedError(std::string(op) + ": rows of 2^32 elements and more have no CUDA kernel");
    pick_selected(rows, k, nan_wins);
  });
}

}  // namespace tenor::cuda
