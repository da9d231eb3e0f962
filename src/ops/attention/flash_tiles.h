// The tiles that flash_tensorcore's kernels are compiled for.
#pragma once

namespace tenor::attn {

/// Head sizes are padded to `dim`. A tile of keys holds what fits beside a row's accumulators; head and value size, the
/// options and the device's kernel alone decide, so that they and a row's own problem decide its bits.
struct FlashTiles {
  int dim;
  int keys[2];    ///< the second with mask, bias or softcap, beside whose tiles of bias fewer fit
  int groups[2];  ///< of 64 rows; the second likewise, since those need registers
};
inline constexpr FlashTiles kFlashSm90Tiles[] = {
    {64, {128, 128}, {3, 2}}, {128, {128, 128}, {2, 2}}, {256, {80, 64}, {2, 2}}};
inline constexpr FlashTiles kFlashSm80Tiles[] = {
    {64, {64, 64}, {2, 1}}, {128, {64, 64}, {2, 1}}, {256, {64, 64}, {1, 1}}};
inline constexpr FlashTiles kFlashTf32Tiles[] = {
    {32, {64, 64}, {1, 1}}, {64, {64, 64}, {2, 1}}, {128, {32, 32}, {1, 1}}};  ///< of float32

/// Bytes of shared memory that two streams of keys need at most.
inline constexpr int kFlashStreamsShared = 102 << 10;

}  // namespace tenor::attn
