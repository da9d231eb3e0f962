// Random pooling problems and what the reference makes of them; the tests of both devices are made of these.
#pragma once

#include <functional>

#include "src/core/testing.h"
#include "src/core/text.h"
#include "src/ops/pool/pool_reference.h"
#include "tenor/pool.h"

namespace tenor::testing {

/// Takes a tensor of the host to the device under test; results come back by to(kCpu).
using Place = std::function<Tensor(const Tensor&)>;

template <class F1, class F2, class F3>
auto by_dims(int dims, F1 one, F2 two, F3 three) {
  return dims == 1 ? one() : dims == 2 ? two() : three();
}
#define TENOR_BY_DIMS(dims, name, ...)                                                    \
  by_dims(                                                                                \
      dims, [&] { return name##1d(__VA_ARGS__); }, [&] { return name##2d(__VA_ARGS__); }, \
      [&] { return name##3d(__VA_ARGS__); })
#define TENOR_BY_DIMS_BACKWARD(dims, name, ...)                                                             \
  by_dims(                                                                                                  \
      dims, [&] { return name##1d_backward(__VA_ARGS__); }, [&] { return name##2d_backward(__VA_ARGS__); }, \
      [&] { return name##3d_backward(__VA_ARGS__); })

struct PoolDraw {
  explicit PoolDraw(uint32_t seed) : draw(seed) {}

  int dims = 1;
  Dims shape, kernel, stride, padding, dilation, bins;
  bool ceil_mode = false;
  std::vector<reference::PoolWindow> windows, bin_windows;
  Dims out_shape, bins_shape;
  Draw draw;

  /// Sizes, a window that fits and a number of bins.
  void next(bool dilated) {
    do {
      dims = static_cast<int>(1 + draw.upto(2));
      shape = draw.coin() ? Dims{1 + draw.upto(2)} : Dims{};
      shape.push_back(draw.upto(3) == 0 ? 8 * (1 + draw.upto(2)) : 1 + draw.upto(4));
      ceil_mode = draw.coin();
      kernel = stride = padding = dilation = bins = {};
      const bool square = draw.coin();
      for (int d = 0; d < dims; ++d) {
        shape.push_back(1 + draw.upto(d == dims - 1 ? (draw.coin() ? 40 : 9) : 9));
        kernel.push_back(square ? 3 : 1 + draw.upto(4));
        stride.push_back(1 + draw.upto(square ? 2 : 5));
        dilation.push_back(dilated && draw.upto(2) == 0 ? 1 + draw.upto(2) : 1);
        padding.push_back(draw.upto(((kernel.back() - 1) * dilation.back() + 1) / 2));
        bins.push_back(draw.upto(3) == 0 ? 1 : 1 + draw.upto(7));
      }
    } while (!lay());
  }

  /// A tensor of that shape: rows together, channels together, or anything.
  Tensor tensor(const Dims& s, DType dtype, const std::vector<double>& elements) {
    Tensor x;
    const int64_t kind = draw.upto(2);
    if (kind == 0) {
      x = draw.any_layout(s, dtype);
    } else if (kind == 1) {
      x = Tensor::empty(s, dtype);
    } else {
      const size_t c = s.size() - static_cast<size_t>(dims) - 1;
      Dims strides(s.size(), 1);
      int64_t step = s[c];
      for (size_t d = s.size(); d-- > 0;)
        if (d != c) strides[d] = step, step *= s[d];
      x = Tensor::empty(s, dtype, kCpu, strides);
    }
    assign(x, elements);
    return x;
  }
  Tensor normal(const Dims& s, DType dtype) { return tensor(s, dtype, draw.normals(product(s))); }
  Tensor poisoned(const Dims& s, DType dtype) {
    return tensor(s, dtype, std::vector<double>(static_cast<size_t>(product(s)), is_float(dtype) ? kNan : 77));
  }
  std::string what(DType dtype, const Tensor& x) const {
    return core::text("{} {} strides {} kernel {} stride {} padding {} dilation {} ceil {} bins {}", dtype, shape,
                      x.strides(), kernel, stride, padding, dilation, ceil_mode, bins);
  }

  int64_t plane() const { return product(Dims(shape.end() - dims, shape.end())); }

 private:
  bool lay() {
    std::vector<reference::PoolAxis> axes, bin_axes;
    out_shape = bins_shape = shape;
    for (int d = 0; d < dims; ++d) {
      const size_t at = shape.size() - dims + d;
      axes.push_back(reference::pool_windows(shape[at], kernel[d], stride[d], padding[d], dilation[d], ceil_mode));
      bin_axes.push_back(reference::pool_bins(shape[at], bins[d]));
      out_shape[at] = static_cast<int64_t>(axes.back().reads.size());
      bins_shape[at] = bins[d];
      if (axes.back().reads.empty()) return false;
    }
    windows = reference::pool_windows_of(axes);
    bin_windows = reference::pool_windows_of(bin_axes);
    return true;
  }
};

/// fn(window, its plane's elements) for every window of every plane, in the order of the result.
template <class F>
void for_windows(const std::vector<reference::PoolWindow>& windows, const std::vector<double>& x, int64_t plane, F fn) {
  for (size_t base = 0; base < x.size(); base += static_cast<size_t>(plane))
    for (const reference::PoolWindow& w : windows) fn(w, x.data() + base);
}

inline double lowest(DType dtype) {
  if (is_float(dtype)) return -kInf;
  return core::visit(dtype, [&]<class T>() {
    if constexpr (std::is_integral_v<T>)
      return static_cast<double>(std::numeric_limits<T>::lowest());
    else
      return 0.0;
  });
}

}  // namespace tenor::testing
