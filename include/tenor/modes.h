// Modes of a thread: batch invariance and TF32.
#pragma once

namespace tenor {

/// While it lives, every row's bits are independent of the other rows of the batch, for every operator of this thread;
/// an operator that cannot promise it throws UnsupportedError. Contractions then take a kernel with a fixed K order.
class BatchInvariantGuard {
 public:
  explicit BatchInvariantGuard(bool on = true);
  ~BatchInvariantGuard();
  BatchInvariantGuard(const BatchInvariantGuard&) = delete;
  BatchInvariantGuard& operator=(const BatchInvariantGuard&) = delete;

 private:
  bool previous_;
};

/// Lets float32 contractions of this thread run in plain TF32 where a device has it. Returns the previous setting.
bool allow_tf32(bool on);

}  // namespace tenor
