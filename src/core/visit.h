// From a run-time dtype to a C++ type: visit(dtype, [&]<class T>() { ... }). The caller has checked the dtype.
#pragma once

#include <cstdint>
#include <utility>

#include "tenor/dtype.h"

namespace tenor::core {

/// Every element type; T is the storage type (Float16, bool, int8_t, ...).
template <class F>
constexpr decltype(auto) visit(DType dtype, F&& fn) {
  switch (dtype) {
    case DType::kBool: return fn.template operator()<bool>();
    case DType::kInt8: return fn.template operator()<int8_t>();
    case DType::kInt16: return fn.template operator()<int16_t>();
    case DType::kInt32: return fn.template operator()<int32_t>();
    case DType::kInt64: return fn.template operator()<int64_t>();
    case DType::kUInt8: return fn.template operator()<uint8_t>();
    case DType::kUInt16: return fn.template operator()<uint16_t>();
    case DType::kUInt32: return fn.template operator()<uint32_t>();
    case DType::kUInt64: return fn.template operator()<uint64_t>();
    case DType::kFloat16: return fn.template operator()<Float16>();
    case DType::kBFloat16: return fn.template operator()<BFloat16>();
    case DType::kFloat32: return fn.template operator()<float>();
    case DType::kFloat64: return fn.template operator()<double>();
    case DType::kFloat8E4M3: return fn.template operator()<Float8E4M3>();
    case DType::kFloat8E5M2: return fn.template operator()<Float8E5M2>();
  }
  __builtin_unreachable();
}

/// float64, float32, float16, bfloat16.
template <class F>
constexpr decltype(auto) visit_float(DType dtype, F&& fn) {
  switch (dtype) {
    case DType::kFloat16: return fn.template operator()<Float16>();
    case DType::kBFloat16: return fn.template operator()<BFloat16>();
    case DType::kFloat64: return fn.template operator()<double>();
    default: return fn.template operator()<float>();
  }
}

/// int8 to int64, uint8 to uint64.
template <class F>
constexpr decltype(auto) visit_integer(DType dtype, F&& fn) {
  switch (dtype) {
    case DType::kInt8: return fn.template operator()<int8_t>();
    case DType::kInt16: return fn.template operator()<int16_t>();
    case DType::kInt32: return fn.template operator()<int32_t>();
    case DType::kUInt8: return fn.template operator()<uint8_t>();
    case DType::kUInt16: return fn.template operator()<uint16_t>();
    case DType::kUInt32: return fn.template operator()<uint32_t>();
    case DType::kUInt64: return fn.template operator()<uint64_t>();
    default: return fn.template operator()<int64_t>();
  }
}

/// By size alone, for operators that only move elements: uint8_t, uint16_t, uint32_t or uint64_t.
template <class F>
constexpr decltype(auto) visit_size(DType dtype, F&& fn) {
  switch (item_size(dtype)) {
    case 1: return fn.template operator()<uint8_t>();
    case 2: return fn.template operator()<uint16_t>();
    case 4: return fn.template operator()<uint32_t>();
    default: return fn.template operator()<uint64_t>();
  }
}

}  // namespace tenor::core
