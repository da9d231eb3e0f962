// Resampling on the CPU: how the work lies and is dealt out.
#include <algorithm>
#include <cstring>

#include "src/core/visit.h"
#include "src/cpu/parallel.h"
#include "src/ops/interpolate/resample_kernels.h"
#include "tenor/modes.h"

namespace tenor::cpu {
namespace {

constexpr int64_t kFewChannels = 4;  // below, rows of pixels leave vectors empty

ResampleSide side_of(const Tensor& x) {
  return {static_cast<char*>(x.raw()), x.stride(0), x.stride(1), x.stride(2), x.stride(3), x.stride(4)};
}

/// Whether both sides have their channels side by side, and these fill vectors.
bool lies_by_channel(const ResampleProblem& p) {
  const bool dense = p.from.stride(1) == 1 && p.to.stride(1) == 1 && p.from.shape(1) >= kFewChannels;
  return dense && !(p.from.stride(4) == 1 && p.from.shape(4) > 1);
}

ResamplePlan plan_of(const ResampleProblem& p) {
  ResamplePlan plan;
  plan.dtype = p.from.dtype();
  plan.from = side_of(p.from);
  plan.to = side_of(p.to);
  plan.depth = core::resample_table(p.axes[0], p.transposed);
  plan.height = core::resample_table(p.axes[1], p.transposed);
  plan.width = core::resample_table(p.axes[2], p.transposed);
  plan.by_channel = lies_by_channel(p);
  plan.channels = p.from.shape(1);
  plan.planes = p.from.shape(0) * (plan.by_channel ? 1 : plan.channels);
  // Strips share the rows at their ends: long ones repeat little work, but every thread needs a few.
  const int64_t wanted = std::max<int64_t>(4 * num_threads() / std::max<int64_t>(plan.planes * plan.depth.rows, 1), 1);
  plan.strip = std::max<int64_t>((plan.height.rows + wanted - 1) / wanted, std::min<int64_t>(8, plan.height.rows));
  plan.strips = (plan.height.rows + plan.strip - 1) / plan.strip;
  return plan;
}

}  // namespace

void resample(const ResampleProblem& problem) {
  if (problem.to.numel() == 0) return;
  const ResamplePlan plan = plan_of(problem);
  const int64_t taps = problem.moves() ? 1 : 1 + plan.height.width + plan.width.width * plan.depth.width;
  const int64_t grain = grain_of(plan.strip * plan.length() * taps * static_cast<int64_t>(item_size(plan.dtype)));
  parallel_for(plan.items(), grain, [&](int64_t begin, int64_t end) {
    if (problem.moves())
      move_strips(plan, begin, end);
    else
      resample_strips(plan, begin, end);
  });
}

namespace {

/// A row's elements from where they lie.
template <class T>
void move_row(const ResamplePlan& p, const T* from, T* to) {
  const int64_t* first = p.width.first.data();
  const int64_t columns = p.width.rows;
  if (!p.by_channel) {
    for (int64_t w = 0; w < columns; ++w) to[w * p.to.w] = from[first[w] * p.from.w];
    return;
  }
  const auto bytes = static_cast<size_t>(p.channels) * sizeof(T);
  for (int64_t w = 0; w < columns; ++w) std::memcpy(to + w * p.to.w, from + first[w] * p.from.w, bytes);
}

template <class T>
void move_strip(const ResamplePlan& p, const ResampleStrip& s) {
  const T* plane = reinterpret_cast<const T*>(s.from) + p.depth.first[static_cast<size_t>(s.d)] * p.from.d;
  const bool dense = p.to.w == (p.by_channel ? p.channels : 1);
  const T* before = nullptr;  // the row above, where it shows the same input row
  int64_t held = -1;
  for (int64_t r = s.row; r < s.end; ++r) {
    const int64_t source = p.height.first[static_cast<size_t>(r)];
    T* to = reinterpret_cast<T*>(s.to) + r * p.to.h;
    if (dense && source == held)
      std::memcpy(to, before, static_cast<size_t>(p.length()) * sizeof(T));
    else
      move_row(p, plane + source * p.from.h, to);
    held = source;
    before = to;
  }
}

}  // namespace

void move_strips(const ResamplePlan& p, int64_t begin, int64_t end) {
  core::visit_size(p.dtype, [&]<class T>() {
    for (int64_t i = begin; i < end; ++i) move_strip<T>(p, strip_of(p, i));
  });
}

}  // namespace tenor::cpu
