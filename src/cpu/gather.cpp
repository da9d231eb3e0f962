#include "src/cpu/gather.h"

#include <type_traits>

#include "src/core/visit.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/cpu/gather.cpp"
#include "hwy/foreach_target.h"
#include "src/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenor::cpu::HWY_NAMESPACE {
namespace {

template <class From, class To>
void convert_run(const From* HWY_RESTRICT src, To* HWY_RESTRICT dst, int64_t n) {
  if constexpr (core::kStorageFloat<From> && std::is_same_v<To, float>) {
    map_row(src, dst, static_cast<size_t>(n), [](auto, auto v) HWY_ATTR { return v; });
  } else if constexpr (std::is_same_v<From, float> && core::kStorageFloat<To>) {
    map_row(src, dst, static_cast<size_t>(n), [](auto, auto v) HWY_ATTR { return v; });
  } else {
    for (int64_t i = 0; i < n; ++i) dst[i] = core::cast<To>(src[i]);
  }
}

template <class From, class To>
void gather(const void* from, int64_t row_stride, int64_t col_stride, int64_t rows, int64_t cols, void* to) {
  const From* src = static_cast<const From*>(from);
  To* dst = static_cast<To*>(to);
  if (col_stride == 1 && cols > 1) {
    for (int64_t r = 0; r < rows; ++r) convert_run(src + r * row_stride, dst + r * cols, cols);
  } else if (cols == 1 && row_stride == 1) {
    convert_run(src, dst, rows);
  } else if (row_stride < col_stride) {  // walks along the smaller stride
    for (int64_t c = 0; c < cols; ++c)
      for (int64_t r = 0; r < rows; ++r) dst[r * cols + c] = core::cast<To>(src[r * row_stride + c * col_stride]);
  } else {
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < cols; ++c) dst[r * cols + c] = core::cast<To>(src[r * row_stride + c * col_stride]);
  }
}

template <class From, class To>
void scatter(const void* from, int64_t rows, int64_t cols, void* to, int64_t row_stride, int64_t col_stride) {
  const From* src = static_cast<const From*>(from);
  To* dst = static_cast<To*>(to);
  if (col_stride == 1 && cols > 1) {
    for (int64_t r = 0; r < rows; ++r) convert_run(src + r * cols, dst + r * row_stride, cols);
  } else if (cols == 1 && row_stride == 1) {
    convert_run(src, dst, rows);
  } else if (row_stride < col_stride) {
    for (int64_t c = 0; c < cols; ++c)
      for (int64_t r = 0; r < rows; ++r) dst[r * row_stride + c * col_stride] = core::cast<To>(src[r * cols + c]);
  } else {
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < cols; ++c) dst[r * row_stride + c * col_stride] = core::cast<To>(src[r * cols + c]);
  }
}

GatherFn find_gather(DType from, DType to) {
  GatherFn fn = nullptr;
  if (from == to) {
    core::visit_size(from, [&]<class T>() { fn = gather<T, T>; });
    return fn;
  }
  core::visit(from, [&]<class T>() {
    if constexpr (!std::is_same_v<T, Float8E4M3> && !std::is_same_v<T, Float8E5M2>) {
      constexpr bool kFloat = core::kStorageFloat<T> || std::is_floating_point_v<T>;
      if (to == float32) fn = gather<T, float>;
      if (to == float64) fn = gather<T, double>;
      if (to == int64) fn = gather<T, int64_t>;
      if constexpr (kFloat)
        if (to == uint64) fn = gather<T, uint64_t>;
    }
  });
  return fn;
}

ScatterFn find_scatter(DType from, DType to) {
  ScatterFn fn = nullptr;
  if (from == to) core::visit_size(to, [&]<class T>() { fn = scatter<T, T>; });
  else if (from == float32 && to == float16) fn = scatter<float, Float16>;
  else if (from == float32 && to == bfloat16) fn = scatter<float, BFloat16>;
  else if (from == float64 && is_float(to) && !is_float8(to)) core::visit_float(to, [&]<class T>() { fn = scatter<double, T>; });
  else if (from == int64 && is_integer(to)) core::visit_size(to, [&]<class T>() { fn = scatter<uint64_t, T>; });
  return fn;
}

}  // namespace
}  // namespace tenor::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenor::cpu {

HWY_EXPORT(find_gather);
HWY_EXPORT(find_scatter);

GatherFn gather_function(DType from, DType to) { return HWY_DYNAMIC_DISPATCH(find_gather)(from, to); }
ScatterFn scatter_function(DType from, DType to) { return HWY_DYNAMIC_DISPATCH(find_scatter)(from, to); }

}  // namespace tenor::cpu
#endif
