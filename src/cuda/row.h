// Rows on a CUDA device: how an operator that reduces rows cuts its problem into threads, blocks and clusters. The
// kernels are in row.cuh.
//
// A row's sums are added in an order that follows from its length, dtype and layout class (rows or columns) alone: the
// same bits in any batch, at any address.
#pragma once

#include <string>

#include "src/cuda/layout.h"
#include "tenor/tensor.h"

namespace tenor::cuda {

inline constexpr int kRowThreads = 512;  ///< of a block, at most: two or three blocks on a multiprocessor overlap
inline constexpr int kRowCluster = 16;   ///< blocks of a cluster, at most; more than 8 need a kernel attribute
inline constexpr int kLoopCluster = 8;   ///< blocks that share a row too long to hold

/// Elements of a row that one thread holds. Blocks that share a row have half the threads with twice the elements,
/// since what costs is that they wait for one another.
constexpr int held_elements(size_t item, bool shared = false) { return (item == 8 ? 16 : 32) * (shared ? 2 : 1); }

/// Where fewer than a warp's lanes share a row: few, so that neighbouring lanes read neighbouring memory.
inline constexpr int kLanesShare = 16;

/// Elements of each of a row's threads, its first, by which a mean is estimated.
inline constexpr int kRowSample = 8;

/// How rows are computed. All but `registers` follows from their length, element size and layout class.
struct RowPlan {
  bool
      columns;  ///< neighbouring threads take neighbouring rows (whose elements lie strided), not neighbouring elements
  bool held;    ///< the row stays on the chip between its passes; else every pass reads it from memory again
  bool wide;    ///< a thread takes 16 bytes of neighbouring elements, not one element, at a time
  bool aligned;    ///< every row begins at a multiple of 16 bytes and is a multiple of them long. Changes no bits
  bool split;      ///< wide and of several blocks
  int share;       ///< elements of a row that a thread holds
  int threads;     ///< that share a row, in one block; of columns: warps, each taking 32 rows
  int rows;        ///< rows of a block
  int cluster;     ///< blocks that share a row
  bool registers;  ///< held there, which every tensor's layout allows; else in shared memory. Changes no bits
  /// One line, for people.
  std::string explain() const;
};

/// `dense`: a row is one run of evenly spaced elements. `most_blocks`: of a cluster, on that device.
RowPlan plan_rows(int64_t length, bool dense, size_t item, bool columns, int most_blocks = kRowCluster);

/// N tensors of one shape seen as rows.
template <int N>
struct RowProblem {
  void* data[N];    ///< null: not given
  Layout<N> outer;  ///< from row to row
  int64_t length;   ///< elements of a row
  int64_t run;      ///< of them that lie evenly; length % run == 0
  Divider run_divider;
  int64_t run_stride[N];  ///< from run to run
  int64_t step[N];        ///< from element to element in a run
  int share;              ///< as in the plan
  int chunks;             ///< what a row takes of what its threads hold: 1 where it is held
  bool wide, columns;     ///< as in the plan
};

/// Rows of one run each, of elements that lie side by side, spaced evenly: what the fastest kernels need to know of
/// them. It is small, since a kernel waits for its parameters too.
template <int N>
struct EvenRows {
  void* data[N];
  int64_t stride[N];  ///< from row to row
  int64_t count, length;
};
template <int N>
EvenRows<N> even_rows(const RowProblem<N>& p) {
  EvenRows<N> out{.count = p.outer.count, .length = p.length};
  for (int t = 0; t < N; ++t) out.data[t] = p.data[t], out.stride[t] = p.outer.ndim == 0 ? 0 : p.outer.stride[t][0];
  return out;
}

/// One tensor's rows.
struct RowSpan {
  void* data;
  int64_t run_stride, step;
};

/// Describes the tensors' rows and chooses the plan. tensors[0] decides the layout class; undefined ones are not given.
/// A row is the last `row_dims` dims, taken in the order of tensor 0's strides, which must merge into runs that are
/// spaced evenly: false where they do not.
bool plan_problem(const char* op, const Tensor* tensors, int n, int row_dims, RowPlan& plan, int64_t& length,
                  int64_t& run, RowSpan* spans);

/// The dims outside of the rows.
inline Dims outer_dims(const Dims& dims, int row_dims) { return Dims(dims.begin(), dims.end() - row_dims); }

/// The problem and its plan. Rows are counted in the order of x's memory, or (`ordered`) of its dims.
template <int N>
bool make_rows(const char* op, const Tensor (&tensors)[N], int row_dims, bool ordered, RowPlan& plan,
               RowProblem<N>& out) {
  RowSpan spans[N];
  if (!plan_problem(op, tensors, N, row_dims, plan, out.length, out.run, spans)) return false;
  Dims strides[N];
  const Dims shape = outer_dims(tensors[0].shape(), row_dims);
  for (int t = 0; t < N; ++t) {
    strides[t] = outer_dims(tensors[t].defined() ? tensors[t].strides() : tensors[0].strides(), row_dims);
    out.data[t] = spans[t].data;
    out.run_stride[t] = spans[t].run_stride;
    out.step[t] = spans[t].step;
  }
  out.outer = collapse(op, shape, strides, ordered ? -1 : 0);
  if (out.run <= INT32_MAX) out.run_divider = make_divider(out.run);
  const int64_t capacity = int64_t{plan.share} * plan.threads * plan.cluster;
  out.chunks = plan.held ? 1 : static_cast<int>((out.length + capacity - 1) / capacity);
  out.share = plan.share;
  out.wide = plan.wide;
  out.columns = plan.columns;
  return true;
}

}  // namespace tenor::cuda
