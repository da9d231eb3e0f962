// Checks that the index operators share.
#pragma once

#include <vector>

#include "src/core/backend.h"
#include "src/core/check.h"
#include "src/core/device_traits.h"
#include "src/core/step.h"
#include "tenor/tensor.h"

namespace tenor::index {

/// The entries as dense row-major int64 in 0..n-1: the index itself when it already is that, else a copy. Entries below
/// 0 count from the end unless `from_zero`. @throws IndexError naming the first bad entry's value and position. On CUDA
/// a row-major array of any integer dtype, which the kernels check as they read it (index_cuda.h).
Tensor checked_indices(const char* op, const char* argument, const Tensor& index, int64_t n, bool from_zero = false);

/// x, or a copy of it where it shares memory with what will be written.
inline Tensor read_first(const Tensor& x, bool overlaps) { return overlaps ? x.clone() : x; }

/// x as it is, or a 0-d tensor as one of one element.
inline Tensor at_least_1d(const Tensor& x) { return x.ndim() > 0 ? x : x.with_layout({1}, {1}, x.offset()); }

/// size * times and a + b as sizes. @throws OutOfMemoryError beyond 64 bits
inline int64_t times(const char* op, int64_t size, int64_t count) {
  int64_t out;
  if (__builtin_mul_overflow(size, count, &out))
    core::fail<OutOfMemoryError>("{}: size {} times {} exceeds the address space", op, size, count);
  return out;
}
inline int64_t plus(const char* op, int64_t a, int64_t b) {
  int64_t out;
  if (__builtin_add_overflow(a, b, &out))
    core::fail<OutOfMemoryError>("{}: sizes {} and {} together exceed the address space", op, a, b);
  return out;
}

/// States the copies of index arrays that checked_indices() makes: of the inputs that are no data of
/// the table's dtype.
inline void state_index_copies(core::Step& step, size_t table) {
  for (size_t i = 0; i < step.inputs.size(); ++i) {
    const Tensor& x = step.inputs[i];
    if (i == table || !x.defined() || !is_integer(x.dtype()) || x.dtype() == step.inputs[table].dtype()) continue;
    const bool as_int64 = core::runs_on(x.device()) != DeviceType::kCuda;  // CUDA kernels read any integer dtype
    if ((as_int64 && x.dtype() != int64) || !x.is_contiguous())
      step.copies.push_back({"index", x.numel() * static_cast<int64_t>(item_size(as_int64 ? int64 : x.dtype())),
                             as_int64 ? "indices are read as dense int64" : "indices are read as a dense array"});
  }
}

/// The step of a read at places that `index` names: of x no more than what comes out is read.
inline core::Step read_step(const char* op, std::vector<Tensor> inputs, size_t table, const Tensor& out,
                            std::string note) {
  core::Step step{op, core::OpClass::kIndex, std::move(inputs), {out}};
  step.reads = std::vector<int64_t>(step.inputs.size(), -1);
  step.reads[table] = out.numel();
  step.note = std::move(note);
  state_index_copies(step, table);
  return step;
}

/// The step of a write in place at `places` places: x is written there alone, and read there where values are combined.
inline core::Step write_step(const char* op, std::vector<Tensor> inputs, const Tensor& x, int64_t places,
                             bool combines) {
  core::Step step{op, core::OpClass::kIndex, std::move(inputs), {x}};
  step.reads = std::vector<int64_t>(step.inputs.size(), -1);
  step.reads[0] = combines ? places : 0;
  step.writes = {places};
  state_index_copies(step, 0);
  return step;
}

/// @throws DTypeError unless it is bool.
inline void check_mask(const char* op, core::Named x) {
  core::check_given(op, x);
  if (x.tensor.dtype() != boolean) core::fail<DTypeError>("{}: {} must be bool, got {}", op, x.name, x.tensor.dtype());
}

/// Whether x[indices] is x[mask] for a mask of x's shape.
inline bool is_whole_mask(const Tensor& x, const std::vector<Tensor>& indices) {
  return indices.size() == 1 && indices[0].defined() && indices[0].dtype() == boolean &&
         indices[0].shape() == x.shape() && x.ndim() > 0;
}
/// x[mask] = values for such a mask: without the places of the true elements as index arrays. values has one element or
/// one a true place. @throws ShapeError
void put_masked(const char* op, const Tensor& x, const Tensor& mask, const Tensor& values);

}  // namespace tenor::index
