#include <algorithm>
#include <cmath>
#include <iterator>

#include "src/cuda/gemm/sm90_gemm.h"
#include "src/cuda/gemm/sm90_gemm_launch.cuh"

namespace tenor::cuda::gemm {
namespace {

using EncodeTiled = CUresult (*)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*,
                                 const cuuint64_t*, const cuuint32_t*, const cuuint32_t*, CUtensorMapInterleave,
                                 CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

/// The driver's function, found at run time so that the library loads where there is no driver.
EncodeTiled encode_tiled() {
  static const EncodeTiled found = [] {
    void* entry = nullptr;
    cudaDriverEntryPointQueryResult result;
    const cudaError_t error =
        cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000, cudaEnableDefault, &result);
    return error == cudaSuccess && result == cudaDriverEntryPointSuccess ? reinterpret_cast<EncodeTiled>(entry)
                                                                         : nullptr;
  }();
  return found;
}

/// A batch of row-major matrices: what a tensor map describes.
struct MapSource {
  const void* data;
  int rows, columns;
  int64_t stride;
  const int (&batch)[2];
  const int64_t (&batch_stride)[2];
};

/// Reads or writes it in boxes of box_rows x box_columns (64, or 32), swizzled by the box's line: 128 or 64 bytes.
bool make_map(CUtensorMap* map, const MapSource& x, bool bfloat16, int box_rows, int box_columns) {
  const EncodeTiled encode = encode_tiled();
  if (!encode) return false;
  // The strides of dims of size 1 carry no meaning, but the driver checks them.
  const cuuint64_t line = (static_cast<cuuint64_t>(x.columns) * 2 + 15) / 16 * 16;
  cuuint64_t sizes[4] = {static_cast<cuuint64_t>(x.columns), static_cast<cuuint64_t>(x.rows), 1, 1};
  cuuint64_t strides[3] = {x.rows == 1 ? line : static_cast<cuuint64_t>(x.stride) * 2, line, line};
  for (int d = 0; d < 2; ++d) {
    if (x.batch[d] == 1 || x.batch_stride[d] == 0) continue;  // shared: its coordinate stays 0
    sizes[2 + d] = static_cast<cuuint64_t>(x.batch[d]), strides[1 + d] = static_cast<cuuint64_t>(x.batch_stride[d]) * 2;
  }
  const cuuint32_t box[] = {static_cast<cuuint32_t>(box_columns), static_cast<cuuint32_t>(box_rows), 1, 1},
                   steps[] = {1, 1, 1, 1};
  return encode(map, bfloat16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 4,
                const_cast<void*>(x.data), sizes, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                box_columns == 64 ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_64B,
                CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

int multiprocessors() {
  int device = 0, count = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device);
  return count;
}

bool aligned(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }

/// Whether TMA can store C: it clips a row at multiples of 16 bytes only.
bool tma_stores(const GemmProblem& p) {
  return !p.float_result && p.column_c == 1 && aligned(p.c) && p.n % 8 == 0 && (p.m == 1 || p.stride_c % 8 == 0) &&
         p.batch_c[0] % 8 == 0 && p.batch_c[1] % 8 == 0;
}

int ceil_div(int a, int b) { return (a + b - 1) / b; }

GemmShape shape_of(const GemmProblem& p, const TileShape& tile) {
  GemmShape s{};
  s.m = p.m, s.n = p.n, s.k = p.k;
  s.tiles_m = ceil_div(p.m, kTileM * tile.cluster_m), s.tiles_n = ceil_div(p.n, tile.columns * tile.cluster_n);
  for (int d = 0; d < 2; ++d) {
    s.batch[d] = p.batch[d], s.batch_c[d] = p.batch_c[d];
    s.shared_a[d] = p.batch_a[d] == 0, s.shared_b[d] = p.batch_b[d] == 0;
  }
  s.tma_store = tma_stores(p), s.float_result = p.float_result, s.bias_float = p.bias_float;
  s.c = p.c, s.stride_c = p.stride_c, s.column_c = p.column_c;
  s.bias = p.bias, s.bias_row = p.bias_row, s.bias_column = p.bias_column;
  return s;
}

bool make_maps(GemmLaunch& launch, const GemmProblem& p, const TileShape& tile) {
  const MapSource a{p.a, p.m, p.k, p.stride_a, p.batch, p.batch_a};
  const MapSource b{p.b, p.b_outer ? p.k : p.n, p.b_outer ? p.n : p.k, p.stride_b, p.batch, p.batch_b};
  const MapSource c{p.c, p.m, p.n, p.stride_c, p.batch, p.batch_c};
  const int share_b = (p.b_outer ? kTileK : tile.columns) / tile.cluster_m;
  if (!make_map(&launch.a, a, p.bfloat16, kTileM / tile.cluster_n, kTileK) ||
      !make_map(&launch.b, b, p.bfloat16, share_b, 64))
    return false;
  return !launch.shape.tma_store || make_map(&launch.c, c, p.bfloat16, 64, tile.columns % 64 == 0 ? 64 : 32);
}

/// Clock cycles that a tile would need, roughly: waves of clusters, each step of k bound by the tensor cores (4 cycles
/// a column) or by what its blocks read from L2 (32 bytes a cycle and multiprocessor, when all of them read).
double cost_of(const GemmProblem& p, const TileShape& t, int processors) {
  const int blocks = t.cluster_m * t.cluster_n, slots = std::max(1, processors / blocks - (blocks > 2));
  const double clusters =
      double(ceil_div(p.m, kTileM * t.cluster_m)) * ceil_div(p.n, t.columns * t.cluster_n) * p.batch[0] * p.batch[1];
  const double waves = std::ceil(clusters / slots), active = std::min<double>(clusters, slots) * blocks / processors;
  const double step =
      std::max(4.0 * t.columns, 4.0 * (double(kTileM) / t.cluster_n + double(t.columns) / t.cluster_m) * active);
  const double store = tma_stores(p) ? 1500 : 1500 + 40.0 * t.columns;
  return waves * (ceil_div(p.k, kTileK) * step + store);
}

}  // namespace

std::string sm90_gemm_why_not(const GemmProblem& p) {
  if (p.m < 1 || p.n < 1 || p.k < 1 || p.batch[0] < 1 || p.batch[1] < 1) return "it has an empty dim";
  if (!aligned(p.a) || !aligned(p.b)) return "an operand does not start at a multiple of 16 bytes";
  if ((p.m > 1 && p.stride_a % 8) || ((p.b_outer ? p.k : p.n) > 1 && p.stride_b % 8))
    return "a row stride is no multiple of 8 elements";
  if (p.batch_a[0] % 8 || p.batch_a[1] % 8 || p.batch_b[0] % 8 || p.batch_b[1] % 8)
    return "a batch stride is no multiple of 8 elements";
  if (double(ceil_div(p.m, kTileM)) * ceil_div(p.n, 64) * p.batch[0] * p.batch[1] > INT32_MAX)
    return "it has more than 2^31 tiles";
  return {};
}

int sm90_gemm_tiles(bool b_outer, const TileShape** tiles) {
  *tiles = b_outer ? kOuterTiles : kInnerTiles;
  return static_cast<int>(b_outer ? std::size(kOuterTiles) : std::size(kInnerTiles));
}

int sm90_gemm_choice(const GemmProblem& p) {
  const TileShape* tiles;
  const int count = sm90_gemm_tiles(p.b_outer, &tiles), processors = multiprocessors();
  int best = 0;
  for (int i = 1; i < count; ++i)
    if (cost_of(p, tiles[i], processors) < cost_of(p, tiles[best], processors)) best = i;
  return best;
}

cudaError_t sm90_gemm_with(const GemmProblem& p, int tile, cudaStream_t stream) {
  const TileShape* tiles;
  sm90_gemm_tiles(p.b_outer, &tiles);
  GemmLaunch launch{};
  launch.shape = shape_of(p, tiles[tile]);
  if (!make_maps(launch, p, tiles[tile])) return cudaErrorInvalidValue;
  launch.clusters = launch.shape.tiles_m * launch.shape.tiles_n * p.batch[0] * p.batch[1];
  launch.stream = stream;
  return p.bfloat16 ? launch_bfloat16(p.b_outer, tile, launch) : launch_float16(p.b_outer, tile, launch);
}

cudaError_t sm90_gemm(const GemmProblem& p, cudaStream_t stream) {
  return sm90_gemm_with(p, sm90_gemm_choice(p), stream);
}

}  // namespace tenor::cuda::gemm
