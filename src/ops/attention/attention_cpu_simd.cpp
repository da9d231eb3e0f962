// The kernels of the CPU's flash strategies, compiled once per instruction set.
#include <cmath>
#include <limits>

#include "src/core/visit.h"
#include "src/cpu/amx.h"
#include "src/ops/attention/attention_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/ops/attention/attention_cpu_simd.cpp"
#include "hwy/foreach_target.h"
#include "src/cpu/math-inl.h"
#include "src/ops/attention/attention_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenor::attn::HWY_NAMESPACE {
namespace math = cpu::HWY_NAMESPACE::math;

template <class C>
inline constexpr C kInfinity = std::numeric_limits<C>::infinity();

// Machines with AMX have 512-bit vectors.
#undef TENOR_ATTENTION_TILES
#define TENOR_ATTENTION_TILES (HWY_TARGET != HWY_SCALAR && HWY_MAX_BYTES == 64)

// A tile holds kTileRows x kTileVectors sums in registers: 24 of 32, or 12 of 16.
inline constexpr int kTileRows = 6;
inline constexpr int kTileVectors = HWY_TARGET <= HWY_AVX3 ? 4 : 2;

// ---- products
// ---------------------------------------------------------------------------------------------------------

/// out[Rows, Vectors] (+)= a[Rows, steps] . b[steps, Vectors], one FMA chain an element.
template <int Rows, int Vectors, class C>
HWY_INLINE void multiply_tile(int64_t steps, const C* HWY_RESTRICT a, int64_t lda, const C* HWY_RESTRICT b, int64_t ldb,
                              C* HWY_RESTRICT out, int64_t ldo, bool fresh) {
  const Tag<C> d;
  const size_t lanes = hn::Lanes(d);
  hn::Vec<Tag<C>> sum[Rows][Vectors];
  for (int r = 0; r < Rows; ++r)
    for (int v = 0; v < Vectors; ++v) sum[r][v] = fresh ? hn::Zero(d) : hn::LoadU(d, out + r * ldo + v * lanes);
  for (int64_t k = 0; k < steps; ++k) {
    hn::Vec<Tag<C>> right[Vectors];
    for (int v = 0; v < Vectors; ++v) right[v] = hn::LoadU(d, b + k * ldb + v * lanes);
    for (int r = 0; r < Rows; ++r) {
      const auto left = hn::Set(d, a[r * lda + k]);
      for (int v = 0; v < Vectors; ++v) sum[r][v] = hn::MulAdd(left, right[v], sum[r][v]);
    }
  }
  for (int r = 0; r < Rows; ++r)
    for (int v = 0; v < Vectors; ++v) hn::StoreU(sum[r][v], d, out + r * ldo + v * lanes);
}

/// All rows of one strip of columns. Three to five last rows go as a full tile over the rows of padding behind them.
template <int Vectors, class C>
HWY_INLINE void multiply_strip(int64_t rows, int64_t steps, const C* a, int64_t lda, const C* b, int64_t ldb, C* out,
                               int64_t ldo, bool fresh) {
  int64_t r = 0;
  for (; rows - r >= kTileRows / 2; r += kTileRows)
    multiply_tile<kTileRows, Vectors>(steps, a + r * lda, lda, b, ldb, out + r * ldo, ldo, fresh);
  for (; r < rows; ++r) multiply_tile<1, Vectors>(steps, a + r * lda, lda, b, ldb, out + r * ldo, ldo, fresh);
}

template <class C>
void multiply(int64_t rows, int64_t columns, int64_t steps, const C* a, int64_t lda, const C* b, int64_t ldb, C* out,
              int64_t ldo, bool fresh) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(Tag<C>()));
  int64_t c = 0;
  for (; c + kTileVectors * lanes <= columns; c += kTileVectors * lanes)
    multiply_strip<kTileVectors>(rows, steps, a, lda, b + c, ldb, out + c, ldo, fresh);
  if constexpr (kTileVectors > 2)
    for (; c + 2 * lanes <= columns; c += 2 * lanes)
      multiply_strip<2>(rows, steps, a, lda, b + c, ldb, out + c, ldo, fresh);
  for (; c < columns; c += lanes) multiply_strip<1>(rows, steps, a, lda, b + c, ldb, out + c, ldo, fresh);
}

template <class C>
void Scores(const Block& b, const void* panel, int64_t j) {
  const int64_t dim = b.problem->dim;
  multiply(b.rows(), std::min(kPanel, b.key_end - j), dim, static_cast<const C*>(b.query), dim,
           static_cast<const C*>(panel), kPanel, static_cast<C*>(b.scores) + (j - b.key_begin), b.stride, true);
}

template <class C>
void Accumulate(const Block& b, const void* values, int64_t j, int64_t n, bool fresh) {
  multiply(b.rows(), b.columns, std::min(n, b.segment->keys - j), static_cast<const C*>(b.scores) + (j - b.key_begin),
           b.stride, static_cast<const C*>(values), b.columns, static_cast<C*>(b.part), b.columns, fresh);
}

template <class C>
void Fold(const Block& b, bool fresh) {
  const Tag<C> d;
  const C* part = static_cast<const C*>(b.part);
  C* total = static_cast<C*>(b.total);
  for (int64_t i = 0; i < b.rows() * b.columns; i += static_cast<int64_t>(hn::Lanes(d))) {
    const auto p = hn::LoadU(d, part + i);
    hn::StoreU(fresh ? p : hn::Add(hn::LoadU(d, total + i), p), d, total + i);
  }
}

// ---- softmax
// ----------------------------------------------------------------------------------------------------------

/// The larger of x and a bound, NaN for NaN. x86's maximum gives its second operand when one is NaN.
template <class D, class V>
HWY_INLINE V at_least(D d, V x, double bound) {
  const V low = math::constant(d, bound);
#if HWY_ARCH_X86 && HWY_TARGET != HWY_EMU128 && HWY_TARGET != HWY_SCALAR
  return hn::Max(low, x);
#else
  return hn::IfThenElse(hn::Lt(x, low), low, x);
#endif
}

/// exp(scale * x) for x <= 0, from one constant that depends on the scale: 0 where it would be subnormal, NaN for NaN,
/// exactly 1 for 0.
template <class C>
struct Exponential;
template <>
struct Exponential<float> {
  explicit Exponential(double scale) : factor(static_cast<float>(scale * 1.4426950408889634)) {}
  /// 2^(n + f): adding the magic number, 1.5 * 2^23 and the exponent's bias, leaves n + 127 in the low bits. At the
  /// bound of -127 that is 0, and so is the power. The polynomial is a minimax fit of 2^f, its error 2e-9.
  template <class V>
  HWY_INLINE V operator()(Tag<float> d, V x) const {
    const hn::RebindToUnsigned<Tag<float>> du;
    const V magic = hn::Set(d, 12582912.0f + 127.0f);
    const V y = at_least(d, hn::Mul(x, hn::Set(d, factor)), -127.0);
    const V shifted = hn::Add(y, magic);
    const V f = hn::Sub(y, hn::Sub(shifted, magic));
    const V fraction = math::polynomial(d, f, 1.0, 0.6931472029, 0.2402264791, 0.05550332472, 0.009618437335,
                                        0.00133988742, 0.0001535336823);
    return hn::Mul(fraction, hn::BitCast(d, hn::ShiftLeft<23>(hn::BitCast(du, shifted))));
  }
  float factor;
};
template <>
struct Exponential<double> {
  explicit Exponential(double scale) : factor(scale) {}
  template <class V>
  HWY_INLINE V operator()(Tag<double> d, V x) const {
    return math::exp(d, hn::Mul(x, hn::Set(d, factor)));
  }
  double factor;
};

/// Scores of one row and the keys [lo, hi) that its range lets it see, counted from the block's first key.
template <class C>
struct Row {
  C* scores;
  int64_t lo, hi, count;
};

/// Scale, softcap and bias over whole vectors, then the mask.
template <class C>
void adjust_row(const Block& b, int64_t r, const Row<C>& row) {
  const Problem& p = *b.problem;
  const Tag<C> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  C* line = static_cast<C*>(b.line);
  const int64_t at = b.key_begin + row.lo, n = row.hi - row.lo;
  if (p.bias.data) {
    core::visit_float(p.bias.dtype, [&]<class T>() {
      const T* bias = element<T>(p.bias, b.segment->bias, b.head(r), b.row(r)) + at * p.bias.col;
      load_row(bias, p.bias.col, n, line + row.lo);
    });
  }
  const auto scale = hn::Set(d, static_cast<C>(p.scale)), cap = hn::Set(d, static_cast<C>(p.softcap));
  for (int64_t i = row.lo / lanes * lanes; i < row.hi; i += lanes) {
    auto x = hn::Mul(hn::LoadU(d, row.scores + i), scale);
    if (p.softcap > 0) x = hn::Mul(cap, math::tanh(d, hn::Div(x, cap)));
    if (p.bias.data) x = hn::Add(x, hn::LoadU(d, line + i));
    hn::StoreU(x, d, row.scores + i);
  }
  if (!p.mask.data) return;
  const bool* mask = element<bool>(p.mask, b.segment->mask, b.head(r), b.row(r)) + at * p.mask.col;
  C* s = row.scores + row.lo;
  for (int64_t i = 0; i < n; ++i) s[i] = mask[i * p.mask.col] ? s[i] : -kInfinity<C>;
}

/// The largest score of whole steps of four vectors or less, NaN when all that is not -inf is NaN.
template <class C>
C largest(const C* s, int64_t begin, int64_t end) {
  const Tag<C> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  hn::Vec<Tag<C>> most[4];
  for (auto& m : most) m = hn::Set(d, -kInfinity<C>);
  int64_t i = begin;
  for (; i + 4 * lanes <= end; i += 4 * lanes)
    for (int v = 0; v < 4; ++v) most[v] = hn::Max(most[v], hn::LoadU(d, s + i + v * lanes));
  for (; i < end; i += lanes) most[0] = hn::Max(most[0], hn::LoadU(d, s + i));
  const C top = hn::GetLane(hn::MaxOfLanes(d, hn::Max(hn::Max(most[0], most[1]), hn::Max(most[2], most[3]))));
  if (top > -kInfinity<C>) return top;
  for (i = begin; i < end; ++i)
    if (std::isnan(s[i])) return s[i];
  return -kInfinity<C>;
}

/// Stores weights as they are.
struct PlainWeights {
  static constexpr int64_t kVectors = 1;
  template <class C, class V>
  static HWY_INLINE void store(Tag<C> d, const V* p, C* to) {
    hn::StoreU(p[0], d, to);
  }
};

#if TENOR_ATTENTION_TILES
/// Stores two vectors of weights as bfloat16 halves: each weight rounded, then what that leaves, rounded. Half an ulp
/// is added to the magnitude and the lower bits are dropped; a NaN stays one in the row's sum.
struct SplitWeights {
  static constexpr int64_t kVectors = 2;
  template <class V>
  static HWY_INLINE void store(Tag<float> d, const V* p, float* to) {
    const hn::RebindToUnsigned<Tag<float>> du;
    const hn::Repartition<uint16_t, Tag<float>> d16;
    const auto raised = [&](V x) HWY_ATTR { return hn::Add(hn::BitCast(du, x), hn::Set(du, 0x8000u)); };
    const auto rest = [&](V x, auto bits)
                          HWY_ATTR { return hn::Sub(x, hn::BitCast(d, hn::And(bits, hn::Set(du, 0xFFFF0000u)))); };
    const auto store_upper = [&](auto low, auto high, float* at) HWY_ATTR {
      hn::StoreU(hn::BitCast(d, hn::ConcatOdd(d16, hn::BitCast(d16, high), hn::BitCast(d16, low))), d, at);
    };
    const auto low = raised(p[0]), high = raised(p[1]);
    store_upper(low, high, to);
    store_upper(raised(rest(p[0], low)), raised(rest(p[1], high)), to + hn::Lanes(d));
  }
};
#endif

/// p = exp(scale * (s - top)) over groups of whole vectors, and their sum, split by split.
template <class Weights, class C>
double exponentials(const Block& b, C* s, int64_t begin, int64_t end, double scale, C top) {
  const Tag<C> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const Exponential<C> exponential(scale);
  const auto most = hn::Set(d, top);
  double sum = 0;
  for (int64_t i = begin; i < end;) {
    const int64_t stop = std::min(end, ((b.key_begin + i) / kSplit + 1) * kSplit - b.key_begin);
    auto part = hn::Zero(d);
    for (; i < stop; i += Weights::kVectors * lanes) {
      hn::Vec<Tag<C>> p[Weights::kVectors];
      for (int64_t v = 0; v < Weights::kVectors; ++v) {
        p[v] = exponential(d, hn::Sub(hn::LoadU(d, s + i + v * lanes), most));
        part = hn::Add(part, p[v]);
      }
      Weights::store(d, p, s + i);
    }
    sum += static_cast<double>(hn::GetLane(hn::SumOfLanes(d, part)));
  }
  return sum;
}

template <class Weights, class C>
void softmax_row(const Block& b, int64_t r) {
  const Problem& p = *b.problem;
  const int64_t step = Weights::kVectors * static_cast<int64_t>(hn::Lanes(Tag<C>()));
  const KeyRange seen = seen_keys(p, *b.segment, b.row(r));
  Row<C> row{static_cast<C*>(b.scores) + r * b.stride, 0, 0, b.key_end - b.key_begin};
  row.lo = std::clamp<int64_t>(seen.begin - b.key_begin, 0, row.count);
  row.hi = std::clamp<int64_t>(seen.end - b.key_begin, row.lo, row.count);
  const bool adjusted = p.softcap > 0 || p.bias.data || p.mask.data;
  if (adjusted) adjust_row(b, r, row);
  const double scale = adjusted ? 1.0 : p.scale;
  // Whole steps: the range's ends are filled up with -inf, and weights beyond are 0.
  const int64_t begin = row.lo / step * step, end = (row.hi + step - 1) / step * step;
  std::fill(row.scores + begin, row.scores + row.lo, -kInfinity<C>);
  std::fill(row.scores + row.hi, row.scores + end, -kInfinity<C>);
  const C top = largest(row.scores, begin, end);
  const bool empty = top == -kInfinity<C>;
  b.top[r] = static_cast<double>(top) * scale;
  b.sum[r] = empty ? 0.0 : exponentials<Weights>(b, row.scores, begin, end, scale, top);
  std::fill(row.scores, row.scores + (empty ? row.count : begin), C(0));
  if (!empty) std::fill(row.scores + end, row.scores + row.count, C(0));
}

template <class Weights, class C>
void Softmax(const Block& b) {
  for (int64_t r = 0; r < b.rows(); ++r) softmax_row<Weights, C>(b, r);
}

template <class C>
double Weight(const Block& b, int64_t r, int64_t place) {
  return static_cast<double>(static_cast<const C*>(b.scores)[r * b.stride + place]);
}
#if TENOR_ATTENTION_TILES
double SplitWeight(const Block& b, int64_t r, int64_t place) {
  const auto* halves =
      reinterpret_cast<const BFloat16*>(static_cast<const float*>(b.scores) + r * b.stride + place / 32 * 32);
  return core::widen(halves[place % 32]) + core::widen(halves[32 + place % 32]);
}
#endif

// ---- results
// ----------------------------------------------------------------------------------------------------------

/// O is out's dtype: the queries', or float32 for partial states.
template <class C, class O>
void Finish(const Block& b) {
  const Problem& p = *b.problem;
  for (int64_t r = 0; r < b.rows(); ++r) {
    const bool empty = b.top[r] == -kInfinity<double>;
    C* total = static_cast<C*>(b.total) + r * b.columns;
    if (empty) std::fill(total, total + b.columns, C(0));
    const double sink = b.sinks && !empty ? std::exp(b.sinks[b.head(r)] - b.top[r]) : 0.0;
    const C whole = empty ? C(1) : static_cast<C>(b.sum[r] + sink);
    O* out = static_cast<O*>(p.out.data) + b.segment->out + b.head(r) * p.out.head + b.row(r) * p.out.row;
    const auto divide = [whole](auto d, auto x) HWY_ATTR { return hn::Div(x, hn::Set(d, whole)); };
    if (std::is_same_v<core::Compute<O>, C> && p.out.col == 1) {
      if constexpr (std::is_same_v<core::Compute<O>, C>) map_row(total, out, static_cast<size_t>(p.value_dim), divide);
    } else {
      for (int64_t c = 0; c < p.value_dim; ++c) out[c * p.out.col] = core::cast<O>(total[c] / whole);
    }
    if (!p.lse.data) continue;
    static_cast<float*>(p.lse.data)[b.segment->lse + b.head(r) * p.lse.head + b.row(r) * p.lse.row] =
        static_cast<float>(empty ? b.top[r] : b.top[r] + std::log(b.sum[r]));
  }
}

template <class T>
Kernels kernels_of(DType dtype, bool to_float) {
  using C = core::Compute<T>;
  return {sizeof(C),
          sizeof(C),
          hn::Lanes(Tag<C>()),
          kTileRows,
          packers_for(dtype, false),
          &Scores<C>,
          &Softmax<PlainWeights, C>,
          &Accumulate<C>,
          &Fold<C>,
          to_float ? &Finish<C, float> : &Finish<C, T>,
          &Weight<C>};
}

#if TENOR_ATTENTION_TILES
/// Products on the matrix unit, which takes 16 rows and 32 summed elements at a time.
bool MatrixUnitTakes(DType dtype, int64_t dim) { return dtype == DType::kBFloat16 && dim % 32 == 0 && cpu::has_amx(); }
Kernels tile_kernels(bool to_float) {
  return {sizeof(float),
          sizeof(BFloat16),
          16,
          32,
          packers_for(DType::kBFloat16, true),
          &amx_scores,
          &Softmax<SplitWeights, float>,
          &amx_accumulate,
          &Fold<float>,
          to_float ? &Finish<float, float> : &Finish<float, BFloat16>,
          &SplitWeight};
}
#else
bool MatrixUnitTakes(DType, int64_t) { return false; }
Kernels tile_kernels(bool) { return {}; }
#endif

Kernels KernelsFor(const Problem& p, CpuUnit unit) {
  const bool to_float = p.out.dtype == DType::kFloat32;
  if (unit == CpuUnit::kMatrix) return tile_kernels(to_float);
  return core::visit_float(p.q.dtype, [&]<class T>() { return kernels_of<T>(p.q.dtype, to_float); });
}

}  // namespace tenor::attn::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenor::attn {

HWY_EXPORT(KernelsFor);
Kernels kernels_for(const Problem& problem, CpuUnit unit) { return HWY_DYNAMIC_DISPATCH(KernelsFor)(problem, unit); }

HWY_EXPORT(MatrixUnitTakes);
bool cpu_matrix_unit_takes(DType dtype, int64_t dim) { return HWY_DYNAMIC_DISPATCH(MatrixUnitTakes)(dtype, dim); }

}  // namespace tenor::attn
#endif
