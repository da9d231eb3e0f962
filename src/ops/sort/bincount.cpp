// bincount: one pass for the size, one that counts.
#include <algorithm>
#include <limits>
#include <vector>

#include "src/core/backend.h"
#include "src/core/output.h"
#include "src/core/registry.h"
#include "src/core/step.h"
#include "src/core/visit.h"
#include "src/cpu/parallel.h"
#include "src/ops/sort/order_check.h"
#include "src/ops/sort/sort_cuda.h"
#include "tenor/sort.h"

namespace tenor {
namespace {

using core::fail;
using core::OpClass;
using core::Output;

const core::OpRegistration kOps({
    {"bincount", "sort", OpClass::kReduction, "x[n], weights[n] -> [max(x) + 1], how often each value occurs"},
});

constexpr int64_t kPart = 1 << 15;  // elements worth a thread

/// Where x first holds a negative element (or one beyond int64).
template <class T>
[[noreturn]] void refuse_negative(const T* x) {
  int64_t i = 0;
  while (static_cast<int64_t>(x[i]) >= 0) ++i;
  fail<ValueError>("bincount: x must hold integers >= 0, got {} at {}", x[i], i);
}

/// The largest element of x [n], contiguous, -1 for none. @throws ValueError naming a negative one.
int64_t largest_count(const Tensor& x) {
  int64_t most = -1;
  core::visit_integer(x.dtype(), [&]<class T>() {
    const T* at = x.data<T>();
    const int64_t n = x.numel(), parts = (n + kPart - 1) / kPart;
    std::vector<int64_t> highs(static_cast<size_t>(parts), -1);
    std::vector<uint8_t> bad(static_cast<size_t>(parts), 0);
    cpu::parallel_for(parts, 1, [&](int64_t begin, int64_t end) {
      for (int64_t p = begin; p < end; ++p) {
        T high = 0, low = 0;
        for (int64_t i = p * kPart, last = std::min(n, i + kPart); i < last; ++i)
          high = std::max(high, at[i]), low = std::min(low, at[i]);
        highs[p] = static_cast<int64_t>(high);
        bad[p] = low < 0 || highs[p] < 0;
      }
    });
    if (std::find(bad.begin(), bad.end(), 1) != bad.end()) refuse_negative(at);
    for (int64_t high : highs) most = std::max(most, high);
  });
  return most;
}

/// The same on x's device.
int64_t largest_on_device(const Tensor& x) {
  if constexpr (core::kHasCuda) {
    if (core::on_cuda(x)) {
      int64_t refused = -1;
      const int64_t most = cuda::largest_count(x, &refused);
      if (refused < 0) return most;
      const Tensor element = x.with_layout({1}, {1}, x.offset() + refused).to(kCpu);
      core::visit_integer(x.dtype(), [&]<class T>() {
        fail<ValueError>("bincount: x must hold integers >= 0, got {} at {}", *element.data<T>(), refused);
      });
    }
  }
  return largest_count(x);
}

/// Adds one to the bin of every element. Integer sums are exact in any order, so where the bins are few every thread
/// counts into its own.
void count(const Tensor& x, int64_t bins, int64_t* counts) {
  std::fill_n(counts, bins, 0);
  const int64_t n = x.numel(), chunks = std::clamp<int64_t>(n / std::max(kPart, 4 * bins), 1, num_threads());
  std::vector<int64_t> own(static_cast<size_t>((chunks - 1) * bins), 0);
  core::visit_integer(x.dtype(), [&]<class T>() {
    const T* at = x.data<T>();
    cpu::parallel_for(chunks, 1, [&](int64_t begin, int64_t end) {
      for (int64_t c = begin; c < end; ++c) {
        int64_t* mine = c == 0 ? counts : own.data() + (c - 1) * bins;
        for (int64_t i = n * c / chunks, last = n * (c + 1) / chunks; i < last; ++i) ++mine[at[i]];
      }
    });
  });
  for (int64_t c = 1; c < chunks; ++c)
    for (int64_t b = 0; b < bins; ++b) counts[b] += own[static_cast<size_t>((c - 1) * bins + b)];
}

/// Adds the weights (float64) to the bins of their elements, in index order.
void add_weights(const Tensor& x, const Tensor& weights, int64_t bins, double* sums) {
  std::fill_n(sums, bins, 0.0);
  core::visit_integer(x.dtype(), [&]<class T>() {
    for (int64_t i = 0; i < x.numel(); ++i) sums[x.data<T>()[i]] += weights.data<double>()[i * weights.stride(0)];
  });
}

void count_into(const Tensor& x, const Tensor& counts) {
  if constexpr (core::kHasCuda) {
    if (core::on_cuda(x)) return cuda::count_bins(x, counts);
  }
  count(x, counts.numel(), counts.data<int64_t>());
}

void weigh_into(const Tensor& x, const Tensor& weights, const Tensor& sums) {
  if constexpr (core::kHasCuda) {
    if (core::on_cuda(x)) return cuda::weigh_bins(x, argsort(x), weights.contiguous(), sums);
  }
  add_weights(x, weights, sums.numel(), sums.data<double>());
}

}  // namespace

Tensor bincount(const Tensor& x, const BincountOptions& options) {
  core::check_index_dtype("bincount", {"x", x});
  core::check_ndim("bincount", {"x", x}, 1);
  const Tensor& weights = options.weights;
  if (weights.defined()) {
    core::check_orderable("bincount", {"weights", weights});
    core::check_shape("bincount", {"weights", weights}, x.shape());
    core::check_same_device("bincount", {{"x", x}, {"weights", weights}});
  }
  if (options.minlength < 0) fail<ValueError>("bincount: minlength must be >= 0, got {}", options.minlength);
  core::check_has_data("bincount", {"x", x});

  const Tensor data = x.contiguous();
  const int64_t most = largest_on_device(data);
  if (most == INT64_MAX) fail<OutOfMemoryError>("bincount: x holds {}, whose bins exceed the address space", most);
  const Dims shape{std::max(most + 1, options.minlength)};
  const DType dtype = !weights.defined() ? int64 : weights.dtype() == float32 ? float32 : float64;
  Output out("bincount", options.out, shape, dtype, x, {&x, &weights}, {.contiguous = true, .cuda = core::kHasCuda});
  core::StepScope step([&] {
    core::Step made{"bincount", OpClass::kReduction, {x, weights}, {out.target()}};
    if (data.raw() != x.raw())
      made.copies.push_back({"x", x.numel() * static_cast<int64_t>(item_size(x.dtype())), "counted in two passes"});
    return made;
  });
  if (dtype == int64) {
    count_into(data, out.target());
    return out.finish();
  }
  const Tensor sums = dtype == float64 ? out.target() : Tensor::empty(shape, float64, x.device());
  weigh_into(data, weights.to(float64), sums);
  if (dtype == float32) core::copy_into(sums, out.target());
  return out.finish();
}

}  // namespace tenor
