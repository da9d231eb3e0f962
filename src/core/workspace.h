// Memory dealt out of one piece, by places that depend on the sequence of calls alone: what a measuring run counts is
// what the run with a workspace takes.
#pragma once

#include <map>
#include <memory>
#include <mutex>

#include "tenor/allocator.h"

namespace tenor::core {

class Arena final : public Allocator, public std::enable_shared_from_this<Arena> {
 public:
  /// Deals out `bytes` bytes from `base`. Without a base it only counts, and `outer` gives the memory.
  Arena(const char* op, Device device, void* base, size_t bytes, Allocator& outer)
      : op_(op), device_(device), base_(static_cast<char*>(base)), bytes_(bytes), outer_(outer) {}

  /// @throws ShapeError when the workspace is used up
  std::shared_ptr<void> allocate(size_t bytes, Device device) override;
  Allocator& outer() const { return outer_; }
  size_t peak();  ///< the most that was in use, gaps included

 private:
  size_t place(size_t bytes);
  void release(size_t start);

  const char* op_;
  Device device_;
  char* base_;
  size_t bytes_;
  Allocator& outer_;
  std::mutex mutex_;               // a block may be dropped by another thread
  std::map<size_t, size_t> used_;  // start: end
  size_t peak_ = 0;
};

/// For results: the allocator below this thread's workspace, where there is one.
Allocator& result_allocator();

}  // namespace tenor::core
