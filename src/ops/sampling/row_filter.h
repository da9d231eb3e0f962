// Where a row is cut: its tokens in descending order (lower index first on ties), as the sort family orders them, kept
// up to a rank, or up to a mass. Nothing is sorted but the one bin of keys that the cut falls into.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "src/cpu/parallel.h"
#include "src/ops/sampling/random.h"
#include "src/ops/sort/key.h"
#include "tenor/device.h"

namespace tenor::cpu {

/// Calls fn(part, begin, end) for the parts of [0, n), side by side on the threads where a row is long enough.
template <class F>
void each_part(int64_t n, F&& fn) {
  constexpr int64_t kLeast = 1 << 14;
  const int64_t parts = std::clamp<int64_t>(n / kLeast, 1, num_threads());
  // Blocks of kTokens are never divided.
  const auto bound = [&](int64_t p) { return p == parts ? n : n * p / parts / 1024 * 1024; };
  parallel_for(parts, 1, [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) fn(p, bound(p), bound(p + 1));
  });
}
inline int64_t part_count() { return num_threads(); }

/// The last token kept: those with a lower key (keys descend in value), and of its own key up to its index.
template <class K>
struct Cut {
  K key = static_cast<K>(~K(0));
  int64_t index = INT64_MAX;
  bool keeps(K k, int64_t i) const { return k < key || (k == key && i <= index); }
  bool operator<(const Cut& o) const { return key != o.key ? key < o.key : index < o.index; }
};

/// A row's keys (encode with descending) and weights, cut by rank or mass.
template <class C, class K>
class RowFilter {
 public:
  RowFilter(const K* keys, const C* weights, int64_t n)
      : keys_(keys), weights_(weights), n_(n), scale_(static_cast<C>(std::ldexp(1.0, sampling::mass_bits(n)))) {
    count();
  }

  uint64_t total() const {
    uint64_t sum = 0;
    for (uint64_t m : masses_) sum += m;
    return sum;
  }

  /// The first k tokens, 0 < k < n. Adds their mass to *mass.
  Cut<K> cut_rank(int64_t k, uint64_t* mass) const {
    size_t bin = 0;
    for (; counts_[bin] < k; ++bin) k -= counts_[bin], *mass += masses_[bin];
    std::vector<Token> tokens = tokens_of(bin);
    std::nth_element(tokens.begin(), tokens.begin() + (k - 1), tokens.end());
    for (int64_t i = 0; i < k; ++i) *mass += mass_at(tokens[i].index);
    return {tokens[k - 1].key, tokens[k - 1].index};
  }

  /// The tokens before which lies a mass of at most `limit`.
  Cut<K> cut_mass(uint64_t limit) const {
    uint64_t before = 0;
    size_t bin = 0;
    for (; bin < kBins && before + masses_[bin] <= limit; ++bin) before += masses_[bin];
    if (bin == kBins) return {};
    std::vector<Token> tokens = tokens_of(bin);
    std::sort(tokens.begin(), tokens.end());
    size_t i = 0;
    for (; before + mass_at(tokens[i].index) <= limit; ++i) before += mass_at(tokens[i].index);
    return {tokens[i].key, tokens[i].index};
  }

  /// The places of the tokens kept, rising.
  std::vector<int64_t> kept(const Cut<K>& cut) const {
    std::vector<std::vector<int64_t>> found(static_cast<size_t>(part_count()));
    each_part(n_, [&](int64_t part, int64_t begin, int64_t end) { found[part] = kept_in(cut, begin, end); });
    for (size_t p = 1; p < found.size(); ++p) found[0].insert(found[0].end(), found[p].begin(), found[p].end());
    return std::move(found[0]);
  }

 private:
  static constexpr int kBits = sizeof(K) == 1 ? 8 : 11, kShift = 8 * sizeof(K) - kBits;
  static constexpr size_t kBins = size_t{1} << kBits;

  struct Token {
    K key;
    int64_t index;
    bool operator<(const Token& o) const { return key != o.key ? key < o.key : index < o.index; }
  };

  uint64_t mass_at(int64_t i) const { return sampling::mass_of(weights_[i], scale_); }

  void count() {
    std::vector<std::vector<int64_t>> counts(static_cast<size_t>(part_count()));
    std::vector<std::vector<uint64_t>> masses(counts.size());
    each_part(n_, [&](int64_t part, int64_t begin, int64_t end) {
      counts[part].assign(kBins, 0);
      masses[part].assign(kBins, 0);
      for (int64_t i = begin; i < end; ++i) {
        const size_t bin = keys_[i] >> kShift;
        ++counts[part][bin];
        masses[part][bin] += mass_at(i);
      }
    });
    counts_ = std::move(counts[0]);
    masses_ = std::move(masses[0]);
    for (size_t p = 1; p < counts.size(); ++p)
      for (size_t b = 0; b < counts[p].size(); ++b) counts_[b] += counts[p][b], masses_[b] += masses[p][b];
  }

  std::vector<Token> tokens_of(size_t bin) const {
    std::vector<Token> tokens;
    tokens.reserve(static_cast<size_t>(counts_[bin]));
    const K low = static_cast<K>(static_cast<K>(bin) << kShift), high = static_cast<K>(low + (K(1) << kShift) - 1);
    uint32_t places[kKeyBlock];
    K keys[kKeyBlock];
    for (int64_t first = 0; first < n_; first += kKeyBlock) {
      size_t lower = 0;
      const size_t found = find_between(keys_ + first, static_cast<size_t>(std::min(kKeyBlock, n_ - first)), kPlain,
                                        low, high, places, keys, &lower);
      for (size_t i = 0; i < found; ++i) tokens.push_back({keys[i], first + places[i]});
    }
    return tokens;
  }

  std::vector<int64_t> kept_in(const Cut<K>& cut, int64_t begin, int64_t end) const {
    std::vector<int64_t> out;
    uint32_t places[kKeyBlock];
    K keys[kKeyBlock];
    for (int64_t first = begin; first < end; first += kKeyBlock) {
      size_t lower = 0;
      const size_t found = find_between(keys_ + first, static_cast<size_t>(std::min(kKeyBlock, end - first)), kPlain,
                                        K(0), cut.key, places, keys, &lower);
      for (size_t i = 0; i < found; ++i)
        if (cut.keeps(keys[i], first + places[i])) out.push_back(first + places[i]);
    }
    return out;
  }

  static constexpr KeyCode kPlain{KeyKind::kUnsigned, 0, false};

  const K* keys_;
  const C* weights_;
  int64_t n_;
  C scale_;
  std::vector<int64_t> counts_;
  std::vector<uint64_t> masses_;
};

}  // namespace tenor::cpu
