// What the two tensor-core kernels of the chunk form share: chunks and where they lie, tiles in shared memory.
#pragma once

#include "src/cuda/ptx/dependent_launch.cuh"
#include "src/cuda/ptx/mma.cuh"
#include "src/cuda/ptx/tma.cuh"
#include "src/cuda/ptx/wgmma.cuh"
#include "src/ops/gated_delta/gated_delta_device.cuh"

namespace tenor::delta {

namespace ptx = cuda::ptx;

inline constexpr int kChunk = 64;          // steps computed together
inline constexpr int kSquareBytes = 8192;  // of a tile of 64 x 64

/// What the first kernel leaves for the second, a chunk and value head each: slot * value_heads + head.
struct ChunkFactors {
  unsigned char attend[kSquareBytes], solve[kSquareBytes];  ///< tril(Q K^T), decayed and scaled, and (I + L)^-1 beta
  float weights[4][kChunk];  ///< of each step for K S, for Q S and for K in the update; then the state's, once
};

/// How TMA finds the operands and the result, [B, H, T, 64 columns at a time].
struct ChunkMaps {
  CUtensorMap query, key, value, output;
};

/// Chunks that sequences of `steps` steps in all may have: the slots of sequence n begin at (steps before it) / 64 + n,
/// which leaves each as many as it needs. Some stay empty.
__host__ __device__ inline int64_t chunk_slots(const DeviceSequences& s) {
  return s.starts.data ? s.steps / kChunk + s.count : (s.steps + kChunk - 1) / kChunk * s.count;
}
__device__ __forceinline__ int64_t first_slot(const DeviceSequences& s, int64_t n) {
  if (!s.starts.data) return (s.steps + kChunk - 1) / kChunk * n;
  return DeviceSequence::inside(cuda::offset_at(s.starts, n), 0, s.steps) / kChunk + n;
}
/// The sequence that a slot is of.
__device__ __forceinline__ int64_t sequence_of(const DeviceSequences& s, int64_t slot) {
  if (!s.starts.data) return slot / ((s.steps + kChunk - 1) / kChunk);
  int64_t low = 0, high = s.count - 1;  // the last one that begins at `slot` or before
  while (low < high) {
    const int64_t middle = (low + high + 1) / 2;
    if (first_slot(s, middle) <= slot)
      low = middle;
    else
      high = middle - 1;
  }
  return low;
}

/// Chunks [first, first + count) of the `each` of every sequence, which the kernels are launched for. Packed sequences
/// count as one, and are launched for whole. Slices follow one another on a stream, each first kernel beside the second
/// one of the slice before: that kernel lets it start, and its own last block ends after it, so that whoever waits for
/// a first kernel has waited for all before it.
struct ChunkSlice {
  unsigned first, count, each;
  __device__ __forceinline__ int64_t slot(int64_t i) const { return i / count * each + first + i % count; }
  __device__ __forceinline__ bool is_last() const { return first + count == each; }
};

/// Byte offset of 16-byte piece `piece` of row `row` in a tile of rows of 128 bytes, as TMA swizzles it: pieces of
/// eight rows in one column lie in different banks.
__device__ __forceinline__ uint32_t tile_offset(int row, int piece) { return row * 128 + ((piece ^ (row & 7)) << 4); }

__device__ __forceinline__ uint32_t pack_bf16(float low, float high) {
  uint32_t word;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
  return word;
}

/// Accumulators of a transposed 16 x 16 block, rounded: of lane 4g + t, x[n][0..1] is column g, rows 8n + 2t and 8n +
/// 2t + 1, x[n][2..3] column g + 8.
struct TurnedBlock {
  uint32_t words[4];
  __device__ __forceinline__ void round(const float (&x0)[4], const float (&x1)[4]) {
    words[0] = pack_bf16(x0[0], x0[1]), words[1] = pack_bf16(x0[2], x0[3]);
    words[2] = pack_bf16(x1[0], x1[1]), words[3] = pack_bf16(x1[2], x1[3]);
  }
  /// To a tile, from (row, piece) on.
  __device__ __forceinline__ void store(unsigned char* tile, int row, int piece) const {
    const int lane = threadIdx.x % 32;
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
                     ptx::shared_address(tile) + tile_offset(row + lane % 8 + lane / 16 * 8, piece + lane / 8 % 2)),
                 "r"(words[0]), "r"(words[1]), "r"(words[2]), "r"(words[3])
                 : "memory");
  }
};

}  // namespace tenor::delta
