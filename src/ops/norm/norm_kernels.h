// Entry points of the CPU kernels of this family: single-threaded, over a block of dense rows. `dtype` is that of x;
// vector parameters are dense and of its compute type (float, or double for float64), or null.
#pragma once

#include "src/cpu/rows.h"
#include "tenor/dtype.h"

namespace tenor::cpu {

struct NormParameters {
  DType dtype;
  const void* gamma;
  const void* beta;
  double epsilon;
};
/// Operands x, y.
void layer_norm_rows(const RowBlock& block, const NormParameters& p);
void rms_norm_rows(const RowBlock& block, const NormParameters& p);
/// Operands x, residual, y, new_residual; the last may share memory with one of the first two, y with the other.
void add_layer_norm_rows(const RowBlock& block, const NormParameters& p);
void add_rms_norm_rows(const RowBlock& block, const NormParameters& p);

/// Operands x, y.
void softmax_rows(const RowBlock& block, DType dtype);
void log_softmax_rows(const RowBlock& block, DType dtype);
void normalize_rows(const RowBlock& block, DType dtype, double p, double epsilon);

inline constexpr int64_t kSoftmaxColumns = 64;
/// Columns side by side, at most kSoftmaxColumns: element i of column c is x[i * x_step + c]. y may be x.
struct ColumnStrip {
  const void* x;
  void* y;
  int64_t x_step, y_step, length, width;
  void* scratch;  // 4 * length * kSoftmaxColumns bytes for 16-bit softmax
};
void softmax_columns(const ColumnStrip& strip, DType dtype, bool logarithm);

struct GroupParameters {
  NormParameters norm;  // gamma, beta per channel
  int64_t groups;       // row r is group r % groups
  int64_t channels;     // of a group
};
/// Operands x, y; a row is [channels, *S].
void group_norm_rows(const RowBlock& block, const GroupParameters& p);

struct BatchParameters {
  DType dtype;
  const void* mean;   // per channel, like the next two
  const void* scale;  // gamma / sqrt(variance + epsilon)
  const void* beta;
  int64_t channels;
};
/// Operands x, y; row r is channel r % channels.
void batch_norm_planes(const RowBlock& block, const BatchParameters& p);
/// Operands x, y; a row is all channels of one place.
void batch_norm_channels(const RowBlock& block, const BatchParameters& p);

}  // namespace tenor::cpu
