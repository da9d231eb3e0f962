#include "src/cpu/tile.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include "src/cpu/move.h"
#include "src/cpu/parallel.h"

namespace tenor::cpu {
namespace {

constexpr int64_t kBufferBytes = kTileElements * 8;
constexpr int64_t kLongRun = 256;         // elements of a run that is worth a tile of its own
constexpr int64_t kStreamFrom = 4 << 20;  // bytes of a result that the caches are not likely to hold until it is read

struct Slot {
  char* data;
  Dims strides;  // over the collapsed dims
  DType dtype, compute;
  size_t item;
  Converter convert;    // inputs: to the compute dtype; outputs: from it
  bool stream = false;  // outputs: large enough to write past the caches where runs lie far apart
  int64_t ahead = 0;    // inputs of boxes that some operand lies across: from a box to the next

  Slot(const TileOperand& o, bool output)
      : data(static_cast<char*>(o.data)),
        dtype(o.dtype),
        compute(o.compute),
        item(item_size(o.dtype)),
        convert(output ? o.compute : o.dtype, output ? o.dtype : o.compute) {}
};

/// The program over collapsed dims, cut into boxes.
class Plan {
 public:
  explicit Plan(const TileProgram& program) : program_(program) {
    slots_.reserve(program.inputs.size() + program.outputs.size());
    for (const TileOperand& o : program.inputs) slots_.emplace_back(o, false);
    for (const TileOperand& o : program.outputs) {
      slots_.emplace_back(o, true);
      slots_.back().stream = product(program.shape) * static_cast<int64_t>(slots_.back().item) >= kStreamFrom;
    }
    collapse();
    cut();
  }

  int64_t tiles() const { return tiles_; }
  int64_t tile_cost() const {
    int64_t bytes = program_.cost, elements = 1;
    for (const Slot& s : slots_) bytes += static_cast<int64_t>(s.item);
    for (int64_t b : box_) elements *= b;
    return bytes * elements;
  }
  void run(int64_t first, int64_t last) const;

 private:
  const TileOperand& operand(size_t i) const {
    return i < program_.inputs.size() ? program_.inputs[i] : program_.outputs[i - program_.inputs.size()];
  }
  void collapse();
  void cut();
  int contrary_dim() const;

  const TileProgram& program_;
  std::vector<Slot> slots_;
  Dims sizes_, box_, counts_;  // counts_: boxes along each dim
  Dims order_;                 // dims from the slowest to the one along which consecutive tiles follow each other
  int64_t tiles_ = 1;
};

/// Orders dims by the first output's strides, the smallest last, and merges neighbours that every operand walks as one.
void Plan::collapse() {
  const Dims& shape = program_.shape;
  const Dims& key = program_.outputs[0].strides;
  Dims order;
  for (size_t d = 0; d < shape.size(); ++d)
    if (shape[d] != 1) order.push_back(static_cast<int64_t>(d));
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return key[a] > key[b]; });
  for (int64_t d : order) {
    bool merge = !sizes_.empty();
    for (size_t i = 0; merge && i < slots_.size(); ++i)
      merge = slots_[i].strides.back() == shape[d] * operand(i).strides[d];
    if (merge)
      sizes_.back() *= shape[d];
    else
      sizes_.push_back(shape[d]);
    for (size_t i = 0; i < slots_.size(); ++i) {
      if (merge)
        slots_[i].strides.back() = operand(i).strides[d];
      else
        slots_[i].strides.push_back(operand(i).strides[d]);
    }
  }
  if (sizes_.empty()) {
    sizes_.push_back(1);
    for (Slot& s : slots_) s.strides.push_back(0);
  }
}

/// A dim along which some operand is dense while it strides along the last dim; -1 if there is none.
int Plan::contrary_dim() const {
  const int last = static_cast<int>(sizes_.size()) - 1;
  for (const Slot& s : slots_) {
    if (s.strides[last] <= 1) continue;
    for (int d = last - 1; d >= 0; --d)
      if (s.strides[d] == 1) return d;
  }
  return -1;
}

void Plan::cut() {
  const int last = static_cast<int>(sizes_.size()) - 1;
  box_ = Dims(sizes_.size(), 1);
  int64_t widest = 1, narrowest = 8;
  for (const Slot& s : slots_) {
    widest = std::max({widest, static_cast<int64_t>(s.item), static_cast<int64_t>(item_size(s.compute))});
    narrowest = std::min(narrowest, static_cast<int64_t>(s.item));
  }
  int64_t room = program_.steps.empty() ? kBufferBytes / widest : kTileElements;
  const auto take = [&](int d, int64_t most) {
    // Pieces of nearly equal size, in whole cache lines.
    const int64_t pieces = (sizes_[d] + most - 1) / most;
    box_[d] = std::min(most, ((sizes_[d] + pieces - 1) / pieces + 15) / 16 * 16);
    box_[d] = std::min(box_[d], sizes_[d]);
    room /= box_[d];
  };
  for (size_t d = 0; d < sizes_.size(); ++d) order_.push_back(static_cast<int64_t>(d));
  if (const int contrary = contrary_dim(); contrary >= 0) {
    // Long runs where results are written, but whole cache lines across, where the contrary operand is read. Tiles
    // follow its lines, so that the next one's are fetched from where this one's end.
    take(last, std::min(256 / narrowest, room * narrowest / 64));
    take(contrary, room);
    std::rotate(order_.begin() + contrary, order_.begin() + contrary + 1, order_.end());
    for (Slot& s : slots_) s.ahead = box_[contrary] * s.strides[contrary];
  } else {
    for (int d = last; d >= 0 && room > 1; --d) {
      take(d, room);
      // Dims that did not merge: some operand has gaps between its runs. Long ones are read and written where they lie.
      if (box_[d] < sizes_[d] || (d == last && !program_.steps.empty() && box_[d] >= kLongRun)) break;
    }
  }
  for (size_t d = 0; d < sizes_.size(); ++d) {
    counts_.push_back((sizes_[d] + box_[d] - 1) / box_[d]);
    tiles_ *= counts_.back();
  }
}

bool dense(const Dims& strides, const Dims& sizes) {
  int64_t step = 1;
  for (size_t d = sizes.size(); d-- > 0;) {
    if (sizes[d] == 1) continue;
    if (strides[d] != step) return false;
    step *= sizes[d];
  }
  return true;
}
bool repeated(const Dims& strides, const Dims& sizes) {
  for (size_t d = 0; d < sizes.size(); ++d)
    if (sizes[d] != 1 && strides[d] != 0) return false;
  return true;
}

/// Copies a box whose last dim is dense on both sides, run by run.
void copy_runs(size_t item, const Dims& sizes, const char* from, const Dims& from_strides, char* to,
               const Dims& to_strides, size_t d = 0) {
  if (d + 1 == sizes.size()) {
    std::memcpy(to, from, static_cast<size_t>(sizes[d]) * item);
    return;
  }
  const auto bytes = static_cast<int64_t>(item);
  for (int64_t i = 0; i < sizes[d]; ++i)
    copy_runs(item, sizes, from + i * from_strides[d] * bytes, from_strides, to + i * to_strides[d] * bytes, to_strides,
              d + 1);
}

/// A thread's buffers: one a register, and one for what is gathered before it is converted.
class Buffers {
 public:
  char* get(size_t i) {
    if (i >= held_.size()) held_.resize(i + 1);
    if (!held_[i]) held_[i].reset(static_cast<char*>(std::aligned_alloc(64, kBufferBytes)));
    return held_[i].get();
  }

 private:
  struct Free {
    void operator()(char* p) const { std::free(p); }
  };
  std::vector<std::unique_ptr<char, Free>> held_;
};

Buffers& thread_buffers() {
  thread_local Buffers buffers;
  return buffers;
}

/// Which buffer each register lies in: an input in its own, a step's in one whose register nothing reads any more, so
/// that a long chain stays in L1.
std::vector<size_t> place_registers(const TileProgram& program) {
  const size_t inputs = program.inputs.size(), steps = program.steps.size();
  std::vector<size_t> last(inputs + steps, 0), place(inputs + steps), free;
  for (size_t i = 0; i < inputs; ++i) place[i] = i;
  for (size_t s = 0; s < steps; ++s)
    for (int k = 0; k < program.steps[s].arity; ++k) last[static_cast<size_t>(program.steps[s].inputs[k])] = s;
  for (int stored : program.stored) last[static_cast<size_t>(stored)] = steps;
  size_t count = inputs;
  for (size_t s = 0; s < steps; ++s) {
    if (free.empty()) free.push_back(count++);
    place[inputs + s] = free.back();
    free.pop_back();
    for (size_t r = inputs; r < inputs + s; ++r)
      if (last[r] == s) free.push_back(place[r]), last[r] = steps + 1;
  }
  return place;
}

/// The run of a range of tiles on one thread.
class Runner {
 public:
  Runner(const TileProgram& program, const std::vector<Slot>& slots)
      : program_(program),
        slots_(slots),
        registers_(program.inputs.size() + program.steps.size()),
        filled_(program.inputs.size()),
        places_(place_registers(program)) {}

  /// One tile: the box's sizes and each slot's offset in elements.
  void run(const Dims& sizes, const int64_t* offsets) {
    int64_t n = 1;
    for (int64_t s : sizes) n *= s;
    const size_t inputs = program_.inputs.size();
    const bool copies = program_.steps.empty();
    if (copies && inputs == 1 && program_.outputs.size() == 1 && runs_on_both_sides(sizes.back())) {
      copy_runs(slots_[0].item, sizes, address(0, offsets), slots_[0].strides, address(1, offsets), slots_[1].strides);
      return;
    }
    if (copies && inputs == 1 && program_.outputs.size() == 1 && turn(sizes, offsets)) return;
    for (size_t i = 0; i < inputs; ++i) {
      // A plain copy gathers straight into its destination where that is dense.
      char* direct = nullptr;
      if (copies && program_.outputs.size() == 1 && slots_[i].dtype == slots_[inputs].dtype &&
          dense(slots_[inputs].strides, sizes))
        direct = address(inputs, offsets);
      registers_[i] = load(i, sizes, offsets, n, direct);
      if (direct && registers_[i] == direct) return;
    }
    for (size_t s = 0; s < program_.steps.size(); ++s) step(s, sizes, offsets, n);
    for (size_t o = 0; o < program_.outputs.size(); ++o)
      store(inputs + o, registers_[program_.stored[o]], sizes, offsets, n);
  }

 private:
  /// Whether a copy moves runs that memcpy is worth calling for: without a buffer, and through the caches.
  bool runs_on_both_sides(int64_t run) const {
    const Slot &from = slots_[0], &to = slots_[1];
    return from.dtype == to.dtype && from.strides.back() == 1 && to.strides.back() == 1 &&
           run * static_cast<int64_t>(from.item) >= 256;
  }
  /// A plane of a large copy that lies transposed goes from line to line, without a buffer. False where it is none.
  bool turn(const Dims& sizes, const int64_t* offsets) const {
    const Slot &from = slots_[0], &to = slots_[1];
    const size_t last = sizes.size() - 1;
    if (!to.stream || from.dtype != to.dtype || to.strides[last] != 1 || from.strides[last] <= 1) return false;
    size_t across = last;
    for (size_t d = 0; d < last; ++d) {
      if (sizes[d] == 1) continue;
      if (across != last) return false;
      across = d;
    }
    return across != last && from.strides[across] == 1 &&
           stream_turned(from.item, address(0, offsets), from.strides[last], address(1, offsets), to.strides[across],
                         sizes[across], sizes[last], from.ahead);
  }
  char* address(size_t slot, const int64_t* offsets) const {
    return slots_[slot].data + offsets[slot] * static_cast<int64_t>(slots_[slot].item);
  }
  char* spare() { return buffers_.get(registers_.size()); }

  const void* load(size_t i, const Dims& sizes, const int64_t* offsets, int64_t n, char* direct) {
    const Slot& slot = slots_[i];
    char* from = address(i, offsets);
    const bool same = slot.dtype == slot.compute;
    if (repeated(slot.strides, sizes)) return load_repeated(i, from, n);
    filled_[i] = {};
    if (dense(slot.strides, sizes)) {
      if (same) return from;
      slot.convert(from, buffers_.get(i), static_cast<size_t>(n));
      return buffers_.get(i);
    }
    char* gathered = direct ? direct : same ? buffers_.get(i) : spare();
    gather_box(slot.item, from, {static_cast<int>(sizes.size()), sizes.data(), slot.strides.data(), slot.ahead},
               gathered);
    if (same) return gathered;
    slot.convert(gathered, buffers_.get(i), static_cast<size_t>(n));
    return buffers_.get(i);
  }
  /// One element for the whole tile: filled again only when it changes.
  const void* load_repeated(size_t i, const char* from, int64_t n) {
    Filled& filled = filled_[i];
    if (filled.from != from || filled.n < n) {
      alignas(8) char value[8];
      slots_[i].convert(from, value, 1);
      fill_dense(item_size(slots_[i].compute), value, buffers_.get(i), static_cast<size_t>(n));
      filled = {from, n};
    }
    return buffers_.get(i);
  }
  void step(size_t s, const Dims& sizes, const int64_t* offsets, int64_t n) {
    const TileStep& step = program_.steps[s];
    const size_t inputs = program_.inputs.size(), result = inputs + s;
    const void* in[TileStep::kMaxInputs];
    for (int k = 0; k < step.arity; ++k) in[k] = registers_[step.inputs[k]];
    char* out = buffers_.get(places_[result]);
    const bool last = s + 1 == program_.steps.size();  // an earlier one must not write where an input may still be read
    for (size_t o = 0; last && o < program_.outputs.size(); ++o) {
      const Slot& slot = slots_[inputs + o];
      if (program_.stored[o] == static_cast<int>(result) && slot.dtype == step.dtype && dense(slot.strides, sizes))
        out = address(inputs + o, offsets);
    }
    step.fn(in, out, static_cast<size_t>(n), step.params);
    if (step.rounded != step.dtype) {
      Converter(step.dtype, step.rounded)(out, spare(), static_cast<size_t>(n));
      Converter(step.rounded, step.dtype)(spare(), out, static_cast<size_t>(n));
    }
    registers_[result] = out;
  }
  void store(size_t slot_index, const void* from, const Dims& sizes, const int64_t* offsets, int64_t n) {
    const Slot& slot = slots_[slot_index];
    char* to = address(slot_index, offsets);
    if (from == to) return;
    if (dense(slot.strides, sizes)) return slot.convert(from, to, static_cast<size_t>(n));
    if (slot.dtype != slot.compute) {
      slot.convert(from, spare(), static_cast<size_t>(n));
      from = spare();
    }
    scatter_box(slot.item, from, to, {static_cast<int>(sizes.size()), sizes.data(), slot.strides.data()}, slot.stream);
  }

  struct Filled {
    const char* from = nullptr;
    int64_t n = 0;
  };
  const TileProgram& program_;
  const std::vector<Slot>& slots_;
  Buffers& buffers_ = thread_buffers();
  std::vector<const void*> registers_;
  std::vector<Filled> filled_;
  std::vector<size_t> places_;
};

void Plan::run(int64_t first, int64_t last) const {
  Runner runner(program_, slots_);
  Dims at(sizes_.size(), 0), sizes(sizes_.size(), 0), offsets(slots_.size(), 0);
  int64_t rest = first;
  for (size_t i = order_.size(); i-- > 0;) {
    const int64_t d = order_[i];
    at[d] = rest % counts_[d];
    rest /= counts_[d];
  }
  for (int64_t tile = first; tile < last; ++tile) {
    for (size_t d = 0; d < sizes_.size(); ++d) sizes[d] = std::min(box_[d], sizes_[d] - at[d] * box_[d]);
    for (size_t i = 0; i < slots_.size(); ++i) {
      offsets[i] = 0;
      for (size_t d = 0; d < sizes_.size(); ++d) offsets[i] += at[d] * box_[d] * slots_[i].strides[d];
    }
    runner.run(sizes, offsets.data());
    for (size_t i = order_.size(); i-- > 0 && ++at[order_[i]] == counts_[order_[i]];) at[order_[i]] = 0;
  }
  finish_streams();
}

}  // namespace

void run_tiles(const TileProgram& program) {
  for (int64_t size : program.shape)
    if (size == 0) return;
  const Plan plan(program);
  parallel_for(plan.tiles(), grain_of(plan.tile_cost()), [&](int64_t first, int64_t last) { plan.run(first, last); });
}

}  // namespace tenor::cpu
