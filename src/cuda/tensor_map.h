// Tensor maps: how TMA (ptx/tma.cuh) finds a box of a tensor of up to four dims.
#pragma once

#include <cuda.h>

#include <cstdint>

namespace tenor::cuda {

using EncodeTiled = CUresult (*)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*,
                                 const cuuint64_t*, const cuuint32_t*, const cuuint32_t*, CUtensorMapInterleave,
                                 CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

/// The driver's function, found at run time so that the library loads where there is no driver; null there.
EncodeTiled encode_tiled();

/// A tensor, innermost dim first and contiguous. The strides of dims of size 1 do not count.
struct MapTensor {
  const void* data;      ///< aligned to 16 bytes
  bool bfloat16;         ///< else float16
  int64_t size[4];       ///< at least 1, below 2^32
  int64_t stride[3];     ///< of the outer dims in elements: positive multiples of 16 bytes
  bool float32 = false;  ///< instead of either
};

/// What is moved at once.
struct MapBox {
  int lines[2];          ///< along the second and third dim
  int columns = 64;      ///< elements of a line: swizzled ones of two bytes 64 or 32, by 128 or 64 bytes; else to 256
  int fetch = 256;       ///< bytes, 128 or 256, that L2 fetches around what is read
  bool swizzled = true;  ///< else lines lie as they are
};

/// Pixels of images of two-byte elements as im2col TMA walks them (cuTensorMapEncodeIm2col), innermost dim first: from
/// a corner of each image on, by steps, the last spatial dim first, then the next image.
struct MapImage {
  const void* data;                 ///< aligned to 16 bytes
  bool bfloat16;                    ///< else float16
  int dims;                         ///< spatial: 2 or 3
  int64_t channels;                 ///< contiguous
  int64_t size[3], batch;           ///< spatial sizes, innermost first
  int64_t stride[3], batch_stride;  ///< elements: positive multiples of 8
  int lower[3], upper[3];           ///< base positions are lower .. size - 1 + upper
  int step[3];                      ///< 1 to 8
  int pixels;                       ///< moved at once, 64 channels each, swizzled by 128 bytes
};

/// Elements outside of x arrive as zeros and are not stored. False where the driver declines.
bool make_line_map(CUtensorMap* map, const MapTensor& x, const MapBox& box);

/// False where the corners or steps exceed what TMA can do, or the driver declines.
bool make_image_map(CUtensorMap* map, const MapImage& x);

}  // namespace tenor::cuda
