// searchsorted on CUDA.
#include <bit>

#include "src/core/sizes.h"
#include "src/core/visit.h"
#include "src/cuda/launch.h"
#include "src/ops/sort/search.cuh"
#include "src/ops/sort/sort_cuda.h"

namespace tenor::cuda {
namespace {

int64_t first_step(int64_t n) { return static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(n))); }

/// Values for which samples of a sequence pay, and elements of one whose places fit an int.
constexpr int64_t kManyValues = 16384, kMostSampled = int64_t{1} << 30;

/// Shared memory of which two blocks have room.
constexpr size_t kHalf = 100 << 10;

void search_sampled(const Sequences& s, const Tensor& sequence, const Tensor& values, const Tensor& places) {
  const Device device = places.device();
  core::visit_size(sequence.dtype(), [&]<class K>() {
    const int64_t room = static_cast<int64_t>(std::bit_floor(capability(device).shared) / sizeof(K)),
                  most = std::min<int64_t>(kMostSamples<K>, room);
    const int gap = 1 << core::log_above(core::div_up(s.n, most));
    const bool packs = s.stride == 1 && reinterpret_cast<uintptr_t>(sequence.raw()) % 16 == 0;
    const Samples samples{gap, 1 << core::log_above(core::div_up(s.n, gap)), static_cast<int>(s.n), packs};
    const K* const from = sequence.data<K>();
    Tensor ready;
    if (gap > 1) {
      ready = Tensor::empty({samples.count}, sequence.dtype(), device);
      const Grid grid{static_cast<unsigned>(core::div_up(samples.count, kSearchThreads)), kSearchThreads};
      launch("searchsorted", sample_kernel<K>, grid, device, from, s, samples, ready.data<K>());
    }
    const Grid grid{blocks_for(s.count, kSampledThreads * kAtOnce, device, samples.count * sizeof(K) > kHalf ? 1 : 2),
                    kSampledThreads, samples.count * sizeof(K)};
    launch("searchsorted", s.right ? search_sampled_kernel<K, true> : search_sampled_kernel<K, false>, grid, device,
           from, values.data<K>(), ready.defined() ? static_cast<const K*>(ready.raw()) : nullptr, s, samples,
           places.data<int64_t>());
  });
}

}  // namespace

void search_rows(const Tensor& sequences, const Tensor& values, bool right, const Tensor& places) {
  const bool one = sequences.ndim() == 1;
  const Sequences s{sequences.shape(-1),
                    one ? sequences.stride(0) : 1,
                    one ? std::max<int64_t>(values.numel(), 1) : values.shape(-1),
                    values.numel(),
                    core::key_code(sequences.dtype()),
                    right,
                    first_step(sequences.shape(-1))};
  if (s.count == 0) return;
  const DeviceGuard guard(places.device());
  if (one && s.count >= kManyValues && s.n <= kMostSampled) return search_sampled(s, sequences, values, places);
  constexpr int64_t kPerBlock = int64_t{kSearchThreads} * kAtOnce;
  const Grid grid{dim3(static_cast<unsigned>((s.count + kPerBlock - 1) / kPerBlock)), dim3(kSearchThreads)};
  core::visit_size(sequences.dtype(), [&]<class K>() {
    launch("searchsorted", search_kernel<K>, grid, places.device(), sequences.data<K>(), values.data<K>(), s,
           places.data<int64_t>());
  });
}

void search_one(const Tensor& sequence, const Tensor& value, bool right, const Tensor& place) {
  const Sequences s{sequence.shape(0),
                    sequence.stride(0),
                    1,
                    1,
                    core::key_code(sequence.dtype()),
                    right,
                    first_step(sequence.shape(0))};
  const DeviceGuard guard(place.device());
  core::visit_size(sequence.dtype(), [&]<class K>() {
    launch("searchsorted", search_one_kernel<K>, Grid{1, 1}, place.device(), sequence.data<K>(), *value.data<K>(), s,
           place.data<int64_t>());
  });
}

}  // namespace tenor::cuda
