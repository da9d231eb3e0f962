// Threads of CPU operators.
#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>

namespace tenor::cpu {

/// A reference to a callable, without owning it.
template <class Signature>
class FunctionRef;
template <class R, class... Args>
class FunctionRef<R(Args...)> {
 public:
  template <class F>
  requires(!std::is_same_v<std::remove_cvref_t<F>, FunctionRef>) FunctionRef(F&& fn)
      : object_(const_cast<void*>(static_cast<const void*>(std::addressof(fn)))),
        call_([](void* object, Args... args) -> R {
          return (*static_cast<std::remove_reference_t<F>*>(object))(args...);
        }) {}
  R operator()(Args... args) const { return call_(object_, args...); }

 private:
  void* object_;
  R (*call_)(void*, Args...);
};

/// Calls fn(begin, end) over a partition of [0, n) into at most num_threads() ranges of at least `grain` items.
/// Serial when one range suffices (or, of items so light that many make a range, few do), inside another parallel_for,
/// and after fork(). An exception of fn reaches the caller.
/// Results must not depend on the partition: it changes with the thread count.
void parallel_for(int64_t n, int64_t grain, FunctionRef<void(int64_t, int64_t)> fn);

/// The number of items of which one is worth a thread's start, when an item costs about `bytes` bytes of traffic.
inline int64_t grain_of(int64_t bytes) { return bytes >= 32768 ? 1 : 32768 / (bytes > 0 ? bytes : 1); }

}  // namespace tenor::cpu
