// Rows in the registers of their threads.
#pragma once

#include "src/cuda/convert.cuh"
#include "src/cuda/row_threads.cuh"
#include "src/cuda/vector.cuh"

namespace tenor::cuda {

/// How the elements of a row are dealt to its threads.
enum class RowKind : uint8_t {
  kWarps,    ///< each warp a piece of the row, its lanes neighbouring accesses: a thread's accesses lie a constant apart
  kLanes,    ///< some lanes of a warp share a short row
  kColumns,  ///< lanes take neighbouring rows whose elements lie strided, warps take every n-th element
};

/// The rows of one thread, one after the other; N tensors, 0 the input. W: elements of an access.
template <class T, int N, RowKind kKind, int W>
class HeldRow {
 public:
  using Element = T;
  using C = core::Compute<T>;
  static constexpr int kPacks = held_elements(sizeof(T)) / W;
  static constexpr int kGroup = W > 1 ? W : 8;          ///< elements that write() hands over at a time
  static constexpr bool kDense = W > 1;                 ///< they are neighbours, and begin at a multiple of kGroup

  __device__ HeldRow(const RowProblem<N>& problem, RowScratch<C>& scratch) : problem_(problem), threads_(scratch, kKind == RowKind::kColumns) {}

  /// Calls fn() for each row of this thread. Threads of a block or cluster take the same number of rows.
  template <class F>
  __device__ void for_rows(F fn) {
    const int64_t groups = (problem_.outer.count + threads_.rows() - 1) / threads_.rows();
    for (int64_t group = threads_.group(); group < groups; group += threads_.groups()) {
      seek(group);
      load();
      fn();
    }
  }

  /// Calls fn(i) for the first element of each of this thread's accesses.
  template <class F>
  __device__ void for_accesses(F fn) const {
#pragma unroll
    for (int p = 0; p < kPacks; ++p)
      if (holds(p)) fn(first() + step(p));
  }

  __device__ int64_t index() const { return row_; }
  __device__ int64_t length() const { return problem_.length; }
  /// The place of element i of the row in its run.
  __device__ int64_t within(int64_t i) const { return i; }

  /// Adds tensor `other` to the elements, rounds the sums and writes them to tensor `to`; what follows sees the sums.
  __device__ void add(int other, int to) {
    constexpr int kHalf = kPacks / 2;  // all its loads before its first store, which the compiler must not move them across
#pragma unroll
    for (int begin = 0; begin < kPacks; begin += kHalf) {
      Stored more[kHalf];
#pragma unroll
      for (int p = 0; p < kHalf; ++p)
        if (holds(begin + p)) more[p] = load_stored(place(other, begin + p));
#pragma unroll
      for (int p = 0; p < kHalf; ++p)
        if (holds(begin + p)) add_stored(held_[begin + p], more[p], place(to, begin + p));
    }
  }

  /// The sum of f(v) over the row's elements, in every thread.
  template <class F>
  __device__ C sum(F f) {
    constexpr int kChains = kVector<T>;  // independent additions
    C part[kChains] = {};
    keep_packed();
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      if (!holds(p)) continue;
      const Pack<T, W> x = unpack(held_[p]);
#pragma unroll
      for (int j = 0; j < W; ++j) part[(p * W + j) % kChains] += f(widen(x.at[j]));
    }
#pragma unroll
    for (int width = kChains / 2; width > 0; width /= 2)
#pragma unroll
      for (int j = 0; j < width; ++j) part[j] += part[j + width];
    return threads_.reduce(part[0], C(0), Sum());
  }

  /// The combination of f(v) over the row's elements, beginning with `first`; its order must not matter.
  template <class F, class Combine>
  __device__ C combine(C first, F f, Combine combine) {
    C best = first;
    keep_packed();
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      if (!holds(p)) continue;
      const Pack<T, W> x = unpack(held_[p]);
#pragma unroll
      for (int j = 0; j < W; ++j) best = combine(best, f(widen(x.at[j])));
    }
    return threads_.reduce(best, first, combine);
  }

  /// f(values, i, spacing) replaces the values of elements i, i + spacing, ... of the row (those beyond its end are ignored),
  /// which then go to tensor `to`.
  template <class F>
  __device__ void write(int to, F f) {
    constexpr int kAtOnce = kGroup / W;
    keep_packed();
#pragma unroll
    for (int begin = 0; begin < kPacks; begin += kAtOnce) {
      if (!holds(begin)) continue;
      C values[kGroup];
#pragma unroll
      for (int j = 0; j < kGroup; ++j) values[j] = widen(unpack(held_[begin + j / W]).at[j % W]);
      f(values, first() + step(begin), kDense ? 1 : step(1));
#pragma unroll
      for (int p = 0; p < kAtOnce; ++p) {
        if (!holds(begin + p)) continue;
        Pack<T, W> out;
#pragma unroll
        for (int j = 0; j < W; ++j) out.at[j] = convert<T>(values[p * W + j]);
        store_once(place(to, begin + p), out);
      }
    }
  }

 private:
  /// An access as it lies. Wide ones stay words until they are used: as elements, each would take a register of its own.
  using Stored = Word<W * static_cast<int>(sizeof(T))>;
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
  static __device__ __forceinline__ Stored load_stored(const T* p) { return __ldcs(reinterpret_cast<const Stored*>(p)); }
  /// Hides from the compiler that a pass widens the elements that the pass before has widened: it would keep the wide ones.
  __device__ __forceinline__ void keep_packed() {
    if constexpr (W > 1 && sizeof(T) == 2) {
#pragma unroll
      for (Stored& s : held_) asm volatile("" : "+r"(s.x), "+r"(s.y), "+r"(s.z), "+r"(s.w));
    }
  }
  static __device__ __forceinline__ void add_stored(Stored& x, const Stored& more, T* to) {
    Pack<T, W> sum = unpack(x);
    const Pack<T, W> other = unpack(more);
#pragma unroll
    for (int j = 0; j < W; ++j) sum.at[j] = convert<T>(widen(sum.at[j]) + widen(other.at[j]));
    store_once(to, sum);
    x = pack(sum);
  }
  /// The first element of this thread's first pack, and from there to that of its pack p.
  __device__ __forceinline__ int first() const {
    const int mine = threads_.place();
    return kKind == RowKind::kWarps ? (mine / kWarp * kPacks * kWarp + mine % kWarp) * W : mine * W;
  }
  __device__ __forceinline__ int step(int p) const { return p * (kKind == RowKind::kWarps ? kWarp : threads_.count()) * W; }
  __device__ __forceinline__ bool holds(int p) const { return step(p) < left_; }
  __device__ __forceinline__ T* place(int t, int p) const {
    if constexpr (kKind == RowKind::kColumns) return data_[t] + step(p) * problem_.step[t];
    return data_[t] + step(p);
  }

  __device__ __forceinline__ void seek(int64_t group) {
    row_ = threads_.row(group);
    const bool inside = row_ < problem_.outer.count;
    int64_t at[N] = {};
    if (inside) offsets(problem_.outer, row_, at);
#pragma unroll
    for (int t = 0; t < N; ++t) data_[t] = static_cast<T*>(problem_.data[t]) + at[t] + (kKind == RowKind::kColumns ? first() * problem_.step[t] : first());
    left_ = inside ? static_cast<int>(problem_.length) - first() : 0;
  }
  __device__ __forceinline__ void load() {
#pragma unroll
    for (int p = 0; p < kPacks; ++p)
      if (holds(p)) held_[p] = load_stored(place(0, p));
  }

  const RowProblem<N>& problem_;
  RowThreads<C, kKind == RowKind::kColumns> threads_;
  T* data_[N];  // this thread's first elements
  Stored held_[kPacks];
  int64_t row_;
  int left_;  // elements from this thread's first to the row's end
};

}  // namespace tenor::cuda
