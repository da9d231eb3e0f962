#include "src/cpu/limits.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/cpu/limits_simd.cpp"
#include "hwy/foreach_target.h"
#include "src/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenor::cpu::HWY_NAMESPACE {

/// Twelve sums hide the latency of two units' additions; the factors keep them finite.
int64_t MultiplyAdds(int64_t rounds) {
  const hn::ScalableTag<float> d;
  constexpr int kSums = 12;
  hn::Vec<decltype(d)> sum[kSums];
  for (int i = 0; i < kSums; ++i) sum[i] = hn::Set(d, static_cast<float>(i));
  const auto factor = hn::Set(d, 0.5f), term = hn::Set(d, 1.0f);
  for (int64_t r = 0; r < rounds; ++r)
    for (int i = 0; i < kSums; ++i) sum[i] = hn::MulAdd(sum[i], factor, term);
  for (int i = 1; i < kSums; ++i) sum[0] = hn::Add(sum[0], sum[i]);
  volatile float used = hn::GetLane(sum[0]);
  (void)used;
  return rounds * kSums * static_cast<int64_t>(hn::Lanes(d)) * 2;
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
HWY_EXPORT(ReadWords);
uint64_t read_words(const uint64_t* data, int64_t count) { return HWY_DYNAMIC_DISPATCH(ReadWords)(data, count); }
int64_t multiply_adds(int64_t rounds) { return HWY_DYNAMIC_DISPATCH(MultiplyAdds)(rounds); }

}  // namespace tenor::cpu
#endif
