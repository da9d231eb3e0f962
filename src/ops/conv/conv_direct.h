// The direct kernels' single-threaded parts, compiled once per instruction set (conv_rows_cpu.cpp,
// conv_channels_cpu.cpp), and the plans that conv_direct.cpp makes for them.
//
// By rows: the source rows that a band of output rows reads are widened into a scratch with zeros around them, split by
// their remainder modulo the stride, so that every tap reads neighbours; vectors run along a row. By channels: of a
// depthwise problem whose channels are innermost nothing is copied, and vectors run over channels.
#pragma once

#include <vector>

#include "src/ops/conv/conv_gemm.h"

namespace tenor::conv {

/// How a pass is cut into bands, and where in a band's scratch each tap reads.
struct RowPlan {
  int64_t band_rows = 0, band_width = 0;     ///< outputs of a band: rows (of one depth), and their columns
  int64_t least[kSpatial] = {};              ///< the smallest offset of any tap
  int64_t depth = 0, height = 0, width = 0;  ///< source rows and columns in a band's scratch
  int64_t phase = 0;                         ///< elements between the columns of one remainder and those of the next
  int64_t row = 0, channel = 0;              ///< elements between scratch rows, between channels
  std::vector<int64_t> taps;                 ///< where each tap reads, from the scratch's start of an output row
  int64_t row_step = 0;                      ///< from one output row's reads to the next one's
  /// Where the taps are rows of grid_width that read the same columns of scratch rows one behind the other: how many,
  /// and from one to the next (upwards in a data direction). Height 0: no such grid.
  int64_t grid_height = 0, grid_width = 0, grid_next = 0;
  int64_t bands(const Pass& pass) const {
    return pass.size[0] * pieces(pass.size[1], band_rows) * pieces(pass.size[2], band_width);
  }
};

/// What makes a pass too wide for a scratch: long spans of few taps. Then no plan has bands.
RowPlan plan_rows(const Pass& pass, int64_t channels, int64_t lanes);

/// One band of one image and group.
struct Band {
  int64_t image, group, depth, row, rows, col, cols;  ///< outputs: their depth, rows and columns
};
Band band_of(const RowPlan& plan, const Pass& pass, int64_t image, int64_t group, int64_t i);

/// A gradient's problem for the row kernel: the sums of output channels [out, out + outs) of a group.
struct RowGradient {
  const ConvProblem* problem;
  const Pass* pass;
  const RowPlan* plan;
  int64_t group, out, outs;
  void* sums;  ///< [outs][channels][taps] of the compute type
};

/// A depthwise problem by channels: rows [row, row + rows) of the outputs, counted over batch, depth and height.
struct ChannelRows {
  const TapProblem* problem;
  const Pass* pass;
  const void* weight;  ///< [taps][channels] of the compute type, and the bias [channels]
  int64_t row, rows;
};
struct ChannelGradient {
  const ConvProblem* problem;
  const Pass* pass;
  int64_t row, rows;
  void* sums;  ///< [taps][channels] of the compute type
};

}  // namespace tenor::conv

namespace tenor::cpu {

int64_t conv_lanes(DType compute);
/// A group's filter as [outputs in blocks of 4][channels][taps][4].
void conv_row_filter(const conv::TapProblem& p, const conv::Pass& pass, int64_t group, void* to);
/// `scratch`: plan.channel * channels elements of the compute type, and band_width more a block of outputs. Whether one
/// of its results is not a finite number.
bool conv_row_band(const conv::TapProblem& p, const conv::Pass& pass, const conv::RowPlan& plan, const conv::Band& band,
                   const void* filter, void* scratch);
void conv_row_gradient(const conv::RowGradient& g, void* scratch);
void conv_channel_rows(const conv::ChannelRows& rows);
void conv_channel_gradient(const conv::ChannelGradient& rows);

}  // namespace tenor::cpu
