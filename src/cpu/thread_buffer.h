// Memory that a thread keeps from call to call.
#pragma once

#include <cstdint>
#include <vector>

#include "tenor/tensor.h"

namespace tenor::cpu {

/// Memory for the time of a call, aligned to cache lines; its contents are whatever was there. A thread keeps up to
/// kHeldBytes, which stay in its own caches; sixteen threads that take and give back blocks of one allocator lie in one
/// another's, and wait for its lock. One of a thread at a time.
class ThreadBuffer {
 public:
  static constexpr int64_t kHeldBytes = 1 << 20;

  explicit ThreadBuffer(int64_t bytes) {
    constexpr size_t kLine = 64;
    if (bytes > kHeldBytes) {
      own_ = Tensor::empty({bytes}, uint8);
      data_ = own_.data<char>();
      return;
    }
    thread_local std::vector<char> held;
    if (held.size() < static_cast<size_t>(bytes) + kLine) held.resize(static_cast<size_t>(bytes) + kLine);
    data_ = held.data() + (kLine - reinterpret_cast<uintptr_t>(held.data()) % kLine) % kLine;
  }
  char* data() const { return data_; }

 private:
  Tensor own_;
  char* data_;
};

}  // namespace tenor::cpu
