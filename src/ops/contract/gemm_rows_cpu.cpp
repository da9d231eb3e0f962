#include "hwy/cache_control.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/ops/contract/gemm_rows_cpu.cpp"
#include "hwy/foreach_target.h"
#include "src/cpu/simd-inl.h"
#include "src/ops/contract/gemm_rows.h"

HWY_BEFORE_NAMESPACE();
namespace tenor::cpu::HWY_NAMESPACE {
namespace contract = tenor::contract;

#if HWY_TARGET <= HWY_AVX3 || HWY_TARGET == HWY_NEON
inline constexpr int kAccumulators = 16;
#else
inline constexpr int kAccumulators = 8;
#endif

/// Vectors that hold the lanes of the reduction order.
template <class T>
inline constexpr int kVectorsOf = static_cast<int>(core::kReductionLanes / hn::MaxLanes(hn::ScalableTag<T>()));

/// Bytes that a lone column is fetched ahead: columns follow each other in memory, so the next ones are on their way
/// when this one ends, which the hardware's prefetchers, stopping at each page, do not see to.
inline constexpr int64_t kAhead = 8 << 10;

/// out[r * out_pitch + c] = sum over k < depth of rows[r][k] * columns[c][k], each product fused into its lane.
template <int kRows, int kCols, class T, class S>
HWY_NOINLINE void dot_tile(const T* HWY_RESTRICT rows, int64_t row_pitch, const S* HWY_RESTRICT columns,
                           int64_t col_step, int64_t depth, T* out, int64_t out_pitch) {
  const hn::ScalableTag<T> d;
  constexpr int kVectors = kVectorsOf<T>;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  hn::Vec<decltype(d)> sums[kRows][kCols][kVectors];
  for (auto& row : sums)
    for (auto& col : row)
      for (auto& v : col) v = hn::Zero(d);
  int64_t k = 0;
  for (; k + core::kReductionLanes <= depth; k += core::kReductionLanes)
    for (int v = 0; v < kVectors; ++v) {
      const int64_t at = k + v * lanes;
      for (int c = 0; c < kCols; ++c) {
        if constexpr (kCols == 1) hwy::Prefetch(columns + at + kAhead / static_cast<int64_t>(sizeof(S)));
        const auto y = load(d, columns + c * col_step + at);
        for (int r = 0; r < kRows; ++r)
          sums[r][c][v] = hn::MulAdd(hn::LoadU(d, rows + r * row_pitch + at), y, sums[r][c][v]);
      }
    }
  for (int v = 0; v < kVectors && k < depth; ++v, k += lanes) {
    const size_t n = static_cast<size_t>(depth - k < lanes ? depth - k : lanes);
    for (int c = 0; c < kCols; ++c) {
      const auto y = load_n(d, columns + c * col_step + k, n);
      for (int r = 0; r < kRows; ++r)
        sums[r][c][v] = hn::MulAdd(load_n(d, rows + r * row_pitch + k, n), y, sums[r][c][v]);
    }
  }
  const auto add = [](T a, T b) { return a + b; };
  HWY_ALIGN T all[core::kReductionLanes];
  for (int r = 0; r < kRows; ++r)
    for (int c = 0; c < kCols; ++c) {
      for (int v = 0; v < kVectors; ++v) hn::Store(sums[r][c][v], d, all + v * lanes);
      out[r * out_pitch + c] = core::combine_lanes(all, add);
    }
}

/// Columns [first, last) against kRows rows.
template <int kRows, class T, class S>
void dot_rows(const contract::RowsTask& task, const T* rows, const S* columns, int64_t count, int64_t depth, T* sums,
              int64_t pitch) {
  constexpr int kFit = kAccumulators / (kRows * kVectorsOf<T>);
  // Memory sets the pace of one row (of two, where a column is half as long): it is read as one stream.
  constexpr int kCols = kRows == 1 || kRows * sizeof(S) <= 4 ? 1 : kFit >= 4 ? 4 : kFit >= 2 ? 2 : 1;
  int64_t c = 0;
  for (; c + kCols <= count; c += kCols)
    dot_tile<kRows, kCols>(rows, task.k, columns + c * task.col_step, task.col_step, depth, sums + c, pitch);
  for (; c < count; ++c)
    dot_tile<kRows, 1>(rows, task.k, columns + c * task.col_step, task.col_step, depth, sums + c, pitch);
}

template <class T, class S>
void dot_all(const contract::RowsTask& task, int64_t first, int64_t last, int64_t start, int64_t depth, T* sums,
             int64_t pitch) {
  // A strip of columns at a time, so that it is still in cache for the next rows.
  constexpr int64_t kStrip = 8;
  const T* rows = static_cast<const T*>(task.rows) + start;
  const S* columns = static_cast<const S*>(task.columns) + start;
  for (int64_t c = first; c < last; c += kStrip) {
    const int64_t count = last - c < kStrip ? last - c : kStrip;
    const S* at = columns + c * task.col_step;
    T* to = sums + (c - first);
    int64_t r = 0;
    for (; r + 4 <= task.count; r += 4) dot_rows<4>(task, rows + r * task.k, at, count, depth, to + r * pitch, pitch);
    for (; r + 2 <= task.count; r += 2) dot_rows<2>(task, rows + r * task.k, at, count, depth, to + r * pitch, pitch);
    for (; r < task.count; ++r) dot_rows<1>(task, rows + r * task.k, at, count, depth, to + r * pitch, pitch);
  }
}

/// The next kDeep values of k, added into every sum in order. The rows of the next slice are asked for meanwhile: a
/// strip of each lies in a page of its own, at which the hardware's prefetchers stop.
template <int kDeep, class T, class S>
HWY_INLINE void add_slice(const contract::RowsTask& task, const S* HWY_RESTRICT matrix, int64_t k, int64_t count,
                          T* HWY_RESTRICT sums, int64_t pitch) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const T* rows = static_cast<const T*>(task.rows) + k;
  for (int64_t j = 0; j < count; j += lanes) {
    const size_t n = static_cast<size_t>(count - j < lanes ? count - j : lanes);
    hn::Vec<decltype(d)> y[kDeep];
    for (int i = 0; i < kDeep; ++i) {
      const S* at = matrix + (k + i) * task.k_step + j;
      hwy::Prefetch(at + kDeep * task.k_step);
      y[i] = n == static_cast<size_t>(lanes) ? load(d, at) : load_n(d, at, n);
    }
    for (int64_t r = 0; r < task.count; ++r) {
      auto sum = hn::LoadU(d, sums + r * pitch + j);
      for (int i = 0; i < kDeep; ++i) sum = hn::MulAdd(hn::Set(d, rows[r * task.k + i]), y[i], sum);
      hn::StoreU(sum, d, sums + r * pitch + j);
    }
  }
}

template <class T, class S>
void add_all(const contract::RowsTask& task, int64_t first, int64_t last, int64_t start, int64_t depth, T* sums,
             int64_t pitch) {
  const S* matrix = static_cast<const S*>(task.columns) + first;
  int64_t k = start;
  for (; k + 8 <= start + depth; k += 8) add_slice<8>(task, matrix, k, last - first, sums, pitch);
  for (; k < start + depth; ++k) add_slice<1>(task, matrix, k, last - first, sums, pitch);
}

/// fn<T, S>() for the types of the task.
template <class F>
void visit_task(const contract::RowsTask& task, F&& fn) {
  if (task.compute == DType::kFloat64) return fn.template operator()<double, double>();
  if (task.dtype == DType::kFloat32) return fn.template operator()<float, float>();
  if (task.dtype == DType::kBFloat16) return fn.template operator()<float, BFloat16>();
  fn.template operator()<float, Float16>();
}

void dot_columns_of(const contract::RowsTask& task, int64_t first, int64_t last, int64_t start, int64_t depth,
                    void* sums, int64_t pitch) {
  visit_task(task,
             [&]<class T, class S>() { dot_all<T, S>(task, first, last, start, depth, static_cast<T*>(sums), pitch); });
}
void add_rows_of(const contract::RowsTask& task, int64_t first, int64_t last, int64_t start, int64_t depth, void* sums,
                 int64_t pitch) {
  visit_task(task,
             [&]<class T, class S>() { add_all<T, S>(task, first, last, start, depth, static_cast<T*>(sums), pitch); });
}

}  // namespace tenor::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenor::cpu {
HWY_EXPORT(dot_columns_of);
HWY_EXPORT(add_rows_of);

void dot_columns(const contract::RowsTask& task, int64_t first, int64_t last, int64_t start, int64_t depth, void* sums,
                 int64_t pitch) {
  HWY_DYNAMIC_DISPATCH(dot_columns_of)(task, first, last, start, depth, sums, pitch);
}
void add_rows(const contract::RowsTask& task, int64_t first, int64_t last, int64_t start, int64_t depth, void* sums,
              int64_t pitch) {
  HWY_DYNAMIC_DISPATCH(add_rows_of)(task, first, last, start, depth, sums, pitch);
}

}  // namespace tenor::cpu
#endif
