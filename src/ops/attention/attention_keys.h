// Keys and values as runs of rows, wherever they lie: in one piece, or in the pages of a cache.
#pragma once

#include "src/ops/attention/attention_problem.h"

namespace tenor::attn {

/// Rows of one key head at one stride: element c of row i is from[i * row + c * col].
struct Rows {
  const void* from;
  int64_t row, col;
};

/// Keys that query i of a segment sees, its shift and first key taken into account.
inline KeyRange seen_keys(const Problem& p, const Segment& s, int64_t i) {
  const KeyRange range = visible_keys(p, s, i + s.shift);
  const int64_t begin = std::max(range.begin, s.first);
  return {begin, std::max(begin, range.end)};
}

/// Keys j .. j + n - 1 (values, for value_rows), n > 0. Rows that do not lie in one run, or are made of two parts, are
/// copied to `buffer`, which holds gathered_bytes(). Table entries of other keys are not read.
Rows key_rows(const Problem& p, const Segment& s, int64_t kv_head, int64_t j, int64_t n, void* buffer);
Rows value_rows(const Problem& p, const Segment& s, int64_t kv_head, int64_t j, int64_t n, void* buffer);
/// What n rows of keys or of values need; 0 for a problem whose keys lie in one piece.
int64_t gathered_bytes(const Problem& p, int64_t n);

}  // namespace tenor::attn
