#include "src/core/workspace.h"

#include <algorithm>
#include <cstdint>

#include "src/core/check.h"
#include "src/core/output.h"
#include "tenor/workspace.h"

#if TENOR_HAS_CUDA
#include "src/cuda/capture.h"
#endif

namespace tenor {
namespace core {
namespace {

constexpr size_t kAlignment = 256;

thread_local std::shared_ptr<Arena> current_arena;

}  // namespace

std::shared_ptr<void> Arena::allocate(size_t bytes, Device device) {
  if (device != device_) return outer_.allocate(bytes, device);
  std::shared_ptr<void> memory = base_ ? nullptr : outer_.allocate(bytes, device);
  const size_t start = place(bytes);
  void* address = base_ ? base_ + start : memory.get();
  return {address, [self = shared_from_this(), start, memory](void*) { self->release(start); }};
}

size_t Arena::place(size_t bytes) {
  const size_t size = std::max((bytes + kAlignment - 1) / kAlignment * kAlignment, kAlignment);
  std::lock_guard lock(mutex_);
  size_t start = 0;
  for (const auto& [first, end] : used_) {  // the first gap that holds it
    if (first - start >= size) break;
    start = end;
  }
  if (base_ && start + size > bytes_)
    fail<ShapeError>("{}: workspace has {} bytes, expected {} at least (tenor.workspace_size says how many)", op_,
                     bytes_, start + size);
  used_[start] = start + size;
  peak_ = std::max(peak_, start + size);
  return start;
}

void Arena::release(size_t start) {
  std::lock_guard lock(mutex_);
  used_.erase(start);
}

size_t Arena::peak() {
  std::lock_guard lock(mutex_);
  return peak_;
}

Allocator& result_allocator() { return current_arena ? current_arena->outer() : current_allocator(); }

}  // namespace core

WorkspaceGuard::WorkspaceGuard(const Tensor& workspace, const char* op) : previous_(core::current_arena) {
  core::check_dtype(op, {"workspace", workspace}, uint8);
  core::check_writable(op, "workspace", workspace);
  if (!workspace.is_contiguous()) core::fail<ValueError>("{}: workspace must be contiguous", op);
  if (workspace.device().type != DeviceType::kCuda) return;
  if (reinterpret_cast<uintptr_t>(workspace.raw()) % core::kAlignment != 0)
    core::fail<ValueError>("{}: workspace must start at a multiple of {} bytes", op, core::kAlignment);
  arena_ = std::make_shared<core::Arena>(op, workspace.device(), workspace.raw(),
                                         static_cast<size_t>(workspace.numel()), core::result_allocator());
  core::current_arena = arena_;
  allocator_ = std::make_unique<AllocatorGuard>(arena_.get());
}

WorkspaceGuard::~WorkspaceGuard() {
  allocator_.reset();
  core::current_arena = previous_;
}

size_t workspace_size(Device device, [[maybe_unused]] const std::function<void()>& fn,
                      [[maybe_unused]] const std::function<void()>& prepare) {
  if (device.type != DeviceType::kCuda) return 0;
#if TENOR_HAS_CUDA
  const auto arena = std::make_shared<core::Arena>("workspace_size", device, nullptr, 0, default_allocator());
  cuda::capture_in_vain(device, [&] {
    const AllocatorGuard own(&default_allocator());  // not another library's, which knows nothing of this capture
    if (prepare) prepare();
    const AllocatorGuard measured(arena.get());
    fn();
  });
  return arena->peak();
#else
  core::fail<DeviceError>("workspace_size: this build of Tenor does not serve {}", device);
#endif
}

}  // namespace tenor
