#include "src/ops/reduce/reduce_driver.h"

#include <cstring>

#include "src/core/reduction_order.h"
#include "src/cpu/parallel.h"

namespace tenor::reduce {
namespace {

constexpr int64_t kBlock = core::kReductionBlock;
constexpr int kGroupLevel = 5;                // 2^this blocks are computed by one thread in a go, or fewer
constexpr int64_t kGroup = 1 << kGroupLevel;  // where there are few

bool has_own_accumulator(Pass pass) { return pass == Pass::kMax || pass == Pass::kMin || pass == Pass::kCount; }

/// core::BlockCounter for `width` columns at once.
class Counter {
 public:
  Counter(const Kernels& kernels, int64_t width)
      : kernels_(kernels), width_(width), bytes_(static_cast<size_t>(width) * item_size(kernels.accumulator)) {}

  /// The next 2^level blocks, met already; as many as that, or a multiple, have gone before.
  void push(void* met, int level) {
    const int64_t carry = count_;
    count_ += int64_t{1} << level;
    for (; carry >> level & 1; ++level) {
      kernels_.combine(slot(level), met, width_);
      std::memcpy(met, slot(level), bytes_);
    }
    std::memcpy(slot(level), met, bytes_);
  }
  void finish(void* results) {
    int level = __builtin_ctzll(static_cast<unsigned long long>(count_));
    std::memcpy(results, slot(level), bytes_);
    for (++level; count_ >> level; ++level) {
      if (!(count_ >> level & 1)) continue;
      kernels_.combine(slot(level), results, width_);
      std::memcpy(results, slot(level), bytes_);
    }
  }

 private:
  void* slot(int level) {
    if (slots_.size() <= static_cast<size_t>(level)) slots_.resize(static_cast<size_t>(level) + 1);
    return slots_[static_cast<size_t>(level)].reserve(width_);
  }

  const Kernels& kernels_;
  int64_t width_;
  size_t bytes_;
  int64_t count_ = 0;
  std::vector<Accumulators> slots_;
};

}  // namespace

Reader make_reader(Pass pass, DType x, DType accumulator) {
  const Kernels* direct = kernels(pass, x);
  if (direct && (has_own_accumulator(pass) || direct->accumulator == accumulator ||
                 (accumulator == uint64 && direct->accumulator == int64)))
    return {direct, cpu::Gather(x, x), x, false};
  // Integers meet modulo 2^64, whatever their sign.
  const DType as = accumulator == uint64 && !is_float(x) ? int64 : accumulator;
  return {kernels(pass, as), cpu::Gather(x, as), as, true};
}

Driver::Driver(const Tensor& x, const cpu::ReducedLayout& layout)
    : layout_(layout), data_(static_cast<const char*>(x.raw())), item_(static_cast<int64_t>(item_size(x.dtype()))) {
  const cpu::ReducedLayout::Dim& run = layout.reduced.back();
  // Short runs are better served by tiles of outputs, even through a gather: a row's fixed cost exceeds its work.
  by_rows_ = layout.outputs == 1 || (run.in < layout.inner.in && run.size >= 32);
  short_rows_ = layout.reduced.size() == 1 && run.in == 1 && run.size > 1 && run.size <= core::kReductionLanes &&
                layout.inner.in >= run.size;
}

int64_t Driver::segment_width(int passes, bool converts) const {
  const cpu::ReducedLayout::Dim& inner = layout_.inner;
  const int64_t pieces = 4 * num_threads(), share = (layout_.outers * inner.size + pieces - 1) / pieces;
  if (short_rows_ && passes == 1) return std::min(inner.size, std::clamp<int64_t>(share / 64 * 64, 64, 2048));
  if (by_rows_) {
    const int64_t resident = (256 << 10) / std::max<int64_t>(layout_.count * item_, 1) + 1;
    return std::min({inner.size, share, passes > 1 ? std::min<int64_t>(resident, 64) : 64});
  }
  if (inner.in != 1 || passes > 1) return std::min(inner.size, int64_t{64});
  const int64_t wide = item_ >= 4 ? 1024 : item_ == 2 ? 2048 : 512;
  if (converts) return std::min(inner.size, std::clamp<int64_t>(share * 2 / 64 * 64, 64, 512));
  // Rows are best read in runs of 4 kilobytes; of one kilobyte of 16-bit elements, which keeps their accumulators as
  // small as float32's, memory gave half as much. Threads share the blocks where there are enough, else the columns:
  // two segments a thread, or one where that keeps runs long.
  if (blocks() >= 2 * num_threads()) return std::min(inner.size, wide);
  const int64_t width = share * 2 >= wide / 2 ? share * 2 : std::min(share * 4, wide / 2);
  return std::min(inner.size, std::clamp<int64_t>(width / 64 * 64, 64, wide));
}

void Driver::gather_row(const Reader& reader, int64_t in, int64_t begin, int64_t end, void* buffer) const {
  const std::vector<cpu::ReducedLayout::Dim>& dims = layout_.reduced;
  const int64_t column = dims.back().in, row = dims.size() > 1 ? dims[dims.size() - 2].in : 0;
  const size_t item = item_size(reader.dtype);
  cpu::for_planes(layout_, begin, end, [&](int64_t offset, int64_t first, int64_t rows, int64_t n) {
    reader.gather(data(in + offset), {rows, n, row, column},
                  static_cast<char*>(buffer) + static_cast<size_t>(first - begin) * item);
  });
}

void Driver::rows_blocks(const Reader& reader, const cpu::Segment& s, int64_t first, int64_t last, const void* shifts,
                         double power, char* results) const {
  const Kernels& k = *reader.kernels;
  const size_t step = item_size(k.accumulator), item = item_size(reader.dtype);
  const bool direct = !reader.converts && dense_rows();
  if (direct) {
    const int64_t begin = first * kBlock, end = std::min(last * kBlock, layout_.count);
    for (int64_t b = begin; b < end; b += kBlock, results += static_cast<size_t>(s.width) * step)
      k.rows(data(s.in + b), layout_.inner.in, s.width, std::min(kBlock, end - b), shifts, power, results);
    return;
  }
  const int64_t begin = first * kBlock, end = std::min(last * kBlock, layout_.count);
  const auto [run, run_step, unused] = layout_.reduced.back();
  if (k.runs && !reader.converts && !shifts && run_step == 1 && run % core::kReductionLanes == 0)
    return runs_blocks(reader, s, begin, end, power, results);
  thread_local std::vector<double> memory;
  if (memory.size() < static_cast<size_t>(end - begin)) memory.resize(static_cast<size_t>(end - begin));
  for (int64_t r = 0; r < s.width; ++r) {
    const void* shift = shifts ? static_cast<const char*>(shifts) + static_cast<size_t>(r) * step : nullptr;
    gather_row(reader, s.in + r * layout_.inner.in, begin, end, memory.data());
    for (int64_t b = begin; b < end; b += kBlock)
      k.rows(reinterpret_cast<const char*>(memory.data()) + static_cast<size_t>(b - begin) * item, 0, 1,
             std::min(kBlock, end - b), shift, power,
             results + static_cast<size_t>((b - begin) / kBlock * s.width + r) * step);
  }
}

void Driver::runs_blocks(const Reader& reader, const cpu::Segment& s, int64_t begin, int64_t end, double power,
                         char* results) const {
  const Kernels& k = *reader.kernels;
  const size_t step = item_size(k.accumulator);
  thread_local Accumulators accumulators;
  char* lanes = static_cast<char*>(accumulators.reserve(core::kReductionLanes * s.width));
  for (int64_t b = begin; b < end; b += kBlock) {
    const int64_t stop = std::min(b + kBlock, end);
    k.start(lanes, core::kReductionLanes * s.width);
    cpu::for_runs(layout_, b, stop, [&](int64_t offset, int64_t, int64_t n) {
      k.runs(data(s.in + offset), layout_.inner.in, s.width, n, power, lanes);
    });
    for (int64_t r = 0; r < s.width; ++r, results += step) {
      void* own = lanes + static_cast<size_t>(r * core::kReductionLanes) * step;
      k.finish(own, stop - b, 1, 1);
      std::memcpy(results, own, step);
    }
  }
}

void Driver::columns_block(const Reader& reader, const cpu::Segment& s, int64_t begin, int64_t end, const void* shifts,
                           double power, void* results) const {
  const Kernels& k = *reader.kernels;
  const int64_t lanes = std::min(end - begin, core::kReductionLanes);
  // Narrow rows lie without gaps in the accumulators, so that dense ones can be folded 32 at a time.
  const int64_t pitch = s.width <= 64 ? s.width : (s.width + 15) / 16 * 16;
  thread_local Accumulators accumulators;
  void* acc = accumulators.reserve(core::kReductionLanes * pitch);
  k.start(acc, lanes * pitch);
  for_column_tiles(reader, s, begin, end, [&](const void* x, int64_t stride, int64_t first, int64_t rows) {
    k.columns(x, stride, rows, first - begin, s.width, shifts, power, acc, pitch);
  });
  k.finish(acc, end - begin, s.width, pitch);
  std::memcpy(results, acc, static_cast<size_t>(s.width) * item_size(k.accumulator));
}

void Driver::reduce_blocks(const Reader& reader, const cpu::Segment& s, int64_t first, int64_t last, const void* shifts,
                           double power, void* results) const {
  char* to = static_cast<char*>(results);
  if (takes_short_rows(reader, shifts))
    return reader.kernels->short_rows(data(s.in), layout_.inner.in, s.width, layout_.count, power, results);
  if (by_rows_) return rows_blocks(reader, s, first, last, shifts, power, to);
  for (int64_t b = first; b < last; ++b, to += static_cast<size_t>(s.width) * item_size(reader.kernels->accumulator))
    columns_block(reader, s, b * kBlock, std::min((b + 1) * kBlock, layout_.count), shifts, power, to);
}

void Driver::reduce(const Reader& reader, const cpu::Segment& s, const void* shifts, double power, bool parallel,
                    void* results) const {
  const int64_t blocks = this->blocks();
  if (blocks == 0) return reader.kernels->start(results, s.width);
  if (blocks == 1) return reduce_blocks(reader, s, 0, 1, shifts, power, results);
  // Groups of blocks are computed in waves, by all threads or by this one. A whole group meets at once, where it was
  // computed: it is a subtree of the counter's. The groups meet in order.
  const size_t step = static_cast<size_t>(s.width) * item_size(reader.kernels->accumulator);
  int level = kGroupLevel;
  while (parallel && level > 0 && blocks >> level < 2 * num_threads()) --level;
  const int64_t group = int64_t{1} << level, wave = parallel ? 128 * kGroup : kGroup;
  std::vector<char> partial(step * static_cast<size_t>(std::min(wave, blocks)));
  Counter counter(*reader.kernels, s.width);
  for (int64_t start = 0; start < blocks; start += wave) {
    const int64_t stop = std::min(start + wave, blocks), groups = (stop - start + group - 1) / group;
    const auto block = [&](int64_t b) { return partial.data() + static_cast<size_t>(b - start) * step; };
    const auto some = [&](int64_t from, int64_t to) {
      for (int64_t first = start + from * group; first < start + to * group; first += group) {
        const int64_t last = std::min(first + group, stop);
        reduce_blocks(reader, s, first, last, shifts, power, block(first));
        for (int64_t gap = 1; last - first == group && gap < group; gap *= 2)
          for (int64_t b = first; b < last; b += 2 * gap) reader.kernels->combine(block(b), block(b + gap), s.width);
      }
    };
    if (parallel)
      cpu::parallel_for(groups, cpu::grain_of(group * kBlock * s.width * item_), some);
    else
      some(0, groups);
    for (int64_t b = start; b < stop; b += stop - b >= group ? group : 1)
      counter.push(block(b), stop - b >= group ? level : 0);
  }
  counter.finish(results);
}

}  // namespace tenor::reduce
