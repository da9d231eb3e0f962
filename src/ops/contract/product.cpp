// c = a * b over one shape, with strides: contractions that sum nothing.
#include <algorithm>
#include <numeric>

#include "src/core/backend.h"
#include "src/core/numeric.h"
#include "src/core/output.h"
#include "src/core/visit.h"
#include "src/cpu/parallel.h"
#include "src/ops/contract/contraction.h"
#include "src/ops/contract/gemm_cuda.h"

namespace tenor::contract {
namespace {

constexpr int64_t kStrip = 4096;

/// The shape and strides in c's order, neighbours merged; the last dim is walked inside.
struct Walk {
  Dims sizes, a, b, c;
};

Walk walk_of(const Tensor& a, const Tensor& b, const Tensor& c) {
  std::vector<int> order;
  for (int d = 0; d < c.ndim(); ++d)
    if (c.shape(d) != 1) order.push_back(d);
  std::stable_sort(order.begin(), order.end(), [&](int i, int j) { return c.stride(i) > c.stride(j); });
  Walk w;
  for (int d : order) {
    const bool merges = !w.sizes.empty() && w.a.back() == a.stride(d) * c.shape(d) &&
                        w.b.back() == b.stride(d) * c.shape(d) && w.c.back() == c.stride(d) * c.shape(d);
    if (merges) {
      w.sizes.back() *= c.shape(d);
      w.a.back() = a.stride(d), w.b.back() = b.stride(d), w.c.back() = c.stride(d);
    } else {
      w.sizes.push_back(c.shape(d));
      w.a.push_back(a.stride(d)), w.b.push_back(b.stride(d)), w.c.push_back(c.stride(d));
    }
  }
  if (w.sizes.empty()) w = {{1}, {0}, {0}, {1}};
  return w;
}

template <class T, class To>
To product_of(T x, T y) {
  if constexpr (std::is_same_v<T, bool>) {
    return x && y;
  } else if constexpr (std::is_integral_v<T>) {
    using Wide = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;
    return static_cast<To>(static_cast<Wide>(x) * static_cast<Wide>(y));
  } else {
    return core::cast<To>(core::widen(x) * core::widen(y));
  }
}

template <class T, class To>
void strip(const T* a, int64_t sa, const T* b, int64_t sb, To* c, int64_t sc, int64_t n) {
  if (sa == 1 && sb == 1 && sc == 1) {
    for (int64_t i = 0; i < n; ++i) c[i] = product_of<T, To>(a[i], b[i]);
  } else if (sa == 0 && sb == 1 && sc == 1) {
    for (int64_t i = 0; i < n; ++i) c[i] = product_of<T, To>(*a, b[i]);
  } else {
    for (int64_t i = 0; i < n; ++i) c[i * sc] = product_of<T, To>(a[i * sa], b[i * sb]);
  }
}

template <class T, class To>
void multiply(const Walk& w, const T* a, const T* b, To* c) {
  const size_t last = w.sizes.size() - 1;
  const int64_t inner = w.sizes[last], strips = (inner + kStrip - 1) / kStrip;
  const int64_t bytes = std::min(inner, kStrip) * static_cast<int64_t>(2 * sizeof(T) + sizeof(To));
  cpu::parallel_for(product(w.sizes) / inner * strips, cpu::grain_of(bytes), [&](int64_t first, int64_t end) {
    for (int64_t s = first; s < end; ++s) {
      const int64_t start = s % strips * kStrip;
      int64_t rest = s / strips, ia = start * w.a[last], ib = start * w.b[last], ic = start * w.c[last];
      for (size_t d = last; d-- > 0;) {
        const int64_t at = rest % w.sizes[d];
        rest /= w.sizes[d];
        ia += at * w.a[d], ib += at * w.b[d], ic += at * w.c[d];
      }
      strip(a + ia, w.a[last], b + ib, w.b[last], c + ic, w.c[last], std::min(kStrip, inner - start));
    }
  });
}

}  // namespace

void multiply_into(const Tensor& a, const Tensor& b, const Tensor& c, DType compute) {
  if (c.numel() == 0) return;
  // 16-bit pairs are read as they are; mixed ones meet in the compute dtype.
  const bool alike = a.dtype() == b.dtype() && reads_directly(a.dtype(), compute);
  const Tensor x = alike ? a : a.to(compute), y = alike ? b : b.to(compute);
  if (c.dtype() != x.dtype() && c.dtype() != compute) {
    const Tensor wide = Tensor::empty(c.shape(), compute, c.device());
    multiply_into(x, y, wide, compute);
    return core::copy_into(wide, c);
  }
  if constexpr (core::kHasCuda) {
    if (core::on_cuda(c)) return multiply_cuda(x, y, c);
  }
  core::visit(x.dtype(), [&]<class T>() {
    const Walk w = walk_of(x, y, c);
    if (c.dtype() == x.dtype()) return multiply(w, x.data<T>(), y.data<T>(), c.data<T>());
    if constexpr (core::kStorageFloat<T>) multiply(w, x.data<T>(), y.data<T>(), c.data<float>());
  });
}

}  // namespace tenor::contract
