#include "src/core/modes.h"

#include <utility>

namespace tenor {
namespace {
thread_local bool invariant = false;
thread_local bool tf32 = false;
}  // namespace

BatchInvariantGuard::BatchInvariantGuard(bool on) : previous_(std::exchange(invariant, on)) {}
BatchInvariantGuard::~BatchInvariantGuard() { invariant = previous_; }
bool allow_tf32(bool on) { return std::exchange(tf32, on); }

namespace core {
bool batch_invariant() { return invariant; }
bool tf32_allowed() { return tf32; }
}  // namespace core

}  // namespace tenor
