#include "src/core/sizes.h"
#include "src/cuda/launch.h"
#include "src/ops/index/index_columns.cuh"
#include "src/ops/index/index_columns_cuda.h"
#include "src/ops/index/index_lines_cuda.h"

namespace tenor::index {

namespace {

using cuda::Grid;
using cuda::launch;

/// The innermost dim of the layout as groups of n.
void group_columns(Columns& columns, int n) {
  const int last = columns.layout.ndim - 1;
  columns.in_group = columns.layout.size[last];
  cuda::group_innermost(columns.layout, n);
  columns.groups = columns.layout.size[last];
}

/// Columns of a move whose entries walk one dim of the table, neighbours in another being neighbours in the index and
/// in the table.
bool find_columns(const DeviceMove& m, Columns& out) {
  size_t along = m.shape.size();
  Dims shape, dense, index, table;
  for (size_t d = 0; d < m.shape.size(); ++d) {
    if (m.shape[d] == 1) continue;
    if (m.index_strides[d] == 0) return false;
    if (m.table_strides[d] == 0) {
      if (along != m.shape.size()) return false;
      along = d;
      continue;
    }
    shape.push_back(m.shape[d]);
    dense.push_back(m.dense_strides[d]);
    index.push_back(m.index_strides[d]);
    table.push_back(m.table_strides[d]);
  }
  if (along == m.shape.size() || m.resolved) return false;
  out.length = m.shape[along];
  out.places = m.size;
  out.dense_step = m.dense_strides[along];
  out.index_step = m.index_strides[along];
  out.table_step = m.place_stride;
  out.layout = cuda::collapse(m.at.op, shape, {dense, index, table}, 2);
  const int last = out.layout.ndim - 1;
  if (last < 0 || out.layout.stride[1][last] != 1 || out.layout.stride[2][last] != 1) return false;
  out.dense_side = out.layout.stride[0][last];
  return m.size < (1 << 24) && m.size <= 8 * out.length && out.layout.count >= cuda::multiprocessors(m.index.device());
}

/// fn.operator()<columns of a block>(its shared memory) for as many columns as fit, 16 only where they leave every
/// multiprocessor a block.
template <class V, class F>
bool with_width(const Columns& columns, Device device, F&& fn) {
  const int64_t places = columns.places;
  const size_t most = most_shared(device);
  if (ColumnSpace<V, 16>::bytes(places) <= most && columns.layout.count >= 16 * cuda::multiprocessors(device)) {
    fn.template operator()<16>(ColumnSpace<V, 16>::bytes(places));
  } else if (ColumnSpace<V, 8>::bytes(places) <= most) {
    fn.template operator()<8>(ColumnSpace<V, 8>::bytes(places));
  } else if (ColumnSpace<V, 4>::bytes(places) <= most) {
    fn.template operator()<4>(ColumnSpace<V, 4>::bytes(places));
  } else {
    return false;
  }
  return true;
}

template <class V, class T, class... Rules>
bool run(const DeviceMove& m, Columns columns, auto kernel_of, Rules... rules) {
  return with_width<V>(columns, m.index.device(), [&]<int N>(size_t shared) {
    columns.entries = entries_of(m);
    group_columns(columns, N);
    const Grid grid{static_cast<unsigned>(columns.layout.count), N * kColumnWarp, shared};
    launch(m.at.op, kernel_of(std::integral_constant<int, N>()), grid, m.index.device(), columns, rules...,
           static_cast<const T*>(m.dense), static_cast<T*>(m.table));
  });
}

}  // namespace

bool scatter_columns_on_device(const DeviceMove& m, DType dtype) {
  Columns columns{};
  if (!find_columns(m, columns)) return false;
  bool done = false;
  core::visit_size(dtype, [&]<class T>() {
    done = run<T, T>(m, columns, [](auto width) { return scatter_columns_kernel<T, width()>; });
  });
  return done;
}

bool combine_columns_on_device(const DeviceMove& m, DType dtype, const CombineRule& given) {
  Columns columns{};
  if (!given.include_self || given.combine == DeviceCombine::kMean || !find_columns(m, columns)) return false;
  bool done = false;
  core::visit(dtype, [&]<class T>() {
    using C = core::Compute<T>;
    done = run<C, T>(
        m, columns, [](auto width) { return combine_columns_kernel<T, width()>; }, rule_of<C>(given));
  });
  return done;
}

}  // namespace tenor::index
