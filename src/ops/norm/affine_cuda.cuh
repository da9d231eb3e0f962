// gamma and beta in kernels: vectors of float32 or x's dtype, loaded beside the elements that they scale.
#pragma once

#include <algorithm>

#include "src/cuda/convert.cuh"
#include "src/cuda/ptx/async_copy.cuh"
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
  bool in_vectors = false;  ///< a row's vectors meet one parameter each, or vectors of them
  bool few_rows = false;  ///< then a block's time is the memory's latency, which the vectors should not wait for twice

  /// Whether the vectors of the elements' own type go through shared memory: where they leave room for other blocks.
  __host__ __device__ bool are_fetched(int64_t length, size_t item) const {
    return few_rows && length * static_cast<int64_t>(item) <= 32 << 10;
  }
  /// in_vectors, for vectors of `width` elements.
  bool fits(int width) const {
    const auto aligned = [](const ParameterVector& v) { return !v.data || v.vector; };
    return places > 0 ? places % width == 0 : aligned(gamma) && aligned(beta) && channels % width == 0;
  }
};

/// gamma and (kShifts) beta of the elements' own type, dense. gamma alone, of 16 bits, is held from before the row is
/// reduced, unless kLate; both would take too many registers. Of few rows they are fetched to shared memory instead, of
/// rows of several blocks kept there for all rows.
template <class Row, bool kShifts, bool kLate>
class OwnVectors {
 public:
  using T = typename Row::Element;
  using C = typename Row::C;

  __device__ __forceinline__ OwnVectors(Row& row, const Affine& a)
      : gamma_(static_cast<const T*>(a.gamma.data)), beta_(static_cast<const T*>(a.beta.data)) {
    if constexpr (kKeeps) {
      row.keep(0, gamma_);
      if (kShifts) row.keep(1, beta_);
    } else if constexpr (kHolds) {
      row.for_accesses([&](int64_t i, int k) { held_[k] = words_at(gamma_, i); });
    } else if constexpr (kFetches) {
      if (a.are_fetched(row.length(), sizeof(T))) fetch_to_shared(row);
    }
  }
  /// Before the first use.
  __device__ __forceinline__ void wait() const {
    if constexpr (kFetches) ptx::async_copy_wait<0>();
  }
  /// values[j] = values[j] * (gamma + offset) + beta, as one operation, for this thread's k-th kGroup, which begins at
  /// element i.
  __device__ __forceinline__ void scale_and_shift(const Row& row, int64_t i, int k, C offset,
                                                  C (&values)[Row::kGroup]) const {
    C scale[Row::kGroup], shift[Row::kGroup];
    widen_words(vector<0>(row, gamma_, i, k), scale);
    if constexpr (kShifts) {
      widen_words(beta_ ? vector<1>(row, beta_, i, k) : none(), shift);
#pragma unroll
      for (int j = 0; j < Row::kGroup; ++j) values[j] = fma(values[j], scale[j], shift[j]);
    } else {
#pragma unroll
      for (int j = 0; j < Row::kGroup; ++j) values[j] *= scale[j] + offset;
    }
  }

 private:
  static constexpr bool kShort = sizeof(T) == 2;
  static constexpr bool kInRing = requires { Row::kKept; };
  static constexpr bool kKeeps = kInRing && kShort;
  static constexpr bool kHolds = !kInRing && kShort && !kShifts && !kLate;
  static constexpr bool kFetches = !kInRing && !kHolds && !kLate;

  /// Both vectors on their way to shared memory (shared_bytes), each thread's part, which is what it reads.
  __device__ __forceinline__ void fetch_to_shared(const Row& row) {
    extern __shared__ __align__(16) unsigned char memory[];
    T* const vectors = reinterpret_cast<T*>(memory) + threadIdx.y * 2 * row.length();  // each row of the block its own
    row.for_accesses([&](int64_t i, int) {
      ptx::async_copy_16(vectors + i, gamma_ + i, true);
      if (beta_) ptx::async_copy_16(vectors + row.length() + i, beta_ + i, true);
    });
    ptx::async_copy_commit();
    gamma_ = vectors;
    if (beta_) beta_ = vectors + row.length();
  }
  /// In place of a vector that is not given: -0, for v + -0 is v.
  static __device__ __forceinline__ uint4 none() {
    constexpr unsigned kWord = kShort ? 0x80008000 : 0x80000000;
    return make_uint4(kWord, kWord, kWord, kWord);
  }
  static __device__ __forceinline__ uint4 words_at(const T* v, int64_t i) {
    return *reinterpret_cast<const uint4*>(v + i);
  }
  template <int kWhich>
  __device__ __forceinline__ uint4 vector(const Row& row, const T* v, int64_t i, int k) const {
    if constexpr (kKeeps) {
      return row.kept(kWhich, k);
    } else if constexpr (kHolds) {
      uint4 words = held_[k];
      asm volatile("" : "+r"(words.x), "+r"(words.y), "+r"(words.z), "+r"(words.w));  // unpacked here and not before
      return words;
    } else {
      return words_at(v, i);
    }
  }
  static __device__ __forceinline__ void widen_words(const uint4& words, C (&out)[Row::kGroup]) {
    Pack<T, Row::kGroup> pack;
    memcpy(&pack, &words, sizeof(pack));
    widen_pack(pack, out);
  }

  const T *gamma_, *beta_;
  uint4 held_[kHolds ? Row::kPacks : 1];
};

/// Shared memory that a block needs for OwnVectors: two vectors a row, of one row or of several that are 4096 elements
/// together.
inline size_t shared_bytes(const Affine& a, int64_t length, size_t item) {
  return a.are_fetched(length, item) ? 2 * item * static_cast<size_t>(std::max<int64_t>(length, 4096)) : 0;
}

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

/// Whether the kGroup that begins at element i meets vectors of parameters, or one. Aligned rows run where all do.
template <class Row>
__device__ __forceinline__ bool meets_vectors(const Row& row, const Affine& a, int64_t i) {
  if constexpr (!Row::kDense) return false;
  if constexpr (Row::kWhole) return true;
  return a.in_vectors && i + Row::kGroup <= row.length();
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
  if (meets_vectors(row, a, i)) {
    if (a.places == 0) {
      parameters<T>(a.gamma, first + i, gamma, C(1));
      parameters<T>(a.beta, first + i, beta, C(-0.0));  // v + -0 is v
    } else {
      const int64_t c = channel(i);
      const C scale = parameter<T>(a.gamma, c, C(1)), shift = parameter<T>(a.beta, c, C(-0.0));
#pragma unroll
      for (int j = 0; j < N; ++j) gamma[j] = scale, beta[j] = shift;
    }
  } else {
    int64_t at[N];
#pragma unroll
    for (int j = 0; j < N; ++j)
      at[j] = channel(min(i + j * spacing, row.length() - 1));  // those beyond the end are ignored
    gather_parameters<T>(a.gamma, at, gamma, C(1));
    gather_parameters<T>(a.beta, at, beta, C(-0.0));
  }
}

/// values[j] = values[j] * (gamma + offset) + beta, as one operation, for the elements i, i + spacing, ... of the row.
/// kGrouped: gamma and beta belong to channels.
template <bool kGrouped, class Row, int N, class C = typename Row::C>
__device__ __forceinline__ void scale_and_shift(const Row& row, const Affine& a, int64_t i, int64_t spacing, C offset,
                                                C (&values)[N]) {
  using T = typename Row::Element;
  C gamma[N], beta[N];
  if constexpr (kGrouped) {
    channel_parameters(row, a, i, spacing, gamma, beta);
  } else if (meets_vectors(row, a, i)) {
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
  for (int j = 0; j < N; ++j) values[j] = fma(values[j], gamma[j] + offset, beta[j]);
}

}  // namespace tenor::cuda
