// What the family's tests draw their inputs with.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "src/core/numeric.h"
#include "src/core/output.h"
#include "src/core/visit.h"
#include "tenor/dtype.h"
#include "tenor/tensor.h"

namespace tenor::testing {

inline constexpr DType kOrderable[] = {boolean, int8,   int16,   int32,    int64,   uint8,  uint16,
                                       uint32,  uint64, float16, bfloat16, float32, float64};

/// Either few different values (ties) or the dtype's whole range of bit patterns: NaN of both signs, infinities, -0.
inline void fill(const Tensor& x, std::mt19937_64& rng, bool ties) {
  core::visit(x.dtype(), [&]<class T>() {
    Dims at(x.shape().size(), 0);
    for (int64_t i = 0; i < x.numel(); ++i) {
      int64_t offset = 0;
      for (size_t d = 0; d < at.size(); ++d) offset += at[d] * x.strides()[d];
      T& place = x.data<T>()[offset];
      const uint64_t draw = rng();
      if (std::is_same_v<T, bool>) {
        place = core::cast<T>(static_cast<int64_t>(draw & 1));
      } else if (ties && is_float(x.dtype())) {
        constexpr double kFew[] = {
            -2, -1, -0.0, 0.0, 1, 2, std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()};
        place = core::cast<T>(kFew[draw % 8]);
      } else if (ties) {
        place = core::cast<T>(static_cast<int64_t>(draw % 4));
      } else {
        std::memcpy(&place, &draw, sizeof(T));
      }
      for (size_t d = at.size(); d-- > 0 && ++at[d] == x.shape()[d];) at[d] = 0;
    }
  });
}

/// A tensor of that shape in row-major, permuted or gapped memory.
inline Tensor draw(const Dims& shape, DType dtype, std::mt19937_64& rng, bool ties) {
  Dims strides = contiguous_strides(shape);
  int64_t reach = std::max<int64_t>(1, product(shape));
  switch (rng() % 3) {
    case 0:
      break;
    case 1:  // every dim two apart
      for (int64_t& s : strides) s *= 2;
      reach *= 2;
      break;
    default:  // the first dim innermost
      for (size_t d = 0, s = 1; d < shape.size(); s *= static_cast<size_t>(std::max<int64_t>(1, shape[d++])))
        strides[d] = static_cast<int64_t>(s);
  }
  const Tensor memory = Tensor::empty({reach}, dtype);
  const Tensor x = memory.with_layout(shape, strides, 0);
  fill(x, rng, ties);
  return x;
}

/// A result to be written over: every byte 0xFF, so NaN or -1.
inline Tensor poisoned(const Dims& shape, DType dtype) {
  Tensor x = Tensor::empty(shape, dtype);
  std::memset(x.raw(), 0xFF, static_cast<size_t>(x.numel()) * item_size(dtype));
  return x;
}

/// The element's bits.
inline uint64_t bits_at(const Tensor& x, int64_t offset) {
  uint64_t bits = 0;
  std::memcpy(&bits, x.data<char>() + offset * static_cast<int64_t>(item_size(x.dtype())), item_size(x.dtype()));
  return bits;
}

/// A tensor's bits, in index order.
inline std::vector<uint64_t> all_bits(const Tensor& x) {
  const Tensor packed = x.contiguous();
  std::vector<uint64_t> bits;
  for (int64_t i = 0; i < packed.numel(); ++i) bits.push_back(bits_at(packed, i));
  return bits;
}

template <class T>
Tensor tensor_of(const Dims& shape, DType dtype, std::initializer_list<T> values) {
  Tensor x = Tensor::empty(shape, dtype);
  std::copy(values.begin(), values.end(), x.data<T>());
  return x;
}
inline std::vector<int64_t> ints(const Tensor& x) {
  const Tensor packed = x.contiguous();
  return {packed.data<int64_t>(), packed.data<int64_t>() + packed.numel()};
}

/// fn() throws E whose text holds `part`.
template <class E, class F>
void expect_refusal(F&& fn, const std::string& part) {
  try {
    fn();
    ADD_FAILURE() << "no error; expected one with: " << part;
  } catch (const E& e) {
    EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
  }
}

}  // namespace tenor::testing
