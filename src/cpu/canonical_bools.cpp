#include "src/cpu/canonical_bools.h"

#include <algorithm>
#include <atomic>
#include <vector>

#include "src/cpu/parallel.h"

namespace tenor::cpu {
namespace {

struct Dim {
  int64_t size, stride;
};

/// The dims along which memory differs, the widest stride first, merged where one goes on where the next ends.
std::vector<Dim> dims_of(const Tensor& x) {
  std::vector<Dim> dims, merged;
  for (int d = 0; d < x.ndim(); ++d)
    if (x.shape(d) > 1 && x.stride(d) > 0) dims.push_back({x.shape(d), x.stride(d)});
  std::stable_sort(dims.begin(), dims.end(), [](Dim a, Dim b) { return a.stride > b.stride; });
  for (const Dim& d : dims) {
    if (!merged.empty() && merged.back().stride == d.size * d.stride)
      merged.back() = {merged.back().size * d.size, d.stride};
    else
      merged.push_back(d);
  }
  if (merged.empty()) merged.push_back({1, 1});
  return merged;
}

/// fn(first, count, stride) for runs of bytes that together hold every element.
template <class F>
void for_each_run(const Tensor& x, F fn) {
  if (x.numel() == 0) return;
  const std::vector<Dim> dims = dims_of(x);
  const Dim inner = dims.back();
  auto* const base = x.data<uint8_t>();
  if (dims.size() == 1)
    return parallel_for(inner.size, 1 << 18, [&](int64_t begin, int64_t end) {
      fn(base + begin * inner.stride, end - begin, inner.stride);
    });
  int64_t runs = 1;
  for (size_t d = 0; d + 1 < dims.size(); ++d) runs *= dims[d].size;
  parallel_for(runs, grain_of(inner.size), [&](int64_t begin, int64_t end) {
    for (int64_t run = begin; run < end; ++run) {
      int64_t rest = run, offset = 0;
      for (size_t d = dims.size() - 1; d-- > 0; rest /= dims[d].size) offset += rest % dims[d].size * dims[d].stride;
      fn(base + offset, inner.size, inner.stride);
    }
  });
}

bool is_canonical(const uint8_t* p, int64_t n, int64_t stride) {
  uint8_t bits = 0;
  if (stride == 1) {
    for (int64_t i = 0; i < n; ++i) bits |= p[i];
  } else {
    for (int64_t i = 0; i < n; ++i) bits |= p[i * stride];
  }
  return bits <= 1;
}

}  // namespace

void make_canonical(const Tensor& x) {
  for_each_run(x, [](uint8_t* p, int64_t n, int64_t stride) {
    if (is_canonical(p, n, stride)) return;
    for (int64_t i = 0; i < n; ++i) p[i * stride] = p[i * stride] != 0;
  });
}

Tensor canonical_bools(const Tensor& x) {
  std::atomic<bool> all{true};
  for_each_run(x, [&](const uint8_t* p, int64_t n, int64_t stride) {
    if (!is_canonical(p, n, stride)) all.store(false, std::memory_order_relaxed);
  });
  if (all) return x;
  // Repeated elements stay repeated: only what lies in memory once is copied.
  Dims shape = x.shape();
  for (int d = 0; d < x.ndim(); ++d)
    if (x.stride(d) == 0) shape[d] = 1;
  const Tensor copy = x.with_layout(shape, x.strides(), x.offset()).clone();
  make_canonical(copy);
  Dims strides = copy.strides();
  for (int d = 0; d < x.ndim(); ++d)
    if (x.shape(d) != shape[d]) strides[d] = 0;
  return copy.with_layout(x.shape(), strides, copy.offset());
}

}  // namespace tenor::cpu
