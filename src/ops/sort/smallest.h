// Selection: the k smallest packed values of a row, in a buffer that is cut back to k whenever it fills.
#pragma once

#include <algorithm>
#include <bit>

#include "src/ops/sort/packed.h"
#include "src/ops/sort/sample.h"

namespace tenor::cpu {

/// Most elements never get into the buffer, since vectors compare with a bound first. For small k that is the k-th
/// smallest of the minima of 2k interleaved groups, which k elements at least do not exceed and in any common order few
/// others either; for large k a sample gives a likely one. Either comes down whenever the buffer is cut.
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
    if (last - first >= 8 * k_ && last - first >= 128 && bound_scan(x, stride, first, last, code)) return;
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
  static constexpr int64_t kMostGroups = 256;

  /// The k-th smallest of the minima of groups of elements [first, last): k elements at least are not above it.
  template <class K>
  K group_bound(const K* x, int64_t stride, int64_t first, int64_t last, KeyCode code) const {
    K block[kKeyBlock] = {}, minima[kMostGroups];
    const size_t groups = std::max(64 / sizeof(K), std::bit_ceil(static_cast<size_t>(2 * k_)));
    std::fill_n(minima, groups, static_cast<K>(~K(0)));
    for (int64_t done = first; done < last; done += kKeyBlock) {
      const int64_t count = std::min(kKeyBlock, last - done);
      lower_minima(side_by_side(x, stride, done, count, block), static_cast<size_t>(count), code, minima, groups);
    }
    std::nth_element(minima, minima + k_ - 1, minima + groups);
    return minima[k_ - 1];
  }

  /// Scans below a bound found beforehand. False, and nothing offered, when that was too low or bounds nothing.
  template <class K>
  bool bound_scan(const K* x, int64_t stride, int64_t first, int64_t last, KeyCode code) {
    const K bound = 2 * k_ <= kMostGroups ? group_bound(x, stride, first, last, code)
                                          : Sample<K>(x, stride, first, last, code).high(k_, 3);
    if (bound == static_cast<K>(~K(0))) return false;
    bound_ = pack<P>(static_cast<uint64_t>(bound) + 1, 0);
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
