// The operators as passes over segments of outputs, and what follows the last pass.
#include <cmath>
#include <cstring>
#include <limits>

#include "src/core/layout.h"
#include "src/core/reduction_order.h"
#include "src/cpu/parallel.h"
#include "src/ops/reduce/reduce_driver.h"
#include "src/ops/reduce/reduce_problem.h"

namespace tenor::reduce {
namespace {

/// Whether segments alone keep the threads busy; else the blocks of each segment are shared out.
bool enough_segments(int64_t segments, const cpu::ReducedLayout& layout) {
  return segments >= 2 * num_threads() || layout.count < 2 * core::kReductionBlock;
}

/// The first pass, which for most is the only one. Without a default, so that the compiler tells of a forgotten
/// operator.
Pass pass_of(const Problem& p) {
  switch (p.op) {
    case Op::kSum:
    case Op::kMean:
      return p.squares ? Pass::kSumSquares : Pass::kSum;
    case Op::kProd:
      return Pass::kProd;
    case Op::kMax:
      return Pass::kMax;
    case Op::kMin:
      return Pass::kMin;
    case Op::kAny:
    case Op::kAll:
    case Op::kCount:
      return Pass::kCount;
    case Op::kVar:
    case Op::kStd:
      return Pass::kSum;  // the mean first
    case Op::kLogSumExp:
      return Pass::kMax;
    case Op::kNorm:
      break;
  }
  if (p.power == 0) return Pass::kCount;
  if (std::isinf(p.power)) return p.power > 0 ? Pass::kMaxAbs : Pass::kMinAbs;
  return p.power == 2 ? Pass::kSumSquares : p.power == 1 ? Pass::kSumAbs : Pass::kSumPowers;
}

/// One problem with its readers, made once; run() computes the outputs of a segment.
class Runner {
 public:
  explicit Runner(const Problem& p)
      : p_(p),
        layout_(cpu::make_layout(p.x, p.ordered ? p.dims : core::in_memory_order(p.x, p.dims), p.out)),
        driver_(p.x, layout_) {
    const bool staged = p.op == Op::kVar || p.op == Op::kStd || p.op == Op::kLogSumExp;
    first_ = reader(pass_of(p));
    if (p.op == Op::kLogSumExp)
      second_ = reader(Pass::kSumExp);
    else if (staged)
      second_ = reader(Pass::kSumShifted), third_ = reader(Pass::kSumShiftedSquares);
    scatter_ = make_scatter();
    passes_ = p.op == Op::kLogSumExp ? 2 : staged ? 3 : 1;
  }

  void run_all() const {
    const int64_t width = driver_.segment_width(passes_, first_.converts), n = cpu::segments(layout_, width);
    const int64_t item = static_cast<int64_t>(item_size(p_.x.dtype()));
    if (enough_segments(n, layout_)) {
      cpu::parallel_for(n, cpu::grain_of(width * layout_.count * item), [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) run(cpu::segment(layout_, i, width), false);
      });
    } else {
      for (int64_t i = 0; i < n; ++i) run(cpu::segment(layout_, i, width), true);
    }
  }

 private:
  Reader reader(Pass pass) const {
    // The maximum of logsumexp is formed in the dtype of its sum; max itself keeps x's.
    if (p_.op == Op::kLogSumExp && !is_float(p_.x.dtype()))
      return {kernels(pass, p_.accumulator), cpu::Gather(p_.x.dtype(), p_.accumulator), p_.accumulator, true};
    return make_reader(pass, p_.x.dtype(), p_.accumulator);
  }

  void run(const cpu::Segment& s, bool parallel) const {
    thread_local Accumulators memory;
    void* results = memory.reserve(3 * s.width);
    driver_.reduce(first_, s, nullptr, p_.power, parallel, results);
    if (p_.accumulator == float64)
      finish(s, parallel, static_cast<double*>(results));
    else
      finish(s, parallel, static_cast<float*>(results));
  }

  /// `value` holds the first pass's results, and has room for three values an output.
  template <class C>
  void finish(const cpu::Segment& s, bool parallel, C* value) const {
    C *shift = value + s.width, *correction = shift + s.width;
    const C count = static_cast<C>(layout_.count);
    switch (p_.op) {
      case Op::kMean:
        for (int64_t i = 0; i < s.width; ++i) value[i] /= count;
        break;
      case Op::kVar:
      case Op::kStd: {
        for (int64_t i = 0; i < s.width; ++i) shift[i] = value[i] / count;
        if (is_float(p_.x.dtype()) && driver_.dense_rows() && (!parallel || driver_.blocks() == 1)) {
          const int64_t stride = layout_.inner.in;
          deviations(p_.x.dtype())(driver_.data(s.in), stride, s.width, layout_.count, shift, correction, value);
        } else {
          driver_.reduce(second_, s, shift, 0, parallel, correction);
          driver_.reduce(third_, s, shift, 0, parallel, value);
        }
        variances(value, correction, s.width);
        break;
      }
      case Op::kLogSumExp:
        for (int64_t i = 0; i < s.width; ++i) shift[i] = std::isinf(value[i]) ? C(0) : value[i];
        driver_.reduce(second_, s, shift, 0, parallel, value);
        for (int64_t i = 0; i < s.width; ++i) value[i] = std::log(value[i]) + shift[i];
        break;
      case Op::kNorm:
        roots(value, s.width);
        break;
      case Op::kAny:
      case Op::kAll:
        return store_truth(value, s);
      default:
        break;
    }
    store(value, s);
  }

  /// The rounding error of the mean is taken out again: sum (x - m)^2 - (sum (x - m))^2 / N.
  template <class C>
  void variances(C* squares, const C* deviations, int64_t n) const {
    const C count = static_cast<C>(layout_.count),
            freedom = static_cast<C>(static_cast<double>(layout_.count) - p_.correction);
    for (int64_t i = 0; i < n; ++i) {
      const C rest = squares[i] - deviations[i] * deviations[i] / count;
      C v = (rest < 0 ? C(0) : rest) / freedom;
      if (!(freedom > 0)) v = std::numeric_limits<C>::quiet_NaN();
      squares[i] = p_.op == Op::kStd ? std::sqrt(v) : v;
    }
  }

  template <class C>
  void roots(C* value, int64_t n) const {
    if (p_.power == 2)
      for (int64_t i = 0; i < n; ++i) value[i] = std::sqrt(value[i]);
    else if (p_.power != 0 && p_.power != 1 && !std::isinf(p_.power))
      for (int64_t i = 0; i < n; ++i) value[i] = std::pow(value[i], static_cast<C>(1 / p_.power));
    else if (p_.power == 0)  // counts, 8 bytes each, give way to floats of at most that
      for (int64_t i = 0; i < n; ++i) {
        int64_t counted;
        std::memcpy(&counted, reinterpret_cast<const char*>(value) + 8 * i, 8);
        value[i] = static_cast<C>(counted);
      }
  }

  /// From the accumulators' dtype to out's.
  cpu::Scatter make_scatter() const {
    DType from = first_.kernels->accumulator;
    if (p_.op == Op::kNorm || second_.kernels) from = p_.accumulator;
    const DType to = p_.out.dtype();
    if (item_size(from) == item_size(to) && is_float(from) == is_float(to))
      from = to;  // uint64 and int64, bool and uint8
    return cpu::Scatter(from, to);
  }
  void store(const void* values, const cpu::Segment& s) const {
    char* out = static_cast<char*>(p_.out.raw()) + s.out * static_cast<int64_t>(item_size(p_.out.dtype()));
    scatter_(values, out, {1, s.width, 0, layout_.inner.out});
  }

  void store_truth(const void* results, const cpu::Segment& s) const {
    const int64_t* counts = static_cast<const int64_t*>(results);
    bool* out = p_.out.data<bool>() + s.out;
    for (int64_t i = 0; i < s.width; ++i)
      out[i * layout_.inner.out] = p_.op == Op::kAny ? counts[i] != 0 : counts[i] == layout_.count;
  }

  const Problem& p_;
  cpu::ReducedLayout layout_;
  Driver driver_;
  Reader first_{}, second_{}, third_{};
  cpu::Scatter scatter_;
  int passes_ = 1;
};

}  // namespace

void run_cpu(const Problem& problem) {
  if (problem.out.numel() != 0) Runner(problem).run_all();
}

}  // namespace tenor::reduce
