// max_pool's gradient: elements of grad_output go to the places that `indices` names. Where every place is near, as
// pooling gives them, inputs read them (pool_near.h). Else any index may come any number of times, so a block keeps a
// piece of some planes in shared memory and goes through all outputs of these planes in order. Of those at hand that
// name one place, the lowest takes its turn first (an integer minimum): sums are added in the order of outputs, as on
// the CPU.
#include <algorithm>
#include <climits>

#include "src/core/visit.h"
#include "src/cuda/content_error.cuh"
#include "src/cuda/convert.cuh"
#include "src/cuda/launch.h"
#include "src/cuda/layout.h"
#include "src/ops/pool/pool_index.cuh"
#include "src/ops/pool/pool_near.h"

namespace tenor::cuda {
namespace {

using pool::PoolGrid;

constexpr int kThreads = 256;
constexpr int kAtOnce = 4;  // outputs of a thread
constexpr int kBatch = kThreads * kAtOnce;

/// One tensor's planes.
struct Planes {
  PoolGrid grid;
  bool linear;  ///< elements of a plane lie evenly, stride[4] apart

  __device__ __forceinline__ int64_t base(int64_t plane) const {
    return plane / grid.size[1] * grid.stride[0] + plane % grid.size[1] * grid.stride[1];
  }
  __device__ __forceinline__ int64_t at(int64_t flat) const {
    if (linear) return flat * grid.stride[4];
    const int64_t row = flat / grid.size[4], depth = row / grid.size[3];
    return depth * grid.stride[2] + (row - depth * grid.size[3]) * grid.stride[3] +
           (flat - row * grid.size[4]) * grid.stride[4];
  }
};

struct Scatter {
  Planes grad, indices, dx;
  DType index_dtype;
  int64_t planes, outputs, inputs;  ///< of all tensors; of a plane
  int lanes;                        ///< planes a block
  int64_t range, ranges;            ///< inputs of a plane a block, and blocks a plane
  bool together;                    ///< lanes are neighbours in memory
  bool narrow;                      ///< 32 bits count a block's outputs
  Divider by_lanes, by_outputs, by_range;
  StrayReport report;
  bool after_near = false;  ///< there is work only where the report's stray is set

  int64_t work() const { return (planes + lanes - 1) / lanes * ranges; }
};

/// Where a block's planes begin in each tensor; -1: there are no more.
struct Lane {
  int64_t plane, grad, indices, dx;
};
constexpr int kMostLanes = 64;

/// Item i of a block: (lane, place of it).
__device__ __forceinline__ int64_t item_lane(const Scatter& p, int64_t i, int64_t& out) {
  if (p.narrow) {
    const auto item = static_cast<uint32_t>(i);
    const uint32_t q = divide(item, p.together ? p.by_lanes : p.by_outputs),
                   rest = item - q * (p.together ? p.by_lanes.divisor : p.by_outputs.divisor);
    out = p.together ? q : rest;
    return p.together ? rest : q;
  }
  out = p.together ? i / p.lanes : i % p.outputs;
  return p.together ? i % p.lanes : i / p.outputs;
}

/// The outputs of a batch that a thread holds.
template <class C>
struct Held {
  int place[kAtOnce];  ///< in the block's piece; -1: none, or done
  C value[kAtOnce];
};

template <class T>
__device__ __forceinline__ Held<core::Compute<T>> load_batch(const Scatter& p, const T* grad, const void* indices,
                                                             const Lane* lanes, int64_t range, int64_t batch) {
  Held<core::Compute<T>> held;
#pragma unroll
  for (int k = 0; k < kAtOnce; ++k) {
    held.place[k] = -1;
    const int64_t item = batch + k * kThreads + threadIdx.x;
    if (item >= p.lanes * p.outputs) continue;
    int64_t out;
    const int64_t lane = item_lane(p, item, out), plane = lanes[lane].plane;
    if (plane < 0) continue;
    const int64_t index = index_at(indices, p.index_dtype, lanes[lane].indices + p.indices.at(out));
    if (index < -1 || index >= p.inputs || (p.index_dtype == DType::kUInt64 && index < 0)) {
      raise_content_error(p.report.flag, p.report.op, plane * p.outputs + out, index);
      continue;
    }
    const int64_t within = index - range * p.range;
    if (index < 0 || within < 0 || within >= p.range) continue;
    held.place[k] = static_cast<int>(p.together ? within * p.lanes + lane : lane * p.range + within);
    held.value[k] = convert<core::Compute<T>>(grad[lanes[lane].grad + p.grad.at(out)]);
  }
  return held;
}

/// Adds a batch in the order of its outputs. Every thread of the block calls.
template <class C>
__device__ __forceinline__ void add_batch(Held<C>& held, C* sums, int* turns) {
  bool waiting;
  do {
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k)
      if (held.place[k] >= 0) atomicMin(&turns[held.place[k]], k * kThreads + static_cast<int>(threadIdx.x));
    __syncthreads();
    bool first[kAtOnce];
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k)
      first[k] = held.place[k] >= 0 && turns[held.place[k]] == k * kThreads + static_cast<int>(threadIdx.x);
    __syncthreads();
    waiting = false;
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      if (first[k]) {
        sums[held.place[k]] += held.value[k];
        turns[held.place[k]] = INT_MAX;
        held.place[k] = -1;
      }
      waiting = waiting || held.place[k] >= 0;
    }
  } while (__syncthreads_or(waiting));
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    max_pool_scatter(const T* __restrict__ grad, const void* __restrict__ indices, T* __restrict__ dx, Scatter p) {
  using C = core::Compute<T>;
  extern __shared__ __align__(16) char shared[];
  __shared__ Lane lanes[kMostLanes];
  if (p.after_near && *p.report.stray == 0) return;
  const int piece = static_cast<int>(p.lanes * p.range);
  C* sums = reinterpret_cast<C*>(shared);
  int* turns = reinterpret_cast<int*>(sums + piece);
  const int64_t work = (p.planes + p.lanes - 1) / p.lanes * p.ranges;
  for (int64_t w = blockIdx.x; w < work; w += gridDim.x) {
    const int64_t group = w / p.ranges, range = w % p.ranges;
    for (int i = threadIdx.x; i < piece; i += kThreads) sums[i] = 0, turns[i] = INT_MAX;
    for (int l = threadIdx.x; l < p.lanes; l += kThreads) {
      const int64_t plane = group * p.lanes + l;
      lanes[l] = {plane < p.planes ? plane : -1, p.grad.base(plane), p.indices.base(plane), p.dx.base(plane)};
    }
    __syncthreads();
    for (int64_t batch = 0; batch < p.lanes * p.outputs; batch += kBatch) {
      auto held = load_batch(p, grad, indices, lanes, range, batch);
      add_batch(held, sums, turns);
    }
    for (int i = threadIdx.x; i < piece; i += kThreads) {
      const uint32_t q = divide(static_cast<uint32_t>(i), p.together ? p.by_lanes : p.by_range);
      const uint32_t rest = i - q * (p.together ? p.by_lanes.divisor : p.by_range.divisor);
      const Lane& lane = lanes[p.together ? rest : q];
      const int64_t at = range * p.range + (p.together ? q : rest);
      if (lane.plane >= 0 && at < p.inputs) dx[lane.dx + p.dx.at(at)] = convert<T>(sums[i]);
    }
    __syncthreads();
  }
}

Planes planes_of(const PoolGrid& grid) {
  const auto follows = [&](int d, int64_t inner) { return grid.size[d] == 1 || grid.stride[d] == inner; };
  Planes out{grid,
             follows(3, grid.size[4] * grid.stride[4]) && follows(2, grid.size[3] * grid.size[4] * grid.stride[4])};
  if (grid.size[4] == 1) {  // the only or the innermost dim that has elements side by side is another
    const int inner = grid.size[3] > 1 ? 3 : 2;
    out.linear = inner == 2 || follows(2, grid.size[3] * grid.stride[3]);
    out.grid.stride[4] = grid.stride[inner];
  }
  return out;
}

/// Several small planes, or neighbouring channels, share a block; a plane that fits one is not gone through twice.
void lay(Scatter& p, int64_t element) {
  constexpr int64_t kPiece = 48 << 10, kMost = 96 << 10;
  if (p.together) {
    p.lanes = static_cast<int>(std::min<int64_t>(8, p.dx.grid.size[1]));
    if (p.lanes == 8 && 8 * p.inputs * element > kMost) p.lanes = 4;
  } else {
    p.lanes = static_cast<int>(
        std::clamp<int64_t>(std::min(kBatch / p.outputs, kPiece / (p.inputs * element)), 1, kMostLanes));
  }
  p.lanes = static_cast<int>(std::min<int64_t>(p.lanes, p.planes));
  const int64_t room = p.lanes * p.inputs * element <= kMost ? p.inputs : kPiece / element / p.lanes;
  p.ranges = (p.inputs + room - 1) / room;
  p.range = (p.inputs + p.ranges - 1) / p.ranges;
  p.narrow = p.lanes * p.outputs <= INT32_MAX;
  p.by_lanes = make_divider(p.lanes), p.by_range = make_divider(p.range);
  if (p.narrow) p.by_outputs = make_divider(p.outputs);
}

int op_id(const char* op) {
  static const std::pair<std::string, int> ids[] = {
      {"max_pool1d_backward", content_op("max_pool1d_backward", "indices")},
      {"max_pool2d_backward", content_op("max_pool2d_backward", "indices")},
      {"max_pool3d_backward", content_op("max_pool3d_backward", "indices")},
      {"adaptive_max_pool1d_backward", content_op("adaptive_max_pool1d_backward", "indices")},
      {"adaptive_max_pool2d_backward", content_op("adaptive_max_pool2d_backward", "indices")},
      {"adaptive_max_pool3d_backward", content_op("adaptive_max_pool3d_backward", "indices")}};
  for (const auto& [name, id] : ids)
    if (name == op) return id;
  return ids[0].second;
}

}  // namespace

void max_pool_backward(const pool::Problem& problem, const Tensor& grad, const Tensor& indices, const Tensor& dx) {
  const DeviceGuard guard(grad.device());
  const Stream stream = current_stream(grad.device());
  const Tensor stray = Tensor::empty({1}, int32, grad.device());
  const StrayReport report{stray.data<int>(), content_error(stream), op_id(problem.op)};
  check(cudaMemsetAsync(report.stray, 0, sizeof(int), stream.handle), problem.op);
  const PoolGrid &windows = problem.windows, &image = problem.image;
  Scatter p{planes_of(windows),
            planes_of(problem.other),
            planes_of(image),
            indices.dtype(),
            image.planes(),
            windows.plane(),
            image.plane(),
            1,
            1,
            1,
            image.size[1] > 1 && image.stride[1] == 1 && windows.stride[1] == 1,
            false,
            {},
            {},
            {},
            report};
  core::visit_float(grad.dtype(), [&]<class T>() {
    constexpr int64_t kElement = sizeof(core::Compute<T>) + sizeof(int);
    lay(p, kElement);
    // Planes that few blocks share are gone through a few times, whatever their indices.
    p.after_near = max_pool_near(problem, grad, indices, dx, report, p.ranges > 4);
    const unsigned blocks = p.after_near ? blocks_for(p.work(), 1, grad.device(), 2)
                                         : static_cast<unsigned>(std::min<int64_t>(p.work(), INT_MAX));
    const Grid grid{dim3(blocks), dim3(kThreads), static_cast<size_t>(p.lanes * p.range * kElement)};
    launch(problem.op, max_pool_scatter<T>, grid, grad.device(), grad.data<T>(), indices.raw(), dx.data<T>(), p);
  });
}

}  // namespace tenor::cuda
