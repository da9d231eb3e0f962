// Paged attention on the CPU: the schedule as segments of the attention family's flash strategies, whose keys lie in
// pages.
#include <algorithm>
#include <cmath>

#include "src/core/numeric.h"
#include "src/core/output.h"
#include "src/core/visit.h"
#include "src/cpu/parallel.h"
#include "src/ops/attention/attention_keys.h"
#include "src/ops/paged/paged_plan.h"

namespace tenor::paged {
namespace {

using attn::Plane;
using attn::Problem;
using attn::Segment;

/// x[rows, heads, columns] or a cache [pages, rows, heads, columns].
Plane plane(const Tensor& x) {
  const int rows = x.ndim() == 4 ? 1 : 0;
  return {x.numel() ? x.raw() : nullptr, x.dtype(), x.stride(rows + 1), x.stride(rows),
          x.ndim() > rows + 2 ? x.stride(rows + 2) : 0};
}

/// q and its tail side by side.
Tensor joined_query(const Call& c) {
  if (!c.q_tail.defined()) return c.q;
  const Tensor joint = Tensor::empty({c.q.shape(0), c.heads, c.dim}, c.q.dtype());
  core::copy_into(c.q, joint.with_layout(c.q.shape(), joint.strides(), 0));
  core::copy_into(c.q_tail, joint.with_layout(c.q_tail.shape(), joint.strides(), c.q.shape(2)));
  return joint;
}

/// Everything but the segments.
Problem problem_of(const Call& c, const Tensor& query) {
  Problem p{};
  p.q = plane(query), p.k = plane(c.k), p.v = plane(c.v), p.out = plane(c.out);
  if (c.lse.defined()) p.lse = plane(c.lse);
  p.sinks = c.sinks;
  p.heads = c.heads, p.kv_heads = c.kv_heads, p.dim = c.dim, p.value_dim = c.value_dim;
  p.scale = c.scale, p.softcap = c.softcap;
  p.causal = c.causal ? Causal::kTopLeft : Causal::kOff;
  p.left = c.window.left, p.right = c.window.right;
  p.pages.size = c.plan->size.page_size, p.pages.k = c.k.stride(0), p.pages.v = c.v.stride(0);
  if (c.k_tail.defined())
    p.pages.tail = plane(c.k_tail), p.pages.tail_page = c.k_tail.stride(0), p.pages.tail_dim = c.k_tail.shape(3);
  return p;
}

class Schedule {
 public:
  explicit Schedule(const DevicePlan::State& plan)
      : plan_(plan),
        tables_(plan.tables.data<int32_t>()),
        lengths_(plan.lengths.data<int32_t>()),
        ids_(plan.sequence_ids.data<int32_t>()),
        positions_(plan.positions.data<int32_t>()) {}

  /// Rows [i, next) of one sequence at rising positions.
  int64_t end_of_run(int64_t i) const {
    int64_t next = i + 1;
    while (next < plan_.size.queries && id(next) == id(i) &&
           (id(i) < 0 || positions_[next] == positions_[next - 1] + 1))
      ++next;
    return next;
  }
  /// Rows [i, i + queries) over the first `keys` keys of their sequence.
  Segment segment(const Problem& p, int64_t i, int64_t queries, int64_t keys) const {
    Segment s{queries, keys, i * p.q.row, 0, 0, 0, 0, i * p.out.row, i * p.lse.row};
    if (id(i) < 0) return s;
    s.table = tables_ + id(i) * plan_.size.pages_per_sequence;
    s.shift = positions_[i] - (p.causal == Causal::kOff ? keys - queries : 0);
    return s;
  }
  /// Of what the caller may have written into the plan's arrays since: at most the keys that the table has pages for.
  int64_t keys(int64_t i) const {
    if (id(i) < 0) return 0;
    return std::clamp<int64_t>(lengths_[id(i)], 0, plan_.size.pages_per_sequence * plan_.size.page_size);
  }

 private:
  /// The row's sequence; -1: padding, or none that there is.
  int64_t id(int64_t i) const { return ids_[i] < plan_.size.sequences ? ids_[i] : -1; }

  const DevicePlan::State& plan_;
  const int32_t *tables_, *lengths_, *ids_, *positions_;
};

void run_whole(const Call& c, Problem& p, attn::CpuUnit unit) {
  const Schedule schedule(*c.plan);
  for (int64_t i = 0, next; i < c.plan->size.queries; i = next) {
    next = schedule.end_of_run(i);
    p.segments.push_back(schedule.segment(p, i, next - i, schedule.keys(i)));
  }
  attn::run_flash_cpu(p, unit);
}

/// Partial states of each part of each row's keys: out float32 [splits, queries, heads, value_dim], then lse [splits,
/// queries, heads].
struct Parts {
  float *out, *lse;
  int64_t rows;  // queries * heads
};

void run_parts(const Call& c, Problem& p, const Parts& parts, attn::CpuUnit unit) {
  const int64_t queries = c.plan->size.queries;
  p.sinks = {};
  p.out = {parts.out, float32, c.value_dim, c.heads * c.value_dim, 1};
  p.lse = {parts.lse, float32, 1, c.heads, 0};
  const Schedule schedule(*c.plan);
  for (int64_t i = 0; i < queries; ++i) {
    const int64_t keys = schedule.keys(i);
    const attn::KeyRange seen = attn::seen_keys(p, schedule.segment(p, i, 1, keys), 0);
    const int64_t each = (seen.end - seen.begin + c.splits - 1) / c.splits;
    for (int64_t n = 0; n < c.splits; ++n) {
      const int64_t end = std::min(seen.end, seen.begin + (n + 1) * each);
      Segment s = schedule.segment(p, i, 1, end);
      s.first = std::min(end, seen.begin + n * each);
      s.out += n * parts.rows * c.value_dim, s.lse += n * parts.rows;
      p.segments.push_back(s);
    }
  }
  attn::run_flash_cpu(p, unit);
}

double sink_of(const Call& c, int64_t head) {
  return core::visit_float(c.sinks.dtype(), [&]<class T>() {
    return static_cast<double>(core::widen(c.sinks.data<T>()[head * c.sinks.stride(0)]));
  });
}

/// The parts of one (row, head), in order: out = sum_n w_n out_n / (sum_n w_n + exp(sink - top)), w_n = exp(lse_n -
/// top).
template <class T>
void merge_row(const Call& c, const Parts& parts, int64_t row, int64_t head, double sink, std::vector<double>& total) {
  const int64_t at = row * c.heads + head;
  double top = -INFINITY, sum = 0;
  for (int64_t n = 0; n < c.splits; ++n)
    if (const double lse = parts.lse[n * parts.rows + at]; !(lse <= top) && !std::isnan(top)) top = lse;  // a NaN stays
  std::fill(total.begin(), total.end(), 0.0);
  for (int64_t n = 0; n < c.splits && top != -INFINITY; ++n) {
    const double lse = parts.lse[n * parts.rows + at];
    if (lse == -INFINITY) continue;
    const double weight = std::exp(lse - top);
    sum += weight;
    const float* out = parts.out + (n * parts.rows + at) * c.value_dim;
    for (int64_t d = 0; d < c.value_dim; ++d) total[d] += weight * out[d];
  }
  const double whole = top == -INFINITY ? 1 : sum + std::exp(sink - top);
  T* to = c.out.data<T>() + row * c.out.stride(0) + head * c.out.stride(1);
  for (int64_t d = 0; d < c.value_dim; ++d) to[d * c.out.stride(2)] = core::cast<T>(total[d] / whole);
  if (c.lse.defined())
    c.lse.data<float>()[row * c.lse.stride(0) + head * c.lse.stride(1)] =
        static_cast<float>(top == -INFINITY ? top : top + std::log(sum));
}

void merge_parts(const Call& c, const Parts& parts) {
  core::visit_float(c.q.dtype(), [&]<class T>() {
    cpu::parallel_for(parts.rows, cpu::grain_of(4 * c.splits * c.value_dim), [&](int64_t begin, int64_t end) {
      std::vector<double> total(static_cast<size_t>(c.value_dim));
      for (int64_t i = begin; i < end; ++i) {
        const int64_t head = i % c.heads;
        merge_row<T>(c, parts, i / c.heads, head, c.sinks.defined() ? sink_of(c, head) : -INFINITY, total);
      }
    });
  });
}

}  // namespace

void run_cpu(const Call& c, attn::CpuUnit unit) {
  if (c.plan->size.queries == 0 || c.heads == 0) return;
  const Tensor query = joined_query(c);
  Problem p = problem_of(c, query);
  if (c.splits == 0) return run_whole(c, p, unit);
  const int64_t rows = c.plan->size.queries * c.heads;
  float* memory = c.workspace.data<float>();
  const Parts parts{memory, memory + c.splits * rows * c.value_dim, rows};
  run_parts(c, p, parts, unit);
  merge_parts(c, parts);
}

}  // namespace tenor::paged
