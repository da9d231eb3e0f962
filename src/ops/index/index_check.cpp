#include "src/ops/index/index_check.h"

#include <atomic>

#include "src/core/backend.h"
#include "src/core/visit.h"
#include "src/cpu/parallel.h"

namespace tenor::index {
namespace {

/// Whether the value names one of n places, from the end when below 0.
template <class T>
bool in_range(T value, int64_t n, bool from_zero) {
  if constexpr (std::is_unsigned_v<T>) return value < static_cast<uint64_t>(n);
  const auto v = static_cast<int64_t>(value);
  return v < n && v >= (from_zero ? 0 : -n);
}

/// What a pass over the entries found.
struct Findings {
  std::atomic<bool> bad{false}, negative{false};
};

/// Converts entries to 0..n-1 at `to`, or only looks at them when `to` is null. Comparisons are made by sign bits of
/// differences, which vectorise for any instruction set; where a difference wraps the entry is out of range anyway.
template <class T>
void convert(const T* from, int64_t* to, int64_t count, int64_t n, bool from_zero, Findings& found) {
  const auto size = static_cast<uint64_t>(n), below = std::is_unsigned_v<T> || from_zero ? 0 : size;
  cpu::parallel_for(count, cpu::grain_of(sizeof(T) + 8), [&](int64_t begin, int64_t end) {
    uint64_t outside = 0, negative = 0;
    for (int64_t i = begin; i < end; ++i) {
      const auto v = static_cast<uint64_t>(static_cast<int64_t>(from[i]));
      outside |= (v + below) | (size - 1 - v);
      negative |= v;
    }
    if (outside >> 63) found.bad = true;
    if (negative >> 63) found.negative = true;
    if (!to || outside >> 63) return;
    for (int64_t i = begin; i < end; ++i) {
      const auto v = static_cast<int64_t>(from[i]);
      to[i] = v + (v >> 63 & n);
    }
  });
}

/// Names the first bad entry.
template <class T>
[[noreturn]] void report(const char* op, const char* argument, const Tensor& dense, int64_t n, bool from_zero) {
  const T* from = dense.data<T>();
  int64_t i = 0;
  while (in_range(from[i], n, from_zero)) ++i;
  Dims at = dense.shape();
  int64_t rest = i;
  for (size_t d = at.size(); d-- > 0;) {
    const int64_t size = at[d];
    at[d] = rest % size;
    rest /= size;
  }
  if (n == 0) core::fail<IndexError>("{}: {} at {} is {}, but size 0 has no valid index", op, argument, at, +from[i]);
  core::fail<IndexError>("{}: {} at {} is {}, out of range for size {} (expected {} to {})", op, argument, at, +from[i],
                         n, from_zero ? 0 : -n, n - 1);
}

}  // namespace

Tensor checked_indices(const char* op, const char* argument, const Tensor& index, int64_t n, bool from_zero) {
  const Tensor dense = index.contiguous();
  if (core::on_cuda(index)) return dense;
  const int64_t count = dense.numel();
  return core::visit_integer(dense.dtype(), [&]<class T>() {
    Findings found;
    if constexpr (std::is_same_v<T, int64_t>) {
      convert<T>(dense.data<T>(), nullptr, count, n, from_zero, found);
      if (!found.bad && !found.negative) return dense;
    }
    if (found.bad) report<T>(op, argument, dense, n, from_zero);
    Tensor out = Tensor::empty(dense.shape(), int64, dense.device());
    convert<T>(dense.data<T>(), out.data<int64_t>(), count, n, from_zero, found);
    if (found.bad) report<T>(op, argument, dense, n, from_zero);
    return out;
  });
}

}  // namespace tenor::index
