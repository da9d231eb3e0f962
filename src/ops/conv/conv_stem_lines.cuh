// The image of a stem, a convolution of stride 2 whose image has at most four channels, as tensor cores take it: two
// neighbouring columns, four places each, are one line of 16 bytes in shared memory. Output w meets lines w + lowest
// and on, whatever its place, and neighbouring outputs neighbouring lines.
#pragma once

#include "src/cuda/convert.cuh"
#include "src/ops/conv/conv_stem.h"

namespace tenor::conv {

struct StemImage {
  int channels, height, width;
  int64_t batch, row, pixel, channel;  ///< strides
  bool triples;  ///< three channels, pixels without gaps, an even width, rows at multiples of 4 bytes
  const void* data;
};

/// Columns `column`, which is even, and the next of a row of image n; zeros outside of it. Of `kTriples` there is no
/// branch, so that the loads of several lines are on their way at once.
template <bool kTriples>
__device__ __forceinline__ uint4 stem_line_of(const StemImage& s, int n, int row, int column) {
  const bool inside = static_cast<unsigned>(row) < static_cast<unsigned>(s.height) &&
                      static_cast<unsigned>(column) < static_cast<unsigned>(s.width);
  const uint16_t* const first = static_cast<const uint16_t*>(s.data) + n * s.batch + row * s.row;
  uint32_t words[4] = {0, 0, 0, 0};
  if constexpr (kTriples) {
    const uint32_t* const from = reinterpret_cast<const uint32_t*>(first + int64_t{3} * column);
    const uint32_t x = inside ? from[0] : 0, y = inside ? from[1] : 0, z = inside ? from[2] : 0;
    return {x, y & 0xffff, y >> 16 | z << 16, z >> 16};
  } else if (inside) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int at = column + i / 4, channel = i % 4;
      if (at < s.width && channel < s.channels)
        words[i / 2] |= static_cast<uint32_t>(first[at * s.pixel + channel * s.channel]) << 16 * (i % 2);
    }
  }
  return {words[0], words[1], words[2], words[3]};
}
__device__ __forceinline__ uint4 stem_line(const StemImage& s, int n, int row, int column) {
  return s.triples ? stem_line_of<true>(s, n, row, column) : stem_line_of<false>(s, n, row, column);
}

}  // namespace tenor::conv
