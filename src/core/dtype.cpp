#include "tenor/dtype.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "src/core/text.h"
#include "tenor/error.h"

namespace tenor {
namespace {

struct Facts {
  std::string_view name;
  size_t size;
};
constexpr std::array<Facts, kDTypes> kFacts{{{"bool", 1},
                                             {"int8", 1},
                                             {"int16", 2},
                                             {"int32", 4},
                                             {"int64", 8},
                                             {"uint8", 1},
                                             {"uint16", 2},
                                             {"uint32", 4},
                                             {"uint64", 8},
                                             {"float16", 2},
                                             {"bfloat16", 2},
                                             {"float32", 4},
                                             {"float64", 8},
                                             {"float8_e4m3fn", 1},
                                             {"float8_e5m2", 1}}};
constexpr std::pair<std::string_view, DType> kAliases[] = {{"f16", float16},
                                                           {"half", float16},
                                                           {"bf16", bfloat16},
                                                           {"f32", float32},
                                                           {"float", float32},
                                                           {"f64", float64},
                                                           {"double", float64},
                                                           {"i8", int8},
                                                           {"i16", int16},
                                                           {"i32", int32},
                                                           {"int", int32},
                                                           {"i64", int64},
                                                           {"long", int64},
                                                           {"u8", uint8},
                                                           {"u16", uint16},
                                                           {"u32", uint32},
                                                           {"u64", uint64},
                                                           {"boolean", boolean},
                                                           {"f8_e4m3", float8_e4m3fn},
                                                           {"f8_e5m2", float8_e5m2},
                                                           {"float8_e4m3", float8_e4m3fn}};

}  // namespace

size_t item_size(DType dtype) { return kFacts[static_cast<size_t>(dtype)].size; }
std::string_view name(DType dtype) { return kFacts[static_cast<size_t>(dtype)].name; }

DType dtype_from_name(std::string_view wanted) {
  for (size_t i = 0; i < kFacts.size(); ++i)
    if (kFacts[i].name == wanted) return static_cast<DType>(i);
  for (auto [alias, dtype] : kAliases)
    if (alias == wanted) return dtype;
  core::fail<DTypeError>("dtype: expected a name such as 'float32', got '{}'", std::string(wanted));
}

bool is_float8(DType d) { return d == float8_e4m3fn || d == float8_e5m2; }
bool is_float(DType d) { return (d >= float16 && d <= float64) || is_float8(d); }
bool is_signed(DType d) { return d >= int8 && d <= int64; }
bool is_unsigned(DType d) { return d >= uint8 && d <= uint64; }
bool is_integer(DType d) { return is_signed(d) || is_unsigned(d); }

DType promote(DType a, DType b) {
  if (a == b) return a;
  if (is_float(a) != is_float(b)) return is_float(a) ? a : b;
  if (is_float(a)) {
    const size_t wide = std::max(item_size(a), item_size(b));
    return wide == 8                                   ? float64
           : item_size(a) == item_size(b) || wide == 4 ? float32
           : item_size(a) > item_size(b)               ? a
                                                       : b;
  }
  if (a == boolean) return b;
  if (b == boolean) return a;
  if (is_signed(a) == is_signed(b)) return item_size(a) > item_size(b) ? a : b;
  const DType s = is_signed(a) ? a : b, u = is_signed(a) ? b : a;
  if (u == uint64) core::fail<DTypeError>("uint64 and {} have no common dtype; convert one of them", s);
  if (item_size(s) > item_size(u)) return s;
  return u == uint8 ? int16 : u == uint16 ? int32 : int64;
}

DType compute_dtype(DType d) { return is_float(d) && d != float64 ? float32 : d; }
DType float_dtype(DType d) { return is_float(d) ? d : float32; }

}  // namespace tenor
