// The Hopper convolution's instantiations, compiled once for each operand type.
#pragma once

#include <algorithm>

#include "src/ops/conv/sm90_conv.cuh"
#include "src/ops/conv/sm90_conv.h"

namespace tenor::conv {

struct ConvLaunch {
  ConvMaps<kMostProducts> maps;
  ConvBatch<kMostProducts> batch;
  LaunchPlace place;
};

inline constexpr int kConvCluster = 2;

template <class Config>
void launch_config(const ConvLaunch& launch) {
  const auto kernel = sm90_conv_kernel<Config>;
  const LaunchPlace& place = launch.place;
  cuda::Grid grid{Config::kCluster, kThreads, sizeof(ConvShared<Config>), Config::kCluster};
  static cuda::DeviceCount at_once;
  const int resident = at_once.of(place.device, [&] { return cuda::clusters_at_once(place.op, kernel, grid); });
  int64_t clusters = 0;
  for (int i = 0; i < launch.batch.count; ++i) clusters += tiles_of(launch.batch.shape[i]);
  grid.blocks = static_cast<unsigned>(std::min<int64_t>(clusters, resident) * Config::kCluster);
  if constexpr (Config::kProducts > 1) {
    cuda::launch(place.op, kernel, grid, place.device, launch.maps, launch.batch);
  } else {
    const ConvMaps<1> maps{{launch.maps.image[0]}, {launch.maps.weight[0]}};
    cuda::launch(place.op, kernel, grid, place.device, maps, ConvBatch<1>{1, {launch.batch.shape[0]}});
  }
}

template <class T, int kColumns>
void launch_columns(bool image, const ConvLaunch& launch) {
  if (launch.batch.count > 1)  // of images alone
    launch_config<ConvConfig<T, kColumns, kConvCluster, false, kMostProducts>>(launch);
  else if (image)
    launch_config<ConvConfig<T, kColumns, kConvCluster, false>>(launch);
  else
    launch_config<ConvConfig<T, kColumns, kConvCluster, true>>(launch);
}

template <class T>
void launch_conv(const ConvPlan& plan, const ConvLaunch& launch) {
  switch (plan.columns) {
    case 32:
      return launch_columns<T, 32>(plan.image, launch);
    case 64:
      return launch_columns<T, 64>(plan.image, launch);
    case 128:
      return launch_columns<T, 128>(plan.image, launch);
    default:
      return launch_columns<T, 256>(plan.image, launch);
  }
}

/// sm90_conv_bf16_cuda.cu and sm90_conv_f16_cuda.cu.
void launch_conv_bfloat16(const ConvPlan& plan, const ConvLaunch& launch);
void launch_conv_float16(const ConvPlan& plan, const ConvLaunch& launch);

}  // namespace tenor::conv
