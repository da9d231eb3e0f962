// Routing on the CPU: a token's scores, and the first experts by them.
#include <algorithm>
#include <vector>

#include "src/core/visit.h"
#include "src/cpu/parallel.h"
#include "src/ops/moe/moe_plan.h"
#include "src/ops/moe/moe_score.h"

namespace tenor::moe {
namespace {

/// A number of an expert or a group, and what it is ordered by.
template <class C>
struct Ranked {
  Rank<C> rank;
  int32_t number;
  bool operator<(const Ranked& other) const { return rank != other.rank ? rank > other.rank : number < other.number; }
};

template <class C>
Softmax<C> softmax_of(const C* x, int64_t n) {
  C top = -std::numeric_limits<C>::infinity(), sums[kLanes] = {};
  for (int64_t e = 0; e < n; ++e) top = x[e] > top ? x[e] : top;
  int64_t e = 0;
  for (; e + kLanes <= n; e += kLanes)
    for (int lane = 0; lane < kLanes; ++lane) sums[lane] += exponential(x[e + lane] - top);
  for (int lane = 0; e < n; ++e, ++lane) sums[lane] += exponential(x[e] - top);
  for (int step = kLanes / 2; step > 0; step /= 2)
    for (int lane = 0; lane < step; ++lane) sums[lane] += sums[lane + step];
  return {top, sums[0]};
}

/// Memory of one thread.
template <class C>
struct Scratch {
  std::vector<C> logits, scores, weights;
  std::vector<Ranked<C>> experts, groups;
};

/// The first `count` to the front, in order.
template <class C>
void select(std::vector<Ranked<C>>& all, int64_t count) {
  std::partial_sort(all.begin(), all.begin() + count, all.end());
}

template <class C>
void choose_by_softmax(const Routing& r, Scratch<C>& s, int64_t top_k) {
  const auto experts = static_cast<int64_t>(s.logits.size());
  const Softmax<C> softmax = softmax_of(s.logits.data(), experts);
  s.experts.resize(s.logits.size());
  for (int64_t e = 0; e < experts; ++e) s.experts[e] = {softmax.rank(s.logits[e]), static_cast<int32_t>(e)};
  select(s.experts, top_k);
  C sum = 0;
  for (int64_t k = 0; k < top_k; ++k) sum += s.weights[k] = softmax(s.logits[s.experts[k].number]);
  for (int64_t k = 0; r.renormalize && k < top_k; ++k) s.weights[k] /= sum;
}

/// The order of a group: the sum of its two best scores, or its best one.
template <class C>
Rank<C> group_rank(const C* scores, int64_t size, bool top_two) {
  Ranked<C> first{kOutOfTheRunning, 0}, second = first;
  for (int64_t e = 0; e < size; ++e) {
    const Ranked<C> own{rank_of(scores[e]), static_cast<int32_t>(e)};
    if (own < first || e == 0)
      second = first, first = own;
    else if (own < second || e == 1)
      second = own;
  }
  return rank_of(top_two ? scores[first.number] + scores[second.number] : scores[first.number]);
}

template <class C>
void choose_by_groups(const Routing& r, Scratch<C>& s, int64_t top_k) {
  const auto experts = static_cast<int64_t>(s.logits.size());
  const int64_t size = experts / r.groups;
  s.scores.resize(s.logits.size());
  for (int64_t e = 0; e < experts; ++e) s.scores[e] = sigmoid(s.logits[e]);
  for (int64_t e = 0; r.bias.defined() && e < experts; ++e)
    s.scores[e] += static_cast<C>(r.bias.data<float>()[e * r.bias.stride(0)]);
  s.groups.clear(), s.experts.clear();
  for (int64_t g = 0; g < r.groups; ++g)
    s.groups.push_back({group_rank(s.scores.data() + g * size, size, r.group_top_two), static_cast<int32_t>(g)});
  select(s.groups, r.selected_groups);
  for (int64_t i = 0; i < r.selected_groups; ++i)
    for (int64_t e = s.groups[i].number * size; e < (s.groups[i].number + 1) * size; ++e)
      s.experts.push_back({rank_of(s.scores[e]), static_cast<int32_t>(e)});
  select(s.experts, top_k);
  C sum = 0;
  for (int64_t k = 0; k < top_k; ++k) sum += s.weights[k] = sigmoid(s.logits[s.experts[k].number]);
  for (int64_t k = 0; k < top_k; ++k)
    s.weights[k] = (r.renormalize ? s.weights[k] / (sum + C(1e-20)) : s.weights[k]) * static_cast<C>(r.scale);
}

template <class T>
void route_rows(const Routing& r, int64_t first, int64_t last) {
  using C = core::Compute<T>;
  const int64_t experts = r.logits.shape(1), top_k = r.plan.ids.shape(1);
  Scratch<C> s;
  s.logits.resize(static_cast<size_t>(experts)), s.weights.resize(static_cast<size_t>(top_k));
  for (int64_t t = first; t < last; ++t) {
    const T* x = r.logits.data<T>() + t * r.logits.stride(0);
    for (int64_t e = 0; e < experts; ++e) s.logits[e] = core::widen(x[e * r.logits.stride(1)]);
    r.sigmoid ? choose_by_groups(r, s, top_k) : choose_by_softmax(r, s, top_k);
    for (int64_t k = 0; k < top_k; ++k) {
      r.plan.ids.data<int32_t>()[t * top_k + k] = s.experts[k].number;
      r.plan.weights.data<T>()[t * top_k + k] = core::cast<T>(s.weights[k]);
    }
  }
}

}  // namespace

void route_cpu(const Routing& r) {
  cpu::parallel_for(r.logits.shape(0), cpu::grain_of(16 * r.logits.shape(1)), [&](int64_t first, int64_t last) {
    core::visit_float(r.logits.dtype(), [&]<class T>() { route_rows<T>(r, first, last); });
  });
}

void arrange_cpu(const RoutingPlan::State& plan) {
  const int64_t slots = plan.ids.numel(), experts = plan.experts;
  const int32_t* ids = plan.ids.data<int32_t>();
  int32_t* rows = plan.rows.data<int32_t>();
  int64_t* offsets = plan.offsets.data<int64_t>();
  std::vector<int64_t> next(static_cast<size_t>(experts) + 1);  // the last: slots that are not dispatched
  const auto bucket = [&](int64_t i) { return ids[i] < 0 ? experts : int64_t{ids[i]}; };
  for (int64_t i = 0; i < slots; ++i) ++next[bucket(i)];
  int64_t before = 0;
  for (int64_t e = 0; e <= experts; ++e) {
    offsets[e] = before;
    before += std::exchange(next[e], before);
  }
  for (int64_t i = 0; i < slots; ++i) {
    const auto row = static_cast<int32_t>(next[bucket(i)]++);
    rows[i] = ids[i] < 0 ? -1 - row : row;
  }
}

}  // namespace tenor::moe
