// Prefix beam search: what both devices compute alike, in float64 with the same bits.
//
// A frame's candidates are the prefixes of the beam as they are and each lengthened by a class. Of the prefix with rank
// r and the frame's class with rank j (blank aside), (r + 1) * (j + 1) - 1 candidates come before, but for those of a
// repeated class and those that are prefixes of the beam already, below twice the width together. So no candidate with
// (r + 1) * (j + 1) of three times the width or more is among the best; the rest are few.
#pragma once

#include "src/ops/ctc/ctc_scaled.h"

namespace tenor::ctc {

using Probability = Scaled<double>;

/// A prefix of the beam: where it lies in the tree of prefixes, and the probability of the frames so far by how they
/// end.
struct BeamPrefix {
  int64_t node, parent, last;  ///< node numbers; the empty prefix has last -1
  Probability blank, label, total;
};
inline constexpr int64_t kNoNode = -1;  ///< the parent of the empty prefix

/// A prefix of the next beam: that of rank `from` as it is (class rank -1), or with a class more.
struct BeamCandidate {
  Probability value;
  int64_t from, rank;
};

TENOR_HOST_DEVICE inline BeamPrefix empty_prefix(int64_t root) {
  return {root, kNoNode, -1, one<double>(), zero<double>(), one<double>()};
}

/// A class's probability; none for NaN and +inf.
TENOR_HOST_DEVICE inline Probability class_probability(double log_prob) {
  return log_prob < std::numeric_limits<double>::infinity() ? exponential(log_prob) : zero<double>();
}

/// Of a prefix followed by a class: after the same class there must have been a blank.
TENOR_HOST_DEVICE inline Probability lengthened(const BeamPrefix& prefix, int64_t last, Probability p) {
  return normalized(multiply(last == prefix.last ? prefix.blank : prefix.total, p));
}

/// A prefix after a frame that leaves it as it is. `parent` is its own prefix where the beam has that, else null.
TENOR_HOST_DEVICE inline BeamPrefix kept(const BeamPrefix& x, Probability blank_p, Probability last_p,
                                         const BeamPrefix* parent) {
  BeamPrefix next = x;
  next.blank = normalized(multiply(x.total, blank_p));
  next.label = x.last < 0 ? zero<double>() : normalized(multiply(x.label, last_p));
  if (parent) next.label = normalized(add(next.label, lengthened(*parent, x.last, last_p)));
  next.total = normalized(add(next.blank, next.label));
  return next;
}

TENOR_HOST_DEVICE inline bool is_greater(Probability a, Probability b) {  // of normalised ones
  return a.e > b.e || (a.e == b.e && a.m > b.m);
}
TENOR_HOST_DEVICE inline bool precedes(const BeamCandidate& a, const BeamCandidate& b) {
  if (is_greater(a.value, b.value)) return true;
  if (is_greater(b.value, a.value)) return false;
  return a.from != b.from ? a.from < b.from : a.rank < b.rank;
}

/// How many of a frame's best classes may lengthen the prefix with that rank.
TENOR_HOST_DEVICE inline int64_t classes_for(int64_t rank, int64_t width, int64_t classes) {
  const int64_t most = 3 * width / (rank + 1);
  return most < classes ? most : classes;
}

}  // namespace tenor::ctc
