#include <algorithm>
#include <atomic>
#include <cmath>
#include <iterator>
#include <span>

#include "src/cuda/gemm/sm90_gemm.h"
#include "src/cuda/gemm/sm90_gemm_launch.cuh"
#include "src/cuda/gemm/sm90_gemm_map.h"
#include "src/cuda/gemm/sm90_rows.h"

namespace tenor::cuda::gemm {
namespace {

bool aligned(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }

/// Whether TMA can store C: it clips a row at multiples of 16 bytes only.
bool tma_stores(const GemmProblem& p) {
  return !p.float_result && p.column_c == 1 && aligned(p.c) && p.n % 8 == 0 && (p.m == 1 || p.stride_c % 8 == 0) &&
         p.batch_c[0] % 8 == 0 && p.batch_c[1] % 8 == 0;
}

int ceil_div(int a, int b) { return (a + b - 1) / b; }

GemmShape shape_of(const GemmProblem& p, const TileShape& tile) {
  GemmShape s = stores_of(p);
  s.tiles_m = ceil_div(p.m, kTileM * tile.cluster_m), s.tiles_n = ceil_div(p.n, tile.columns * tile.cluster_n);
  return s;
}

/// C^T = B A^T.
GemmProblem turned(GemmProblem p) {
  std::swap(p.a, p.b), std::swap(p.m, p.n);
  std::swap(p.stride_a, p.stride_b), std::swap(p.stride_c, p.column_c);
  std::swap(p.batch_a, p.batch_b), std::swap(p.bias_row, p.bias_column);
  return p;
}

/// `p` as its kernel computes it, `c` as it lies.
bool make_maps(GemmLaunch& launch, const GemmProblem& p, const GemmProblem& c, const TileShape& tile) {
  const MapSource a{p.a, p.m, p.k, p.stride_a, p.batch, p.batch_a};
  const MapSource b{p.b, p.b_outer ? p.k : p.n, p.b_outer ? p.n : p.k, p.stride_b, p.batch, p.batch_b};
  const int share_b = (p.b_outer ? kTileK : tile.columns) / tile.cluster_m;
  if (!make_map(&launch.a, a, p.bfloat16, kTileM / tile.cluster_n, kTileK) ||
      !make_map(&launch.b, b, p.bfloat16, share_b, 64))
    return false;
  if (!launch.shape.tma_store) return true;
  const MapSource stored{c.c, c.m, c.n, c.stride_c, c.batch, c.batch_c};
  if (launch.shape.turned) return make_map(&launch.c, stored, p.bfloat16, 8, 64);
  return make_map(&launch.c, stored, p.bfloat16, 64, tile.columns % 64 == 0 ? 64 : 32);
}

/// Clusters of that tile that the device holds at once: of four blocks some do not fit what its parts leave over.
int slots_of(const TileShape& t, int processors) {
  const int blocks = t.cluster_m * t.cluster_n;
  return std::max(1, processors / blocks - (blocks > 2 ? 3 : 0));
}

double clusters_of(const GemmProblem& p, const TileShape& t) {
  return double(ceil_div(p.m, kTileM * t.cluster_m)) * ceil_div(p.n, t.columns * t.cluster_n) * p.batch[0] * p.batch[1];
}

/// Whether splitting a plan's last waves would shorten them: more clusters than fit at once, and no whole waves.
bool can_split(const GemmProblem& p, const TileShape& t, int processors) {
  const double clusters = clusters_of(p, t);
  const int slots = slots_of(t, processors);
  return clusters > slots && std::fmod(clusters, slots) != 0 && 2.0 * slots * ceil_div(p.k, kTileK) < INT32_MAX;
}

/// Clock cycles that a plan would need, roughly: waves of clusters, each step of k bound by the tensor cores (4 cycles
/// a column, and a start) or by what its blocks read from L2 (48 bytes a cycle and multiprocessor, when all of them
/// read; twice the lines where rows do not start at multiples of 128 bytes). The constants fit measurements on one
/// H200.
double cost_of(const GemmProblem& p, const TileShape& t, int processors, bool split, bool tma) {
  const int blocks = t.cluster_m * t.cluster_n, slots = slots_of(t, processors);
  const double clusters = clusters_of(p, t);
  const double waves = split ? clusters / slots : std::ceil(clusters / slots),
               active = std::min<double>(clusters, slots) * blocks / processors;
  const double lines = p.stride_a % 64 || p.stride_b % 64 ? 2 : 1;
  const double read = 128 * lines * (double(kTileM) / t.cluster_n + double(t.columns) / t.cluster_m) * active;
  const double step = std::max(4.0 * t.columns + 140, read / 48), store = tma ? 5000 : 5000 + 40.0 * t.columns;
  // What splitting costs: the hand-over, and that blocks no longer walk k together.
  return waves * (ceil_div(p.k, kTileK) * step + store) * (split ? 1.04 : 1) + (split ? 18000 : 0);
}

/// A number that no flag in memory holds but those of this launch.
uint64_t next_token() {
  static std::atomic<uint64_t> count{0x9E3779B97F4A7C15};
  return count.fetch_add(0x9E3779B97F4A7C15);
}

/// The least of all plans with tiles for which `is_there`; turned only where it may be.
template <class F>
GemmPlan tile_choice(const GemmProblem& p, bool may_turn, F is_there) {
  const TileShape* tiles;
  const int count = sm90_gemm_tiles(p.b_outer, &tiles), processors = multiprocessors();
  const bool tma = tma_stores(p);
  GemmPlan best;
  double least = INFINITY;
  for (bool turn : {false, true}) {
    if (turn && (p.b_outer || !may_turn)) continue;  // the kernel reads its A along k only
    const GemmProblem q = turn ? turned(p) : p;
    for (int i = 0; i < count; ++i)
      for (bool split : {false, true}) {
        if (!is_there(i) || (split && !can_split(q, tiles[i], processors))) continue;
        const double cost = cost_of(q, tiles[i], processors, split, tma && (turn || tiles[i].columns % 32 == 0));
        if (cost < least) least = cost, best = {i, turn, split, false};
      }
  }
  return best;
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

GemmPlan sm90_gemm_choice(const GemmProblem& p) {
  if (p.b_outer || std::min(p.m, p.n) > kMostRows) return tile_choice(p, true, [](int) { return true; });
  GemmPlan few;
  few.rows = true, few.turned = p.n < p.m;
  return few;
}

GemmPlan sm90_gemm_epilogue_choice(const GemmProblem& p) {
  const std::span<const int> some = p.b_outer ? std::span<const int>(kChainOuterTiles) : kChainTiles;
  return tile_choice(p, false, [&](int tile) { return std::find(some.begin(), some.end(), tile) != some.end(); });
}

size_t sm90_gemm_workspace(const GemmProblem& p, const GemmPlan& plan) {
  const TileShape* tiles;
  sm90_gemm_tiles(p.b_outer, &tiles);
  if (!plan.split) return 0;
  return size_t{kConsumers} * multiprocessors() *
         (64 * size_t(tiles[plan.tile].columns) * sizeof(float) + sizeof(uint64_t));
}

namespace {

/// `p`, which the plan computes as `q`.
bool prepare(GemmLaunch& launch, const GemmProblem& p, const GemmProblem& q, const GemmPlan& plan) {
  const TileShape* tiles;
  sm90_gemm_tiles(p.b_outer, &tiles);
  const TileShape& tile = tiles[plan.tile];
  launch.shape = shape_of(q, tile);
  launch.shape.turned = plan.turned, launch.shape.tma_store = tma_stores(p) && (plan.turned || tile.columns % 32 == 0);
  if (!make_maps(launch, q, p, tile)) return false;
  if (plan.split && p.workspace) {
    const size_t slots = size_t{kConsumers} * multiprocessors();
    launch.shape.carry = {
        static_cast<float4*>(p.workspace),
        reinterpret_cast<uint64_t*>(static_cast<char*>(p.workspace) + slots * 64 * tile.columns * sizeof(float)),
        next_token()};
  }
  launch.clusters = launch.shape.tiles_m * launch.shape.tiles_n * p.batch[0] * p.batch[1];
  return true;
}

/// Has the ring bring the first array of C's size that TMA can read.
void stage_beside(Chain& chain, GemmLaunch& launch, const GemmProblem& p) {
  for (int s = 0; s < chain.steps; ++s) {
    const ChainStep& step = chain.step[s];
    if (step.op != ChainOp::kAdd && step.op != ChainOp::kMul) continue;
    const ChainOperand& o = chain.operand[step.operand];
    const bool reads = !o.is_float && o.column == 1 && o.row >= p.n && o.row % 8 == 0 && aligned(o.data) &&
                       o.batch[0] % 8 == 0 && o.batch[1] % 8 == 0;
    if (!reads || !make_map(&launch.beside, {o.data, p.m, p.n, o.row, p.batch, o.batch}, p.bfloat16, kTileM, 64))
      continue;
    chain.staged = step.operand;
    return;
  }
}

}  // namespace

cudaError_t sm90_gemm(const GemmProblem& p, Chain chain, const GemmPlan& plan, cudaStream_t stream) {
  GemmLaunch launch{};
  launch.stream = stream;
  if (plan.turned || plan.rows || !prepare(launch, p, p, plan)) return cudaErrorInvalidValue;
  stage_beside(chain, launch, p);
  return p.bfloat16 ? launch_chain_bfloat16(p.b_outer, plan.tile, launch, chain)
                    : launch_chain_float16(p.b_outer, plan.tile, launch, chain);
}

cudaError_t sm90_gemm(const GemmProblem& p, const GemmPlan& plan, cudaStream_t stream) {
  const GemmProblem q = plan.turned ? turned(p) : p;
  if (plan.rows) return sm90_rows(q, stream);
  GemmLaunch launch{};
  launch.stream = stream;
  if (!prepare(launch, p, q, plan)) return cudaErrorInvalidValue;
  return p.bfloat16 ? launch_bfloat16(p.b_outer, plan.tile, launch) : launch_float16(p.b_outer, plan.tile, launch);
}

}  // namespace tenor::cuda::gemm
