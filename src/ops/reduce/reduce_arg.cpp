// Driver of argmax, argmin and of max and min along a dim.
#include <cmath>
#include <cstring>
#include <limits>

#include "src/core/layout.h"
#include "src/core/numeric.h"
#include "src/core/reduction_order.h"
#include "src/core/visit.h"
#include "src/cpu/parallel.h"
#include "src/ops/reduce/reduce_driver.h"
#include "src/ops/reduce/reduce_problem.h"

namespace tenor::reduce {
namespace {

constexpr int64_t kBlock = core::kReductionBlock;
constexpr int64_t kTogether = 32;  // blocks gathered in a go: where elements lie apart, a cache line serves several

/// Whether `a`, an extreme of a later block, replaces `b`: the first NaN wins, else the first of equals.
template <class C>
bool better(bool largest, C a, C b) {
  if constexpr (std::is_floating_point_v<C>) {
    if (std::isnan(b)) return false;
    if (std::isnan(a)) return true;
  }
  return largest ? a > b : a < b;
}

class ArgRunner {
 public:
  explicit ArgRunner(const ArgProblem& p)
      : p_(p),
        out_(p.indices.defined() ? p.indices : p.values),
        order_(core::in_memory_order(p.x, p.dims)),
        layout_(cpu::make_layout(p.x, order_, out_)),
        driver_(p.x, layout_) {
    const DType x = p.x.dtype();
    rows_ = make_reader(p.largest ? Pass::kMax : Pass::kMin, x, x);
    const DType wide = x == float32 || x == float64 || x == uint64 ? x : is_float(x) ? float32 : int64;
    columns_ = {nullptr, cpu::Gather(x, wide), wide, wide != x};
    if (p.values.defined()) {
      // By rows an extreme comes in x's dtype or as a float, by columns in the wide dtype.
      const DType kind = driver_.by_rows() ? rows_.kernels->accumulator : wide;
      scatter_ = cpu::Scatter(item_size(kind) == item_size(x) ? x : kind, x);
    }
  }

  void run_all() const {
    // Threads share columns, not the blocks of a column, so segments are as narrow as converted ones.
    const int64_t width = driver_.segment_width(1, true), n = cpu::segments(layout_, width);
    const int64_t item = static_cast<int64_t>(item_size(p_.x.dtype()));
    const bool parallel = driver_.by_rows() && n < 2 * num_threads() && layout_.count >= 2 * kBlock;
    const auto some = [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) run(cpu::segment(layout_, i, width), parallel);
    };
    if (parallel)
      some(0, n);
    else
      cpu::parallel_for(n, cpu::grain_of(width * layout_.count * item), some);
  }

 private:
  /// Whether places alone are asked for, of rows that lie side by side as they are read.
  bool takes_rows_at_once() const {
    constexpr int64_t kMost = int64_t{1} << 27;  // their groups of eight and more are numbered in float32
    return layout_.count <= kMost && !p_.values.defined() && driver_.dense_rows() && order_ == p_.dims &&
           arg_kernels(p_.x.dtype()).largest;
  }
  void rows_at_once(const cpu::Segment& s) const {
    const ArgKernels& kernels = arg_kernels(p_.x.dtype());
    const auto place = p_.largest ? kernels.largest : kernels.smallest;
    int64_t* out = p_.indices.data<int64_t>() + s.out;
    for (int64_t r = 0; r < s.width; ++r)
      out[r * layout_.inner.out] = place(driver_.data(s.in + r * layout_.inner.in), layout_.count);
  }

  void run(const cpu::Segment& s, bool parallel) const {
    if (!parallel && takes_rows_at_once()) return rows_at_once(s);
    Accumulators memory;
    void* values = memory.reserve(s.width);
    std::vector<int64_t> indices(static_cast<size_t>(s.width));
    if (driver_.by_rows()) {
      // An accumulator is a float, a double or an integer of x's size.
      const DType kind = rows_.kernels->accumulator;
      core::visit(kind, [&]<class C>() {
        if constexpr (!core::kStorageFloat<C> && !std::is_same_v<C, bool>)
          rows<C>(s, parallel, static_cast<C*>(values), indices.data());
      });
      store(values, indices, s);
    } else {
      const ArgColumnsFn fold = arg_columns(p_.largest, columns_.dtype);
      driver_.for_column_tiles(columns_, s, 0, layout_.count,
                               [&](const void* x, int64_t stride, int64_t first, int64_t n) {
                                 fold(x, stride, n, first, s.width, values, indices.data());
                               });
      store(values, indices, s);
    }
  }

  /// The extreme of every block, then the first place that holds the greatest of them.
  template <class C>
  void rows(const cpu::Segment& s, bool parallel, C* values, int64_t* indices) const {
    const int64_t blocks = (layout_.count + kBlock - 1) / kBlock;
    std::vector<C> extremes(static_cast<size_t>(blocks * s.width));
    const auto some = [&](int64_t begin, int64_t end) {
      for (int64_t b = begin; b < end; b += kTogether)
        driver_.reduce_blocks(rows_, s, b, std::min(b + kTogether, end), nullptr, 0, extremes.data() + b * s.width);
    };
    if (parallel)
      cpu::parallel_for(blocks, cpu::grain_of(kBlock * s.width), some);
    else
      some(0, blocks);
    for (int64_t r = 0; r < s.width; ++r) {
      int64_t best = 0;
      for (int64_t b = 1; b < blocks; ++b)
        if (better(p_.largest, extremes[b * s.width + r], extremes[best * s.width + r])) best = b;
      values[r] = extremes[best * s.width + r];
      indices[r] = first_place(s.in + r * layout_.inner.in, best, &values[r]);
      // Places count in logical order: where memory has another one, a later block may hold an earlier place.
      for (int64_t b = best + 1; order_ != p_.dims && b < blocks; ++b)
        if (!better(p_.largest, values[r], extremes[b * s.width + r]))
          indices[r] = std::min(indices[r], first_place(s.in + r * layout_.inner.in, b, &values[r]));
    }
  }

  /// The first place in logical order of an element of a block that equals value. There is one.
  int64_t first_place(int64_t in, int64_t block, const void* value) const {
    const int64_t begin = block * kBlock, n = std::min(kBlock, layout_.count - begin);
    const DType dtype = p_.x.dtype();
    alignas(64) uint64_t buffer[kBlock];
    const bool lies = layout_.reduced.size() == 1 && layout_.reduced[0].in == 1;
    if (!lies) driver_.gather_row(rows_, in, begin, begin + n, buffer);
    const char* data = lies ? driver_.data(in + begin) : reinterpret_cast<const char*>(buffer);
    const auto find = [&](int64_t from) {
      const char* rest = data + from * static_cast<int64_t>(item_size(dtype));
      return from + arg_kernels(dtype).find(rest, n - from, value);
    };
    int64_t at = find(0);
    if (order_ == p_.dims) return begin + at;
    int64_t first = std::numeric_limits<int64_t>::max();
    for (; at < n; at = find(at + 1)) first = std::min(first, logical(begin + at));
    return first;
  }

  /// The place in logical order of the element that is `at` in order_.
  int64_t logical(int64_t at) const {
    int64_t index = 0;
    for (size_t i = order_.size(); i-- > 0;) {
      const int d = static_cast<int>(order_[i]);
      int64_t step = 1;
      for (int64_t inner : p_.dims)
        if (inner > d) step *= p_.x.shape(static_cast<int>(inner));
      index += at % p_.x.shape(d) * step;
      at /= p_.x.shape(d);
    }
    return index;
  }

  void store(const void* values, const std::vector<int64_t>& indices, const cpu::Segment& s) const {
    const cpu::Tile tile{1, s.width, 0, layout_.inner.out};
    if (p_.indices.defined()) place_(indices.data(), p_.indices.data<int64_t>() + s.out, tile);
    if (p_.values.defined())
      scatter_(values, static_cast<char*>(p_.values.raw()) + s.out * static_cast<int64_t>(item_size(p_.values.dtype())),
               tile);
  }

  const ArgProblem& p_;
  const Tensor& out_;
  Dims order_;  // of the reduced dims, in which elements are read
  cpu::ReducedLayout layout_;
  Driver driver_;
  Reader rows_{}, columns_{};
  cpu::Scatter scatter_, place_{int64, int64};
};

}  // namespace

void run_arg_cpu(const ArgProblem& problem) {
  const Tensor& out = problem.indices.defined() ? problem.indices : problem.values;
  if (out.numel() != 0) ArgRunner(problem).run_all();
}

}  // namespace tenor::reduce
