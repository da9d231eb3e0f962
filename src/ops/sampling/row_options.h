// Options that are a number for all rows or a tensor [B] of one a row: their checks, and their values on the host.
#pragma once

#include <optional>
#include <vector>

#include "src/core/check.h"
#include "src/ops/sampling/sampling_cuda.h"
#include "src/ops/sampling/sampling_kernels.h"
#include "tenor/scalar.h"

namespace tenor {

/// One option of all rows: `rows` [B] where it is a tensor, else the scalar. The limits of what is allowed are the
/// contract's: every real number is compared with them, in words for the error text.
struct RowValue {
  const char* name = "";
  Tensor rows = {};
  double real = 0;
  int64_t integer = 0;

  Operand operand() const { return rows.defined() ? Operand(rows) : Operand(integer); }  ///< of an integer option
  double real_at(int64_t r) const;
  int64_t integer_at(int64_t r) const;
};

/// Every option of an operator. Those not given switch their filter off.
struct RowValues {
  RowValue temperature{"temperature", {}, 1}, top_k{"top_k"}, top_p{"top_p", {}, 1}, min_p{"min_p"}, seed{"seed"},
      position{"position"};

  /// @throws ShapeError, DTypeError, DeviceError; ValueError for a scalar out of range
  void set_real(const char* op, RowValue& value, const std::optional<Operand>& given, core::Named x, int64_t batch);
  void set_integer(const char* op, RowValue& value, const std::optional<Operand>& given, core::Named x, int64_t batch);
  void set_seed(const char* op, const std::optional<Operand>& seed, const Operand& position, core::Named x,
                int64_t batch);
  /// Those of every row, on the CPU. @throws ValueError naming the option, its value and its row
  std::vector<cpu::RowOptions> on_host(const char* op, int64_t batch) const;
  /// Those that are tensors, in a fixed order: further inputs of a step.
  std::vector<Tensor> arrays() const;
  /// The same with these in their place, from `all[first]` on.
  RowValues with_arrays(const std::vector<Tensor>& all, size_t first) const;
  /// For kernels that read them on the device, and drop rows whose options are out of range.
  cuda::RowOptionSet on_device() const;
};

}  // namespace tenor
