// Runs a laid-out kernel: indices of gathers are checked, then shared stages once, then blocks of rows on all threads.
// Reductions are the eager operator's own (reduce::run_cpu) on a block, whose bits do not depend on the rows beside.
#include "src/fusion/cpu_kernel.h"

#include <algorithm>
#include <cstdlib>

#include "src/cpu/parallel.h"
#include "src/fusion/cpu_layout.h"
#include "src/fusion/cpu_pick.h"
#include "src/ops/index/index_check.h"

namespace tenor::fusion {
namespace {

constexpr int64_t kMostHeld = int64_t{4} << 20;  // bytes of scratch that a thread keeps

/// A thread's scratch for blocks of kMostHeld bytes at most.
char* thread_scratch(int64_t bytes) {
  struct Free {
    void operator()(char* p) const { std::free(p); }
  };
  thread_local std::unique_ptr<char, Free> memory;
  thread_local int64_t held = 0;
  if (held < bytes) {
    held = 0;  // also where there is no memory for more
    memory.reset(static_cast<char*>(std::aligned_alloc(64, static_cast<size_t>((bytes + 63) / 64 * 64))));
    if (!memory) throw OutOfMemoryError("fuse: no memory for a block of rows");
    held = bytes;
  }
  return memory.get();
}

/// Memory of a run, and the part of the iteration space at hand.
struct Frame {
  const std::vector<void*>& arguments;
  char* shared = nullptr;
  char* block = nullptr;
  Dims first = {}, sizes = {};                   // of each axis
  const std::vector<Tensor>* indices = nullptr;  // of gathers, as places
};

class CpuKernel final : public Executable {
 public:
  explicit CpuKernel(const Program& program) : program_(program), layout_(lay_out(program_)) {}

  void run(const std::vector<void*>& arguments, int& failed) const override {
    Frame frame{arguments};
    const std::vector<Tensor> indices = checked_indices(arguments, failed);
    frame.indices = &indices;
    Tensor scratch;
    if (layout_.shared_bytes > 0) {
      scratch = Tensor::empty({layout_.shared_bytes}, uint8);
      frame.shared = scratch.data<char>();
    }
    frame.first = Dims(program_.axes.size(), 0);
    for (const Axis& axis : program_.axes) frame.sizes.push_back(axis.size);
    for (const Stage& stage : layout_.shared) run(stage, frame);
    if (layout_.blocked.empty()) return;
    // Few blocks: the threads share each of them.
    if (layout_.blocks < num_threads()) {
      const Tensor block = layout_.block_bytes > 0 ? Tensor::empty({layout_.block_bytes}, uint8) : Tensor();
      frame.block = block.defined() ? block.data<char>() : nullptr;
      return run_blocks(0, layout_.blocks, frame);
    }
    cpu::parallel_for(layout_.blocks, cpu::grain_of(layout_.block_cost), [&](int64_t first, int64_t last) {
      Frame own = frame;
      const Tensor large = layout_.block_bytes > kMostHeld ? Tensor::empty({layout_.block_bytes}, uint8) : Tensor();
      own.block = large.defined() ? large.data<char>() : thread_scratch(layout_.block_bytes);
      run_blocks(first, last, own);
    });
  }

 private:
  /// What gathers read, as places; nothing is written where one is bad.
  std::vector<Tensor> checked_indices(const std::vector<void*>& arguments, int& failed) const {
    std::vector<Tensor> made;
    for (const Instruction* gather : layout_.indices) {
      const Gather& g = gather->gather;
      failed = gather->step;
      const auto& entries = program_.code[static_cast<size_t>(gather->inputs[0])];
      char* first = static_cast<char*>(arguments[static_cast<size_t>(entries.array.argument)]) +
                    g.index_offset * static_cast<int64_t>(item_size(entries.dtype));
      const Tensor index = Tensor::wrap(first, kCpu, entries.dtype, g.index_shape);
      made.push_back(index::checked_indices(g.op, g.argument, index, g.size));
    }
    failed = -1;
    return made;
  }

  void run_blocks(int64_t first, int64_t last, Frame frame) const {
    for (int64_t b = first; b < last; ++b) {
      int64_t rest = b;
      for (size_t n = layout_.order.size(); n-- > 0;) {
        const size_t a = layout_.order[n];
        const int64_t box = layout_.box[a], size = program_.axes[a].size, count = (size + box - 1) / box;
        frame.first[a] = rest % count * box;
        frame.sizes[a] = std::min(box, size - frame.first[a]);
        rest /= count;
      }
      for (const Stage& stage : layout_.blocked) run(stage, frame);
    }
  }

  void* address(int value, const Home& home, const Frame& frame) const {
    const Instruction& made = program_.code[static_cast<size_t>(value)];
    switch (home.kind) {
      case Home::Kind::kShared:
        return frame.shared + home.offset;
      case Home::Kind::kBlock:
        return frame.block + home.offset;
      case Home::Kind::kElement:
        return const_cast<char*>(made.element.data());
      default:
        break;
    }
    int64_t at = home.offset;
    for (size_t a = 0; a < frame.first.size(); ++a) at += frame.first[a] * home.strides[a];
    return static_cast<char*>(frame.arguments[static_cast<size_t>(home.argument)]) +
           at * static_cast<int64_t>(item_size(made.dtype));
  }

  void run(const Stage& stage, const Frame& frame) const {
    if (stage.kind == Stage::Kind::kFold) return run(stage.fold, frame);
    if (stage.kind == Stage::Kind::kPick) return run(stage.pick, frame);
    const Pass& pass = stage.pass;
    cpu::TileProgram tiles = pass.tiles;
    for (size_t a : pass.axes) tiles.shape.push_back(frame.sizes[a]);
    for (size_t i = 0; i < pass.inputs.size(); ++i)
      tiles.inputs[i].data = address(pass.inputs[i].value, pass.inputs[i].home, frame);
    for (size_t i = 0; i < pass.outputs.size(); ++i)
      tiles.outputs[i].data = address(pass.outputs[i].value, pass.outputs[i].home, frame);
    cpu::run_tiles(tiles);
  }

  void run(const Fold& fold, const Frame& frame) const {
    const Reduce& r = fold.made->reduce;
    Dims shape, in, out, dims;
    for (size_t a : fold.kept) {
      shape.push_back(frame.sizes[a]);
      in.push_back(fold.from.strides[a]);
      out.push_back(fold.to.strides[a]);
    }
    const Dims kept = shape;
    for (int axis : r.axes) {
      const auto a = static_cast<size_t>(axis);
      dims.push_back(static_cast<int64_t>(shape.size()));
      shape.push_back(program_.axes[a].size);
      in.push_back(fold.from.strides[a]);
    }
    const int value = static_cast<int>(fold.made - program_.code.data());
    const DType dtype = program_.code[static_cast<size_t>(fold.value)].dtype;
    const Tensor x = Tensor::wrap(address(fold.value, fold.from, frame), kCpu, dtype, shape, in);
    const Tensor to = Tensor::wrap(address(value, fold.to, frame), kCpu, fold.made->dtype, kept, out);
    reduce::run_cpu({r.op, x, to, dims, r.accumulator, r.power, r.correction, fold.squares, true});
  }

  void run(const Pick& p, const Frame& frame) const {
    const Instruction& made = *p.made;
    const Array &table = made.array, &entries = program_.code[static_cast<size_t>(made.inputs[0])].array;
    int64_t from = table.offset, at = entries.offset - made.gather.index_offset;
    PickBlock block{.place_stride = made.gather.stride, .item = item_size(made.dtype)};
    for (size_t a = 0; a < frame.first.size(); ++a)
      from += frame.first[a] * table.strides[a], at += frame.first[a] * entries.strides[a];
    for (size_t a : p.axes) {
      block.shape.push_back(frame.sizes[a]);
      block.table_strides.push_back(table.strides[a]);
      block.index_strides.push_back(entries.strides[a]);
      block.to_strides.push_back(p.to.strides[a]);
    }
    block.table = static_cast<const char*>(frame.arguments[static_cast<size_t>(table.argument)]) +
                  from * static_cast<int64_t>(block.item);
    block.index = (*frame.indices)[p.index].data<int64_t>() + at;
    block.to = static_cast<char*>(address(static_cast<int>(&made - program_.code.data()), p.to, frame));
    pick(block);
  }

  Program program_;
  CpuLayout layout_;
};

}  // namespace

/// Blocks of the kept axes run one after the other, and what varies along fewer of them runs in each: an in-place step
/// would find what it has written.
std::string cpu_declines(const Program& program) {
  const auto is = [](Instruction::Kind kind) { return [kind](const Instruction& i) { return i.kind == kind; }; };
  if (std::none_of(program.code.begin(), program.code.end(), is(Instruction::Kind::kGather))) return {};
  for (const Store& store : program.stores) {
    const bool reads = std::any_of(program.code.begin(), program.code.end(), [&](const Instruction& i) {
      return i.kind == Instruction::Kind::kLoad && i.array.argument == store.array.argument;
    });
    for (size_t a = 0; reads && a < program.axes.size(); ++a)
      if (program.axes[a].size > 1 && !program.axes[a].reduced && store.array.strides[a] == 0)
        return "an in-place step would run again for each block of the rows that are gathered";
  }
  return {};
}

std::shared_ptr<const Executable> make_cpu_kernel(const Program& program) {
  return std::make_shared<CpuKernel>(program);
}

}  // namespace tenor::fusion
