// Rows in the registers of their threads.
#pragma once

#include "src/cuda/convert.cuh"
#include "src/cuda/row_threads.cuh"
#include "src/cuda/vector.cuh"

namespace tenor::cuda {

/// A thread's row; N tensors, 0 the input. W: elements of an access, kShare: of a thread. Elements are dealt so:
/// kWarps, each warp takes a piece of the row, its lanes neighbouring accesses, so that a thread's accesses lie a
/// constant apart; kLanes, lanes take neighbouring accesses; kColumns, warps take every n-th element.
template <class T, int N, RowShape kShape, int W, int kShare, bool kCluster>
class HeldRow {
 public:
  using Element = T;
  using C = core::Compute<T>;
  using Threads = RowThreads<C, kShape, kCluster>;
  static constexpr int kPacks = kShare / W;
  static constexpr int kGroup = W > 1 ? W : 8;  ///< elements that write() hands over at a time
  static constexpr bool kDense = W > 1;         ///< they are neighbours, and begin at a multiple of kGroup

  __device__ HeldRow(const RowProblem<N>& problem, typename Threads::Scratch& scratch)
      : problem_(problem), threads_(scratch, true) {
    row_ = threads_.row();
    left_ = row_ < problem_.outer.count ? static_cast<int>(problem_.length) - first() : 0;
    const T* x = data(0);
#pragma unroll
    for (int p = 0; p < kPacks; ++p)
      if (holds(p)) held_[p] = load_stored(place(x, 0, p));
  }

  /// Calls fn(i, k) for the first element of each of this thread's accesses, k counting them.
  template <class F>
  __device__ void for_accesses(F fn) const {
#pragma unroll
    for (int p = 0; p < kPacks; ++p)
      if (holds(p)) fn(first() + step(p), p);
  }

  __device__ int64_t index() const { return row_; }
  __device__ int64_t length() const { return problem_.length; }
  /// The place of element i of the row in its run.
  __device__ int64_t within(int64_t i) const { return i; }

  /// Adds tensor `other` to the elements, rounds the sums and writes them to tensor `to`; what follows sees the sums.
  __device__ void add(int other, int to) {
    constexpr int kHalf =
        kPacks > 4 ? kPacks / 4
                   : kPacks / 2;  // its loads before its first store, which the compiler must not move them across
    const T* more_from = data(other);
    T* sums_to = data(to);
#pragma unroll
    for (int begin = 0; begin < kPacks; begin += kHalf) {
      Stored more[kHalf];
#pragma unroll
      for (int p = 0; p < kHalf; ++p)
        if (holds(begin + p)) more[p] = load_stored(place(more_from, other, begin + p));
#pragma unroll
      for (int p = 0; p < kHalf; ++p)
        if (holds(begin + p)) add_stored(held_[begin + p], more[p], place(sums_to, to, begin + p));
    }
  }

  /// The sum of f(v) over the row's elements, in every thread.
  template <class F>
  __device__ C sum(F f) {
    return sums<1>([&](C v, C(&out)[1]) { out[0] = f(v); }).at[0];
  }
  /// K sums at once: f(v, out) gives an element's part of each.
  template <int K, class F>
  __device__ Pack<C, K> sums(F f) {
    return threads_.reduce(own_sums<K>(f), Pack<C, K>{}, Each<Sum>());
  }
  /// Whether meeting the row's other threads is what costs: operators then meet once, by meet(), instead of twice.
  __device__ static constexpr bool meets_late() { return kCluster && W > 1; }
  /// The combination of what each thread found of its own elements, in every thread. combine(neutral, v) is v.
  template <int K, class Combine>
  __device__ Pack<C, K> meet(const Pack<C, K>& own, const Pack<C, K>& neutral, Combine combine) {
    return threads_.reduce(own, neutral, combine);
  }
  /// The sums over this thread's elements.
  template <int K, class F>
  __device__ Pack<C, K> own_sums(F f) {
    constexpr int kChains = kVector<T>;  // independent additions
    C part[kChains][K] = {};
    keep_packed();
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      if (!holds(p)) continue;
      C x[W];
      widen_pack(unpack(held_[p]), x);
#pragma unroll
      for (int j = 0; j < W; ++j) {
        C more[K];
        f(x[j], more);
#pragma unroll
        for (int k = 0; k < K; ++k) part[(p * W + j) % kChains][k] += more[k];
      }
    }
#pragma unroll
    for (int width = kChains / 2; width > 0; width /= 2)
#pragma unroll
      for (int j = 0; j < width; ++j)
#pragma unroll
        for (int k = 0; k < K; ++k) part[j][k] += part[j + width][k];
    Pack<C, K> total;
#pragma unroll
    for (int k = 0; k < K; ++k) total.at[k] = part[0][k];
    return total;
  }

  /// The combination of f(v) over the row's elements, beginning with `first`; its order must not matter.
  template <class F, class Combine>
  __device__ C combine(C first, F f, Combine combine) {
    return threads_.reduce(Pack<C, 1>{own_combine(first, f, combine)}, Pack<C, 1>{first}, Each<Combine>{combine}).at[0];
  }
  /// Over this thread's elements.
  template <class F, class Combine>
  __device__ C own_combine(C first, F f, Combine combine) {
    C best = first;
    keep_packed();
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      if (!holds(p)) continue;
      C x[W];
      widen_pack(unpack(held_[p]), x);
#pragma unroll
      for (int j = 0; j < W; ++j) best = combine(best, f(x[j]));
    }
    return best;
  }

  /// f(values, i, spacing, k) replaces the values of elements i, i + spacing, ... of the row (those beyond its end are
  /// ignored), this thread's k-th kGroup, which then go to tensor `to`.
  template <class F>
  __device__ void write(int to, F f) {
    constexpr int kAtOnce = kGroup / W;
    keep_packed();
    T* y = data(to);
#pragma unroll
    for (int begin = 0; begin < kPacks; begin += kAtOnce) {
      if (!holds(begin)) continue;
      C values[kGroup];
      if constexpr (W == kGroup) {
        widen_pack(unpack(held_[begin]), values);
      } else {
#pragma unroll
        for (int j = 0; j < kGroup; ++j) values[j] = widen(unpack(held_[begin + j / W]).at[j % W]);
      }
      f(values, first() + step(begin), kDense ? 1 : step(1), begin / kAtOnce);
#pragma unroll
      for (int p = 0; p < kAtOnce; ++p) {
        if (!holds(begin + p)) continue;
        C mine[W];
#pragma unroll
        for (int j = 0; j < W; ++j) mine[j] = values[p * W + j];
        store_pack(place(y, to, begin + p), convert_pack<T>(mine));
      }
    }
  }

 private:
  /// An access as it lies. Wide ones stay words until they are used: as elements, each would take a register of its
  /// own.
  using Stored = Word<W* static_cast<int>(sizeof(T))>;
  static __device__ __forceinline__ Pack<T, W> unpack(const Stored& words) {
    Pack<T, W> out;
    memcpy(&out, &words, sizeof(out));
    return out;
  }
  static __device__ __forceinline__ Stored pack(const Pack<T, W>& x) {
    Stored words;
    memcpy(&words, &x, sizeof(x));
    return words;
  }
  static __device__ __forceinline__ Stored load_stored(const T* p) { return *reinterpret_cast<const Stored*>(p); }
  /// Hides from the compiler that a pass widens the elements that the pass before has widened: it would keep the wide
  /// ones.
  __device__ __forceinline__ void keep_packed() {
    if constexpr (W > 1 && sizeof(T) == 2) {
#pragma unroll
      for (Stored& s : held_) asm volatile("" : "+r"(s.x), "+r"(s.y), "+r"(s.z), "+r"(s.w));
    }
  }
  static __device__ __forceinline__ void add_stored(Stored& x, const Stored& more, T* to) {
    C added[W], other[W];
    widen_pack(unpack(x), added);
    widen_pack(unpack(more), other);
#pragma unroll
    for (int j = 0; j < W; ++j) added[j] += other[j];
    const Pack<T, W> sum = convert_pack<T>(added);
    store_pack(to, sum);
    x = pack(sum);
  }
  /// The first element of this thread's first pack, and from there to that of its pack p.
  __device__ __forceinline__ int first() const {
    const int mine = threads_.place();
    return kShape == RowShape::kWarps ? (mine / kWarp * kPacks * kWarp + mine % kWarp) * W : mine * W;
  }
  __device__ __forceinline__ int step(int p) const {
    return p * (kShape == RowShape::kWarps ? kWarp : threads_.count()) * W;
  }
  __device__ __forceinline__ bool holds(int p) const { return step(p) < left_; }
  /// This thread's first element of tensor t. Found where it is needed: pointers to all tensors would cost registers.
  __device__ __forceinline__ T* data(int t) const {
    const int64_t at = problem_.outer.ndim <= 1 ? row_ * (problem_.outer.ndim == 0 ? 0 : problem_.outer.stride[t][0])
                                                : offset_of(problem_.outer, t, row_);
    return static_cast<T*>(problem_.data[t]) + at + first() * (kShape == RowShape::kColumns ? problem_.step[t] : 1);
  }
  /// Its access p, from the first element on.
  template <class P>
  __device__ __forceinline__ P* place(P* data, int t, int p) const {
    return data + step(p) * (kShape == RowShape::kColumns ? problem_.step[t] : 1);
  }

  const RowProblem<N>& problem_;
  Threads threads_;
  Stored held_[kPacks];
  int64_t row_;
  int left_;  // elements from this thread's first to the row's end
};

}  // namespace tenor::cuda
