// The items of the latent kernel and the warp that loads them (paged_latent.cuh).
#pragma once

#include <cuda.h>

#include "src/cuda/block_scan.cuh"
#include "src/cuda/ptx/mbarrier.cuh"
#include "src/cuda/ptx/tma.cuh"
#include "src/cuda/ptx/wgmma.cuh"
#include "src/ops/paged/paged_launch.h"

namespace tenor::cuda::paged {

inline constexpr int kLatentRank = kLatentLaunchRank, kLatentTail = kLatentLaunchTail,
                     kLatentHeads = kLatentLaunchHeads, kLatentKeys = kLatentStep, kLatentBlocks = 2;
inline constexpr int kLatentSlabs = (kLatentRank + kLatentTail) / 64, kTailSlab = kLatentSlabs - 1;  // of 64 columns
inline constexpr int kSlabBytes = 64 * 128;
inline constexpr int kLatentPieces = 3;  // of a block: the columns of each warpgroup's values, the position part
inline constexpr int kLatentThreads = 384, kLatentWorkers = 256, kLatentLoaders = 4, kTailWarp = 3;  // warps that load
inline constexpr int kLatentRows = kLatentLaunchRows;

/// One item, as the loading warp tells it to the others.
struct LatentItem {
  int row, chunk;
  int part;        // number of the split among the row's
  int parts;       // splits that the row has
  int begin, end;  // keys
};

struct LatentShared {
  alignas(1024) char query[kLatentSlabs * kSlabBytes];
  alignas(1024) char keys[kLatentBlocks][kLatentSlabs * kSlabBytes];
  uint64_t full[kLatentBlocks][kLatentSlabs], empty[kLatentBlocks][kLatentPieces];
  uint64_t query_full, query_empty, item_full[2], item_empty[2];
  uint64_t weights[2], sums;  ///< a group's weights of its block, and an item's sums, are there for the other
  LatentItem items[2];
  float top[2][kLatentHeads];
  float sum[2][2][kLatentHeads];  ///< of an item's groups; items take turns, as one group may be an item ahead
  int first_item[kLatentRows + 1];
  int scan[kLatentThreads / 32];
};
static_assert(sizeof(LatentShared) <= 232448);

/// The library's name of a toolkit's 16-bit float.
template <class T>
using Stored = std::conditional_t<std::is_same_v<T, __nv_bfloat16>, BFloat16, Float16>;
// Barriers by constant numbers: with one in a register a kernel counts as using all sixteen.
/// The warps of a group meet.
__device__ __forceinline__ void group_sync(int group) {
  if (group == 0)
    asm volatile("bar.sync 4, %0;" ::"n"(kLatentWorkers / 2) : "memory");
  else
    asm volatile("bar.sync 5, %0;" ::"n"(kLatentWorkers / 2) : "memory");
}

/// first_item[i] = items of the rows before i.
__device__ inline void count_latent_items(const Decode& p, LatentShared& shared) {
  const int row = static_cast<int>(threadIdx.x);
  int items = 0;
  if (row < p.rows) {
    const OwnSplits own = own_splits(visible(p, row), length_of_splits(p, own_keys(p, row)));
    items = (own.last - own.first) * p.chunks;
  }
  const int prefix = block_scan(items, shared.scan);
  if (row < p.rows) shared.first_item[row + 1] = prefix;
  if (row == 0) shared.first_item[0] = 0;
  __syncthreads();
}

struct LatentPlace {
  LatentItem item;
  int sequence;
};
__device__ __forceinline__ LatentPlace latent_item_at(const Decode& p, const int* first_item, int index) {
  int low = 0, high = p.rows;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (first_item[middle] <= index ? low : high) = middle;
  }
  const Range seen = visible(p, low);
  const int length = length_of_splits(p, own_keys(p, low)), local = index - first_item[low], split = local / p.chunks,
            begin = split * length;
  return {{low, local - split * p.chunks, split, own_splits(seen, length).last, begin,
           begin + min(seen.end - begin, length)},
          p.ids[low]};
}

/// Page and row of a box of keys.
struct LatentPage {
  int page, row;
};
/// The loading warp's pages of an item: lane l holds that of keys from `held` + l * box, and what comes next is read
/// while these are in use.
struct LatentPages {
  int held;
  LatentPage now, next;
};

/// One slab of a block: a box of keys a lane, `to_box` bytes from the slab on. A warp issues its lanes' loads one after
/// the other, which takes longer than memory does where a warp has several slabs; so each loading warp has its own.
__device__ __forceinline__ void load_slab(const LatentMaps& maps, LatentShared& shared, int block, int slab, int boxes,
                                          int to_box, const LatentPage& from) {
  const int lane = threadIdx.x & 31;
  uint64_t* full = &shared.full[block][slab];
  if (lane == 0) ptx::mbarrier_arrive_expect(full, kSlabBytes);
  __syncwarp();
  if (lane >= boxes) return;
  const bool tail = slab == kTailSlab;
  const int column = tail ? 0 : slab * 64;
  char* to = shared.keys[block] + slab * kSlabBytes + to_box;
  const CUtensorMap* map = tail ? &maps.keys_tail : &maps.keys;
  ptx::tma_load_4d(to, map, column, from.row, 0, from.page, full);
}

/// A loading warp's slabs of a block, in the order in which its pieces fall empty and are scored.
__device__ __forceinline__ void load_block(const LatentMaps& maps, LatentShared& shared, int count, int boxes,
                                           int to_box, const LatentPage& from) {
  const int block = count & 1, warp = threadIdx.x >> 5;
  const uint32_t phase = (count >> 1 & 1) ^ 1;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int piece = i ^ block;
    ptx::mbarrier_wait(&shared.empty[block][piece], phase);
    load_slab(maps, shared, block, piece * 4 + warp, boxes, to_box, from);
  }
  if (warp != kTailWarp) return;
  ptx::mbarrier_wait(&shared.empty[block][2], phase);
  load_slab(maps, shared, block, kTailSlab, boxes, to_box, from);
}

/// A loading warp's slabs of an item's queries.
__device__ __forceinline__ void load_latent_query(const LatentMaps& maps, LatentShared& shared,
                                                  const LatentItem& item) {
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  if (threadIdx.x == 0) ptx::mbarrier_arrive_expect(&shared.query_full, kLatentSlabs * kSlabBytes);
  if (lane != 0) return;
  for (int slab = warp; slab < kLatentSlabs; slab += kLatentLoaders) {
    const bool tail = slab == kTailSlab;
    ptx::tma_load_4d(shared.query + slab * kSlabBytes, tail ? &maps.query_tail : &maps.query, tail ? 0 : slab * 64,
                     item.chunk * kLatentHeads, item.row, 0, &shared.query_full);
  }
}

/// A loading warp. What an item needs is read while the one before is on its way.
__device__ void load_latent(const Decode& p, const LatentMaps& maps, LatentShared& shared) {
  const int lane = threadIdx.x & 31, items = shared.first_item[p.rows], shift = __ffs(p.box) - 1,
            boxes = kLatentKeys >> shift, window = 32 << shift, my_box = lane & (boxes - 1);
  int index = static_cast<int>(blockIdx.x), count = 0, block = 0;
  if (index >= items) return;
  const auto page_of = [&](const LatentPlace& at, int from) {
    const int key = from + (lane << shift), number = key / p.page_size;
    if (key >= at.item.end) return LatentPage{p.pages, 0};  // one that is not there arrives as zeros
    return LatentPage{p.tables[at.sequence * p.table_stride + number], key - number * p.page_size};
  };
  LatentPlace next = latent_item_at(p, shared.first_item, index);
  LatentPages pages{0, {}, page_of(next, next.item.begin)};
  for (; index < items; ++count) {
    const LatentPlace now = next;
    const int slot = count & 1;
    if (threadIdx.x < 32) {
      ptx::mbarrier_wait(&shared.item_empty[slot], (count >> 1 & 1) ^ 1);
      if (lane == 0) {
        shared.items[slot] = now.item;
        ptx::mbarrier_arrive(&shared.item_full[slot]);
      }
    }
    index += gridDim.x;
    ptx::mbarrier_wait(&shared.query_empty, (count & 1) ^ 1);
    load_latent_query(maps, shared, now.item);
    pages.held = now.item.begin - window;
    for (int key = now.item.begin; key < now.item.end; key += kLatentKeys, ++block) {
      if (key >= pages.held + window) {
        pages.held = key, pages.now = pages.next;
        const bool further = now.item.end > key + window;
        if (!further && index < items) next = latent_item_at(p, shared.first_item, index);
        if (further || index < items)
          pages.next = further ? page_of(now, key + window) : page_of(next, next.item.begin);
      }
      const int at = ((key - pages.held) >> shift) + my_box;
      const LatentPage from{__shfl_sync(~0u, pages.now.page, at), __shfl_sync(~0u, pages.now.row, at)};
      load_block(maps, shared, block, boxes, my_box * (128 << shift), from);
    }
  }
}

}  // namespace tenor::cuda::paged
