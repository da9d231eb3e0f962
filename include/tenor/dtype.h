// Element types: their names, sizes, promotion, and the C++ types that hold the 16- and 8-bit floats.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tenor {

enum class DType : uint8_t {
  kBool, kInt8, kInt16, kInt32, kInt64, kUInt8, kUInt16, kUInt32, kUInt64,
  kFloat16, kBFloat16, kFloat32, kFloat64, kFloat8E4M3, kFloat8E5M2,
};
inline constexpr int kDTypes = 15;

inline constexpr DType boolean = DType::kBool, int8 = DType::kInt8, int16 = DType::kInt16, int32 = DType::kInt32,
                       int64 = DType::kInt64, uint8 = DType::kUInt8, uint16 = DType::kUInt16, uint32 = DType::kUInt32,
                       uint64 = DType::kUInt64, float16 = DType::kFloat16, bfloat16 = DType::kBFloat16,
                       float32 = DType::kFloat32, float64 = DType::kFloat64, float8_e4m3fn = DType::kFloat8E4M3,
                       float8_e5m2 = DType::kFloat8E5M2;

/// IEEE 754 binary16. Storage only: arithmetic happens in float.
struct Float16 {
  uint16_t bits;
};
/// The upper half of a binary32.
struct BFloat16 {
  uint16_t bits;
};
/// OCP 8-bit float E4M3 "fn": no infinity, NaN is S.1111.111, largest 448.
struct Float8E4M3 {
  uint8_t bits;
};
/// OCP 8-bit float E5M2: infinities and NaN as in IEEE 754, largest 57344.
struct Float8E5M2 {
  uint8_t bits;
};

/// Bytes of one element.
size_t item_size(DType dtype);
/// "float32", "bool", "float8_e4m3fn": NumPy's names.
std::string_view name(DType dtype);
/// The dtype of that name, also "bf16", "f32", "i64", "u8", "half", "float", "double", "long", "int".
/// @throws DTypeError for an unknown one.
DType dtype_from_name(std::string_view name);

bool is_float(DType dtype);     ///< any float, the 8-bit ones included
bool is_float8(DType dtype);    ///< float8_e4m3fn or float8_e5m2
bool is_integer(DType dtype);   ///< signed or unsigned, not bool
bool is_unsigned(DType dtype);  ///< uint8 to uint64
bool is_signed(DType dtype);    ///< int8 to int64

/// The dtype two operands meet in: the array-API lattice, integer with float gives the float, float16 with bfloat16 and
/// two different 8-bit floats give float32, an 8-bit float with a wider one the wider one.
/// @throws DTypeError for uint64 with a signed integer.
DType promote(DType a, DType b);
/// The dtype that operators compute in: float32 for 16- and 8-bit floats, else itself.
DType compute_dtype(DType dtype);
/// The dtype of a float function of it: float32 for integers and bool, else itself.
DType float_dtype(DType dtype);

}  // namespace tenor
