// What the family's tests share: random schedules, caches with poisoned ends, comparison with the reference.
#pragma once

#include <algorithm>
#include <numeric>

#include "src/core/testing.h"
#include "src/ops/paged/paged_reference.h"
#include "tenor/view.h"

namespace tenor::testing {

using paged::HostPlan;

class Schedules : public Draw {
 public:
  using Draw::Draw;
  int64_t from_one_to(int64_t n) { return 1 + upto(n - 1); }

  /// Sequences of 0 to `longest` keys, some with their first page shared, unused table entries full of junk; prefill
  /// rows, decode rows and padding in any order of sequences.
  HostPlan schedule(int64_t page_size, int64_t sequences, int64_t longest) {
    std::vector<std::vector<int64_t>> tables;
    std::vector<int64_t> lengths, ids, positions, pages;
    for (int64_t s = 0; s < sequences; ++s) {
      lengths.push_back(upto(5) == 0 ? 0 : from_one_to(longest));
      tables.emplace_back();
      for (int64_t i = 0; i * page_size < lengths.back(); ++i) pages.push_back(static_cast<int64_t>(pages.size()));
    }
    std::shuffle(pages.begin(), pages.end(), std::mt19937(static_cast<uint32_t>(upto(1000))));
    size_t next = 0;
    for (int64_t s = 0; s < sequences; ++s) {
      for (int64_t i = 0; i * page_size < lengths[s]; ++i) tables[s].push_back(pages[next++]);
      if (s > 0 && lengths[0] > 0 && lengths[s] > 0 && coin()) tables[s][0] = tables[0][0];
      for (int64_t i = upto(2); i > 0; --i) tables[s].push_back(coin() ? -1 : INT32_MAX);
      const int64_t rows = coin() ? 1 : upto(std::min<int64_t>(lengths[s], 9));
      for (int64_t i = 0; i < rows; ++i)
        ids.push_back(s), positions.push_back(std::max<int64_t>(0, lengths[s] - rows + i));
      if (upto(3) == 0) ids.push_back(-1), positions.push_back(upto(3) - 1);
    }
    return HostPlan(page_size, static_cast<int64_t>(pages.size()) + upto(2), tables, lengths, ids, positions);
  }

  /// A cache of any strides: normal values where the plan's sequences reach, NaN and infinities elsewhere.
  Tensor cache(const HostPlan& plan, int64_t heads, int64_t dim, DType dtype) {
    const Tensor x = any_layout({plan.pages(), plan.page_size(), heads, dim}, dtype);
    std::vector<double> elements(static_cast<size_t>(x.numel()));
    for (size_t i = 0; i < elements.size(); ++i) elements[i] = i % 3 == 0 ? kInf : kNan;
    const int64_t row = heads * dim;
    for (int64_t s = 0; s < plan.sequences(); ++s)
      for (int64_t j = 0; j < plan.lengths()[s]; ++j)
        for (int64_t c = 0; c < row; ++c)
          elements[static_cast<size_t>(
              (plan.tables()[s][j / plan.page_size()] * plan.page_size() + j % plan.page_size()) * row + c)] = normal();
    assign(x, elements);
    return x;
  }
};

/// One rounding for 16 bits; what is left of a few thousand float32 operations otherwise.
inline void expect_values(const Tensor& got, const std::vector<double>& want, const std::string& what,
                          double units16 = 0.5) {
  expect_close(got, want, what, item_size(got.dtype()) == 2 ? units16 : 2, 4e-6);
}

/// On the tensor cores the softmax weights are rounded to the operands' 16 bits, which values of about 1 feel
/// absolutely.
inline void expect_tensorcore(const Tensor& got, const std::vector<double>& want) {
  const double floor = got.dtype() == bfloat16 ? 8e-3 : got.dtype() == float16 ? 2e-3 : 4e-6;
  expect_close(got, want, "out", 2, floor);
}

/// A dense cache, poisoned behind the lengths.
inline Tensor dense_cache(Schedules& random, const HostPlan& plan, int64_t heads, int64_t dim, DType dtype) {
  const Tensor any = random.cache(plan, heads, dim, dtype);
  return any.contiguous();
}

}  // namespace tenor::testing
