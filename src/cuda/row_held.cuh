// Rows in the registers of their threads.
#pragma once

#include "src/cuda/convert.cuh"
#include "src/cuda/lasting.cuh"
#include "src/cuda/row_threads.cuh"
#include "src/cuda/row_unaligned.cuh"
#include "src/cuda/vector.cuh"

namespace tenor::cuda {

/// How the accesses of rows fit the memory and the threads.
enum class RowFit : uint8_t {
  kFull,      ///< aligned, rows evenly spaced, and every thread holds its whole share: no access is in question
  kAligned,   ///< each is one of the memory's 16 bytes (columns: one element)
  kAnywhere,  ///< rows begin and end anywhere
};

/// A thread's row; N tensors, 0 the input. W: elements of an access, kShare: of a thread. Elements are dealt so:
/// kWarps, each warp takes a piece of the row, its lanes neighbouring accesses, so that a thread's accesses lie a
/// constant apart; kLanes, lanes take neighbouring accesses; kColumns, warps take every n-th element.
template <class T, int N, RowShape kShape, int W, int kShare, bool kCluster, RowFit kFit>
class HeldRow {
  static constexpr bool kAligned = kFit != RowFit::kAnywhere;

 public:
  using Problem = std::conditional_t<kFit == RowFit::kFull, EvenRows<N>, RowProblem<N>>;
  using Element = T;
  using C = core::Compute<T>;
  using Threads = RowThreads<C, kShape, kCluster>;
  static constexpr int kPacks = kShare / W;
  static constexpr int kGroup = W > 1 ? W : 8;  ///< elements that write() hands over at a time
  static constexpr bool kDense = W > 1;         ///< they are neighbours, and begin at a multiple of kGroup
  static constexpr bool kIsFull = kFit == RowFit::kFull;
  static constexpr bool kWhole = kAligned;  ///< and none of them lies beyond the row's end

  __device__ HeldRow(const Problem& problem, typename Threads::Scratch& scratch)
      : problem_(problem), threads_(scratch, true) {
    row_ = threads_.row(threads_.group());
    left_ = exists() ? static_cast<int>(problem_.length) - first() : 0;
  }
  /// Reads the row from memory.
  __device__ void load() { fetch(0, 0, held_); }

  /// Calls fn(i, k) for the first element of each of this thread's accesses, k counting them.
  template <class F>
  __device__ void for_accesses(F fn) const {
#pragma unroll
    for (int p = 0; p < kPacks; ++p)
      if (holds(p)) fn(first() + step(p), p);
  }

  /// Whether there is this thread's row, which kFull takes for granted.
  __device__ bool exists() const { return row_ < rows(); }
  __device__ int64_t index() const { return row_; }
  __device__ int64_t length() const { return problem_.length; }
  /// The place of element i of the row in its run.
  __device__ int64_t within(int64_t i) const { return i; }

  /// Adds tensor `other` to the elements, rounds the sums and writes them to tensor `to`; what follows sees the sums.
  __device__ void add(int other, int to) {
    // Its loads before its first store, which the compiler must not move them across.
    constexpr int kHalf = kPacks > 4 && !kCluster ? kPacks / 4 : kPacks / 2;
    T* sums_to = data(to);
#pragma unroll
    for (int begin = 0; begin < kPacks; begin += kHalf) {
      Stored more[kHalf];
      fetch(other, begin, more);
#pragma unroll
      for (int p = 0; p < kHalf; ++p) {
        if (!holds(begin + p)) continue;
        add_stored(held_[begin + p], more[p]);
        if (kAligned) store_whole(place(sums_to, to, begin + p), unpack(held_[begin + p]));
      }
    }
    if constexpr (!kAligned) store_anywhere(sums_to);
  }

  /// The elements have been used once. An operator that passes over them again before it joins what it found says so,
  /// either for all rows or for none.
  __device__ void release() {}

  /// The sum over the row's elements, in every thread: f(v, part) adds an element's part.
  template <class F>
  __device__ C sum(F f) {
    return total(own_sums<1>([&](C v, C(&part)[1], int) { f(v, part[0]); })).at[0];
  }
  /// The sums of what the row's threads found, in every thread.
  template <int K>
  __device__ Pack<C, K> total(const Pack<C, K>& own) {
    return threads_.reduce(own, Pack<C, K>{}, Each<Sum>());
  }
  /// A thread's near group are those it combines with at no cost (RowThreads::near). This combines what they found of
  /// their own elements.
  template <int K, class Combine>
  __device__ Pack<C, K> near(const Pack<C, K>& own, Combine combine) {
    return threads_.reduce_near(own, combine);
  }
  /// The elements that this thread's near group holds.
  __device__ int near_count() const {
    if constexpr (kFit == RowFit::kFull) return kShare * kWarp;
    const int length = static_cast<int>(problem_.length), place = threads_.place(), count = threads_.count();
    if constexpr (kShape == RowShape::kLanes) return length;
    if constexpr (kShape == RowShape::kColumns) return max((length - place + count - 1) / count, 0);
    constexpr int kPiece = kShare * kWarp;
    return min(max(length - place / kWarp * kPiece, 0), kPiece);
  }
  /// Those among the first kRowSample of each of its threads.
  __device__ int near_sample() const {
    return min(near_count(), kRowSample * (kShape == RowShape::kWarps ? kWarp : threads_.near()));
  }
  /// What RowThreads::join makes of the near groups' findings, in every thread.
  template <int K, class Join>
  __device__ Pack<C, K> join(const Pack<C, K>& found, Join join) {
    return threads_.join(found, join);
  }
  /// Sums over this thread's elements, or the first kFirst of them: f(v, parts, i) adds the part of its i-th, counted
  /// as write() counts them, to each.
  template <int K, int kFirst = kShare, class F>
  __device__ Pack<C, K> own_sums(F f) {
    constexpr int kChains = kVector<T>;  // independent additions
    C part[kChains][K] = {};
    keep_packed();
#pragma unroll
    for (int p = 0; p < kFirst / W; ++p) {
      if (!holds(p)) continue;
      C x[W];
      widen_pack(unpack(held_[p]), x);
      for_elements(p, [&](int j) { f(x[j], part[(p * W + j) % kChains], p * W + j); });
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
      for_elements(p, [&](int j) { best = combine(best, f(x[j])); });
    }
    return best;
  }

  /// Once, at the end: f(values, i, spacing, k) replaces the values of elements i, i + spacing, ... of the row (those
  /// beyond its end are ignored), this thread's k-th kGroup, which then go to tensor `to`. kReads: f reads them; else
  /// it has kept what it needs, and their registers are free.
  template <bool kReads = true, class F>
  __device__ void write(int to, F f) {
    constexpr int kAtOnce = kGroup / W;
    if constexpr (kReads) keep_packed();
    T* y = data(to);
#pragma unroll
    for (int begin = 0; begin < kPacks; begin += kAtOnce) {
      if (!holds(begin)) continue;
      C values[kGroup];
      if constexpr (!kReads) {
        static_assert(W == kGroup);
      } else if constexpr (W == kGroup) {
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
        const Pack<T, W> result = convert_pack<T>(mine);
        if constexpr (kAligned)
          store_whole(place(y, to, begin + p), result);
        else
          held_[begin + p] = pack(result);
      }
    }
    if constexpr (!kAligned) store_anywhere(y);
  }

 protected:
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
  /// Reads tensor t's accesses from `begin` on.
  template <int kCount>
  __device__ __forceinline__ void fetch(int t, int begin, Stored (&to)[kCount]) const {
    const T* from = data(t);
    if constexpr (kAligned) {
#pragma unroll
      for (int p = 0; p < kCount; ++p) {
        if (!holds(begin + p)) continue;
        const auto* words = reinterpret_cast<const Stored*>(place(from, t, begin + p));
        if constexpr (sizeof(Stored) == kVectorBytes)
          to[p] = load_lasting(words);
        else
          to[p] = *words;
      }
    } else {
      UnalignedLoad loads[kCount];  // all on their way before the first is used
#pragma unroll
      for (int p = 0; p < kCount; ++p)
        if (can_read(place(from, t, begin + p), left_ - step(begin + p)))
          loads[p].start(reinterpret_cast<const char*>(place(from, t, begin + p)));
#pragma unroll
      for (int p = 0; p < kCount; ++p) {
        const int n = left_ - step(begin + p);
        if (can_read(place(from, t, begin + p), n))
          to[p] = loads[p].value();
        else if (n > 0)
          to[p] = load_few(place(from, t, begin + p), min(n, W));
      }
    }
  }
  /// Whether the aligned words around the access at p are the row's own up to its end, n elements further: behind the
  /// last row there may be nothing to read.
  static __device__ __forceinline__ bool can_read(const T* p, int n) {
    return n >= W && stays_below(reinterpret_cast<const char*>(p), reinterpret_cast<const char*>(p + n));
  }
  /// Writes what is held to a tensor whose rows begin anywhere: a lane writes the 16 bytes that begin in its own, with
  /// what the next lane has of them. All lanes of the warp call.
  __device__ __forceinline__ void store_anywhere(T* to) const {
    const int lanes = threads_.near(), of_warp = (threadIdx.y * blockDim.x + threadIdx.x) % kWarp,
              lane = of_warp % lanes;
    const int after = of_warp - lane + (lane + 1) % lanes;  // whose elements follow
    const auto past = static_cast<unsigned>(reinterpret_cast<uintptr_t>(to) % kVectorBytes);
    const int head = past == 0 ? 0 : static_cast<int>((kVectorBytes - past) / sizeof(T));  // before the first 16 bytes
    if (head > 0 && lane == 0 && left_ > 0) store_few(to, held_[0], 0, min(head, left_));
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      const bool is_last = p + 1 == kPacks;
      const uint4 own = held_[p], next = from_lane(lane == 0 && !is_last ? held_[is_last ? p : p + 1] : own, after);
      const int n = left_ - step(p);
      if (n >= W + head && (head == 0 || lane + 1 < lanes || !is_last))
        store_whole(
            to + step(p) + head,
            unpack(head == 0 ? own : shifted(own, next, static_cast<unsigned>(head * static_cast<int>(sizeof(T))))));
      else if (const int begin = n < head && lane + p > 0 ? 0 : head; n > begin)
        store_few(to + step(p), own, begin, min(n, W));
    }
  }
  /// Hides from the compiler that a pass widens the elements that the pass before has widened: it would keep the wide
  /// ones.
  __device__ __forceinline__ void keep_packed() {
    if constexpr (W > 1 && sizeof(T) == 2) {
#pragma unroll
      for (Stored& s : held_) asm volatile("" : "+r"(s.x), "+r"(s.y), "+r"(s.z), "+r"(s.w));
    }
  }
  static __device__ __forceinline__ void add_stored(Stored& x, const Stored& more) {
    C added[W], other[W];
    widen_pack(unpack(x), added);
    widen_pack(unpack(more), other);
#pragma unroll
    for (int j = 0; j < W; ++j) added[j] += other[j];
    x = pack(convert_pack<T>(added));
  }
  /// The first element of this thread's first pack, and from there to that of its pack p.
  __device__ __forceinline__ int first() const {
    const int mine = threads_.place();
    return kShape == RowShape::kWarps ? (mine / kWarp * kPacks * kWarp + mine % kWarp) * W : mine * W;
  }
  __device__ __forceinline__ int step(int p) const {
    return p * (kShape == RowShape::kWarps ? kWarp : threads_.count()) * W;
  }
  __device__ __forceinline__ bool holds(int p) const { return kFit == RowFit::kFull || step(p) < left_; }
  /// f(j) for the elements j that the row has of access p, which this thread holds.
  template <class F>
  __device__ __forceinline__ void for_elements(int p, F f) const {
    if (kAligned || step(p) + W <= left_) {
#pragma unroll
      for (int j = 0; j < W; ++j) f(j);
    } else {
#pragma unroll
      for (int j = 0; j < W; ++j)
        if (step(p) + j < left_) f(j);
    }
  }
  /// This thread's first element of tensor t. Found where it is needed: pointers to all tensors would cost registers.
  __device__ __forceinline__ T* data(int t) const { return data(t, row_); }
  __device__ __forceinline__ T* data(int t, int64_t row) const {
    int64_t at;
    if constexpr (kFit == RowFit::kFull)
      at = row * problem_.stride[t];
    else if (problem_.outer.ndim <= 1)
      at = row * (problem_.outer.ndim == 0 ? 0 : problem_.outer.stride[t][0]);
    else
      at = offset_of(problem_.outer, t, row);
    return static_cast<T*>(problem_.data[t]) + at + first() * step_of(t);
  }
  /// How many there are in all.
  __device__ __forceinline__ int64_t rows() const {
    if constexpr (kFit == RowFit::kFull)
      return problem_.count;
    else
      return problem_.outer.count;
  }
  __device__ __forceinline__ int64_t step_of(int t) const {
    if constexpr (kShape == RowShape::kColumns)
      return problem_.step[t];
    else
      return 1;
  }
  /// Its access p, from the first element on.
  template <class P>
  __device__ __forceinline__ P* place(P* data, int t, int p) const {
    return data + step(p) * step_of(t);
  }

  const Problem& problem_;
  Threads threads_;
  Stored held_[kPacks];
  int64_t row_;
  int left_;  // elements from this thread's first to the row's end
};

}  // namespace tenor::cuda
