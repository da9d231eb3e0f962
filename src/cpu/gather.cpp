#include "src/cpu/gather.h"

#include <cstring>
#include <vector>

namespace tenor::cpu {
namespace {

bool is_dense(const Tile& t) {
  return (t.columns == 1 || t.column_stride == 1) &&
         (t.rows == 1 || (t.columns == 1 ? t.row_stride == 1 : t.row_stride == t.columns));
}

/// Memory of this thread for elements on their way.
void* scratch(size_t bytes) {
  thread_local std::vector<double> memory;
  if (memory.size() * sizeof(double) < bytes) memory.resize(bytes / sizeof(double) + 1);
  return memory.data();
}

template <class F>
void as_box(const Tile& t, F&& fn) {
  const int64_t sizes[] = {t.rows, t.columns}, strides[] = {t.row_stride, t.column_stride};
  fn(Box{2, sizes, strides});
}

}  // namespace

Gather::Gather(DType from, DType to)
    : convert_(from, to), item_(item_size(from)), to_item_(item_size(to)), converts_(from != to) {}

void Gather::operator()(const void* src, const Tile& t, void* dst) const {
  const size_t n = static_cast<size_t>(t.rows * t.columns);
  if (is_dense(t)) {
    if (converts_)
      convert_(src, dst, n);
    else
      std::memcpy(dst, src, n * item_);
  } else if (t.column_stride == 1 && t.columns >= 16) {
    for (int64_t r = 0; r < t.rows; ++r) {
      const char* from = static_cast<const char*>(src) + r * t.row_stride * static_cast<int64_t>(item_);
      char* to = static_cast<char*>(dst) + r * t.columns * static_cast<int64_t>(to_item_);
      if (converts_)
        convert_(from, to, static_cast<size_t>(t.columns));
      else
        std::memcpy(to, from, static_cast<size_t>(t.columns) * item_);
    }
  } else {
    void* dense = converts_ ? scratch(n * item_) : dst;
    as_box(t, [&](const Box& box) { gather_box(item_, src, box, dense); });
    if (converts_) convert_(dense, dst, n);
  }
}

Scatter::Scatter(DType from, DType to)
    : convert_(from, to), item_(item_size(from)), to_item_(item_size(to)), converts_(from != to) {}

void Scatter::operator()(const void* src, void* dst, const Tile& t) const {
  const size_t n = static_cast<size_t>(t.rows * t.columns);
  if (is_dense(t)) {
    if (converts_)
      convert_(src, dst, n);
    else
      std::memcpy(dst, src, n * item_);
  } else if (t.column_stride == 1 && t.columns >= 16) {
    for (int64_t r = 0; r < t.rows; ++r) {
      const char* from = static_cast<const char*>(src) + r * t.columns * static_cast<int64_t>(item_);
      char* to = static_cast<char*>(dst) + r * t.row_stride * static_cast<int64_t>(to_item_);
      if (converts_)
        convert_(from, to, static_cast<size_t>(t.columns));
      else
        std::memcpy(to, from, static_cast<size_t>(t.columns) * to_item_);
    }
    return;
  }
  // The elements as they are to lie, dense: converted, and transposed through registers where columns are the runs.
  const bool transposes = t.row_stride == 1 && t.rows >= 4;
  const size_t bytes = n * to_item_;
  char* memory = static_cast<char*>(converts_ || transposes ? scratch(2 * bytes) : nullptr);
  const void* dense = src;
  if (converts_) {
    convert_(src, memory, n);
    dense = memory;
  }
  if (!transposes) return as_box(t, [&](const Box& box) { scatter_box(to_item_, dense, dst, box); });
  as_box({t.columns, t.rows, 1, t.columns}, [&](const Box& box) { gather_box(to_item_, dense, box, memory + bytes); });
  const size_t run = static_cast<size_t>(t.rows) * to_item_;
  for (int64_t c = 0; c < t.columns; ++c)
    std::memcpy(static_cast<char*>(dst) + c * t.column_stride * static_cast<int64_t>(to_item_),
                memory + bytes + static_cast<size_t>(c) * run, run);
}

}  // namespace tenor::cpu
