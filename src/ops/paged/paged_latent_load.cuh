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
                     kLatentHeads = kLatentLaunchHeads, kLatentKeys = 64, kLatentBlocks = 2;
inline constexpr int kLatentSlabs = (kLatentRank + kLatentTail) / 64, kTailSlab = kLatentSlabs - 1;  // of 64 columns
inline constexpr int kSlabBytes = 64 * 128;
inline constexpr int kLatentPieces = 3;  // of a block: the columns of each warpgroup's values, the position part
inline constexpr int kLatentThreads = 384, kLatentWorkers = 256;
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
/// The group's weights of its block are in shared memory, for the other group.
__device__ __forceinline__ void weights_ready(int group) {
  asm volatile("bar.arrive %0, %1;" ::"r"(2 + group), "n"(kLatentWorkers) : "memory");
}
__device__ __forceinline__ void wait_for_weights(int group) {
  asm volatile("bar.sync %0, %1;" ::"r"(2 + group), "n"(kLatentWorkers) : "memory");
}
/// Every warp of the group has cleared its lines, before the group's own product reads them.
__device__ __forceinline__ void lines_cleared(int group) {
  asm volatile("bar.sync %0, %1;" ::"r"(4 + group), "n"(kLatentWorkers / 2) : "memory");
}
__device__ __forceinline__ void latent_sync() { asm volatile("bar.sync 1, %0;" ::"n"(kLatentWorkers) : "memory"); }

/// first_item[i] = items of the rows before i.
template <int kPair>
__device__ void count_latent_items(const Decode& p, LatentShared& shared) {
  const int row = static_cast<int>(threadIdx.x);
  int items = 0;
  if (row < p.rows) {
    const OwnSplits own = own_splits(visible(p, row), length_of_splits(p, own_keys(p, row)));
    items = (own.last - own.first) * (p.chunks / kPair);
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
template <int kPair>
__device__ __forceinline__ LatentPlace latent_item_at(const Decode& p, const int* first_item, int index) {
  int low = 0, high = p.rows;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (first_item[middle] <= index ? low : high) = middle;
  }
  const Range seen = visible(p, low);
  const int length = length_of_splits(p, own_keys(p, low)), local = index - first_item[low], chunks = p.chunks / kPair,
            split = local / chunks;
  LatentPlace at;
  at.sequence = p.ids[low];
  at.item = {low,
             (local - split * chunks) * kPair + (kPair > 1 ? static_cast<int>(ptx::cluster_rank()) : 0),
             split,
             own_splits(seen, length).last,
             split * length,
             min(seen.end, (split + 1) * length)};
  return at;
}

/// The loading warp's pages of an item: lane l holds that of keys from `first` + l * box, and what comes next is read
/// while these are in use.
struct LatentPages {
  int held, page, next;
};

/// One piece of a block: slabs [first, first + count), a box of p.box keys by 64 columns a lane.
template <int kPair>
__device__ __forceinline__ void load_piece(const Decode& p, const LatentMaps& maps, LatentShared& shared, int block,
                                           int first, int count, int key, const LatentPages& pages) {
  const int lane = threadIdx.x & 31, boxes = kLatentKeys / p.box;
  if (lane < count) ptx::mbarrier_arrive_expect(&shared.full[block][first + lane], kSlabBytes);
  __syncwarp();
  const int slab = first + lane / boxes, box = lane - lane / boxes * boxes, at = key + box * p.box;
  const int from = __shfl_sync(~0u, pages.page, (at - pages.held) / p.box & 31);
  if (lane >= count * boxes) return;
  const bool tail = slab == kTailSlab;
  char* to = shared.keys[block] + slab * kSlabBytes + box * p.box * 128;
  const CUtensorMap* map = tail ? &maps.keys_tail : &maps.keys;
  if constexpr (kPair == 1) {
    ptx::tma_load_4d(to, map, tail ? 0 : slab * 64, at % p.page_size, 0, from, &shared.full[block][slab]);
  } else if (((slab + block) & 1) == ptx::cluster_rank()) {
    ptx::tma_load_4d_multicast(to, map, tail ? 0 : slab * 64, at % p.page_size, 0, from, &shared.full[block][slab], 3);
  }
}

/// A block, in the order in which its pieces fall empty and are scored.
template <int kPair>
__device__ __forceinline__ void load_block(const Decode& p, const LatentMaps& maps, LatentShared& shared, int count,
                                           int key, const LatentPages& pages) {
  const int block = count & 1, phase = count >> 1 & 1;
#pragma unroll
  for (int i = 0; i < kLatentPieces; ++i) {
    const int piece = i == 2 ? 2 : i ^ block;
    ptx::mbarrier_wait(&shared.empty[block][piece], phase ^ 1);
    load_piece<kPair>(p, maps, shared, block, piece * 4, piece == 2 ? 1 : 4, key, pages);
  }
}

__device__ __forceinline__ void load_latent_query(const LatentMaps& maps, LatentShared& shared,
                                                  const LatentItem& item) {
  const int lane = threadIdx.x & 31;
  if (lane == 0) ptx::mbarrier_arrive_expect(&shared.query_full, kLatentSlabs * kSlabBytes);
  __syncwarp();
  if (lane < kLatentSlabs)
    ptx::tma_load_4d(shared.query + lane * kSlabBytes, lane == kTailSlab ? &maps.query_tail : &maps.query,
                     lane == kTailSlab ? 0 : lane * 64, item.chunk * kLatentHeads, item.row, 0, &shared.query_full);
}

/// The loading warp. What an item needs is read while the one before is on its way.
template <int kPair>
__device__ void load_latent(const Decode& p, const LatentMaps& maps, LatentShared& shared) {
  const int lane = threadIdx.x & 31, items = shared.first_item[p.rows];
  int index = static_cast<int>(blockIdx.x) / kPair, count = 0, block = 0;
  if (index >= items) return;
  const auto page_of = [&](const LatentPlace& at, int from) {
    const int key = from + lane * p.box;
    return key < at.item.end ? p.tables[at.sequence * p.table_stride + key / p.page_size]
                             : p.pages;  // one that is not there arrives as zeros
  };
  LatentPlace next = latent_item_at<kPair>(p, shared.first_item, index);
  LatentPages pages{0, 0, page_of(next, next.item.begin)};
  for (; index < items; ++count) {
    const LatentPlace now = next;
    const int slot = count & 1;
    ptx::mbarrier_wait(&shared.item_empty[slot], (count >> 1 & 1) ^ 1);
    if (lane == 0) {
      shared.items[slot] = now.item;
      ptx::mbarrier_arrive(&shared.item_full[slot]);
    }
    index += gridDim.x / kPair;
    ptx::mbarrier_wait(&shared.query_empty, (count & 1) ^ 1);
    load_latent_query(maps, shared, now.item);
    pages.held = now.item.begin - 32 * p.box;
    for (int key = now.item.begin; key < now.item.end; key += kLatentKeys, ++block) {
      if (key >= pages.held + 32 * p.box) {
        pages.held = key, pages.page = pages.next;
        const bool further = now.item.end > key + 32 * p.box;
        if (!further && index < items) next = latent_item_at<kPair>(p, shared.first_item, index);
        pages.next = further ? page_of(now, key + 32 * p.box) : index < items ? page_of(next, next.item.begin) : 0;
      }
      load_block<kPair>(p, maps, shared, block, key, pages);
    }
  }
}

}  // namespace tenor::cuda::paged
