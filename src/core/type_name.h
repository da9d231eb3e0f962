// From a C++ element type to its dtype.
#pragma once

#include "tenor/dtype.h"

namespace tenor::core {

template <class T>
inline constexpr DType kDTypeOf = DType::kBool;
template <> inline constexpr DType kDTypeOf<int8_t> = DType::kInt8;
template <> inline constexpr DType kDTypeOf<int16_t> = DType::kInt16;
template <> inline constexpr DType kDTypeOf<int32_t> = DType::kInt32;
template <> inline constexpr DType kDTypeOf<int64_t> = DType::kInt64;
template <> inline constexpr DType kDTypeOf<uint8_t> = DType::kUInt8;
template <> inline constexpr DType kDTypeOf<uint16_t> = DType::kUInt16;
template <> inline constexpr DType kDTypeOf<uint32_t> = DType::kUInt32;
template <> inline constexpr DType kDTypeOf<uint64_t> = DType::kUInt64;
template <> inline constexpr DType kDTypeOf<Float16> = DType::kFloat16;
template <> inline constexpr DType kDTypeOf<BFloat16> = DType::kBFloat16;
template <> inline constexpr DType kDTypeOf<float> = DType::kFloat32;
template <> inline constexpr DType kDTypeOf<double> = DType::kFloat64;
template <> inline constexpr DType kDTypeOf<Float8E4M3> = DType::kFloat8E4M3;
template <> inline constexpr DType kDTypeOf<Float8E5M2> = DType::kFloat8E5M2;

}  // namespace tenor::core
