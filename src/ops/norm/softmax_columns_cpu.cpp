// softmax and log_softmax over a dim whose neighbours lie side by side: strips of columns, read and written as they
// lie.
#include "src/core/visit.h"
#include "src/ops/norm/norm_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/ops/norm/softmax_columns_cpu.cpp"
#include "hwy/foreach_target.h"
#include "src/ops/norm/softmax-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenor::cpu::HWY_NAMESPACE {
namespace {

constexpr size_t kMost = kSoftmaxColumns;

template <class T>
struct Strip {
  using C = core::Compute<T>;
  const T* x;
  T* y;
  int64_t x_step, y_step, length;
  size_t width;
  C top[kMost], sum[kMost];

  explicit Strip(const ColumnStrip& s)
      : x(static_cast<const T*>(s.x)),
        y(static_cast<T*>(s.y)),
        x_step(s.x_step),
        y_step(s.y_step),
        length(s.length),
        width(static_cast<size_t>(s.width)) {}

  void find_tops() {
    const ComputeTag<T> d;
    for (C& t : top) t = -std::numeric_limits<C>::infinity();
    for (int64_t i = 0; i < length; ++i)
      for_lanes(d, width, [&](size_t c, auto io) HWY_ATTR {
        hn::StoreU(hn::Max(hn::LoadU(d, top + c), io.load(d, x + i * x_step + c)), d, top + c);
      });
  }

  /// The sums of exp(x - top) in the reduction order; keep(i, c, io, exponentials) sees each as it comes.
  template <class Keep>
  void sum_exponentials(Keep keep) {
    const ComputeTag<T> d;
    core::BlockCounter<C> blocks[kMost];
    C lanes[core::kReductionLanes * kMost];
    const auto add = [](C a, C b) { return a + b; };
    for (int64_t begin = 0; begin < length; begin += core::kReductionBlock) {
      const int64_t end = std::min(begin + core::kReductionBlock, length);
      std::fill(std::begin(lanes), std::end(lanes), C(0));
      for (int64_t i = begin; i < end; ++i) {
        C* lane = lanes + (i - begin) % core::kReductionLanes * static_cast<int64_t>(kMost);
        for_lanes(d, width, [&](size_t c, auto io) HWY_ATTR {
          const auto e = math::exp(d, hn::Sub(io.load(d, x + i * x_step + c), hn::LoadU(d, top + c)));
          keep(i, c, io, e);
          hn::StoreU(hn::Add(hn::LoadU(d, lane + c), e), d, lane + c);
        });
      }
      for (int64_t half = core::kReductionLanes / 2; half > 0; half /= 2)
        for (size_t c = 0; c < static_cast<size_t>(half) * kMost; ++c)
          lanes[c] += lanes[c + static_cast<size_t>(half) * kMost];
      for (size_t c = 0; c < width; ++c) blocks[c].push(lanes[c], add);
    }
    for (size_t c = 0; c < kMost; ++c) sum[c] = c < width ? blocks[c].finish(C(0), add) : C(1);
  }
};

/// Exponentials are kept where the result will be if that is of their type, else in `scratch`.
template <class T>
void softmax_strip(const ColumnStrip& task) {
  using C = core::Compute<T>;
  const ComputeTag<T> d;
  Strip<T> s(task);
  s.find_tops();
  C* const scratch = static_cast<C*>(task.scratch);
  s.sum_exponentials([&](int64_t i, size_t c, auto io, auto e) HWY_ATTR {
    if constexpr (std::is_same_v<T, C>)
      io.store(d, e, s.y + i * s.y_step + c);
    else
      hn::StoreU(e, d, scratch + static_cast<size_t>(i) * kMost + c);
  });
  for (int64_t i = 0; i < s.length; ++i)
    for_lanes(d, s.width, [&](size_t c, auto io) HWY_ATTR {
      T* y = s.y + i * s.y_step + c;
      const Divisor<T> by(d, hn::LoadU(d, s.sum + c));
      if constexpr (std::is_same_v<T, C>)
        io.store(d, by.divide(d, io.load(d, y)), y);
      else
        io.store(d, by.divide(d, hn::LoadU(d, scratch + static_cast<size_t>(i) * kMost + c)), y);
    });
}

template <class T>
void log_softmax_strip(const ColumnStrip& task) {
  const ComputeTag<T> d;
  Strip<T> s(task);
  s.find_tops();
  s.sum_exponentials([](int64_t, size_t, auto, auto) HWY_ATTR {});
  logs_of_sums(s.sum, kMost);
  for (int64_t i = 0; i < s.length; ++i)
    for_lanes(d, s.width, [&](size_t c, auto io) HWY_ATTR {
      const auto v = hn::Sub(io.load(d, s.x + i * s.x_step + c), hn::LoadU(d, s.top + c));
      io.store(d, hn::Sub(v, hn::LoadU(d, s.sum + c)), s.y + i * s.y_step + c);
    });
}

void strip_of(const ColumnStrip& s, DType dtype, bool logarithm) {
  core::visit_float(dtype, [&]<class T>() { logarithm ? log_softmax_strip<T>(s) : softmax_strip<T>(s); });
}

}  // namespace
}  // namespace tenor::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenor::cpu {
HWY_EXPORT(strip_of);
void softmax_columns(const ColumnStrip& strip, DType dtype, bool logarithm) {
  HWY_DYNAMIC_DISPATCH(strip_of)(strip, dtype, logarithm);
}
}  // namespace tenor::cpu
#endif
