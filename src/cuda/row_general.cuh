// A row of any layout: element by element, held in shared memory or, where it is too long for that, read again by each
// pass.
//
// Loops are rolled and the order of elements is data, so that one kernel a dtype serves every layout. Where the row's
// length allows the accesses of HeldRow, the order and with it the bits are those of HeldRow.
#pragma once

#include "src/cuda/convert.cuh"
#include "src/cuda/row_held.cuh"

namespace tenor::cuda {

/// One row as one of its threads sees it; N tensors, 0 the input. `held` is problem.share elements a thread.
template <class T, int N>
class GeneralRow {
 public:
  using Element = T;
  using C = core::Compute<T>;
  using Threads = RowThreads<C, RowShape::kAny, true>;
  static constexpr int kGroup = 1, kPacks = 1;
  static constexpr bool kDense = false, kIsFull = false, kWhole = true;

  __device__ GeneralRow(const RowProblem<N>& problem, typename Threads::Scratch& scratch, T* held)
      : problem_(problem),
        threads_(scratch, problem.columns),
        blocks_(problem.share / kChains),
        between_(blockDim.x * blockDim.y * blockDim.z) {
    held_ = held + (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    place_elements();
    row_ = threads_.row(threads_.group());
    length_ = row_ < problem_.outer.count ? problem_.length : 0;
    int64_t at[N] = {};
    if (length_ > 0) offsets(problem_.outer, row_, at);
#pragma unroll
    for (int t = 0; t < N; ++t) data_[t] = static_cast<T*>(problem_.data[t]) + at[t];
    if (problem_.chunks == 1) load(0);
  }

  template <class F>
  __device__ void for_accesses(F) const {}  // only rows in registers hurry

  __device__ int64_t index() const { return row_; }
  __device__ int64_t length() const { return problem_.length; }
  __device__ int64_t within(int64_t i) const { return is_one_run() ? i : i - run_of(i) * problem_.run; }

  __device__ void add(int other, int to) {
    for (int64_t chunk = 0; chunk < problem_.chunks; ++chunk) {
      if (problem_.chunks > 1) load(chunk);
#pragma unroll 1
      for (int b = 0; b < blocks_; ++b) add_block(first_of(chunk, b), b, other, to);
    }
    source_ = to;
  }

  __device__ void release() {}

  template <class F>
  __device__ C sum(F f) {
    return total(own_sums<1>([&](C v, C(&part)[1], int) { f(v, part[0]); })).at[0];
  }
  template <int K>
  __device__ Pack<C, K> total(const Pack<C, K>& own) {
    return threads_.reduce(own, Pack<C, K>{}, Each<Sum>());
  }
  template <int K, class Combine>
  __device__ Pack<C, K> near(const Pack<C, K>& own, Combine combine) {
    return threads_.reduce_near(own, combine);
  }
  /// Of rows that are not held, of all chunks.
  __device__ int64_t near_count() const { return near_first(problem_.share); }
  /// Those among the first kRowSample of each of its threads, in every chunk.
  __device__ int64_t near_sample() const { return near_first(kRowSample); }
  template <int K, class Join>
  __device__ Pack<C, K> join(const Pack<C, K>& found, Join join) {
    return threads_.join(found, join);
  }
  /// kFirst: of each chunk.
  template <int K, int kFirst = INT32_MAX, class F>
  __device__ Pack<C, K> own_sums(F f) {
    double total[K] = {};  // of the chunks of a row that is not held
    Pack<C, K> out;
    for_chunks([&](int64_t chunk) {
      C part[kChains][K] = {};
#pragma unroll 1
      for (int b = 0; b < min(blocks_, kFirst / kChains); ++b)
        each(chunk, b, [&](int j, int64_t) { f(widen(at(b, j)), part[j], 0); });
#pragma unroll
      for (int width = kChains / 2; width > 0; width /= 2)
#pragma unroll
        for (int j = 0; j < width; ++j)
#pragma unroll
          for (int k = 0; k < K; ++k) part[j][k] += part[j + width][k];
#pragma unroll
      for (int k = 0; k < K; ++k) {
        if (problem_.chunks == 1)
          out.at[k] = part[0][k];
        else
          total[k] += part[0][k];
      }
    });
#pragma unroll
    for (int k = 0; k < K; ++k)
      if (problem_.chunks > 1) out.at[k] = static_cast<C>(total[k]);
    return out;
  }

  template <class F, class Combine>
  __device__ C combine(C first, F f, Combine combine) {
    return threads_.reduce(Pack<C, 1>{own_combine(first, f, combine)}, Pack<C, 1>{first}, Each<Combine>{combine}).at[0];
  }
  template <class F, class Combine>
  __device__ C own_combine(C first, F f, Combine combine) {
    C best = first;
    for_chunks([&](int64_t chunk) {
#pragma unroll 1
      for (int b = 0; b < blocks_; ++b)
        each(chunk, b, [&](int j, int64_t) { best = combine(best, f(widen(at(b, j)))); });
    });
    return best;
  }

  template <bool kReads = true, class F>
  __device__ void write(int to, F f) {
    for_chunks([&](int64_t chunk) {
      for (int b = 0; b < blocks_; ++b) {
        const int64_t start = first_of(chunk, b);
#pragma unroll 1
        for (int j = 0; j < kChains; ++j) {
          const int64_t i = start + j * next_;
          if (i >= length_) break;
          C value[1] = {widen(at(b, j))};
          f(value, i, int64_t{1}, 0);
          data_[to][offset(to, i)] = convert<T>(value[0]);
        }
      }
    });
  }

 private:
  static constexpr int kChains = kVector<T>;  // independent additions, as in HeldRow

  /// Which elements this thread takes: `first_`, then kChains of them `next_` apart, and so on every `block_`, and all
  /// that again in the next chunk. As HeldRow deals them.
  __device__ void place_elements() {
    const int place = threads_.place(), count = threads_.count();
    const int lanes = problem_.columns ? count : min(count, kWarp), piece = problem_.wide ? kChains : 1;
    first_ = (place / lanes * (problem_.share / piece) * lanes + place % lanes) * piece;
    next_ = problem_.wide ? 1 : lanes;
    block_ = lanes * kChains;
    chunk_ = int64_t{count} * problem_.share;
  }
  /// How many elements the near group has among the first `each` of its threads in every chunk.
  __device__ int64_t near_first(int64_t each) const {
    const int64_t whole = problem_.chunks == 1 ? 0 : problem_.length / chunk_, rest = problem_.length - whole * chunk_;
    if (problem_.columns) {
      const int64_t own = (rest - threads_.place() + threads_.count() - 1) / threads_.count();
      return whole * each + min(max(own, int64_t{0}), each);
    }
    const int near = threads_.near();
    const int64_t begin = int64_t{threads_.place() / near} * problem_.share * near;
    return whole * each * near + min(max(rest - begin, int64_t{0}), each * near);
  }
  __device__ bool is_one_run() const { return problem_.run == problem_.length; }
  __device__ int64_t run_of(int64_t i) const {
    return problem_.length <= INT32_MAX ? divide(static_cast<uint32_t>(i), problem_.run_divider) : i / problem_.run;
  }
  __device__ int64_t offset(int t, int64_t i) const {
    if (is_one_run()) return i * problem_.step[t];
    const int64_t run = run_of(i);
    return run * problem_.run_stride[t] + (i - run * problem_.run) * problem_.step[t];
  }
  __device__ T& at(int b, int j) { return held_[(b * kChains + j) * between_]; }

  /// The first element of block b of that chunk that this thread takes.
  __device__ int64_t first_of(int64_t chunk, int b) const { return chunk * chunk_ + b * block_ + first_; }
  /// fn(j, element) for this thread's elements of block b of that chunk.
  template <class F>
  __device__ __forceinline__ void each(int64_t chunk, int b, F fn) {
    const int64_t start = first_of(chunk, b);
#pragma unroll
    for (int j = 0; j < kChains; ++j) {
      const int64_t i = start + j * next_;
      if (i < length_) fn(j, i);
    }
  }
  /// All loads before the first store, which the compiler must not move them across.
  __device__ void add_block(int64_t start, int b, int other, int to) {
    T more[kChains];
#pragma unroll
    for (int j = 0; j < kChains; ++j)
      if (start + j * next_ < length_) more[j] = data_[other][offset(other, start + j * next_)];
#pragma unroll
    for (int j = 0; j < kChains; ++j) {
      if (start + j * next_ >= length_) break;
      at(b, j) = convert<T>(widen(at(b, j)) + widen(more[j]));
      data_[to][offset(to, start + j * next_)] = at(b, j);
    }
  }
  __device__ void load(int64_t chunk) {
#pragma unroll 1
    for (int b = 0; b < blocks_; ++b) {
      T values[kChains];
      each(chunk, b, [&](int j, int64_t i) { values[j] = data_[source_][offset(source_, i)]; });
#pragma unroll
      for (int j = 0; j < kChains; ++j) at(b, j) = values[j];
    }
  }
  template <class F>
  __device__ __forceinline__ void for_chunks(F fn) {
    for (int64_t chunk = 0; chunk < problem_.chunks; ++chunk) {
      if (problem_.chunks > 1) load(chunk);
      fn(chunk);
    }
  }

  const RowProblem<N>& problem_;
  Threads threads_;
  T* data_[N];
  T* held_;
  int blocks_;   // kChains elements each, of this thread
  int between_;  // elements from one held element to the next: a thread's own are a block apart
  int64_t row_, length_, next_, block_, first_, chunk_;
  int source_ = 0;
};

}  // namespace tenor::cuda
