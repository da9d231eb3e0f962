// Resampling of a dense row along itself. A vector of neighbouring outputs reads one or two vectors of neighbouring
// inputs through a shuffle where its taps lie that close, else it gathers.
#if defined(TENOR_OPS_RESAMPLE_ACROSS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TENOR_OPS_RESAMPLE_ACROSS_INL_H_
#undef TENOR_OPS_RESAMPLE_ACROSS_INL_H_
#else
#define TENOR_OPS_RESAMPLE_ACROSS_INL_H_
#endif

#include <vector>

#include "src/core/resample.h"
#include "src/cpu/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenor::cpu::HWY_NAMESPACE {

template <class C>
class Across {
  using D = hn::ScalableTag<C>;
  using Index = hwy::MakeSigned<C>;

 public:
  explicit Across(const core::ResampleTable& table)
      : table_(table),
        lanes_(hn::Lanes(D())),
        vectors_((static_cast<size_t>(table.rows) + lanes_ - 1) / lanes_),
        taps_(static_cast<size_t>(table.width)) {
    vector_taps_.resize(vectors_);
    if (table.others < int64_t{1} << 31) fill();
  }

  /// to[rows] from a row of table.others inputs.
  void run(const C* HWY_RESTRICT from, C* HWY_RESTRICT to) const {
    if (index_.empty()) return run_wide(from, to);
    const D d;
    const size_t count = static_cast<size_t>(table_.rows);
    for (size_t v = 0; v < vectors_; ++v) {
      const auto sum = how_ == How::kOne   ? shuffled<1>(from, v)
                       : how_ == How::kTwo ? shuffled<2>(from, v)
                                           : gathered(from, v);
      const size_t i = v * lanes_;
      if (i + lanes_ <= count)
        hn::StoreU(sum, d, to + i);
      else
        store_n(d, sum, to + i, count - i);
    }
  }

 private:
  enum class How : uint8_t { kOne, kTwo, kGather };

  /// Places of tap k of vector v. Lanes without a tap of that number have weight 0 and repeat their last.
  size_t place(size_t v, size_t k) const { return (v * taps_ + k) * lanes_; }

  void fill() {
    index_.assign(vectors_ * taps_ * lanes_, 0);
    weight_.assign(vectors_ * taps_ * lanes_, C(0));
    base_.assign(vectors_ * taps_, 0);
    bool one = table_.others >= static_cast<int64_t>(lanes_), two = table_.others >= static_cast<int64_t>(2 * lanes_);
    for (size_t v = 0; v < vectors_; ++v) fill_vector(v, one, two);
#if HWY_TARGET == HWY_SCALAR
    one = two = false;
#endif
    how_ = one ? How::kOne : two ? How::kTwo : How::kGather;
    if (how_ != How::kGather) rebase(how_ == How::kOne ? lanes_ : 2 * lanes_);
  }
  void fill_vector(size_t v, bool& one, bool& two) {
    size_t most = 0;
    for (size_t lane = 0; lane < lanes_; ++lane)
      most = std::max(most, static_cast<size_t>(table_.count[row_of(v, lane)]));
    vector_taps_[v] = most;
    for (size_t k = 0; k < most; ++k) {
      int64_t low = INT64_MAX, high = 0;
      for (size_t lane = 0; lane < lanes_; ++lane) {
        const size_t row = row_of(v, lane);
        const int64_t own = table_.count[row], tap = std::min(static_cast<int64_t>(k), own - 1);
        const int64_t at = own == 0 ? 0 : core::clamp_index(table_.first[row] + tap, table_.others);
        index_[place(v, k) + lane] = static_cast<Index>(at);
        if (static_cast<int64_t>(k) < own)
          weight_[place(v, k) + lane] = static_cast<C>(table_.weight[row * taps_ + k]);
        else
          uneven_ = true;
        low = std::min(low, at);
        high = std::max(high, at);
      }
      base_[v * taps_ + k] = low;
      one = one && high - low < static_cast<int64_t>(lanes_);
      two = two && high - low < static_cast<int64_t>(2 * lanes_);
    }
  }
  /// The last vector repeats the last row.
  size_t row_of(size_t v, size_t lane) const {
    return std::min(v * lanes_ + lane, static_cast<size_t>(table_.rows) - 1);
  }

  /// Indices count from where `span` inputs are loaded, all within the row.
  void rebase(size_t span) {
    const int64_t last = table_.others - static_cast<int64_t>(span);
    for (size_t v = 0; v < vectors_; ++v)
      for (size_t k = 0; k < vector_taps_[v]; ++k) {
        int64_t& base = base_[v * taps_ + k];
        base = std::min(base, last);
        for (size_t lane = 0; lane < lanes_; ++lane) index_[place(v, k) + lane] -= static_cast<Index>(base);
      }
  }

  /// sum + weight * x; a lane without that tap keeps its sum, whatever x is.
  template <class V>
  HWY_INLINE V add(V sum, V x, size_t at) const {
    const D d;
    const V weight = hn::LoadU(d, weight_.data() + at);
    const V next = hn::MulAdd(weight, x, sum);
    return uneven_ ? hn::IfThenElse(hn::Eq(weight, hn::Zero(d)), sum, next) : next;
  }
  template <int Vectors>
  HWY_INLINE hn::Vec<D> shuffled(const C* from, size_t v) const {
    const D d;
    auto sum = hn::Zero(d);
    for (size_t k = 0; k < vector_taps_[v]; ++k) {
      const size_t at = place(v, k);
      const C* base = from + base_[v * taps_ + k];
#if HWY_TARGET == HWY_SCALAR
      sum = add(sum, hn::Set(d, base[index_[at]]), at);
#else
      if constexpr (Vectors == 1) {
        sum = add(sum, hn::TableLookupLanes(hn::LoadU(d, base), hn::SetTableIndices(d, index_.data() + at)), at);
      } else {
        const hn::RebindToSigned<D> di;
        const auto index = hn::LoadU(di, index_.data() + at), last = hn::Set(di, static_cast<Index>(lanes_ - 1));
        const auto within = hn::IndicesFromVec(d, hn::And(index, last));
        const auto low = hn::TableLookupLanes(hn::LoadU(d, base), within),
                   high = hn::TableLookupLanes(hn::LoadU(d, base + lanes_), within);
        sum = add(sum, hn::IfThenElse(hn::RebindMask(d, hn::Gt(index, last)), high, low), at);
      }
#endif
    }
    return sum;
  }
  HWY_INLINE hn::Vec<D> gathered(const C* from, size_t v) const {
    const D d;
    const hn::RebindToSigned<D> di;
    auto sum = hn::Zero(d);
    for (size_t k = 0; k < vector_taps_[v]; ++k) {
      const size_t at = place(v, k);
      sum = add(sum, hn::GatherIndex(d, from, hn::LoadU(di, index_.data() + at)), at);
    }
    return sum;
  }

  /// Rows beyond 31 bits, one output after the other.
  void run_wide(const C* from, C* to) const {
    for (int64_t r = 0; r < table_.rows; ++r) {
      const auto row = static_cast<size_t>(r);
      C sum = 0;
      for (int64_t k = 0; k < table_.count[row]; ++k)
        sum += static_cast<C>(table_.weight[row * taps_ + static_cast<size_t>(k)]) *
               from[core::clamp_index(table_.first[row] + k, table_.others)];
      to[r] = sum;
    }
  }

  const core::ResampleTable& table_;
  size_t lanes_, vectors_, taps_;
  How how_ = How::kGather;
  bool uneven_ = false;
  std::vector<size_t> vector_taps_;
  std::vector<Index> index_;
  std::vector<C> weight_;
  std::vector<int64_t> base_;
};

}  // namespace tenor::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // TENOR_OPS_RESAMPLE_ACROSS_INL_H_
