// The rule step by step for any dtype, strides and sizes.
#include "src/ops/gated_delta/gated_delta_launch.h"
#include "src/ops/gated_delta/general_cuda.cuh"

namespace tenor::delta {
namespace {

/// Elements of a block's memory.
int64_t recurrent_elements(int64_t key_dim) { return key_dim * (kGeneralColumns + 3); }

template <class T, class C = core::Compute<T>>
__global__ void __launch_bounds__(kGeneralThreads)
    general_recurrent(const __grid_constant__ DeviceProblem p, unsigned column_blocks, char* outside, int64_t bytes) {
  extern __shared__ __align__(16) char inside_memory[];
  __shared__ C by_key[kGeneralGroups][kGeneralColumns], by_query[kGeneralGroups][kGeneralColumns];
  __shared__ C norms[kGeneralGroups][3];
  C* state = reinterpret_cast<C*>(outside ? outside + blockIdx.x * bytes : inside_memory);
  C *key = state + p.key_dim * kGeneralColumns, *query = key + p.key_dim, *decay = query + p.key_dim;
  const GeneralBlock b(p, column_blocks);
  const int lane = threadIdx.x % kGeneralColumns;
  const DeviceSequence s(p.sequences, b.n);
  const int64_t place = place_of(p.sequences, b.n);
  if (place < 0) return;
  read_columns(p, b, place, state);
  for (int64_t t = 0; t < s.length; ++t) {
    __syncthreads();
    for (int64_t c = threadIdx.x; c < p.key_dim; c += kGeneralThreads) {
      key[c] = cuda::widen(row_of<T>(p.key, s, b.head / p.group, t)[c * p.key.dim]);
      query[c] = cuda::widen(row_of<T>(p.query, s, b.head / p.group, t)[c * p.query.dim]);
      decay[c] = exp(static_cast<C>(decay_of(p, s, b.head, t, c)));
    }
    __syncthreads();
    C keyed = 0, queried = 0, kk = 0, qq = 0, qk = 0;
    for (int64_t c = b.group; c < p.key_dim; c += kGeneralGroups) {
      const C value = state[c * kGeneralColumns + lane] * decay[c];
      state[c * kGeneralColumns + lane] = value;
      keyed += key[c] * value, queried += query[c] * value;
      kk += key[c] * key[c], qq += query[c] * query[c], qk += query[c] * key[c];
    }
    by_key[b.group][lane] = keyed, by_query[b.group][lane] = queried;
    if (lane == 0) norms[b.group][0] = kk, norms[b.group][1] = qq, norms[b.group][2] = qk;
    __syncthreads();
    keyed = queried = kk = qq = qk = 0;
    for (int g = 0; g < kGeneralGroups; ++g) {
      keyed += by_key[g][lane], queried += by_query[g][lane];
      kk += norms[g][0], qq += norms[g][1], qk += norms[g][2];
    }
    const C key_scale = p.normalize ? inverse_norm(kk) : C(1);
    const C query_scale = static_cast<C>(p.scale) * (p.normalize ? inverse_norm(qq) : C(1));
    const C value = b.inside ? cuda::widen(row_of<T>(p.value, s, b.head, t)[b.column * p.value.dim]) : C(0);
    const C error = beta_of<T>(p, s, b.head, t) * (value - key_scale * keyed);
    for (int64_t c = b.group; c < p.key_dim; c += kGeneralGroups)
      state[c * kGeneralColumns + lane] += key[c] * key_scale * error;
    if (b.group == 0 && b.inside)
      place_in<T>(p.output, s, b.head, t)[b.column * p.output.dim] =
          cuda::convert<T>(query_scale * (queried + qk * key_scale * error));
  }
  write_columns(p, b, place, state);
}

}  // namespace

void launch_general_recurrent(const Problem& problem, const DeviceProblem& p) {
  core::visit_float(problem.query.dtype(), [&]<class T>() {
    const int64_t bytes = recurrent_elements(p.key_dim) * static_cast<int64_t>(sizeof(core::Compute<T>));
    launch_general(problem, p, &general_recurrent<T>, bytes);
  });
}

}  // namespace tenor::delta
