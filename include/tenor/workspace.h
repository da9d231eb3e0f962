// Workspace: the memory that an operator needs besides its results. Operators take it from the allocator (a
// stream-ordered pool on CUDA), or from the caller: with out= and a workspace an operator on CUDA allocates nothing.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include "tenor/allocator.h"
#include "tenor/tensor.h"

namespace tenor {

namespace core {
class Arena;
}

/// While it lives, what operators of this thread allocate on the workspace's device comes out of it; results that are
/// not given by out= still come from the allocator. A workspace belongs to one stream at a time.
///
///     const size_t bytes = workspace_size(x.device(), [&] { sort(x, {.out = out}); });
///     const Tensor workspace = Tensor::empty({bytes}, uint8, x.device());
///     { const WorkspaceGuard guard(workspace); sort(x, {.out = out}); }
///
/// A workspace that is too small is ShapeError where the operator runs out of it. On the CPU, whose threads have memory
/// of their own, operators leave it alone.
/// @throws DTypeError unless it is uint8, ValueError unless it is contiguous, writable and starts at a multiple of 256
/// bytes
class WorkspaceGuard {
 public:
  explicit WorkspaceGuard(const Tensor& workspace, const char* op = "workspace");
  ~WorkspaceGuard();
  WorkspaceGuard(const WorkspaceGuard&) = delete;
  WorkspaceGuard& operator=(const WorkspaceGuard&) = delete;

 private:
  std::shared_ptr<core::Arena> arena_, previous_;
  std::unique_ptr<AllocatorGuard> allocator_;
};

/// Bytes of workspace that the operators in fn need on that device, all of them with out=: exactly what WorkspaceGuard
/// then takes. Nothing is computed: on CUDA, fn is captured in a graph that is thrown away. 0 on the CPU. `prepare`
/// runs before it, unmeasured.
/// @throws UnsupportedError for operators that wait for the device, and whatever fn throws
size_t workspace_size(Device device, const std::function<void()>& fn, const std::function<void()>& prepare = {});

}  // namespace tenor
