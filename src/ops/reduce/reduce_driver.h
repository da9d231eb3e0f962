// Walks one pass of a reduction over memory: picks rows or columns, gathers what does not lie right, combines blocks.
#pragma once

#include <cstring>
#include <vector>

#include "src/core/reduction_order.h"
#include "src/cpu/gather.h"
#include "src/cpu/reduced_layout.h"
#include "src/ops/reduce/reduce_kernels.h"

namespace tenor::reduce {

/// Memory for accumulators of any type, up to 8 bytes each, from a cache line's start: vectors that cross lines cost
/// twice.
class Accumulators {
 public:
  void* reserve(int64_t n) {
    const size_t bytes = static_cast<size_t>(n) * 8 + kLine;
    if (bytes_.size() < bytes) bytes_.resize(bytes);
    const size_t past = reinterpret_cast<uintptr_t>(bytes_.data()) % kLine;
    return bytes_.data() + (kLine - past) % kLine;
  }

 private:
  static constexpr size_t kLine = 64;
  std::vector<char> bytes_;
};

/// How a pass reads x: by kernels that take it as it lies, or through a buffer of another dtype.
struct Reader {
  const Kernels* kernels;
  cpu::Gather gather;
  DType dtype;    ///< what the kernels read
  bool converts;  ///< dtype differs from x's
};
/// @param accumulator the dtype in which sums are formed; extremes and counts have their own
Reader make_reader(Pass pass, DType x, DType accumulator);

/// The tensor and its layout, with what every pass needs.
class Driver {
 public:
  Driver(const Tensor& x, const cpu::ReducedLayout& layout);

  /// Whether whole rows of the sequence are read at a time; else tiles of neighbouring outputs.
  bool by_rows() const { return by_rows_; }
  /// Outputs a segment should hold; passes > 1 keep it small enough to stay in cache between them, as do tiles that are
  /// converted.
  int64_t segment_width(int passes, bool converts) const;
  /// The reduction of every output of a segment, into results (width accumulators of the pass's type).
  void reduce(const Reader& reader, const cpu::Segment& s, const void* shifts, double power, bool parallel,
              void* results) const;
  /// Blocks [first, last) of a segment, into results: `width` accumulators of each, block by block.
  void reduce_blocks(const Reader& reader, const cpu::Segment& s, int64_t first, int64_t last, const void* shifts,
                     double power, void* results) const;
  /// Elements [begin, end) of the sequence of one output at offset `in`, one after another.
  void gather_row(const Reader& reader, int64_t in, int64_t begin, int64_t end, void* buffer) const;
  /// Calls fn(x, stride, first, rows) with tiles of rows of `width` adjacent elements, which together are elements
  /// [begin, end) of the segment's sequences; through the buffer where they do not lie so.
  template <class F>
  void for_column_tiles(const Reader& reader, const cpu::Segment& s, int64_t begin, int64_t end, F&& fn) const;

  const char* data(int64_t offset) const { return data_ + offset * item_; }
  /// Whether an output's elements lie densely, and are read as a row.
  bool dense_rows() const { return by_rows_ && layout_.reduced.size() == 1 && layout_.reduced[0].in == 1; }
  const cpu::ReducedLayout& layout() const { return layout_; }
  /// Blocks of the order in an output's sequence.
  int64_t blocks() const { return (layout_.count + core::kReductionBlock - 1) / core::kReductionBlock; }

 private:
  void rows_blocks(const Reader& reader, const cpu::Segment& s, int64_t first, int64_t last, const void* shifts,
                   double power, char* results) const;
  /// Elements [begin, end), whole blocks of sequences made of dense runs of whole sets of lanes, read where they lie.
  void runs_blocks(const Reader& reader, const cpu::Segment& s, int64_t begin, int64_t end, double power,
                   char* results) const;
  void columns_block(const Reader& reader, const cpu::Segment& s, int64_t begin, int64_t end, const void* shifts,
                     double power, void* results) const;

  /// Whether each output is one short dense row and the pass has kernels for those.
  bool takes_short_rows(const Reader& reader, const void* shifts) const {
    return short_rows_ && !shifts && !reader.converts && reader.kernels->short_rows;
  }

  const cpu::ReducedLayout& layout_;
  const char* data_;
  int64_t item_;
  bool by_rows_, short_rows_;
};

/// Elements of the tiles that are gathered: they stay in L1.
inline constexpr int64_t kGatherTile = 8192;

template <class F>
void Driver::for_column_tiles(const Reader& reader, const cpu::Segment& s, int64_t begin, int64_t end, F&& fn) const {
  const int64_t row = layout_.reduced.back().in, col = layout_.inner.in;
  const bool direct = !reader.converts && (col == 1 || s.width == 1);
  if (direct) {
    cpu::for_runs(layout_, begin, end,
                  [&](int64_t offset, int64_t first, int64_t n) { fn(data(s.in + offset), row, first, n); });
    return;
  }
  const size_t item = item_size(reader.dtype);
  const int64_t tile = std::max<int64_t>(kGatherTile / s.width / 128 * 128, 128);
  std::vector<char> buffer(static_cast<size_t>(std::min(tile, end - begin) * s.width) * item);
  for (int64_t start = begin; start < end; start += tile) {
    const int64_t stop = std::min(start + tile, end);
    cpu::for_runs(layout_, start, stop, [&](int64_t offset, int64_t first, int64_t n) {
      reader.gather(data(s.in + offset), {n, s.width, row, col},
                    buffer.data() + static_cast<size_t>((first - start) * s.width) * item);
    });
    fn(static_cast<const char*>(buffer.data()), s.width, start, stop - start);
  }
}

}  // namespace tenor::reduce
