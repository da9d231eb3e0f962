#include "tenor/tensor.h"

#include "src/core/backend.h"
#include "src/core/check.h"
#include "src/core/numeric.h"
#include "src/core/read_observer.h"
#include "src/core/step.h"
#include "src/core/tensor_allocator.h"
#include "src/core/text.h"
#include "src/core/visit.h"

namespace tenor {
namespace {

/// Whether the sizes times `unit` can be counted in 64 bits. A zero among them hides nothing: every order of
/// multiplying must be safe.
bool countable(const Dims& shape, int64_t unit) {
  for (int64_t size : shape)
    if (size > 0 && __builtin_mul_overflow(unit, size, &unit)) return false;
  return true;
}

void check_sizes(const Dims& shape, DType dtype) {
  if (shape.size() > core::kMaxDims)
    core::fail<ShapeError>("tensor: at most {} dims, got {}", core::kMaxDims, shape.size());
  for (int64_t size : shape)
    if (size < 0) core::fail<ShapeError>("tensor: sizes must be >= 0, got {}", shape);
  if (!countable(shape, static_cast<int64_t>(item_size(dtype))))
    core::fail<OutOfMemoryError>("tensor: shape {} of {} exceeds the address space", shape, dtype);
}

/// The tensor on the host, if it has one element.
Tensor one_element(const Tensor& x) {
  if (x.numel() != 1) core::fail<ShapeError>("item: expected one element, got shape {}", x.shape());
  core::announce_read(x);
  return x.to(kCpu);
}

/// New memory of this thread's allocator.
std::shared_ptr<void> memory_of(const Tensor& x) {
  Allocator& allocator = current_allocator();
  const size_t bytes = x.storage()->bytes;
  if (auto* tensors = dynamic_cast<core::TensorAllocator*>(&allocator))
    return tensors->allocate_tensor({x.shape(), x.strides(), x.dtype(), x.device(), bytes});
  return allocator.allocate(bytes, x.device());
}

}  // namespace

Dims contiguous_strides(const Dims& shape) {
  Dims strides(shape.size(), 1);
  int64_t step = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    strides[i] = step;
    step *= std::max<int64_t>(shape[i], 1);
  }
  return strides;
}

Tensor Tensor::wrap(void* data, Device device, DType dtype, Dims shape, Dims strides, std::shared_ptr<void> owner,
                    bool read_only) {
  check_sizes(shape, dtype);
  if (strides.empty()) strides = contiguous_strides(shape);
  if (strides.size() != shape.size())
    core::fail<ShapeError>("wrap: {} strides for {} dims", strides.size(), shape.size());
  int64_t last = 0, reach = 0;
  bool empty = false, counted = true;
  for (size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] <= 1) {  // whatever was passed there means nothing
      empty = empty || shape[d] == 0;
      strides[d] = contiguous_strides(shape)[d];
    } else if (strides[d] < 0) {
      core::fail<ValueError>("wrap: negative strides are not supported, got {}", strides);
    }
    // One stride more than the last element: views multiply sizes by strides.
    counted = counted && !__builtin_mul_overflow(std::max<int64_t>(shape[d], 1), strides[d], &reach) &&
              !__builtin_add_overflow(last, reach - strides[d], &last);
  }
  // The span in bytes, which layout questions and kernels count in 64 bits.
  counted = counted && last < INT64_MAX / static_cast<int64_t>(item_size(dtype));
  if (!empty && !counted)
    core::fail<ValueError>("wrap: strides {} of shape {} reach beyond 64 bits of bytes", strides, shape);
  Tensor x;
  x.storage_ = std::make_shared<Storage>();
  // The aliasing constructor points at `data` while it keeps `owner` (possibly nothing) alive.
  x.storage_->memory = std::shared_ptr<void>(std::move(owner), data);
  x.storage_->bytes = empty ? 0 : static_cast<size_t>(last + 1) * item_size(dtype);
  x.storage_->device = device;
  x.storage_->read_only = read_only;
  x.shape_ = std::move(shape);
  x.strides_ = std::move(strides);
  x.dtype_ = dtype;
  return x;
}

Tensor Tensor::empty(Dims shape, DType dtype, Device device, Dims strides) {
  check_sizes(shape, dtype);
  Tensor x;
  x.storage_ = std::make_shared<Storage>();
  x.storage_->bytes = static_cast<size_t>(product(shape)) * item_size(dtype);
  x.storage_->device = device;
  x.strides_ = strides.empty() ? contiguous_strides(shape) : std::move(strides);
  x.shape_ = std::move(shape);
  x.dtype_ = dtype;
  if (device.type != DeviceType::kMeta) x.storage_->memory = memory_of(x);
  return x;
}

bool Tensor::is_contiguous() const {
  int64_t step = 1;
  bool dense = true;
  for (size_t i = shape_.size(); i-- > 0;) {
    if (shape_[i] == 0) return true;
    if (shape_[i] != 1) dense = dense && strides_[i] == step;
    step *= shape_[i];
  }
  return dense;
}

Tensor Tensor::with_layout(Dims shape, Dims strides, int64_t offset) const {
  if (!countable(shape, 1)) core::fail<ShapeError>("view: shape {} has more elements than 64 bits can count", shape);
  Tensor x;
  x.storage_ = storage_;
  x.shape_ = std::move(shape);
  x.strides_ = std::move(strides);
  x.offset_ = offset;
  x.dtype_ = dtype_;
  return x;
}

Tensor Tensor::to(Device device) const {
  if (device == this->device()) return *this;
  if (device.type == DeviceType::kMeta)
    core::fail<DeviceError>("to: expected a device with memory, 'cpu', 'cuda' or 'cuda:N', got meta");
  const Device cuda = device.type == DeviceType::kCuda ? device : this->device();
  core::Backend& backend = core::backend(cuda);
  // Dense on its own device first: the copy between devices moves bytes, keeping the dimension order.
  const Dims strides = core::result_strides(shape_, *this);
  const Tensor dense = core::same_strides(shape_, strides, strides_) ? *this : clone();
  Tensor out = empty(shape_, dtype_, device, dense.strides_);
  backend.copy_bytes(out.raw(), device, dense.raw(), dense.device(), static_cast<size_t>(numel()) * item_size(dtype_));
  return out;
}

double Tensor::item_double() const {
  const Tensor x = one_element(*this);
  return core::visit(dtype_, [&]<class T>() { return static_cast<double>(core::widen(*x.data<T>())); });
}

int64_t Tensor::item_int() const {
  const Tensor x = one_element(*this);
  return core::visit(dtype_, [&]<class T>() { return core::cast<int64_t>(*x.data<T>()); });
}

std::string describe(const Tensor& x) { return core::text("tensor({}, {}, {})", x.dtype(), x.shape(), x.device()); }

}  // namespace tenor
