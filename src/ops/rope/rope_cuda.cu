// rope: a thread takes a piece of one token's table rows and turns it in several heads; and the tables.
#include "src/ops/rope/rope_cuda.h"

#include <algorithm>

#include "src/core/visit.h"
#include "src/cuda/content_error.cuh"
#include "src/cuda/convert.cuh"
#include "src/cuda/launch.h"
#include "src/cuda/layout.h"
#include "src/cuda/vector.cuh"

namespace tenor::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kHeads = 4;  // that a thread turns: their loads are under way together, the table's piece is read once
constexpr int kFrequencies = 256;  // of one launch of the tables: kernel parameters end at 4 KiB

/// Strides count elements.
struct RopeProblem {
  const void* x;
  void* out;
  const void *cos, *sin;
  const void* positions;  ///< null: the third of the layout's tensors is the position itself
  DType position_dtype;
  Layout<3> tokens;       ///< x, out, positions
  int64_t rows;           ///< of the tables
  int64_t x_head, x_step, out_head, out_step, cos_row, cos_step, sin_row, sin_step;
  int heads, half, rest;  ///< rest: elements of a head behind its rotary_dim
  int pieces;             ///< of a table row, and of the rest behind it
  int groups;             ///< of heads
  bool interleaved;
  ContentError* flag;
  int op;
};

__device__ int64_t position_at(const RopeProblem& p, int64_t offset) {
  if (!p.positions) return offset;
  return core::visit_integer(p.position_dtype, [&]<class I>() {
    const I value = static_cast<const I*>(p.positions)[offset];
    return value > I(0) && static_cast<uint64_t>(value) > uint64_t{INT64_MAX} ? INT64_MAX : static_cast<int64_t>(value);
  });
}

/// Each product and sum rounds on its own, as on the CPU.
template <class T, class C>
__device__ __forceinline__ void turn_pair(T& a, T& b, C cos, C sin) {
  const C x = widen(a), y = widen(b);
  a = convert<T>(x * cos - y * sin);
  b = convert<T>(y * cos + x * sin);
}

/// The table's piece in the compute type.
template <class Table, int V, class C>
__device__ __forceinline__ void load_table(const void* table, int64_t at, C (&out)[V]) {
  const Table* p = static_cast<const Table*>(table) + at;
  if constexpr (V * sizeof(Table) > kVectorBytes) {
    constexpr int kPart = kVectorBytes / sizeof(Table);
#pragma unroll
    for (int part = 0; part < V; part += kPart) {
      const Pack<Table, kPart> pack = load_pack<kPart>(p + part);
#pragma unroll
      for (int j = 0; j < kPart; ++j) out[part + j] = convert<C>(pack.at[j]);
    }
  } else if constexpr (V > 1) {
    const Pack<Table, V> pack = load_pack<V>(p);
#pragma unroll
    for (int j = 0; j < V; ++j) out[j] = convert<C>(pack.at[j]);
  } else {
    out[0] = convert<C>(p[0]);
  }
}

/// One thread's piece of V pairs in several heads. Halves lie rotary_dim/2 apart; interleaved pairs are neighbours, so that
/// the two loads of V elements are one run.
template <class T, class Table, int V>
__device__ void turn(const RopeProblem& p, const T* x, T* out, int64_t position, int piece, int first_head) {
  using C = core::Compute<T>;
  C cos[V], sin[V];
  load_table<Table, V>(p.cos, position * p.cos_row + piece * V * p.cos_step, cos);
  load_table<Table, V>(p.sin, position * p.sin_row + piece * V * p.sin_step, sin);
  const int64_t a_at = p.interleaved ? int64_t{2} * V * piece : int64_t{V} * piece;
  const int64_t b_at = p.interleaved ? a_at + V : a_at + p.half;
  Pack<T, V> a[kHeads], b[kHeads];
#pragma unroll
  for (int h = 0; h < kHeads; ++h) {
    if (first_head + h >= p.heads) break;
    const T* head = x + (first_head + h) * p.x_head;
    a[h] = load_pack<V>(head + a_at * p.x_step);
    b[h] = load_pack<V>(head + b_at * p.x_step);
  }
#pragma unroll
  for (int h = 0; h < kHeads; ++h) {
    if (first_head + h >= p.heads) break;
    if (p.interleaved && V > 1) {
#pragma unroll
      for (int j = 0; j < V; j += 2) {  // pairs are neighbours: V/2 of them in each pack
        turn_pair(a[h].at[j], a[h].at[(j + 1) % V], cos[j / 2], sin[j / 2]);
        turn_pair(b[h].at[j], b[h].at[(j + 1) % V], cos[V / 2 + j / 2], sin[V / 2 + j / 2]);
      }
    } else {
#pragma unroll
      for (int j = 0; j < V; ++j) turn_pair(a[h].at[j], b[h].at[j], cos[j], sin[j]);
    }
    T* head = out + (first_head + h) * p.out_head;
    store_pack(head + a_at * p.out_step, a[h]);
    store_pack(head + b_at * p.out_step, b[h]);
  }
}

/// The piece behind the rotary dims, or of a token with a bad position.
template <class T, int V>
__device__ void pass(const RopeProblem& p, const T* x, T* out, int64_t at, int first_head) {
  for (int h = first_head; h < min(first_head + kHeads, p.heads); ++h)
    store_pack(out + h * p.out_head + at * p.out_step, load_pack<V>(x + h * p.x_head + at * p.x_step));
}

template <class T, class Table, int V>
__global__ void __launch_bounds__(kThreads) rope_kernel(const __grid_constant__ RopeProblem p) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x, per_token = int64_t{p.pieces} * p.groups;
  if (i >= p.tokens.count * per_token) return;
  const int64_t token = i / per_token;
  const int within = static_cast<int>(i - token * per_token), group = within / p.pieces, piece = within - group * p.pieces;
  int64_t at[3];
  offsets(p.tokens, token, at);
  const T* x = static_cast<const T*>(p.x) + at[0];
  T* out = static_cast<T*>(p.out) + at[1];
  if (piece >= p.half / V) {
    pass<T, V>(p, x, out, 2 * p.half + int64_t{piece - p.half / V} * V, group * kHeads);
    return;
  }
  const int64_t position = position_at(p, at[2]);
  if (position >= 0 && position < p.rows) {
    turn<T, Table, V>(p, x, out, position, piece, group * kHeads);
    return;
  }
  if (within == 0) raise_content_error(p.flag, p.op, token, position);
  pass<T, V>(p, x, out, 2 * int64_t{piece} * V, group * kHeads);
  pass<T, V>(p, x, out, (2 * int64_t{piece} + 1) * V, group * kHeads);
}

Dims before_heads(const Dims& dims) { return Dims(dims.begin(), dims.end() - 2); }

/// The strides of the positions over the tokens; those of none given count places in a sequence.
Dims position_strides(const Tensor& positions, const Dims& tokens) {
  Dims out(tokens.size(), 0);
  if (!positions.defined()) {
    out[tokens.size() - 1] = 1;
    return out;
  }
  for (int d = 1; d <= positions.ndim(); ++d)
    if (positions.shape(-d) != 1) out[tokens.size() - static_cast<size_t>(d)] = positions.stride(-d);
  return out;
}

/// Whether pieces of V pairs are whole, dense and aligned everywhere.
bool fits(const RopeTensors& t, const RopeProblem& p, int width) {
  const auto aligned = [&](const Tensor& x) {
    const size_t item = item_size(x.dtype());
    const int bytes = std::min<int>(kVectorBytes, width * static_cast<int>(item));
    if (x.stride(-1) != 1 || !is_aligned(x.raw(), 0, item, bytes)) return false;
    for (int d = 0; d + 1 < x.ndim(); ++d)
      if (x.shape(d) > 1 && !is_aligned(nullptr, x.stride(d), item, bytes)) return false;
    return true;
  };
  return p.half % width == 0 && p.rest % width == 0 && aligned(t.x) && aligned(t.out) && aligned(t.cos) && aligned(t.sin);
}

RopeProblem describe_problem(const RopeTensors& t, int64_t rotary_dim, bool interleaved) {
  static const int op = content_op("rope", "positions");
  const Dims tokens = before_heads(t.x.shape());
  RopeProblem p{};
  p.x = t.x.raw();
  p.out = t.out.raw();
  p.cos = t.cos.raw();
  p.sin = t.sin.raw();
  p.positions = t.positions.defined() ? t.positions.raw() : nullptr;
  p.position_dtype = t.positions.defined() ? t.positions.dtype() : int64;
  p.tokens = collapse("rope", tokens, {before_heads(t.x.strides()), before_heads(t.out.strides()), position_strides(t.positions, tokens)}, -1);
  p.rows = t.cos.shape(0);
  p.x_head = t.x.stride(-2), p.x_step = t.x.stride(-1), p.out_head = t.out.stride(-2), p.out_step = t.out.stride(-1);
  p.cos_row = t.cos.stride(0), p.cos_step = t.cos.stride(1), p.sin_row = t.sin.stride(0), p.sin_step = t.sin.stride(1);
  p.heads = static_cast<int>(t.x.shape(-2));
  p.half = static_cast<int>(rotary_dim / 2);
  p.rest = static_cast<int>(t.x.shape(-1) - rotary_dim);
  p.groups = (p.heads + kHeads - 1) / kHeads;
  p.interleaved = interleaved;
  p.flag = content_error(current_stream(t.x.device()));
  p.op = op;
  return p;
}

template <class T, class Table>
void launch_rope(const RopeTensors& t, RopeProblem& p) {
  constexpr int kWidth = kVector<T>;
  const auto go = [&]<int V>() {
    p.pieces = (p.half + p.rest) / V;
    const int64_t threads = p.tokens.count * p.pieces * p.groups;
    launch("rope", rope_kernel<T, Table, V>, Grid{dim3(static_cast<unsigned>((threads + kThreads - 1) / kThreads)), dim3(kThreads)}, t.x.device(), p);
  };
  if (fits(t, p, kWidth)) return go.template operator()<kWidth>();
  go.template operator()<1>();
}

struct Frequencies {
  double at[kFrequencies];
};

__global__ void tables_kernel(float* cos_out, float* sin_out, int64_t rows, int columns, int half, double magnitude, const __grid_constant__ Frequencies frequency) {
  const int64_t count = rows * columns, step = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count; i += step) {
    const int64_t row = i / columns;
    const int column = static_cast<int>(i - row * columns);
    double s, c;
    sincos(static_cast<double>(row) * frequency.at[column], &s, &c);
    cos_out[row * half + column] = static_cast<float>(magnitude * c);
    sin_out[row * half + column] = static_cast<float>(magnitude * s);
  }
}

}  // namespace

void rope(const RopeTensors& t, int64_t rotary_dim, bool interleaved) {
  if (t.x.numel() == 0) return;
  const DeviceGuard guard(t.x.device());
  if (t.cos.dtype() != t.sin.dtype()) {  // the kernel reads both as the wider type
    const DType table = item_size(t.cos.dtype()) > item_size(t.sin.dtype()) ? t.cos.dtype() : t.sin.dtype();
    return rope({t.x, t.cos.to(table), t.sin.to(table), t.positions, t.out}, rotary_dim, interleaved);
  }
  RopeProblem p = describe_problem(t, rotary_dim, interleaved);
  core::visit_float(t.x.dtype(), [&]<class T>() {
    if (t.cos.dtype() == float32) return launch_rope<T, float>(t, p);
    launch_rope<T, T>(t, p);
  });
}

void rope_tables(const std::vector<double>& frequencies, double magnitude, const Tensor& cos, const Tensor& sin) {
  const int64_t rows = cos.shape(0);
  const int half = static_cast<int>(frequencies.size());
  if (rows == 0) return;
  const DeviceGuard guard(cos.device());
  for (int first = 0; first < half; first += kFrequencies) {
    const int columns = std::min(kFrequencies, half - first);
    Frequencies some{};
    std::copy_n(frequencies.begin() + first, columns, some.at);
    launch("rope_tables", tables_kernel, Grid{blocks_for(rows * columns, kThreads, cos.device()), kThreads}, cos.device(), cos.data<float>() + first,
           sin.data<float>() + first, rows, columns, half, magnitude, some);
  }
}

}  // namespace tenor::cuda
