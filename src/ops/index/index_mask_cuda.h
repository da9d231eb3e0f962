// Places that are not zero, in row-major order, on CUDA: counted by tiles, the counts summed up, then each tile writes
// from its start on. The same places in the same order each time.
#pragma once

#include "src/ops/index/index_cuda.h"

namespace tenor::index {

/// int64 on x's device: the number of true places in front of each tile of x, then their number.
Tensor device_true_starts(const char* op, const Tensor& x);
/// Their number, on the host. Waits for the stream. @throws UnsupportedError under graph capture
int64_t device_true_count(const char* op, const Tensor& starts);

/// The first out.shape(0) true places of x, a row each of out (int64 [count, x.ndim()], any strides).
void write_places_on_device(const char* op, const Tensor& x, const Tensor& starts, const Tensor& out);
/// Raises the flag unless starts counts `expected` places.
void expect_count_on_device(Argument at, const Tensor& starts, int64_t expected);

/// out[k] = x at the k-th true place of mask, for x and mask of one shape and a dense 1-d out.
void select_masked_on_device(const char* op, const Tensor& x, const Tensor& mask, const Tensor& starts,
                             const Tensor& out);
/// target at the k-th true place of mask = source's k-th element, for a target and mask of one shape; a source of one
/// element serves all with `repeat`. Where source ends too early the rest is dropped and the flag raised.
void put_masked_on_device(Argument at, const Tensor& target, const Tensor& mask, const Tensor& starts,
                          const Tensor& source, bool repeat);

/// The sums of counts (int64 [n], dense; negative ones count as 0 and raise the flag) in front of each entry, then
/// all: int64 [n + 1].
Tensor device_running_sums(Argument at, const Tensor& counts);
/// places[j] = the entry that j falls to: sums[i] <= j < sums[i + 1].
void write_repeated_places_on_device(const char* op, const Tensor& sums, const Tensor& places);

}  // namespace tenor::index
