// speculative_accept: a cluster of blocks a chain.
#include "src/ops/sampling/sampling_row.cuh"

namespace tenor::cuda {
namespace {

template <class T>
struct Chains {
  const T *target, *draft;
  int64_t target_chain, target_row, draft_chain, draft_row;
  const int64_t* drafted;
  int64_t* ids;
  int64_t id_chain, id_row;
  int64_t* accepted;
  int64_t accepted_stride;
  uint32_t drafts, tokens, part;
  ContentError* flag;
  int op;

  /// Draft i of chain b; -1, which ends the chain, for one that is out of range too.
  __device__ int64_t id(int64_t b, uint32_t i) const {
    const int64_t id = drafted[b * drafts + i];
    if (id >= -1 && id < int64_t{tokens}) return id;
    raise_content_error(flag, op, b * drafts + i, id);
    return -1;
  }
};

template <class C>
struct ChainSpace {
  RaceSpace<C> race;
  C warps[kWarps], tops[8];
  uint32_t stop;
};

/// The largest value of the cluster, for every thread.
template <class C>
__device__ C cluster_max(C value, ChainSpace<C>& space) {
  value = block_reduce<kSelectThreads>(value, space.warps, [](C a, C b) { return max(a, b); });
  ptx::cluster_sync();  // an earlier one may still be read
  if (threadIdx.x < ptx::cluster_size()) ptx::in_block(&space, threadIdx.x)->tops[ptx::cluster_rank()] = value;
  ptx::cluster_sync();
  C most = space.tops[0];
  for (uint32_t b = 1; b < ptx::cluster_size(); ++b) most = max(most, space.tops[b]);
  return most;
}

/// The first draft of chain b that is not accepted.
template <class T>
__device__ uint32_t first_stop(const Chains<T>& chains, const Options& options, int64_t b, uint32_t* stop) {
  if (threadIdx.x == 0) *stop = chains.drafts;
  __syncthreads();
  for (uint32_t i = threadIdx.x; i < chains.drafts; i += kSelectThreads) {
    const int64_t id = chains.id(b, i);
    bool accepted = false;
    if (id >= 0) {
      const double p = static_cast<double>(widen(chains.target[b * chains.target_chain + i * chains.target_row + id]));
      const double q =
          chains.draft ? static_cast<double>(widen(chains.draft[b * chains.draft_chain + i * chains.draft_row + id]))
                       : 1.0;
      accepted =
          sampling::unit_interval(stream_at(options, b, static_cast<uint32_t>(sampling::Tag::kAccept), i)) * q < p;
    }
    if (!accepted) atomicMin(stop, i);
  }
  __syncthreads();
  return *stop;
}

/// The weight of a token at the place where the chain stopped: what is left of the target's, or all of it.
template <class T>
struct Rest {
  using C = core::Compute<T>;
  const T *target, *draft;
  int64_t rejected;  ///< the token of a certain draft, else -1
  bool all;

  __device__ C operator()(uint32_t i) const {
    C left = widen(target[i]);
    if (!all && draft) left = left - widen(draft[i]);
    if (!all && !draft && int64_t{i} == rejected) left = left - 1;
    return left > 0 ? left : C(0);
  }
};

/// What is left, as race() asks for it.
template <class T>
struct Left {
  using C = core::Compute<T>;
  using Item = C;
  const Rest<T>& rest;
  uint32_t begin, count;
  C most;

  __device__ void read(uint32_t i, C (&items)[4]) const {
#pragma unroll
    for (uint32_t j = 0; j < 4; ++j) items[j] = i + j < count ? rest(begin + i + j) / most : C(0);
  }
  __device__ float rough(C item, uint32_t) const { return static_cast<float>(item); }
  __device__ C weight(C item, uint32_t) const { return item; }
};

template <class T>
__global__ void __launch_bounds__(kSelectThreads)
    accept_kernel(const __grid_constant__ Chains<T> chains, const __grid_constant__ Options options) {
  using C = core::Compute<T>;
  __shared__ ChainSpace<C> space;
  const int64_t b = blockIdx.x / ptx::cluster_size();
  const uint32_t stop = first_stop(chains, options, b, &space.stop);
  const int64_t rejected = stop < chains.drafts ? chains.id(b, stop) : -1;
  Rest<T> rest{
      chains.target + b * chains.target_chain + stop * chains.target_row,
      chains.draft && rejected >= 0 ? chains.draft + b * chains.draft_chain + stop * chains.draft_row : nullptr,
      rejected, rejected < 0};
  const uint32_t begin = min(ptx::cluster_rank() * chains.part, chains.tokens),
                 count = min(chains.part, chains.tokens - begin);
  const auto top = [&] {
    C most = 0;
    for (uint32_t i = threadIdx.x; i < count; i += kSelectThreads) most = max(most, rest(begin + i));
    return cluster_max(most, space);
  };
  C most = top();
  if (!(most > 0 && isfinite(most))) {
    rest.all = true;
    most = top();
  }
  const bool usable = most > 0 && isfinite(most);
  const Left<T> left{rest, begin, count, usable ? most : C(INFINITY)};
  const Winner<C> best = race<C>(stream_at(options, b, static_cast<uint32_t>(sampling::Tag::kResidual), stop), begin,
                                 count, space.race, false, left);
  if (ptx::cluster_rank() != 0) return;
  for (uint32_t i = threadIdx.x; i <= chains.drafts; i += kSelectThreads)
    if (i != stop) chains.ids[b * chains.id_chain + i * chains.id_row] = i < stop ? chains.id(b, i) : -1;
  if (threadIdx.x != 0) return;
  chains.ids[b * chains.id_chain + stop * chains.id_row] = usable ? best.token : 0;
  chains.accepted[b * chains.accepted_stride] = stop;
}

const int kBadDraft = content_op("speculative_accept", "draft_ids");

}  // namespace

void accept_rows(const Tensor& target, const Tensor& draft, const Tensor& draft_ids, const RowOptionSet& set,
                 const Tensor& ids, const Tensor& accepted) {
  const int64_t tokens = target.shape(2);
  if (tokens >= int64_t{UINT32_MAX})
    throw UnsupportedError("speculative_accept: rows of 2^32 tokens and more have no CUDA kernel");
  const SelectShape shape(tokens, 0, 0, target.device());
  const DeviceGuard guard(target.device());
  const Options options(set, target.device());
  core::visit_float(target.dtype(), [&]<class T>() {
    const bool given = draft.defined();
    const Chains<T> chains{target.data<T>(),
                           given ? draft.data<T>() : nullptr,
                           target.stride(0),
                           target.stride(1),
                           given ? draft.stride(0) : 0,
                           given ? draft.stride(1) : 0,
                           draft_ids.data<int64_t>(),
                           ids.data<int64_t>(),
                           ids.stride(0),
                           ids.stride(1),
                           accepted.data<int64_t>(),
                           accepted.stride(0),
                           static_cast<uint32_t>(draft_ids.shape(1)),
                           static_cast<uint32_t>(tokens),
                           shape.part,
                           options.flag,
                           kBadDraft};
    const Grid grid{static_cast<unsigned>(target.shape(0) * shape.blocks), kSelectThreads, 0, shape.blocks};
    launch("speculative_accept", accept_kernel<T>, grid, target.device(), chains, options);
  });
}

}  // namespace tenor::cuda
