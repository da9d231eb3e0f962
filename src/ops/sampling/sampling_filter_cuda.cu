// The filters alone, and multinomial's parts: a cluster of blocks a row.
#include "src/cuda/content_kind.h"
#include "src/ops/sampling/sampling_row.cuh"

namespace tenor::cuda {
namespace {

template <class T>
using CountSpace = SelectSpace<KeyOf<T>, false>;

/// A row with -inf outside of its first k.
template <class T>
__global__ void __launch_bounds__(kSelectThreads)
    mask_kernel(const __grid_constant__ RowSet<T> rows, const __grid_constant__ Options options, KeyOf<T> masked,
                KeyOf<T>* out, int64_t out_stride) {
  using K = KeyOf<T>;
  extern __shared__ __align__(16) char memory[];
  const int64_t row = rows.row(), k = options.top_k.integer_at(row);
  const bool cuts = k > 0 && k < rows.n;
  const RowPart<K> part = rows.mine(memory + kKeysAt<CountSpace<T>>);
  Selection<K, false> selection(*reinterpret_cast<CountSpace<T>*>(memory), rows.n);
  if (cuts) {
    const auto count = [&](K key, uint32_t i) { selection.add(key, i); };
    part.load(count);
    selection.narrow_to_rank(static_cast<uint32_t>(k) - 1);
    while (!selection.is_done()) {
      part.each(count);
      selection.narrow_to_rank(static_cast<uint32_t>(k) - 1 - selection.before());
    }
  }
  ptx::cluster_sync();  // out may be x: no block writes before all have read
  for (uint32_t i = threadIdx.x; i < part.count; i += kSelectThreads) {
    const K bits = part.row[part.begin + i];
    const bool keep = !cuts || selection.range().place(core::encode(bits, part.code), part.begin + i) <= 0;
    out[row * out_stride + part.begin + i] = keep ? bits : masked;
  }
}

template <class T>
struct SumSpace {
  SelectSpace<KeyOf<T>, true> select;
  SpanSpace<KeyOf<T>> span;
  double sums[kWarps], parts[8];
};

/// The sum over the cluster, in a fixed order, for every thread.
template <class T>
__device__ double cluster_sum(double value, SumSpace<T>& space) {
  value = block_reduce<kSelectThreads>(value, space.sums, [](double a, double b) { return a + b; });
  if (threadIdx.x < ptx::cluster_size()) ptx::in_block(&space, threadIdx.x)->parts[ptx::cluster_rank()] = value;
  ptx::cluster_sync();
  double sum = 0;
  for (uint32_t b = 0; b < ptx::cluster_size(); ++b) sum += space.parts[b];
  return sum;
}

template <class T>
__device__ void fill_nan(const RowPart<KeyOf<T>>& part, T* out) {
  for (uint32_t i = threadIdx.x; i < part.count; i += kSelectThreads)
    out[part.begin + i] = convert<T>(core::Compute<T>(NAN));
}

template <class T>
__global__ void __launch_bounds__(kSelectThreads)
    normalize_kernel(const __grid_constant__ RowSet<T> rows, const __grid_constant__ Options options, T* out,
                     int64_t out_stride) {
  using K = KeyOf<T>;
  using C = core::Compute<T>;
  extern __shared__ __align__(16) char memory[];
  auto& space = *reinterpret_cast<SumSpace<T>*>(memory);
  const int64_t row = rows.row();
  const double top_p = options.top_p.real_at(row);
  out += row * out_stride;
  if (isnan(top_p) && threadIdx.x == 0 && ptx::cluster_rank() == 0)
    raise_content_error(options.flag, options.bad_top_p, row, 0);
  const RowPart<K> part = rows.mine(memory + kKeysAt<SumSpace<T>>);
  Selection<K, true> selection(space.select, rows.n);
  K first = static_cast<K>(~K(0)), last = 0;
  part.load([&](K key, uint32_t) { first = min(first, key), last = max(last, key); });
  const KeySpan<K> span = span_of(first, last, space.span);
  Weights<T> weights = rows.weights(1);
  if (isnan(top_p) || !weights.usable(span.first, span.last)) return fill_nan<T>(part, out);
  weights.top = weights.number(span.first);
  const bool cuts =
      top_p < 1 &&
      descend(
          selection, part, [&](K key, uint32_t i) { selection.add(key, i, [&] { return weights.mass(key); }); },
          [&] {
            return selection.narrow_to_mass([&](uint64_t all) {
              return sampling::mass_limit(top_p, selection.total() > 0 ? selection.total() : all) -
                     selection.mass_before();
            });
          });
  const auto kept = [&](K key, uint32_t i) {
    return cuts && selection.range().place(key, i) > 0 ? C(0) : weights(key);
  };
  double sum = 0;
  part.each([&](K key, uint32_t i) { sum += static_cast<double>(kept(key, i)); });
  sum = cluster_sum(sum, space);
  if (part.keys) {
    part.each([&](K key, uint32_t i) { out[i] = convert<T>(static_cast<C>(static_cast<double>(kept(key, i)) / sum)); });
  } else {
    for (uint32_t i = threadIdx.x; i < part.count; i += kSelectThreads) {  // each entry is read before it is written
      const uint32_t at = part.begin + i;
      out[at] = convert<T>(static_cast<C>(static_cast<double>(kept(core::encode(part.row[at], part.code), at)) / sum));
    }
  }
}

template <class T>
struct ScoreSpace {
  SpanSpace<KeyOf<T>> span;
};

template <class T>
__global__ void __launch_bounds__(kSelectThreads)
    score_kernel(const __grid_constant__ RowSet<T> rows, const __grid_constant__ Options options,
                 core::Compute<T>* scores) {
  using K = KeyOf<T>;
  using C = core::Compute<T>;
  extern __shared__ __align__(16) char memory[];
  auto& space = *reinterpret_cast<ScoreSpace<T>*>(memory);
  const int64_t row = rows.row();
  scores += row * rows.n;
  const RowPart<K> part = rows.mine(memory + kKeysAt<ScoreSpace<T>>);
  ptx::cluster_sync();
  K first = static_cast<K>(~K(0)), last = 0;
  part.load([&](K key, uint32_t) { first = min(first, key), last = max(last, key); });
  const KeySpan<K> span = span_of(first, last, space.span);
  Weights<T> weights = rows.weights(1);
  const bool usable = weights.usable(span.first, span.last);
  weights.top = weights.number(span.first);
  const sampling::Stream stream = stream_at(options, row, rows.tag);
  part.each([&](K key, uint32_t i) {
    const C number = weights.number(key);
    scores[i] = usable && number > 0 ? score_of(weights.weight(number), sampling::uniform<C>(stream, i)) : C(-1);
  });
  ptx::cluster_sync();  // the others may still write to this block's span
}

/// Cumulative masses of a row, by one block; the total where there is no distribution is 0.
template <class T>
__global__ void __launch_bounds__(kSelectThreads)
    accumulate_kernel(const __grid_constant__ RowSet<T> rows, unsigned long long* sums) {
  using K = KeyOf<T>;
  __shared__ SpanSpace<K> space;
  __shared__ unsigned long long scan[kWarps], total;
  const int64_t row = blockIdx.x;
  sums += row * rows.n;
  const RowPart<K> part{rows.x + row * rows.stride, nullptr, 0, rows.n, rows.code, false};
  K first = static_cast<K>(~K(0)), last = 0;
  part.each([&](K key, uint32_t) { first = min(first, key), last = max(last, key); });
  const KeySpan<K> span = span_of(first, last, space);
  Weights<T> weights = rows.weights(1);
  const bool usable = weights.usable(span.first, span.last);
  weights.top = weights.number(span.first);
  unsigned long long before = 0;
  for (uint32_t begin = 0; begin < rows.n; begin += kSelectThreads) {
    const uint32_t i = begin + threadIdx.x;
    const unsigned long long mass = usable && i < rows.n ? weights.mass(core::encode(part.row[i], part.code)) : 0;
    const unsigned long long up_to = before + block_scan(mass, scan);
    if (i < rows.n) sums[i] = up_to;
    if (threadIdx.x == kSelectThreads - 1) total = up_to;
    __syncthreads();
    before = total;
  }
}

/// Each id on its own: the first token whose cumulative mass exceeds a number below the total.
__global__ void invert_kernel(const unsigned long long* __restrict__ sums, int64_t rows, int64_t n, int64_t count,
                              const __grid_constant__ Options options, uint32_t tag, int64_t* ids) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t at = blockIdx.x * int64_t{blockDim.x} + threadIdx.x; at < rows * count; at += step) {
    const int64_t row = at / count;
    const unsigned long long* mine = sums + row * n;
    const uint64_t target =
        __umul64hi(stream_at(options, row, tag).wide(static_cast<uint64_t>(at - row * count)), mine[n - 1]);
    int64_t low = 0;
    for (int64_t left = n; left > 0;) {
      const int64_t half = left / 2;
      const bool after = mine[low + half] <= target;
      low = after ? low + half + 1 : low;
      left = after ? left - half - 1 : half;
    }
    ids[at] = mine[n - 1] == 0 ? -1 : low;
  }
}

template <class C>
__global__ void drop_kernel(const C* scores, int64_t count, int64_t* ids) {
  const int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x;
  if (i < count && scores[i] < 0) ids[i] = -1;
}

const int kBadTopP = content_op("top_p_normalize_probs", "top_p", ContentKind::kValue);

}  // namespace

void mask_rows(const SampleRows& p, const Tensor& out) {
  core::visit_float(p.x.dtype(), [&]<class T>() {
    const T masked = core::cast<T>(-std::numeric_limits<double>::infinity());
    KeyOf<T> bits;
    std::memcpy(&bits, &masked, sizeof bits);
    launch_rows<T, CountSpace<T>>(p, mask_kernel<T>, Options(p.options, p.x.device()), bits, out.data<KeyOf<T>>(),
                                  out.stride(0));
  });
}

void normalize_rows(const SampleRows& p, const Tensor& out) {
  Options options(p.options, p.x.device());
  options.bad_top_p = kBadTopP;
  core::visit_float(p.x.dtype(), [&]<class T>() {
    launch_rows<T, SumSpace<T>>(p, normalize_kernel<T>, options, out.data<T>(), out.stride(0));
  });
}

void score_rows(const SampleRows& p, const Tensor& scores) {
  core::visit_float(p.x.dtype(), [&]<class T>() {
    launch_rows<T, ScoreSpace<T>>(p, score_kernel<T>, Options(p.options, p.x.device()),
                                  scores.data<core::Compute<T>>());
  });
}

void replacement_rows(const SampleRows& p, const Tensor& ids) {
  const int64_t rows = p.x.shape(0), n = p.x.shape(1), count = ids.shape(1);
  const Tensor sums = Tensor::empty({rows, n}, uint64, p.x.device());
  const DeviceGuard guard(p.x.device());
  core::visit_float(p.x.dtype(), [&]<class T>() {
    const RowSet<T> set{p.x.data<KeyOf<T>>(),
                        static_cast<uint32_t>(n),
                        0,
                        p.x.stride(0),
                        false,
                        core::key_code(p.x.dtype(), true),
                        true,
                        p.tag};
    launch(p.op, accumulate_kernel<T>, Grid{static_cast<unsigned>(rows), kSelectThreads}, p.x.device(), set,
           sums.data<unsigned long long>());
  });
  launch(p.op, invert_kernel, Grid{blocks_for(rows * count, 256, p.x.device()), 256}, p.x.device(),
         sums.data<unsigned long long>(), rows, n, count, Options(p.options, p.x.device()), p.tag, ids.data<int64_t>());
}

void drop_undrawn(const Tensor& scores, const Tensor& ids) {
  const int64_t count = ids.numel();
  const DeviceGuard guard(ids.device());
  const Grid grid{static_cast<unsigned>((count + 255) / 256), 256};
  if (scores.dtype() == float64)
    return launch("multinomial", drop_kernel<double>, grid, ids.device(), scores.data<double>(), count,
                  ids.data<int64_t>());
  launch("multinomial", drop_kernel<float>, grid, ids.device(), scores.data<float>(), count, ids.data<int64_t>());
}

}  // namespace tenor::cuda
