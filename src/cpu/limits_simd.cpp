#include "src/cpu/limits.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/cpu/limits_simd.cpp"
#include "hwy/foreach_target.h"
#include "src/cpu/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenor::cpu::HWY_NAMESPACE {

/// Twelve sums hide the latency of two units' additions; the factors keep them finite.
template <class T>
int64_t multiply_adds_of(int64_t rounds) {
  const hn::ScalableTag<T> d;
  constexpr int kSums = 12;
  hn::Vec<decltype(d)> sum[kSums];
  for (int i = 0; i < kSums; ++i) sum[i] = hn::Set(d, static_cast<T>(i));
  const auto factor = hn::Set(d, static_cast<T>(0.5)), term = hn::Set(d, static_cast<T>(1));
  for (int64_t r = 0; r < rounds; ++r)
    for (int i = 0; i < kSums; ++i) sum[i] = hn::MulAdd(sum[i], factor, term);
  for (int i = 1; i < kSums; ++i) sum[0] = hn::Add(sum[0], sum[i]);
  volatile T used = hn::GetLane(sum[0]);
  (void)used;
  return rounds * kSums * static_cast<int64_t>(hn::Lanes(d)) * 2;
}
int64_t MultiplyAdds(int64_t rounds) { return multiply_adds_of<float>(rounds); }
int64_t MultiplyAdds64(int64_t rounds) { return multiply_adds_of<double>(rounds); }

void CopyWords(const uint64_t* HWY_RESTRICT from, uint64_t* HWY_RESTRICT to, int64_t count) {
  const hn::ScalableTag<uint64_t> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + 4 * lanes <= count; i += 4 * lanes)
    for (int64_t k = 0; k < 4; ++k) hn::StoreU(hn::LoadU(d, from + i + k * lanes), d, to + i + k * lanes);
  for (; i < count; ++i) to[i] = from[i];
}

constexpr size_t kElements = 1024;  // of a buffer: with its result within any processor's nearest cache

/// fn over a buffer of From into one of To, again and again.
template <class From, class To, class Fn>
int64_t mapped(int64_t rounds, Fn fn) {
  alignas(64) From from[kElements];
  alignas(64) To to[kElements];
  for (size_t i = 0; i < kElements; ++i) from[i] = core::cast<From>(0.25 + 0.5 * static_cast<double>(i) / kElements);
  for (int64_t r = 0; r < rounds; ++r) {
    map_row(from, to, kElements, fn);
    from[0] = core::cast<From>(0.25 + 0.5 / static_cast<double>(r + 2));  // no round is the last one's
  }
  volatile double used = static_cast<double>(core::widen(to[kElements / 2]));
  (void)used;
  return rounds * static_cast<int64_t>(kElements);
}

/// The sum of a buffer of T, again and again: elements are widened in registers, and nothing is written.
template <class T>
int64_t widened(int64_t rounds) {
  alignas(64) T from[kElements] = {};
  const ComputeTag<T> d;
  constexpr size_t kSums = 8;
  const size_t lanes = hn::Lanes(d);
  hn::Vec<decltype(d)> sum[kSums];
  for (auto& s : sum) s = hn::Zero(d);
  for (int64_t r = 0; r < rounds; ++r)
    for (size_t i = 0; i + kSums * lanes <= kElements; i += kSums * lanes)
      for (size_t k = 0; k < kSums; ++k) sum[k] = hn::Add(sum[k], load(d, from + i + k * lanes));
  for (size_t k = 1; k < kSums; ++k) sum[0] = hn::Add(sum[0], sum[k]);
  volatile float used = hn::GetLane(sum[0]);
  (void)used;
  return rounds * static_cast<int64_t>(kElements);
}

template <class T>
int64_t exponentials(int64_t rounds) {
  return mapped<T, T>(rounds, [](auto d, auto v) HWY_ATTR { return math::exp(d, v); });
}
template <class T>
int64_t divisions(int64_t rounds) {
  return mapped<T, T>(rounds, [](auto d, auto v) HWY_ATTR { return hn::Div(math::constant(d, 1), v); });
}
template <class T>
int64_t rounded(int64_t rounds) {
  return mapped<float, T>(rounds, [](auto, auto v) HWY_ATTR { return v; });
}

int64_t RunArithmetic(Arithmetic what, int64_t rounds) {
  switch (what) {
    case Arithmetic::kExponentials32:
      return exponentials<float>(rounds);
    case Arithmetic::kExponentials64:
      return exponentials<double>(rounds);
    case Arithmetic::kDivisions32:
      return divisions<float>(rounds);
    case Arithmetic::kDivisions64:
      return divisions<double>(rounds);
    case Arithmetic::kWidenFloat16:
      return widened<Float16>(rounds);
    case Arithmetic::kWidenBFloat16:
      return widened<BFloat16>(rounds);
    case Arithmetic::kRoundFloat16:
      return rounded<Float16>(rounds);
    case Arithmetic::kRoundBFloat16:
      return rounded<BFloat16>(rounds);
  }
  return 0;
}

/// Eight sums, so that loads and not additions are waited for.
uint64_t ReadWords(const uint64_t* data, int64_t count) {
  const hn::ScalableTag<uint64_t> d;
  constexpr int kSums = 8;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  hn::Vec<decltype(d)> sum[kSums];
  for (auto& s : sum) s = hn::Zero(d);
  int64_t i = 0;
  for (; i + kSums * lanes <= count; i += kSums * lanes)
    for (int s = 0; s < kSums; ++s) sum[s] = hn::Add(sum[s], hn::LoadU(d, data + i + s * lanes));
  for (int s = 1; s < kSums; ++s) sum[0] = hn::Add(sum[0], sum[s]);
  HWY_ALIGN uint64_t lane[HWY_MAX_BYTES / sizeof(uint64_t)];
  hn::Store(sum[0], d, lane);  // SumOfLanes adds signed integers where GCC's headers do, which must not wrap
  uint64_t total = 0;
  for (int64_t l = 0; l < lanes; ++l) total += lane[l];
  for (; i < count; ++i) total += data[i];
  return total;
}

}  // namespace tenor::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenor::cpu {

HWY_EXPORT(MultiplyAdds);
HWY_EXPORT(MultiplyAdds64);
HWY_EXPORT(ReadWords);
HWY_EXPORT(CopyWords);
HWY_EXPORT(RunArithmetic);
uint64_t read_words(const uint64_t* data, int64_t count) { return HWY_DYNAMIC_DISPATCH(ReadWords)(data, count); }
void copy_words(const uint64_t* from, uint64_t* to, int64_t count) { HWY_DYNAMIC_DISPATCH(CopyWords)(from, to, count); }
int64_t multiply_adds(int64_t rounds) { return HWY_DYNAMIC_DISPATCH(MultiplyAdds)(rounds); }
int64_t multiply_adds64(int64_t rounds) { return HWY_DYNAMIC_DISPATCH(MultiplyAdds64)(rounds); }
int64_t run_arithmetic(Arithmetic what, int64_t rounds) { return HWY_DYNAMIC_DISPATCH(RunArithmetic)(what, rounds); }

}  // namespace tenor::cpu
#endif
