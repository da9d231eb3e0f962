// The "rows" candidate. Where the matrix's columns have contiguous k (a linear layer's weight) an output is a dot
// product in the reduction order (src/core/reduction_order.h, products fused into their lanes); where its rows are
// contiguous, chains of FMAs over 512 values of k, added in order. Neither depends on the other rows, the strips or the
// thread count.
#include "src/ops/contract/gemm_rows.h"

#include <algorithm>
#include <vector>

#include "src/core/numeric.h"
#include "src/core/reduction_order.h"
#include "src/core/sizes.h"
#include "src/core/visit.h"
#include "src/cpu/parallel.h"
#include "src/ops/contract/gemm_kernels.h"

namespace tenor::contract {
namespace {

/// With the few rows as a; exchanges the roles where the columns are the fewer.
GemmProblem with_few_rows(const GemmProblem& p) { return p.m <= p.n ? p : transposed(p); }

template <class F>
void visit_compute(DType compute, F&& fn) {
  if (compute == DType::kFloat64) return fn.template operator()<double>();
  fn.template operator()<float>();
}

/// The few rows of one matrix, dense and in the compute type.
Tensor gather_rows(const GemmProblem& p, const char* a) {
  const Tensor rows = Tensor::empty({p.m, p.k}, p.compute);
  visit_compute(p.compute, [&]<class T>() {
    core::visit_float(p.a.dtype, [&]<class S>() {
      T* to = rows.data<T>();
      for (int64_t i = 0; i < p.m; ++i)
        for (int64_t k = 0; k < p.k; ++k)
          *to++ = core::cast<T>(reinterpret_cast<const S*>(a)[i * p.a.row + k * p.a.col]);
    });
  });
  return rows;
}

/// c[.., first..] = sums + bias, rounded.
template <class T>
void finish(const GemmProblem& p, char* c, int64_t first, int64_t count, const T* sums, int64_t pitch) {
  const T* bias = static_cast<const T*>(p.bias);
  core::visit_float(p.c.dtype, [&]<class S>() {
    for (int64_t i = 0; i < p.m; ++i)
      for (int64_t j = 0; j < count; ++j) {
        const T sum =
            bias ? sums[i * pitch + j] + bias[i * p.bias_row + (first + j) * p.bias_col] : sums[i * pitch + j];
        reinterpret_cast<S*>(c)[i * p.c.row + (first + j) * p.c.col] = core::cast<S>(sum);
      }
  });
}

RowsTask task_of(const GemmProblem& p, const Tensor& rows, const char* b) {
  return {rows.raw(), p.m, p.k, p.compute, p.b.dtype, b, p.b.col, p.b.row};
}

constexpr int64_t kBlock = core::kReductionBlock;

template <class T>
T add(T a, T b) {
  return a + b;
}

/// Columns [first, last) of dot products, a strip at a time.
template <class T>
void dot_range(const GemmProblem& p, const RowsTask& task, int64_t first, int64_t last, char* c) {
  constexpr int64_t kStrip = 32;
  T sums[kFewRows * kStrip];
  for (int64_t j = first; j < last; j += kStrip) {
    const int64_t count = std::min(kStrip, last - j);
    if (p.k <= kBlock) {
      cpu::dot_columns(task, j, j + count, 0, p.k, sums, kStrip);
    } else {
      std::vector<core::BlockCounter<T>> blocks(static_cast<size_t>(p.m * kStrip));
      for (int64_t k = 0; k < p.k; k += kBlock) {
        cpu::dot_columns(task, j, j + count, k, std::min(kBlock, p.k - k), sums, kStrip);
        for (int64_t i = 0; i < p.m * kStrip; ++i) blocks[static_cast<size_t>(i)].push(sums[i], add<T>);
      }
      for (int64_t i = 0; i < p.m * kStrip; ++i) sums[i] = blocks[static_cast<size_t>(i)].finish(T(0), add<T>);
    }
    finish(p, c, j, count, sums, kStrip);
  }
}

/// Few outputs of long sums: threads take blocks of k, which meet in the same order as in dot_range.
template <class T>
void dot_split(const GemmProblem& p, const RowsTask& task, char* c) {
  const int64_t blocks = (p.k + kBlock - 1) / kBlock, outputs = p.m * p.n;
  const Tensor partial = Tensor::empty({blocks, outputs}, p.compute);
  cpu::parallel_for(blocks, cpu::grain_of(kBlock * p.n * static_cast<int64_t>(item_size(p.b.dtype))),
                    [&](int64_t first, int64_t last) {
                      for (int64_t i = first; i < last; ++i)
                        cpu::dot_columns(task, 0, p.n, i * kBlock, std::min(kBlock, p.k - i * kBlock),
                                         partial.data<T>() + i * outputs, p.n);
                    });
  std::vector<T> sums(static_cast<size_t>(outputs));
  for (int64_t o = 0; o < outputs; ++o) {
    core::BlockCounter<T> counter;
    for (int64_t i = 0; i < blocks; ++i) counter.push(partial.data<T>()[i * outputs + o], add<T>);
    sums[static_cast<size_t>(o)] = counter.finish(T(0), add<T>);
  }
  finish(p, c, 0, p.n, sums.data(), p.n);
}

constexpr int64_t kChain = 512;       // values of k of one chain of FMAs; chains meet in their order
constexpr int64_t kChainSums = 8192;  // elements of a chain's sums that stay in the nearest cache

/// Columns in whole cache lines of any type.
int64_t whole_lines(int64_t columns) { return core::div_up(columns, 64) * 64; }

/// sums [m][pitch] = chain `chain` of columns [first, last).
template <class T>
void add_chain(const GemmProblem& p, const RowsTask& task, int64_t first, int64_t last, int64_t chain, T* sums,
               int64_t pitch) {
  for (int64_t i = 0; i < p.m; ++i) std::fill_n(sums + i * pitch, last - first, T(0));
  cpu::add_rows(task, first, last, chain * kChain, std::min(kChain, p.k - chain * kChain), sums, pitch);
}
/// sums += a later chain's.
template <class T>
void meet(const GemmProblem& p, T* sums, const T* later, int64_t count, int64_t pitch) {
  for (int64_t i = 0; i < p.m; ++i)
    for (int64_t j = 0; j < count; ++j) sums[i * pitch + j] += later[i * pitch + j];
}

template <class T>
void add_range(const GemmProblem& p, const RowsTask& task, int64_t first, int64_t last, char* c) {
  const int64_t pitch = whole_lines(last - first), chains = core::div_up(p.k, kChain);
  const Tensor sums = Tensor::empty({std::clamp<int64_t>(chains, 1, 2), p.m, pitch}, p.compute);
  T *total = sums.data<T>(), *later = total + p.m * pitch;
  add_chain(p, task, first, last, 0, total, pitch);
  for (int64_t chain = 1; chain < chains; ++chain) {
    add_chain(p, task, first, last, chain, later, pitch);
    meet(p, total, later, last - first, pitch);
  }
  finish(p, c, first, last - first, total, pitch);
}

/// One matrix: threads take chains of wide strips of columns, so that each reads long runs of the matrix's rows.
template <class T>
void add_split(const GemmProblem& p, const RowsTask& task, char* c) {
  const int64_t pitch = whole_lines(p.n), chains = core::div_up(p.k, kChain),
                item = static_cast<int64_t>(item_size(p.b.dtype));
  const int64_t share = std::min(kChainSums / p.m, core::div_up(p.n * chains, 2 * num_threads()));
  const int64_t strip = whole_lines(std::max<int64_t>(share, 128)), strips = core::div_up(p.n, strip);
  const Tensor partial = Tensor::empty({chains, p.m, pitch}, p.compute);
  T* sums = partial.data<T>();
  cpu::parallel_for(
      chains * strips, cpu::grain_of(std::min(strip, p.n) * kChain * item), [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const int64_t chain = i / strips, first = i % strips * strip;
          add_chain(p, task, first, std::min(first + strip, p.n), chain, sums + chain * p.m * pitch + first, pitch);
        }
      });
  cpu::parallel_for(pitch / 64, cpu::grain_of(64 * p.m * chains * static_cast<int64_t>(sizeof(T))),
                    [&](int64_t begin, int64_t end) {
                      const int64_t first = begin * 64, count = std::min(end * 64, p.n) - first;
                      for (int64_t chain = 1; chain < chains; ++chain)
                        meet(p, sums + first, sums + chain * p.m * pitch + first, count, pitch);
                      finish(p, c, first, count, sums + first, pitch);
                    });
}

}  // namespace

std::string rows_why_not(const GemmProblem& problem) {
  if (problem.batch_invariant) return "its order over k is not that of many rows";
  if (std::min(problem.m, problem.n) > kFewRows) return "takes at most 8 rows or columns";
  if (std::string reason = blocked_why_not(problem); !reason.empty()) return reason;
  const GemmProblem p = with_few_rows(problem);
  if (p.m > 4 && p.b.dtype == DType::kBFloat16 && vendor_why_not(problem).empty())
    return "from 5 rows on oneDNN multiplies bfloat16 faster";
  return p.b.row == 1 || p.b.col == 1 ? "" : "the matrix has no dim of unit stride";
}

void rows_run(const GemmProblem& problem) {
  const GemmProblem p = with_few_rows(problem);
  const bool dots = p.b.row == 1;
  const int64_t matrices = product(p.batch), column_bytes = p.k * static_cast<int64_t>(item_size(p.b.dtype));
  visit_compute(p.compute, [&]<class T>() {
    const auto whole = [&](int64_t at, auto&& fn) {
      for_each_matrix(p, at, at + 1, [&](const char* a, const char* b, char* c) {
        const Tensor rows = gather_rows(p, a);
        fn(task_of(p, rows, b), c);
      });
    };
    if (matrices >= num_threads()) {
      cpu::parallel_for(matrices, cpu::grain_of(p.n * column_bytes), [&](int64_t first, int64_t last) {
        for (int64_t i = first; i < last; ++i)
          whole(i, [&](const RowsTask& task, char* c) {
            dots ? dot_range<T>(p, task, 0, p.n, c) : add_range<T>(p, task, 0, p.n, c);
          });
      });
      return;
    }
    for (int64_t i = 0; i < matrices; ++i)
      whole(i, [&](const RowsTask& task, char* c) {
        if (dots && p.n < 4 * num_threads() && p.k > 8 * kBlock) return dot_split<T>(p, task, c);
        if (!dots && p.k > kChain) return add_split<T>(p, task, c);
        // Whole cache lines of columns, and for chains strips wide enough to run along the rows.
        const int64_t unit = dots ? 16 : 64, units = (p.n + unit - 1) / unit;
        cpu::parallel_for(units, std::max<int64_t>(dots ? 1 : 4, cpu::grain_of(unit * column_bytes)),
                          [&](int64_t first, int64_t last) {
                            const int64_t step = dots ? p.n : 1024;
                            const int64_t end = std::min(last * unit, p.n);
                            for (int64_t j = first * unit; j < end; j += step) {
                              const int64_t stop = std::min(j + step, end);
                              dots ? dot_range<T>(p, task, j, stop, c) : add_range<T>(p, task, j, stop, c);
                            }
                          });
      });
  });
}

}  // namespace tenor::contract
