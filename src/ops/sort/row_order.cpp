#include "src/ops/sort/row_order.h"

#include <memory>

#include "src/ops/sort/packed.h"
#include "src/ops/sort/smallest.h"
#include "tenor/allocator.h"

namespace tenor::cpu {

RowCursor::RowCursor(const RowSpace& space, int64_t first) : space_(space), at_(space.sizes.size(), 0) {
  for (size_t d = at_.size(); d-- > 0; first /= space.sizes[d]) {
    at_[d] = first % space.sizes[d];
    for (int t = 0; t < RowSpace::kTensors; ++t) offsets_[t] += at_[d] * space.strides[t][d];
  }
}

void RowCursor::next() {
  for (size_t d = at_.size(); d-- > 0;) {
    for (int t = 0; t < RowSpace::kTensors; ++t) offsets_[t] += space_.strides[t][d];
    if (++at_[d] < space_.sizes[d]) return;
    for (int t = 0; t < RowSpace::kTensors; ++t) offsets_[t] -= at_[d] * space_.strides[t][d];
    at_[d] = 0;
  }
}

RowOrder::RowOrder(const Tensor& x_in, int dim, KeyCode key, const Tensor& values_out, const Tensor& indices_out)
    : code(key), width(item_size(x_in.dtype())), x(x_in.raw()) {
  const Tensor* tensors[] = {&x_in, &values_out, &indices_out};
  for (int t = 0; t < RowSpace::kTensors; ++t) {
    if (!tensors[t]->defined()) {
      rows.strides[t] = Dims(rows.sizes.size(), 0);
      continue;
    }
    Dims sizes = tensors[t]->shape(), others = tensors[t]->strides();
    // Results without the dim (keepdim = false) stand at 0 along it.
    if (x_in.ndim() > 0 && tensors[t]->ndim() == x_in.ndim()) {
      strides[t] = others[dim];
      if (t == 0) n = sizes[dim];
      others.erase(dim);
      sizes.erase(dim);
    }
    rows.strides[t] = others;
    if (t == 0) rows.sizes = sizes;
  }
  rows.count = product(rows.sizes);
  if (values_out.defined()) values = values_out.raw();
  if (indices_out.defined()) indices = indices_out.data<int64_t>();
}

namespace {

constexpr int64_t kShort = 32;            // rows sorted by insertion, on the stack
constexpr int64_t kShareable = 1 << 16;  // rows worth sharing among threads

/// From the element's width and the row's length to the key and packed types.
template <class F>
void visit_packed(size_t width, int64_t n, F&& fn) {
  const bool wide = n > int64_t{UINT32_MAX};
  switch (width) {
    case 1: return wide ? fn.template operator()<uint8_t, Packed128>() : fn.template operator()<uint8_t, Packed64>();
    case 2: return wide ? fn.template operator()<uint16_t, Packed128>() : fn.template operator()<uint16_t, Packed64>();
    case 4: return wide ? fn.template operator()<uint32_t, Packed128>() : fn.template operator()<uint32_t, Packed64>();
    default: return fn.template operator()<uint64_t, Packed128>();
  }
}

/// Workspace of a thread, or of all.
template <class P>
class Scratch {
 public:
  explicit Scratch(int64_t count) : memory_(current_allocator().allocate(static_cast<size_t>(count) * sizeof(P), kCpu)) {}
  P* data() const { return static_cast<P*>(memory_.get()); }

 private:
  std::shared_ptr<void> memory_;
};

/// One row of a problem.
template <class K>
struct Row {
  const K* x;
  K* values;
  int64_t* indices;
  const RowOrder& problem;

  Row(const RowOrder& p, const RowCursor& at)
      : x(static_cast<const K*>(p.x) + at.offset(0)),
        values(p.values ? static_cast<K*>(p.values) + at.offset(1) : nullptr),
        indices(p.indices ? p.indices + at.offset(2) : nullptr),
        problem(p) {}

  /// Results [first, last) from the packed order: elements keep their bits, which their keys may have lost.
  template <class P>
  void write(const P* order, int64_t first, int64_t last) const {
    const auto [xs, vs, is] = problem.strides;
    if (values)
      for (int64_t i = first; i < last; ++i) values[i * vs] = x[index_of(order[i]) * xs];
    if (indices)
      for (int64_t i = first; i < last; ++i) indices[i * is] = index_of(order[i]);
  }
};

template <class K, class P>
void order_short(const Row<K>& row, int64_t k) {
  P order[kShort];
  for (int64_t i = 0; i < row.problem.n; ++i) {
    const P p = pack<P>(encode(row.x[i * row.problem.strides[0]], row.problem.code), i);
    int64_t j = i;
    for (; j > 0 && order[j - 1] > p; --j) order[j] = order[j - 1];
    order[j] = p;
  }
  row.write(order, 0, k);
}

/// Rows side by side on the threads.
template <class K, class Fn>
void each_row(const RowOrder& problem, Fn fn) {
  const int64_t grain = grain_of(problem.n * static_cast<int64_t>(16 + sizeof(K)));
  parallel_for(problem.rows.count, grain, [&](int64_t begin, int64_t end) {
    RowCursor cursor(problem.rows, begin);
    fn(begin, end, cursor);
  });
}

template <class K, class P>
void sort_side_by_side(const RowOrder& problem, int64_t k) {
  const int64_t n = problem.n;
  each_row<K>(problem, [&](int64_t begin, int64_t end, RowCursor& cursor) {
    const Scratch<P> scratch(2 * n);
    P *a = scratch.data(), *b = a + n;
    for (int64_t r = begin; r < end; ++r, cursor.next()) {
      const Row<K> row(problem, cursor);
      const uint64_t varying = load_packed(row.x, problem.strides[0], 0, n, problem.code, a);
      row.write(radix_sort(a, b, n, varying), 0, k);
    }
  });
}

/// All of a row by all threads: packed, then sorted. Returns the half of the scratch memory that holds the order.
template <class K, class P>
P* sort_shared(const K* x, int64_t stride, int64_t n, KeyCode code, P* a, P* b) {
  parallel_for(n, kShareable / 4, [&](int64_t begin, int64_t end) { load_packed(x, stride, begin, end - begin, code, a + begin); });
  uint64_t varying = 0;
  const P first = a[0];
  std::vector<uint64_t> parts(static_cast<size_t>(num_threads()), 0);
  const int64_t chunks = static_cast<int64_t>(parts.size());
  parallel_for(chunks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; ++c)
      for (int64_t i = n * c / chunks; i < n * (c + 1) / chunks; ++i) parts[c] |= key_of(a[i]) ^ key_of(first);
  });
  for (uint64_t part : parts) varying |= part;
  return parallel_radix_sort(a, b, n, varying);
}

template <class K, class P>
void sort_one_by_one(const RowOrder& problem, int64_t k) {
  const int64_t n = problem.n;
  const Scratch<P> scratch(2 * n);
  RowCursor cursor(problem.rows, 0);
  for (int64_t r = 0; r < problem.rows.count; ++r, cursor.next()) {
    const Row<K> row(problem, cursor);
    const P* order = sort_shared(row.x, problem.strides[0], n, problem.code, scratch.data(), scratch.data() + n);
    parallel_for(k, kShareable / 4, [&](int64_t begin, int64_t end) { row.write(order, begin, end); });
  }
}

/// Whether rows are too few to keep the threads busy and long enough to share.
bool shares_rows(const RowOrder& problem) {
  return problem.rows.count * 2 <= num_threads() && problem.n >= kShareable;
}

template <class K, class P>
void sort_rows(const RowOrder& problem, int64_t k) {
  if (problem.n <= kShort) {
    each_row<K>(problem, [&](int64_t begin, int64_t end, RowCursor& cursor) {
      for (int64_t r = begin; r < end; ++r, cursor.next()) order_short<K, P>(Row<K>(problem, cursor), k);
    });
  } else if (shares_rows(problem)) {
    sort_one_by_one<K, P>(problem, k);
  } else {
    sort_side_by_side<K, P>(problem, k);
  }
}

template <class K, class P>
void topk_side_by_side(const RowOrder& problem, int64_t k) {
  each_row<K>(problem, [&](int64_t begin, int64_t end, RowCursor& cursor) {
    const Scratch<P> scratch(Smallest<P>::capacity(k));
    for (int64_t r = begin; r < end; ++r, cursor.next()) {
      const Row<K> row(problem, cursor);
      Smallest<P> best(scratch.data(), k);
      best.scan(row.x, problem.strides[0], 0, problem.n, problem.code);
      row.write(best.sorted(), 0, k);
    }
  });
}

/// Every thread finds the k best of its part of the row; the best of those are the row's.
template <class K, class P>
void topk_shared(const RowOrder& problem, int64_t k) {
  const int64_t n = problem.n, parts = std::min<int64_t>(num_threads(), n / (kShareable / 4));
  const int64_t capacity = Smallest<P>::capacity(k);
  const Scratch<P> scratch((parts + 1) * capacity);
  RowCursor cursor(problem.rows, 0);
  for (int64_t r = 0; r < problem.rows.count; ++r, cursor.next()) {
    const Row<K> row(problem, cursor);
    parallel_for(parts, 1, [&](int64_t begin, int64_t end) {
      for (int64_t part = begin; part < end; ++part) {
        Smallest<P> best(scratch.data() + part * capacity, k);
        best.scan(row.x, problem.strides[0], n * part / parts, n * (part + 1) / parts, problem.code);
        best.sorted();
      }
    });
    Smallest<P> best(scratch.data() + parts * capacity, k);
    for (int64_t part = 0; part < parts; ++part)
      for (int64_t i = 0; i < k; ++i) best.push(scratch.data()[part * capacity + i]);
    row.write(best.sorted(), 0, k);
  }
}

template <class K, class P>
void select_row(const Row<K>& row, int64_t k, bool nan_wins, P* packed) {
  const RowOrder& problem = row.problem;
  load_packed(row.x, problem.strides[0], 0, problem.n, problem.code, packed);
  P* chosen = packed + k;
  if (nan_wins && problem.code.kind == KeyKind::kFloat)
    for (int64_t i = 0; i < problem.n; ++i)
      if (key_of(packed[i]) == static_cast<K>(~K(0))) return row.write(packed + i, 0, 1);
  std::nth_element(packed, chosen, packed + problem.n);
  row.write(chosen, 0, 1);
}

}  // namespace

void order_rows(const RowOrder& problem, int64_t k) {
  if (problem.rows.count == 0 || k == 0) return;
  visit_packed(problem.width, problem.n, [&]<class K, class P>() {
    // Sorting costs a handful of passes, selection one and then k log(n / k) insertions.
    if (problem.n <= kShort || k > problem.n / 8) return sort_rows<K, P>(problem, k);
    return shares_rows(problem) && k < kShareable / 8 ? topk_shared<K, P>(problem, k) : topk_side_by_side<K, P>(problem, k);
  });
}

void select_rows(const RowOrder& problem, int64_t k, bool nan_wins) {
  if (problem.rows.count == 0) return;
  visit_packed(problem.width, problem.n, [&]<class K, class P>() {
    each_row<K>(problem, [&](int64_t begin, int64_t end, RowCursor& cursor) {
      const Scratch<P> scratch(problem.n);
      for (int64_t r = begin; r < end; ++r, cursor.next()) select_row<K, P>(Row<K>(problem, cursor), k, nan_wins, scratch.data());
    });
  });
}

void order_whole(const Tensor& x, KeyCode code, int64_t* order, bool* starts) {
  const int64_t n = x.numel();
  if (n == 0) return;
  visit_packed(item_size(x.dtype()), n, [&]<class K, class P>() {
    const Scratch<P> scratch(2 * n);
    P *a = scratch.data(), *b = a + n;
    const bool share = n >= kShareable && num_threads() > 1;
    const P* sorted = share ? sort_shared(x.data<K>(), 1, n, code, a, b)
                            : radix_sort(a, b, n, load_packed(x.data<K>(), 1, 0, n, code, a));
    const uint64_t nan = static_cast<K>(~K(0));
    for (int64_t i = 0; i < n; ++i) {
      const uint64_t key = key_of(sorted[i]);
      order[i] = index_of(sorted[i]);
      starts[i] = i == 0 || key != key_of(sorted[i - 1]) || (code.kind == KeyKind::kFloat && key == nan);
    }
  });
}

}  // namespace tenor::cpu
