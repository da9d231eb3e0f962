// Moving and converting elements: the loads and stores around every CPU tile. Single-threaded.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tenor/dtype.h"

namespace tenor::cpu {

/// A box of elements in memory: sizes and strides (in elements), the innermost dim last.
struct Box {
  static constexpr int kMaxDims = 64;
  int ndim;
  const int64_t* sizes;
  const int64_t* strides;
  int64_t ahead =
      0;  ///< elements on from this box lies the one that is gathered next, and is fetched meanwhile; 0: unknown
};

/// Gathers the elements of a box, row-major, into dense memory. Repeats along stride 0; a box whose unit stride lies in
/// another dim than the last is transposed through registers, so that whole cache lines are used.
void gather_box(size_t item, const void* src, const Box& box, void* dense);
/// The reverse; the box's elements do not overlap. `stream` writes whole cache lines past the caches: for runs that lie
/// far apart in a result that the caches do not hold, where fetching each line before writing it costs most. After the
/// last such call a thread calls finish_streams().
void scatter_box(size_t item, const void* dense, void* dst, const Box& box, bool stream = false);
void finish_streams();
/// dst[a * dst_stride + i] = src[i * src_stride + a] for a < rows, i < columns; strides in elements. No overlap.
void transpose_plane(size_t item, const void* src, int64_t src_stride, void* dst, int64_t dst_stride, int64_t rows,
                     int64_t columns);
/// The same past the caches, with the lines of the plane `ahead` elements behind src fetched; then finish_streams() as
/// above. False, and nothing done, where no whole cache line would be written: rows of dst that are not aligned to one,
/// bytes, and processors whose vectors are shorter.
bool stream_turned(size_t item, const void* src, int64_t src_stride, void* dst, int64_t dst_stride, int64_t rows,
                   int64_t columns, int64_t ahead);
/// n copies of one element.
void fill_dense(size_t item, const void* value, void* dense, size_t n);

using ConvertFn = void (*)(const void* src, void* dst, size_t n);

/// A conversion of dense elements by the rules of src/core/numeric.h: one kernel, or two with a float32 in between
/// where that is exact. src and dst do not overlap.
class Converter {
 public:
  Converter(DType from, DType to);
  void operator()(const void* src, void* dst, size_t n) const;

 private:
  ConvertFn first_, second_ = nullptr;  // second_ continues from float32
  size_t from_item_, to_item_;
};

}  // namespace tenor::cpu
