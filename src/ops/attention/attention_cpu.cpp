// The flash strategies on the CPU: cut a problem into blocks of query rows and run their kernels on all threads.
#include <atomic>
#include <cstdint>
#include <cstring>

#include "src/core/numeric.h"
#include "src/core/visit.h"
#include "src/cpu/parallel.h"
#include "src/ops/attention/attention_kernels.h"

namespace tenor::attn {
namespace {

constexpr int64_t kMaxRows = 96;                   // rows of a block, a multiple of every tile's
constexpr int64_t kScoreBytes = int64_t{1} << 20;  // scores of a block stay within the second-level cache
constexpr int64_t kPackBytes = int64_t{64} << 20;  // packed keys and values held at once

constexpr int64_t kWorkOfThread = 1 << 17;  // multiply-adds worth a thread's start

int64_t round_up(int64_t n, int64_t step) { return (n + step - 1) / step * step; }

/// One key head of one segment: the keys and values that its blocks share.
struct Unit {
  const Segment* segment;
  int64_t kv_head;
  size_t first_block, blocks;
  char* keys = nullptr;  // packed for all blocks, or null: each block packs its own
  char* values = nullptr;
  uint8_t* poisoned = nullptr;
};

class CpuFlash {
 public:
  CpuFlash(const Problem& problem, CpuUnit unit)
      : p_(problem),
        k_(kernels_for(problem, unit)),
        columns_(round_up(problem.value_dim, static_cast<int64_t>(k_.lanes))) {
    read_sinks();
    for (const Segment& s : p_.segments)
      for (int64_t g = 0; g < p_.kv_heads; ++g) add_unit(s, g);
  }

  void run() {
    for (size_t u = 0; u < units_.size();) {
      size_t end = u;
      int64_t bytes = 0;
      do bytes += pack_bytes(units_[end++]);
      while (end < units_.size() && bytes + pack_bytes(units_[end]) <= kPackBytes);
      run_wave(u, end, bytes);
      u = end;
    }
  }

 private:
  void read_sinks() {
    if (!p_.sinks.defined()) return;
    core::visit_float(p_.sinks.dtype(), [&]<class T>() {
      for (int64_t h = 0; h < p_.heads; ++h) sinks_.push_back(core::widen(p_.sinks.data<T>()[h * p_.sinks.stride(0)]));
    });
  }

  /// As many rows as the cache holds scores of, in blocks of about one size.
  int64_t rows_of_block(const Segment& s) const {
    const int64_t fit = kScoreBytes / (static_cast<int64_t>(k_.item) * std::max<int64_t>(s.keys, 1));
    const int64_t most = std::clamp<int64_t>(fit / k_.tile_rows * k_.tile_rows, k_.tile_rows, kMaxRows);
    const int64_t blocks = (s.queries + most - 1) / most;
    return blocks > 1 ? round_up((s.queries + blocks - 1) / blocks, k_.tile_rows) : most;
  }

  void add_unit(const Segment& s, int64_t kv_head) {
    if (s.queries == 0) return;
    const int64_t rows = rows_of_block(s), group = p_.group();
    const int64_t step_i = std::min(rows, s.queries), step_h = std::min(std::max<int64_t>(rows / s.queries, 1), group);
    Unit unit{&s, kv_head, blocks_.size(), 0};
    for (int64_t i = (s.queries - 1) / step_i * step_i; i >= 0; i -= step_i)  // the longest causal rows first
      for (int64_t h = 0; h < group; h += step_h) {
        Block b{};
        b.problem = &p_, b.segment = &s, b.kv_head = kv_head, b.columns = columns_;
        b.head_begin = kv_head * group + h, b.head_end = kv_head * group + std::min(h + step_h, group);
        b.row_begin = i, b.row_end = std::min(i + step_i, s.queries);
        b.sinks = sinks_.empty() ? nullptr : sinks_.data();
        set_keys(b);
        blocks_.push_back(b);
      }
    unit.blocks = blocks_.size() - unit.first_block;
    units_.push_back(unit);
  }

  /// The panels that any row of the block sees. Both ends of a row's range rise with its index.
  void set_keys(Block& b) const {
    const KeyRange first = seen_keys(p_, *b.segment, b.row_begin), last = seen_keys(p_, *b.segment, b.row_end - 1);
    b.key_begin = first.begin / kPanel * kPanel;
    b.key_end = std::max(round_up(last.end, kKeyStep), b.key_begin);
    b.stride = b.key_end - b.key_begin + 16;  // rows a power of two apart would share cache sets
  }

  int64_t panels(const Unit& u) const { return round_up(u.segment->keys, kPanel) / kPanel; }
  int64_t key_panel_bytes() const { return p_.dim * kPanel * static_cast<int64_t>(k_.packed_item); }
  int64_t value_panel_bytes() const { return columns_ * kPanel * static_cast<int64_t>(k_.packed_item); }
  /// A panel of a thread's own, with room behind it for rows that pages scatter.
  int64_t own_panel_bytes() const { return gather_at() + gathered_bytes(p_, kPanel); }
  int64_t gather_at() const { return round_up(std::max(key_panel_bytes(), value_panel_bytes()), 64); }
  int64_t pack_bytes(const Unit& u) const {
    return u.blocks > 1 ? panels(u) * (key_panel_bytes() + value_panel_bytes() + kPanel) : 0;
  }

  /// Scratch of one thread that fits each of the wave's blocks.
  int64_t scratch_bytes(size_t first, size_t last) const {
    int64_t bytes = 0;
    for (size_t i = first; i < last; ++i) {
      Block b = blocks_[i];
      bytes = std::max(bytes, lay_out(b, nullptr).bytes);
    }
    return bytes;
  }

  struct Placed {
    int64_t bytes;
    char* panel;  // of its own, for keys or values that the unit has not packed
    uint8_t* poisoned;
  };
  /// Lays the block's scratch out from `base`; with none, only its size is of use.
  Placed lay_out(Block& b, char* base) const {
    int64_t at = 0;
    const auto take = [&](int64_t bytes) {
      char* start = base ? base + at : nullptr;
      at += round_up(bytes, 64);
      return start;
    };
    const int64_t item = static_cast<int64_t>(k_.item), rows = b.rows() + kRowPad;
    b.query = take(rows * p_.dim * item);
    b.scores = take(rows * b.stride * item);
    b.part = take(rows * columns_ * item);
    b.total = take(rows * columns_ * item);
    b.line = take(b.stride * item);
    b.top = reinterpret_cast<double*>(take(rows * 8));
    b.sum = reinterpret_cast<double*>(take(rows * 8));
    Placed placed{};
    placed.panel = take(own_panel_bytes());
    placed.poisoned = reinterpret_cast<uint8_t*>(take(round_up(b.stride, kPanel)));
    placed.bytes = at;
    return placed;
  }

  void run_wave(size_t first, size_t last, int64_t packed) {
    const size_t first_block = units_[first].first_block;
    const size_t last_block = units_[last - 1].first_block + units_[last - 1].blocks;
    const Tensor pack = packed ? Tensor::empty({packed}, uint8) : Tensor();
    if (packed) pack_wave(first, last, pack.data<char>());
    unit_of_.clear();
    for (size_t u = first; u < last; ++u) unit_of_.insert(unit_of_.end(), units_[u].blocks, &units_[u]);
    const int64_t threads = useful_threads(first_block, last_block);
    if (static_cast<int64_t>(last_block - first_block) < threads) {
      run_by_splits(first_block, last_block);
    } else {
      run_by_blocks(first_block, last_block, threads);
    }
  }

  /// As many threads as have a few microseconds' work.
  int64_t useful_threads(size_t first, size_t last) const {
    int64_t work = 0;
    for (size_t i = first; i < last; ++i)
      work += blocks_[i].rows() * (blocks_[i].key_end - blocks_[i].key_begin) * (p_.dim + p_.value_dim);
    return std::min<int64_t>(num_threads(), work / kWorkOfThread + 1);
  }

  /// Each block on one thread.
  void run_by_blocks(size_t first, size_t last, int64_t threads) const {
    const int64_t bytes = scratch_bytes(first, last);
    const Tensor scratch = Tensor::empty({threads * bytes}, uint8);
    std::atomic<size_t> next{first};
    cpu::parallel_for(threads, 1, [&](int64_t begin, int64_t end) {
      for (int64_t slot = begin; slot < end; ++slot)
        for (size_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < last;)
          run_block(blocks_[i], *unit_of_[i - first], scratch.data<char>() + slot * bytes);
    });
  }

  /// Fewer blocks than threads, as in a decode step: their splits are shared out. A split's sums start from zero and
  /// meet in the order of the splits either way, so the bits are the same.
  void run_by_splits(size_t first, size_t last) const {
    struct Item {
      size_t block;
      int64_t begin, end;
    };
    std::vector<Item> items;
    const int64_t bytes = scratch_bytes(first, last);
    const Tensor scratch = Tensor::empty({static_cast<int64_t>(last - first) * bytes}, uint8);
    std::vector<Block> blocks(blocks_.begin() + static_cast<int64_t>(first),
                              blocks_.begin() + static_cast<int64_t>(last));
    std::vector<Placed> own;
    int64_t part = 0;
    for (size_t i = 0; i < blocks.size(); ++i) {
      Block& b = blocks[i];
      own.push_back(lay_out(b, scratch.data<char>() + static_cast<int64_t>(i) * bytes));
      part = std::max(part, round_up((b.rows() + kRowPad) * columns_ * static_cast<int64_t>(k_.item), 64));
      for (int64_t j = b.key_begin; j < b.key_end; j = end_of_split(b, j)) items.push_back({i, j, end_of_split(b, j)});
    }
    // Each item has sums of its own, and a panel for what its block has not packed.
    const int64_t panel = round_up(own_panel_bytes(), 64), count = static_cast<int64_t>(items.size());
    const Tensor memory = Tensor::empty({count * (part + panel)}, uint8);
    const auto part_of = [&](int64_t n) { return memory.data<char>() + n * (part + panel); };
    const auto each = [](int64_t n, auto fn) {
      cpu::parallel_for(n, 1, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) fn(i);
      });
    };
    const auto unit_of = [&](size_t block) -> const Unit& { return *unit_of_[block]; };
    for (const Block& b : blocks) k_.pack.query(b);
    each(count, [&](int64_t n) {
      const Item& item = items[static_cast<size_t>(n)];
      score(blocks[item.block], unit_of(item.block), part_of(n) + part, item.begin, item.end);
    });
    each(static_cast<int64_t>(blocks.size()), [&](int64_t i) { k_.softmax(blocks[static_cast<size_t>(i)]); });
    each(count, [&](int64_t n) {
      const Item& item = items[static_cast<size_t>(n)];
      Block b = blocks[item.block];
      b.part = part_of(n);
      accumulate(b, unit_of(item.block), part_of(n) + part, own[item.block].poisoned, item.begin, item.end);
    });
    for (int64_t n = 0; n < count; ++n) {
      Block b = blocks[items[static_cast<size_t>(n)].block];
      b.part = part_of(n);
      k_.fold(b, items[static_cast<size_t>(n)].begin == b.key_begin);
    }
    for (size_t i = 0; i < blocks.size(); ++i) finish(blocks[i], unit_of(i), own[i].poisoned);
  }

  void pack_wave(size_t first, size_t last, char* memory) {
    struct Item {
      Unit* unit;
      int64_t panel;
    };
    std::vector<Item> items;
    for (size_t u = first; u < last; ++u) {
      Unit& unit = units_[u];
      if (unit.blocks <= 1) continue;
      const int64_t n = panels(unit);
      unit.keys = memory, memory += n * key_panel_bytes();
      unit.values = memory, memory += n * value_panel_bytes();
      unit.poisoned = reinterpret_cast<uint8_t*>(memory), memory += n * kPanel;
      for (int64_t i = 0; i < n; ++i) items.push_back({&unit, i});
    }
    cpu::parallel_for(static_cast<int64_t>(items.size()), cpu::grain_of(key_panel_bytes()),
                      [&](int64_t begin, int64_t end) {
                        std::vector<char> buffer(static_cast<size_t>(gathered_bytes(p_, kPanel)));
                        for (int64_t i = begin; i < end; ++i) pack_panel(*items[i].unit, items[i].panel, buffer.data());
                      });
  }

  void pack_panel(const Unit& unit, int64_t panel, char* buffer) const {
    const int64_t j = panel * kPanel;
    pack_keys(unit, j, unit.keys + panel * key_panel_bytes(), buffer);
    pack_values(unit, j, unit.values + panel * value_panel_bytes(), unit.poisoned + j, buffer);
  }

  /// The panel of keys from j on, up to the last of the segment.
  void pack_keys(const Unit& unit, int64_t j, char* panel, char* buffer) const {
    const int64_t n = std::min(kPanel, unit.segment->keys - j);
    k_.pack.keys(key_rows(p_, *unit.segment, unit.kv_head, j, n, buffer), p_.dim, n, panel);
  }
  void pack_values(const Unit& unit, int64_t j, char* panel, uint8_t* poisoned, char* buffer) const {
    const int64_t n = std::min(kPanel, unit.segment->keys - j);
    k_.pack.values(value_rows(p_, *unit.segment, unit.kv_head, j, n, buffer), p_.value_dim, n, columns_, panel,
                   poisoned);
  }

  static int64_t end_of_split(const Block& b, int64_t j) { return std::min(b.key_end, (j / kSplit + 1) * kSplit); }

  void run_block(Block b, const Unit& unit, char* scratch) const {
    const Placed own = lay_out(b, scratch);
    k_.pack.query(b);
    score(b, unit, own.panel, b.key_begin, b.key_end);
    k_.softmax(b);
    for (int64_t j = b.key_begin; j < b.key_end; j = end_of_split(b, j)) {
      accumulate(b, unit, own.panel, own.poisoned, j, end_of_split(b, j));
      k_.fold(b, j == b.key_begin);
    }
    finish(b, unit, own.poisoned);
  }

  /// Scores of keys [begin, end).
  void score(const Block& b, const Unit& unit, char* panel, int64_t begin, int64_t end) const {
    for (int64_t j = begin; j < end; j += kPanel) {
      if (!unit.keys) pack_keys(unit, j, panel, panel + gather_at());
      k_.scores(b, unit.keys ? unit.keys + j / kPanel * key_panel_bytes() : panel, j);
    }
  }

  /// part = weights times values of keys [begin, end), one split.
  void accumulate(const Block& b, const Unit& unit, char* panel, uint8_t* poisoned, int64_t begin, int64_t end) const {
    for (int64_t j = begin, n; j < end; j += n) {
      n = std::min(unit.keys ? 2 * kPanel : kPanel, end - j);
      if (!unit.keys) pack_values(unit, j, panel, poisoned + j - b.key_begin, panel + gather_at());
      k_.accumulate(b, unit.keys ? unit.values + j / kPanel * value_panel_bytes() : panel, j, n, j == begin);
    }
  }

  void finish(Block b, const Unit& unit, const uint8_t* own_poisoned) const {
    b.poisoned = unit.keys ? unit.poisoned + b.key_begin : own_poisoned;
    if (std::memchr(b.poisoned, 1, static_cast<size_t>(b.key_end - b.key_begin))) add_poisoned(b, k_);
    k_.finish(b);
  }

  const Problem& p_;
  const Kernels k_;
  const int64_t columns_;
  std::vector<double> sinks_;
  std::vector<Block> blocks_;
  std::vector<Unit> units_;
  std::vector<const Unit*> unit_of_;  // of the blocks of the wave at work
};

}  // namespace

void run_flash_cpu(const Problem& problem, CpuUnit unit) {
  if (problem.heads == 0) return;
  CpuFlash(problem, unit).run();
}

}  // namespace tenor::attn
