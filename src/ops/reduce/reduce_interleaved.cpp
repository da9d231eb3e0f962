// Sequences whose rows lie side by side in memory (a transposed matrix, reduced whole): the blocks of neighbouring rows
// are reduced together, as columns.
#include "src/core/reduction_order.h"
#include "src/core/visit.h"
#include "src/ops/reduce/reduce_driver.h"
#include "tenor/device.h"

namespace tenor::reduce {
namespace {

constexpr int64_t kBlock = core::kReductionBlock;
constexpr int64_t kTile = 128;  // elements of each row split at a time
constexpr int64_t kAhead = 16;  // as many are fetched ahead
// Of every line, by one call. Memory gives runs of 256 bytes at a third of the rate of whole pages, of 1024 at two
// thirds; what is kept of a strip, at most as much as its lines, should not outgrow the L2 cache by much.
constexpr int64_t kStripBytes = 1024;

/// to[q * pitch + b] = from[b * rows + q] for b < blocks, q < rows.
template <int kRows, class U>
void split(const U* __restrict from, U* __restrict to, int64_t rows, int64_t blocks, int64_t pitch) {
  if (kRows) rows = kRows;
  for (int64_t q = 0; q < rows; ++q)
    for (int64_t b = 0; b < blocks; ++b) to[q * pitch + b] = from[b * rows + q];
}

/// The memory of a strip: `rows` planes of `length` lines of `blocks` elements. Line j of plane q is element j of row q
/// of every block.
struct Strip {
  int64_t rows, length, blocks;
};

/// Fills lines [begin, end) of every plane from lines `stride` elements apart.
template <class U>
void fill(const Strip& s, const U* from, int64_t stride, int64_t begin, int64_t end, U* to) {
  for (int64_t j = begin; j < end; ++j) {
    const U* line = from + j * stride;
    for (int64_t i = 0; i < s.rows * s.blocks; i += static_cast<int64_t>(64 / sizeof(U)))
      __builtin_prefetch(line + kAhead * stride + i);
    const int64_t pitch = s.length * s.blocks;
    if (s.rows == 2)
      split<2>(line, to + j * s.blocks, s.rows, s.blocks, pitch);
    else if (s.rows == 4)
      split<4>(line, to + j * s.blocks, s.rows, s.blocks, pitch);
    else
      split<0>(line, to + j * s.blocks, s.rows, s.blocks, pitch);
  }
}

}  // namespace

bool Driver::interleaved(const Reader& reader, int64_t first, int64_t last) const {
  if (!by_rows_ || reader.converts || layout_.reduced.size() != 2 || layout_.reduced[0].in != 1) return false;
  const auto [length, stride, unused] = layout_.reduced[1];
  if (stride <= 1 || (kBlock % length != 0 && length % kBlock != 0)) return false;
  const int64_t parts = std::max<int64_t>(1, length / kBlock);
  return first % parts == 0 && last % parts == 0 && last - first >= 8 * parts;
}

int64_t Driver::group_blocks(const Reader& reader, int64_t blocks) const {
  if (!interleaved(reader, 0, blocks)) return kGatherBlocks;
  const int64_t length = layout_.reduced[1].size, parts = std::max<int64_t>(1, length / kBlock);
  const int64_t strip = kStripBytes / item_ / std::max<int64_t>(1, kBlock / length);
  const int64_t share = blocks / parts / (4 * num_threads()) / 8 * 8;  // every thread finds work
  return std::max<int64_t>(8, std::min(strip, share)) * parts;
}

void Driver::interleaved_blocks(const Reader& reader, int64_t in, int64_t first, int64_t last, const void* shift,
                                double power, char* results, int64_t step) const {
  const Kernels& k = *reader.kernels;
  const int64_t length = layout_.reduced[1].size, stride = layout_.reduced[1].in;
  const int64_t parts = std::max<int64_t>(1, length / kBlock);  // blocks of a row
  const Strip s{std::max<int64_t>(1, kBlock / length), std::min(length, kBlock), (last - first) / parts};
  const auto item = static_cast<int64_t>(item_size(k.accumulator));
  thread_local Accumulators lanes, memory, shifts;
  void* acc = lanes.reserve(core::kReductionLanes * s.blocks);
  if (s.rows > 1) memory.reserve(s.rows * s.length * s.blocks * item_ / 8 + 1);
  if (shift) {
    char* all = static_cast<char*>(shifts.reserve(s.blocks));
    for (int64_t b = 0; b < s.blocks; ++b) std::memcpy(all + b * item, shift, static_cast<size_t>(item));
    shift = all;
  }
  for (int64_t part = 0; part < parts; ++part) {
    const char* from = data(in + first / parts * s.rows + part * kBlock * stride);
    k.start(acc, core::kReductionLanes * s.blocks);
    if (s.rows == 1)
      k.columns(from, stride, s.length, 0, s.blocks, shift, power, acc, s.blocks);
    else
      planes(reader, from, stride, s.rows, s.length, s.blocks, shift, power, static_cast<char*>(memory.reserve(0)),
             acc);
    k.finish(acc, s.rows * s.length, s.blocks, s.blocks);
    for (int64_t b = 0; b < s.blocks; ++b)
      std::memcpy(results + (b * parts + part) * step, static_cast<char*>(acc) + b * item, static_cast<size_t>(item));
  }
}

void Driver::planes(const Reader& reader, const char* from, int64_t stride, int64_t rows, int64_t length,
                    int64_t blocks, const void* shift, double power, char* memory, void* acc) const {
  const Strip s{rows, length, blocks};
  const auto columns = [&](int64_t row, int64_t begin, int64_t end) {
    reader.kernels->columns(memory + (row * length + begin) * blocks * item_, blocks, end - begin, row * length + begin,
                            blocks, shift, power, acc, blocks);
  };
  for (int64_t j = 0; j < length; j += kTile) {
    const int64_t end = std::min(j + kTile, length);
    core::visit_size(reader.dtype, [&]<class U>() {
      fill<U>(s, reinterpret_cast<const U*>(from), stride, j, end, reinterpret_cast<U*>(memory));
    });
    columns(0, j, end);
  }
  for (int64_t row = 1; row < rows; ++row) columns(row, 0, length);
}

}  // namespace tenor::reduce
