// Tensor: shared storage seen through a dtype, a shape, strides and an offset. Copying a Tensor copies the handle.
#pragma once

#include <memory>
#include <string>

#include "tenor/allocator.h"
#include "tenor/device.h"
#include "tenor/dims.h"
#include "tenor/dtype.h"
#include "tenor/error.h"

struct DLManagedTensor;
struct DLManagedTensorVersioned;

namespace tenor {

/// One allocation, shared by every view of it.
struct Storage {
  std::shared_ptr<void> memory;
  size_t bytes = 0;
  Device device;
  bool read_only = false;
};

class Tensor {
 public:
  /// No tensor: what an absent optional argument holds. defined() is false.
  Tensor() = default;

  /// A tensor over memory that the caller brings. Empty strides mean row-major. `owner` is kept while views live. A
  /// bool is a byte that is 0 or 1.
  /// @throws ShapeError for a negative size or strides of another length, ValueError for a negative stride or
  /// strides that reach beyond 64 bits of bytes.
  static Tensor wrap(void* data, Device device, DType dtype, Dims shape, Dims strides = {},
                     std::shared_ptr<void> owner = {}, bool read_only = false);
  /// New memory of the current allocator, contents undefined; row-major, or with the given dense strides.
  static Tensor empty(Dims shape, DType dtype, Device device = kCpu, Dims strides = {});
  /// Takes over a DLPack capsule's tensor (old or versioned form), without a copy; calls its deleter when the last view dies.
  /// @throws DTypeError, DeviceError for what Tenor does not hold; UnsupportedError for another major version;
  /// ShapeError, ValueError for a tensor that contradicts itself (ndim, null arrays, byte_offset, strides).
  static Tensor from_dlpack(DLManagedTensor* managed);
  static Tensor from_dlpack(DLManagedTensorVersioned* managed);
  /// A capsule's tensor that shares this memory; the receiver calls its deleter.
  DLManagedTensor* to_dlpack() const;
  DLManagedTensorVersioned* to_dlpack_versioned() const;

  bool defined() const { return storage_ != nullptr; }
  explicit operator bool() const { return defined(); }
  const Dims& shape() const { return shape_; }
  const Dims& strides() const { return strides_; }  ///< in elements; of a size-1 dim it carries no meaning
  int64_t shape(int dim) const { return shape_[dim < 0 ? dim + ndim() : dim]; }
  int64_t stride(int dim) const { return strides_[dim < 0 ? dim + ndim() : dim]; }
  int64_t offset() const { return offset_; }  ///< in elements, from the storage's first byte
  DType dtype() const { return dtype_; }
  Device device() const { return storage_ ? storage_->device : kCpu; }
  int ndim() const { return static_cast<int>(shape_.size()); }
  int64_t numel() const { return product(shape_); }
  bool read_only() const { return storage_ && storage_->read_only; }
  /// Row-major without gaps, strides of dims of size 1 ignored; true for empty tensors.
  bool is_contiguous() const;
  /// The first element.
  void* raw() const { return static_cast<char*>(storage_->memory.get()) + offset_ * static_cast<int64_t>(item_size(dtype_)); }
  /// The first element as T*; the caller vouches for the dtype.
  template <class T>
  T* data() const {
    return static_cast<T*>(raw());
  }
  const std::shared_ptr<Storage>& storage() const { return storage_; }

  /// The same memory under another shape, strides and offset. Unchecked: for view operators.
  Tensor with_layout(Dims shape, Dims strides, int64_t offset) const;

  /// Itself when row-major, else a row-major copy.
  Tensor contiguous() const;
  /// A copy in new memory with the same dense dimension order.
  Tensor clone() const;
  /// Converted to that dtype, rounding once; itself when it already is (see elementwise.h).
  Tensor to(DType dtype) const;
  /// Moved to that device; itself when it already is there.
  Tensor to(Device device) const;

  /// The value of a one-element tensor. @throws ShapeError for any other count.
  double item_double() const;
  int64_t item_int() const;

 private:
  std::shared_ptr<Storage> storage_;
  Dims shape_, strides_;
  int64_t offset_ = 0;
  DType dtype_ = DType::kFloat32;
};

/// Row-major strides of a shape.
Dims contiguous_strides(const Dims& shape);
/// "tensor(float32, (2, 3), cpu)": what error texts and repr start from.
std::string describe(const Tensor& x);

}  // namespace tenor
