// gamma and beta in kernels: vectors of float32 or x's dtype, loaded beside the elements that they scale.
#pragma once

#include "src/cuda/convert.cuh"
#include "src/cuda/vector.cuh"
#include "tenor/tensor.h"

namespace tenor::cuda {

struct ParameterVector {
  const void* data;  ///< null: not given
  int64_t stride;
  bool is_float;  ///< float32, else x's dtype
  bool vector;    ///< dense and aligned to 16 bytes

  static ParameterVector of(const Tensor& v) {
    if (!v.defined()) return {nullptr, 0, true, false};
    return {v.raw(), v.stride(0), v.dtype() == DType::kFloat32, v.stride(0) == 1 && is_aligned(v.raw(), 0, 1)};
  }
};

/// One entry, in x's compute type.
template <class T>
__device__ __forceinline__ core::Compute<T> parameter(const ParameterVector& v, int64_t at, core::Compute<T> absent) {
  if (!v.data) return absent;
  if constexpr (!std::is_same_v<T, float>)
    if (!v.is_float) return widen(static_cast<const T*>(v.data)[at * v.stride]);
  return static_cast<const float*>(v.data)[at * v.stride];
}

/// Entries at..at + N - 1, dense and aligned where N > 1.
template <class T, int N, class C = core::Compute<T>>
__device__ __forceinline__ void parameters(const ParameterVector& v, int64_t at, C (&out)[N], C absent) {
  if constexpr (N == 1) {
    out[0] = parameter<T>(v, at, absent);
  } else if (!v.data) {
#pragma unroll
    for (int j = 0; j < N; ++j) out[j] = absent;
  } else if (v.is_float) {
    constexpr int kPart = N < kVector<float> ? N : kVector<float>;
#pragma unroll
    for (int part = 0; part < N; part += kPart) {
      const Pack<float, kPart> pack = load_pack<kPart>(static_cast<const float*>(v.data) + at + part);
#pragma unroll
      for (int j = 0; j < kPart; ++j) out[part + j] = pack.at[j];
    }
  } else if constexpr (!std::is_same_v<T, float>) {
    widen_pack(load_pack<N>(static_cast<const T*>(v.data) + at), out);
  }
}

/// Which entries of gamma and beta belong to an element.
struct Affine {
  ParameterVector gamma, beta;
  int64_t groups;  ///< row r's parameters begin at r % groups * channels
  int64_t channels;
  int64_t places;  ///< elements of a row in one channel side by side; 0: an element's place in its run is its channel
  bool few_rows = false;  ///< then a block's time is the memory's latency, which the vectors should not wait for twice

  /// Whether the accesses of HeldRow, `width` elements wide, meet one parameter each, or dense and aligned ones.
  bool fits(int width) const {
    const auto aligned = [](const ParameterVector& v) { return !v.data || v.vector; };
    return places > 0 ? places % width == 0 : aligned(gamma) && aligned(beta) && channels % width == 0;
  }
};

/// gamma for this thread's elements, on its way while the row is reduced. It is of the elements' own 16-bit type, and
/// dense.
template <class Row>
class ShortGamma {
 public:
  using T = typename Row::Element;
  using C = typename Row::C;

  __device__ __forceinline__ ShortGamma(const Row& row, const Affine& a)
      : gamma_(static_cast<const T*>(a.gamma.data)), beta_(static_cast<const T*>(a.beta.data)) {
    if constexpr (kHolds)
      row.for_accesses([&](int64_t i, int k) { held_[k] = *reinterpret_cast<const uint4*>(gamma_ + i); });
    if (a.few_rows && beta_)
      row.for_accesses([&](int64_t i, int) { asm volatile("prefetch.global.L2 [%0];" ::"l"(beta_ + i)); });
  }
  /// values[j] = values[j] * (gamma + offset) + beta for this thread's k-th kGroup, which begins at element i.
  __device__ __forceinline__ void scale_and_shift(int64_t i, int k, C offset, C (&values)[Row::kGroup]) const {
    Pack<T, Row::kGroup> gamma;
    if constexpr (kHolds) {
      uint4 words = held_[k];
      asm volatile("" : "+r"(words.x), "+r"(words.y), "+r"(words.z), "+r"(words.w));  // unpacked here and not before
      memcpy(&gamma, &words, sizeof(gamma));
    } else {
      gamma = load_pack<Row::kGroup>(gamma_ + i);
    }
    C scale[Row::kGroup];
    widen_pack(gamma, scale);
    if (offset != C(0))
#pragma unroll
      for (C& g : scale) g += offset;
#pragma unroll
    for (int j = 0; j < Row::kGroup; ++j) values[j] *= scale[j];
    if (!beta_) return;
    C shift[Row::kGroup];
    widen_pack(load_pack<Row::kGroup>(beta_ + i), shift);
#pragma unroll
    for (int j = 0; j < Row::kGroup; ++j) values[j] += shift[j];
  }

 private:
  static constexpr bool kHolds = Row::kPacks <= 4;
  const T *gamma_, *beta_;
  uint4 held_[kHolds ? Row::kPacks : 1];
};

/// Starts bringing the vectors to L2 while the row is on its way.
template <class Row>
__device__ __forceinline__ void fetch_ahead(const Row& row, const Affine& a) {
  if (!Row::kDense || !a.few_rows || a.places != 0) return;
  const auto fetch = [](const ParameterVector& v, int64_t at, size_t item) {
    if (v.data)
      asm volatile("prefetch.global.L2 [%0];" ::"l"(static_cast<const char*>(v.data) +
                                                    at * v.stride * static_cast<int64_t>(v.is_float ? 4 : item)));
  };
  row.for_accesses([&](int64_t i, int) {
    fetch(a.gamma, i, sizeof(typename Row::Element));
    fetch(a.beta, i, sizeof(typename Row::Element));
  });
}

/// Any entries.
template <class T, int N, class C = core::Compute<T>>
__device__ __forceinline__ void gather_parameters(const ParameterVector& v, const int64_t (&at)[N], C (&out)[N],
                                                  C absent) {
  if (!v.data) {
#pragma unroll
    for (int j = 0; j < N; ++j) out[j] = absent;
  } else if (v.is_float) {
#pragma unroll
    for (int j = 0; j < N; ++j) out[j] = static_cast<const float*>(v.data)[at[j] * v.stride];
  } else if constexpr (!std::is_same_v<T, float>) {
#pragma unroll
    for (int j = 0; j < N; ++j) out[j] = widen(static_cast<const T*>(v.data)[at[j] * v.stride]);
  }
}

/// Those of the channels of elements i, i + spacing, ... of the row.
template <class Row, int N, class C = typename Row::C>
__device__ __forceinline__ void channel_parameters(const Row& row, const Affine& a, int64_t i, int64_t spacing,
                                                   C (&gamma)[N], C (&beta)[N]) {
  using T = typename Row::Element;
  const int64_t first = a.groups > 1 ? row.index() % a.groups * a.channels : 0;
  const auto channel = [&](int64_t e) {
    if (a.places == 0) return first + row.within(e);
    return first +
           (row.length() <= UINT32_MAX ? static_cast<uint32_t>(e) / static_cast<uint32_t>(a.places) : e / a.places);
  };
  if (Row::kDense && a.places == 0) {
    parameters<T>(a.gamma, first + i, gamma, C(1));
    parameters<T>(a.beta, first + i, beta, C(-0.0));  // v + -0 is v
  } else if constexpr (Row::kDense) {
    const int64_t c = channel(i);
    const C scale = parameter<T>(a.gamma, c, C(1)), shift = parameter<T>(a.beta, c, C(-0.0));
#pragma unroll
    for (int j = 0; j < N; ++j) gamma[j] = scale, beta[j] = shift;
  } else {
    int64_t at[N];
#pragma unroll
    for (int j = 0; j < N; ++j)
      at[j] = channel(min(i + j * spacing, row.length() - 1));  // those beyond the end are ignored
    gather_parameters<T>(a.gamma, at, gamma, C(1));
    gather_parameters<T>(a.beta, at, beta, C(-0.0));
  }
}

/// values[j] = values[j] * (gamma + offset) + beta for the elements i, i + spacing, ... of the row. kGrouped: gamma and
/// beta belong to channels.
template <bool kGrouped, class Row, int N, class C = typename Row::C>
__device__ __forceinline__ void scale_and_shift(const Row& row, const Affine& a, int64_t i, int64_t spacing, C offset,
                                                C (&values)[N]) {
  using T = typename Row::Element;
  C gamma[N], beta[N];
  if constexpr (kGrouped) {
    channel_parameters(row, a, i, spacing, gamma, beta);
  } else if constexpr (Row::kDense) {
    parameters<T>(a.gamma, i, gamma, C(1));
    parameters<T>(a.beta, i, beta, C(-0.0));  // v + -0 is v
  } else {
    int64_t at[N];
#pragma unroll
    for (int j = 0; j < N; ++j)
      at[j] = row.within(min(i + j * spacing, row.length() - 1));  // those beyond the end are ignored
    gather_parameters<T>(a.gamma, at, gamma, C(1));
    gather_parameters<T>(a.beta, at, beta, C(-0.0));
  }
#pragma unroll
  for (int j = 0; j < N; ++j) values[j] *= offset == C(0) ? gamma[j] : gamma[j] + offset;
  if (!a.beta.data) return;
#pragma unroll
  for (int j = 0; j < N; ++j) values[j] += beta[j];
}

}  // namespace tenor::cuda
