// dispatch, combine and cleared ends of results: rows of 16 bytes a thread where their addresses allow it.
#include "src/core/visit.h"
#include "src/cuda/convert.cuh"
#include "src/cuda/stride_loop.cuh"
#include "src/ops/contract/gemm_element.cuh"
#include "src/ops/moe/moe_cuda.h"

namespace tenor::cuda {
namespace {

constexpr int kThreads = 128;

/// Each token's row to the rows of its slots; those of slots that are not dispatched become 0. Words of the rows lie
/// along x, tokens along y.
template <class W>
__global__ void __launch_bounds__(kThreads)
    dispatch_kernel(const W* x, int64_t x_row, W* tokens, int words, const int* rows, int count, int top_k) {
  const int word = blockIdx.x * kThreads + threadIdx.x;
  if (word >= words) return;
  for (int64_t t = blockIdx.y; t < count; t += gridDim.y) {
    const W value = x[t * x_row + word];
    for (int k = 0; k < top_k; ++k) {
      const int row = rows[t * top_k + k];
      tokens[(row < 0 ? -1 - row : row) * int64_t{words} + word] = row < 0 ? W{} : value;
    }
  }
}

template <class T>
struct Combine {
  const T* y;
  int64_t y_row;
  T* out;
  const void *weights, *shared;  ///< shared may be null
  DType weight_dtype;
  int64_t shared_row;
  bool shared_float;  ///< else T
  const int* rows;
  int tokens, top_k, columns;
};

/// sums = sum over a token's slots, ascending, of weight * y, each step rounded, then + shared.
template <class T, int N>
__global__ void __launch_bounds__(kThreads) combine_kernel(const __grid_constant__ Combine<T> p) {
  using C = core::Compute<T>;
  const int column = (blockIdx.x * kThreads + threadIdx.x) * N;
  if (column >= p.columns) return;
  for (int64_t t = blockIdx.y; t < p.tokens; t += gridDim.y) {
    C sums[N] = {};
    for (int k = 0; k < p.top_k; ++k) {
      const int row = p.rows[t * p.top_k + k];
      if (row < 0) continue;
      C weight;
      if (p.weight_dtype == DType::kFloat64)
        weight = static_cast<C>(static_cast<const double*>(p.weights)[t * p.top_k + k]);
      else
        weight = static_cast<C>(contract::element<float>(p.weights, p.weight_dtype, t * p.top_k + k));
      C own[N];
      widen_pack(load_pack<N>(p.y + row * p.y_row + column), own);
#pragma unroll
      for (int i = 0; i < N; ++i) sums[i] = sums[i] + weight * own[i];
    }
    if (p.shared) {
#pragma unroll
      for (int i = 0; i < N; ++i) {
        const int64_t at = t * p.shared_row + column + i;
        sums[i] = sums[i] + (p.shared_float ? static_cast<C>(static_cast<const float*>(p.shared)[at])
                                            : convert<C>(static_cast<const T*>(p.shared)[at]));
      }
    }
    store_pack(p.out + t * p.columns + column, convert_pack<T>(sums));
  }
}

template <class W>
__global__ void clear_kernel(const void* offsets, bool wide, int64_t groups, W* y, int64_t rows, int64_t words) {
  const int64_t last =
      wide ? static_cast<const int64_t*>(offsets)[groups] : static_cast<const int32_t*>(offsets)[groups];
  const int64_t from = min(max(last, int64_t{0}), rows) * words;
  for_each_item(rows * words - from, [&](int64_t i) { y[from + i] = W{}; });
}

Grid grid_of(int64_t words, int64_t tokens) {
  return {{static_cast<unsigned>((words + kThreads - 1) / kThreads),
           static_cast<unsigned>(std::min<int64_t>(tokens, 65535))},
          kThreads};
}

/// Calls fn.template operator()<W>() for the widest word that all rows are made of.
template <class F>
void visit_word(std::initializer_list<const Tensor*> rows, F&& fn) {
  const Tensor& x = **rows.begin();
  const size_t item = item_size(x.dtype());
  bool wide = x.shape(1) * item % kVectorBytes == 0;
  for (const Tensor* r : rows) wide = wide && is_aligned(r->raw(), r->stride(0), item);
  if (wide) return fn.template operator()<uint4>();
  core::visit_size(x.dtype(), fn);
}

}  // namespace

void dispatch_rows(const moe::RoutingPlan::State& plan, const Tensor& x, const Tensor& tokens) {
  const Device device = tokens.device();
  const DeviceGuard guard(device);
  const auto item = static_cast<int64_t>(item_size(x.dtype()));
  visit_word({&x, &tokens}, [&]<class W>() {
    constexpr auto kBytes = static_cast<int64_t>(sizeof(W));
    const int64_t words = x.shape(1) * item / kBytes;
    launch("moe.dispatch", dispatch_kernel<W>, grid_of(words, plan.ids.shape(0)), device,
           static_cast<const W*>(x.raw()), x.stride(0) * item / kBytes, static_cast<W*>(tokens.raw()),
           static_cast<int>(words), plan.rows.data<int>(), static_cast<int>(plan.ids.shape(0)),
           static_cast<int>(plan.ids.shape(1)));
  });
}

void combine_rows(const moe::RoutingPlan::State& plan, const Tensor& y, const Tensor& shared, const Tensor& out) {
  const Device device = out.device();
  const DeviceGuard guard(device);
  const int64_t tokens = out.shape(0), columns = out.shape(1);
  core::visit_float(y.dtype(), [&]<class T>() {
    const Combine<T> p{y.data<T>(),
                       y.stride(0),
                       out.data<T>(),
                       plan.weights.raw(),
                       shared.defined() ? shared.raw() : nullptr,
                       plan.weights.dtype(),
                       shared.defined() ? shared.stride(0) : 0,
                       shared.defined() && shared.dtype() != y.dtype(),
                       plan.rows.data<int>(),
                       static_cast<int>(tokens),
                       static_cast<int>(plan.ids.shape(1)),
                       static_cast<int>(columns)};
    constexpr int kWide = kVector<T>;
    if (columns % kWide == 0 && is_aligned(y.raw(), y.stride(0), sizeof(T)) &&
        is_aligned(out.raw(), columns, sizeof(T)))
      return launch("moe.combine", combine_kernel<T, kWide>, grid_of(columns / kWide, tokens), device, p);
    launch("moe.combine", combine_kernel<T, 1>, grid_of(columns, tokens), device, p);
  });
}

void clear_tail(const char* op, const Tensor& offsets, const Tensor& y) {
  const Device device = y.device();
  const DeviceGuard guard(device);
  visit_word({&y}, [&]<class W>() {
    const auto words = y.shape(1) * static_cast<int64_t>(item_size(y.dtype())) / static_cast<int64_t>(sizeof(W));
    launch(op, clear_kernel<W>, {blocks_for(y.shape(0) * words, 1024, device, 4), 256}, device, offsets.raw(),
           offsets.dtype() == int64, offsets.shape(0) - 1, static_cast<W*>(y.raw()), y.shape(0), words);
  });
}

}  // namespace tenor::cuda
