// The formula of layer_norm, which group_norm runs over longer rows.
#pragma once

#include "src/ops/norm/norm_rows_cuda.cuh"

namespace tenor::cuda {

/// a / b to some digits, where what is left over is taken care of; 0 where b is.
__device__ __forceinline__ float roughly(float a, float b) { return b == 0 ? 0 : __fdividef(a, b); }
__device__ __forceinline__ double roughly(double a, double b) { return b == 0 ? 0 : a / b; }

/// Joins what is known of the parts of a row: how many elements, about their mean, the sums of their deviations from
/// that and of their squares. Deviations from the mean of all are those from the parts' means and the means' own (Chan,
/// Golub, LeVeque).
struct JoinMoments {
  template <class Parts, class Part = typename Parts::Part>
  __device__ __forceinline__ Part operator()(const Parts& parts) const {
    using C = decltype(Part{}.at[0] + 0);
    Pack<C, 2> all{};
    parts.each([&](const Part& part) {
      all.at[0] += part.at[0];
      all.at[1] = fma(part.at[0], part.at[1], all.at[1]);
    });
    all = parts.combined(all, Each<Sum>());
    const C mean = roughly(all.at[1], all.at[0]);
    Pack<C, 2> apart{};
    parts.each([&](const Part& part) {
      const C off = part.at[1] - mean, off_all = part.at[0] * off;
      apart.at[0] += part.at[2] + off_all;
      apart.at[1] += fma(off, fma(C(2), part.at[2], off_all), part.at[3]);
    });
    apart = parts.combined(apart, Each<Sum>());
    return {all.at[0], mean, apart.at[0], apart.at[1]};
  }
};

/// kAdds: it may be behind an addition.
template <Vectors kVectors, bool kAdds>
struct LayerNorm {
  static constexpr int kTensors = 4;
  static constexpr bool kOwnVectors = kVectors == Vectors::kOwn;
  static constexpr int kKept = kVectors == Vectors::kOwn ? 2 : 0;
  using Parameters = NormParameters;

  static size_t shared_bytes(const Parameters& p, int64_t length, size_t item) {
    return kOwnVectors ? cuda::shared_bytes(p.affine, length, item) : 0;
  }
  template <class Row>
  static __device__ __forceinline__ auto prepare(Row& row, const Parameters& p) {
    return prepare_norm<kVectors, true>(row, p);
  }
  template <class Row, class Ahead, class C = typename Row::C>
  static __device__ __forceinline__ void run(Row& row, const Parameters& p, const Ahead& ahead) {
    if (kAdds && p.add) row.add(kResidual, kSum);
    constexpr bool kKeeps = keeps<Row>();
    C off[kKeeps ? Row::kPacks * Row::kGroup : 1];  // the elements' deviations from near.at[1]
    const Pack<C, 4> near = moments<kKeeps>(row, off), all = row.join(near, JoinMoments());
    // The sum of deviations is what rounding and an estimated mean left over: rows around 10^6 keep full accuracy. That
    // of squares is larger than that about the mean by shift^2 an element.
    const C shift = all.at[2] * ahead.per_element;
    const C square = fmax(all.at[3] - all.at[2] * shift, all.at[3] * C(0));  // not below 0; NaN stays
    const C inverse = inverse_root(square * ahead.per_element, p.epsilon);
    const C mean = near.at[1], rest = (mean - all.at[1] - shift) * inverse;
    write_scaled<kVectors, !kKeeps>(row, p, ahead.vectors, [&](C v, int i) {
      if constexpr (kKeeps)
        return fma(off[i], inverse, rest);
      else
        return fma(v - mean, inverse, rest);
    });
  }

 private:
  /// Whether threads keep the deviations: of 16-bit elements, which would be widened again for them, where the kernel
  /// leaves registers.
  template <class Row>
  static constexpr bool keeps() {
    return kOwnVectors && Row::kIsFull && sizeof(typename Row::Element) == 2;
  }
  /// Of the elements of this thread's near group: count, about their mean, the sums of the deviations from that and of
  /// their squares. The mean is that of one element in 2 to 8, n, which is no further from that of all than sqrt(n - 1)
  /// of their standard deviations: it costs the sum of squares log2(n) bits at most, and nothing where elements are
  /// alike.
  template <bool kKeeps, class Row, int N, class C = typename Row::C>
  static __device__ __forceinline__ Pack<C, 4> moments(Row& row, C (&kept)[N]) {
    const Pack<C, 1> sum =
        row.near(row.template own_sums<1, kRowSample>([](C v, C(&part)[1], int) { part[0] += v; }), Each<Sum>());
    const C mean = roughly(sum.at[0], static_cast<C>(row.near_sample()));
    const Pack<C, 2> own = row.template own_sums<2>([&](C v, C(&part)[2], int i) {
      const C off = v - mean;
      if constexpr (kKeeps) kept[i] = off;
      part[0] += off;
      part[1] = fma(off, off, part[1]);
    });
    row.release();
    const Pack<C, 2> apart = row.near(own, Each<Sum>());
    return {static_cast<C>(row.near_count()), mean, apart.at[0], apart.at[1]};
  }
};

}  // namespace tenor::cuda
