// One step's operands as dense numbers of the compute type, from tensors of any strides: what both CPU kernels read.
#pragma once

#include <algorithm>
#include <cmath>

#include "src/core/numeric.h"
#include "src/core/visit.h"
#include "src/cpu/gather.h"
#include "src/ops/gated_delta/gated_delta_problem.h"

namespace tenor::cpu {

template <class C>
inline constexpr DType kComputeDType = sizeof(C) == sizeof(double) ? DType::kFloat64 : DType::kFloat32;

/// Below this a decay is 0 in float64 as well; nothing is lost, and sums of such decays stay finite.
inline constexpr double kLeastDecay = -750;

template <class C>
class DeltaOperands {
 public:
  explicit DeltaOperands(const delta::Problem& p)
      : p_(p),
        values_(p.query.dtype(), kComputeDType<C>),
        betas_(p.beta.dtype(), kComputeDType<C>),
        decays_(float32, kComputeDType<C>),
        out_(kComputeDType<C>, p.output.dtype()) {}

  /// Rows [t, t + n) of the query, [n, K], normalised and scaled where asked for.
  void query(const delta::Sequence& s, int64_t head, int64_t t, int64_t n, C* to) const {
    rows(values_, p_.query, s, head / p_.group(), t, n, 0, p_.key_dim, to);
    for (int64_t i = 0; i < n; ++i) scale_row(to + i * p_.key_dim, static_cast<C>(p_.scale));
  }
  void key(const delta::Sequence& s, int64_t head, int64_t t, int64_t n, C* to) const {
    rows(values_, p_.key, s, head / p_.group(), t, n, 0, p_.key_dim, to);
    for (int64_t i = 0; p_.normalize && i < n; ++i) scale_row(to + i * p_.key_dim, C(1));
  }
  /// Columns [first, first + columns) of the value, as rows of `stride`.
  void value(const delta::Sequence& s, int64_t head, int64_t t, int64_t n, int64_t first, int64_t columns, C* to,
             int64_t stride) const {
    for (int64_t i = 0; i < n; ++i) rows(values_, p_.value, s, head, t + i, 1, first, columns, to + i * stride);
  }
  void beta(const delta::Sequence& s, int64_t head, int64_t t, int64_t n, C* to) const {
    betas_(at(p_.beta, s, head, t), {1, n, 0, p_.beta.stride(2)}, to);
  }
  /// [n] or [n, K], at least kLeastDecay; NaN stays.
  void decay(const delta::Sequence& s, int64_t head, int64_t t, int64_t n, C* to) const {
    const int64_t width = p_.by_channel() ? p_.key_dim : 1;
    decays_(at(p_.decay, s, head, t), {n, width, p_.decay.stride(2), p_.by_channel() ? p_.decay.stride(3) : 1}, to);
    for (int64_t i = 0; i < n * width; ++i) to[i] = to[i] < C(kLeastDecay) ? C(kLeastDecay) : to[i];
  }
  void store(const delta::Sequence& s, int64_t head, int64_t t, int64_t n, int64_t first, int64_t columns,
             const C* from, int64_t stride) const {
    char* to = at(p_.output, s, head, t) + first * p_.output.stride(3) * size_of(p_.output);
    for (int64_t i = 0; i < n; ++i)
      out_(from + i * stride, to + i * p_.output.stride(2) * size_of(p_.output), {1, columns, 0, p_.output.stride(3)});
  }

 private:
  static int64_t size_of(const Tensor& x) { return static_cast<int64_t>(item_size(x.dtype())); }
  static char* at(const Tensor& x, const delta::Sequence& s, int64_t head, int64_t t) {
    return static_cast<char*>(x.raw()) +
           (s.batch * x.stride(0) + head * x.stride(1) + (s.begin + t) * x.stride(2)) * size_of(x);
  }
  static void rows(const Gather& gather, const Tensor& x, const delta::Sequence& s, int64_t head, int64_t t, int64_t n,
                   int64_t first, int64_t columns, C* to) {
    gather(at(x, s, head, t) + first * x.stride(3) * size_of(x), {n, columns, x.stride(2), x.stride(3)}, to);
  }
  void scale_row(C* x, C scale) const {
    if (p_.normalize) {
      C square = 0;
      for (int64_t i = 0; i < p_.key_dim; ++i) square += x[i] * x[i];
      scale /= std::sqrt(square + static_cast<C>(delta::kNormalizeEpsilon));
    }
    for (int64_t i = 0; i < p_.key_dim; ++i) x[i] *= scale;
  }

  const delta::Problem& p_;
  Gather values_, betas_, decays_;
  Scatter out_;
};

/// Columns [first, first + columns) of one head's state, [K, columns] in rows of `stride`.
template <class C>
void load_state(const delta::Problem& p, const delta::Sequence& s, int64_t head, int64_t first, int64_t columns, C* to,
                int64_t stride) {
  std::fill(to, to + p.key_dim * stride, C(0));
  if (s.fresh || !p.first.defined()) return;
  const Tensor& x = p.first;
  const float* from = x.data<float>() + s.slot * x.stride(0) + head * x.stride(1) + first * x.stride(3);
  for (int64_t c = 0; c < p.key_dim; ++c)
    for (int64_t j = 0; j < columns; ++j) to[c * stride + j] = from[c * x.stride(2) + j * x.stride(3)];
}
template <class C>
void store_state(const delta::Problem& p, const delta::Sequence& s, int64_t head, int64_t first, int64_t columns,
                 const C* from, int64_t stride) {
  const Tensor& x = p.last;
  float* to = x.data<float>() + s.slot * x.stride(0) + head * x.stride(1) + first * x.stride(3);
  for (int64_t c = 0; c < p.key_dim; ++c)
    for (int64_t j = 0; j < columns; ++j)
      to[c * x.stride(2) + j * x.stride(3)] = static_cast<float>(from[c * stride + j]);
}

/// A task of the CPU kernels: some value columns of one head of one sequence.
struct DeltaBlock {
  const delta::Sequence* sequence;
  int64_t head, first, columns;
};
/// Every block of at most `width` columns whose state is to be updated.
std::vector<DeltaBlock> delta_blocks(const delta::Problem& p, int64_t width);

}  // namespace tenor::cpu
