// A convolution as a matrix product over gathered rows: what the implicit GEMM kernels compute, whatever the direction.
//
//   result[n, p][g, o] = bias[g, o] + sum over taps j and channels c of source[n, p * stride + first + j * step][g, c]
//                                                                       * weight[g, o, tap(j), c]
//
// with p, j and the positions in three spatial dims (missing ones of size 1), a position outside of the source counting
// as zeros. Forward: step is the dilation, first minus the padding. Data backward with stride 1 is the same with source
// and result exchanged, step negative; with stride s it is one such product a residue of the input's positions modulo
// s, whose results lie s apart.
#pragma once

#include <cstdint>

namespace tenor::conv {

struct GatherDim {
  int outputs = 1;            ///< positions of the result in this product
  int size = 1;               ///< of the source
  int stride = 1, first = 0;  ///< source position of output p's tap 0: p * stride + first
  int taps = 1, step = 0;     ///< and of its tap j: j * step further on
  int64_t source_stride = 0;  ///< elements
  int64_t result_stride = 0;  ///< elements from output p to p + 1
  int weight_step = 0;        ///< taps of the weight from tap j to j + 1
};

struct GatherProduct {
  bool bfloat16 = true;  ///< else float16
  int batch = 1, groups = 1;
  int channels = 1;  ///< of the source, a group
  int columns = 1;   ///< of the result, a group
  GatherDim dim[3];
  const void* source = nullptr;  ///< channel stride 1
  int64_t source_batch = 0;
  const void* weight = nullptr;           ///< [groups, columns, taps, channels] dense
  int weight_taps = 1, weight_first = 0;  ///< taps there are, and the one that is tap 0 of this product
  void* result = nullptr;
  int64_t result_batch = 0, result_channel = 1;
  const void* bias = nullptr;  ///< one a group and column, of the operands' type, or null
  int64_t bias_stride = 1;
};

/// The sums of a weight gradient: gradient[g, o, tap(j), c] = sum over n and p of grad[n, p][g, o] * source[...][g, c],
/// in the same terms; `columns` are the channels of grad, result_* and weight_* say nothing.
struct GatherSums {
  GatherProduct gather;
  const void* grad = nullptr;                                             ///< [batch * outputs, groups * columns] dense
  void* gradient = nullptr;                                               ///< of the operands' type
  int64_t gradient_group = 0, gradient_column = 0, gradient_channel = 1;  ///< strides, elements
  int64_t gradient_tap[3] = {0, 0, 0};
  int written_channels = 0, written_columns = 0;  ///< of those summed, what the gradient has: not what fills them up
};

}  // namespace tenor::conv
