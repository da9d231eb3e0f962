// The decoders on the CPU, a task a sample.
#include <algorithm>
#include <numeric>
#include <unordered_map>

#include "src/core/numeric.h"
#include "src/core/visit.h"
#include "src/cpu/parallel.h"
#include "src/ops/ctc/ctc_beam.h"
#include "src/ops/ctc/ctc_kernels.h"

namespace tenor::cpu {
namespace {

using ctc::BeamCandidate;
using ctc::BeamPrefix;
using ctc::Probability;

/// Labels as a row of ids, -1 behind them.
struct IdRow {
  int64_t* to;
  int64_t stride, capacity;
  void write(const std::vector<int64_t>& labels) const {
    for (int64_t i = 0; i < capacity; ++i)
      to[i * stride] = i < static_cast<int64_t>(labels.size()) ? labels[static_cast<size_t>(i)] : -1;
  }
};
IdRow id_row(const Tensor& ids, int64_t n) {
  return {ids.data<int64_t>() + n * ids.stride(0), ids.stride(1), ids.shape(1)};
}

/// The beam of one sample as it goes through the frames.
class Beam {
 public:
  Beam(int64_t blank, int64_t width, int64_t classes)
      : blank_(blank), width_(width), rank_of_(static_cast<size_t>(classes), -1) {
    nodes_.push_back({ctc::kNoNode, -1});
    beam_.push_back(ctc::empty_prefix(0));
  }

  /// One frame: each class's log probability.
  void advance(const std::vector<double>& log_probs) {
    rank_classes(log_probs);
    std::unordered_map<int64_t, int64_t> place;  // a node's place in the beam
    for (size_t r = 0; r < beam_.size(); ++r) place[beam_[r].node] = static_cast<int64_t>(r);
    const int64_t prefixes = static_cast<int64_t>(beam_.size());
    const auto parent_of = [&](const BeamPrefix& x) {
      const auto found = place.find(x.parent);
      return x.parent == ctc::kNoNode || found == place.end() ? int64_t{-1} : found->second;
    };
    kept_.clear(), candidates_.clear();
    std::vector<std::vector<int64_t>> taken(beam_.size());  // classes that lead to a prefix of the beam
    for (int64_t r = 0; r < prefixes; ++r) {
      const BeamPrefix& x = beam_[static_cast<size_t>(r)];
      const int64_t parent = parent_of(x);
      const auto p = [&](int64_t c) {
        return ctc::class_probability(c < 0 ? -1.0 : log_probs[static_cast<size_t>(c)]);
      };
      kept_.push_back(ctc::kept(x, p(blank_), p(x.last), parent < 0 ? nullptr : &beam_[static_cast<size_t>(parent)]));
      if (parent >= 0) taken[static_cast<size_t>(parent)].push_back(rank_of_[static_cast<size_t>(x.last)]);
      add(kept_.back().total, r, -1);
    }
    for (int64_t r = 0; r < prefixes; ++r) {
      const auto& used = taken[static_cast<size_t>(r)];
      const int64_t most = ctc::classes_for(r, width_, static_cast<int64_t>(ranked_.size()));
      for (int64_t j = 0; j < most; ++j) {
        const int64_t c = ranked_[static_cast<size_t>(j)];
        if (std::find(used.begin(), used.end(), j) != used.end()) continue;
        add(ctc::lengthened(beam_[static_cast<size_t>(r)], c,
                            ctc::class_probability(log_probs[static_cast<size_t>(c)])),
            r, j);
      }
    }
    select();
    for (int64_t c : ranked_) rank_of_[static_cast<size_t>(c)] = -1;
  }

  std::vector<int64_t> best() const {
    std::vector<int64_t> labels;
    if (beam_.empty()) return labels;
    for (int64_t node = beam_[0].node; node > 0; node = nodes_[static_cast<size_t>(node)].parent)
      labels.push_back(nodes_[static_cast<size_t>(node)].label);
    std::reverse(labels.begin(), labels.end());
    return labels;
  }

 private:
  struct Node {
    int64_t parent, label;
  };
  struct Edge {
    int64_t parent, label;
    bool operator==(const Edge&) const = default;
  };
  struct EdgeHash {
    size_t operator()(const Edge& e) const { return std::hash<int64_t>()(e.parent * 1000003 + e.label); }
  };

  void add(Probability value, int64_t from, int64_t rank) {
    if (value.m > 0) candidates_.push_back({value, from, rank});
  }

  /// The classes that may lengthen a prefix, best first.
  void rank_classes(const std::vector<double>& log_probs) {
    ranked_.clear();
    for (size_t c = 0; c < log_probs.size(); ++c)
      if (static_cast<int64_t>(c) != blank_ && ctc::class_probability(log_probs[c]).m > 0)
        ranked_.push_back(static_cast<int64_t>(c));
    const auto before = [&](int64_t a, int64_t b) {
      const double x = log_probs[static_cast<size_t>(a)], y = log_probs[static_cast<size_t>(b)];
      return x != y ? x > y : a < b;
    };
    const auto most = static_cast<size_t>(std::min<int64_t>(3 * width_, static_cast<int64_t>(ranked_.size())));
    std::partial_sort(ranked_.begin(), ranked_.begin() + static_cast<int64_t>(most), ranked_.end(), before);
    ranked_.resize(most);
    for (size_t j = 0; j < most; ++j) rank_of_[static_cast<size_t>(ranked_[j])] = static_cast<int64_t>(j);
  }

  int64_t child(int64_t parent, int64_t label) {
    const auto [found, is_new] = children_.try_emplace({parent, label}, static_cast<int64_t>(nodes_.size()));
    if (is_new) nodes_.push_back({parent, label});
    return found->second;
  }

  void select() {
    const auto count = std::min<size_t>(candidates_.size(), static_cast<size_t>(width_));
    std::partial_sort(candidates_.begin(), candidates_.begin() + static_cast<int64_t>(count), candidates_.end(),
                      ctc::precedes);
    std::vector<BeamPrefix> next;
    for (size_t i = 0; i < count; ++i) {
      const BeamCandidate& c = candidates_[i];
      if (c.rank < 0) {
        next.push_back(kept_[static_cast<size_t>(c.from)]);
        continue;
      }
      const int64_t parent = beam_[static_cast<size_t>(c.from)].node, last = ranked_[static_cast<size_t>(c.rank)];
      next.push_back({child(parent, last), parent, last, ctc::zero<double>(), c.value, c.value});
    }
    beam_ = std::move(next);
  }

  int64_t blank_, width_;
  std::vector<Node> nodes_;  // the tree of prefixes; 0 is the empty one
  std::unordered_map<Edge, int64_t, EdgeHash> children_;
  std::vector<BeamPrefix> beam_, kept_;
  std::vector<BeamCandidate> candidates_;
  std::vector<int64_t> ranked_, rank_of_;
};

}  // namespace

void ctc_collapse(const Tensor& best, const std::vector<int64_t>& frames, int64_t blank, const Tensor& ids,
                  const Tensor& lengths) {
  const int64_t all = best.shape(0);
  parallel_for(ids.shape(0), grain_of(32 * all), [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      std::vector<int64_t> labels;
      int64_t before = blank;
      for (int64_t t = 0; t < frames[static_cast<size_t>(n)]; ++t) {
        const int64_t k = best.data<int64_t>()[t * best.stride(0) + n * best.stride(1)];
        if (k != blank && k != before) labels.push_back(k);
        before = k;
      }
      id_row(ids, n).write(labels);
      lengths.data<int64_t>()[n * lengths.stride(0)] = static_cast<int64_t>(labels.size());
    }
  });
}

void ctc_beam(const Tensor& log_probs, const std::vector<int64_t>& frames, int64_t blank, int64_t width,
              const Tensor& ids, const Tensor& lengths) {
  const int64_t classes = log_probs.shape(2);
  parallel_for(log_probs.shape(1), 1, [&](int64_t begin, int64_t end) {
    std::vector<double> row(static_cast<size_t>(classes));
    for (int64_t n = begin; n < end; ++n) {
      Beam beam(blank, width, classes);
      for (int64_t t = 0; t < frames[static_cast<size_t>(n)]; ++t) {
        core::visit_float(log_probs.dtype(), [&]<class T>() {
          const T* from = log_probs.data<T>() + t * log_probs.stride(0) + n * log_probs.stride(1);
          for (int64_t c = 0; c < classes; ++c)
            row[static_cast<size_t>(c)] = static_cast<double>(core::widen(from[c * log_probs.stride(2)]));
        });
        beam.advance(row);
      }
      const std::vector<int64_t> labels = beam.best();
      id_row(ids, n).write(labels);
      lengths.data<int64_t>()[n * lengths.stride(0)] = static_cast<int64_t>(labels.size());
    }
  });
}

}  // namespace tenor::cpu
