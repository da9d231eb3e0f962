// Resampling by weighted sums: every input row that a strip reads is resampled along W (and depth) once and kept in a
// ring of rows, of which the output rows are sums.
#include <algorithm>
#include <memory>
#include <vector>

#include "src/core/visit.h"
#include "src/ops/interpolate/resample_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/ops/interpolate/resample_cpu.cpp"
#include "hwy/foreach_target.h"
#include "src/cpu/lanes-inl.h"
#include "src/ops/interpolate/resample_across-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenor::cpu::HWY_NAMESPACE {

/// Output columns of rows of pixels that are made together, so that a strip's ring stays in the first cache.
constexpr int64_t kBlockBytes = 16 << 10;

/// One thread's rows. T is stored, C computed in.
template <class T, class C = core::Compute<T>>
class StripRunner {
 public:
  explicit StripRunner(const ResamplePlan& p)
      : p_(p),
        length_(static_cast<size_t>(p.length())),
        inputs_(static_cast<size_t>(p.width.others)),
        ring_(p.height.width),
        across_(p.by_channel ? nullptr : new Across<C>(p.width)) {
    held_.assign(static_cast<size_t>(ring_), -1);
    rows_.reset(new C[static_cast<size_t>(ring_) * length_]);
    if (!p.by_channel) wide_.reset(new C[inputs_]);
    dense_ = p.to.w == (p.by_channel ? p.channels : 1);
    if (p.by_channel) place_columns();
    columns_ = pairs_
                   ? std::clamp<int64_t>(kBlockBytes / (p.channels * static_cast<int64_t>(sizeof(C))), 1, p.width.rows)
                   : p.width.rows;
    if (!dense_) line_.reset(new T[length_]);
    sources_.resize(static_cast<size_t>(ring_));
    weights_.resize(static_cast<size_t>(ring_));
  }

  void run(const ResampleStrip& s) {
    for (first_ = 0; first_ < p_.width.rows; first_ += columns_) {
      end_ = std::min(first_ + columns_, p_.width.rows);
      length_ = static_cast<size_t>((end_ - first_) * (p_.by_channel ? p_.channels : 1));
      run_columns(s);
    }
  }

 private:
  /// What pixels of the row read, and with which weights, where there is no depth.
  void place_columns() {
    const bool flat = p_.depth.count.size() == 1 && p_.depth.count[0] == 1 && p_.depth.weight[0] == 1;
    const auto taps = static_cast<size_t>(p_.width.width);
    if (!flat || taps != 2) return;
    pixel_offsets_.resize(2 * static_cast<size_t>(p_.width.rows));
    pixel_weights_.resize(pixel_offsets_.size());
    for (size_t i = 0; i < pixel_offsets_.size(); ++i) {
      const int64_t tap = static_cast<int64_t>(i % 2);
      pixel_offsets_[i] = core::clamp_index(p_.width.first[i / 2] + tap, p_.width.others) * p_.from.w;
      pixel_weights_[i] = static_cast<C>(p_.width.weight[i]);
      pairs_ = (i == 0 || pairs_) && p_.width.count[i / 2] == 2;
    }
  }
  void run_columns(const ResampleStrip& s) {
    std::fill(held_.begin(), held_.end(), -1);
    for (int64_t r = s.row; r < s.end; ++r) {
      const auto row = static_cast<size_t>(r);
      const int64_t count = p_.height.count[row];
      for (int64_t k = 0; k < count; ++k) {
        sources_[static_cast<size_t>(k)] = resampled(s, core::clamp_index(p_.height.first[row] + k, p_.height.others));
        weights_[static_cast<size_t>(k)] =
            static_cast<C>(p_.height.weight[row * static_cast<size_t>(p_.height.width) + static_cast<size_t>(k)]);
      }
      T* to = reinterpret_cast<T*>(s.to) + r * p_.to.h + first_ * p_.to.w;
      combine(count, dense_ ? to : line_.get());
      if (!dense_) scatter(to);
    }
  }

  /// Input row j, resampled along W and depth.
  const C* resampled(const ResampleStrip& s, int64_t j) {
    const auto slot = static_cast<size_t>(j % ring_);
    C* row = rows_.get() + slot * static_cast<size_t>(p_.length());
    if (held_[slot] == j) return row;
    held_[slot] = j;
    const T* from = reinterpret_cast<const T*>(s.from) + j * p_.from.h;
    if (p_.by_channel)
      pixels(s.d, from, row);
    else
      across_->run(input_row(s.d, from), row);
    return row;
  }

  /// The row as C side by side, summed along depth.
  const C* input_row(int64_t d, const T* from) {
    const auto at = static_cast<size_t>(d);
    const int64_t count = p_.depth.count[at];
    const double* weight = p_.depth.weight.data() + at * static_cast<size_t>(p_.depth.width);
    if (std::is_same_v<T, C> && count == 1 && weight[0] == 1 && p_.from.w == 1)
      return reinterpret_cast<const C*>(from + core::clamp_index(p_.depth.first[at], p_.depth.others) * p_.from.d);
    std::fill_n(wide_.get(), count == 0 ? inputs_ : 0, C(0));
    for (int64_t k = 0; k < count; ++k) {
      const T* x = from + core::clamp_index(p_.depth.first[at] + k, p_.depth.others) * p_.from.d;
      add_row(x, static_cast<C>(weight[k]), k == 0);
    }
    return wide_.get();
  }
  void add_row(const T* x, C weight, bool first) {
    C* to = wide_.get();
    if (p_.from.w != 1) {
      for (size_t i = 0; i < inputs_; ++i) {
        const C value = weight * static_cast<C>(core::widen(x[static_cast<int64_t>(i) * p_.from.w]));
        to[i] = first ? value : to[i] + value;
      }
      return;
    }
    const ComputeTag<T> d;
    const auto w = hn::Set(d, weight);
    for_lanes(d, inputs_, [&](size_t i, auto io) HWY_ATTR {
      const auto v = hn::Mul(w, io.load(d, x + i));
      io.store(d, first ? v : hn::Add(io.load(d, static_cast<const C*>(to) + i), v), to + i);
    });
  }

  /// A row of pixels: sums over taps along W and depth of all channels at once.
  void pixels(int64_t depth, const T* from, C* row) const {
    const auto at = static_cast<size_t>(depth), channels = static_cast<size_t>(p_.channels);
    if (pairs_) return paired_pixels(from, channels, row);
    for (int64_t w = first_; w < end_; ++w, row += channels) {
      const auto column = static_cast<size_t>(w);
      bool first = true;
      std::fill_n(row, p_.depth.count[at] * p_.width.count[column] == 0 ? channels : 0, C(0));
      for (int64_t k = 0; k < p_.depth.count[at]; ++k) {
        const T* plane = from + core::clamp_index(p_.depth.first[at] + k, p_.depth.others) * p_.from.d;
        const double scale = p_.depth.weight[at * static_cast<size_t>(p_.depth.width) + static_cast<size_t>(k)];
        add_pixel(plane, column, scale, first, channels, row);
        first = false;
      }
    }
  }
  /// Two taps a pixel, without depth.
  void paired_pixels(const T* from, size_t channels, C* row) const {
    from += p_.depth.first[0] * p_.from.d;
    const ComputeTag<T> d;
    for (auto w = static_cast<size_t>(first_); w < static_cast<size_t>(end_); ++w, row += channels) {
      const T *a = from + pixel_offsets_[2 * w], *b = from + pixel_offsets_[2 * w + 1];
      const auto u = hn::Set(d, pixel_weights_[2 * w]), v = hn::Set(d, pixel_weights_[2 * w + 1]);
      for_lanes(d, channels, [&](size_t i, auto io) HWY_ATTR {
        io.store(d, hn::MulAdd(v, io.load(d, b + i), hn::Mul(u, io.load(d, a + i))), row + i);
      });
    }
  }
  void add_pixel(const T* plane, size_t column, double scale, bool first, size_t channels, C* row) const {
    const int64_t start = p_.width.first[column];
    const int64_t count = p_.width.count[column];
    const double* weight = p_.width.weight.data() + column * static_cast<size_t>(p_.width.width);
    const ComputeTag<T> d;
    for_lanes(d, channels, [&](size_t i, auto io) HWY_ATTR {
      auto sum = first ? hn::Zero(d) : io.load(d, static_cast<const C*>(row) + i);
      for (int64_t k = 0; k < count; ++k) {
        const T* x = plane + core::clamp_index(start + k, p_.width.others) * p_.from.w;
        sum = hn::MulAdd(hn::Set(d, static_cast<C>(scale * weight[k])), io.load(d, x + i), sum);
      }
      io.store(d, sum, row + i);
    });
  }

  /// An output row, the sum of `count` rows of the ring.
  void combine(int64_t count, T* to) const {
    const ComputeTag<T> d;
    if (count == 2) {
      const C *a = sources_[0], *b = sources_[1];
      const auto u = hn::Set(d, weights_[0]), v = hn::Set(d, weights_[1]);
      for_lanes(d, length_, [&](size_t i, auto io) HWY_ATTR {
        io.store(d, hn::MulAdd(v, io.load(d, b + i), hn::Mul(u, io.load(d, a + i))), to + i);
      });
      return;
    }
    for_lanes(d, length_, [&](size_t i, auto io) HWY_ATTR {
      auto sum = count == 0 ? hn::Zero(d) : hn::Mul(hn::Set(d, weights_[0]), io.load(d, sources_[0] + i));
      for (int64_t k = 1; k < count; ++k) {
        const auto at = static_cast<size_t>(k);
        sum = hn::MulAdd(hn::Set(d, weights_[at]), io.load(d, sources_[at] + i), sum);
      }
      io.store(d, sum, to + i);
    });
  }
  void scatter(T* to) const {
    const int64_t inner = p_.by_channel ? p_.channels : 1;
    for (int64_t w = 0; w < end_ - first_; ++w) std::copy_n(line_.get() + w * inner, inner, to + w * p_.to.w);
  }

  const ResamplePlan& p_;
  size_t length_, inputs_;
  int64_t ring_;
  std::unique_ptr<Across<C>> across_;
  std::vector<int64_t> held_;  // the input row of each slot
  std::unique_ptr<C[]> rows_, wide_;
  std::unique_ptr<T[]> line_;
  bool dense_;
  bool pairs_ = false;  // every pixel has two taps, of the tables below
  std::vector<int64_t> pixel_offsets_;
  std::vector<C> pixel_weights_;
  int64_t columns_, first_ = 0, end_ = 0;  // of a row: made at once, and those being made
  std::vector<const C*> sources_;
  std::vector<C> weights_;
};

void resample_strips_simd(const ResamplePlan& p, int64_t begin, int64_t end) {
  core::visit_float(p.dtype, [&]<class T>() {
    StripRunner<T> runner(p);
    for (int64_t i = begin; i < end; ++i) runner.run(strip_of(p, i));
  });
}

}  // namespace tenor::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenor::cpu {

HWY_EXPORT(resample_strips_simd);
void resample_strips(const ResamplePlan& p, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(resample_strips_simd)(p, begin, end);
}

}  // namespace tenor::cpu
#endif  // HWY_ONCE
