#include "src/ops/conv/conv_plain.h"

#include <cmath>

#include "src/core/visit.h"
#include "src/cpu/any_nan.h"
#include "src/cpu/parallel.h"

namespace tenor::conv {
namespace {

/// fn(n, g, o, i) for i < count of every channel written, in parallel.
template <class F>
void for_each_result(int64_t batch, int64_t groups, int64_t channels, int64_t count, F&& fn) {
  cpu::parallel_for(batch * groups * channels * count, 256, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i)
      fn(i / (groups * channels * count), i / (channels * count) % groups, i / count % channels, i % count);
  });
}

/// Where a tap of pixel `q` reads an image of that size, or a negative number on padding.
int64_t source_of(const TapProblem& p, const Pass& pass, const Tap& tap, const int64_t* q) {
  int64_t at = 0;
  for (int d = 0; d < kSpatial; ++d) {
    const int64_t place = q[d] * pass.scale[d] + tap.offset[d];
    if (place < 0 || place >= p.source_size[d]) return -1;
    at += place * p.source.spatial[d];
  }
  return at;
}

template <class S>
class Sums {
 public:
  using T = core::Compute<S>;
  explicit Sums(const TapProblem& p) : p_(p) {}

  S* target(const Pass& pass, int64_t n, int64_t g, int64_t o, const int64_t* q) const {
    int64_t to = n * p_.target.batch + (g * p_.out + o) * p_.target.channel;
    for (int d = 0; d < kSpatial; ++d) to += (q[d] * pass.step[d] + pass.base[d]) * p_.target.spatial[d];
    return reinterpret_cast<S*>(p_.target.data) + to;
  }
  T biased(T sum, int64_t g, int64_t o) const {
    const S* bias = reinterpret_cast<const S*>(p_.bias);
    return bias ? sum + core::cast<T>(bias[(g * p_.out + o) * p_.bias_stride]) : sum;
  }
  /// sum + the products of one tap, of channel `o` written; `at` is the pixel read.
  T tap(T sum, int64_t n, int64_t g, int64_t o, int64_t at, int64_t weight) const {
    const S* x = reinterpret_cast<const S*>(p_.source.data) + n * p_.source.batch + g * p_.in * p_.source.channel + at;
    const S* w = reinterpret_cast<const S*>(p_.weight) + g * p_.weight_group + o * p_.weight_out + weight;
    for (int64_t c = 0; c < p_.in; ++c)
      sum += core::cast<T>(x[c * p_.source.channel]) * core::cast<T>(w[c * p_.weight_in]);
    return sum;
  }
  /// The sum of one result; nothing that follows makes a number of NaN.
  T window(const Pass& pass, int64_t n, int64_t g, int64_t o, const int64_t* q) const {
    T sum = 0;
    for (const Tap& t : pass.taps) {
      const int64_t at = source_of(p_, pass, t, q);
      if (at >= 0) sum = tap(sum, n, g, o, at, t.weight);
      if (std::isnan(sum)) break;
    }
    return biased(sum, g, o);
  }

 private:
  const TapProblem& p_;
};

/// The places of a pass in one dim all of whose taps read inside of the source.
core::WindowRange inside_of(const TapProblem& p, const Pass& pass, int d) {
  core::WindowRange in{0, pass.size[d]};
  for (const Tap& tap : pass.taps) {
    const int64_t offset = tap.offset[d], scale = pass.scale[d], room = p.source_size[d] - 1 - offset;
    if (offset < 0) in.first = std::max(in.first, (-offset + scale - 1) / scale);
    in.last = std::min(in.last, room < 0 ? 0 : room / scale + 1);
  }
  return in;
}

template <class S>
void mend_row(const TapProblem& p, const Pass& pass, const core::WindowRange& skip, int64_t n, int64_t g, int64_t d,
              int64_t h) {
  const Sums<S> sums(p);
  for (int64_t w = 0; w < pass.size[2]; ++w) {
    if (w == skip.first && !skip.empty()) w = skip.last;
    if (w >= pass.size[2]) break;
    const int64_t q[] = {d, h, w};
    S* to = sums.target(pass, n, g, 0, q);
    for (int64_t o = 0; o < p.out; ++o, to += p.target.channel)
      if (std::isnan(core::cast<core::Compute<S>>(*to))) *to = core::cast<S>(sums.window(pass, n, g, o, q));
  }
}

/// One element of the filter's gradient, which ends where it is NaN.
template <class S>
S gradient_sum(const ConvProblem& p, int64_t o, int64_t c, const int64_t* k) {
  using T = core::Compute<S>;
  const core::WindowDim &D = p.window[0], &H = p.window[1], &W = p.window[2];
  const core::WindowRange d = D.outputs(k[0]), h = H.outputs(k[1]), w = W.outputs(k[2]);
  const int64_t channel = (o / p.group_outputs() * p.group_channels() + c) * p.input.channel;
  T sum = 0;
  for (int64_t n = 0; n < p.batch; ++n)
    for (int64_t z = d.first; z < d.last; ++z)
      for (int64_t y = h.first; y < h.last && !std::isnan(sum); ++y) {
        const S* x = reinterpret_cast<const S*>(p.input.data) + n * p.input.batch + channel +
                     D.position(z, k[0]) * p.input.spatial[0] + H.position(y, k[1]) * p.input.spatial[1];
        const S* g = reinterpret_cast<const S*>(p.output.data) + n * p.output.batch + o * p.output.channel +
                     z * p.output.spatial[0] + y * p.output.spatial[1];
        for (int64_t v = w.first; v < w.last; ++v)
          sum += core::cast<T>(x[W.position(v, k[2]) * p.input.spatial[2]]) * core::cast<T>(g[v * p.output.spatial[2]]);
      }
  return core::cast<S>(sum);
}

/// fn(element, o, c, taps of the three dims) of the gradient, in parallel.
template <class S, class F>
void for_each_element(const ConvProblem& p, const Pass& pass, int64_t grain, F&& fn) {
  const int64_t taps = p.taps(), cols = p.group_channels() * taps;
  cpu::parallel_for(p.out_channels * cols, grain, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      const int64_t o = i / cols, c = i % cols / taps, t = i % taps;
      const int64_t k[] = {t / (p.window[1].kernel * p.window[2].kernel), t / p.window[2].kernel % p.window[1].kernel,
                           t % p.window[2].kernel};
      fn(reinterpret_cast<S*>(p.weight.data) + o * p.weight.out + c * p.weight.in +
             pass.taps[static_cast<size_t>(t)].weight,
         o, c, k);
    }
  });
}

}  // namespace

void plain_pass(const TapProblem& p, const Pass& pass) {
  core::visit_float(p.dtype, [&]<class S>() {
    const Sums<S> sums(p);
    for_each_result(p.batch, p.groups, p.out, pass.pixels(), [&](int64_t n, int64_t g, int64_t o, int64_t pixel) {
      const int64_t q[] = {pixel / (pass.size[1] * pass.size[2]), pixel / pass.size[2] % pass.size[1],
                           pixel % pass.size[2]};
      *sums.target(pass, n, g, o, q) = core::cast<S>(sums.window(pass, n, g, o, q));
    });
  });
}

void plain_data_backward(const ConvProblem& p) {
  const TapProblem taps = operands_of(p);
  Pass all{};  // every input, neighbours apart by one
  for (int d = 0; d < kSpatial; ++d) all.size[d] = p.window[d].input, all.step[d] = 1;
  /// fn(output, tap) for those of one dim that read an input.
  const auto each = [](const core::WindowDim& w, int64_t input, auto&& fn) {
    const core::WindowRange covering = w.covering(input);
    for (int64_t o = covering.last - 1; o >= covering.first; --o)  // taps ascend
      if (const int64_t reach = input - w.start(o); reach % w.dilation == 0) fn(o, reach / w.dilation);
  };
  core::visit_float(p.dtype, [&]<class S>() {
    const Sums<S> sums(taps);
    for_each_result(p.batch, p.groups, taps.out, all.pixels(), [&](int64_t n, int64_t g, int64_t o, int64_t pixel) {
      const int64_t q[] = {pixel / (all.size[1] * all.size[2]), pixel / all.size[2] % all.size[1], pixel % all.size[2]};
      core::Compute<S> sum = 0;
      each(p.window[0], q[0], [&](int64_t od, int64_t kd) {
        each(p.window[1], q[1], [&](int64_t oh, int64_t kh) {
          each(p.window[2], q[2], [&](int64_t ow, int64_t kw) {
            sum = sums.tap(sum, n, g, o, od * p.output.spatial[0] + oh * p.output.spatial[1] + ow * p.output.spatial[2],
                           kd * p.weight.spatial[0] + kh * p.weight.spatial[1] + kw * p.weight.spatial[2]);
          });
        });
      });
      *sums.target(all, n, g, o, q) = core::cast<S>(sums.biased(sum, g, o));
    });
  });
}

void plain_gradient(const ConvProblem& p, const Pass& pass) {
  core::visit_float(p.dtype, [&]<class S>() {
    for_each_element<S>(p, pass, 1,
                        [&](S* to, int64_t o, int64_t c, const int64_t* k) { *to = gradient_sum<S>(p, o, c, k); });
  });
}

void mend_pass(const TapProblem& p, const Pass& pass, bool everywhere) {
  core::WindowRange inside[kSpatial];
  bool all = !everywhere;
  for (int d = 0; d < kSpatial; ++d) {
    inside[d] = inside_of(p, pass, d);
    all = all && inside[d].first == 0 && inside[d].last == pass.size[d];
  }
  if (all || pass.pixels() == 0) return;
  const int64_t rows = p.batch * p.groups * pass.size[0] * pass.size[1];
  cpu::parallel_for(rows, cpu::grain_of(pass.size[2] * p.out), [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      const int64_t h = i % pass.size[1], d = i / pass.size[1] % pass.size[0],
                    image = i / (pass.size[0] * pass.size[1]);
      const bool within =
          !everywhere && d >= inside[0].first && d < inside[0].last && h >= inside[1].first && h < inside[1].last;
      core::visit_float(p.dtype, [&]<class S>() {
        mend_row<S>(p, pass, within ? inside[2] : core::WindowRange{}, image / p.groups, image % p.groups, d, h);
      });
    }
  });
}

void mend_gradient(const ConvProblem& p, const Pass& pass, bool everywhere) {
  const auto padded = [&](const int64_t* k) {
    bool any = everywhere;
    for (int d = 0; d < kSpatial; ++d) any = any || p.window[d].outputs(k[d]).count() < p.window[d].output;
    return any;
  };
  core::visit_float(p.dtype, [&]<class S>() {
    for_each_element<S>(p, pass, 4096, [&](S* to, int64_t o, int64_t c, const int64_t* k) {
      if (std::isnan(core::cast<core::Compute<S>>(*to)) && padded(k)) *to = gradient_sum<S>(p, o, c, k);
    });
  });
}

namespace {

/// What a direction writes, of any order of dims: whether it lies densely, and how many elements it has.
struct Written {
  const char* data;
  int64_t count = 1, last = 0;  ///< elements; the place of the last one
  bool is_dense() const { return count == last + 1; }
  void add(int64_t size, int64_t stride) { count *= size, last += (size - 1) * stride; }
};
Written written_of(const ConvProblem& p) {
  if (p.direction == Direction::kWeightBackward) {
    Written w{p.weight.data};
    w.add(p.out_channels, p.weight.out), w.add(p.group_channels(), p.weight.in);
    for (int d = 0; d < kSpatial; ++d) w.add(p.window[d].kernel, p.weight.spatial[d]);
    return w;
  }
  const bool forward = p.direction == Direction::kForward;
  const Image& image = written_image(p);
  Written w{image.data};
  w.add(p.batch, image.batch), w.add(written_channels(p), image.channel);
  for (int d = 0; d < kSpatial; ++d) w.add(forward ? p.window[d].output : p.window[d].input, image.spatial[d]);
  return w;
}

/// Pixels of a pass some tap of which reads nothing.
int64_t border_of(const TapProblem& p, const Pass& pass) {
  int64_t inside = 1;
  for (int d = 0; d < kSpatial; ++d) inside *= std::max<int64_t>(inside_of(p, pass, d).count(), 0);
  return pass.pixels() - inside;
}

}  // namespace

void mend(const ConvProblem& p) {
  // Instructions that multiply pairs of 16-bit numbers fill odd pixels and channels up with zeros besides.
  const bool pairs = p.dtype != DType::kFloat32, weight = p.direction == Direction::kWeightBackward;
  const TapProblem taps = weight ? TapProblem{} : taps_of(p);
  const auto everywhere = [&](const Pass& pass) { return pairs || static_cast<int64_t>(pass.taps.size()) != p.taps(); };
  // A look at all of it in vectors is quicker than one at a twenty-fifth of its elements.
  int64_t looked_at = 0;
  for (const Pass& pass : taps.passes)
    looked_at += (everywhere(pass) ? pass.pixels() : border_of(taps, pass)) * p.batch * written_channels(p);
  const Written written = written_of(p);
  if (weight || looked_at * 25 > written.count)
    if (written.is_dense() && !cpu::any_nan(p.dtype, written.data, written.count)) return;
  if (weight) return mend_gradient(p, forward_pass(p), pairs);
  for (const Pass& pass : taps.passes) mend_pass(taps, pass, everywhere(pass));
}

}  // namespace tenor::conv
