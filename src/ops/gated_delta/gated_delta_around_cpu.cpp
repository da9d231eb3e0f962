// gated_delta_gate, causal_conv1d and gated_rms_norm on the CPU.
#include <vector>

#include "src/core/visit.h"
#include "src/cpu/gather.h"
#include "src/cpu/parallel.h"
#include "src/ops/gated_delta/gated_delta_around_kernels.h"
#include "src/ops/gated_delta/state_pool.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/ops/gated_delta/gated_delta_around_cpu.cpp"
#include "hwy/foreach_target.h"
#include "src/cpu/math-inl.h"
#include "src/ops/norm/norm-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenor::cpu::HWY_NAMESPACE {

/// v * sigmoid(v), 0 at -inf.
template <class D, class V>
HWY_INLINE V silu(D d, V v) {
  return hn::IfThenZeroElse(hn::Eq(v, hn::Neg(math::infinity(d))), hn::Mul(v, math::sigmoid(d, v)));
}

template <class D, class V>
HWY_INLINE V gate_of(D d, V a, V bias, const GateRow& p) {
  const V x = hn::Add(a, bias), rate = math::constant(d, p.rate);
  if (p.bounded) return hn::Mul(math::constant(d, p.lower_bound), math::sigmoid(d, hn::Mul(rate, x)));
  const V rest = math::log1p(d, math::exp(d, hn::Neg(hn::Abs(x))));
  const V positive = hn::IfThenElse(hn::Lt(x, hn::Zero(d)), hn::Zero(d), x);  // NaN stays
  return hn::Neg(hn::Mul(rate, hn::Add(positive, rest)));
}

template <class T, class C = core::Compute<T>>
HWY_INLINE void gate_row(const T* a, float* out, size_t n, const GateRow& p) {
  const ComputeTag<T> d;
  const C* bias = static_cast<const C*>(p.bias);
  for_lanes(d, n, [&](size_t i, auto io) HWY_ATTR {
    const auto b = p.vector ? io.load(d, bias + i) : hn::Set(d, bias[0]);
    const auto value = gate_of(d, io.load(d, a + i), b, p);
    if constexpr (sizeof(C) == sizeof(float)) {
      io.store(d, value, out + i);
    } else {
      HWY_ALIGN C lanes[HWY_MAX_BYTES / sizeof(C)];
      hn::Store(value, d, lanes);
      for (size_t k = 0; k < hn::Lanes(d) && i + k < n; ++k) out[i + k] = static_cast<float>(lanes[k]);
    }
  });
}

void gate_rows(DType dtype, const void* a, float* out, size_t n, const GateRow& p) {
  core::visit_float(dtype, [&]<class T>() HWY_ATTR { gate_row(static_cast<const T*>(a), out, n, p); });
}

/// y[t] = activation(bias + sum_w taps[w] x[t + w]) for t < n; x is the row with its W - 1 predecessors in front.
template <class C>
HWY_INLINE void conv_row(const C* x, const C* taps, int64_t count, C bias, bool activate, C* y, size_t n) {
  const ComputeTag<C> d;
  for_lanes(d, n, [&](size_t i, auto io) HWY_ATTR {
    auto sum = hn::Set(d, bias);
    for (int64_t w = 0; w < count; ++w) sum = hn::MulAdd(hn::Set(d, taps[w]), io.load(d, x + i + w), sum);
    io.store(d, activate ? silu(d, sum) : sum, y + i);
  });
}
void conv_rows(DType compute, const void* x, const void* taps, int64_t count, double bias, bool activate, void* y,
               size_t n) {
  if (compute == float64) {
    conv_row(static_cast<const double*>(x), static_cast<const double*>(taps), count, bias, activate,
             static_cast<double*>(y), n);
  } else {
    conv_row(static_cast<const float*>(x), static_cast<const float*>(taps), count, static_cast<float>(bias), activate,
             static_cast<float*>(y), n);
  }
}

void gated_norm_block(const RowBlock& block, const GatedNormParameters& p) {
  core::visit_float(p.dtype, [&]<class T>() HWY_ATTR {
    using C = core::Compute<T>;
    const ComputeTag<T> d;
    const size_t n = static_cast<size_t>(block.length);
    const C* gamma = static_cast<const C*>(p.gamma);
    for (int64_t r = 0; r < block.count; ++r) {
      const T *x = block.row<const T>(0, r), *gate = block.row<const T>(1, r);
      T* y = block.row<T>(2, r);
      const auto squared = [](auto, auto v) HWY_ATTR { return hn::Mul(v, v); };
      const double sum = static_cast<double>(reduce_row(x, n, C(0), squared, AddOp()));
      const auto inverse = hn::Set(d, inverse_root<C>(sum / static_cast<double>(n), p.epsilon));
      for_lanes(d, n, [&](size_t i, auto io) HWY_ATTR {
        const auto normed = hn::Mul(hn::Mul(io.load(d, x + i), inverse), io.load(d, gamma + i));
        io.store(d, hn::Mul(normed, silu(d, io.load(d, gate + i))), y + i);
      });
    }
  });
}

}  // namespace tenor::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenor::cpu {
namespace {

HWY_EXPORT(gate_rows);
HWY_EXPORT(conv_rows);
HWY_EXPORT(gated_norm_block);

int64_t bytes_of(const Tensor& x) { return static_cast<int64_t>(item_size(x.dtype())); }
char* place(const Tensor& x, int64_t offset) { return static_cast<char*>(x.raw()) + offset * bytes_of(x); }

/// x [1 or more dims] as dense elements of the compute type.
std::vector<double> as_doubles(const Tensor& x) {
  const Tensor dense = x.to(float64).contiguous();
  return {dense.data<double>(), dense.data<double>() + dense.numel()};
}

/// One sequence of a convolution, some channels at a time.
class ConvRow {
 public:
  explicit ConvRow(const delta::Conv& c)
      : c_(c),
        compute_(compute_dtype(c.x.dtype())),
        item_(item_size(compute_)),
        read_(c.x.dtype(), compute_),
        write_(compute_, c.x.dtype()) {}

  void run(const delta::Sequence& s, int64_t channel, const std::vector<double>& taps, double bias) {
    const int64_t before = c_.taps - 1, n = s.length;
    row_.resize((before + n) * item_);
    out_.resize(std::max(n, c_.taps) * item_);
    load_before(s, channel);
    const int64_t at = s.batch * c_.x.stride(0) + channel * c_.x.stride(1) + s.begin * c_.x.stride(2);
    read_(place(c_.x, at), {1, n, 0, c_.x.stride(2)}, row_.data() + before * item_);
    Converter(float64, compute_)(taps.data() + channel * c_.taps, taps_of(), static_cast<size_t>(c_.taps));
    HWY_DYNAMIC_DISPATCH(conv_rows)
    (compute_, row_.data(), taps_of(), c_.taps, bias, c_.silu, out_.data(), static_cast<size_t>(n));
    const Tensor& y = c_.y;
    write_(out_.data(), place(y, s.batch * y.stride(0) + channel * y.stride(1) + s.begin * y.stride(2)),
           {1, n, 0, y.stride(2)});
    const Tensor& last = c_.last;
    if (before > 0)
      write_(row_.data() + n * item_, place(last, s.slot * last.stride(0) + channel * last.stride(1)),
             {1, before, 0, last.stride(2)});
  }

 private:
  void load_before(const delta::Sequence& s, int64_t channel) {
    const int64_t before = c_.taps - 1;
    const Tensor& first = c_.first;
    std::fill(row_.begin(), row_.begin() + before * static_cast<int64_t>(item_), 0);
    if (s.fresh || !first.defined() || before == 0) return;
    read_(place(first, s.slot * first.stride(0) + channel * first.stride(1)), {1, before, 0, first.stride(2)},
          row_.data());
  }
  void* taps_of() {
    taps_.resize(c_.taps * item_);
    return taps_.data();
  }

  const delta::Conv& c_;
  DType compute_;
  size_t item_;
  Gather read_;
  Scatter write_;
  std::vector<char> row_, out_, taps_;
};

}  // namespace

void delta_gate(const delta::Gate& g) {
  const bool vector = g.a.ndim() == 4;
  const int64_t heads = g.a.shape(1), rows_a_head = vector ? g.a.shape(2) : 1, width = vector ? g.a.shape(3) : 1;
  const std::vector<double> a_log = as_doubles(g.a_log);
  const Tensor bias = g.bias.to(compute_dtype(g.a.dtype())).contiguous();
  RowWalk walk(g.a.shape(), 1);
  walk.read(g.a);
  walk.write(g.out);
  walk.run([&](const RowBlock& block) {
    for (int64_t r = 0; r < block.count; ++r) {
      const int64_t head = (block.first + r) / rows_a_head % heads;
      const GateRow p{std::exp(a_log[head]), place(bias, head * width), vector, g.bounded, g.lower_bound};
      HWY_DYNAMIC_DISPATCH(gate_rows)
      (g.a.dtype(), block.row<void>(0, r), block.row<float>(1, r), static_cast<size_t>(block.length), p);
    }
  });
}

void causal_conv(const delta::Conv& c) {
  const std::vector<double> taps = as_doubles(c.weight),
                            bias = c.bias.defined() ? as_doubles(c.bias) : std::vector<double>();
  delta::zero_unclaimed(c.y, c.on_cpu, c.cu_seqlens.defined());
  std::vector<const delta::Sequence*> live;
  for (const delta::Sequence& s : c.on_cpu)
    if (s.slot >= 0) live.push_back(&s);
  const int64_t rows = static_cast<int64_t>(live.size()) * c.channels;
  parallel_for(rows, grain_of((c.steps + 8) * bytes_of(c.x) * 2), [&](int64_t begin, int64_t end) {
    ConvRow row(c);
    for (int64_t i = begin; i < end; ++i) {
      const int64_t channel = i % c.channels;
      row.run(*live[i / c.channels], channel, taps, bias.empty() ? 0 : bias[channel]);
    }
  });
}

void gated_rms_norm_rows(const RowBlock& block, const GatedNormParameters& p) {
  HWY_DYNAMIC_DISPATCH(gated_norm_block)(block, p);
}

}  // namespace tenor::cpu
#endif  // HWY_ONCE
