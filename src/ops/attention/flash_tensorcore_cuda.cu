// How problems are laid before the tensor-core kernels: the Hopper one, and those of every device since Ampere.
#include <algorithm>

#include "src/core/modes.h"
#include "src/cuda/copy.h"
#include "src/cuda/counters.h"
#include "src/cuda/tensor_map.h"
#include "src/ops/attention/attention_cuda.h"
#include "src/ops/attention/flash_join.h"
#include "src/ops/attention/flash_launch.h"
#include "src/ops/attention/flash_sm90_launch.cuh"

namespace tenor::attn {

namespace {

/// q, k or v as a batch of heads.
struct Operand {
  Plane plane;
  int64_t batch, heads, rows, columns;
};

/// Elements of sixteen bytes.
int64_t wide_of(DType dtype) { return 16 / static_cast<int64_t>(item_size(dtype)); }

/// Whether TMA, or cp.async sixteen bytes at a time, can walk it: contiguous rows, and strides of positive multiples of
/// 16 bytes (0, for what is shared by all heads or the whole batch, only there).
bool walks(const Operand& x) {
  const auto fits = [wide = wide_of(x.plane.dtype)](int64_t stride, int64_t size) {
    return size == 1 || (stride > 0 && stride % wide == 0 && stride < (int64_t{1} << 38));
  };
  return (x.plane.col == 1 || x.columns == 1) && reinterpret_cast<uintptr_t>(x.plane.data) % 16 == 0 &&
         fits(x.plane.row, x.rows) && (x.plane.head == 0 || fits(x.plane.head, x.heads)) &&
         (x.plane.batch == 0 || fits(x.plane.batch, x.batch));
}

/// A copy that can be walked, where the operand itself cannot.
Tensor walkable(Operand& x, Device device) {
  if (x.rows == 0 || walks(x)) return {};
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

/// Whether every `count` neighbours of a row, from a multiple of it on, can be read at once.
bool reads_together(const Plane& x, int64_t count) {
  return !x.data || (x.col == 1 && reinterpret_cast<uintptr_t>(x.data) % (count * item_size(x.dtype)) == 0 &&
                     x.row % count == 0 && x.head % count == 0 && x.batch % count == 0);
}

/// Query heads of a key head share tiles where one tile then holds more of a sequence's rows than another would: for
/// few queries. `rows` of a tile. Neither changes a bit of a row.
int pack_of(const DeviceProblem& p, int rows) {
  if (p.group == 1 || p.group > rows || p.q.head == 0 || p.cu_q.data) return 1;
  const int64_t group = p.group, fit = rows / group;
  const int64_t packed = (p.queries + fit - 1) / fit, apart = (p.queries + rows - 1) / rows * group;
  return packed < apart ? static_cast<int>(group) : 1;
}

/// Tiles of keys a part where few queries would leave the keys to too few blocks: parts of 512 keys, of 256 where there
/// is a multiprocessor for each of these. Under batch_invariant() never, so that no other row moves a row's bits.
int split_of(const FlashShape& s, int rows, int keys, int64_t places) {
  constexpr int64_t kKeys = 512;
  const DeviceProblem& p = s.p;
  if (core::batch_invariant() || p.cu_q.data || p.queries * s.pack > rows || p.keys < 2 * kKeys) return 0;
  const int64_t tiles = p.sequences * p.kv_heads * p.group / s.pack, halves = 2 * ((p.keys + kKeys - 1) / kKeys);
  const int64_t part = std::max((p.keys + kMostParts - 1) / kMostParts, tiles * halves <= places ? kKeys / 2 : kKeys);
  return static_cast<int>((part + keys - 1) / keys);
}

bool wide_rows(const Plane& x, int64_t columns) {
  return x.col == 1 && reinterpret_cast<uintptr_t>(x.data) % 16 == 0 &&
         (columns | x.row | x.head | x.batch) % wide_of(x.dtype) == 0;
}

thread_local int portable_scopes = 0;

/// A problem as both kernels take it.
struct Flash {
  const Problem& problem;
  Operand q, k, v, out;
  int tiles = 0;  ///< which of the kernel's
  FlashTiles shape;
  bool general;
  int groups;       ///< of 64 rows, of a tile
  int streams = 1;  ///< of float32: of tiles of keys
  FlashShape s{};
  Tensor copies[3], partial, partial_lse;

  Flash(const Problem& x, const FlashTiles* all)
      : problem(x),
        q{x.q, x.batch, x.heads, x.queries, x.dim},
        k{x.k, x.batch, x.kv_heads, x.keys, x.dim},
        v{x.v, x.batch, x.kv_heads, x.keys, x.value_dim},
        out{x.out, x.batch, x.heads, x.queries, x.value_dim},
        general(x.mask.data || x.bias.data || x.softcap > 0) {
    s.p = device_problem(x);
    while (all[tiles].dim < std::max(x.dim, x.value_dim)) ++tiles;
    shape = all[tiles];
    groups = shape.groups[general];
  }
  int rows() const { return 64 * groups; }
  int keys() const { return shape.keys[general]; }

  /// Operands that can be walked, and the cut into tasks. Without options there are kernels of 64 rows a tile as well.
  void prepare(bool hopper) {
    copies[0] = walkable(q, problem.device), copies[1] = walkable(k, problem.device);
    copies[2] = walkable(v, problem.device);
    s.p.q = q.plane, s.p.k = k.plane, s.p.v = v.plane;
    s.pack = pack_of(s.p, rows());
    set_band(s);
    set_scales();
    s.mask_pairs = reads_together(s.p.mask, 2), s.mask_fours = reads_together(s.p.mask, 4);
    s.wide_out = wide_rows(s.p.out, s.p.value_dim);
    s.section = section_of(s, s.p.causal != Causal::kOff);
    split();
    if (!general && problem.q.dtype == float32)
      choose_tf32();
    else if (!general && hopper && s.pack <= 64 && cost_of(1) < cost_of(groups))
      groups = 1;
    s.tasks = static_cast<int>(tasks_of(groups));
  }
  void join() const {
    if (s.splits > 1) join_parts(problem, s.p, partial, partial_lse);
  }

 private:
  int64_t tasks_of(int of) const { return s.splits * slots_of(s.p, 64 * of / s.pack, 1) * problem.heads / s.pack; }
  /// About how long tiles of so many groups take: rounds over the multiprocessors, each a tenth of the time of a tile
  /// of 64 rows. More rows share the tensor cores better.
  int64_t cost_of(int of) const {
    const int64_t places = cuda::multiprocessors(problem.device);
    return (tasks_of(of) + places - 1) / places * (of == 1 ? 10 : of == 2 ? 13 : 17);
  }
  /// Tiles of 64 rows where that takes fewer rounds, two blocks a multiprocessor or one alone: the same bits. Where
  /// each such tile has a multiprocessor to itself, two streams of keys share it.
  void choose_tf32() {
    if (s.pack > 64) return;
    const int64_t places = cuda::multiprocessors(problem.device), few = tasks_of(1), wide = tasks_of(groups);
    const bool room = cuda::capability(problem.device).shared >= kFlashStreamsShared;
    if (room && few <= places && s.splits == 1 && !s.p.cu_q.data && !core::batch_invariant()) streams = 2;
    const int64_t time_few = few <= places ? 90 : (few + 2 * places - 1) / (2 * places) * 120,
                  time_wide = wide <= places ? 142 : (wide + 2 * places - 1) / (2 * places) * 190;
    if (streams == 2 || time_few < time_wide) groups = 1;
  }
  void set_scales() {
    constexpr double kLog2 = 1.4426950408889634;
    const bool scaled = general || problem.q.dtype == float32;  // scores come to the softmax with their scale
    s.scale = static_cast<float>(s.p.scale);
    s.scale_log2 = scaled ? kLog2E : static_cast<float>(s.p.scale * kLog2);
    s.softcap = static_cast<float>(s.p.softcap);
    if (s.p.softcap > 0) s.cap_log2 = static_cast<float>(2 * kLog2 * s.p.scale / s.p.softcap);
  }
  void split() {
    s.split = split_of(s, rows(), keys(), cuda::multiprocessors(problem.device));
    const int64_t part = int64_t{s.split} * keys();
    s.splits = s.split ? static_cast<int>((s.p.keys + part - 1) / part) : 1;
    if (s.splits == 1) return;
    partial = Tensor::empty({s.splits, problem.batch, problem.heads, problem.queries, problem.value_dim}, float32,
                            problem.device);
    partial_lse = Tensor::empty({s.splits, problem.batch, problem.heads, problem.queries}, float32, problem.device);
    s.partial = partial.data<float>(), s.partial_lse = partial_lse.data<float>();
  }
};

void make_maps(FlashMaps& maps, Flash& f) {
  FlashShape& s = f.s;
  if (f.problem.keys == 0)  // the maps want something to describe, which nothing reads
    for (Plane* x : {&f.k.plane, &f.v.plane}) x->data = f.q.plane.data, x->head = x->batch = 0;
  const Operand bias{f.problem.bias, f.problem.batch, f.problem.heads, f.problem.queries, f.problem.keys};
  s.bias_tiles = s.pack == 1 && bias.plane.data && bias.plane.dtype == f.problem.q.dtype && walks(bias);
  s.tma_out = s.pack == 1 && s.splits == 1 && !s.p.cu_q.data && walks(f.out);
  bool shared_head, shared_batch;
  if (!make_map(&maps.q, f.q, f.rows(), s.pack, s.shared_head[0], s.shared_batch[0]) ||
      !make_map(&maps.k, f.k, f.keys(), 1, s.shared_head[1], s.shared_batch[1]) ||
      !make_map(&maps.v, f.v, f.keys(), 1, s.shared_head[2], s.shared_batch[2]) ||
      (s.bias_tiles && !make_map(&maps.bias, bias, f.rows(), 1, s.shared_head[3], s.shared_batch[3])) ||
      (s.tma_out && !make_map(&maps.out, f.out, 64, 1, shared_head, shared_batch)))
    cuda::check(cudaErrorInvalidValue, "attention: tensor map");
}

void run_sm90(Flash& f) {
  FlashLaunch l{};
  l.device = f.problem.device;
  make_maps(l.maps, f);
  l.blocks = std::min(cuda::multiprocessors(l.device), f.s.tasks);
  Tensor counter;
  if (f.s.tasks > l.blocks) {
    f.s.counter = cuda::zeroed_counter(l.device);
    if (!f.s.counter) {
      counter = Tensor::empty({1}, int32, l.device);
      cuda::check(cudaMemsetAsync(counter.raw(), 0, sizeof(int), cuda::stream_of(counter)), "attention");
      f.s.counter = counter.data<int>();
    }
  }
  l.shape = f.s;
  const bool only_bias = f.s.bias_tiles && !f.s.p.mask.data && f.s.p.softcap == 0;
  (f.problem.q.dtype == bfloat16 ? launch_flash_bfloat16 : launch_flash_float16)(l, f.tiles,
                                                                                 !f.general  ? FlashOptions::kNone
                                                                                 : only_bias ? FlashOptions::kBias
                                                                                             : FlashOptions::kAny,
                                                                                 f.groups < f.shape.groups[f.general]);
}

}  // namespace

PortableFlash::PortableFlash() { ++portable_scopes; }
PortableFlash::~PortableFlash() { --portable_scopes; }

void run_flash_tensorcore(const Problem& problem) {
  const DType dtype = problem.q.dtype;
  const bool hopper = dtype != float32 && cuda::capability(problem.device).hopper && portable_scopes == 0;
  Flash f(problem, hopper ? kFlashSm90Tiles : dtype == float32 ? kFlashTf32Tiles : kFlashSm80Tiles);
  if (problem.queries == 0 || problem.heads == 0 || f.s.p.sequences == 0) return;
  const cuda::DeviceGuard guard(problem.device);
  f.prepare(hopper);
  if (hopper)
    run_sm90(f);
  else if (dtype == float32)
    launch_flash_tf32(f.s, problem.device, f.tiles, f.general, f.groups, f.streams);
  else
    (dtype == bfloat16 ? launch_flash_sm80_bfloat16 : launch_flash_sm80_float16)(f.s, problem.device, f.tiles,
                                                                                 f.general);
  f.join();
}

}  // namespace tenor::attn
