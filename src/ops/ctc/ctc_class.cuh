// The class pass of CTC's gradient on CUDA, in two parts. exp(log_probs) of every class does not wait for the
// recursion: blocks of its launch that walk no sample write it (exponential_rows), a warp a row. Then the classes that
// the target has take their posteriors (mend_kernel): labels are gone through in the order of their classes, so that
// one thread adds up each.
#pragma once

#include "src/cuda/convert.cuh"
#include "src/cuda/ptx/dependent_launch.cuh"
#include "src/cuda/reduce.cuh"
#include "src/ops/ctc/ctc_device.h"

namespace tenor::ctc {

inline constexpr int kClassThreads = 256;

/// Losses [N] as one: their sum, or the mean of each over its target's length. By one block, in an order that depends
/// on N.
template <class T>
struct LossArguments {
  const double* losses;
  cuda::ContentError* flag;
  Integers target_lengths;
  int64_t samples;
  bool mean;
  T* loss;  ///< one, or [N] where each is wanted
  int64_t loss_stride;
  bool each;
};

template <class T>
__device__ void join_losses(const LossArguments<T>& a) {
  using C = core::Compute<T>;
  __shared__ double warps[kClassThreads / cuda::kWarp];
  double sum = 0;
  for (int64_t n = threadIdx.x; n < a.samples; n += kClassThreads) {
    const double loss = a.losses[n];
    if (a.each) a.loss[n * a.loss_stride] = cuda::convert<T>(static_cast<C>(loss));
    const int64_t labels = a.mean ? a.target_lengths.at(0, 0, n) : 1;
    sum += loss / static_cast<double>(labels > 1 ? labels : 1);
  }
  if (a.each) return;
  sum = cuda::block_reduce<kClassThreads>(sum, warps, [](double x, double y) { return x + y; });
  if (a.mean && a.samples > 0) sum /= static_cast<double>(a.samples);
  if (threadIdx.x == 0) *a.loss = cuda::convert<T>(static_cast<C>(sum));
}

template <class T>
__global__ void __launch_bounds__(kClassThreads) loss_kernel(const __grid_constant__ LossArguments<T> a) {
  cuda::ptx::wait_for_previous();
  join_losses(a);
}

/// exp(x) in a few instructions: two in the last place, 0 below 2^-126.
__device__ inline float short_exp(float x) {
  const float bounded = fminf(fmaxf(x, -200.0f), 100.0f);
  const float whole = bounded * kLog2e<float>;
  const float rest = fmaf(bounded, kLog2eRest<float>, fmaf(bounded, kLog2e<float>, -whole)) * 0.693147181f;
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(whole));
  y = fmaf(y, rest, y);
  return x != x ? x : y;
}
__device__ inline double short_exp(double x) { return std::exp(x); }

template <class T>
__device__ T class_gradient(core::Compute<T> x, core::Compute<T> posterior, core::Compute<T> weight) {
  return cuda::convert<T>((short_exp(x) - posterior) * weight);
}

/// What a sample's gradient is multiplied by.
template <class T>
__device__ core::Compute<T> weight_of(const ClassArguments<T>& a, int64_t n) {
  using C = core::Compute<T>;
  C weight = 1;
  if (a.upstream) {
    const int64_t at = n * a.upstream_stride;
    weight = a.upstream_wide ? static_cast<C>(static_cast<const float*>(a.upstream)[at])
                             : cuda::convert<C>(static_cast<const T*>(a.upstream)[at]);
  }
  const int64_t labels = a.mean ? a.target_lengths.at(0, 0, n) : 1;
  return a.mean ? weight / (static_cast<C>(labels > 1 ? labels : 1) * static_cast<C>(a.samples)) : weight;
}

/// to[c] = fn(from[c]) for every class of a row, by a warp; V at once where they lie side by side, several reads ahead.
template <int V, class T, class Fn>
__device__ void each_class(const ClassArguments<T>& a, const T* from, T* to, Fn fn) {
  constexpr int kBatch = 8;
  constexpr int64_t kStep = int64_t{cuda::kWarp} * V;
  for (int64_t first = threadIdx.x % cuda::kWarp * V; first < a.classes; first += kBatch * kStep) {
    cuda::Pack<T, V> x[kBatch];
#pragma unroll
    for (int k = 0; k < kBatch; ++k) {
      const int64_t c = first + k * kStep;
      if (c >= a.classes) continue;
      if constexpr (V > 1)
        x[k] = cuda::load_pack<V>(from + c);
      else
        x[k].at[0] = from[c * a.class_stride];
    }
#pragma unroll
    for (int k = 0; k < kBatch; ++k) {
      const int64_t c = first + k * kStep;
      if (c >= a.classes) continue;
#pragma unroll
      for (int i = 0; i < V; ++i) x[k].at[i] = fn(x[k].at[i]);
      if constexpr (V > 1)
        cuda::store_pack(to + c, x[k]);
      else
        to[c * a.to_class_stride] = x[k].at[0];
    }
  }
}

template <class T>
__device__ void fill_row(const ClassArguments<T>& a, T* to, core::Compute<T> value) {
  for (int64_t c = threadIdx.x % cuda::kWarp; c < a.classes; c += cuda::kWarp)
    to[c * a.to_class_stride] = cuda::convert<T>(value);
}

/// weight * exp(log_probs), 0 past a sample's frames, by block `part` of `parts`.
template <class T>
__device__ void exponential_rows(const ClassArguments<T>& a, int64_t part, int64_t parts) {
  using C = core::Compute<T>;
  const int64_t warps = blockDim.x / cuda::kWarp, rows = a.frames * a.samples;
  for (int64_t row = part * warps + threadIdx.x / cuda::kWarp; row < rows; row += parts * warps) {
    const int64_t t = row / a.samples, n = row - t * a.samples;
    const T* from = a.log_probs + t * a.frame_stride + n * a.sample_stride;
    T* to = a.gradient + t * a.to_frame_stride + n * a.to_sample_stride;
    const int64_t frames = a.input_lengths.at(0, 0, n);
    if (t >= frames || frames > a.frames) {
      fill_row(a, to, C(0));
      continue;
    }
    const C weight = weight_of(a, n);
    const auto fn = [&](T x) { return class_gradient<T>(cuda::convert<C>(x), C(0), weight); };
    if (a.vectors)
      each_class<cuda::kVector<T>>(a, from, to, fn);
    else
      each_class<1>(a, from, to, fn);
  }
}

/// The posteriors of one frame's states: forward times backward over the likelihood.
template <class C>
struct Posteriors {
  const Scaled<C>*forward, *backward;
  C scale_m, scale_e;
  __device__ C of(Scaled<C> x, Scaled<C> y) const {
    // Where exponents are so large that they have no digits for this sum, it may be anything.
    return x.m * y.m * scale_m * power_of_two(std::fmin(x.e + y.e + scale_e, C(30)));
  }
  __device__ C operator()(int64_t state) const { return of(forward[state], backward[state]); }
};

/// A sample's labels in the order of their classes, and room for a warp's posteriors and log probabilities: in shared
/// memory, or without `kStaged` (of more labels than fit there) where they lie, each read when it is needed.
template <class T, bool kStaged>
struct MendedRows {
  using C = core::Compute<T>;
  const ClassArguments<T>& a;
  const Found& f;
  int2* labels = nullptr;   ///< state and class
  int32_t* runs = nullptr;  ///< how many labels of one class begin there
  C *posts = nullptr, *values = nullptr;

  static size_t bytes(int64_t labels) {
    constexpr size_t kWarps = kClassThreads / cuda::kWarp;
    return kStaged ? static_cast<size_t>(labels) * (2 * kWarps * sizeof(C) + 3 * sizeof(int32_t)) : 0;
  }
  /// Every thread of the block calls. f.labels <= most where the sample has a path.
  __device__ MendedRows(const ClassArguments<T>& a, const Found& f, int64_t most) : a(a), f(f) {
    if constexpr (kStaged) {
      extern __shared__ __align__(16) unsigned char memory[];
      C* shared = reinterpret_cast<C*>(memory);
      posts = shared + threadIdx.x / cuda::kWarp * 2 * most;
      values = posts + most;
      labels = reinterpret_cast<int2*>(shared + kClassThreads / cuda::kWarp * 2 * most);
      runs = reinterpret_cast<int32_t*>(labels + most);
      if (f.outcome == Outcome::kFine)
        for (int64_t i = threadIdx.x; i < f.labels; i += kClassThreads) {
          const int64_t *sorted = a.sorted + f.offset, mine = sorted[i];
          int64_t end = i;
          if (i == 0 || sorted[i - 1] != mine)
            while (end < f.labels && sorted[end] == mine) ++end;
          labels[i] = {static_cast<int>(f.labels + 1 + a.order[f.offset + i]), static_cast<int>(mine)};
          runs[i] = static_cast<int32_t>(end - i);
        }
      __syncthreads();
    }
  }
  /// Posteriors and log probabilities of all labels, in their order here; returns the blanks' sum of this lane. All
  /// that a lane needs is asked for at once, as far as registers reach.
  __device__ C stage(const Posteriors<C>& posterior, const T* from) const {
    constexpr int kBatch = sizeof(C) == 8 ? 4 : 8;
    const int lane = threadIdx.x % cuda::kWarp, count = static_cast<int>(f.labels), states = 2 * count + 1;
    C blank = 0;
    for (int first = lane; first < states; first += kBatch * cuda::kWarp) {
      Scaled<C> x[kBatch], y[kBatch];
      T value[kBatch];
#pragma unroll
      for (int k = 0; k < kBatch; ++k) {
        const int i = first + k * cuda::kWarp;
        if (i >= states) continue;
        const int2 label = i < count ? labels[i] : int2{i - count, 0};
        x[k] = posterior.forward[label.x];
        y[k] = posterior.backward[label.x];
        if (i < count) value[k] = from[label.y * a.class_stride];
      }
#pragma unroll
      for (int k = 0; k < kBatch; ++k) {
        const int i = first + k * cuda::kWarp;
        if (i >= states) continue;
        const C p = posterior.of(x[k], y[k]);
        if (i >= count) {
          blank += p;
        } else {
          posts[i] = p;
          values[i] = cuda::convert<C>(value[k]);
        }
      }
    }
    return blank;
  }

  /// The classes of labels, each by the lane that has its first one; whether the blank is among them. One after the
  /// other where nothing is staged.
  __device__ bool write_labels(const Posteriors<C>& posterior, const T* from, T* to, C weight, C blank) const {
    bool blank_is_label = false;
    for (int64_t i = threadIdx.x % cuda::kWarp; i < f.labels; i += cuda::kWarp) {
      const int64_t* sorted = a.sorted + f.offset;
      if (kStaged ? runs[i] == 0 : i > 0 && sorted[i - 1] == sorted[i]) continue;
      const int64_t mine = kStaged ? labels[i].y : sorted[i];
      const bool is_blank = mine == a.blank;
      blank_is_label |= is_blank;
      C sum = is_blank ? blank : C(0);
      if constexpr (kStaged)
        for (int k = 0; k < runs[i]; ++k) sum += posts[i + k];
      else
        for (int64_t k = i; k < f.labels && sorted[k] == mine; ++k)
          sum += posterior(f.labels + 1 + a.order[f.offset + k]);
      const C x = kStaged ? values[i] : cuda::convert<C>(from[mine * a.class_stride]);
      to[mine * a.to_class_stride] = class_gradient<T>(x, sum, weight);
    }
    return __any_sync(~0u, blank_is_label);
  }

  __device__ void row(const Posteriors<C>& posterior, const T* from, T* to, C weight) const {
    const int lane = threadIdx.x % cuda::kWarp;
    const T blank_value = from[a.blank * a.class_stride];
    C blank = 0;
    if constexpr (kStaged)
      blank = stage(posterior, from);
    else
      for (int64_t i = lane; i <= f.labels; i += cuda::kWarp) blank += posterior(i);
    blank = cuda::warp_reduce(blank, [](C x, C y) { return x + y; });
    __syncwarp();
    if (!write_labels(posterior, from, to, weight, blank) && lane == 0)
      to[a.blank * a.to_class_stride] = class_gradient<T>(cuda::convert<C>(blank_value), blank, weight);
    __syncwarp();
  }
};

/// The posteriors' part, after the launch that walked and wrote exp(log_probs): a block has `per_block` frames of one
/// sample. Block (0, 0) joins the losses where that is asked for.
template <class T, bool kStaged>
__global__ void __launch_bounds__(kClassThreads)
    mend_kernel(const __grid_constant__ ClassArguments<T> a, const __grid_constant__ LossArguments<T> losses,
                int64_t per_block, int64_t most_labels) {
  using C = core::Compute<T>;
  cuda::ptx::wait_for_previous();
  if (losses.loss && blockIdx.x == 0 && blockIdx.y == 0) join_losses(losses);
  const int64_t n = blockIdx.x;
  const Found f = a.found[n];
  const C weight = weight_of(a, n);
  const int64_t width = 2 * f.labels + 1, states = (2 * f.offset + n) * a.frames;
  const MendedRows<T, kStaged> rows(a, f, most_labels);
  for (int64_t begin = blockIdx.y * per_block; begin < f.frames; begin += gridDim.y * per_block) {
    const int64_t end = begin + per_block < f.frames ? begin + per_block : f.frames;
    for (int64_t t = begin + threadIdx.x / cuda::kWarp; t < end; t += kClassThreads / cuda::kWarp) {
      const T* from = a.log_probs + t * a.frame_stride + n * a.sample_stride;
      T* to = a.gradient + t * a.to_frame_stride + n * a.to_sample_stride;
      if (f.outcome == Outcome::kFine)
        rows.row({a.rows[0] + states + t * width, a.rows[1] + states + t * width, static_cast<C>(f.scale_m),
                  static_cast<C>(f.scale_e)},
                 from, to, weight);
      else
        fill_row(a, to, f.outcome == Outcome::kZero ? C(0) : std::numeric_limits<C>::quiet_NaN());
    }
  }
}

}  // namespace tenor::ctc
