// What tests of operators share: values in logical order, tensors of random layout, poisoned results, error texts.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "src/core/numeric.h"
#include "src/core/visit.h"
#include "tenor/tensor.h"

namespace tenor::testing {

inline constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
inline constexpr double kInf = std::numeric_limits<double>::infinity();
inline constexpr DType kFloats[] = {float32, float16, bfloat16, float64};

/// The place of element i (row-major) in elements from the first.
inline int64_t offset_of(const Tensor& x, int64_t i) {
  int64_t offset = 0;
  for (int d = x.ndim(); d-- > 0; i /= x.shape(d)) offset += i % x.shape(d) * x.stride(d);
  return offset;
}

/// The elements in logical order.
inline std::vector<double> values(const Tensor& x) {
  std::vector<double> out(static_cast<size_t>(x.numel()));
  core::visit(x.dtype(), [&]<class T>() {
    for (size_t i = 0; i < out.size(); ++i)
      out[i] = static_cast<double>(core::widen(x.data<T>()[offset_of(x, static_cast<int64_t>(i))]));
  });
  return out;
}

/// Writes them, each rounded to x's dtype.
inline void assign(const Tensor& x, const std::vector<double>& elements) {
  core::visit(x.dtype(), [&]<class T>() {
    for (size_t i = 0; i < elements.size(); ++i)
      x.data<T>()[offset_of(x, static_cast<int64_t>(i))] = core::cast<T>(elements[i]);
  });
}

inline Tensor tensor_of(const Dims& shape, DType dtype, const std::vector<double>& elements) {
  Tensor x = Tensor::empty(shape, dtype);
  assign(x, elements);
  return x;
}

inline Tensor full(const Dims& shape, DType dtype, double value) {
  return tensor_of(shape, dtype, std::vector<double>(static_cast<size_t>(product(shape)), value));
}

/// One element, `offset` elements from the first.
inline double get(const Tensor& x, int64_t offset) {
  return core::visit(x.dtype(), [&]<class T>() { return static_cast<double>(core::widen(x.data<T>()[offset])); });
}
inline void put(const Tensor& x, int64_t offset, double value) {
  core::visit(x.dtype(), [&]<class T>() { x.data<T>()[offset] = core::cast<T>(value); });
}

/// Dense, element i being value(i).
template <class F>
Tensor filled(const Dims& shape, DType dtype, F&& value) {
  Tensor x = Tensor::empty(shape, dtype);
  for (int64_t i = 0; i < x.numel(); ++i) put(x, i, static_cast<double>(value(i)));
  return x;
}
inline Tensor list(const std::vector<double>& elements, DType dtype = float32) {
  return tensor_of({static_cast<int64_t>(elements.size())}, dtype, elements);
}

/// Any NaN for any other, zeros by their sign.
inline bool same(double a, double b) {
  return (std::isnan(a) && std::isnan(b)) || (a == b && std::signbit(a) == std::signbit(b));
}

/// Random tensors.
class Draw {
 public:
  explicit Draw(uint32_t seed) : engine_(seed) {}
  int64_t upto(int64_t n) { return std::uniform_int_distribution<int64_t>(0, n)(engine_); }  ///< 0..n
  bool coin() { return upto(1) == 1; }
  double normal() { return normal_(engine_); }

  std::vector<double> normals(int64_t count) {
    std::vector<double> out(static_cast<size_t>(count));
    for (double& v : out) v = normal();
    return out;
  }
  Tensor dense(const Dims& shape, DType dtype) { return tensor_of(shape, dtype, normals(product(shape))); }

  /// Uninitialised memory under that shape: any dim order, gaps between rows, steps between elements, an odd address.
  Tensor any_layout(const Dims& shape, DType dtype) {
    std::vector<size_t> order(shape.size());
    for (size_t d = 0; d < order.size(); ++d) order[d] = d;
    if (coin()) std::shuffle(order.begin(), order.end(), engine_);
    Dims strides(shape.size(), 0);
    int64_t step = upto(3) == 0 ? 2 : 1;
    for (size_t i = order.size(); i-- > 0;) {
      strides[order[i]] = step;
      step *= std::max<int64_t>(shape[order[i]], 1) + (upto(3) == 0 ? 1 : 0);
    }
    const int64_t offset = upto(3);
    return Tensor::empty({offset + step}, dtype).with_layout(shape, strides, offset);
  }
  Tensor view(const Dims& shape, DType dtype) {
    const Tensor x = any_layout(shape, dtype);
    assign(x, normals(product(shape)));
    return x;
  }
  /// A place for a result, full of NaN.
  Tensor poisoned(const Dims& shape, DType dtype) {
    const Tensor x = any_layout(shape, dtype);
    assign(x, std::vector<double>(static_cast<size_t>(product(shape)), kNan));
    return x;
  }

 private:
  std::mt19937 engine_;
  std::normal_distribution<double> normal_;
};

/// What one rounding to dtype, after arithmetic in float32 (float64), leaves of precision.
inline double unit(DType dtype) {
  switch (dtype) {
    case DType::kFloat64:
      return 1e-13;
    case DType::kFloat32:
      return 2e-6;
    case DType::kFloat16:
      return 0x1p-10;
    default:
      return 0x1p-7;
  }
}

/// The value that dtype holds of it.
inline double rounded(double value, DType dtype) {
  return core::visit(dtype, [&]<class T>() { return static_cast<double>(core::widen(core::cast<T>(value))); });
}

/// Every element within `units` units of `want`, relative, and within `floor` absolute; NaN and infinities exact.
inline void expect_close(const Tensor& got, const std::vector<double>& want, const std::string& what, double units = 1,
                         double floor = 2e-6) {
  const std::vector<double> have = values(got);
  ASSERT_EQ(have.size(), want.size()) << what;
  const double relative = units * unit(got.dtype()), least = got.dtype() == float64 ? 1e-13 : floor;
  for (size_t i = 0; i < want.size(); ++i) {
    const double w = std::isinf(rounded(want[i], got.dtype())) ? rounded(want[i], got.dtype()) : want[i];
    const bool same = std::isnan(w)   ? std::isnan(have[i])
                      : std::isinf(w) ? have[i] == w
                                      : std::abs(have[i] - w) <= relative * std::abs(w) + least;
    ASSERT_TRUE(same) << what << ": element " << i << " is " << have[i] << ", expected " << w;
  }
}

/// Bit for bit, in logical order.
inline bool same_bits(const Tensor& a, const Tensor& b) {
  if (a.shape() != b.shape() || a.dtype() != b.dtype()) return false;
  const size_t size = item_size(a.dtype());
  for (int64_t i = 0; i < a.numel(); ++i)
    if (std::memcmp(static_cast<char*>(a.raw()) + offset_of(a, i) * static_cast<int64_t>(size),
                    static_cast<char*>(b.raw()) + offset_of(b, i) * static_cast<int64_t>(size), size) != 0)
      return false;
  return true;
}

/// fn() throws an E whose text is that.
template <class E, class F>
void expect_error(F&& fn, const std::string& text) {
  try {
    fn();
    ADD_FAILURE() << "no error; expected: " << text;
  } catch (const E& e) {
    EXPECT_EQ(std::string(e.what()), text);
  } catch (const std::exception& e) {
    ADD_FAILURE() << "another class of error: " << e.what();
  }
}

/// Sets the thread count while it lives.
class Threads {
 public:
  explicit Threads(int count) : before_(num_threads()) { set_num_threads(count); }
  ~Threads() { set_num_threads(before_); }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

 private:
  int before_;
};

}  // namespace tenor::testing
