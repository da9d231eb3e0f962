// The fallback on the CPU: cuts a problem into blocks of query rows and runs their kernels on all threads.
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

class Fallback {
 public:
  explicit Fallback(const Problem& problem)
      : p_(problem), k_(kernels_for(problem)), columns_(round_up(problem.value_dim, static_cast<int64_t>(k_.lanes))) {
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
    const KeyRange first = visible_keys(p_, *b.segment, b.row_begin),
                   last = visible_keys(p_, *b.segment, b.row_end - 1);
    b.key_begin = first.begin / kPanel * kPanel;
    b.key_end = std::max(round_up(last.end, kKeyStep), b.key_begin);
    b.stride = b.key_end - b.key_begin + 16;  // rows a power of two apart would share cache sets
  }

  int64_t panels(const Unit& u) const { return round_up(u.segment->keys, kPanel) / kPanel; }
  int64_t key_panel_bytes() const { return p_.dim * kPanel * static_cast<int64_t>(k_.packed_item); }
  int64_t value_panel_bytes() const { return columns_ * kPanel * static_cast<int64_t>(k_.packed_item); }
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
    char* keys;  // a panel of its own, where the unit is not packed
    char* values;
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
    placed.keys = take(key_panel_bytes());
    placed.values = take(value_panel_bytes());
    placed.poisoned = reinterpret_cast<uint8_t*>(take(round_up(b.stride, kPanel)));
    placed.bytes = at;
    return placed;
  }

  void run_wave(size_t first, size_t last, int64_t packed) {
    const size_t first_block = units_[first].first_block;
    const size_t last_block = units_[last - 1].first_block + units_[last - 1].blocks;
    Tensor pack = packed ? Tensor::empty({packed + 64}, uint8) : Tensor();
    if (packed) pack_wave(first, last, static_cast<char*>(pack.raw()));
    const int64_t slots = std::min<int64_t>(num_threads(), static_cast<int64_t>(last_block - first_block));
    const int64_t bytes = scratch_bytes(first_block, last_block);
    const Tensor scratch = Tensor::empty({slots * bytes}, uint8);
    std::atomic<size_t> next{first_block};
    std::vector<const Unit*> unit_of(last_block - first_block);
    for (size_t u = first; u < last; ++u)
      for (size_t i = 0; i < units_[u].blocks; ++i) unit_of[units_[u].first_block + i - first_block] = &units_[u];
    cpu::parallel_for(slots, 1, [&](int64_t begin, int64_t end) {
      for (int64_t slot = begin; slot < end; ++slot)
        for (size_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < last_block;)
          run_block(blocks_[i], *unit_of[i - first_block], scratch.data<char>() + slot * bytes);
    });
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
                        for (int64_t i = begin; i < end; ++i) pack_panel(*items[i].unit, items[i].panel);
                      });
  }

  void pack_panel(const Unit& unit, int64_t panel) const {
    const int64_t j = panel * kPanel, n = std::min(kPanel, unit.segment->keys - j);
    k_.pack.keys(p_, *unit.segment, unit.kv_head, j, n, unit.keys + panel * key_panel_bytes());
    k_.pack.values(p_, *unit.segment, unit.kv_head, j, n, columns_, unit.values + panel * value_panel_bytes(),
                   unit.poisoned + j);
  }

  void run_block(Block b, const Unit& unit, char* scratch) const {
    const Placed own = lay_out(b, scratch);
    k_.pack.query(b);
    for (int64_t j = b.key_begin; j < b.key_end; j += kPanel) {
      const void* panel = unit.keys ? unit.keys + j / kPanel * key_panel_bytes() : own.keys;
      if (!unit.keys)
        k_.pack.keys(p_, *unit.segment, unit.kv_head, j, std::min(kPanel, unit.segment->keys - j), own.keys);
      k_.scores(b, panel, j);
    }
    k_.softmax(b);
    uint8_t* const poisoned = unit.keys ? unit.poisoned + b.key_begin : own.poisoned;
    for (int64_t j = b.key_begin, n; j < b.key_end; j += n) {
      const bool fresh = j == b.key_begin || j % kSplit == 0;
      n = std::min(kPanel, b.key_end - j);
      if (unit.keys) {
        n = std::min({2 * kPanel, kSplit - j % kSplit, b.key_end - j});
        k_.accumulate(b, unit.values + j / kPanel * value_panel_bytes(), j, n, fresh);
      } else {
        k_.pack.values(p_, *unit.segment, unit.kv_head, j, std::min(kPanel, unit.segment->keys - j), columns_,
                       own.values, poisoned + j - b.key_begin);
        k_.accumulate(b, own.values, j, n, fresh);
      }
      if ((j + n) % kSplit == 0 || j + n == b.key_end) k_.fold(b, j - j % kSplit <= b.key_begin);
    }
    b.poisoned = poisoned;
    if (std::memchr(poisoned, 1, static_cast<size_t>(b.key_end - b.key_begin))) add_poisoned(b, k_);
    k_.finish(b);
  }

  const Problem& p_;
  const Kernels k_;
  const int64_t columns_;
  std::vector<double> sinks_;
  std::vector<Block> blocks_;
  std::vector<Unit> units_;
};

}  // namespace

void run_cpu_fallback(const Problem& problem) {
  if (problem.heads == 0) return;
  Fallback(problem).run();
}

}  // namespace tenor::attn
