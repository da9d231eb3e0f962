// How the threads of a kernel share rows, and what they keep of them between its passes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/cuda/fusion/generate.h"
#include "src/cuda/fusion/passes.h"

namespace tenor::cuda {

inline constexpr int64_t kOrderBlock = 1024;  ///< elements of a block of the reduction order

/// Few rows, or long ones: several thread blocks share each.
bool shares_rows(const Walk& walk);
/// Whether rows are too long even so.
bool exceeds_rows(const Walk& walk);

class RowPlan {
 public:
  RowPlan(const fusion::Program& program, const Walk& walk, const Passes& steps, const FusedOptions& options);

  /// Whether the thread keeps value i between passes.
  bool is_held(int i) const { return held && is_kept(i); }
  /// Threads of a block.
  int threads() const { return warps > 1 ? 32 * warps : kShortThreads; }
  /// Thread blocks of the kernel.
  int64_t blocks() const { return chunks * ((walk_.rows() + rows - 1) / rows); }
  /// "rows of 8192 held by 8 warps".
  std::string layout() const;

  int width = 1;         ///< neighbours that a thread takes at once
  int warps = 1;         ///< of a row
  int lanes = 32;        ///< of a row, where it has one warp or a part of it
  int64_t each = 1;      ///< blocks of the order that a warp takes of a row
  int64_t rows = 1;      ///< of a thread block
  int64_t chunks = 1;    ///< thread blocks of a row
  bool held = true;      ///< what later passes need stays in registers
  bool full = false;     ///< every pack of every thread is there: nothing to ask for
  int least_blocks = 0;  ///< thread blocks that a multiprocessor has registers for at least; 0: the compiler decides
  int quotients = 8;     ///< of a thread at once

 private:
  static constexpr int kShortThreads = 128;  // of a thread block of several rows

  void find_last_uses();
  bool is_made_again(int i) const;
  bool is_kept(int i) const;
  int64_t held_bytes() const;
  bool widens() const;
  void choose_threads(const FusedOptions& options);
  void share_rows();

  const fusion::Program& program_;
  const Walk& walk_;
  const Passes& steps_;
  std::vector<int> last_use_;  // the last pass that needs each value
};

}  // namespace tenor::cuda
