#include "src/fusion/cpu_layout.h"

#include <algorithm>
#include <map>
#include <set>

#include "src/fusion/cpu_pass.h"

namespace tenor::fusion {
namespace {

using Kind = Instruction::Kind;

/// Scratch that a block of rows may take: a core's L2 holds it together with what the block reads.
constexpr int64_t kBlockBytes = 512 << 10;
/// Rows side by side, where they lie across memory: a tile's length.
constexpr int64_t kNarrow = cpu::kTileElements;
constexpr int64_t kStripBytes = 2 << 20;

/// Whether the value is as cheap to make again as to read: an array's element in another dtype.
bool is_cheap(const Program& p, int value) {
  const Instruction& i = p.code[static_cast<size_t>(value)];
  if (i.kind != Kind::kConvert) return false;
  const Kind from = p.code[static_cast<size_t>(i.inputs[0])].kind;
  return from == Kind::kLoad || from == Kind::kGather;
}

bool computes(const Instruction& i) { return i.kind == Kind::kMap || i.kind == Kind::kConvert; }

/// What a reduction reads: its input, or what that is made of where the reduction's kernels make the same of it.
struct Meeting {
  int value;
  bool squares = false;
};
Meeting meeting_of(const Program& p, const Instruction& made) {
  const auto at = [&](int v) -> const Instruction& { return p.code[static_cast<size_t>(v)]; };
  Meeting m{made.inputs[0]};
  const DType sum = made.reduce.accumulator;
  const Instruction& in = at(m.value);
  const bool adds = made.reduce.op == reduce::Op::kSum || made.reduce.op == reduce::Op::kMean;
  if (adds && is_float(sum) && in.kind == Kind::kMap && in.map.op == elementwise::Op::kMul &&
      in.inputs[0] == in.inputs[1] && in.dtype == sum && in.map.computed == sum && at(in.inputs[0]).dtype == sum)
    m = {in.inputs[0], true};
  // 16-bit floats are widened as they are read.
  if (is_cheap(p, m.value) && at(m.value).dtype == float32 && sum == float32) {
    const int from = at(m.value).inputs[0];
    if (at(from).dtype == float16 || at(from).dtype == bfloat16) m.value = from;
  }
  return m;
}

/// Which pass an instruction or a copy belongs to.
struct Stand {
  int phase;
  std::vector<bool> along;
  bool operator<(const Stand& o) const {
    const auto wide = [](const std::vector<bool>& v) { return std::count(v.begin(), v.end(), true); };
    // Narrower ones first: what varies along fewer axes never needs what varies along more.
    return std::tuple(phase, wide(along), along) < std::tuple(o.phase, wide(o.along), o.along);
  }
};

class Layout {
 public:
  explicit Layout(const Program& program) : p_(program), homes_(p_.code.size()) {}

  CpuLayout run() {
    out_.box.resize(p_.axes.size(), 1);
    const bool gathers =
        std::any_of(p_.code.begin(), p_.code.end(), [](const auto& i) { return i.kind == Kind::kGather; });
    for (size_t a = 0; a < p_.axes.size(); ++a) {
      blocked_ = blocked_ || ((p_.phases > 0 || gathers) && !p_.axes[a].reduced);
      out_.box[a] = p_.axes[a].size;
    }
    order_axes();
    stand();
    find_homes();
    if (blocked_) choose_box();
    place_scratch();
    add_stages();
    return std::move(out_);
  }

 private:
  const Instruction& at(int value) const { return p_.code[static_cast<size_t>(value)]; }
  /// The first phase in which the value is there.
  int ready(int value) const { return at(value).phase + (at(value).kind == Kind::kReduce); }
  Stand stand_of(int value) const { return {at(value).phase, at(value).varies}; }
  bool is_shared(const Stand& s) const;
  std::vector<size_t> axes_along(const std::vector<bool>& along) const;

  void order_axes();
  void stand();
  void find_homes();
  void need(int value);
  void choose_box();
  int64_t row_bytes() const;
  void place_scratch();
  void add_stages();
  Stage pass_of(const Stand& s);
  Stage fold_of(int value) const;
  Stage pick_of(int value);
  size_t index_of(const Instruction& gather);

  const Program& p_;
  std::vector<Home> homes_;
  std::map<Stand, std::vector<int>> passes_;                           // what each computes
  std::map<Stand, std::vector<std::pair<int, const Store*>>> stores_;  // what each writes: results
  bool blocked_ = false;
  CpuLayout out_;
};

bool Layout::is_shared(const Stand& s) const {
  if (!blocked_) return true;
  for (size_t a = 0; a < s.along.size(); ++a)
    if (s.along[a] && !p_.axes[a].reduced) return false;
  return s.phase == 0;
}

/// As the first array that varies along all axes lies, or along most.
void Layout::order_axes() {
  const Dims* widest = nullptr;
  int64_t most = -1;
  const auto ask = [&](const Dims& strides) {
    const int64_t n = std::count_if(strides.begin(), strides.end(), [](int64_t s) { return s != 0; });
    if (n > most) most = n, widest = &strides;
  };
  for (const Store& s : p_.stores) ask(s.array.strides);
  for (const Instruction& i : p_.code)
    if (i.kind == Kind::kLoad) ask(i.array.strides);
  for (size_t a = 0; a < p_.axes.size(); ++a) out_.order.push_back(a);
  if (widest)
    std::stable_sort(out_.order.begin(), out_.order.end(),
                     [&](size_t a, size_t b) { return (*widest)[a] > (*widest)[b]; });
}

std::vector<size_t> Layout::axes_along(const std::vector<bool>& along) const {
  std::vector<size_t> axes;
  for (size_t a : out_.order)
    if (along[a]) axes.push_back(a);
  return axes;
}

/// Puts instructions and results into passes.
void Layout::stand() {
  for (size_t i = 0; i < p_.code.size(); ++i)
    if (computes(p_.code[i])) passes_[stand_of(static_cast<int>(i))].push_back(static_cast<int>(i));
  for (const Store& s : p_.stores) {
    Stand where{ready(s.value), std::vector<bool>(p_.axes.size())};
    for (size_t a = 0; a < p_.axes.size(); ++a) where.along[a] = s.array.strides[a] != 0;
    stores_[where].push_back({s.value, &s});
    passes_[where];
  }
}

/// Marks a value as one that has to lie in memory.
void Layout::need(int value) {
  Home& home = homes_[static_cast<size_t>(value)];
  if (home.kind != Home::Kind::kNone) return;
  const Instruction& i = at(value);
  home.strides = Dims(p_.axes.size(), 0);
  if (i.kind == Kind::kScalar) {
    home.kind = Home::Kind::kElement;
  } else if (i.kind == Kind::kLoad) {
    home = {Home::Kind::kArgument, i.array.argument, i.array.offset, i.array.strides};
  } else {
    home.kind =
        is_shared({ready(value), i.varies}) && is_shared(stand_of(value)) ? Home::Kind::kShared : Home::Kind::kBlock;
  }
}

void Layout::find_homes() {
  // A computed value that is a result lies there.
  for (const Store& s : p_.stores) {
    Home& home = homes_[static_cast<size_t>(s.value)];
    bool whole = at(s.value).kind == Kind::kReduce || at(s.value).kind == Kind::kGather || computes(at(s.value));
    for (size_t a = 0; a < p_.axes.size(); ++a) whole = whole && at(s.value).varies[a] == (s.array.strides[a] != 0);
    if (whole && home.kind == Home::Kind::kNone)
      home = {Home::Kind::kArgument, s.array.argument, s.array.offset, s.array.strides};
    else
      need(s.value);
  }
  for (size_t i = 0; i < p_.code.size(); ++i) {
    const Instruction& made = p_.code[i];
    if (made.kind == Kind::kReduce) {
      need(static_cast<int>(i));
      need(meeting_of(p_, made).value);
      continue;
    }
    if (made.kind == Kind::kGather) {  // whose stage reads the index
      need(static_cast<int>(i));
      continue;
    }
    for (int in : made.inputs) {
      const bool together = computes(made) && computes(at(in)) && !(stand_of(in) < stand_of(static_cast<int>(i)));
      if (together) continue;
      if (is_cheap(p_, in)) in = at(in).inputs[0];
      need(in);
    }
  }
}

/// Bytes of one row, a point of the kept axes, that should stay in cache: scratch, and what is read.
int64_t Layout::row_bytes() const {
  int64_t bytes = 0;
  for (size_t i = 0; i < homes_.size(); ++i) {
    if (homes_[i].kind != Home::Kind::kBlock && p_.code[i].kind != Kind::kLoad) continue;
    int64_t n = static_cast<int64_t>(item_size(p_.code[i].dtype));
    for (size_t a = 0; a < p_.axes.size(); ++a)
      if (p_.code[i].varies[a] && p_.axes[a].reduced) n *= p_.axes[a].size;
    bytes += n;
  }
  return std::max<int64_t>(bytes, 1);
}

/// As many rows as fit, those that lie side by side first.
void Layout::choose_box() {
  int64_t all = 1;
  for (const Axis& axis : p_.axes)
    if (!axis.reduced) all *= axis.size;
  const int64_t bytes = row_bytes(), share = std::max<int64_t>(1, all / (4 * num_threads()));
  int64_t rows = std::max<int64_t>(1, std::min(kBlockBytes / bytes, share));
  // Strips of columns that no cache holds gain nothing over whole passes, whose reads are longer.
  if (p_.phases > 0 && !p_.axes[out_.order.back()].reduced)
    rows = kNarrow * bytes > kStripBytes ? all : std::max(rows, kNarrow);
  out_.blocks = 1;
  for (size_t n = out_.order.size(); n-- > 0;) {
    const size_t a = out_.order[n];
    if (p_.axes[a].reduced) continue;
    const int64_t take = std::min(p_.axes[a].size, rows);
    out_.box[a] = take;
    out_.blocks *= (p_.axes[a].size + take - 1) / take;
    rows = take == p_.axes[a].size ? std::max<int64_t>(1, rows / take) : 1;
  }
  int64_t taken = 1;
  for (size_t a = 0; a < p_.axes.size(); ++a)
    if (!p_.axes[a].reduced) taken *= out_.box[a];
  out_.block_cost = bytes * taken * 2;
}

/// Dense scratch for a box (or, shared, for all) of what each value varies along.
void Layout::place_scratch() {
  for (size_t i = 0; i < homes_.size(); ++i) {
    Home& home = homes_[i];
    if (home.kind != Home::Kind::kShared && home.kind != Home::Kind::kBlock) continue;
    const bool shared = home.kind == Home::Kind::kShared;
    int64_t step = 1;
    const std::vector<size_t> axes = axes_along(p_.code[i].varies);
    for (size_t n = axes.size(); n-- > 0;) {
      home.strides[axes[n]] = step;
      step *= shared ? p_.axes[axes[n]].size : out_.box[axes[n]];
    }
    int64_t& bytes = shared ? out_.shared_bytes : out_.block_bytes;
    home.offset = bytes;
    bytes += (step * static_cast<int64_t>(item_size(p_.code[i].dtype)) + 127) / 64 * 64;
  }
}

Stage Layout::pass_of(const Stand& s) {
  const std::vector<int>& values = passes_[s];
  std::set<int> read;
  for (int v : values) read.insert(at(v).inputs.begin(), at(v).inputs.end());
  PassBuilder builder(p_, homes_, axes_along(s.along));
  const auto stays = [&](int v) { return homes_[static_cast<size_t>(v)].kind != Home::Kind::kNone; };
  for (int v : values)
    if (stays(v)) builder.compute(v, read.count(v) > 0);  // with what it needs
  for (int v : values)
    if (stays(v)) builder.store(v, homes_[static_cast<size_t>(v)]);
  for (const auto& [value, store] : stores_[s]) {
    const Home to{Home::Kind::kArgument, store->array.argument, store->array.offset, store->array.strides};
    const Home& home = homes_[static_cast<size_t>(value)];
    const bool there = home.kind == to.kind && home.argument == to.argument && home.offset == to.offset &&
                       home.strides == to.strides && at(value).kind != Kind::kLoad;
    if (!there) builder.store(value, to);
  }
  return {.pass = builder.finish()};
}

Stage Layout::fold_of(int value) const {
  const Instruction& made = at(value);
  const Meeting m = meeting_of(p_, made);
  const Home &from = homes_[static_cast<size_t>(m.value)], &to = homes_[static_cast<size_t>(value)];
  return {.kind = Stage::Kind::kFold, .fold = {&made, m.value, m.squares, axes_along(made.varies), from, to}};
}

/// Which of the indices the gather reads: those of one place, and of as many places, are one.
size_t Layout::index_of(const Instruction& gather) {
  const auto argument = [&](const Instruction& g) { return at(g.inputs[0]).array.argument; };
  for (size_t i = 0; i < out_.indices.size(); ++i) {
    const Instruction& other = *out_.indices[i];
    if (argument(other) == argument(gather) && other.gather.size == gather.gather.size &&
        other.gather.index_offset == gather.gather.index_offset &&
        other.gather.index_shape == gather.gather.index_shape)
      return i;
  }
  out_.indices.push_back(&gather);
  return out_.indices.size() - 1;
}

Stage Layout::pick_of(int value) {
  const Instruction& made = at(value);
  const Home& to = homes_[static_cast<size_t>(value)];
  return {.kind = Stage::Kind::kPick, .pick = {&made, axes_along(made.varies), index_of(made), to}};
}

void Layout::add_stages() {
  for (size_t i = 0; i < p_.code.size(); ++i) {
    if (p_.code[i].kind != Kind::kGather) continue;
    const int value = static_cast<int>(i);
    (is_shared(stand_of(value)) ? out_.shared : out_.blocked).push_back(pick_of(value));
  }
  for (int phase = 0; phase <= p_.phases; ++phase) {
    for (const auto& [s, values] : passes_) {
      if (s.phase != phase) continue;
      Stage made = pass_of(s);
      if (made.pass.outputs.empty()) continue;
      (is_shared(s) ? out_.shared : out_.blocked).push_back(std::move(made));
    }
    for (size_t i = 0; i < p_.code.size(); ++i) {
      const Instruction& made = p_.code[i];
      if (made.kind != Kind::kReduce || made.phase != phase) continue;
      (blocked_ ? out_.blocked : out_.shared).push_back(fold_of(static_cast<int>(i)));
    }
  }
}

}  // namespace

CpuLayout lay_out(const Program& program) { return Layout(program).run(); }

}  // namespace tenor::fusion
