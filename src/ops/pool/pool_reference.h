// Pooling in float64, from lists of what each output reads: what the kernels are tested against.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace tenor::reference {

/// One spatial dim: for each output the inputs that it reads, and how many taps lie in the padded input.
struct PoolAxis {
  int64_t size = 1;
  std::vector<std::vector<int64_t>> reads;
  std::vector<int64_t> padded;
};

/// Windows are laid one after the other as long as they fit; with ceil_mode one more where the last left padded inputs
/// unread, unless it would begin behind the input.
inline PoolAxis pool_windows(int64_t size, int64_t kernel, int64_t stride, int64_t padding, int64_t dilation,
                             bool ceil_mode) {
  PoolAxis axis{size, {}, {}};
  const int64_t end = size + padding;
  int64_t read_to = -padding;  // one past the last padded input that a window reached
  for (int64_t start = -padding;; start += stride) {
    const int64_t last = start + (kernel - 1) * dilation;
    const bool more = ceil_mode && start < size && (start == -padding ? last - stride < end - 1 : read_to < end);
    if (last >= end && !more) break;
    std::vector<int64_t> reads;
    int64_t padded = 0;
    for (int64_t k = 0; k < kernel; ++k) {
      const int64_t at = start + k * dilation;
      if (at >= 0 && at < size) reads.push_back(at);
      if (at < end) ++padded;
    }
    axis.reads.push_back(reads);
    axis.padded.push_back(padded);
    read_to = last + 1;
  }
  return axis;
}
inline PoolAxis pool_bins(int64_t size, int64_t count) {
  PoolAxis axis{size, {}, {}};
  for (int64_t i = 0; i < count; ++i) {
    std::vector<int64_t> reads;
    for (int64_t at = 0; at < size; ++at)
      if ((at + 1) * count > i * size && at * count < (i + 1) * size) reads.push_back(at);
    axis.reads.push_back(reads);
    axis.padded.push_back(static_cast<int64_t>(reads.size()));
  }
  return axis;
}

/// A window of a plane: the flat indices that it reads, in order, and its divisors.
struct PoolWindow {
  std::vector<int64_t> reads;
  int64_t padded;
};
/// Every window of a plane, row-major over the outputs.
inline std::vector<PoolWindow> pool_windows_of(const std::vector<PoolAxis>& axes) {
  std::vector<PoolWindow> all{{{0}, 1}};
  for (const PoolAxis& axis : axes) {
    std::vector<PoolWindow> next;
    for (const PoolWindow& outer : all)
      for (size_t o = 0; o < axis.reads.size(); ++o) {
        PoolWindow w{{}, outer.padded * axis.padded[o]};
        for (const int64_t base : outer.reads)
          for (const int64_t at : axis.reads[o]) w.reads.push_back(base * axis.size + at);
        next.push_back(w);
      }
    all = next;
  }
  return all;
}

struct PoolBest {
  double value;
  int64_t index;
};
inline PoolBest pool_max(const PoolWindow& w, const double* plane, double lowest) {
  PoolBest best{lowest, -1};
  for (const int64_t at : w.reads)
    if (best.index < 0 || (!std::isnan(best.value) && (std::isnan(plane[at]) || plane[at] > best.value)))
      best = {plane[at], at};
  return best;
}

inline double pool_sum(const PoolWindow& w, const double* plane) {
  double sum = 0;
  for (const int64_t at : w.reads) sum += plane[at];
  return sum;
}

inline double pool_norm(const PoolWindow& w, const double* plane, double p) {
  double sum = 0, largest = 0;
  for (const int64_t at : w.reads) {
    sum += std::pow(std::abs(plane[at]), p);
    if (std::isnan(plane[at]) || std::abs(plane[at]) > largest) largest = std::abs(plane[at]);
  }
  return std::isinf(p) ? largest : std::pow(sum, 1 / p);
}

}  // namespace tenor::reference
