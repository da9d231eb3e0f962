// Selection in rows without sorting them: a row is spread over the blocks of a cluster, which count its keys digit by
// digit (histogram), find the bin that a rank or a mass falls into (threshold), and bring the few elements that remain
// together in the first block (gather). Ties are told apart by their index, the last digits of the key. Counts and
// masses are integers: the result does not depend on the order in which threads add.
#pragma once

#include "src/core/order_key.h"
#include "src/cuda/block_scan.cuh"
#include "src/cuda/bitonic.cuh"
#include "src/cuda/capability.h"
#include "src/cuda/ptx/cluster.cuh"
#include "src/cuda/vector.cuh"

namespace tenor::cuda {

inline constexpr int kSelectThreads = 512;  ///< two blocks a multiprocessor: one loads while the other counts
/// Bits of a digit, and elements that the first block can put in order: with masses less, so that two blocks fit.
template <bool Masses>
inline constexpr int kDigitBits = Masses ? 10 : 11;
template <bool Masses>
inline constexpr int kGathered = Masses ? 1024 : 2048;
inline constexpr uint32_t kByLeast =
    256;  ///< beyond it, the least keys of the threads bound the first elements too loosely

/// A row, and the part of it that this block looks at: in shared memory as keys where it fits, else read anew each
/// time.
template <class K>
struct RowPart {
  const K* row;  ///< the row's elements, as bits
  K* keys;       ///< shared memory for `count` keys, or nothing
  uint32_t begin, count;
  core::KeyCode code;
  bool aligned;  ///< 16-byte loads reach every element from `begin` on

  static constexpr int kInFlight = 5;

  /// fn(key, index) for this thread's elements, as they are loaded for the first time.
  template <class F>
  __device__ void load(F&& fn) const {
    constexpr int kN = kVector<K>;
    uint32_t done = 0;
    if (aligned) {
      done = count / kN * kN;
      for (uint32_t i = threadIdx.x * kN; i < done; i += kInFlight * kSelectThreads * kN) load_some(i, done, fn);
    }
    for (uint32_t i = done + threadIdx.x; i < count; i += kSelectThreads) {
      const K key = core::encode(row[begin + i], code);
      if (keys) keys[i] = key;
      fn(key, begin + i);
    }
  }

  /// Several loads before the first use: the memory's latency is paid once for all of them.
  template <class F>
  __device__ __forceinline__ void load_some(uint32_t first, uint32_t end, F&& fn) const {
    constexpr int kN = kVector<K>;
    Pack<K, kN> bits[kInFlight];
#pragma unroll
    for (int u = 0; u < kInFlight; ++u) {
      const uint32_t i = first + u * kSelectThreads * kN;
      if (i < end) bits[u] = keys ? load_once<kN>(row + begin + i) : load_pack<kN>(row + begin + i);
    }
#pragma unroll
    for (int u = 0; u < kInFlight; ++u) {
      const uint32_t i = first + u * kSelectThreads * kN;
      if (i >= end) return;
#pragma unroll
      for (int e = 0; e < kN; ++e) {
        bits[u].at[e] = core::encode(bits[u].at[e], code);
        fn(bits[u].at[e], begin + i + e);
      }
      if (keys) store_pack(keys + i, bits[u]);
    }
  }

  /// The same once the keys are there (and the block has met).
  template <class F>
  __device__ void each(F&& fn) const {
    for (uint32_t i = threadIdx.x; i < count; i += kSelectThreads)
      fn(keys ? keys[i] : core::encode(row[begin + i], code), begin + i);
  }
  /// Likewise for the elements whose key is at most `last`, few of all: 16 bytes of keys are looked at together.
  template <class F>
  __device__ void each_up_to(K last, F&& fn) const {
    constexpr int kN = kVector<K>;
    const auto look = [&](K key, uint32_t i) {
      if (key <= last) fn(key, begin + i);
    };
    if (!keys) return each([&](K key, uint32_t i) { look(key, i - begin); });
    const uint32_t whole = count / kN * kN;
    for (uint32_t i = threadIdx.x * kN; i < whole; i += kSelectThreads * kN) {
      const Pack<K, kN> some = load_pack<kN>(keys + i);
      K least = some.at[0];
#pragma unroll
      for (int e = 1; e < kN; ++e) least = min(least, some.at[e]);
      if (least > last) continue;
#pragma unroll
      for (int e = 0; e < kN; ++e) look(some.at[e], i + e);
    }
    for (uint32_t i = whole + threadIdx.x; i < count; i += kSelectThreads) look(keys[i], i);
  }
};

/// How many bits the numbers below n take.
__device__ __forceinline__ int bits_below(uint32_t n) { return 32 - __clz(static_cast<int>(n - 1)); }

/// The elements that agree in their leading bits, of the key first and of the index last: what is left of a row after
/// some digits. `key_bits` and `index_bits` count the bits not yet looked at.
template <class K, int DigitBits>
struct KeyRange {
  K key = 0;
  uint32_t index = 0;
  int key_bits = 8 * sizeof(K), index_bits, all_index_bits;

  __device__ explicit KeyRange(uint32_t elements) : index_bits(bits_below(elements)), all_index_bits(index_bits) {}

  /// -1 for an element before the range, 0 in it, 1 after it.
  __device__ int place(K k, uint32_t i) const {
    if (key_bits == 8 * static_cast<int>(sizeof(K))) return 0;
    const K head = static_cast<K>(k >> key_bits);
    if (head != key) return head < key ? -1 : 1;
    if (key_bits > 0 || index_bits == all_index_bits) return 0;
    const uint32_t place = static_cast<uint32_t>(uint64_t{i} >> index_bits);
    return place == index ? 0 : place < index ? -1 : 1;
  }
  /// The last key of it, as long as it is one of keys alone.
  __device__ K last_key() const {
    return static_cast<K>(static_cast<uint64_t>(key) << key_bits | ((uint64_t{1} << key_bits) - 1));
  }
  __device__ int digit_bits() const { return min(DigitBits, key_bits > 0 ? key_bits : index_bits); }
  /// The next digit of an element of the range.
  __device__ uint32_t digit(K k, uint32_t i) const {
    const uint32_t mask = (1u << digit_bits()) - 1;
    return key_bits > 0 ? static_cast<uint32_t>(k >> (key_bits - digit_bits())) & mask
                        : (i >> (index_bits - digit_bits())) & mask;
  }
  /// The part of the range with that digit.
  __device__ KeyRange with(uint32_t digit) const {
    KeyRange next = *this;
    const int bits = digit_bits();
    if (key_bits > 0) {
      next.key_bits -= bits;
      next.key = key_bits == 8 * static_cast<int>(sizeof(K))
                     ? static_cast<K>(digit)
                     : static_cast<K>(static_cast<uint64_t>(key) << bits | digit);
    } else {
      next.index_bits -= bits;
      next.index = index << bits | digit;
    }
    return next;
  }
};

/// What a digit's count said.
struct Found {
  uint32_t digit;
  uint32_t before, inside;            ///< elements before the bin and in it, of the range
  uint64_t mass_before, mass_inside;  ///< their masses
  uint64_t mass;                      ///< of the whole range
};

/// Shared memory of a selection. Of the first block, `all`, `found` and `list` serve the cluster.
template <class K, bool Masses>
struct SelectSpace {
  static constexpr int kBins = 1 << kDigitBits<Masses>;
  uint32_t counts[kBins], all[kBins];
  unsigned long long masses[Masses ? kBins : 1], all_masses[Masses ? kBins : 1];
  Packed<K> list[kGathered<Masses>];
  unsigned long long scan[kSelectThreads / kWarp];
  Found found;
  uint32_t listed, marked;
};

/// One row's selection; every thread of every block of the cluster calls every function.
template <class K, bool Masses>
class Selection {
 public:
  using Space = SelectSpace<K, Masses>;
  using Range = KeyRange<K, kDigitBits<Masses>>;
  static constexpr int kBins = Space::kBins, kMost = kGathered<Masses>;

  /// `waits`: for the cluster's other blocks to have begun; else meet() does, before anything but loads and add().
  __device__ Selection(Space& space, uint32_t tokens, bool waits = true)
      : space_(space), first_(*ptx::in_block(&space, 0)), range_(tokens), inside_(tokens), inside_all_(tokens) {
    for (int b = threadIdx.x; b < kBins; b += kSelectThreads) {
      space_.counts[b] = space_.all[b] = 0;
      if constexpr (Masses) space_.masses[b] = space_.all_masses[b] = 0;
    }
    if (threadIdx.x == 0) space_.listed = space_.marked = 0;
    ptx::cluster_arrive();
    if (waits) meet();
  }
  __device__ void meet() const { ptx::cluster_wait(); }

  /// Counts an element, if it is in the range.
  __device__ void add(K key, uint32_t index) {
    if (range_.place(key, index) == 0) atomicAdd(&space_.counts[range_.digit(key, index)], 1u);
  }
  /// Likewise with its mass, mass().
  template <class F>
  __device__ void add(K key, uint32_t index, F&& mass) {
    if (range_.place(key, index) != 0) return;
    const uint32_t digit = range_.digit(key, index);
    atomicAdd(&space_.counts[digit], 1u);
    if constexpr (Masses) atomicAdd(&space_.masses[digit], static_cast<unsigned long long>(mass()));
  }

  /// Counts `count` elements that the caller marks; marked() is their number in the row once a digit has been found.
  __device__ void mark(uint32_t count) {
    count = __reduce_add_sync(~0u, count);
    if (count > 0 && threadIdx.x % kWarp == 0) atomicAdd(&first_.marked, count);
  }
  __device__ uint32_t marked() const { return first_.marked; }

  /// Once all are counted: narrows the range to the bin of the element of that rank, counted from the range's first.
  /// False when fewer were counted.
  __device__ bool narrow_to_rank(uint32_t rank) {
    collect();
    if (ptx::cluster_rank() == 0)
      choose([&](uint32_t before, uint32_t count, uint64_t, uint64_t, uint64_t) {
        return before <= rank && rank < before + count;
      });
    return take();
  }
  /// Likewise to the bin of the last element before which lies a mass of at most limit(mass of the range), counted from
  /// the range's first. When no bin passes the limit the range stays, and false is returned.
  template <class F>
  __device__ bool narrow_to_mass(F&& limit) {
    collect();
    if (ptx::cluster_rank() == 0)
      choose([&](uint32_t, uint32_t, uint64_t before, uint64_t mass, uint64_t all) {
        return before <= limit(all) && limit(all) < before + mass;
      });
    return take();
  }

  __device__ const Range& range() const { return range_; }
  __device__ uint32_t before() const { return before_; }            ///< elements before the range
  __device__ uint32_t inside() const { return inside_; }            ///< elements in it
  __device__ uint64_t mass_before() const { return mass_before_; }  ///< mass before it
  __device__ uint64_t mass_inside() const { return mass_inside_; }
  __device__ uint64_t total() const { return total_; }  ///< mass of the row, after the first digit
  /// Whether another digit would tell more.
  __device__ bool is_done() const { return inside_ <= 1 || (range_.key_bits == 0 && range_.index_bits == 0); }

  /// Starts over with the whole row.
  __device__ void restart(uint32_t tokens) {
    range_ = Range(tokens);
    before_ = 0;
    inside_ = tokens;
    mass_before_ = mass_inside_ = 0;
  }

  /// Brings an element to the first block, in any order; of more than kMost in all, some are dropped.
  __device__ void gather(K key, uint32_t index) {
    const uint32_t at = atomicAdd(&first_.listed, 1u);
    if (at < kMost) first_.list[at] = pack<K>(key, index);
  }

  /// Brings the first k elements, and few others, to the first block: those that come before the end of the bin in
  /// which the k-th least of the threads' least keys lies, since k elements at least do. `least` is this thread's.
  /// False, and nothing brought, when those are too many.
  __device__ bool gather_by_least(const RowPart<K>& part, K least, uint32_t k) {
    add(least, 0);  // of a thread without elements the last key, which only loosens the bound
    if (narrow_to_rank(k - 1)) {
      part.each_up_to(range_.last_key(), [&](K key, uint32_t i) { gather(key, i); });
      ptx::cluster_sync();
      const uint32_t listed = first_.listed;
      ptx::cluster_sync();
      if (listed <= kMost) return true;
      if (threadIdx.x == 0) space_.listed = 0;
    }
    restart(inside_all_);
    ptx::cluster_sync();
    return false;
  }
  /// The same, digit by digit.
  __device__ void gather_by_rank(const RowPart<K>& part, uint32_t k) {
    do {
      part.each([&](K key, uint32_t i) { add(key, i); });
      narrow_to_rank(k - 1 - before_);
    } while (before_ + inside_ > kMost && !is_done());
    part.each([&](K key, uint32_t i) {
      if (range_.place(key, i) <= 0) gather(key, i);
    });
    ptx::cluster_sync();
  }
  /// Brings the first k <= kMost elements together: a loaded part, whose least key in this thread is known.
  __device__ void gather_first(const RowPart<K>& part, K least, uint32_t k) {
    __syncthreads();
    if (k <= kByLeast && gather_by_least(part, least, k)) return;
    gather_by_rank(part, k);
  }
  /// The first block alone, once the cluster has met: puts the list in order. Returns its size.
  __device__ uint32_t sort_list() {
    const uint32_t size = space_.listed;
    int padded = kMost / kSelectThreads;
    while (padded < static_cast<int>(size)) padded *= 2;
    if (padded <= kSelectThreads)
      sort_padded<1>(size, padded);
    else
      sort_padded<kMost / kSelectThreads>(size, padded);
    return size;
  }
  /// The first element of the cluster, in the first block's threads, of every thread's first.
  __device__ Packed<K> first_of(Packed<K> mine) {
    const auto earlier = [](const Packed<K>& a, const Packed<K>& b) { return b < a ? b : a; };
    mine = block_reduce<kSelectThreads>(mine, space_.list + 8, earlier);
    if (threadIdx.x == 0) first_.list[ptx::cluster_rank()] = mine;
    ptx::cluster_sync();
    if (ptx::cluster_rank() == 0)
      for (uint32_t b = 0; b < ptx::cluster_size(); ++b) mine = earlier(mine, space_.list[b]);
    return mine;
  }
  __device__ const Packed<K>& listed(uint32_t i) const { return space_.list[i]; }

 private:
  template <int E>
  __device__ void sort_padded(uint32_t size, int padded) {
    Packed<K> v[E];
#pragma unroll
    for (int e = 0; e < E; ++e) {
      const uint32_t i = threadIdx.x * E + e;
      v[e] = i < size ? space_.list[i] : last_packed<K>();
    }
    __syncthreads();
    bitonic_sort(v, padded, space_.list);
    __syncthreads();
#pragma unroll
    for (int e = 0; e < E; ++e) space_.list[threadIdx.x * E + e] = v[e];
    __syncthreads();
  }

  /// Adds this block's bins to the first block's.
  __device__ void collect() {
    __syncthreads();
    for (int b = threadIdx.x; b < kBins; b += kSelectThreads) {
      if (space_.counts[b] == 0) continue;
      atomicAdd(&first_.all[b], space_.counts[b]);
      space_.counts[b] = 0;
      if constexpr (Masses) {
        atomicAdd(&first_.all_masses[b], space_.masses[b]);
        space_.masses[b] = 0;
      }
    }
    ptx::cluster_sync();
  }

  /// The first block: the bin that `is_it` accepts, given what lies before it and in it.
  template <class F>
  __device__ void choose(F&& is_it) {
    constexpr int kEach = kBins / kSelectThreads;
    const int bin = threadIdx.x * kEach;
    uint32_t counts[kEach], count = 0;
    uint64_t masses[kEach] = {}, mass = 0;
#pragma unroll
    for (int b = 0; b < kEach; ++b) {
      count += counts[b] = space_.all[bin + b];
      if constexpr (Masses) mass += masses[b] = space_.all_masses[bin + b];
    }
    if (threadIdx.x == 0) space_.found.digit = kBins;
    uint32_t before = block_scan(count, reinterpret_cast<uint32_t*>(space_.scan)) - count;
    uint64_t mass_before = 0;
    if constexpr (Masses) mass_before = block_scan<unsigned long long>(mass, space_.scan) - mass;
    if (threadIdx.x == kSelectThreads - 1) space_.found.mass = mass_before + mass;
    if constexpr (Masses) __syncthreads();
    const uint64_t all = space_.found.mass;
#pragma unroll
    for (int b = 0; b < kEach; ++b) {
      if (is_it(before, counts[b], mass_before, masses[b], all)) {
        space_.found.digit = bin + b;
        space_.found.before = before, space_.found.inside = counts[b];
        space_.found.mass_before = mass_before, space_.found.mass_inside = masses[b];
      }
      before += counts[b];
      mass_before += masses[b];
      space_.all[bin + b] = 0;
      if constexpr (Masses) space_.all_masses[bin + b] = 0;
    }
  }

  /// Every block takes over what the first one found.
  __device__ bool take() {
    ptx::cluster_sync();
    const Found found = first_.found;
    if (range_.key_bits == 8 * static_cast<int>(sizeof(K))) total_ = found.mass;
    if (found.digit == kBins) return false;
    range_ = range_.with(found.digit);
    before_ += found.before;
    inside_ = found.inside;
    mass_before_ += found.mass_before;
    mass_inside_ = found.mass_inside;
    return true;
  }

  Space& space_;
  Space& first_;
  Range range_;
  uint32_t before_ = 0, inside_, inside_all_;
  uint64_t mass_before_ = 0, mass_inside_ = 0, total_ = 0;
};

/// How a row of n elements is spread: blocks of a cluster, and shared memory for a part's keys (0: read anew each
/// time).
struct SelectShape {
  int blocks;
  uint32_t part;  ///< elements of a block, a multiple of 16
  size_t shared;  ///< bytes, space included

  SelectShape(int64_t n, size_t width, size_t space, Device device) {
    const size_t most = std::min<size_t>(220 << 10, capability(device).shared);
    constexpr int64_t kPart = 20480;
    blocks = 1;
    while (blocks < cluster_of(8, device) && n > blocks * kPart) blocks *= 2;
    const int64_t share = (n + blocks - 1) / blocks;
    part = static_cast<uint32_t>((share + 15) / 16 * 16);
    space = (space + 15) / 16 * 16;
    shared = space + part * width <= most ? space + part * width : space;
  }
};

/// This block's part of a row.
template <class K>
__device__ RowPart<K> part_of(const K* row, uint32_t n, uint32_t part, core::KeyCode code, K* keys) {
  const uint32_t begin = min(ptx::cluster_rank() * part, n);
  const bool aligned = reinterpret_cast<uintptr_t>(row) % kVectorBytes == 0;
  return {row, keys, begin, min(part, n - begin), code, aligned};
}

}  // namespace tenor::cuda
