// A fused program as a kernel walks it: dims merged, and how the elements of each array are fetched.
#pragma once

#include <vector>

#include "src/fusion/program.h"

namespace tenor::cuda {

/// A load or store.
struct WalkArray {
  int argument;
  DType dtype;
  int64_t offset;  ///< in elements
  Dims stride;     ///< one a merged dim
  int index = -1;  ///< of a gather's table: the array whose entries name its places
  int64_t place_stride = 0;
};

struct Walk {
  Dims size;                              ///< of the merged dims: those kept, then those reduced, each slowest first
  int kept = 0;                           ///< how many are kept
  std::vector<WalkArray> arrays;          ///< of loads and gathers, then of stores
  std::vector<int> array_of;              ///< of each instruction that loads or gathers, else -1
  int loads = 0;                          ///< how many of the arrays are loads or gathers
  std::vector<std::vector<bool>> varies;  ///< each instruction along each merged dim

  int ndim() const { return static_cast<int>(size.size()); }
  int64_t rows() const;    ///< product of the kept sizes
  int64_t length() const;  ///< of the others
  bool varies_in_row(int instruction) const;
  /// Whether neighbours along the innermost dim lie side by side in memory.
  bool is_dense(const WalkArray& a) const;
  /// Whether places and offsets need 64 bits.
  bool is_wide() const;
};

Walk walk_of(const fusion::Program& program);

/// Neighbouring elements along the innermost dim that a thread takes at once: as many as make 16 bytes of the smallest
/// dtype in memory, up to `most`, where sizes, strides and alignment allow it. `whole`: the innermost size must be a
/// multiple.
int vector_width(const fusion::Program& program, const Walk& walk, bool whole, int most);

}  // namespace tenor::cuda
