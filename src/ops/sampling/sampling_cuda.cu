// sample, sample_from_probs and the one draw of multinomial: a cluster of blocks a row, which reads it once.
#include "src/cuda/content_kind.h"
#include "src/ops/sampling/sampling_row.cuh"

namespace tenor::cuda {
namespace {

/// Rows whose top-k leaves at most this many tokens are put in order and drawn from by one block, a token a thread.
constexpr uint32_t kFew = kSelectThreads;

struct Draws {
  Options options;
  bool joint;
  int64_t* ids;
  int64_t id_stride;
  bool* valid;
  int64_t valid_stride, unusable;

  __device__ void write(int64_t row, bool usable, int64_t id) const {
    ids[row * id_stride] = usable ? id : unusable;
    if (valid) valid[row * valid_stride] = usable;
  }
};

template <class T, bool Masses>
struct DrawSpace {
  SelectSpace<KeyOf<T>, Masses> select;
  SpanSpace<KeyOf<T>> span;
  RaceSpace<core::Compute<T>> race;
  unsigned long long scan[kWarps], total;
};

/// The first block, with the row's first k tokens in order: a token a thread. The rest of the filters, and the race.
template <class T, bool Masses>
__device__ void draw_listed(const RowSet<T>& rows, const Draws& draws, const RowChoice& choice,
                            Selection<KeyOf<T>, Masses>& selection, DrawSpace<T, Masses>& space, uint32_t k,
                            KeyOf<T> last) {
  using C = core::Compute<T>;
  using K = KeyOf<T>;
  selection.sort_list();
  Weights<T> weights = rows.weights(choice.temperature);
  const K first = key_of<K>(selection.listed(0));
  const int64_t row = rows.row();
  if (!weights.usable(first, last)) {
    if (threadIdx.x == 0) draws.write(row, false, 0);
    return;
  }
  weights.top = weights.number(first);
  const uint32_t i = threadIdx.x;
  const uint32_t token = i < k ? index_of(selection.listed(i)) : ~0u;
  const C weight = i < k ? weights(key_of<K>(selection.listed(i))) : C(0);
  bool kept = i < k && static_cast<double>(weight) >= choice.min_p;
  if (choice.top_p < 1) {
    const unsigned long long mass = i < k ? sampling::mass_of(weight, weights.scale) : 0;
    const unsigned long long up_to = block_scan(mass, space.scan);
    if (i == kSelectThreads - 1) space.total = up_to;
    __syncthreads();
    kept = kept && up_to - mass <= sampling::mass_limit(choice.top_p, space.total);
  }
  Winner<C> best;
  if (kept && weight > 0)
    best.offer(score_of(weight, sampling::uniform<C>(stream_at(draws.options, row, rows.tag), token)), token);
  best = block_winner(best, space.race);
  if (i == 0) draws.write(row, true, best.token);
}

/// The tokens that the filters keep, as race() asks for them.
template <class T>
struct Kept {
  using C = core::Compute<T>;
  using K = KeyOf<T>;
  using Item = K;
  using Range = typename Selection<K, true>::Range;
  const Weights<T>& weights;
  const RowPart<K>& part;
  const Range *rank_cut, *mass_cut;
  double min_p;

  __device__ void read(uint32_t i, K (&items)[4]) const {
    constexpr int kN = kVector<K> < 4 ? kVector<K> : 4;
    if (part.keys && i + 4 <= part.count) {
#pragma unroll
      for (int j = 0; j < 4; j += kN) {
        const Pack<K, kN> keys = load_pack<kN>(part.keys + i + j);
#pragma unroll
        for (int e = 0; e < kN; ++e) items[j + e] = keys.at[e];
      }
      return;
    }
#pragma unroll
    for (uint32_t j = 0; j < 4; ++j)
      items[j] = i + j >= part.count ? K(0)
                 : part.keys         ? part.keys[i + j]
                                     : core::encode(part.row[part.begin + i + j], part.code);
  }
  __device__ float rough(K key, uint32_t token) const {
    if (rank_cut && rank_cut->place(key, token) > 0) return -INFINITY;
    if (mass_cut && mass_cut->place(key, token) > 0) return -INFINITY;
    return weights.rough(key);
  }
  __device__ C weight(K key, uint32_t token) const {
    if (rough(key, token) == -INFINITY) return 0;
    const C weight = weights(key);
    return static_cast<double>(weight) >= min_p ? weight : C(0);
  }
};

/// The race over all tokens that the filters keep.
template <class T>
__device__ void draw_among_all(const RowSet<T>& rows, const Draws& draws, const RowChoice& choice,
                               Selection<KeyOf<T>, true>& selection, DrawSpace<T, true>& space,
                               const RowPart<KeyOf<T>>& part, uint32_t k, KeySpan<KeyOf<T>> span) {
  using C = core::Compute<T>;
  using K = KeyOf<T>;
  Weights<T> weights = rows.weights(choice.temperature);
  const int64_t row = rows.row();
  if (!weights.usable(span.first, span.last)) {
    if (threadIdx.x == 0 && ptx::cluster_rank() == 0) draws.write(row, false, 0);
    return;
  }
  weights.top = weights.number(span.first);
  const auto count = [&](K key, uint32_t i) { selection.add(key, i, [&] { return weights.mass(key); }); };
  typename Selection<K, true>::Range rank_cut(rows.n), mass_cut(rows.n);
  bool cut_mass = choice.top_p < 1;
  uint64_t total = 0;
  if (k > 0) {
    descend(selection, part, count, [&] {
      selection.narrow_to_rank(k - 1 - selection.before());
      return true;
    });
    rank_cut = selection.range();
    total = draws.joint ? selection.total() : selection.mass_before() + selection.mass_inside();
    selection.restart(rows.n);
  }
  if (cut_mass) {
    cut_mass = descend(selection, part, count, [&] {
      return selection.narrow_to_mass([&](uint64_t all) {
        const uint64_t whole = k > 0 ? total : selection.total() > 0 ? selection.total() : all;
        return sampling::mass_limit(choice.top_p, whole) - selection.mass_before();
      });
    });
    mass_cut = selection.range();
  }
  const Kept<T> tokens{weights, part, k > 0 ? &rank_cut : nullptr, cut_mass ? &mass_cut : nullptr, choice.min_p};
  const Winner<C> best =
      race<C>(stream_at(draws.options, row, rows.tag), part.begin, part.count, space.race, !rows.probs, tokens);
  if (threadIdx.x == 0 && ptx::cluster_rank() == 0) draws.write(row, true, best.token);
}

/// The first k tokens brought together, and drawn from.
template <class T, bool Masses>
__device__ void draw_few(const RowSet<T>& rows, const Draws& draws, const RowChoice& choice,
                         Selection<KeyOf<T>, Masses>& selection, DrawSpace<T, Masses>& space,
                         const RowPart<KeyOf<T>>& part, uint32_t k) {
  using K = KeyOf<T>;
  K first = static_cast<K>(~K(0)), last = 0;
  part.load([&](K key, uint32_t) { first = min(first, key), last = max(last, key); });
  const K least = first;
  if (rows.probs) last = span_of<K>(first, last, space.span).last;
  selection.gather_first(part, least, k);
  if (ptx::cluster_rank() == 0) draw_listed(rows, draws, choice, selection, space, k, last);
}

/// The largest logit, the lowest token on ties.
template <class T, bool Masses>
__device__ void draw_first(const RowSet<T>& rows, const Draws& draws, Selection<KeyOf<T>, Masses>& selection,
                           const RowPart<KeyOf<T>>& part) {
  using K = KeyOf<T>;
  Packed<K> first = last_packed<K>();
  part.load([&](K key, uint32_t i) {
    const Packed<K> mine = pack<K>(key, i);
    if (mine < first) first = mine;
  });
  first = selection.first_of(first);
  if (threadIdx.x != 0 || ptx::cluster_rank() != 0) return;
  draws.write(rows.row(), isfinite(rows.weights(1).number(key_of<K>(first))), index_of(first));
}

template <class T, bool Masses>
__global__ void __launch_bounds__(kSelectThreads, 2)
    draw_kernel(const __grid_constant__ RowSet<T> rows, const __grid_constant__ Draws draws) {
  using K = KeyOf<T>;
  extern __shared__ __align__(16) char memory[];
  auto& space = *reinterpret_cast<DrawSpace<T, Masses>*>(memory);
  const int64_t row = rows.row();
  const RowChoice choice(draws.options, row);
  if (!choice.good) {
    if (threadIdx.x == 0 && ptx::cluster_rank() == 0) draws.write(row, false, 0);
    return;
  }
  // A temperature that the compute type rounds to 0 is as good as 0.
  const bool greedy = static_cast<core::Compute<T>>(choice.temperature) == 0;
  const uint32_t k = choice.top_k > 0 && choice.top_k < rows.n ? static_cast<uint32_t>(choice.top_k) : 0;
  const RowPart<K> part = rows.mine(memory + kKeysAt<DrawSpace<T, Masses>>);
  Selection<K, Masses> selection(space.select, rows.n);
  if (greedy) return draw_first(rows, draws, selection, part);
  if (!Masses || (k > 0 && k <= kFew && !(draws.joint && choice.top_p < 1)))
    return draw_few(rows, draws, choice, selection, space, part, k);
  if constexpr (Masses) {
    K first = static_cast<K>(~K(0)), last = 0;
    part.load([&](K key, uint32_t) { first = min(first, key), last = max(last, key); });
    draw_among_all(rows, draws, choice, selection, space, part, k, span_of(first, last, space.span));
  }
}

const int kBadTemperature = content_op("sample", "temperature", ContentKind::kValue),
          kBadTopP = content_op("sample", "top_p", ContentKind::kValue),
          kBadMinP = content_op("sample", "min_p", ContentKind::kValue);

}  // namespace

void sample_rows(const SampleRows& p, const Tensor& ids, const Tensor& valid, int64_t unusable) {
  const RowOptionSet& o = p.options;
  const bool few = !o.top_k.rows.defined() && o.top_k.integer > 0 && o.top_k.integer <= kFew &&
                   o.top_k.integer < p.x.shape(1) && !(p.joint && (o.top_p.rows.defined() || o.top_p.real < 1));
  Draws draws{Options(o, p.x.device()),
              p.joint,
              ids.data<int64_t>(),
              ids.stride(0),
              valid.defined() ? valid.data<bool>() : nullptr,
              valid.defined() ? valid.stride(0) : 0,
              unusable};
  draws.options.bad_temperature = kBadTemperature, draws.options.bad_top_p = kBadTopP,
  draws.options.bad_min_p = kBadMinP;
  core::visit_float(p.x.dtype(), [&]<class T>() {
    if (few) return launch_rows<T, DrawSpace<T, false>>(p, draw_kernel<T, false>, draws);
    launch_rows<T, DrawSpace<T, true>>(p, draw_kernel<T, true>, draws);
  });
}

}  // namespace tenor::cuda
