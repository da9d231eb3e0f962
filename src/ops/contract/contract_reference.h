// The oracle of contractions: the sum over all labels of the product of all operands, in float64 (or, for integers, in
// 64 bits, which wrap into any narrower type), straight from the definition.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "src/core/testing.h"

namespace tenor::reference {

struct Term {
  Tensor x;
  std::string labels;  ///< one a dim; size 1 broadcasts
};

struct Sum {
  std::vector<double> values;      ///< row-major over the output's labels
  std::vector<double> magnitudes;  ///< the same sums of absolute values: what an error is measured against
  Dims shape;
};

/// Of integers, `values` are exact below 2^53 only: they wrap to `wrap` bits where that is given.
inline Sum contract(const std::vector<Term>& terms, const std::string& out, int wrap = 0) {
  std::map<char, int64_t> size;
  for (const Term& t : terms)
    for (size_t d = 0; d < t.labels.size(); ++d) {
      const int64_t n = t.x.shape(static_cast<int>(d));
      const auto [at, fresh] = size.insert({t.labels[d], n});
      if (!fresh && at->second == 1) at->second = n;
    }
  std::string all = out;
  for (const auto& [label, n] : size)
    if (out.find(label) == std::string::npos) all += label;
  Sum sum;
  int64_t outputs = 1, inner = 1;
  for (size_t i = 0; i < all.size(); ++i) (i < out.size() ? outputs : inner) *= size[all[i]];
  for (char label : out) sum.shape.push_back(size[label]);
  std::vector<std::vector<double>> elements;
  for (const Term& t : terms) elements.push_back(testing::values(t.x));
  for (int64_t o = 0; o < outputs; ++o) {
    double total = 0, magnitude = 0;
    uint64_t whole = 0;
    for (int64_t k = 0; k < inner; ++k) {
      std::map<char, int64_t> at;
      int64_t rest_o = o, rest_k = k;
      for (size_t i = all.size(); i-- > 0;) {
        int64_t& rest = i < out.size() ? rest_o : rest_k;
        at[all[i]] = rest % size[all[i]];
        rest /= size[all[i]];
      }
      double product = 1;
      uint64_t whole_product = 1;
      for (size_t t = 0; t < terms.size(); ++t) {
        int64_t place = 0;
        for (size_t d = 0; d < terms[t].labels.size(); ++d) {
          const int64_t n = terms[t].x.shape(static_cast<int>(d));
          place = place * n + (n == 1 ? 0 : at[terms[t].labels[d]]);
        }
        const double v = elements[t][static_cast<size_t>(place)];
        product *= v;
        if (wrap) whole_product *= static_cast<uint64_t>(static_cast<int64_t>(v));
      }
      total += product, magnitude += std::abs(product), whole += whole_product;
    }
    if (wrap) total = static_cast<double>(static_cast<int64_t>(whole << (64 - wrap)) >> (64 - wrap));
    sum.values.push_back(total), sum.magnitudes.push_back(magnitude);
  }
  return sum;
}

/// Every element within the error that K float32 (float64) FMAs and one rounding to the dtype allow.
inline void expect_sum(const Tensor& got, const Sum& want, int64_t terms, DType compute, const std::string& what) {
  ASSERT_EQ(got.shape(), want.shape) << what;
  const std::vector<double> have = testing::values(got);
  const double chain = (static_cast<double>(terms) + 4) * (compute == float64 ? 0x1p-53 : 0x1p-24);
  const double last = got.dtype() == float64   ? 0x1p-53
                      : got.dtype() == float32 ? 0x1p-24
                      : got.dtype() == float16 ? 0x1p-11
                                               : 0x1p-8;
  for (size_t i = 0; i < have.size(); ++i) {
    const double w = testing::rounded(want.values[i], got.dtype());
    if (std::isinf(w)) {
      ASSERT_EQ(have[i], w) << what << ": element " << i;
      continue;
    }
    const double allowed =
        chain * want.magnitudes[i] + last * std::abs(want.values[i]) + (got.dtype() == float16 ? 0x1p-24 : 1e-37);
    ASSERT_LE(std::abs(have[i] - want.values[i]), allowed)
        << what << ": element " << i << " is " << have[i] << ", expected " << want.values[i];
  }
}

/// |got - want| / |want| over the whole result.
inline double frobenius_error(const Tensor& got, const Sum& want) {
  double error = 0, norm = 0;
  const std::vector<double> have = testing::values(got);
  for (size_t i = 0; i < have.size(); ++i)
    error += std::pow(have[i] - want.values[i], 2), norm += std::pow(want.values[i], 2);
  return norm > 0 ? std::sqrt(error / norm) : std::sqrt(error);
}

}  // namespace tenor::reference
