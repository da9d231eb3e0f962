// The Hopper implicit GEMM of convolutions; sm90_conv.cuh says how it works. It asks that channels of a group are a
// multiple of 8 (in GatherSums those of grad too), that pixels, images and operands start at multiples of 16 bytes,
// that make_row_shape takes the problem, and for at most 1024 taps.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <vector>

#include "src/ops/conv/conv_gather.h"
#include "src/ops/conv/conv_launch.h"

namespace tenor::conv {

/// One way to compute a product.
struct ConvPlan {
  int columns = 128;   ///< of a tile: 32, 64, 128 or 256
  bool image = false;  ///< pixels come by im2col TMA, else by gathered copies
};

/// Whether im2col TMA can load its pixels.
bool sm90_conv_takes_image(const GatherProduct& p);
/// Its tensor map, `pixels` loaded at once; false where TMA's limits are exceeded.
bool map_image(CUtensorMap* map, const GatherProduct& p, int pixels);
/// All products of a direction, which are of one type and write different elements: by the plans expected to be
/// fastest, those that TMA loads in one launch. @throws CudaError where it does not take one
void sm90_conv_all(std::vector<GatherProduct> products, const LaunchPlace& place);

/// Sums over pixels: likewise. `columns` of a tile are channels of grad, and the pixels are dealt to `splits` ranges.
struct ConvWeightPlan {
  int columns = 128;
  int splits = 1;
  bool image = false;
};
bool sm90_conv_weight_takes_image(const GatherSums& p);
ConvWeightPlan sm90_conv_weight_choice(const GatherSums& p, Device device);
/// Bytes of workspace that a plan takes.
size_t sm90_conv_weight_workspace(const GatherSums& p, const ConvWeightPlan& plan);
void sm90_conv_weight(const GatherSums& p, const ConvWeightPlan& plan, void* workspace, const LaunchPlace& place);

}  // namespace tenor::conv
