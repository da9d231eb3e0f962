// causal_conv1d on CUDA: what its kernels are given, and the ones for few taps, which read each input once and keep a
// window of them in registers.
#pragma once

#include "src/cuda/convert.cuh"
#include "src/ops/gated_delta/gated_delta_device.cuh"
#include "src/ops/gated_delta/silu_cuda.cuh"

namespace tenor::delta {

inline constexpr int kConvThreads = 256;

struct ConvArgs {
  DeviceSequences sequences;
  Rows x, y;           // heads are channels
  States first, last;  // heads are channels, rows places
  Parameter weight, bias;
  int64_t channels, taps;
  bool silu, along_channels;  // whether neighbouring threads take neighbouring channels, else neighbouring steps
};

/// Input t of a sequence's channel: from its state where t < 0.
template <class T, class C = core::Compute<T>>
__device__ __forceinline__ C input_at(const ConvArgs& p, const DeviceSequence& s, int64_t place, bool from_state,
                                      int64_t channel, int64_t t) {
  if (t >= 0) return cuda::widen(row_of<T>(p.x, s, channel, t)[0]);
  if (!from_state) return C(0);
  return cuda::widen(static_cast<const T*>(
      p.first.data)[place * p.first.place + channel * p.first.head + (p.taps - 1 + t) * p.first.row]);
}

/// A channel's last inputs, by the one thread that has read its state, which may be written where it was read.
template <class T>
__device__ __forceinline__ void store_conv_state(const ConvArgs& p, const DeviceSequence& s, int64_t place,
                                                 bool from_state, int64_t channel) {
  T* to = static_cast<T*>(p.last.data) + place * p.last.place + channel * p.last.head;
  for (int64_t j = 0; j + 1 < p.taps; ++j)  // reads ahead of what it writes
    to[j * p.last.row] = cuda::convert<T>(input_at<T>(p, s, place, from_state, channel, s.length - p.taps + 1 + j));
}

/// A vector of a row's inputs in time and the one before it, from memory.
template <class T>
struct ConvInputs {
  static constexpr int V = cuda::kVector<T>;
  cuda::Pack<T, V> own, before;

  template <bool kWide>
  __device__ __forceinline__ void load(const T* row, int64_t stride, unsigned vector, int64_t length) {
    const int64_t step = int64_t{vector} * V;
    if constexpr (kWide) {
      own = cuda::load_pack<V>(row + step);
      if (vector > 0) before = cuda::load_pack<V>(row + step - V);
    } else {
#pragma unroll
      for (int j = 0; j < V; ++j) {
        if (step + j < length) own.at[j] = row[(step + j) * stride];
        if (vector > 0) before.at[j] = row[(step + j - V) * stride];
      }
    }
  }
};

/// Inputs side by side in time, in a batch of equal sequences. 2^log_width threads side by side pass over a part of a
/// row, `run` vectors each. kWide: vectors start at multiples of 16 bytes, and none is cut. Blocks: parts of a row
/// fastest, then groups of channels, then sequences.
template <class T, int kTaps, bool kWide>
__global__ void __launch_bounds__(kConvThreads, kWide ? 5 : 1)
    conv_steps_kernel(const __grid_constant__ ConvArgs p, unsigned parts, unsigned groups, int log_width,
                      unsigned run) {
  constexpr int V = cuda::kVector<T>;
  static_assert(kTaps <= V + 1);
  const unsigned rest = blockIdx.x / parts;
  const int64_t n = rest / groups;
  const int64_t place = place_of(p.sequences, n);
  const int64_t channel = (int64_t{rest % groups} * kConvThreads + threadIdx.x) >> log_width;
  if (place < 0 || channel >= p.channels) return;
  const DeviceSequence s(p.sequences, n);
  float weight[kTaps];
#pragma unroll
  for (int w = 0; w < kTaps; ++w) weight[w] = p.weight.template at<T>(channel, w);
  const float bias = p.bias.data ? p.bias.template at<T>(channel) : 0.0f;
  const bool from_state = starts_from_state(p.sequences, n);
  const T* from = row_of<T>(p.x, s, channel, 0);
  T* to = place_in<T>(p.y, s, channel, 0);
  const unsigned width = 1u << log_width, vectors = static_cast<unsigned>((s.length + V - 1) / V),
                 first = blockIdx.x % parts * (width * run) + threadIdx.x % width,
                 last = min(vectors, (blockIdx.x % parts + 1) * (width * run));
  ConvInputs<T> next;
  if (first < last) next.template load<kWide>(from, p.x.step, first, s.length);
#pragma unroll 1
  for (unsigned vector = first; vector < last; vector += width) {
    const ConvInputs<T> now = next;
    if (vector + width < last) next.template load<kWide>(from, p.x.step, vector + width, s.length);
    float own[V], before[V], out[V];
    cuda::widen_pack(now.own, own), cuda::widen_pack(now.before, before);
    if (vector == 0)
#pragma unroll
      for (int j = 1; j < kTaps; ++j) before[V - j] = input_at<T>(p, s, place, from_state, channel, -j);
#pragma unroll
    for (int j = 0; j < V; ++j) {
      float sum = bias;
#pragma unroll
      for (int w = 0; w < kTaps; ++w) {
        const int at = j - kTaps + 1 + w;
        sum = fmaf(weight[w], at < 0 ? before[V + at] : own[at], sum);
      }
      out[j] = p.silu ? silu_for<T>(sum) : sum;
    }
    const int64_t step = int64_t{vector} * V;
    if constexpr (kWide) {
      cuda::store_pack(to + step, cuda::convert_pack<T>(out));
    } else {
#pragma unroll
      for (int j = 0; j < V; ++j)
        if (step + j < s.length) to[(step + j) * p.y.step] = cuda::convert<T>(out[j]);
    }
    if (vector == 0) store_conv_state<T>(p, s, place, from_state, channel);
  }
}

inline constexpr int kConvChannels = 4;  // of a thread, where they lie side by side

/// Inputs side by side in channels, packed sequences too: a thread passes over `run` steps of four channels, four steps
/// at once, the next four under way. Blocks: parts of a sequence's runs, then sequences.
template <class T, int kTaps>
__global__ void __launch_bounds__(kConvThreads, 3)
    conv_channels_kernel(const __grid_constant__ ConvArgs p, unsigned parts, unsigned run) {
  constexpr int V = kConvChannels, kBatch = 4;
  const int64_t n = blockIdx.x / parts;
  const int64_t place = place_of(p.sequences, n);
  if (place < 0) return;
  const DeviceSequence s(p.sequences, n);
  const bool from_state = starts_from_state(p.sequences, n);
  const unsigned vectors = static_cast<unsigned>(p.channels / V);
  const int64_t runs = s.length > run ? (s.length + run - 1) / run : 1;  // one without steps passes its state on
  for (int64_t i = int64_t{blockIdx.x % parts} * kConvThreads + threadIdx.x; i < runs * vectors;
       i += int64_t{parts} * kConvThreads) {
    const int64_t channel = i % vectors * V, begin = i / vectors * run, end = min(begin + run, s.length);
    const T* from = row_of<T>(p.x, s, channel, begin);
    T* to = place_in<T>(p.y, s, channel, begin);
    cuda::Pack<T, V> next[kBatch];
    const auto load = [&](int64_t t) {
#pragma unroll
      for (int b = 0; b < kBatch; ++b)
        if (t + b < end) next[b] = cuda::load_pack<V>(from + (t - begin + b) * p.x.step);
    };
    load(begin);
    float window[kTaps][V], weight[kTaps][V], bias[V];
#pragma unroll
    for (int j = 0; j < V; ++j) {
      bias[j] = p.bias.data ? p.bias.template at<T>(channel + j) : 0.0f;
#pragma unroll
      for (int w = 0; w < kTaps; ++w) weight[w][j] = p.weight.template at<T>(channel + j, w);
#pragma unroll
      for (int w = 0; w + 1 < kTaps; ++w)
        window[w][j] = input_at<T>(p, s, place, from_state, channel + j, begin - kTaps + 1 + w);
    }
    for (int64_t t = begin; t < end; t += kBatch) {
      cuda::Pack<T, V> now[kBatch];
#pragma unroll
      for (int b = 0; b < kBatch; ++b) now[b] = next[b];
      load(t + kBatch);
#pragma unroll
      for (int b = 0; b < kBatch; ++b) {
        if (t + b >= end) continue;
        float out[V];
        cuda::widen_pack(now[b], window[kTaps - 1]);
#pragma unroll
        for (int j = 0; j < V; ++j) {
          float sum = bias[j];
#pragma unroll
          for (int w = 0; w < kTaps; ++w) sum = fmaf(weight[w][j], window[w][j], sum);
          out[j] = p.silu ? silu_for<T>(sum) : sum;
#pragma unroll
          for (int w = 0; w + 1 < kTaps; ++w) window[w][j] = window[w + 1][j];
        }
        cuda::store_pack(to + (t - begin + b) * p.y.step, cuda::convert_pack<T>(out));
      }
    }
    if (begin == 0)
#pragma unroll
      for (int j = 0; j < V; ++j) store_conv_state<T>(p, s, place, from_state, channel + j);
  }
}

}  // namespace tenor::delta
