// From a plan and an operator to launches. How lines are shared out depends on sizes alone, and the bits do not depend
// on it.
#pragma once

#include <bit>

#include "src/core/sizes.h"
#include "src/core/visit.h"
#include "src/ops/scan/scan_kernels.cuh"
#include "tenor/tensor.h"

namespace tenor::scan {

using core::div_up;
using core::log_above;

inline unsigned grid_size(const Plan& plan, int64_t blocks) {
  if (blocks > INT32_MAX) throw UnsupportedError(std::string(plan.op) + ": x has more lines than a launch can hold");
  return static_cast<unsigned>(blocks);
}

/// Cuts lines so that about that many thread blocks have work, into powers of two of tiles.
inline void cut(Share& share, int64_t blocks, int64_t count, int64_t least_tiles, int64_t wanted) {
  const int64_t tiles = div_up(count, kTile);
  share.tiles = int64_t{1} << log_above(std::max(tiles, least_tiles));
  share.parts = 1;
  if (2 * blocks >= wanted) return;
  while (share.tiles > least_tiles && (share.tiles > cuda::kScanSpan || blocks * div_up(tiles, share.tiles) < wanted))
    share.tiles /= 2;
  share.parts = static_cast<unsigned>(div_up(tiles, share.tiles));
}

inline Share row_share(const Plan& plan, int run) {
  const Lines& l = plan.lines;
  if (l.count <= run * kWarp / 2) return {log_above(div_up(l.count, run)), 0, 1, 1, nullptr, nullptr};
  Share share{log_above(kWarp), 0, int64_t{1} << log_above(div_up(l.count, kTile)), 1, nullptr, nullptr};
  const int64_t processors = cuda::multiprocessors(plan.device);
  if (l.count <= kTile) return share;
  share.log_sharing = std::min(log_above(div_up(l.count, kTile)), log_above(kWarps));
  cut(share, div_up(l.lines, kWarps >> share.log_sharing), l.count, int64_t{1} << share.log_sharing, 4 * processors);
  return share;
}

inline Share column_share(const Plan& plan) {
  const Lines& l = plan.lines;
  Share share{log_above(kWarp), std::clamp(log_above(l.lines), 3, log_above(kWarp)), 1, 1, nullptr, nullptr};
  cut(share, div_up(l.lines, 1 << share.log_sharing), l.count, 1, 2 * cuda::multiprocessors(plan.device));
  return share;
}

template <class Op>
void run_share(const Plan& plan, const Op& op, Share share, int64_t line_blocks, auto* totals_pass, auto* pass) {
  using A = typename Op::Acc;
  const Lines& l = plan.lines;
  cuda::Grid grid{grid_size(plan, line_blocks * share.parts), kThreads};
  const auto* x = static_cast<const typename Op::In*>(plan.x);
  auto* y = static_cast<typename Op::Out*>(plan.out);
  Tensor totals, spans;
  if (share.parts > 1) {
    const int64_t tiles = div_up(l.count, kTile), span_count = div_up(tiles, cuda::kScanSpan), size = sizeof(A);
    totals = Tensor::empty({tiles * l.lines * size}, uint8, plan.device);
    spans = Tensor::empty({(span_count + 1) * l.lines * size}, uint8, plan.device);
    share.totals = totals.raw();
    share.spans = spans.raw();
    A *before_tiles = static_cast<A*>(share.totals), *before_spans = static_cast<A*>(share.spans);
    cuda::launch(plan.op, totals_pass, grid, plan.device, x, y, plan.indices, op, l, share);
    const auto carries = [&](A* values, A* sums, int64_t steps, int64_t length) {
      const int64_t chains = div_up(steps, length) * l.lines;
      if (l.lines < kWarp)
        cuda::launch(plan.op, staged_carry_kernel<Op>,
                     {.blocks = grid_size(plan, chains), .threads = kThreads, .early = true}, plan.device, op, values,
                     sums, steps, l.lines, length);
      else
        cuda::launch(plan.op, carry_kernel<Op>,
                     {.blocks = grid_size(plan, div_up(chains, kThreads)), .threads = kThreads, .early = true},
                     plan.device, op, values, sums, steps, l.lines, length, chains);
    };
    carries(before_tiles, before_spans, tiles, cuda::kScanSpan);
    carries(before_spans, before_spans + span_count * l.lines, span_count, span_count);
    grid.early = true;
  }
  cuda::launch(plan.op, pass, grid, plan.device, x, y, plan.indices, op, l, share);
}

template <class Op>
void scan_with(const Plan& plan, const Op& op) {
  const cuda::DeviceGuard guard(plan.device);
  if (plan.by_rows) {
    const Share share = row_share(plan, kRun<typename Op::In>);
    const int64_t blocks = div_up(plan.lines.lines, kThreads >> (share.log_lanes + share.log_sharing));
    if (plan.vectors)
      run_share(plan, op, share, blocks, row_scan<Op, true, true>, row_scan<Op, false, true>);
    else
      run_share(plan, op, share, blocks, row_scan<Op, true, false>, row_scan<Op, false, false>);
  } else {
    const Share share = column_share(plan);
    run_share(plan, op, share, div_up(plan.lines.lines, 1 << share.log_sharing), column_scan<Op, true>,
              column_scan<Op, false>);
  }
}

}  // namespace tenor::scan
