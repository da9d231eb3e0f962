// Where an operator writes: the caller's out= or new memory, with the contract's rules for both.
#pragma once

#include <initializer_list>

#include "tenor/tensor.h"

namespace tenor::core {

/// What an operator's kernel asks of the memory it writes.
struct OutputRules {
  bool elementwise = false;       ///< reads each place before it writes it: out= may lie exactly on an input
  bool contiguous = false;        ///< writes row-major only
  const char* argument = "out";   ///< its name in error texts
  bool cuda = false;              ///< has a CUDA kernel; without one, tensors on CUDA are UnsupportedError here
};

/// A result. `target()` is what the kernel writes: the caller's out=, new memory, or, where out= overlaps an input or has
/// strides that the kernel cannot write, a temporary that `finish()` copies.
///
///     Output out("softmax", options.out, x.shape(), x.dtype(), x, {&x});
///     kernel(x, out.target());
///     return out.finish();
class Output {
 public:
  /// `like` gives the device and, when it has the result's rank, the dimension order of new memory.
  /// @throws ShapeError, DTypeError, DeviceError, ValueError for an out= that does not fit, is read-only or overlaps itself.
  Output(const char* op, const Tensor& out, const Dims& shape, DType dtype, const Tensor& like,
         std::initializer_list<const Tensor*> inputs = {}, OutputRules rules = {});

  const Tensor& target() const { return target_; }
  /// The result, complete.
  Tensor finish();

 private:
  Tensor out_;     // the caller's, when a temporary stands in for it
  Tensor target_;
};

/// @throws ValueError when x cannot be written: read-only memory, or elements that share an address.
void check_writable(const char* op, const char* argument, const Tensor& x);

/// Of an operator with several results: no two of the caller's tensors may share elements (undefined ones do not count).
/// Equal strides are compared exactly (two interleaved halves of one buffer are fine), others by their spans.
/// @throws ValueError
void check_distinct_outputs(const char* op, std::initializer_list<const Tensor*> outs);

/// Copies src to dst, same shape, converting the dtype (src/ops/elementwise implements it).
void copy_into(const Tensor& src, const Tensor& dst);

}  // namespace tenor::core
