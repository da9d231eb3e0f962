// The family's CUDA kernels, behind plain functions. Rows are dense: n elements side by side, `stride` from row to row;
// results lie row after row without gaps.
#pragma once

#include "src/core/order_key.h"
#include "tenor/tensor.h"

namespace tenor::cuda {

struct OrderRows {
  const char* op;
  const void* x;
  Device device;
  core::KeyCode code;
  DType dtype;
  int64_t rows, n, stride;
  void* values = nullptr;  ///< nothing when not wanted
  int64_t* indices = nullptr;
};

/// Rows that are sorted at once even where few of their elements are wanted.
inline constexpr int64_t kShortRow = 4096;
/// Elements of results that topk_selected can put in order.
inline constexpr int64_t kMostSelected = 2048;

/// Rows of which a warp selects the first few, and how many those are at most; elements of up to 32 bits.
inline constexpr int kTinyRow = 256, kMostOfTiny = 64;

/// What is written of a sorted row: elements first to first + count - 1 of the order, or the first NaN.
struct Wanted {
  int first, count;
  bool nan_wins;
};
/// A block a row; n <= longest_block_row().
void sort_blocks(const OrderRows& rows, const Wanted& wanted);

void topk_tiny(const OrderRows& rows, int64_t k);
/// The longest rows that one block sorts.
inline int64_t longest_block_row(DType dtype) { return item_size(dtype) <= 2 ? 32768 : 16384; }
/// The first k of every row's order; n <= longest_block_row().
void sort_short(const OrderRows& rows, int64_t k);
/// Element k of the order of every row; with nan_wins the first NaN where there is one.
void pick_short(const OrderRows& rows, int64_t k, bool nan_wins);
/// The same two for longer rows (n < 2^32), by radix selection; k <= kMostSelected for topk.
void topk_selected(const OrderRows& rows, int64_t k);
void pick_selected(const OrderRows& rows, int64_t k, bool nan_wins);
/// The first k of the order of rows of any length, by sorting all rows at once.
void sort_long(const OrderRows& rows, int64_t k);

/// The family's operators on tensors of a CUDA device, checked by the contract. values and indices may be undefined.
/// The first k of the order along dim.
void order_rows(const char* op, const Tensor& x, int dim, core::KeyCode code, int64_t k, const Tensor& values,
                const Tensor& indices);
/// Element k of it; the results may lack the dim.
void pick_rows(const char* op, const Tensor& x, int dim, int64_t k, bool nan_wins, const Tensor& values,
               const Tensor& indices);

/// places[i] of values[i] (contiguous) in a 1-d sequence, or in the row of contiguous sequences that it stands in.
void search_rows(const Tensor& sequences, const Tensor& values, bool right, const Tensor& places);
/// The same for one value in the host's memory.
void search_one(const Tensor& sequence, const Tensor& value, bool right, const Tensor& place);

/// The largest element of x (contiguous), -1 for none; waits for it. *refused_at: the first that is negative or beyond
/// int64, or -1.
int64_t largest_count(const Tensor& x, int64_t* refused_at);
void count_bins(const Tensor& x, const Tensor& counts);
/// sums [bins] float64 of the weights (float64, contiguous), in index order; `order` is x's argsort.
void weigh_bins(const Tensor& x, const Tensor& order, const Tensor& weights, const Tensor& sums);

/// Slices in order: order[p] comes p-th, numbers[p] groups of equals start up to place p. Or integers in bins: bins[b]
/// elements are low + b, numbers[b] bins up to b hold any.
struct Groups {
  Tensor order, numbers, bins = {};
  uint64_t low = 0;  ///< the bits of a 64-bit integer
  int64_t count = 0;
};
/// Groups `count` slices of `length` elements, contiguous; waits for their number.
Groups group_slices(const Tensor& data, int64_t count, int64_t length);
/// Of integers that lie close together (as IntegerBins::of): their bins; waits for their range. False for others.
bool bin_integers(const Tensor& data, Groups& groups);
/// As write_groups, of bins.
void write_bins(const Tensor& data, const Groups& groups, const Tensor& values, const Tensor& inverse,
                const Tensor& counts);
/// The first slice of each group [groups, length], every slice's group, the groups' sizes; contiguous, undefined where
/// not wanted.
void write_groups(const Tensor& data, int64_t length, const Groups& groups, const Tensor& values, const Tensor& inverse,
                  const Tensor& counts);

}  // namespace tenor::cuda
