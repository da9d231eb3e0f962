// The Hopper convolution's instantiations, compiled once for each operand type.
#pragma once

#include "src/ops/conv/sm90_conv.cuh"
#include "src/ops/conv/sm90_conv.h"

namespace tenor::conv {

struct ConvLaunch {
  ConvMaps<kMostProducts> maps;
  ConvBatch<kMostProducts> batch;
  cudaStream_t stream;
};

inline constexpr int kConvCluster = 2;

template <class Config>
cudaError_t launch_config(const ConvLaunch& launch) {
  const auto kernel = sm90_conv_kernel<Config>;
  constexpr int kShared = sizeof(ConvShared<Config>);
  if (cudaError_t e = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kShared);
      e != cudaSuccess)
    return e;
  cudaLaunchAttribute cluster{};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim = {Config::kCluster, 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = Config::kCluster;
  config.blockDim = kThreads;
  config.dynamicSmemBytes = kShared;
  config.stream = launch.stream;
  config.attrs = &cluster;
  config.numAttrs = 1;
  static const int resident = [&] {
    int count = 0;
    return cudaOccupancyMaxActiveClusters(&count, kernel, &config) == cudaSuccess && count > 0 ? count : 1;
  }();
  int64_t clusters = 0;
  for (int i = 0; i < launch.batch.count; ++i) clusters += tiles_of(launch.batch.shape[i]);
  config.gridDim = static_cast<unsigned>((clusters < resident ? clusters : resident) * Config::kCluster);
  if constexpr (Config::kProducts > 1) {
    return cudaLaunchKernelEx(&config, kernel, launch.maps, launch.batch);
  } else {
    const ConvMaps<1> maps{{launch.maps.image[0]}, {launch.maps.weight[0]}};
    return cudaLaunchKernelEx(&config, kernel, maps, ConvBatch<1>{1, {launch.batch.shape[0]}});
  }
}

template <class T, int kColumns>
cudaError_t launch_columns(bool image, const ConvLaunch& launch) {
  if (launch.batch.count > 1)  // of images alone
    return launch_config<ConvConfig<T, kColumns, kConvCluster, false, kMostProducts>>(launch);
  return image ? launch_config<ConvConfig<T, kColumns, kConvCluster, false>>(launch)
               : launch_config<ConvConfig<T, kColumns, kConvCluster, true>>(launch);
}

template <class T>
cudaError_t launch_conv(const ConvPlan& plan, const ConvLaunch& launch) {
  switch (plan.columns) {
    case 32:
      return launch_columns<T, 32>(plan.image, launch);
    case 64:
      return launch_columns<T, 64>(plan.image, launch);
    case 128:
      return launch_columns<T, 128>(plan.image, launch);
    case 256:
      return launch_columns<T, 256>(plan.image, launch);
    default:
      return cudaErrorInvalidValue;
  }
}

/// sm90_conv_bf16_cuda.cu and sm90_conv_f16_cuda.cu.
cudaError_t launch_conv_bfloat16(const ConvPlan& plan, const ConvLaunch& launch);
cudaError_t launch_conv_float16(const ConvPlan& plan, const ConvLaunch& launch);

}  // namespace tenor::conv
