// The reduction order: in which order every float reduction of the CPU adds (or multiplies) its elements. Eager operators,
// row operators and fused kernels all follow it, so their bits agree, whatever the rows beside, the vector width or the
// thread count.
//
// The R elements that meet in one output form a sequence: row-major over the reduced dims, those of larger strides in
// memory first (core::in_memory_order: the logical order of any x that is not transposed, so that no layout costs a
// transposing read). It is cut into blocks of kReductionBlock. In a block, element i goes to lane i % kReductionLanes; a
// lane starts from the identity and takes its elements in order. The lanes meet in a tree of halves: l with l + 16, then
// + 8, + 4, + 2, + 1. The blocks' results meet pairwise, as a binary counter carries: block 0 with 1, 2 with 3, then those
// two, and so on; what is left at the end meets from the youngest to the oldest.
//
// The error of a float32 sum is thus that of about 128 + log2(R) additions, not of R.
#pragma once

#include <cstdint>

namespace tenor::core {

inline constexpr int64_t kReductionLanes = 32;
inline constexpr int64_t kReductionBlock = 4096;

/// The lanes' tree; leaves the result in lanes[0].
template <class T, class Combine>
inline T combine_lanes(T* lanes, Combine combine) {
  for (int64_t half = kReductionLanes / 2; half > 0; half /= 2)
    for (int64_t l = 0; l < half; ++l) lanes[l] = combine(lanes[l], lanes[l + half]);
  return lanes[0];
}

/// The blocks' binary counter.
template <class T>
class BlockCounter {
 public:
  template <class Combine>
  void push(T value, Combine combine) {
    int64_t carry = count_++;
    for (int level = 0; carry & 1; carry >>= 1, ++level) value = combine(slots_[level], value);
    slots_[__builtin_ctzll(static_cast<unsigned long long>(count_))] = value;
  }
  template <class Combine>
  T finish(T identity, Combine combine) const {
    if (count_ == 0) return identity;
    int level = __builtin_ctzll(static_cast<unsigned long long>(count_));
    T value = slots_[level];
    for (++level; (count_ >> level) != 0; ++level)
      if ((count_ >> level) & 1) value = combine(slots_[level], value);
    return value;
  }

 private:
  int64_t count_ = 0;
  T slots_[64];
};

/// The order itself, one element at a time: what the fast kernels are tested against. `at(i)` gives element i.
template <class T, class At, class Combine>
T ordered_reduce(int64_t count, T identity, At at, Combine combine) {
  BlockCounter<T> blocks;
  for (int64_t start = 0; start < count; start += kReductionBlock) {
    const int64_t n = count - start < kReductionBlock ? count - start : kReductionBlock;
    T lanes[kReductionLanes];
    for (T& lane : lanes) lane = identity;
    for (int64_t i = 0; i < n; ++i) lanes[i % kReductionLanes] = combine(lanes[i % kReductionLanes], at(start + i));
    blocks.push(combine_lanes(lanes, combine), combine);
  }
  return blocks.finish(identity, combine);
}

}  // namespace tenor::core
