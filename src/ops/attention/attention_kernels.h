// The kernels of the CPU's flash strategies, each single-threaded over a block of query rows. C is the compute type:
// double for float64, else float.
//
// The order of every sum is fixed by a row's own problem, so that its bits do not depend on how rows are grouped, keys
// are cut or threads share the work:
//   score(i, j)  one FMA chain over d;
//   row sum      per kSplit keys (by absolute index) the vector's lanes, then their sum, then splits in order, in
//   double; out(i, c)    per kSplit keys one FMA chain over j, then splits in order.
// A hidden key has p = 0 and a finite value, so visiting it changes no bit.
#pragma once

#include "src/ops/attention/attention_keys.h"

namespace tenor::attn {

inline constexpr int64_t kPanel = 64;    // keys that are packed together
inline constexpr int64_t kKeyStep = 32;  // keys that products take together: a row of them ends in whole steps
inline constexpr int64_t kSplit = 1024;  // keys that one partial sum covers

/// A block of query rows that read the same keys: heads [head_begin, head_end) of one key head times queries
/// [row_begin, row_end), with the scratch of its thread. Row r is head head_begin + r / (row_end - row_begin).
struct Block {
  const Problem* problem;
  const Segment* segment;
  int64_t kv_head, head_begin, head_end, row_begin, row_end;
  int64_t key_begin, key_end;  // what any row sees, from a multiple of kPanel to one of kKeyStep
  int64_t stride;              // elements between rows of scores
  int64_t columns;             // value_dim rounded up to a whole vector
  void* query;                 // C [rows + kRowPad, dim]
  void* scores;                // C [rows + kRowPad, stride]: scores, then weights p
  void* part;                  // C [rows + kRowPad, columns]: sums of this split
  void* total;                 // C [rows + kRowPad, columns]: sums of the splits before it
  void* line;                  // C [stride]: one row of bias
  double* top;                 // [rows] largest score; -inf where no key is visible
  double* sum;                 // [rows] of exp(score - top)
  const double* sinks;         // [heads] or null
  const uint8_t* poisoned;     // [key_end - key_begin]: keys whose value holds a NaN or infinity, or null

  int64_t rows() const { return (head_end - head_begin) * (row_end - row_begin); }
  int64_t head(int64_t r) const { return head_begin + r / (row_end - row_begin); }
  int64_t row(int64_t r) const { return row_begin + r % (row_end - row_begin); }
};
inline constexpr int64_t kRowPad = 16;  // rows that tiles may compute beyond the last

/// Operands in the layouts that the products read.
struct Packers {
  /// block.query = q's rows, converted.
  void (*query)(const Block&);
  /// panel = n keys transposed, [dim][kPanel], zeros up to a whole kKeyStep.
  void (*keys)(const Rows& rows, int64_t dim, int64_t n, void* panel);
  /// values = n rows as [kPanel][columns], zeros up to a whole kKeyStep of rows and vector of columns and for every NaN
  /// or infinity, whose keys are marked in `poisoned`. Returns whether there were any.
  bool (*values)(const Rows& rows, int64_t dim, int64_t n, int64_t columns, void* values, uint8_t* poisoned);
};
/// `pairs`: bfloat16 as it is, two elements along the summed dim side by side: query [rows, dim], panel
/// [dim / 2][kPanel] pairs, values [kPanel / 2][columns] pairs.
Packers packers_for(DType dtype, bool pairs);

struct Kernels {
  size_t item;         // sizeof(C)
  size_t packed_item;  // bytes of an element of packed keys and values
  size_t lanes;        // of a vector of C: value rows are padded to it
  int64_t tile_rows;   // rows of a full tile
  Packers pack;
  /// scores[:, j - key_begin ...] = query . panel
  void (*scores)(const Block&, const void* panel, int64_t j);
  /// Scale, softcap, bias, mask, range, then scores = weights p = exp(score - top), top and sum.
  void (*softmax)(const Block&);
  /// part (+)= p[:, j .. j + n - 1] . values; n a multiple of kKeyStep.
  void (*accumulate)(const Block&, const void* values, int64_t j, int64_t n, bool fresh);
  /// total (+)= part, at the end of a split.
  void (*fold)(const Block&, bool fresh);
  /// out = total / (sum + sink), rounded; lse.
  void (*finish)(const Block&);
  /// The weight of row r for the key at that place among the block's.
  double (*weight)(const Block&, int64_t r, int64_t place);
};

/// Adds the NaN and infinities of the values that `poisoned` marks to the totals of the rows that attend them.
void add_poisoned(const Block& block, const Kernels& kernels);

/// The kernels for a problem: this machine's instruction set's, with the products of that unit.
Kernels kernels_for(const Problem& problem, CpuUnit unit);

// Weights for the matrix unit: each 32 keys' floats give way to their values rounded to bfloat16, then to what those
// leave, rounded to bfloat16 too. The sum of two products is then as good as one with weights of 18 bits.

/// Kernels' members on AMX tiles, where cpu::has_amx(), over operands packed as pairs.
void amx_scores(const Block& block, const void* panel, int64_t j);
void amx_accumulate(const Block& block, const void* values, int64_t j, int64_t n, bool fresh);

}  // namespace tenor::attn
