// Which problems the tensor-core kernel takes, and how they are laid before it.
#include <algorithm>

#include "src/core/modes.h"
#include "src/cuda/copy.h"
#include "src/cuda/tensor_map.h"
#include "src/ops/attention/attention_cuda.h"
#include "src/ops/attention/flash_join.h"
#include "src/ops/attention/flash_sm90_launch.cuh"

namespace tenor::attn {
namespace {

/// q, k or v as a batch of heads.
struct Operand {
  Plane plane;
  int64_t batch, heads, rows, columns;
};

/// Whether TMA can walk it: contiguous rows, and strides of positive multiples of 16 bytes (0, for what is shared by
/// all heads or the whole batch, only there).
bool tma_walks(const Operand& x) {
  const auto fits = [](int64_t stride, int64_t size) {
    return size == 1 || (stride > 0 && stride % 8 == 0 && stride < (int64_t{1} << 38));
  };
  return (x.plane.col == 1 || x.columns == 1) && reinterpret_cast<uintptr_t>(x.plane.data) % 16 == 0 &&
         fits(x.plane.row, x.rows) && (x.plane.head == 0 || fits(x.plane.head, x.heads)) &&
         (x.plane.batch == 0 || fits(x.plane.batch, x.batch));
}

/// A copy that TMA can walk, where the operand itself is none.
Tensor walkable(Operand& x, Device device) {
  if (x.rows == 0 || tma_walks(x)) return {};
  const int64_t padded = (x.columns + 7) / 8 * 8;
  const Dims shape{x.batch, x.heads, x.rows, x.columns};
  const Tensor from =
      Tensor::wrap(x.plane.data, device, x.plane.dtype, shape, {x.plane.batch, x.plane.head, x.plane.row, x.plane.col});
  const Tensor memory = Tensor::empty({x.batch, x.heads, x.rows, padded}, x.plane.dtype, device);
  cuda::copy_strided(from, memory.with_layout(shape, memory.strides(), memory.offset()));
  x.plane.data = memory.raw(), x.plane.batch = memory.stride(0), x.plane.head = memory.stride(1);
  x.plane.row = memory.stride(2), x.plane.col = 1;
  return memory;
}

/// `pack` > 1: rows of a box are `pack` heads of lines / pack rows, one row's heads side by side.
bool make_map(CUtensorMap* map, const Operand& x, int lines, int pack, bool& shared_head, bool& shared_batch) {
  shared_head = x.plane.head == 0 || x.heads == 1, shared_batch = x.plane.batch == 0 || x.batch == 1;
  const cuda::MapTensor tensor{
      x.plane.data,
      x.plane.dtype == bfloat16,
      {x.columns, std::max<int64_t>(x.rows, 1), shared_head ? 1 : x.heads, shared_batch ? 1 : x.batch},
      {x.plane.row, x.plane.head, x.plane.batch}};
  if (pack == 1) return cuda::make_line_map(map, tensor, {{lines, 1}});
  const cuda::MapTensor turned{x.plane.data,
                               tensor.bfloat16,
                               {x.columns, x.heads, x.rows, tensor.size[3]},
                               {x.plane.head, x.plane.row, x.plane.batch}};
  return cuda::make_line_map(map, turned, {{pack, lines / pack}});
}

/// The diagonal and the window as bounds on key - query, less what cu_seqlens add.
void set_band(FlashShape& s) {
  constexpr int64_t kFar = 1 << 30;
  const DeviceProblem& p = s.p;
  const int64_t shift = p.cu_q.data || p.causal == Causal::kTopLeft ? 0 : p.keys - p.queries;
  int64_t after = p.right < 0 ? kFar : std::min(p.right, kFlashLongest);
  if (p.causal != Causal::kOff) after = 0;
  s.before = static_cast<int>(p.left < 0 ? -kFar : shift - std::min(p.left, kFlashLongest));
  s.after = static_cast<int>(after == kFar ? kFar : shift + after);
}

/// Heads whose keys and values fill about half the second-level cache; where nothing is hidden, one after the other.
int section_of(const FlashShape& s, bool longest_first) {
  const DeviceProblem& p = s.p;
  const int64_t heads = p.kv_heads * p.group * p.sequences;
  if (!longest_first || s.pack > 1) return 1;
  const int64_t bytes = std::max<int64_t>(p.keys * (p.dim + p.value_dim) * 2, 1);
  return static_cast<int>(std::clamp<int64_t>((int64_t{32} << 20) / bytes * p.group, 1, heads));
}

/// Whether every two neighbours of a row, from an even one on, can be read at once.
bool reads_pairs(const Plane& x) {
  const auto two = 2 * item_size(x.dtype);
  return !x.data || (x.col == 1 && reinterpret_cast<uintptr_t>(x.data) % two == 0 && x.row % 2 == 0 &&
                     x.head % 2 == 0 && x.batch % 2 == 0);
}

/// Query heads of a key head share tiles where one tile then holds more of a sequence's rows than another would: for
/// few queries. `rows` of a tile. Neither changes a bit of a row.
int pack_of(const DeviceProblem& p, int rows) {
  if (p.group == 1 || p.group > rows || p.q.head == 0 || p.cu_q.data) return 1;
  const int64_t group = p.group, fit = rows / group;
  const int64_t packed = (p.queries + fit - 1) / fit, apart = (p.queries + rows - 1) / rows * group;
  return packed < apart ? static_cast<int>(group) : 1;
}

/// Tiles of keys a part where few queries would leave the keys to too few blocks. By the problem's sizes without the
/// batch, so that it does not move a row's bits; under batch_invariant() never, so that other queries do not either.
int split_of(const FlashShape& s, int rows, int keys) {
  constexpr int64_t kMostParts = 64, kLeastKeys = 512;
  const DeviceProblem& p = s.p;
  if (core::batch_invariant() || p.cu_q.data || p.queries * s.pack > rows || p.keys < 2 * kLeastKeys) return 0;
  const int64_t part = std::max((p.keys + kMostParts - 1) / kMostParts, kLeastKeys);
  return static_cast<int>((part + keys - 1) / keys);
}

bool wide_rows(const Plane& x, int64_t columns) {
  return x.col == 1 && columns % 8 == 0 && reinterpret_cast<uintptr_t>(x.data) % 16 == 0 && x.row % 8 == 0 &&
         x.head % 8 == 0 && x.batch % 8 == 0;
}

}  // namespace

void run_flash_tensorcore(const Problem& problem) {
  FlashLaunch l{};
  FlashShape& s = l.shape;
  const int64_t batch = problem.batch, heads = problem.heads;
  s.p = device_problem(problem), l.device = problem.device;
  if (s.p.queries == 0 || heads == 0 || s.p.sequences == 0) return;
  const cuda::DeviceGuard guard(l.device);
  Operand q{problem.q, batch, heads, problem.queries, problem.dim},
      k{problem.k, batch, problem.kv_heads, problem.keys, problem.dim},
      v{problem.v, batch, problem.kv_heads, problem.keys, problem.value_dim};
  const Tensor copies[] = {walkable(q, l.device), walkable(k, l.device), walkable(v, l.device)};
  s.p.q = q.plane, s.p.k = k.plane, s.p.v = v.plane;
  if (problem.keys == 0)  // the maps want something to describe, which nothing reads
    for (Plane* x : {&k.plane, &v.plane}) x->data = q.plane.data, x->head = x->batch = 0;

  int tiles = 0;
  while (kFlashTiles[tiles].dim < std::max(problem.dim, problem.value_dim)) ++tiles;
  const FlashTiles& shape = kFlashTiles[tiles];
  const bool general = s.p.mask.data || s.p.bias.data || s.p.softcap > 0;
  const int rows = 64 * groups_of(shape, general);
  s.pack = pack_of(s.p, rows);
  const Operand bias{problem.bias, batch, heads, problem.queries, problem.keys};
  s.bias_tiles =
      shape.dim < 256 && s.pack == 1 && bias.plane.data && bias.plane.dtype == problem.q.dtype && tma_walks(bias);
  FlashMaps& maps = l.maps;
  if (!make_map(&maps.q, q, rows, s.pack, s.shared_head[0], s.shared_batch[0]) ||
      !make_map(&maps.k, k, shape.keys, 1, s.shared_head[1], s.shared_batch[1]) ||
      !make_map(&maps.v, v, shape.keys, 1, s.shared_head[2], s.shared_batch[2]) ||
      (s.bias_tiles && !make_map(&maps.bias, bias, rows, 1, s.shared_head[3], s.shared_batch[3])))
    cuda::check(cudaErrorInvalidValue, "attention: tensor map");

  set_band(s);
  s.scale_log2 = general ? kLog2E : static_cast<float>(s.p.scale * 1.4426950408889634);
  s.mask_pairs = reads_pairs(s.p.mask);
  s.wide_out = wide_rows(s.p.out, s.p.value_dim);
  s.section = section_of(s, s.p.causal != Causal::kOff);
  s.split = split_of(s, rows, shape.keys);
  s.splits = s.split ? static_cast<int>((s.p.keys + s.split * shape.keys - 1) / (s.split * shape.keys)) : 1;
  Tensor partial, partial_lse;
  if (s.splits > 1) {
    partial = Tensor::empty({s.splits, batch, heads, problem.queries, problem.value_dim}, float32, l.device);
    partial_lse = Tensor::empty({s.splits, batch, heads, problem.queries}, float32, l.device);
    s.partial = partial.data<float>(), s.partial_lse = partial_lse.data<float>();
  }
  s.tasks = s.splits * static_cast<int>(slots_of(s.p, rows / s.pack, 1) * heads / s.pack);
  const int blocks = cuda::multiprocessors(l.device);
  l.blocks = std::min(blocks, s.tasks);
  Tensor counter;
  if (s.tasks > l.blocks) {
    counter = Tensor::empty({1}, int32, l.device);
    cuda::check(cudaMemsetAsync(counter.raw(), 0, sizeof(int), cuda::stream_of(counter)), "attention");
    s.counter = counter.data<int>();
  }
  (problem.q.dtype == bfloat16 ? launch_flash_bfloat16 : launch_flash_float16)(l, tiles, general);
  if (s.splits > 1) join_parts(problem, s.p, partial, partial_lse);
}

}  // namespace tenor::attn
