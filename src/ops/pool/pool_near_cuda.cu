#include "src/core/step.h"
#include "src/core/visit.h"
#include "src/ops/pool/pool_gather.cuh"
#include "src/ops/pool/pool_index.cuh"
#include "src/ops/pool/pool_near.cuh"

namespace tenor::cuda {
namespace {

/// What a kernel for any strides and integers is told.
struct NearTensors {
  PoolGrid grad, indices, dx;
  DType index_dtype;
  TargetOrder order;
  StrayReport report;
};

/// How it counts: in 64 bits,
struct NearWide {
  using I = int64_t;
  NearDim dim[3];

  __device__ __forceinline__ WindowRange candidates(int d, I in) const { return dim[d].candidates(in); }
  __device__ __forceinline__ bool near(int d, I out, I in) const { return dim[d].near(out, in); }
  __device__ __forceinline__ I own(int d, I out) const { return dim[d].own(out); }
  __device__ __forceinline__ I over_width(I i, const NearTensors& t) const { return i / t.dx.size[4]; }
  __device__ __forceinline__ I over_height(I i, const NearTensors& t) const { return i / t.dx.size[3]; }
  __device__ __forceinline__ void place(const NearTensors& t, I i, I (&at)[5]) const {
    target_place(t.order, t.dx, i, at);
  }
};

/// or in 32, where divisions are products.
struct NearNarrow {
  using I = int;
  struct Dim {
    int input, output, stride;
    Divider by_stride, by_input, by_output;
  } dim[3];
  Divider by_height, by_width, by_order[5];

  __device__ __forceinline__ static int quotient(int n, const Divider& by) {
    return static_cast<int>(divide(static_cast<uint32_t>(n), by));
  }
  __device__ __forceinline__ FastRange candidates(int k, int in) const {
    const Dim& d = dim[k];
    const int first = max(in - 1, 0);
    if (d.stride > 0) return {quotient(first, d.by_stride), min(quotient(in + 1, d.by_stride) + 1, d.output), 1};
    return {quotient(first * d.output, d.by_input),
            min(quotient((in + 2) * d.output + d.input - 1, d.by_input), d.output), 1};
  }
  __device__ __forceinline__ bool near(int k, int out, int in) const {
    const Dim& d = dim[k];
    if (d.stride > 0) return in >= out * d.stride - 1 && in <= out * d.stride + d.stride;
    return in >= own(k, out) - 1 && in <= quotient((out + 1) * d.input + d.output - 1, d.by_output);
  }
  __device__ __forceinline__ int own(int k, int out) const {
    return dim[k].stride > 0 ? out * dim[k].stride : quotient(out * dim[k].input, dim[k].by_output);
  }
  __device__ __forceinline__ int over_width(int i, const NearTensors&) const { return quotient(i, by_width); }
  __device__ __forceinline__ int over_height(int i, const NearTensors&) const { return quotient(i, by_height); }
  __device__ __forceinline__ void place(const NearTensors& t, int i, int (&at)[5]) const {
#pragma unroll
    for (int k = 4; k >= 0; --k) {
      const int next = quotient(i, by_order[k]), here = i - next * static_cast<int>(by_order[k].divisor);
#pragma unroll
      for (int d = 0; d < 5; ++d)  // an index known when compiling keeps `at` in registers
        if (d == t.order.dim[k]) at[d] = here;
      i = next;
    }
  }
};

std::optional<NearNarrow> narrow(const NearWide& wide, const NearTensors& t) {
  constexpr int64_t kMost = INT32_MAX / 2;
  NearNarrow out;
  if (t.order.count > kMost || t.grad.plane() > kMost) return {};
  for (int k = 0; k < 3; ++k) {
    const NearDim& d = wide.dim[k];
    if (d.stride == 0 && core::count_product(d.input + 3, d.output + 3) > kMost) return {};
    out.dim[k] = {static_cast<int>(d.input), static_cast<int>(d.output), static_cast<int>(d.stride),
                  make_divider(d.stride),    make_divider(d.input),      make_divider(d.output)};
  }
  out.by_height = make_divider(t.dx.size[3]), out.by_width = make_divider(t.dx.size[4]);
  for (int k = 0; k < 5; ++k) out.by_order[k] = make_divider(t.dx.size[t.order.dim[k]]);
  return out;
}

/// Whether an output's index is near; a bad one is reported and dropped.
template <class Count, class I>
__device__ __forceinline__ void check_near(const NearTensors& t, const Count& count, int64_t index, const I (&at)[5],
                                           I d, I h, I w) {
  if (index == -1) return;
  const bool beyond = t.index_dtype == DType::kUInt64 && index < 0;
  if (index < -1 || index >= t.dx.plane() || beyond) {
    const int64_t plane = at[0] * t.dx.size[1] + at[1];
    raise_content_error(t.report.flag, t.report.op, plane * t.grad.plane() + t.grad.flat(d, h, w), index);
    return;
  }
  const I flat = static_cast<I>(index), row = count.over_width(flat, t), depth = count.over_height(row, t);
  const bool near = count.near(0, d, depth) && count.near(1, h, row - depth * static_cast<I>(t.dx.size[3])) &&
                    count.near(2, w, flat - row * static_cast<I>(t.dx.size[4]));
  if (!near) *t.report.stray = 1;
}

/// A thread an input.
template <class T, class Count>
__global__ void __launch_bounds__(256) near_any(const T* __restrict__ grad, const void* __restrict__ indices,
                                                T* __restrict__ dx, NearTensors t, Count count) {
  using C = core::Compute<T>;
  using I = typename Count::I;
  for (int64_t i = blockIdx.x * 256ll + threadIdx.x; i < t.order.count; i += gridDim.x * 256ll) {
    I at[5] = {};
    count.place(t, static_cast<I>(i), at);
    const int64_t flat = t.dx.flat(at[2], at[3], at[4]), own_grad = t.grad.at(at[0], at[1], 0, 0, 0),
                  own_index = t.indices.at(at[0], at[1], 0, 0, 0);
    const auto dr = count.candidates(0, at[2]), hr = count.candidates(1, at[3]), wr = count.candidates(2, at[4]);
    C sum = 0;
    for (I d = dr.first; d < dr.last; ++d)
      for (I h = hr.first; h < hr.last; ++h) {
        const bool own_row = count.own(0, d) == at[2] && count.own(1, h) == at[3];
        for (I w = wr.first; w < wr.last; ++w) {
          const int64_t index = index_at(indices, t.index_dtype, own_index + t.indices.at(0, 0, d, h, w));
          if (own_row && count.own(2, w) == at[4]) check_near(t, count, index, at, d, h, w);
          if (index == flat) sum += convert<C>(grad[own_grad + t.grad.at(0, 0, d, h, w)]);
        }
      }
    dx[t.dx.at(at[0], at[1], at[2], at[3], at[4])] = convert<T>(sum);
  }
}

template <class T, class Count>
void launch_any(const char* op, const NearTensors& t, const Count& count, const Tensor& grad, const Tensor& indices,
                const Tensor& dx) {
  launch(op, near_any<T, Count>, {dim3(blocks_for(t.order.count, 256, grad.device())), dim3(256)}, grad.device(),
         grad.data<T>(), indices.raw(), dx.data<T>(), t, count);
}

/// Two dims, both of windows that move on by two, with indices of 64 bits.
bool plan_near(NearPlan& plan, const pool::Problem& p, const Tensor& indices, const StrayReport& report) {
  const PoolGrid &out = p.windows, &in = p.image;
  const bool a_row = in.size[3] == 1 && out.size[3] == 1;
  const bool two =
      (a_row || NearDim::of(in.size[3], out.size[3]).stride == 2) && NearDim::of(in.size[4], out.size[4]).stride == 2;
  constexpr int64_t kMost = INT32_MAX / 4;
  if (!two || in.size[2] != 1 || out.size[2] != 1 || indices.dtype() != int64 || in.plane() > kMost ||
      in.planes() > kMost)
    return false;
  plan = {out,
          p.other,
          in,
          static_cast<int>(in.size[3]),
          static_cast<int>(in.size[4]),
          static_cast<int>(out.size[3]),
          static_cast<int>(out.size[4]),
          0,
          {},
          {},
          make_divider(in.size[3] / 2 + 1),
          make_divider(in.size[4]),
          make_divider(in.size[1]),
          report};
  return true;
}

template <class T>
bool run_channels(const char* op, NearPlan p, const Tensor& grad, const Tensor& indices, const Tensor& dx) {
  constexpr int kWhole = kVector<T>;
  const Gather g{{}, p.grad, p.dx, {}, 0}, places{{}, p.indices, p.dx, {}, 0};
  const bool together = p.dx.size[1] > 1 && p.dx.stride[1] == 1 && p.grad.stride[1] == 1 && p.indices.stride[1] == 1;
  if (!together || channel_vector(g, grad, dx) != kWhole || channel_vector(places, indices, indices) < 2) return false;
  const int64_t vectors = p.dx.size[1] / kWhole, columns = p.width / 2 + 1,
                total = vectors * columns * (p.height / 2 + 1) * p.dx.size[0];
  if (total > INT32_MAX) return false;
  p.total = static_cast<uint32_t>(total);
  p.by_inner = make_divider(vectors), p.by_columns = make_divider(columns);
  launch(op, near_channels<T, kWhole>, {dim3((p.total + 127) / 128), dim3(128)}, grad.device(), grad.data<T>(),
         indices.data<int64_t>(), dx.data<T>(), p);
  return true;
}

template <class T, int V>
bool launch_near_rows(const char* op, NearPlan p, const Tensor& grad, const Tensor& indices, const Tensor& dx) {
  constexpr int64_t kTile = 2048, kItems = 512;
  const int64_t pairs = (p.height / 2 + 1) * p.dx.planes(), tile = std::min<int64_t>((p.width + V - 1) / V * V, kTile),
                tiles = (p.width + tile - 1) / tile, chunks = tile / V;
  const int64_t rows = std::clamp<int64_t>(kItems / chunks, 1, 128), groups = (pairs + rows - 1) / rows;
  if (pairs > INT32_MAX - 128 || groups * tiles > INT32_MAX) return false;
  p.total = static_cast<uint32_t>(pairs);
  const int64_t pitch = kNearHead + tile / 2 + 4;
  const NearRows r{p,
                   static_cast<int>(rows),
                   static_cast<int>(tile),
                   static_cast<int>(pitch),
                   make_divider(tiles),
                   make_divider(chunks),
                   make_divider((tile / 2 + 2 + kNearRun - 1) / kNearRun)};
  const size_t shared = static_cast<size_t>((rows + 1) * pitch) * (sizeof(T) + 1);
  launch(op, near_rows<T, V>, {dim3(static_cast<unsigned>(groups * tiles)), dim3(kNearThreads), shared}, grad.device(),
         grad.data<T>(), indices.data<int64_t>(), dx.data<T>(), r);
  return true;
}

template <class T>
bool run_rows(const char* op, const NearPlan& p, const Tensor& grad, const Tensor& indices, const Tensor& dx) {
  const auto dense = [](const PoolGrid& g) {
    return (g.size[4] == 1 || g.stride[4] == 1) && (g.size[3] == 1 || g.stride[3] == g.size[4]);
  };
  if (!dense(p.grad) || !dense(p.indices) || (p.dx.size[4] > 1 && p.dx.stride[4] != 1)) return false;
  const int vector = row_vector_of(p.dx, dx);
  if (vector == 8 && sizeof(T) == 2) return launch_near_rows<T, 8>(op, p, grad, indices, dx);
  if (vector >= 4) return launch_near_rows<T, 4>(op, p, grad, indices, dx);
  return launch_near_rows<T, 2>(op, p, grad, indices, dx);
}

}  // namespace

bool max_pool_near(const pool::Problem& p, const Tensor& grad, const Tensor& indices, const Tensor& dx,
                   const StrayReport& report, bool any) {
  return core::visit_float(grad.dtype(), [&]<class T>() {
    NearPlan plan;
    if constexpr (kTuned<T>) {
      if (plan_near(plan, p, indices, report) &&
          (run_channels<T>(p.op, plan, grad, indices, dx) || run_rows<T>(p.op, plan, grad, indices, dx)))
        return true;
    }
    if (!any) return false;
    const NearTensors t{p.windows, p.other, p.image, indices.dtype(), order_of(p.image), report};
    NearWide wide;
    for (int d = 0; d < 3; ++d) wide.dim[d] = NearDim::of(p.image.size[d + 2], p.windows.size[d + 2]);
    if (const auto few = narrow(wide, t))
      launch_any<T>(p.op, t, *few, grad, indices, dx);
    else
      launch_any<T>(p.op, t, wide, grad, indices, dx);
    return true;
  });
}

}  // namespace tenor::cuda
