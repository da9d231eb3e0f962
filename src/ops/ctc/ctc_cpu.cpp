// The loss on the CPU: a task a sample, or for the gradient one for each direction of a sample, then one for every few
// frames, so that all cores work over batch and time.
#include <algorithm>

#include "src/core/numeric.h"
#include "src/core/visit.h"
#include "src/cpu/parallel.h"
#include "src/ops/ctc/ctc_kernels.h"
#include "src/ops/ctc/ctc_scaled.h"

namespace tenor::cpu {
namespace {

using core::Compute;
using ctc::Scaled;

constexpr int64_t kFramesPerTask = 16;
constexpr int64_t kNormalizeEvery = 8;            // a step grows mantissas by 4.3 at most
constexpr size_t kMostBytes = size_t{256} << 20;  // of rows at once; samples beyond come in further rounds

template <class C>
CtcRow<C> row_at(C* memory, int64_t length) {
  return {memory + kCtcPad, memory + length + kCtcPad, memory + 2 * length + kCtcPad, memory + 3 * length + kCtcPad};
}

/// One direction of one sample. Labels and frames count from the end that it starts at.
template <class T>
class Walk {
  using C = Compute<T>;

 public:
  Walk(const CtcProblem& problem, const CtcSample& s, bool back)
      : x_(problem.log_probs), s_(s), back_(back), length_(ctc_row_length(s.labels)) {
    const size_t size = static_cast<size_t>(length_);
    state_.assign(4 * size, 0);
    for (size_t part : {1, 3}) std::fill_n(state_.begin() + static_cast<int64_t>(part * size), size, ctc::zero<C>().e);
    p_.assign(size + 1, ctc::zero<C>().e);
    skips_.assign(size, 0);
    blank_ = problem.blank * x_.stride(2);
    for (int64_t i = 0; i < s.labels; ++i) {
      const int64_t mine = label(i), below = i > 0 ? label(i - 1) : mine;
      // A path may pass over a blank between two labels that differ, into one that is no blank itself.
      skips_[static_cast<size_t>(i)] = mine != below && (back ? below : mine) != problem.blank;
      places_.push_back(mine * x_.stride(2));
    }
  }

  /// All frames; of each the row that the gradient needs goes to rows + frame * 4 * length.
  void run(C* rows) {
    const CtcRow<C> state = row_at(state_.data(), length_);
    const CtcVectorLoops<C>& loops = ctc_loops<C>();
    state.blank_m[0] = 1, state.blank_e[0] = 0;  // as if there were a frame before: blank 0 and label 0 come next
    for (int64_t u = 0; u < s_.frames; ++u) {
      const int64_t t = back_ ? s_.frames - 1 - u : u;
      gather(t);
      C* to = rows ? rows + t * 4 * length_ : nullptr;
      const CtcRow<C> out = to ? row_at(to, length_) : CtcRow<C>{};
      loops.step(state, p_.data(), skips_.data(), s_.labels, to && back_ ? &out : nullptr);
      if (to && !back_) std::copy(state_.begin(), state_.end(), to);
      if (u % kNormalizeEvery == kNormalizeEvery - 1) loops.normalize(state, s_.labels);
    }
  }

  /// The probability of all paths, after run().
  Scaled<C> total() {
    const CtcRow<C> state = row_at(state_.data(), length_);
    const int64_t S = s_.labels;
    const Scaled<C> blank{state.blank_m[S], state.blank_e[S]};
    return ctc::normalized(S > 0 ? ctc::add(blank, Scaled<C>{state.label_m[S - 1], state.label_e[S - 1]}) : blank);
  }

 private:
  int64_t label(int64_t i) const { return s_.label[back_ ? s_.labels - 1 - i : i]; }
  void gather(int64_t t) {
    const T* from = x_.data<T>() + t * x_.stride(0) + s_.n * x_.stride(1);
    p_[0] = core::widen(from[blank_]);
    for (size_t i = 0; i < places_.size(); ++i) p_[1 + i] = core::widen(from[places_[i]]);
  }

  const Tensor& x_;
  const CtcSample& s_;
  bool back_;
  int64_t length_, blank_;
  std::vector<C> state_, p_, skips_;
  std::vector<int64_t> places_;
};

/// Without a frame only the empty target is spelled; a label takes a frame at least.
bool has_paths(const CtcSample& s) { return s.frames > 0 && s.labels <= s.frames; }
double without_paths(const CtcProblem& p, const CtcSample& s) {
  return (s.frames == 0 && s.labels == 0) || p.zero_infinity ? 0.0 : std::numeric_limits<double>::infinity();
}
template <class C>
double loss_of(const CtcProblem& p, Scaled<C> total) {
  return ctc::is_zero(total) && p.zero_infinity ? 0.0 : -ctc::logarithm(total);
}

int64_t cost(const CtcSample& s) { return 64 * (s.frames + 1) * (s.labels + 1); }

template <class T>
void losses_of(const CtcProblem& problem, double* losses) {
  const auto count = static_cast<int64_t>(problem.samples.size());
  int64_t all = 0;
  for (const CtcSample& s : problem.samples) all += cost(s);
  parallel_for(count, grain_of(count > 0 ? all / count : 1), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const CtcSample& s = problem.samples[static_cast<size_t>(i)];
      losses[s.n] = without_paths(problem, s);
      if (!has_paths(s)) continue;
      Walk<T> walk(problem, s, false);
      walk.run(nullptr);
      losses[s.n] = loss_of(problem, walk.total());
    }
  });
}

/// What the two directions of a sample left.
template <class C>
struct Halves {
  Tensor rows[2];  ///< memory that the allocator keeps for the next call
  Scaled<C> total;
};

/// Rows of the gradient, and what computing them takes.
template <class T>
class ClassRows {
  using C = Compute<T>;

 public:
  ClassRows(const CtcProblem& problem, const Tensor& gradient)
      : p_(problem), g_(gradient), wide_(static_cast<size_t>(gradient.shape(2))) {}

  /// Frame t of a sample that has posteriors.
  void posterior(const CtcSample& s, const Halves<C>& halves, int64_t t, C weight) {
    const int64_t length = ctc_row_length(s.labels);
    posts_.resize(static_cast<size_t>(length));
    exponentials(s, t);
    const CtcRow<C> forward = row_at(halves.rows[0].template data<C>() + t * 4 * length, length),
                    backward = row_at(halves.rows[1].template data<C>() + t * 4 * length, length);
    wide_[static_cast<size_t>(p_.blank)] -=
        ctc_loops<C>().posteriors(forward, backward, s.labels, 1 / halves.total.m, -halves.total.e, posts_.data());
    for (int64_t i = 0; i < s.labels; ++i) wide_[static_cast<size_t>(s.label[i])] -= posts_[static_cast<size_t>(i)];
    write(s, t, weight);
  }

  void constant(const CtcSample& s, int64_t t, C value) {
    std::fill(wide_.begin(), wide_.end(), value);
    write(s, t, 1);
  }

 private:
  void exponentials(const CtcSample& s, int64_t t) {
    const Tensor& x = p_.log_probs;
    const T* from = x.data<T>() + t * x.stride(0) + s.n * x.stride(1);
    const auto count = static_cast<int64_t>(wide_.size());
    if (x.stride(2) == 1) return ctc_loops<C>().exponentials(from, x.dtype(), count, wide_.data());
    gathered_.resize(wide_.size());
    for (int64_t c = 0; c < count; ++c) gathered_[static_cast<size_t>(c)] = core::widen(from[c * x.stride(2)]);
    ctc_loops<C>().exponentials(gathered_.data(), sizeof(C) == 8 ? float64 : float32, count, wide_.data());
  }
  void write(const CtcSample& s, int64_t t, C weight) {
    T* to = g_.data<T>() + t * g_.stride(0) + s.n * g_.stride(1);
    const auto count = static_cast<int64_t>(wide_.size());
    if (g_.stride(2) == 1) return ctc_loops<C>().weigh(wide_.data(), weight, count, g_.dtype(), to);
    for (int64_t c = 0; c < count; ++c) to[c * g_.stride(2)] = core::cast<T>(wide_[static_cast<size_t>(c)] * weight);
  }

  const CtcProblem& p_;
  const Tensor& g_;
  std::vector<C> wide_, posts_, gathered_;
};

/// Some samples: both directions of each side by side, then their frames.
template <class T>
void gradient_of(const CtcProblem& problem, const CtcSample* samples, int64_t count, const double* weights,
                 const Tensor& gradient, double* losses) {
  using C = Compute<T>;
  std::vector<Halves<C>> halves(static_cast<size_t>(count));
  parallel_for(2 * count, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const CtcSample& s = samples[i / 2];
      Halves<C>& h = halves[static_cast<size_t>(i / 2)];
      if (!has_paths(s)) continue;
      h.rows[i % 2] = Tensor::empty({4 * ctc_row_length(s.labels) * s.frames}, sizeof(C) == 8 ? float64 : float32);
      Walk<T> walk(problem, s, i % 2 == 1);
      walk.run(h.rows[i % 2].template data<C>());
      if (i % 2 == 0) h.total = walk.total();
    }
  });
  const int64_t frames = gradient.shape(0), pieces = (frames + kFramesPerTask - 1) / kFramesPerTask;
  parallel_for(count * pieces, grain_of(16 * kFramesPerTask * gradient.shape(2)), [&](int64_t begin, int64_t end) {
    ClassRows<T> rows(problem, gradient);
    for (int64_t i = begin; i < end; ++i) {
      const CtcSample& s = samples[i / pieces];
      const Halves<C>& h = halves[static_cast<size_t>(i / pieces)];
      const bool fine = has_paths(s) && !ctc::is_zero(h.total);
      const C bad = problem.zero_infinity ? C(0) : std::numeric_limits<C>::quiet_NaN();
      for (int64_t t = i % pieces * kFramesPerTask; t < std::min(frames, (i % pieces + 1) * kFramesPerTask); ++t) {
        if (t >= s.frames || !fine)
          rows.constant(s, t, t >= s.frames ? C(0) : bad);
        else
          rows.posterior(s, h, t, static_cast<C>(weights[s.n]));
      }
    }
  });
  for (int64_t i = 0; i < count; ++i)
    losses[samples[i].n] = has_paths(samples[i]) ? loss_of(problem, halves[static_cast<size_t>(i)].total)
                                                 : without_paths(problem, samples[i]);
}

}  // namespace

void ctc_losses(const CtcProblem& problem, double* losses) {
  core::visit_float(problem.log_probs.dtype(), [&]<class T>() { losses_of<T>(problem, losses); });
}

void ctc_gradient(const CtcProblem& problem, const double* weights, const Tensor& gradient, double* losses) {
  core::visit_float(problem.log_probs.dtype(), [&]<class T>() {
    const auto bytes = [](const CtcSample& s) {
      return static_cast<size_t>(8 * ctc_row_length(s.labels) * s.frames) * sizeof(Compute<T>);
    };
    const auto& all = problem.samples;
    for (size_t first = 0, last; first < all.size(); first = last) {
      size_t held = bytes(all[first]);
      for (last = first + 1; last < all.size() && held + bytes(all[last]) <= kMostBytes; ++last)
        held += bytes(all[last]);
      gradient_of<T>(problem, &all[first], static_cast<int64_t>(last - first), weights, gradient, losses);
    }
  });
}

}  // namespace tenor::cpu
