#include "src/cuda/fusion/row_plan.h"

#include <algorithm>
#include <bit>

#include "src/cuda/fusion/writer.h"

namespace tenor::cuda {
namespace {

using fusion::Instruction;

constexpr int kMostWarps = 16;                    // of a row
constexpr int64_t kMostEach = 32;                 // blocks of the order that a warp takes of a row
constexpr int64_t kUsualEach = 4;                 // likewise, where more warps would do as well
constexpr int64_t kManyWarps = 4096;              // that keep a device busy
constexpr int64_t kMostHeldBytes = 256;           // of a thread
constexpr int kWideningThreads = 768;             // of a multiprocessor, of kernels that widen what they keep
constexpr int64_t kMostChunks = 32 * kMostWarps;  // thread blocks of a row: a part for each thread of the last
constexpr int64_t kUsualChunks = 528;             // thread blocks that keep a device busy

int64_t power_above(int64_t n) { return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(n))); }
size_t at(int i) { return static_cast<size_t>(i); }

}  // namespace

bool shares_rows(const Walk& walk) {
  return walk.length() > kOrderBlock * kMostWarps * kMostEach || (walk.rows() < 64 && walk.length() > 8 * kOrderBlock);
}
bool exceeds_rows(const Walk& walk) { return walk.length() > kOrderBlock * kMostWarps * kMostEach * kMostChunks; }

RowPlan::RowPlan(const fusion::Program& program, const Walk& walk, const Passes& steps, const FusedOptions& options)
    : width(vector_width(program, walk, true, options.most_width)), program_(program), walk_(walk), steps_(steps) {
  find_last_uses();
  if (shares_rows(walk))
    share_rows();
  else
    choose_threads(options);
}

std::string RowPlan::layout() const {
  if (chunks > 1) return joined("rows of ", walk_.length(), " shared by ", chunks, " thread blocks");
  return joined("rows of ", walk_.length(), held ? " held by " : " read again by each pass of ",
                warps > 1 ? joined(warps, " warps") : joined(lanes, " lanes"));
}

void RowPlan::find_last_uses() {
  last_use_.assign(program_.code.size(), 0);
  for (int i = 0; i < steps_.count(); ++i)
    for (int input : steps_.code(i).inputs) last_use_[at(input)] = std::max(last_use_[at(input)], steps_.first(i));
  for (const fusion::Store& s : program_.stores)
    if (steps_.in_row(s.value)) last_use_[at(s.value)] = steps_.reducing();
  for (int i = steps_.count(); i-- > 0;)
    if (is_made_again(i)) {
      int& last = last_use_[at(steps_.code(i).inputs[0])];
      last = std::max(last, last_use_[at(i)]);
    }
}

/// What a later pass does not find but convert again: from the narrower value, which is there.
bool RowPlan::is_made_again(int i) const {
  const Instruction& in = steps_.code(i);
  return in.kind == Instruction::Kind::kConvert && steps_.in_row(i) &&
         item_size(in.dtype) >= item_size(steps_.code(in.inputs[0]).dtype);
}

bool RowPlan::is_kept(int i) const {
  return steps_.in_row(i) && !steps_.is_reduce(i) && !is_made_again(i) && last_use_[at(i)] > steps_.first(i);
}

/// Of one element, between the passes where most is kept: what a pass uses up makes room for what it makes.
int64_t RowPlan::held_bytes() const {
  int64_t most = 0;
  for (int pass = 0; pass < steps_.reducing(); ++pass) {
    int64_t bytes = 0;
    for (int i = 0; i < steps_.count(); ++i)
      if (is_kept(i) && steps_.first(i) <= pass && last_use_[at(i)] > pass)
        bytes += static_cast<int64_t>(item_size(steps_.code(i).dtype));
    most = std::max(most, bytes);
  }
  return most;
}

/// Whether it keeps 32-bit values that it makes of 16-bit arrays: what is under way to it takes half as many registers.
bool RowPlan::widens() const {
  bool widens = false;
  for (int i = 0; i < steps_.count(); ++i) {
    const size_t bytes = item_size(steps_.code(i).dtype);
    if (walk_.array_of[at(i)] < 0)
      widens |= bytes == 4 && is_kept(i);
    else if (steps_.in_row(i) && bytes > 2)
      return false;
  }
  return widens;
}

void RowPlan::choose_threads(const FusedOptions& options) {
  const int64_t length = walk_.length(), count = (length + kOrderBlock - 1) / kOrderBlock, bytes = 32 * held_bytes();
  // Few warps a row, each with many loads under way, as long as there are rows for all multiprocessors.
  const auto needed = [&] { return (count + each - 1) / each; };
  while (each < std::min<int64_t>(count, kUsualEach) && 2 * each * bytes <= kMostHeldBytes &&
         walk_.rows() * needed() / 2 >= kManyWarps)
    each *= 2;
  warps = static_cast<int>(std::min<int64_t>(kMostWarps, power_above(needed())));
  each = power_above((count + warps - 1) / warps);
  lanes = warps > 1 || length > 128 ? 32 : static_cast<int>(power_above((length + 7) / 8));
  rows = warps > 1 ? 1 : kShortThreads / lanes;
  held = options.hold && each * bytes <= kMostHeldBytes;
  full = length == (lanes == 32 ? warps * each * kOrderBlock : int64_t{lanes} * 8) && walk_.rows() % rows == 0;
  const bool keeps_most = held && each * bytes == kMostHeldBytes;
  if (keeps_most && widens()) least_blocks = std::max(1, kWideningThreads / threads());
  if (held && !keeps_most) quotients = 4;
}

/// As many thread blocks as the device takes, each a power of two of the order's blocks.
void RowPlan::share_rows() {
  const int64_t length = walk_.length();
  const auto chunk = [&] { return each * kMostWarps * kOrderBlock; };
  const auto needed = [&] { return (length + chunk() - 1) / chunk(); };
  while (each < kMostEach && (needed() > kMostChunks || needed() * walk_.rows() > kUsualChunks)) each *= 2;
  warps = kMostWarps, lanes = 32, held = false;
  chunks = needed();
  full = length % chunk() == 0;
}

}  // namespace tenor::cuda
