// The Hopper kernel's instantiations: compiled once for each operand type (flash_sm90_bf16_cuda.cu,
// flash_sm90_f16_cuda.cu).
#pragma once

#include <utility>
#include <vector>

#include "src/cuda/launch.h"
#include "src/ops/attention/flash_sm90_kernel.cuh"
#include "src/ops/attention/flash_tiles.h"

namespace tenor::attn {

inline constexpr bool kFlashTurns[] = {true, true, false};  ///< for each of kFlashSm90Tiles

struct FlashLaunch {
  FlashMaps maps;
  FlashShape shape;
  Device device;
  int blocks;
};

/// `kNarrow`: tiles of 64 rows.
template <class T, int kTiles, FlashOptions kOptions, bool kNarrow, bool kGeneral = kOptions != FlashOptions::kNone>
using FlashConfigOf =
    FlashConfig<T, kFlashSm90Tiles[kTiles].dim, kFlashSm90Tiles[kTiles].keys[kGeneral],
                kNarrow ? 1 : kFlashSm90Tiles[kTiles].groups[kGeneral], kFlashTurns[kTiles] && !kNarrow, kOptions>;

template <class T, int kTiles, FlashOptions kOptions, bool kNarrow = false>
void launch_flash(const FlashLaunch& l) {
  using Config = FlashConfigOf<T, kTiles, kOptions, kNarrow>;
  const cuda::Grid grid{dim3(static_cast<unsigned>(l.blocks)), dim3(Config::kThreads), sizeof(FlashShared<Config>)};
  cuda::launch("attention", flash_sm90<Config>, grid, l.device, l.maps, l.shape);
}

/// `narrow` without options alone.
template <class T>
void launch_flash(const FlashLaunch& l, int tiles, FlashOptions options, bool narrow) {
  constexpr auto kNone = FlashOptions::kNone, kBias = FlashOptions::kBias, kAny = FlashOptions::kAny;
  constexpr void (*kNarrow[3])(const FlashLaunch&) = {
      &launch_flash<T, 0, kNone, true>, &launch_flash<T, 1, kNone, true>, &launch_flash<T, 2, kNone, true>};
  if (narrow) return kNarrow[tiles](l);
  constexpr void (*kLaunches[3][3])(const FlashLaunch&) = {
      {&launch_flash<T, 0, kNone>, &launch_flash<T, 0, kBias>, &launch_flash<T, 0, kAny>},
      {&launch_flash<T, 1, kNone>, &launch_flash<T, 1, kBias>, &launch_flash<T, 1, kAny>},
      {&launch_flash<T, 2, kNone>, &launch_flash<T, 2, kBias>, &launch_flash<T, 2, kAny>}};
  kLaunches[tiles][static_cast<int>(options)](l);
}

/// Of the kernel for these, bytes of local memory a thread: registers that were spilled.
template <class T, int kTiles, FlashOptions kOptions, bool kNarrow>
int spilled_bytes() {
  cudaFuncAttributes of{};
  const auto* kernel = reinterpret_cast<const void*>(&flash_sm90<FlashConfigOf<T, kTiles, kOptions, kNarrow>>);
  cuda::check(cudaFuncGetAttributes(&of, kernel), "attention");
  return static_cast<int>(of.localSizeBytes);
}
template <class T, int... kKernels>
std::vector<int> spilled_bytes(std::integer_sequence<int, kKernels...>) {
  return {spilled_bytes<T, kKernels / 4, static_cast<FlashOptions>(kKernels % 4 % 3), kKernels % 4 == 3>()...};
}

void launch_flash_bfloat16(const FlashLaunch& l, int tiles, FlashOptions options, bool narrow);
void launch_flash_float16(const FlashLaunch& l, int tiles, FlashOptions options, bool narrow);

}  // namespace tenor::attn
