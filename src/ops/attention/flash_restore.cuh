// Values that are not finite, once a task's rows have been stored. A weight of 0 does not silence a NaN or an infinity
// in a product. So where a key is hidden from some row, the values that multiply hold 0 in their place, and what
// visible keys hold joins here. Where no key is hidden by place, one whose score is -inf counts as hidden all the same:
// a row that its value made NaN is computed once more here. Both are rare, so everything is read again.
#pragma once

#include "src/ops/attention/flash_store.cuh"

namespace tenor::attn {

/// The final score of a visible key for row r of the tile, as the products would give it; -inf for a hidden one.
template <class Config>
__device__ float flash_score(const FlashShape& shape, const FlashTask& t, int r, int key) {
  using T = typename Config::T;
  const DeviceProblem& p = shape.p;
  const int i = t.query_of(shape, r), head = t.head_of(shape, r);
  if (key < i + t.before || key > i + t.after || key >= t.keys) return -INFINITY;
  const T* q = static_cast<const T*>(p.q.data) + origin(p, p.q, t.sequence, t.q) + head * p.q.head + i * p.q.row;
  const T* k = static_cast<const T*>(p.k.data) + origin(p, p.k, t.sequence, t.k) + t.kv_head * p.k.head + key * p.k.row;
  float x = 0;
#pragma unroll 1
  for (int d = 0; d < p.dim; ++d) x = fmaf(static_cast<float>(q[d * p.q.col]), static_cast<float>(k[d * p.k.col]), x);
  x = shape.softcap > 0 ? soft_cap(x, shape) : x * shape.scale;
  if (p.bias.data)
    x += bias_at<T>(p, t.sequence * p.bias.batch + head * p.bias.head + i * p.bias.row + key * p.bias.col);
  const int64_t mask = t.sequence * p.mask.batch + head * p.mask.head + i * p.mask.row + key * p.mask.col;
  if (p.mask.data && !static_cast<const bool*>(p.mask.data)[mask]) x = -INFINITY;
  return x;
}

/// Not 0 but for the signs (kNotSigns) where one of eight elements is NaN or infinite.
template <class T>
__device__ __forceinline__ uint32_t flash_odd(const uint4& x) {
  return ptx::times_zero<T>(x.x) | ptx::times_zero<T>(x.y) | ptx::times_zero<T>(x.z) | ptx::times_zero<T>(x.w);
}

/// Elements with every NaN or infinity as 0.
template <class T>
__device__ __forceinline__ uint32_t finite_only(uint32_t two) {
  constexpr uint32_t kExponent = std::is_same_v<T, __half> ? 0x7C007C00u : 0x7F807F80u,
                     kOne = std::is_same_v<T, __half> ? 0x04000400u : 0x00800080u;
  const uint32_t bad = ((two & kExponent) + kOne) & 0x80008000u;  // an exponent of ones carries into the sign
  return two & ~((bad >> 15) * 0xFFFFu);
}
template <class T>
__device__ __forceinline__ uint4 finite_only(const uint4& x) {
  return {finite_only<T>(x.x), finite_only<T>(x.y), finite_only<T>(x.z), finite_only<T>(x.w)};
}

/// What the 128 threads of 64 rows share for this.
template <class Config>
struct FlashScratch {
  float lse[Config::kRows], weights[2 * Config::kRows];
};

/// The 128 threads of these 64 rows meet.
__device__ __forceinline__ void flash_sync(int group) { asm volatile("bar.sync %0, 128;" ::"r"(5 + group) : "memory"); }
/// They meet, and learn whether it is true for any.
__device__ __forceinline__ bool flash_any(int group, bool x) {
  int any;
  asm volatile(
      "{\n.reg .pred p, q;\n"
      "setp.ne.b32 p, %2, 0;\n"
      "bar.red.or.pred q, %1, 128, p;\n"
      "selp.b32 %0, 1, 0, q;\n}"
      : "=r"(any)
      : "r"(5 + group), "r"(static_cast<int>(x))
      : "memory");
  return any;
}

template <class Config>
class FlashRestore {
 public:
  __device__ FlashRestore(FlashScratch<Config>& scratch, const FlashShape& shape, const FlashTask& t, int group)
      : lse_(scratch.lse + group * 64),
        weights_(scratch.weights + group * 128),
        shape_(shape),
        t_(t),
        group_(group),
        thread_(threadIdx.x % 128),
        first_key_(t.begin * Config::kKeys),
        last_key_(min(t.end * Config::kKeys, t.keys)) {}

  /// Called by the group's 128 threads, after they have met.
  __device__ void run() {
    while (rows_ < 64 && t_.template holds<Config>(shape_, group_ * 64 + rows_)) ++rows_;
#pragma unroll 1
    for (int c = thread_; c - thread_ < shape_.p.value_dim; c += 128) {
      const uint64_t lost = c < shape_.p.value_dim ? join_column(c) : 0;
#pragma unroll 1
      for (int r = 0; r < rows_; ++r)
        if (flash_any(group_, lost >> r & 1)) compute_again(r, c, lost >> r & 1);
    }
    flash_sync(group_);  // lse has been read
  }

 private:
  using T = typename Config::T;

  __device__ float value(int key, int c) const {
    const DeviceProblem& p = shape_.p;
    const T* v = static_cast<const T*>(p.v.data) + origin(p, p.v, t_.sequence, t_.k) + t_.kv_head * p.v.head;
    return static_cast<float>(v[key * p.v.row + c * p.v.col]);
  }
  __device__ float weight(int r, int key) const {
    const float score = flash_score<Config>(shape_, t_, group_ * 64 + r, key);
    return score == -INFINITY ? -1.0f : ptx::exp2_approximate((score - lse_[r]) * kLog2E);  // -1: hidden
  }
  __device__ float* partial(int r, int c) const {
    return shape_.partial + partial_row(shape_, t_, group_ * 64 + r) * shape_.p.value_dim + c;
  }
  __device__ T* out(int r, int c) const { return out_row<Config>(shape_, t_, group_ * 64 + r) + c * shape_.p.out.col; }
  __device__ float stored(int r, int c) const {
    return shape_.splits > 1 ? *partial(r, c) : static_cast<float>(*out(r, c));
  }
  __device__ void store(int r, int c, float x) const {
    if (shape_.splits > 1)
      *partial(r, c) = x;
    else
      *out(r, c) = static_cast<T>(x);
  }

  /// Weights times the values of column c that are not finite. Returns the rows that are NaN without such a value.
  __device__ uint64_t join_column(int c) const {
    const uint64_t all = rows_ == 64 ? ~uint64_t{0} : (uint64_t{1} << rows_) - 1;
    uint64_t nan = 0, above = 0, below = 0, lost = 0;
#pragma unroll 1
    for (int key = first_key_; key < last_key_ && nan != all; ++key) {
      const float x = value(key, c);
      if (isfinite(x)) continue;
#pragma unroll 1
      for (int r = 0; r < rows_; ++r) {
        const uint64_t bit = uint64_t{1} << r;
        const float w = nan & bit ? -1.0f : weight(r, key);
        if (w < 0) continue;
        (isnan(w * x) ? nan : x > 0 ? above : below) |= bit;
      }
    }
#pragma unroll 1
    for (int r = 0; r < rows_; ++r) {
      const uint64_t bit = uint64_t{1} << r;
      if ((nan | (above & below)) & bit)
        store(r, c, NAN);
      else if ((above | below) & bit)
        store(r, c, above & bit ? INFINITY : -INFINITY);
      else if (isnan(stored(r, c)) && !isnan(lse_[r]))
        lost |= bit;
    }
    return lost;
  }
  /// Row r anew, 128 keys at a time; threads with `mine` store its column c.
  __device__ void compute_again(int r, int c, bool mine) const {
    float sum = 0;
#pragma unroll 1
    for (int first = first_key_; first < last_key_; first += 128) {
      weights_[thread_] = first + thread_ < last_key_ ? weight(r, first + thread_) : -1.0f;
      flash_sync(group_);
      for (int i = 0; mine && i < 128; ++i)
        if (weights_[i] > 0) sum = fmaf(weights_[i], value(first + i, c), sum);
      flash_sync(group_);
    }
    if (!mine) return;
    if (shape_.p.sinks && shape_.splits == 1 && lse_[r] != -INFINITY)
      sum /= 1 + expf(sink_at<T>(shape_.p, t_.head_of(shape_, group_ * 64 + r)) - lse_[r]);
    store(r, c, sum);
  }

  const float* lse_;
  float* weights_;
  const FlashShape& shape_;
  const FlashTask& t_;
  const int group_, thread_, first_key_, last_key_;
  int rows_ = 0;  ///< of the 64
};

/// Puts right the rows of a group, of which one may hold or lack what is not finite.
template <class Config>
__device__ __noinline__ void flash_restore(FlashScratch<Config>& scratch, const FlashShape& shape, const FlashTask& t,
                                           int group) {
  FlashRestore<Config>(scratch, shape, t, group).run();
}

}  // namespace tenor::attn
