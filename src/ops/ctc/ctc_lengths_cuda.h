// Lengths and labels as the kernels read them.
#pragma once

#include "src/ops/ctc/ctc_cuda.h"
#include "src/ops/ctc/ctc_device.h"

namespace tenor::ctc {

/// int32 and int64 as they lie, other integers converted.
Tensor kernel_integers(const Tensor& array);
/// The lengths as an array on the device; numbers travel with a launch, so a graph may capture it.
Tensor length_array(const char* op, const CtcLengths& lengths, Device device);
/// What the loss's kernels may find wrong.
ContentOps loss_content_ops(const char* op);

}  // namespace tenor::ctc
