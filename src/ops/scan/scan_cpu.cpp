// Walks a scan over memory: lines in pieces that fit L1, directly where dtype and layout allow, else through a buffer.
#include <algorithm>
#include <cstring>
#include <vector>

#include "src/cpu/gather.h"
#include "src/cpu/parallel.h"
#include "src/cpu/reduced_layout.h"
#include "src/ops/scan/scan_problem.h"

namespace tenor::scan {
namespace {

using cpu::Segment;

/// Elements of a buffered piece.
constexpr int64_t kTile = 8192;
/// Elements of a line that are buffered at a time: a part of a block.
constexpr int64_t kRowPiece = 512;
/// Rows of a buffer lie at most this far apart: not a multiple of 4096 bytes, lest they compete for one cache set.
constexpr int64_t kRowPitch = kScanBlock + 16;

bool is_extreme(Op op) { return op == Op::kMax || op == Op::kMin; }

class Runner {
 public:
  explicit Runner(const Problem& p)
      : p_(p),
        layout_(cpu::make_layout(p.x, {p.dim}, p.out)),
        n_(layout_.count),
        x_step_(layout_.reduced.back().in),
        y_step_(p.out.ndim() == 0 ? 1 : p.out.stride(p.dim)),
        dtype_(p.accumulator == uint64 && !is_extreme(p.op) ? int64 : p.accumulator),
        item_(static_cast<int64_t>(item_size(dtype_))) {
    // Integers meet modulo 2^64, so uint64 is read as int64 where it is not compared.
    const DType from = same_bits(p.x.dtype()) ? dtype_ : p.x.dtype();
    gather_ = cpu::Gather(from, p.accumulator == uint64 && is_float(from) ? uint64 : dtype_);
    const DType to = p.out.dtype() == boolean ? uint8 : p.out.dtype();
    scatter_ = cpu::Scatter(same_bits(to) ? to : dtype_, to);
    reads_ = from == dtype_;
    writes_ = same_bits(p.out.dtype());
    if (!is_extreme(p.op)) kernels_ = p.op == Op::kSum ? &sum_kernels(dtype_) : &kernels(p.op, dtype_);
  }

  void run_all() const {
    if (kernels_ && kernels_->rows && layout_.outputs * 2 <= num_threads() && n_ >= 16 * kScanBlock && splits()) {
      for (int64_t i = 0; i < layout_.outputs; ++i) long_line(cpu::segment(layout_, i, 1));
      return;
    }
    const bool rows = kernels_ && kernels_->rows && n_ >= 16 && takes_rows();
    const int64_t width = rows ? row_width() : column_width();
    const int64_t bytes = 2 * width * n_ * static_cast<int64_t>(item_size(p_.x.dtype()));
    cpu::parallel_for(cpu::segments(layout_, width), cpu::grain_of(bytes), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const Segment s = cpu::segment(layout_, i, width);
        if (rows)
          row_lines(s);
        else if (kernels_)
          column_lines(s);
        else
          extreme_lines(s);
      }
    });
  }

 private:
  bool same_bits(DType d) const {
    return d == dtype_ || (item_size(d) == item_size(dtype_) && !is_float(d) && !is_float(dtype_));
  }
  /// Whether blocks of a line may be computed apart: in sums, and in anything of integers.
  bool splits() const { return p_.op == Op::kSum || dtype_ == int64; }
  bool has_blocks() const { return p_.op == Op::kSum && dtype_ != int64; }

  /// Sums are formed by vectors along a row. Where elements are taken one by one, 16-bit floats are better transposed,
  /// and scanned and rounded by vectors.
  bool takes_rows() const {
    const bool by_vectors = p_.op == Op::kSum || item_size(p_.out.dtype()) != 2;
    return layout_.inner.size < kRowLines || (x_step_ < layout_.inner.in && by_vectors);
  }
  int64_t row_width() const {
    const int64_t share = (layout_.outputs + num_threads() - 1) / num_threads();
    const int64_t most = std::max(2 * kRowLines, p_.op == Op::kSum ? kTile / n_ : 0);  // short lines are many to a call
    return std::min({layout_.inner.size, share, most});
  }
  int64_t column_width() const {
    // Wide tiles keep the prefetchers busy; of lines that lie apart, more than these would compete for one cache set.
    if (layout_.inner.in != 1 || layout_.inner.out != 1) return std::min<int64_t>(layout_.inner.size, 32);
    const int64_t share = layout_.outputs / (2 * num_threads()) / 64 * 64;
    return std::min(layout_.inner.size, std::clamp<int64_t>(share, 64, 512));
  }

  const char* x(int64_t offset) const {
    return static_cast<const char*>(p_.x.raw()) + offset * static_cast<int64_t>(item_size(p_.x.dtype()));
  }
  char* y(int64_t offset) const {
    return static_cast<char*>(p_.out.raw()) + offset * static_cast<int64_t>(item_size(p_.out.dtype()));
  }

  /// How far apart rows lie in a buffer.
  int64_t row_pitch() const { return n_ <= kRowPiece ? n_ : kRowPitch; }
  /// Lines that lie one after another: where the first one's piece is, and how far apart they are.
  struct Lines {
    int64_t in, in_line, out, out_line, count;
  };
  /// n elements of each line. Without `writes`, only the state is wanted.
  void row_piece(const Lines& s, int64_t n, void* state, std::vector<char>& buffer, bool writes = true) const {
    const bool read = reads_ && (x_step_ == 1 || n == 1), write = writes && writes_ && (y_step_ == 1 || n == 1);
    char* b = buffer.data();
    // Whole short lines are dense rows of the buffer; others, pieces further apart.
    const int64_t at_once = n == row_pitch() ? s.count : 1;
    for (int64_t l = 0; !read && l < s.count; l += at_once)
      gather_(x(s.in + l * s.in_line), {at_once, n, s.in_line, x_step_}, b + l * row_pitch() * item_);
    kernels_->rows(read ? x(s.in) : b, read ? s.in_line : row_pitch(), write ? y(s.out) : b,
                   write ? s.out_line : row_pitch(), n, s.count, state);
    for (int64_t l = 0; writes && !write && l < s.count; l += at_once)
      scatter_(b + l * row_pitch() * item_, y(s.out + l * s.out_line), {at_once, n, s.out_line, y_step_});
  }

  /// Long sums take one line after another; what takes elements one by one, kRowLines together.
  void row_lines(const Segment& s) const {
    const bool direct = reads_ && writes_ && x_step_ == 1 && y_step_ == 1;
    const int64_t piece = direct ? kScanBlock : kRowPiece, together = p_.op == Op::kSum && n_ > piece ? 1 : s.width;
    std::vector<char> state(static_cast<size_t>(2 * together * item_)),
        buffer(direct ? 0 : static_cast<size_t>(together * row_pitch() * item_));
    const int64_t in_line = layout_.inner.in, out_line = layout_.inner.out;
    for (int64_t l = 0; l < s.width; l += together) {
      kernels_->start(state.data(), together);
      for (int64_t begin = 0; begin < n_; begin += piece) {
        if (has_blocks() && begin % kScanBlock == 0) kernels_->next_block(state.data(), together);
        row_piece(
            {s.in + l * in_line + begin * x_step_, in_line, s.out + l * out_line + begin * y_step_, out_line, together},
            std::min(piece, n_ - begin), state.data(), buffer);
      }
    }
  }

  void column_lines(const Segment& s) const {
    const bool direct = reads_ && writes_ && (s.width == 1 || (layout_.inner.in == 1 && layout_.inner.out == 1));
    // A piece is made of whole groups and does not cross a block.
    const int64_t groups = std::clamp<int64_t>(kTile / s.width / kScanGroup, 1, kScanBlock / kScanGroup);
    const int64_t most = direct ? kScanBlock : groups * kScanGroup;
    std::vector<char> state(static_cast<size_t>(2 * s.width * item_)),
        buffer(direct ? 0 : static_cast<size_t>(std::min(most, n_) * s.width * item_));
    kernels_->start(state.data(), s.width);
    for (int64_t begin = 0, n; begin < n_; begin += n) {
      if (has_blocks() && begin % kScanBlock == 0) kernels_->next_block(state.data(), s.width);
      n = std::min({most, n_ - begin, kScanBlock - begin % kScanBlock});
      const void* from = x(s.in + begin * x_step_);
      void* to = y(s.out + begin * y_step_);
      if (direct) {
        kernels_->columns(from, x_step_, to, y_step_, n, s.width, state.data());
        continue;
      }
      gather_(from, {n, s.width, x_step_, layout_.inner.in}, buffer.data());
      kernels_->columns(buffer.data(), s.width, buffer.data(), s.width, n, s.width, state.data());
      scatter_(buffer.data(), to, {n, s.width, y_step_, layout_.inner.out});
    }
  }

  void extreme_lines(const Segment& s) const {
    const ExtremeFn fold = extreme_kernel(p_.op == Op::kMax, dtype_);
    const int64_t most = std::max<int64_t>(kTile / s.width, 1);
    const auto cells = static_cast<size_t>(std::min(most, n_) * s.width);
    std::vector<char> state(static_cast<size_t>(s.width * item_)), values(cells * static_cast<size_t>(item_)),
        results(values.size());
    std::vector<int64_t> places(cells), at(static_cast<size_t>(s.width));
    const cpu::Scatter place(int64, int64);
    for (int64_t begin = 0; begin < n_; begin += most) {
      const int64_t n = std::min(most, n_ - begin), to = s.out + begin * y_step_;
      gather_(x(s.in + begin * x_step_), {n, s.width, x_step_, layout_.inner.in}, values.data());
      fold(values.data(), results.data(), places.data(), n, s.width, begin, state.data(), at.data());
      const cpu::Tile tile{n, s.width, y_step_, layout_.inner.out};
      scatter_(results.data(), y(to), tile);
      place(places.data(), p_.indices.data<int64_t>() + to, tile);
    }
  }

  /// One line over all threads: the blocks' totals, what precedes each block, then the blocks again from there.
  void long_line(const Segment& line) const {
    const size_t item = static_cast<size_t>(item_);
    const int64_t blocks = (n_ + kScanBlock - 1) / kScanBlock;
    std::vector<char> totals(static_cast<size_t>(blocks) * item), before(totals.size()), carry(2 * item);
    cpu::parallel_for((blocks + kRowLines - 1) / kRowLines, 4, [&](int64_t begin, int64_t end) {
      for (int64_t g = begin; g < end; ++g) block_group(line, g * kRowLines, nullptr, totals.data());
    });
    kernels_->start(carry.data(), 1);
    for (size_t b = 0; b < static_cast<size_t>(blocks); ++b) {
      std::memcpy(before.data() + b * item, carry.data(), item);
      std::memcpy(carry.data() + item, totals.data() + b * item, item);
      kernels_->next_block(carry.data(), 1);
    }
    cpu::parallel_for((blocks + kRowLines - 1) / kRowLines, 4, [&](int64_t begin, int64_t end) {
      for (int64_t g = begin; g < end; ++g) block_group(line, g * kRowLines, before.data(), nullptr);
    });
  }

  /// Blocks first .. first + kRowLines - 1 of a line, as lines: writes their totals, or, from what precedes them, their
  /// results.
  void block_group(const Segment& line, int64_t first, const char* before, char* totals) const {
    const size_t item = static_cast<size_t>(item_);
    std::vector<char> state(2 * kRowLines * item), buffer(static_cast<size_t>(kRowLines * kRowPitch) * item);
    const int64_t start = first * kScanBlock, whole = std::min(kRowLines, (n_ - start) / kScanBlock);
    const auto some = [&](int64_t from, int64_t lines, int64_t n) {
      const size_t bytes = static_cast<size_t>(lines) * item, at = static_cast<size_t>(from / kScanBlock) * item;
      kernels_->start(state.data(), lines);
      if (before) std::memcpy(state.data(), before + at, bytes);
      row_piece(
          {line.in + from * x_step_, kScanBlock * x_step_, line.out + from * y_step_, kScanBlock * y_step_, lines}, n,
          state.data(), buffer, before != nullptr);
      if (totals) std::memcpy(totals + at, state.data() + bytes, bytes);
    };
    if (whole > 0) some(start, whole, kScanBlock);
    const int64_t tail = start + whole * kScanBlock;
    if (whole < kRowLines && tail < n_) some(tail, 1, n_ - tail);
  }

  const Problem& p_;
  cpu::ReducedLayout layout_;
  int64_t n_, x_step_, y_step_;
  DType dtype_;  // of the kernel
  int64_t item_;
  cpu::Gather gather_;
  cpu::Scatter scatter_;
  bool reads_ = false, writes_ = false;  // x, out have the kernel's dtype
  const Kernels* kernels_ = nullptr;
};

}  // namespace

void run_cpu(const Problem& problem) {
  if (problem.out.numel() != 0) Runner(problem).run_all();
}

}  // namespace tenor::scan
