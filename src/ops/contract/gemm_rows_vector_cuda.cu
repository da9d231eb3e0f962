// Which kernel of gemm_rows_vector.cuh serves how many rows: those of float32, and one of the other dtypes.
#include "src/ops/contract/gemm_rows_vector.cuh"

namespace tenor::contract {
namespace {

/// Where rows are several they are read once for eight columns.
template <class T, int kRows, bool kAligned>
RowsChoice dots() {
  constexpr int kCols = kRows == 1 ? 2 : 8, kWarps = kRows == 1 ? 16 : 8;
  return {vector_dots_kernel<T, kRows, kCols, kWarps, kAligned>, kWarps, kCols, 32 * cuda::kVector<T>};
}
template <class T, int kRows, bool kAligned>
RowsChoice sums() {
  return {vector_sums_kernel < T, kRows, kRows == 1 ? 16 : 8, kAligned >, kSumsWarps, kSumsLanes * cuda::kVector<T>};
}

template <class T, bool kAligned>
RowsChoice choose(const DeviceGemm& p, bool along_k) {
  if constexpr (std::is_same_v<T, float>) {
    if (p.m > 1 && along_k) return dots<T, 4, kAligned>();
    if (p.m > 1) return p.m <= 4 ? sums<T, 4, kAligned>() : sums<T, 8, kAligned>();
  }
  return along_k ? dots<T, 1, kAligned>() : sums<T, 1, kAligned>();
}

}  // namespace

RowsChoice choose_rows_vector(const DeviceGemm& p, bool dots, bool aligned) {
  const auto of = [&]<class T>() { return aligned ? choose<T, true>(p, dots) : choose<T, false>(p, dots); };
  switch (p.a.dtype) {
    case DType::kFloat64:
      return of.template operator()<double>();
    case DType::kBFloat16:
      return of.template operator()<BFloat16>();
    case DType::kFloat16:
      return of.template operator()<Float16>();
    default:
      return of.template operator()<float>();
  }
}

}  // namespace tenor::contract
