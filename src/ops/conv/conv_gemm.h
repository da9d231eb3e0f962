// The implicit GEMM's single-threaded parts, compiled once per instruction set (conv_gemm_cpu.cpp,
// conv_panels_cpu.cpp), and what conv_gemm.cpp needs to know to cut a problem into tiles for them.
//
// A convolution is a product with the matrix of patches: row (n, q) holds, for every tap and channel, what output q of
// image n reads there. The matrix is never formed: pieces that fit the caches are gathered as a tile needs them,
// widened to the compute type, with zeros on padding.
#pragma once

#include <span>

#include "src/ops/conv/conv_taps.h"

namespace tenor::conv {

/// The patches of one group: [batch * pass.pixels(), taps * channels].
struct Patches {
  DType dtype;
  Image image;  ///< data: the group's first channel
  int64_t size[kSpatial], channels;
  const Pass* pass;
  int64_t rows(int64_t batch) const { return batch * pass->pixels(); }
  int64_t cols() const { return static_cast<int64_t>(pass->taps.size()) * channels; }
};

/// The register tile [rows, cols] and the length of a packed slice of what is summed over.
struct GemmShape {
  int64_t rows, cols, depth;
  int64_t pitch;  ///< between packed rows
};

/// Which operand runs along the vectors of a register tile: the filter's outputs, or the image's pixels.
enum class Along : uint8_t { kOutputs, kPixels };

/// Rows [row, row + rows) of patches and outputs [col, col + cols) of a group. Several passes whose patches are the
/// same are joint: their outputs are o * passes + pass.
struct ForwardTile {
  const TapProblem* problem;
  std::span<const Pass> joint;
  int64_t group, row, rows, col, cols;
  const void* weight;  ///< the group's filter, packed
};

/// What is gathered for a tile of a filter's gradient: outputs [out, out + outs), columns [col, col + cols) of the
/// patches, summed over rows [row, row + rows) into sums[o * pitch + k], of the compute type.
struct WeightTile {
  Patches patches, grads;
  Along along;  ///< kOutputs: the vectors run over outputs; kPixels: over columns of the patches
  int64_t out, outs, col, cols, row, rows;
  void* sums;
  int64_t pitch;
};

inline int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }
inline int64_t pieces(int64_t n, int64_t size) { return (n + size - 1) / size; }

/// Elements of a packed filter of `outs` outputs and `cols` columns.
int64_t packed_filter_elements(const GemmShape& shape, Along along, int64_t outs, int64_t cols);
/// Elements of workspace for a tile of that many register rows and columns.
int64_t workspace_elements(const GemmShape& shape, int64_t rows, int64_t cols);
/// Those of a tile along pixels, whose patches have `cols` columns.
int64_t pixel_workspace_elements(const GemmShape& shape, int64_t pixels, int64_t cols);

/// Whether the passes of a data direction read the same patches: each is one tap, and that at the same place, as where
/// the stride is as long as the kernel. Then an image with rows is written by one product, not a pass at a time.
bool are_joint(std::span<const Pass> passes);

Patches patches_of(const TapProblem& p, const Pass& pass, int64_t group);

}  // namespace tenor::conv

namespace tenor::cpu {

conv::GemmShape conv_gemm_shape(DType compute);
/// The filter of outputs [first, first + count) of a group; `first` and, but for the last, `count` are whole tiles.
void conv_pack_filter(const conv::TapProblem& p, const conv::Pass& pass, int64_t group, int64_t first, int64_t count,
                      void* to);
/// The same for tiles along pixels.
void conv_pack_filter_rows(const conv::TapProblem& p, std::span<const conv::Pass> joint, int64_t group, int64_t first,
                           int64_t count, void* to);
/// Along outputs. Whether one of its results is not a finite number.
bool conv_forward_tile(const conv::ForwardTile& tile, void* workspace);
/// Along pixels.
bool conv_pixel_tile(const conv::ForwardTile& tile, void* workspace);
void conv_weight_tile(const conv::WeightTile& tile, void* workspace);

}  // namespace tenor::cpu
