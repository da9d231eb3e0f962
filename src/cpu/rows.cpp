#include "src/cpu/rows.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "src/cpu/move.h"

namespace tenor::cpu {
namespace {

constexpr int64_t kBlockBytes = 128 << 10;  // work of one kernel call, where rows are short
// Bytes of all elements, widened, for which a team of threads is woken, some 5 us of one thread's work (waking 16 takes
// 4), and the least that one of a woken team is given.
constexpr int64_t kTeamBytes = 96 << 10, kThreadBytes = 8 << 10;
constexpr int64_t kGatherBytes = 1 << 20;   // of strided rows gathered at a time, where that is more than a cache line
constexpr int64_t kScratchBytes = 4 << 20;  // the most that strided rows gather at a time, beyond one row
constexpr int64_t kCutElements = 16384;     // a piece of a row that may be cut
constexpr int64_t kTransposed = 128;        // elements of each row transposed at a time
constexpr int64_t kLine = 64;

/// One loop of a strided copy, in bytes.
struct CopyDim {
  int64_t size, from, to;
};

template <class T>
void copy_dims(const char* from, char* to, const CopyDim* dims, size_t count) {
  if (count == 0) {
    std::memcpy(to, from, sizeof(T));
  } else if (count == 1) {
    for (int64_t i = 0; i < dims->size; ++i)
      *reinterpret_cast<T*>(to + i * dims->to) = *reinterpret_cast<const T*>(from + i * dims->from);
  } else {
    for (int64_t i = 0; i < dims->size; ++i)
      copy_dims<T>(from + i * dims->from, to + i * dims->to, dims + 1, count - 1);
  }
}

/// Copies along those loops, the finest stride of the strided side innermost. A plane that lies transposed goes through
/// registers.
void copy_strided(int64_t item, const char* from, char* to, const std::vector<CopyDim>& dims) {
  const bool plane = dims.size() == 2, gather = plane && dims[1].from == item && dims[0].to == item;
  if (gather || (plane && dims[1].to == item && dims[0].from == item)) {
    // Piece by piece, since each call prefetches all that it will read.
    for (int64_t start = 0; start < dims[0].size; start += kTransposed) {
      const int64_t n = std::min(kTransposed, dims[0].size - start);
      const char* src = from + start * dims[0].from;
      char* dst = to + start * dims[0].to;
      if (gather) {
        transpose_plane(static_cast<size_t>(item), src, dims[0].from / item, dst, dims[1].to / item, dims[1].size, n);
      } else {
        transpose_plane(static_cast<size_t>(item), src, dims[1].from / item, dst, dims[0].to / item, n, dims[1].size);
      }
    }
    return;
  }
  switch (item) {
    case 1:
      return copy_dims<uint8_t>(from, to, dims.data(), dims.size());
    case 2:
      return copy_dims<uint16_t>(from, to, dims.data(), dims.size());
    case 4:
      return copy_dims<uint32_t>(from, to, dims.data(), dims.size());
    default:
      return copy_dims<uint64_t>(from, to, dims.data(), dims.size());
  }
}

/// Memory of one thread, aligned to a cache line.
struct Scratch {
  explicit Scratch(int64_t bytes)
      : data(bytes > 0 ? std::aligned_alloc(kLine, static_cast<size_t>(bytes + kLine - 1) / kLine * kLine) : nullptr) {
    if (bytes > 0 && !data) throw OutOfMemoryError("no memory to gather strided rows in");
  }
  ~Scratch() { std::free(data); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  void* data;
};

}  // namespace

/// The walk with its dims merged where all operands allow it, cut into units of one kernel call each.
class RowPlan {
 public:
  explicit RowPlan(const RowWalk& walk) : walk_(walk), strides_(walk.operands_.size()) {
    const int outer = static_cast<int>(walk.shape_.size()) - walk.row_dims_;
    for (int d = 0; d < outer; ++d) merge(d, 0);
    row_start_ = sizes_.size();
    for (int d = outer; d < static_cast<int>(walk.shape_.size()); ++d) merge(d, row_start_);
    for (size_t d = row_start_; d < sizes_.size(); ++d) length_ *= sizes_[d];
    inner_ = row_start_ > 0 ? sizes_[row_start_ - 1] : 1;
    for (size_t d = 0; d + 1 < row_start_; ++d) rest_ *= sizes_[d];
    for (size_t k = 0; k < strides_.size(); ++k) dense_.push_back(is_dense(k));
    cut_into_units();
  }

  void run(FunctionRef<void(const RowBlock&)> kernel) const {
    const int64_t units = rest_ * blocks_ * pieces_, cost = rows_ * piece_ * wide_bytes();
    const auto some = [&](int64_t begin, int64_t end) {
      const Scratch scratch(scratch_bytes());
      for (int64_t u = begin; u < end; ++u) run_unit(u, static_cast<char*>(scratch.data), kernel);
    };
    if (units * cost < kTeamBytes) return some(0, units);
    parallel_for(units, std::max<int64_t>(1, kThreadBytes / cost), some);
  }

 private:
  const RowWalk::Operand& operand(size_t k) const { return walk_.operands_[k]; }

  /// Appends dim d, or folds it into the dim before (not before `floor`) when every operand steps evenly across both.
  void merge(int d, size_t floor) {
    const int64_t size = walk_.shape_[d];
    if (size == 1) return;
    bool even = sizes_.size() > floor;
    for (size_t k = 0; even && k < strides_.size(); ++k) even = strides_[k].back() == operand(k).strides[d] * size;
    if (even) {
      sizes_.back() *= size;
      for (size_t k = 0; k < strides_.size(); ++k) strides_[k].back() = operand(k).strides[d];
    } else {
      sizes_.push_back(size);
      for (size_t k = 0; k < strides_.size(); ++k) strides_[k].push_back(operand(k).strides[d]);
    }
  }

  bool is_dense(size_t k) const {
    int64_t step = operand(k).item;
    for (size_t d = sizes_.size(); d-- > row_start_; step *= sizes_[d])
      if (strides_[k][d] != step) return false;
    return true;
  }

  /// Elements that lie side by side within a row.
  int64_t unit_run(size_t k) const {
    for (size_t d = row_start_; d < sizes_.size(); ++d)
      if (strides_[k][d] == operand(k).item) return sizes_[d];
    return 1;
  }
  /// Rows to gather at once: whole cache lines' worth of neighbouring rows, up to four lines while they stay in cache.
  int64_t rows_to_gather(size_t k, int64_t row_bytes, int64_t share) const {
    const int64_t line = std::max<int64_t>(1, kLine / operand(k).item / unit_run(k));
    // Rows without a gap between them would meet in few cache sets: one line is the better width for those.
    const int64_t most = unit_run(k) > 1 ? line : 4 * line;
    const int64_t wide = std::max(line, std::min({most, share, kGatherBytes / row_bytes}));
    return std::min(wide, std::max<int64_t>(1, kScratchBytes / row_bytes));
  }

  /// Of an element of all operands, as they are computed with: of 16-bit ones the conversions cost what traffic they
  /// save.
  int64_t wide_bytes() const {
    int64_t bytes = 0;
    for (const auto& o : walk_.operands_) bytes += std::max<int64_t>(o.item, 4);
    return bytes;
  }
  int64_t row_item_bytes() const {
    int64_t bytes = 0;
    for (const auto& o : walk_.operands_) bytes += o.item;
    return bytes;
  }

  void cut_into_units() {
    const bool one_dim = sizes_.size() <= row_start_ + 1;
    piece_ = walk_.rows_ == RowWalk::Rows::kMayBeCut && one_dim ? std::min(length_, kCutElements) : length_;
    pieces_ = (length_ + piece_ - 1) / piece_;
    const int64_t row_bytes = std::max<int64_t>(1, piece_ * row_item_bytes());
    // Few enough rows a unit that every thread finds work, and a block's data stays in cache.
    const int64_t share = (rest_ * inner_ * pieces_ + 4 * num_threads() - 1) / (4 * num_threads());
    int64_t rows = std::max<int64_t>(1, std::min(kBlockBytes / row_bytes, share));
    for (size_t k = 0; k < dense_.size(); ++k)
      if (!dense_[k]) rows = std::max(rows, rows_to_gather(k, row_bytes, share));
    rows_ = std::min(rows, inner_);
    blocks_ = (inner_ + rows_ - 1) / rows_;
  }

  /// Bytes from row to row of a gathered operand: an odd count of cache lines, so that rows do not share cache sets;
  /// without a gap where rows interleave with a dim of their own, so that both move as one plane.
  int64_t pitch(size_t k) const {
    const int64_t bytes = piece_ * operand(k).item;
    return unit_run(k) > 1 ? bytes : ((bytes + kLine - 1) / kLine | 1) * kLine;
  }
  int64_t scratch_bytes() const {
    int64_t bytes = 0;
    for (size_t k = 0; k < dense_.size(); ++k) bytes += dense_[k] ? 0 : rows_ * pitch(k);
    return bytes;
  }

  /// The loops that copy a block between an operand (side `from`) and scratch, the operand's finest stride innermost.
  std::vector<CopyDim> copy_dims_of(size_t k, const RowBlock& block) const {
    std::vector<CopyDim> dims;
    if (block.count > 1) dims.push_back({block.count, strides_[k][row_start_ - 1], pitch(k)});
    int64_t step = operand(k).item;
    for (size_t d = sizes_.size(); d-- > row_start_;) {
      const int64_t size = pieces_ > 1 ? block.length : sizes_[d];
      dims.push_back({size, strides_[k][d], step});
      step *= size;
    }
    std::sort(dims.begin(), dims.end(), [](const CopyDim& a, const CopyDim& b) { return a.from > b.from; });
    for (size_t d = dims.size(); d-- > 1;) {  // loops that step evenly on both sides are one
      if (dims[d - 1].from != dims[d].from * dims[d].size || dims[d - 1].to != dims[d].to * dims[d].size) continue;
      dims[d - 1] = {dims[d - 1].size * dims[d].size, dims[d].from, dims[d].to};
      dims.erase(dims.begin() + static_cast<std::ptrdiff_t>(d));
    }
    return dims;
  }

  void run_unit(int64_t unit, char* scratch, FunctionRef<void(const RowBlock&)> kernel) const {
    const int64_t piece = unit % pieces_, start = unit / pieces_ % blocks_ * rows_, rest = unit / pieces_ / blocks_;
    RowBlock block{};
    block.first = rest * inner_ + start;
    block.count = std::min(rows_, inner_ - start);
    block.begin = piece * piece_;
    block.length = std::min(piece_, length_ - block.begin);
    char* lie[kMaxRowOperands];
    for (size_t k = 0; k < strides_.size(); ++k) {
      lie[k] = operand(k).data + offset(k, rest, start, block.begin);
      block.data[k] = lie[k];
      block.step[k] = row_start_ > 0 ? strides_[k][row_start_ - 1] : 0;
      if (dense_[k]) continue;
      block.data[k] = scratch;
      block.step[k] = pitch(k);
      scratch += rows_ * pitch(k);
      if (!operand(k).written) copy_strided(operand(k).item, lie[k], block.data[k], copy_dims_of(k, block));
    }
    kernel(block);
    for (size_t k = 0; k < strides_.size(); ++k) {
      if (dense_[k] || !operand(k).written) continue;
      std::vector<CopyDim> dims = copy_dims_of(k, block);
      for (CopyDim& d : dims) std::swap(d.from, d.to);
      copy_strided(operand(k).item, block.data[k], lie[k], dims);
    }
  }

  int64_t offset(size_t k, int64_t rest, int64_t start, int64_t begin) const {
    int64_t bytes = row_start_ > 0 ? start * strides_[k][row_start_ - 1] : 0;
    for (size_t d = row_start_ > 0 ? row_start_ - 1 : 0; d-- > 0; rest /= sizes_[d])
      bytes += rest % sizes_[d] * strides_[k][d];
    return begin > 0 ? bytes + begin * strides_[k].back() : bytes;
  }

  const RowWalk& walk_;
  Dims sizes_;                 // merged: the dims outside of rows, then, from row_start_, those of a row
  std::vector<Dims> strides_;  // of each operand, bytes
  std::vector<bool> dense_;
  size_t row_start_ = 0;
  int64_t length_ = 1, inner_ = 1, rest_ = 1;  // of a row; rows = rest_ * inner_
  int64_t piece_ = 1, pieces_ = 1, rows_ = 1, blocks_ = 1;
};

void RowWalk::run(FunctionRef<void(const RowBlock&)> kernel) const {
  if (product(shape_) > 0) RowPlan(*this).run(kernel);
}

void RowWalk::add(const Tensor& x, bool written) {
  const auto item = static_cast<int64_t>(item_size(x.dtype()));
  Dims strides = x.strides();
  for (int64_t& s : strides) s *= item;
  operands_.push_back({static_cast<char*>(x.raw()), item, std::move(strides), written});
}

Tensor dim_last(const Tensor& x, int dim) {
  Dims shape = x.shape(), strides = x.strides();
  if (shape.empty()) return x.with_layout({1}, {1}, x.offset());
  shape.erase(dim);
  strides.erase(dim);
  shape.push_back(x.shape(dim));
  strides.push_back(x.stride(dim));
  return x.with_layout(std::move(shape), std::move(strides), x.offset());
}

DenseVector::DenseVector(const Tensor& x, DType compute, double offset) {
  if (!x.defined()) return;
  if (x.dtype() == compute && x.is_contiguous() && offset == 0) {
    keep_ = x;
    data_ = x.raw();
    return;
  }
  const size_t n = static_cast<size_t>(x.numel());
  converted_.resize(n);
  data_ = converted_.data();
  const Tensor dense = x.contiguous();
  Converter(x.dtype(), compute)(dense.raw(), converted_.data(), n);
  if (offset == 0) return;
  const auto shift = [&]<class C>(C* values) {
    for (size_t i = 0; i < n; ++i) values[i] += static_cast<C>(offset);
  };
  compute == float64 ? shift(converted_.data()) : shift(reinterpret_cast<float*>(converted_.data()));
}

}  // namespace tenor::cpu
