#include "src/core/resample.h"

#include <algorithm>

namespace tenor::core {

int64_t resample_width(const ResampleAxis& a, bool transposed) {
  const double step = resample_step(a), reach = resample_reach(a.kind) * (a.antialias ? std::max(step, 1.0) : 1.0);
  const double pace = a.kind == ResampleKind::kArea ? static_cast<double>(a.in) / static_cast<double>(a.out) : step;
  const int fixed = fixed_taps(a);
  if (!transposed) {
    if (fixed) return fixed;
    const double taps = a.kind == ResampleKind::kArea ? std::ceil(pace) + 1
                        : a.antialias                 ? std::ceil(2 * reach) + 1
                                                      : 2 * reach;
    return taps < static_cast<double>(a.in) ? static_cast<int64_t>(taps) : a.in;
  }
  // Positions from which a source is read span so much (linear taps stay at 0 for half a position before it); one
  // output more, because positions are rounded.
  const double span = fixed                           ? fixed + (a.kind == ResampleKind::kLinear ? 0.5 : 0.0)
                      : a.kind == ResampleKind::kArea ? 1 + pace
                                                      : 2 * reach + (a.antialias ? 1 : 0);
  if (!(pace > 0)) return a.out;
  const double readers = std::ceil(span / pace) + 1;
  return readers < static_cast<double>(a.out) ? static_cast<int64_t>(readers) : a.out;
}

namespace {

void fill_forward(const ResampleAxis& a, ResampleTable& table) {
  for (int64_t i = 0; i < a.out; ++i) {
    const ResampleTaps t = resample_taps(a, i);
    table.first.push_back(t.first);
    table.count.push_back(t.count);
    for (int64_t k = 0; k < t.count; ++k) table.weight[static_cast<size_t>(i * table.width + k)] = tap_weight(a, t, k);
  }
}

/// One pass over the outputs: the readers of j are neighbours, so their weights arrive in order.
void fill_transposed(const ResampleAxis& a, ResampleTable& table) {
  table.first.assign(static_cast<size_t>(a.in), a.out);
  table.count.assign(static_cast<size_t>(a.in), 0);
  for (int64_t i = 0; i < a.out; ++i) {
    const ResampleTaps t = resample_taps(a, i);
    for (int64_t k = 0; k < t.count; ++k) {
      const int64_t j = clamp_index(t.first + k, a.in);
      const auto row = static_cast<size_t>(j);
      if (table.count[row] == 0) table.first[row] = i;
      const int64_t place = i - table.first[row];
      table.count[row] = place + 1;
      table.weight[static_cast<size_t>(j * table.width + place)] += tap_weight(a, t, k);
    }
  }
}

}  // namespace

ResampleTable resample_table(const ResampleAxis& a, bool transposed) {
  ResampleTable table;
  table.rows = transposed ? a.in : a.out;
  table.others = transposed ? a.out : a.in;
  table.width = resample_width(a, transposed);
  table.weight.assign(static_cast<size_t>(table.rows * table.width), 0.0);
  if (transposed)
    fill_transposed(a, table);
  else
    fill_forward(a, table);
  return table;
}

}  // namespace tenor::core
