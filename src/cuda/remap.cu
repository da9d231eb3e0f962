#include <algorithm>
#include <cstring>
#include <numeric>

#include "src/core/visit.h"
#include "src/cuda/bytes.cuh"
#include "src/cuda/launch.h"
#include "src/cuda/layout.h"
#include "src/cuda/remap.h"
#include "tenor/error.h"

namespace tenor::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kUnroll = 4;

using Kind = CoordinateRule::Kind;

/// A dim of the result, in its memory's order, and its rule. I is int32_t where everything fits, which halves the
/// arithmetic.
template <class I>
struct RuledDim {
  I size, out_stride, src_stride, src_size, shift;
  Divider by_size, by_shift;  // int32_t only
  Kind kind;
};
template <class I>
struct RuledDims {
  int ndim = 0;
  int64_t count = 1;
  RuledDim<I> dim[kMaxDims];
};

__device__ __forceinline__ int32_t quotient(int32_t i, int32_t, const Divider& by) {
  return static_cast<int32_t>(divide(static_cast<uint32_t>(i), by));
}
__device__ __forceinline__ int64_t quotient(int64_t i, int64_t d, const Divider&) { return i / d; }

template <class I>
inline constexpr I kOutside = -1;

template <class I>
__device__ __forceinline__ I source_of(const RuledDim<I>& d, I i) {
  switch (d.kind) {
    case Kind::kForward:
      return i;  // the shift is in the pointer
    case Kind::kBackward:
      return d.shift - i;
    case Kind::kWrap: {
      const I j = i + d.shift;
      if (j < d.src_size) return j;
      return j < 2 * d.src_size ? j - d.src_size : j % d.src_size;
    }
    case Kind::kRepeat:
      return quotient(i, d.shift, d.by_shift);
    case Kind::kClamp:
      return min(max(i - d.shift, I{0}), d.src_size - 1);
    case Kind::kReflect: {
      const I j = i - d.shift;
      return j < 0 ? -j : j >= d.src_size ? 2 * (d.src_size - 1) - j : j;
    }
    default: {
      const I j = i - d.shift;
      return j >= 0 && j < d.src_size ? j : kOutside<I>;
    }
  }
}

/// How many coordinates from i on lead to consecutive ones of x, or all outside; at least 1.
template <class I>
__device__ __forceinline__ I run_of(const RuledDim<I>& d, I i, I source) {
  const I j = i - d.shift;
  switch (d.kind) {
    case Kind::kForward:
      return d.size - i;
    case Kind::kWrap:
      return d.src_size - source;
    case Kind::kClamp:
    case Kind::kReflect:
      return j >= 0 && j < d.src_size ? d.src_size - j : 1;
    case Kind::kInside:
      return j < 0 ? -j : j < d.src_size ? d.src_size - j : d.size - i;
    default:
      return 1;
  }
}

/// Where element i of the result (in its memory's order) lies and comes from: element offsets. `along` is its
/// coordinate in the innermost dim, `source` that one's in x.
template <class I>
struct Place {
  I to, from, along, source;
  bool outside;
};
template <class I>
__device__ __forceinline__ Place<I> place_of(const RuledDims<I>& dims, I i) {
  Place<I> out{0, 0, 0, 0, false};
  for (int d = dims.ndim - 1; d >= 0; --d) {
    const RuledDim<I>& dim = dims.dim[d];
    const I next = d == 0 ? 0 : quotient(i, dim.size, dim.by_size);
    const I at = i - next * dim.size, source = source_of(dim, at);
    if (d == dims.ndim - 1) out.along = at, out.source = source;
    out.outside = out.outside || source == kOutside<I>;
    out.to += at * dim.out_stride;
    out.from += source * dim.src_stride;
    i = next;
  }
  return out;
}

template <class T>
__device__ __forceinline__ uint4 reversed(const uint4& x) {
  if constexpr (sizeof(T) == 8) return {x.z, x.w, x.x, x.y};
  uint4 out{x.w, x.z, x.y, x.x};
  constexpr unsigned kOrder = sizeof(T) == 1 ? 0x0123 : sizeof(T) == 2 ? 0x1032 : 0x3210;
  out.x = __byte_perm(out.x, 0, kOrder);
  out.y = __byte_perm(out.y, 0, kOrder);
  out.z = __byte_perm(out.z, 0, kOrder);
  out.w = __byte_perm(out.w, 0, kOrder);
  return out;
}

/// An element a thread: a result of any strides.
template <class T, class I>
__global__ void __launch_bounds__(kThreads)
    remap_kernel(const T* __restrict__ src, T* __restrict__ out, const __grid_constant__ RuledDims<I> dims, T value) {
  const int64_t i = blockIdx.x * int64_t{kThreads} + threadIdx.x;
  if (i >= dims.count) return;
  const Place<I> place = place_of(dims, static_cast<I>(i));
  out[place.to] = place.outside ? value : src[place.from];
}

/// How sixteen bytes of the result come about.
enum class Way : uint8_t { kNone, kLoad, kLoadReversed, kSpread, kFill, kElements };

/// For the pack of elements i .. i + n - 1.
template <class T, class I>
__device__ __forceinline__ Way way_of(const RuledDims<I>& dims, const T* src, const char* end, int64_t i, int n,
                                      Place<I>& place, const char*& from) {
  if (i >= dims.count) return Way::kNone;
  place = place_of(dims, static_cast<I>(i));
  const RuledDim<I>& inner = dims.dim[dims.ndim - 1];
  if (place.along + n > inner.size) return Way::kElements;
  // Outer coordinates outside, or a run of the inner ones.
  if (place.outside)
    return place.source != kOutside<I> || run_of(inner, place.along, place.source) >= n ? Way::kFill : Way::kElements;
  if (inner.kind == Kind::kRepeat) return Way::kSpread;
  const bool backward = inner.kind == Kind::kBackward;
  from = reinterpret_cast<const char*>(src + place.from - (backward ? n - 1 : 0));
  const bool runs =
      inner.src_stride == 1 && (backward || run_of(inner, place.along, place.source) >= n) && stays_below(from, end);
  return !runs ? Way::kElements : backward ? Way::kLoadReversed : Way::kLoad;
}

/// A pack whose elements repeat those of x.
template <class T, class I>
__device__ __forceinline__ uint4 spread(const RuledDims<I>& dims, const T* __restrict__ src, const Place<I>& place) {
  const RuledDim<I>& inner = dims.dim[dims.ndim - 1];
  Pack<T, kVector<T>> pack;
#pragma unroll
  for (int k = 0; k < kVector<T>; ++k)
    pack.at[k] =
        src[place.from + (source_of(inner, static_cast<I>(place.along + k)) - place.source) * inner.src_stride];
  return *reinterpret_cast<const uint4*>(&pack);
}

/// The lanes of `mask` make packs by elements: all lanes of the warp help, one element each. `first` is lane 0's pack's
/// first element.
template <class T, class I>
__device__ __forceinline__ void elements_of_lanes(unsigned mask, const RuledDims<I>& dims, const T* __restrict__ src,
                                                  T* __restrict__ out, int64_t first, T value) {
  constexpr int kN = kVector<T>, kGroups = 32 / kN;
  const int lane = static_cast<int>(threadIdx.x) % 32, group = lane / kN;
  while (mask) {
    unsigned mine = mask;
    for (int g = 0; g < kGroups; ++g) {
      if (g < group) mine &= mine - 1;
      mask &= mask - 1;
    }
    const int64_t i = first + (__ffs(static_cast<int>(mine)) - 1) * kN + lane % kN;
    if (mine == 0 || i >= dims.count) continue;
    const Place<I> one = place_of(dims, static_cast<I>(i));
    out[i] = one.outside ? value : src[one.from];
  }
}

/// Four times sixteen bytes a thread: a dense result. Where they do not come from one run of x they are put together by
/// elements.
template <class T, class I>
__global__ void __launch_bounds__(kThreads)
    remap_packs_kernel(const T* __restrict__ src, const char* end, T* __restrict__ out,
                       const __grid_constant__ RuledDims<I> dims, T value) {
  constexpr int kN = kVector<T>;
  const int64_t first = (int64_t{blockIdx.x} * kThreads * kUnroll + threadIdx.x) * kN;
  UnalignedLoad loads[kUnroll];
  Way ways[kUnroll];
#pragma unroll
  for (int k = 0; k < kUnroll; ++k) {
    Place<I> place;
    const char* from = nullptr;
    loads[k] = {};
    ways[k] = way_of(dims, src, end, first + int64_t{k} * kThreads * kN, kN, place, from);
    if (ways[k] == Way::kLoad || ways[k] == Way::kLoadReversed) loads[k].start(from);
    if (ways[k] == Way::kSpread) loads[k].low = spread(dims, src, place);
  }
  Pack<T, kN> fill;
#pragma unroll
  for (T& x : fill.at) x = value;
#pragma unroll
  for (int k = 0; k < kUnroll; ++k) {
    uint4 bytes = loads[k].value();
    if (ways[k] == Way::kLoadReversed) bytes = reversed<T>(bytes);
    if (ways[k] == Way::kFill) bytes = *reinterpret_cast<const uint4*>(&fill);
    if (ways[k] != Way::kNone && ways[k] != Way::kElements)
      *reinterpret_cast<uint4*>(out + first + int64_t{k} * kThreads * kN) = bytes;
  }
#pragma unroll
  for (int k = 0; k < kUnroll; ++k) {
    const unsigned mask = __ballot_sync(~0u, ways[k] == Way::kElements);
    elements_of_lanes(mask, dims, src, out, first + int64_t{k} * kThreads * kN - int64_t{threadIdx.x % 32} * kN, value);
  }
}

/// The dims in the result's memory order, neighbours that only move forward merged.
RuledDims<int64_t> ruled_dims(const char* op, const Tensor& x, const std::vector<CoordinateRule>& rules,
                              const Tensor& out, int64_t& start) {
  std::vector<int> order(rules.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return out.stride(a) > out.stride(b); });
  RuledDims<int64_t> dims;
  for (int d : order) {
    const CoordinateRule& rule = rules[d];
    RuledDim<int64_t> dim{out.shape(d), out.stride(d), x.stride(d), rule.size, rule.shift, {}, {}, rule.kind};
    dims.count *= dim.size;
    if (dim.kind == Kind::kForward) {
      start += rule.shift * dim.src_stride;
      if (dim.size == 1) continue;
    }
    RuledDim<int64_t>* before = dims.ndim > 0 ? &dims.dim[dims.ndim - 1] : nullptr;
    if (before && before->kind == Kind::kForward && dim.kind == Kind::kForward &&
        before->out_stride == dim.size * dim.out_stride && before->src_stride == dim.size * dim.src_stride) {
      before->size *= dim.size;
      before->out_stride = dim.out_stride;
      before->src_stride = dim.src_stride;
      continue;
    }
    if (dims.ndim == kMaxDims) throw UnsupportedError(std::string(op) + ": more than 12 dims that do not merge");
    dims.dim[dims.ndim++] = dim;
  }
  if (dims.ndim == 0) dims.dim[dims.ndim++] = {1, 1, 1, 1, 0, {}, {}, Kind::kForward};
  return dims;
}

bool is_dense(const RuledDims<int64_t>& dims) {
  int64_t step = 1;
  for (int d = dims.ndim; d-- > 0; step *= dims.dim[d].size)
    if (dims.dim[d].size != 1 && dims.dim[d].out_stride != step) return false;
  return true;
}

/// Whether every sum of coordinates and of offsets stays within 31 bits.
bool is_narrow(const RuledDims<int64_t>& dims, int64_t reach) {
  constexpr int64_t kMost = 1 << 30;
  int64_t out_reach = 1;
  for (int d = 0; d < dims.ndim; ++d) {
    const RuledDim<int64_t>& dim = dims.dim[d];
    if (dim.size > kMost || dim.src_size > kMost || std::abs(dim.shift) > kMost) return false;
    out_reach += (dim.size - 1) * dim.out_stride;
  }
  return dims.count <= kMost && reach <= kMost && out_reach <= kMost;
}

RuledDims<int32_t> narrowed(const RuledDims<int64_t>& wide) {
  RuledDims<int32_t> out;
  out.ndim = wide.ndim;
  out.count = wide.count;
  const auto narrow = [](int64_t x) { return static_cast<int32_t>(x); };
  for (int d = 0; d < wide.ndim; ++d) {
    const RuledDim<int64_t>& from = wide.dim[d];
    const Divider by_shift = from.kind == Kind::kRepeat ? make_divider(from.shift) : Divider{};
    out.dim[d] = {narrow(from.size),
                  narrow(from.out_stride),
                  narrow(from.src_stride),
                  narrow(from.src_size),
                  narrow(from.shift),
                  make_divider(from.size),
                  by_shift,
                  from.kind};
  }
  return out;
}

template <class T, class I>
void run(const char* op, const RuledDims<I>& dims, bool packs, const T* src, const char* end, const Tensor& out,
         T fill) {
  const int64_t per_block = packs ? int64_t{kThreads} * kUnroll * kVector<T> : kThreads;
  const Grid grid{static_cast<unsigned>((dims.count + per_block - 1) / per_block), kThreads};
  T* to = static_cast<T*>(out.raw());
  if (!packs) return launch(op, remap_kernel<T, I>, grid, out.device(), src, to, dims, fill);
  launch(op, remap_packs_kernel<T, I>, grid, out.device(), src, end, to, dims, fill);
}

}  // namespace

void remap(const char* op, const Tensor& x, const std::vector<CoordinateRule>& rules, const Tensor& out,
           const void* value) {
  if (out.numel() == 0) return;
  const DeviceGuard guard(out.device());
  int64_t start = 0, reach = x.numel() > 0 ? 1 : 0;
  const RuledDims<int64_t> dims = ruled_dims(op, x, rules, out, start);
  for (int d = 0; reach > 0 && d < x.ndim(); ++d) reach += (x.shape(d) - 1) * x.stride(d);
  const bool packs = is_dense(dims) && reinterpret_cast<uintptr_t>(out.raw()) % kVectorBytes == 0;
  core::visit_size(out.dtype(), [&]<class T>() {
    T fill{};
    if (value) std::memcpy(&fill, value, sizeof(T));
    const T* src = static_cast<const T*>(x.raw());
    const char* end = reinterpret_cast<const char*>(src + reach);
    if (is_narrow(dims, reach)) return run<T, int32_t>(op, narrowed(dims), packs, src + start, end, out, fill);
    run<T, int64_t>(op, dims, packs, src + start, end, out, fill);
  });
}

}  // namespace tenor::cuda
