// Selection: the k smallest packed values of a stream, in a buffer that is cut back to k whenever it fills.
#pragma once

#include "src/ops/sort/packed.h"

namespace tenor::cpu {

/// The buffer holds 2k values or more; once full, its k-th smallest bounds what still enters, so a row in random order
/// lets only k log(n / k) elements in and the rest is passed over by vectors.
template <class P>
class Smallest {
 public:
  static int64_t capacity(int64_t k) { return 2 * k + 16; }

  Smallest(P* buffer, int64_t k) : buffer_(buffer), k_(k) {}

  void push(P p) {
    if (bounded_ && p >= bound_) return;
    buffer_[size_++] = p;
    if (size_ == capacity(k_)) cut();
  }

  /// Offers elements [first, last) of a row.
  template <class K>
  void scan(const K* x, int64_t stride, int64_t first, int64_t last, KeyCode code) {
    K block[kKeyBlock], keys[kKeyBlock];
    uint32_t places[kKeyBlock];
    if (const int64_t free = std::min(capacity(k_) - size_, last - first); !bounded_) {
      each_key(x, stride, first, free, code, [&](int64_t i, K key) { buffer_[size_++] = pack<P>(key, i); });
      first += free;
      if (size_ == capacity(k_)) cut();
    }
    for (int64_t done = first; done < last; done += kKeyBlock) {
      const int64_t count = std::min(kKeyBlock, last - done);
      const K* bits = side_by_side(x, stride, done, count, block);
      // Strictly below: an equal key that comes later stands behind the bound.
      const size_t found = find_below(bits, static_cast<size_t>(count), code, static_cast<K>(key_of(bound_)), places, keys);
      for (size_t i = 0; i < found; ++i) push(pack<P>(keys[i], done + places[i]));
    }
  }

  /// The k smallest in order; at least k were offered.
  const P* sorted() {
    if (size_ > k_) cut();
    std::sort(buffer_, buffer_ + k_);
    return buffer_;
  }

 private:
  void cut() {
    std::nth_element(buffer_, buffer_ + k_ - 1, buffer_ + size_);
    size_ = k_;
    bound_ = buffer_[k_ - 1];
    bounded_ = true;
  }

  P* buffer_;
  int64_t k_, size_ = 0;
  P bound_ = 0;
  bool bounded_ = false;
};

}  // namespace tenor::cpu
