// A problem of the gated delta rule as kernels see it: sizes, pointers and strides by value; sequences and slots are
// found in device memory.
#pragma once

#include "src/cuda/content_error.cuh"
#include "src/cuda/convert.cuh"
#include "src/cuda/offsets.cuh"
#include "src/ops/index/index_entries.cuh"

namespace tenor::delta {

/// [B, H, T, n] or [B, H, T]; strides in elements.
struct Rows {
  void* data;
  int64_t batch, head, step, dim;
};
/// float32 [places, Hv, K, V], or [places, C, W - 1] of x's type.
struct States {
  void* data;  ///< null: zeros
  int64_t place, head, row, column;
};

/// Which sequences there are and where their states lie; shared with causal_conv1d.
struct DeviceSequences {
  cuda::Offsets starts;  ///< data null: a batch of equal sequences
  index::Entries slots;  ///< data null: sequence n has state n
  int64_t slots_stride;
  const uint8_t* kept;  ///< has_initial_state, or null
  int64_t kept_stride;
  cuda::ContentError* flag;
  int64_t count;   ///< sequences
  int64_t steps;   ///< of each, or of all where packed
  bool has_first;  ///< there are states to read
};

struct DeviceProblem {
  Rows query, key, value, beta, decay, output;
  States first, last;
  DeviceSequences sequences;
  int64_t heads, group, value_heads, key_dim, value_dim, chunk;
  double scale;
  bool normalize, by_channel, beta_float;
};

#ifdef __CUDACC__
/// Steps [begin, begin + length) of row `batch`, inside the operands whatever the offsets hold.
struct DeviceSequence {
  int64_t batch, begin, length;
  __device__ DeviceSequence(const DeviceSequences& s, int64_t n) : batch(n), begin(0), length(s.steps) {
    if (!s.starts.data) return;
    batch = 0;
    begin = inside(cuda::offset_at(s.starts, n), 0, s.steps);
    length = inside(cuda::offset_at(s.starts, n + 1), begin, s.steps) - begin;
  }
  static __device__ int64_t inside(int64_t x, int64_t low, int64_t high) { return x < low ? low : x > high ? high : x; }
};

__device__ __forceinline__ int64_t slot_entry(const DeviceSequences& s, int64_t n) {
  return index::raw_entry(s.slots, n * s.slots_stride);
}

/// Whether the entry says that its sequence is skipped; an unsigned one never does.
__device__ __forceinline__ bool is_skipped(const DeviceSequences& s, int64_t slot) {
  return slot == -1 && s.slots.dtype != DType::kUInt64;
}
/// Whether it names no place and skips nothing.
__device__ __forceinline__ bool is_outside(const DeviceSequences& s, int64_t slot) {
  return (slot < 0 || slot >= s.slots.size) && !is_skipped(s, slot);
}
/// Whether an entry before n, of those that this thread looks at, names the slot as well.
__device__ __forceinline__ bool is_named_before(const DeviceSequences& s, int64_t n, int64_t slot) {
  bool named = false;
  for (int64_t m = threadIdx.x; m < n; m += blockDim.x) named |= slot >= 0 && slot_entry(s, m) == slot;
  return named;
}
__device__ __forceinline__ void raise_bad_slot(const DeviceSequences& s, int64_t n, int64_t slot) {
  cuda::raise_content_error(s.slots.flag, s.slots.op, n, slot);
}

/// Where sequence n's state lies; -1: skipped, or an entry that is out of range or stands before, which raises the
/// flag. Every thread of the block calls.
__device__ __forceinline__ int64_t place_of(const DeviceSequences& s, int64_t n) {
  if (!s.slots.data) return n;
  const int64_t slot = slot_entry(s, n);
  const bool bad = is_outside(s, slot) || is_named_before(s, n, slot);
  if (!__syncthreads_or(bad)) return slot;
  if (threadIdx.x == 0) raise_bad_slot(s, n, slot);
  return -1;
}

/// Whether sequence n starts from a state rather than from zeros.
__device__ __forceinline__ bool starts_from_state(const DeviceSequences& s, int64_t n) {
  return s.has_first && (!s.kept || s.kept[n * s.kept_stride] != 0);
}

template <class T>
__device__ __forceinline__ const T* row_of(const Rows& x, const DeviceSequence& s, int64_t head, int64_t step) {
  return static_cast<const T*>(x.data) + s.batch * x.batch + head * x.head + (s.begin + step) * x.step;
}
template <class T>
__device__ __forceinline__ T* place_in(const Rows& x, const DeviceSequence& s, int64_t head, int64_t step) {
  return static_cast<T*>(x.data) + s.batch * x.batch + head * x.head + (s.begin + step) * x.step;
}
__device__ __forceinline__ float* state_of(const States& x, int64_t place, int64_t head) {
  return static_cast<float*>(x.data) + place * x.place + head * x.head;
}
#endif

}  // namespace tenor::delta
