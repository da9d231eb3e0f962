#include "src/ops/sort/unique_bins.h"

#include <algorithm>

#include "src/core/visit.h"
#include "src/cpu/parallel.h"

namespace tenor {
namespace {

constexpr int64_t kPart = 1 << 15;       // elements worth a thread
constexpr uint64_t kMostBins = 1 << 20;  // beyond, they leave the caches, and a sort is as fast

struct Range {
  uint64_t low, high;
};

/// The least and the greatest of x [n], n > 0.
template <class T>
Range range_of(const T* x, int64_t n) {
  const int64_t parts = (n + kPart - 1) / kPart;
  std::vector<T> lows(static_cast<size_t>(parts)), highs(static_cast<size_t>(parts));
  cpu::parallel_for(parts, 1, [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) {
      T low = x[p * kPart], high = low;
      for (int64_t i = p * kPart, last = std::min(n, i + kPart); i < last; ++i)
        low = std::min(low, x[i]), high = std::max(high, x[i]);
      lows[static_cast<size_t>(p)] = low, highs[static_cast<size_t>(p)] = high;
    }
  });
  return {static_cast<uint64_t>(*std::min_element(lows.begin(), lows.end())),
          static_cast<uint64_t>(*std::max_element(highs.begin(), highs.end()))};
}

/// Adds one to the bin of every element. Every thread counts into its own bins where these are few beside its elements.
template <class T>
void add_up(const T* x, int64_t n, uint64_t low, std::vector<int64_t>& bins) {
  const int64_t size = static_cast<int64_t>(bins.size());
  const int64_t chunks = std::clamp<int64_t>(n / std::max(kPart, 4 * size), 1, num_threads());
  std::vector<int64_t> own(static_cast<size_t>((chunks - 1) * size));
  cpu::parallel_for(chunks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; ++c) {
      int64_t* to = c == 0 ? bins.data() : own.data() + (c - 1) * size;
      for (int64_t i = n * c / chunks, last = n * (c + 1) / chunks; i < last; ++i)
        ++to[static_cast<uint64_t>(x[i]) - low];
    }
  });
  for (int64_t c = 1; c < chunks; ++c)
    for (int64_t b = 0; b < size; ++b) bins[static_cast<size_t>(b)] += own[static_cast<size_t>((c - 1) * size + b)];
}

}  // namespace

std::optional<IntegerBins> IntegerBins::of(const Tensor& x) {
  std::optional<IntegerBins> made;
  if (is_float(x.dtype()) || x.dtype() == boolean || x.numel() == 0) return made;
  core::visit_integer(x.dtype(), [&]<class T>() {
    const int64_t n = x.numel();
    const Range range = range_of(x.data<T>(), n);
    const uint64_t span = range.high - range.low;
    if (span >= std::min<uint64_t>(kMostBins, static_cast<uint64_t>(n))) return;
    made.emplace();
    made->low_ = range.low;
    made->bins_.resize(span + 1);
    add_up(x.data<T>(), n, range.low, made->bins_);
    made->count_ = static_cast<int64_t>(made->bins_.size()) - std::count(made->bins_.begin(), made->bins_.end(), 0);
  });
  return made;
}

void IntegerBins::write(const Tensor& x, const Tensor& values, int64_t* inverse, int64_t* counts) const {
  core::visit_integer(x.dtype(), [&]<class T>() {
    T* to = values.data<T>();
    std::vector<int64_t> places(inverse ? bins_.size() : 0);
    int64_t group = 0;
    for (size_t b = 0; b < bins_.size(); ++b) {
      if (bins_[b] == 0) continue;
      to[group] = static_cast<T>(low_ + b);
      if (counts) counts[group] = bins_[b];
      if (inverse) places[b] = group;
      ++group;
    }
    if (!inverse) return;
    const T* from = x.data<T>();
    cpu::parallel_for(x.numel(), kPart, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) inverse[i] = places[static_cast<uint64_t>(from[i]) - low_];
    });
  });
}

}  // namespace tenor
