// Sorting rows: by rank when short, else by radix, rows side by side or one row by all threads.
#include "src/ops/sort/rows.h"

namespace tenor::cpu {
namespace {

/// Whether a packed value has no room for the whole key: 64-bit elements in rows below 2^32.
template <class K, class P>
inline constexpr bool kWide = 8 * sizeof(K) > kIndexBits<P>;

/// Calls fn<K, P>() with the narrowest packing that a sort can use.
template <class F>
void visit_sort(size_t width, int64_t n, F&& fn) {
  visit_key(width, [&]<class K>() {
    if (n > int64_t{UINT32_MAX}) return fn.template operator()<K, Packed128>();
    fn.template operator()<K, Packed64>();
  });
}

/// Two buffers of packed values to sort between, and a row's whole keys where the packed values hold a part of them.
template <class K, class P>
struct SortSpace {
  Scratch<P> packed;
  Scratch<uint64_t> keys;
  P *a, *b;

  explicit SortSpace(int64_t n) : packed(2 * n), keys(kWide<K, P> ? n : 0), a(packed.data()), b(a + n) {}
};

/// Packs elements [first, first + n) with the 32 key bits from `shift` up.
template <class P>
void pack_part(const uint64_t* keys, int64_t first, int64_t n, int shift, P* packed) {
  for (int64_t i = first; i < first + n; ++i) packed[i] = pack<P>(static_cast<uint32_t>(keys[i] >> shift), i);
}

/// The lowest of the 32 key bits that are sorted first: the topmost that vary.
inline int part_shift(uint64_t varying) { return std::max(0, 32 - std::countl_zero(varying)); }

/// Puts the runs that agree in their packed key bits, and start in [first, last), in the order of their whole keys.
template <class P>
void mend_runs(P* sorted, int64_t first, int64_t last, const uint64_t* keys) {
  const auto before = [&](P p, P q) {
    const uint64_t a = keys[index_of(p)], b = keys[index_of(q)];
    return a != b ? a < b : p < q;
  };
  for (int64_t i = first; i < last;) {
    int64_t end = i + 1;
    while (end < last && key_of(sorted[end]) == key_of(sorted[i])) ++end;
    if (end - i > 1 && !std::is_sorted(sorted + i, sorted + end, before)) std::sort(sorted + i, sorted + end, before);
    i = end;
  }
}

/// One thread's sort of a row; the result lies in one of the space's buffers.
template <class K, class P>
const P* sort_row(const K* x, int64_t stride, int64_t n, KeyCode code, SortSpace<K, P>& space) {
  if constexpr (!kWide<K, P>) {
    const uint64_t varying = load_packed(x, stride, 0, n, code, space.a).bits();
    return radix_sort(space.a, space.b, n, varying);
  } else {
    uint64_t* keys = space.keys.data();
    const uint64_t varying = load_keys(x, stride, 0, n, code, keys).bits();
    const int shift = part_shift(varying);
    pack_part(keys, 0, n, shift, space.a);
    P* sorted = radix_sort(space.a, space.b, n, static_cast<uint32_t>(varying >> shift));
    if (shift > 0) mend_runs(sorted, 0, n, keys);
    return sorted;
  }
}

/// fn(chunk, first, last) over a row cut into a chunk a thread.
template <class Fn>
void each_chunk(int64_t n, Fn fn) {
  const int64_t chunks = num_threads();
  parallel_for(chunks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; ++c) fn(c, n * c / chunks, n * (c + 1) / chunks);
  });
}

/// mend_runs by all threads: a chunk begins where a run does.
template <class P>
void mend_shared(P* sorted, int64_t n, const uint64_t* keys) {
  const auto run_from = [&](int64_t i) {
    while (i > 0 && i < n && key_of(sorted[i]) == key_of(sorted[i - 1])) ++i;
    return i;
  };
  std::vector<int64_t> cuts;
  for (int64_t c = 0; c <= num_threads(); ++c) cuts.push_back(run_from(n * c / num_threads()));
  const int64_t chunks = static_cast<int64_t>(cuts.size()) - 1;
  parallel_for(chunks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; ++c) mend_runs(sorted, cuts[c], cuts[c + 1], keys);
  });
}

/// All threads' sort of one row.
template <class K, class P>
const P* sort_shared(const K* x, int64_t stride, int64_t n, KeyCode code, SortSpace<K, P>& space) {
  std::vector<VaryingBits> parts(static_cast<size_t>(num_threads()));
  uint64_t* keys = space.keys.data();
  each_chunk(n, [&](int64_t c, int64_t first, int64_t last) {
    if constexpr (kWide<K, P>) {
      parts[c] = load_keys(x, stride, first, last - first, code, keys);
    } else {
      parts[c] = load_packed(x, stride, first, last - first, code, space.a);
    }
  });
  VaryingBits all;
  for (const VaryingBits& part : parts) all.add(part);
  if constexpr (!kWide<K, P>) {
    return parallel_radix_sort(space.a, space.b, n, all.bits());
  } else {
    const int shift = part_shift(all.bits());
    each_chunk(n, [&](int64_t, int64_t first, int64_t last) { pack_part(keys, first, last - first, shift, space.a); });
    P* sorted = parallel_radix_sort(space.a, space.b, n, static_cast<uint32_t>(all.bits() >> shift));
    if (shift > 0) mend_shared(sorted, n, keys);
    return sorted;
  }
}

/// A short row by rank.
template <class K>
void sort_short(const Row<K>& row, int64_t k) {
  using Ranked = std::conditional_t<sizeof(K) == 8, uint64_t, uint32_t>;
  const RowOrder& problem = row.problem;
  K block[kRanked] = {}, narrow[kRanked];
  Ranked keys[kRanked] = {};
  uint32_t order[kRanked];
  const size_t n = static_cast<size_t>(problem.n);
  encode_all(side_by_side(row.x, row.x_stride, 0, problem.n, block), n, problem.code, narrow);
  std::copy_n(narrow, n, keys);
  rank_all(keys, n, order);
  row.write(0, k, [&](int64_t i) { return static_cast<int64_t>(order[i]); });
}

/// Rows one after another, each by all threads.
template <class K, class P>
void sort_one_by_one(const RowOrder& problem, int64_t k) {
  SortSpace<K, P> space(problem.n);
  RowCursor cursor(problem.rows, 0);
  for (int64_t r = 0; r < problem.rows.count; ++r, cursor.next()) {
    const Row<K> row = Row<K>::at(problem, cursor);
    const P* order = sort_shared<K, P>(row.x, row.x_stride, problem.n, problem.code, space);
    parallel_for(k, kPart, [&](int64_t begin, int64_t end) { row.write_packed(order, begin, end); });
  }
}

}  // namespace

void sort_rows(const RowOrder& problem, int64_t k) {
  if (problem.rows.count == 0 || k == 0) return;
  visit_sort(problem.width, problem.n, [&]<class K, class P>() {
    if (problem.n <= static_cast<int64_t>(kRanked)) {
      each_row<K>(
          problem, k, [] { return 0; }, [&](const Row<K>& row, int) { sort_short(row, k); });
    } else if (shares_rows(problem)) {
      sort_one_by_one<K, P>(problem, k);
    } else {
      each_row<K>(
          problem, k, [&] { return SortSpace<K, P>(problem.n); },
          [&](const Row<K>& row, SortSpace<K, P>& space) {
            row.write_packed(sort_row<K, P>(row.x, row.x_stride, problem.n, problem.code, space), 0, k);
          });
    }
  });
}

void order_whole(const Tensor& x, KeyCode code, int64_t* order, bool* starts) {
  const int64_t n = x.numel();
  if (n == 0) return;
  visit_sort(item_size(x.dtype()), n, [&]<class K, class P>() {
    SortSpace<K, P> space(n);
    const K* data = x.data<K>();
    const bool share = n >= kShareable && num_threads() > 1;
    const P* sorted = share ? sort_shared<K, P>(data, 1, n, code, space) : sort_row<K, P>(data, 1, n, code, space);
    const uint64_t* keys = space.keys.data();
    const auto key_at = [&](int64_t p) { return kWide<K, P> ? keys[index_of(sorted[p])] : key_of(sorted[p]); };
    const uint64_t nan = code.kind == KeyKind::kFloat ? static_cast<K>(~K(0)) : ~uint64_t{0};
    const bool has_nan = code.kind == KeyKind::kFloat && key_at(n - 1) == nan;
    parallel_for(n, kPart, [&](int64_t begin, int64_t end) {
      for (int64_t p = begin; p < end; ++p) {
        order[p] = index_of(sorted[p]);
        starts[p] = p == 0 || key_at(p) != key_at(p - 1) || (has_nan && key_at(p) == nan);
      }
    });
  });
}

}  // namespace tenor::cpu
