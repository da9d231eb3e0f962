// The register tile of matrix products: rows whose elements are broadcast against a panel of whole vectors. Included
// once per instruction set.
#if defined(TENOR_CPU_REGISTER_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TENOR_CPU_REGISTER_TILE_INL_H_
#undef TENOR_CPU_REGISTER_TILE_INL_H_
#else
#define TENOR_CPU_REGISTER_TILE_INL_H_
#endif

#include "src/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenor::cpu::HWY_NAMESPACE {

// Register tiles by the number of vector registers: 12 x 2 vectors of accumulators in 32, 4 x 3 in 16.
#if HWY_TARGET <= HWY_AVX3 || HWY_TARGET == HWY_NEON
inline constexpr int64_t kRows = 12, kVectors = 2;
#else
inline constexpr int64_t kRows = 4, kVectors = 3;
#endif

/// acc [Rows, kVectors] += a x panel [depth][kVectors]: element (row, k) of a lies at row * RowStep + k * DepthStep.
/// Each sum is one chain of FMAs over k; `first`: from zero.
template <int Rows, int64_t RowStep, int64_t DepthStep, class T>
HWY_NOINLINE void multiply_tile(const T* HWY_RESTRICT a, const T* HWY_RESTRICT panel, T* HWY_RESTRICT acc,
                                int64_t depth, bool first) {
  const hn::ScalableTag<T> d;
  const size_t lanes = hn::Lanes(d);
  hn::Vec<decltype(d)> sums[Rows][kVectors];
  // Unrolled, every loop over the sums: an array of which one place is not known at compile time lives in memory.
#pragma GCC unroll 16
  for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) sums[r][v] = first ? hn::Zero(d) : hn::Load(d, acc + (r * kVectors + v) * lanes);
  for (int64_t k = 0; k < depth; ++k) {
    hn::Vec<decltype(d)> column[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) column[v] = hn::Load(d, panel + v * lanes);
#pragma GCC unroll 16
    for (int r = 0; r < Rows; ++r) {
      const auto x = hn::Set(d, a[r * RowStep]);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) sums[r][v] = hn::MulAdd(x, column[v], sums[r][v]);
    }
    a += DepthStep, panel += kVectors * lanes;
  }
#pragma GCC unroll 16
  for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) hn::Store(sums[r][v], d, acc + (r * kVectors + v) * lanes);
}

}  // namespace tenor::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // TENOR_CPU_REGISTER_TILE_INL_H_
