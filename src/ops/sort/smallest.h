// Selection: the k smallest packed values of a row, in a buffer that is cut back to k whenever it fills.
#pragma once

#include "src/ops/sort/packed.h"
#include "src/ops/sort/sample.h"

namespace tenor::cpu {

/// Once the buffer is full its k-th smallest bounds what still enters, so a row in random order lets only about
/// k log(n / k) elements in and vectors pass over the rest.
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

  /// Offers elements [first, last) of a row, at least k.
  template <class K>
  void scan(const K* x, int64_t stride, int64_t first, int64_t last, KeyCode code) {
    if (k_ >= kGuessed && last - first >= kSampled && scan_guessed(x, stride, first, last, code)) return;
    const int64_t begun = std::min(capacity(k_), last - first);
    each_key(x, stride, first, begun, code, [&](int64_t i, K key) { buffer_[size_++] = pack<P>(key, i); });
    if (size_ == capacity(k_)) cut();
    scan_bounded(x, stride, first + begun, last, code);
  }

  /// The k smallest, at the buffer's beginning in any order.
  P* any_order() {
    if (size_ > k_) cut();
    return buffer_;
  }
  P* in_order() {
    std::sort(any_order(), buffer_ + k_);
    return buffer_;
  }

 private:
  static constexpr int64_t kGuessed = 128;

  /// For large k the bound would take long to come down: starts from a likely one. False when it was too low.
  template <class K>
  bool scan_guessed(const K* x, int64_t stride, int64_t first, int64_t last, KeyCode code) {
    bound_ = pack<P>(Sample<K>(x, stride, first, last, code).high(k_, 3), 0);
    bounded_ = true;
    scan_bounded(x, stride, first, last, code);
    if (size_ >= k_) return true;
    size_ = 0;
    bounded_ = false;
    return false;
  }

  template <class K>
  void scan_bounded(const K* x, int64_t stride, int64_t first, int64_t last, KeyCode code) {
    K block[kKeyBlock], keys[kKeyBlock];
    uint32_t places[kKeyBlock];
    for (int64_t done = first; done < last; done += kKeyBlock) {
      const int64_t count = std::min(kKeyBlock, last - done);
      const K* bits = side_by_side(x, stride, done, count, block);
      // Strictly below: an equal key that comes later stands behind the bound.
      const size_t found =
          find_below(bits, static_cast<size_t>(count), code, static_cast<K>(key_of(bound_)), places, keys);
      for (size_t i = 0; i < found; ++i) push(pack<P>(keys[i], done + places[i]));
    }
  }

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
