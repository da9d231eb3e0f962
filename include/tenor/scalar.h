// Scalar and Operand: what may stand beside a tensor in an elementwise operator.
#pragma once

#include <concepts>
#include <cstdint>

#include "tenor/tensor.h"

namespace tenor {

/// A Python-like number: bool, integer or float. It takes the array's dtype (see elementwise.h for the rule).
class Scalar {
 public:
  enum class Kind : uint8_t { kBool, kInt, kUInt, kFloat, kBeyond };

  Scalar(bool value) : kind_(Kind::kBool), int_(value) {}
  template <std::signed_integral T>
  Scalar(T value) : kind_(Kind::kInt), int_(value) {}
  /// Above int64 only: a smaller one is an ordinary integer.
  template <std::unsigned_integral T>
  requires(!std::same_as<T, bool>) Scalar(T value)
      : kind_(static_cast<uint64_t>(value) > static_cast<uint64_t>(INT64_MAX) ? Kind::kUInt : Kind::kInt),
        int_(static_cast<int64_t>(value)) {}
  Scalar(float value) : kind_(Kind::kFloat), float_(value) {}
  Scalar(double value) : kind_(Kind::kFloat), float_(value) {}
  /// An integer beyond 64 bits, which only comparisons take: the nearest double (an infinity for none), and on which
  /// side of it the integer lies: -1 below, 0 for the double itself, 1 above.
  static Scalar beyond(double nearest, int side) {
    Scalar s(nearest);
    s.kind_ = Kind::kBeyond;
    s.side_ = static_cast<int8_t>(side);
    return s;
  }

  Kind kind() const { return kind_; }
  bool is_float() const { return kind_ == Kind::kFloat; }
  bool is_bool() const { return kind_ == Kind::kBool; }
  int side() const { return side_; }
  double as_double() const {
    if (kind_ == Kind::kFloat || kind_ == Kind::kBeyond) return float_;
    return kind_ == Kind::kUInt ? static_cast<double>(static_cast<uint64_t>(int_)) : static_cast<double>(int_);
  }
  int64_t as_int() const { return kind_ == Kind::kFloat ? static_cast<int64_t>(float_) : int_; }

 private:
  Kind kind_;
  int8_t side_ = 0;
  union {
    int64_t int_;
    double float_;
  };
};

/// A tensor or a scalar.
class Operand {
 public:
  Operand() : scalar_(false) {}
  Operand(const Tensor& tensor) : tensor_(tensor), scalar_(false) {}
  template <class T>
  requires(std::is_arithmetic_v<T> || std::same_as<T, Scalar>) Operand(T value) : scalar_(value) {}

  bool is_tensor() const { return tensor_.defined(); }
  const Tensor& tensor() const { return tensor_; }
  const Scalar& scalar() const { return scalar_; }

 private:
  Tensor tensor_;
  Scalar scalar_;
};

}  // namespace tenor
