// Formulas of two operands one of which lies across the result (dense along another dim): it is turned through shared
// memory on its way into the formula, so that no turned copy is written and read again.
#pragma once

#include "src/core/type_name.h"
#include "src/cuda/convert.cuh"
#include "src/cuda/pointwise.h"
#include "src/cuda/transpose.cuh"

namespace tenor::cuda {

/// A call as such a walk: tensors 0 the operand that lies across, 1 the result, 2 the other operand.
struct TurnedCall {
  Turn<3> turn;
  const void* across;
  const void* other;
  bool across_first;  ///< it is the formula's first operand
};

/// Whether the call is one: two operands in memory of the result's dtype, one of which lies across; everything aligned
/// and in whole vectors. `item`: bytes of an element.
inline bool turn_call(const PointwiseCall& call, int tile_rows, int tile_columns, TurnedCall& out) {
  if (call.arity != 2 || call.in[0].constant || call.in[1].constant) return false;
  if (call.in[0].dtype != call.out_dtype || call.in[1].dtype != call.out_dtype) return false;
  const auto item = item_size(call.out_dtype);
  const int64_t width = kVectorBytes / static_cast<int64_t>(item);
  for (int i : {0, 1}) {
    const PointwiseInput &across = call.in[i], &other = call.in[1 - i];
    const Layout<3> layout =
        collapse(call.op, call.out.shape(), {across.strides, call.out.strides(), other.strides}, 1);
    const int dim = turned_dim(layout), last = layout.ndim - 1;
    if (dim < 0 || layout.stride[2][last] != 1) continue;
    out = {make_turn<3>(layout, dim, {across.data, call.out.raw(), other.data}, item, tile_rows, tile_columns),
           across.data, other.data, i == 0};
    return out.turn.aligned && out.turn.rows % width == 0 && out.turn.columns % width == 0;
  }
  return false;
}

/// The formula over one tile. Units are vectors of the result; those of the other operand are on their way while the
/// tile fills.
template <class S, class T, class R, Fit kFit, class F>
__device__ __forceinline__ void finish_turned(const TurnedCall& call, const TurnPlace<3>& p, S* result, const F& f) {
  using Tile = TurnTile<S>;
  constexpr int E = Tile::E, kAtOnce = 4, kUnits = Tile::kRows * Tile::kColumnVectors;
  extern __shared__ uint4 shared[];
  auto* tile = reinterpret_cast<Pack<S, E>*>(shared);
  const Turn<3>& t = call.turn;
  const S* other = static_cast<const S*>(call.other) + p.at[2];
  const auto row = [&](int unit) { return p.row + unit / Tile::kColumnVectors; };
  const auto column = [&](int unit) { return p.column + unit % Tile::kColumnVectors * E; };
  const auto inside = [&](int unit) { return kFit == Fit::kWhole || (row(unit) < t.rows && column(unit) < t.columns); };
  Pack<S, E> others[kAtOnce];
  const auto fetch = [&](int begin) {
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      const int unit = begin + k * Tile::kThreads;
      if (inside(unit)) others[k] = load_pack<E>(other + row(unit) * t.row_step[2] + column(unit));
    }
  };
  fetch(threadIdx.x);
  load_turned<S, kFit>(tile, static_cast<const S*>(call.across) + p.at[0], t, p.row, p.column);
  __syncthreads();
  for (int begin = threadIdx.x; begin < kUnits; begin += kAtOnce * Tile::kThreads) {
    if (begin >= kAtOnce * Tile::kThreads) fetch(begin);
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      const int unit = begin + k * Tile::kThreads;
      if (!inside(unit)) continue;
      const Pack<S, E> across = tile[Tile::slot(unit / Tile::kColumnVectors, unit % Tile::kColumnVectors)];
      T a[E], b[E];
      R y[E];
      widen_pack(across, a);
      widen_pack(others[k], b);
#pragma unroll
      for (int j = 0; j < E; ++j)
        y[j] = static_cast<R>(f(call.across_first ? a[j] : b[j], call.across_first ? b[j] : a[j]));
      store_pack<E>(result + p.at[1] + row(unit) * t.row_step[1] + column(unit), convert_pack<S>(y));
    }
  }
}

template <class S, class T, class R, class F>
__global__ void __launch_bounds__(TurnTile<S>::kThreads)
    turned_kernel(const __grid_constant__ TurnedCall call, S* result, const F f) {
  static_assert(TurnTile<S>::kRows * TurnTile<S>::kColumnVectors % (4 * TurnTile<S>::kThreads) == 0);
  const TurnPlace<3> p = turn_place<S>(call.turn);
  if (p.fit == Fit::kWhole)
    finish_turned<S, T, R, Fit::kWhole>(call, p, result, f);
  else
    finish_turned<S, T, R, Fit::kVectors>(call, p, result, f);
}

/// Whether run_turned takes that call.
inline bool can_turn(const PointwiseCall& call) {
  TurnedCall turned;
  return (call.out_dtype == float32 || call.out_dtype == bfloat16 || call.out_dtype == float16) &&
         turn_call(call, 1, 1, turned);
}

/// Runs a call of operands stored as S where it is such a walk, else returns false.
template <class S, class T, class R, class F>
bool run_turned(const PointwiseCall& call, const F& f) {
  TurnedCall turned;
  if (call.out_dtype != core::kDTypeOf<S> || !turn_call(call, TurnTile<S>::kRows, TurnTile<S>::kColumns, turned))
    return false;
  const DeviceGuard guard(call.out.device());
  launch(call.op, turned_kernel<S, T, R, F>, turn_grid<S>(turned.turn), call.out.device(), turned,
         static_cast<S*>(call.out.raw()), f);
  return true;
}

}  // namespace tenor::cuda
