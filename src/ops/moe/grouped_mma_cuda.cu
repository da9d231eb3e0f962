// Grouped products of 16-bit operands on any tensor cores since Ampere (mma.sync), of any size and alignment: for
// devices without Hopper's instructions, and for rows that TMA cannot read. An element is one chain over k, as there.
#include "src/cuda/convert.cuh"
#include "src/cuda/gemm/sm90_groups.cuh"
#include "src/cuda/gemm/sm90_swiglu.cuh"
#include "src/cuda/launch.h"
#include "src/cuda/ptx/async_copy.cuh"
#include "src/cuda/ptx/mma.cuh"
#include "src/cuda/reduce.cuh"
#include "src/ops/moe/grouped_cuda.h"

namespace tenor::cuda {
namespace {

using gemm::GroupOffsets;

/// A block's tile, each warp 16 rows of it; stages of k, whose rows lie kStep elements apart so that a fragment's words
/// meet different banks.
constexpr int kThreads = 128, kRows = 64, kColumns = 64, kDepth = 32, kStep = kDepth + 8, kStages = 3;

template <class T>
struct MmaProblem {
  const T *x, *weight, *up;  ///< up null: no SwiGLU
  T* y;
  int n, k;
  int64_t x_row, weight_row, up_row, weight_group, up_group, y_row;
  bool aligned;  ///< rows start at multiples of 16 bytes, and k is a multiple of 8
};

template <class T, int kMatrices>
struct Stage {
  T a[kRows * kStep];
  T b[kMatrices][kColumns * kStep];
};

/// 64 rows of kDepth elements from `k` on; rows from `count` on, and what lies past the last k, are zeros.
template <class T>
__device__ void load_rows(T* to, const T* from, int64_t row_step, int count, int k, int last, bool aligned) {
  if (aligned) {
    for (int i = threadIdx.x; i < kRows * kDepth / 8; i += kThreads) {
      const int row = i / (kDepth / 8), at = k + i % (kDepth / 8) * 8;
      const bool valid = row < count && at < last;
      ptx::async_copy_16(to + row * kStep + i % (kDepth / 8) * 8, valid ? from + row * row_step + at : from, valid);
    }
    return;
  }
  for (int i = threadIdx.x; i < kRows * kDepth; i += kThreads) {
    const int row = i / kDepth, at = k + i % kDepth;
    to[row * kStep + i % kDepth] = row < count && at < last ? from[row * row_step + at] : T{};
  }
}

/// Two neighbouring elements.
template <class T>
__device__ __forceinline__ uint32_t word(const T* p) {
  return *reinterpret_cast<const uint32_t*>(p);
}

/// The products of one stage: the warp's 16 rows with all columns.
template <class T, int kMatrices>
__device__ __forceinline__ void multiply(const Stage<T, kMatrices>& stage, float (&d)[kMatrices][kColumns / 8][4]) {
  const int lane = threadIdx.x % kWarp, g = lane / 4, t = lane % 4 * 2;
  const T* a = stage.a + (threadIdx.x / kWarp * 16 + g) * kStep + t;
#pragma unroll
  for (int k = 0; k < kDepth; k += 16) {
    const uint32_t a0 = word(a + k), a1 = word(a + k + 8 * kStep), a2 = word(a + k + 8),
                   a3 = word(a + k + 8 * kStep + 8);
#pragma unroll
    for (int m = 0; m < kMatrices; ++m)
#pragma unroll
      for (int j = 0; j < kColumns / 8; ++j) {
        const T* b = stage.b[m] + (j * 8 + g) * kStep + k + t;
        ptx::mma_m16n8k16<T>(d[m][j], a0, a1, a2, a3, word(b), word(b + 8));
      }
  }
}

template <class T, int kMatrices>
__device__ void mma_tile(const MmaProblem<T>& p, Stage<T, kMatrices>* stages, int row, int last, int group,
                         int column) {
  float d[kMatrices][kColumns / 8][4] = {};
  const int count = last - row, columns = p.n - column, steps = (p.k + kDepth - 1) / kDepth;
  const auto load = [&](int step) {
    if (step < steps) {
      Stage<T, kMatrices>& stage = stages[step % kStages];
      load_rows(stage.a, p.x + row * p.x_row, p.x_row, count, step * kDepth, p.k, p.aligned);
      load_rows(stage.b[0], p.weight + group * p.weight_group + column * p.weight_row, p.weight_row, columns,
                step * kDepth, p.k, p.aligned);
      if constexpr (kMatrices == 2)
        load_rows(stage.b[1], p.up + group * p.up_group + column * p.up_row, p.up_row, columns, step * kDepth, p.k,
                  p.aligned);
    }
    ptx::async_copy_commit();
  };
  for (int step = 0; step < kStages - 1; ++step) load(step);
  for (int step = 0; step < steps; ++step) {
    ptx::async_copy_wait<kStages - 2>();
    __syncthreads();
    load(step + kStages - 1);
    multiply(stages[step % kStages], d);
  }
  ptx::async_copy_wait<0>();
  __syncthreads();  // the next tile's copies write there
  const int lane = threadIdx.x % kWarp, first = threadIdx.x / kWarp * 16 + lane / 4;
#pragma unroll
  for (int j = 0; j < kColumns / 8; ++j)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int r = first + i / 2 * 8, c = j * 8 + lane % 4 * 2 + i % 2;
      float sum = d[0][j][i];
      if constexpr (kMatrices == 2) sum = gemm::swiglu(sum, d[1][j][i]);
      if (r < count && c < columns) p.y[(row + r) * p.y_row + column + c] = convert<T>(sum);
    }
}

/// Dynamic shared memory: where the groups' tiles start, then the stages.
template <class T, int kMatrices>
__global__ void __launch_bounds__(kThreads)
    grouped_mma_kernel(const __grid_constant__ MmaProblem<T> p, const __grid_constant__ GroupOffsets offsets) {
  extern __shared__ __align__(16) unsigned char raw[];
  auto* stages = reinterpret_cast<Stage<T, kMatrices>*>(raw);
  int* starts = reinterpret_cast<int*>(stages + kStages);
  gemm::count_tiles(starts, offsets, kRows);
  const int64_t columns = (p.n + kColumns - 1) / kColumns, tiles = starts[offsets.groups] * columns;
  for (int64_t i = blockIdx.x; i < tiles; i += gridDim.x) {
    const auto tile = static_cast<int>(i / columns);
    const int group = gemm::group_of(starts, offsets.groups, tile);
    mma_tile<T, kMatrices>(p, stages, offsets.first(group) + (tile - starts[group]) * kRows, offsets.last(group), group,
                           static_cast<int>(i % columns) * kColumns);
  }
}

template <class T, int kMatrices>
void launch_mma(const char* op, const GroupedTensors& t, Device device) {
  const Tensor &x = t.x, &w = t.weight;
  MmaProblem<T> p{x.data<T>(),
                  w.data<T>(),
                  nullptr,
                  t.y.data<T>(),
                  static_cast<int>(w.shape(1)),
                  static_cast<int>(w.shape(2)),
                  x.stride(0),
                  w.stride(1),
                  0,
                  w.stride(0),
                  0,
                  t.y.stride(0),
                  w.shape(2) % 8 == 0};
  if constexpr (kMatrices == 2) p.up = t.up.data<T>(), p.up_row = t.up.stride(1), p.up_group = t.up.stride(0);
  for (const Tensor* operand : {&x, &w, &t.up})
    for (int d = 0; operand->defined() && d < operand->ndim() - 1; ++d)
      p.aligned = p.aligned && is_aligned(operand->raw(), operand->stride(d), sizeof(T));
  const auto groups = static_cast<int>(w.shape(0));
  const GroupOffsets offsets{t.offsets.raw(), true, groups, static_cast<int>(x.shape(0))};
  const int64_t most = (x.shape(0) / kRows + std::min<int64_t>(groups, x.shape(0))) * ((p.n + kColumns - 1) / kColumns);
  launch(op, grouped_mma_kernel<T, kMatrices>,
         {blocks_for(most, 1, device, 4), kThreads, kStages * sizeof(Stage<T, kMatrices>) + (groups + 1) * sizeof(int)},
         device, p, offsets);
}

}  // namespace

void grouped_mma(const char* op, const GroupedTensors& t) {
  const Device device = t.y.device();
  const DeviceGuard guard(device);
  const auto of_type = [&]<class T>() {
    t.up.defined() ? launch_mma<T, 2>(op, t, device) : launch_mma<T, 1>(op, t, device);
  };
  t.x.dtype() == bfloat16 ? of_type.template operator()<BFloat16>() : of_type.template operator()<Float16>();
}

}  // namespace tenor::cuda
