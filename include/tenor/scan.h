// Class 3, scans: element i of the result depends on elements 0..i of a line along `dim`. The result has x's shape. A
// 0-d tensor has the dim 0.
//
// Floats of 16 bits accumulate in float32 and round each result once. The order of a line's sums depends on its length
// alone (src/ops/scan/scan_kernels.h, src/cuda/scan_order.h), so bits do not depend on layout, neighbouring lines or thread count. Cost: x is
// read and the result written once (a single long line is read twice), 1 FLOP an element.
//
// Errors: IndexError for a dim out of range, DTypeError for 8-bit floats, and those of out=.
#pragma once

#include <optional>

#include "tenor/tensor.h"

namespace tenor {

struct ScanOptions {
  std::optional<DType> dtype = {};  ///< elements are converted to it, and it is the result's
  Tensor out = {};
};
struct LogScanOptions {
  Tensor out = {};
};
struct ExtremeScanOptions {
  Tensor out = {};  ///< values
  Tensor out_indices = {};
};
/// The running extremes and the int64 indices at which they stand.
struct ExtremeScanResult {
  Tensor values, indices;
};

/// x[0] + .. + x[i]. Integers and bool give int64, unsigned integers uint64 (modulo 2^64); floats keep their dtype.
Tensor cumsum(const Tensor& x, int64_t dim, const ScanOptions& options = {});
/// x[0] * .. * x[i], with cumsum's dtypes.
Tensor cumprod(const Tensor& x, int64_t dim, const ScanOptions& options = {});
/// The largest of x[0..i] and where it is: the first of equals; a NaN, once met, stays.
ExtremeScanResult cummax(const Tensor& x, int64_t dim, const ExtremeScanOptions& options = {});
/// The smallest of x[0..i], likewise.
ExtremeScanResult cummin(const Tensor& x, int64_t dim, const ExtremeScanOptions& options = {});
/// log(e^x[0] + .. + e^x[i]) relative to the running maximum, in float64 inside. @throws DTypeError for integers and
/// bool
Tensor logcumsumexp(const Tensor& x, int64_t dim, const LogScanOptions& options = {});

}  // namespace tenor
