// rms_norm, alone and behind an addition.
#include "src/ops/norm/norm_rows_cuda.cuh"

namespace tenor::cuda {
namespace {

/// kAdds: it may be behind an addition.
template <Vectors kVectors, bool kAdds>
struct RmsNorm {
  static constexpr int kTensors = 4;
  static constexpr bool kShortOnly = kVectors == Vectors::kShort;
  static constexpr int kKept = kVectors == Vectors::kShort ? 1 : 0;
  using Parameters = NormParameters;

  template <class Row>
  static __device__ __forceinline__ auto prepare(Row& row, const Parameters& p) {
    return prepare_norm<kVectors, false>(row, p);
  }
  template <class Row, class Ahead, class C = typename Row::C>
  static __device__ __forceinline__ void run(Row& row, const Parameters& p, const Ahead& ahead) {
    if (kAdds && p.add) row.add(kResidual, kSum);
    const C square = row.sum([](C v, C& part) { part = fma(v, v, part); });
    const C inverse = inverse_root(square * ahead.per_element, p.epsilon);
    write_scaled<kVectors>(row, p, ahead.vectors, [=](C v) { return v * inverse; });
  }
};

}  // namespace

void rms_norm_rows(const char* op, const NormTensors& tensors, double epsilon, double weight_offset) {
  norm_rows<RmsNorm>(op, tensors, epsilon, weight_offset);
}

}  // namespace tenor::cuda
