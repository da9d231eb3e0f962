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

/// Columns and pieces a thread by which a block reads 16 KB or more.
template <class T>
LeanChoice lean_of(int64_t pieces) {
  constexpr int kWarp = 32, kMost = kLeanThreads;
  const auto threads = [&](int vecs) { return static_cast<int>((pieces + vecs * kWarp - 1) / (vecs * kWarp) * kWarp); };
  if (pieces <= kMost / 2) return {lean_dots_kernel<T, 4, 1>, 4, threads(1)};
  if (pieces <= kMost) return {lean_dots_kernel<T, 2, 1>, 2, threads(1)};
  if (pieces <= 2 * kMost) return {lean_dots_kernel<T, 1, 2>, 1, threads(2)};
  if (pieces <= 4 * kMost) return {lean_dots_kernel<T, 1, 4>, 1, threads(4)};
  return {};
}

}  // namespace

LeanChoice choose_lean(const DeviceGemm& p, int64_t pieces) {
  switch (p.a.dtype) {
    case DType::kFloat64:
      return {};
    case DType::kBFloat16:
      return lean_of<BFloat16>(pieces);
    case DType::kFloat16:
      return lean_of<Float16>(pieces);
    default:
      return lean_of<float>(pieces);
  }
}

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
