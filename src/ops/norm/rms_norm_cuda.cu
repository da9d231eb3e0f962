// rms_norm, alone and behind an addition.
#include "src/ops/norm/norm_rows_cuda.cuh"

namespace tenor::cuda {
namespace {

template <Vectors kVectors, bool kAdds>
struct LargeRmsNorm;

/// kAdds: it may be behind an addition.
template <Vectors kVectors, bool kAdds>
struct RmsNorm {
  using InLargeBlocks = LargeRmsNorm<kVectors, kAdds>;
  static constexpr int kTensors = 4;
  static constexpr bool kOwnVectors = kVectors == Vectors::kOwn;
  static constexpr int kKept = kVectors == Vectors::kOwn ? 1 : 0;
  using Parameters = NormParameters;

  /// 16-bit vectors are held in registers.
  static size_t shared_bytes(const Parameters& p, int64_t length, size_t item) {
    return kOwnVectors && item == 4 ? cuda::shared_bytes(p.affine, length, item) : 0;
  }
  template <class Row>
  static __device__ __forceinline__ auto prepare(Row& row, const Parameters& p) {
    return prepare_norm<kVectors, false>(row, p);
  }
  template <class Row, class Ahead, class C = typename Row::C>
  static __device__ __forceinline__ void run(Row& row, const Parameters& p, const Ahead& ahead) {
    if (kAdds && p.add) row.add(kResidual, kSum);
    const C square = row.sum([](C v, C& part) { part = fma(v, v, part); });
    const C inverse = inverse_root(square * ahead.per_element, p.epsilon);
    write_scaled<kVectors>(row, p, ahead.vectors, [=](C v, int) { return v * inverse; });
  }
};

/// In large blocks: gamma comes once the row has been reduced, and more of them share a multiprocessor. The same bits.
template <Vectors kVectors, bool kAdds>
struct LargeRmsNorm : RmsNorm<kVectors, kAdds> {
  static constexpr bool kBlocksOnly = true;
  template <class Row>
  static __device__ __forceinline__ auto prepare(Row& row, const NormParameters& p) {
    return prepare_norm<kVectors, false, true>(row, p);
  }
};

}  // namespace

void rms_norm_rows(const char* op, const NormTensors& tensors, double epsilon, double weight_offset) {
  norm_rows<RmsNorm>(op, tensors, epsilon, weight_offset);
}

}  // namespace tenor::cuda
