// Tiles of strided memory as dense elements of another dtype, and back: what lets one kernel serve every layout.
#pragma once

#include "src/cpu/move.h"

namespace tenor::cpu {

/// rows x columns elements, strides in elements.
struct Tile {
  int64_t rows, columns, row_stride, column_stride;
};

/// Reads tiles of dtype `from` as dense rows of dtype `to`.
class Gather {
 public:
  Gather() : Gather(float32, float32) {}
  Gather(DType from, DType to);
  void operator()(const void* src, const Tile& tile, void* dst) const;

 private:
  Converter convert_;
  size_t item_, to_item_;
  bool converts_;
};

/// Writes dense rows of dtype `from` as tiles of dtype `to`.
class Scatter {
 public:
  Scatter() : Scatter(float32, float32) {}
  Scatter(DType from, DType to);
  void operator()(const void* src, void* dst, const Tile& tile) const;

 private:
  Converter convert_;
  size_t item_, to_item_;
  bool converts_;
};

}  // namespace tenor::cpu
