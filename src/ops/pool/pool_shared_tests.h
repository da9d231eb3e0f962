// Tests that hold on every device: pool_test.cpp runs them on the CPU, pool_cuda_test.cpp on a GPU.
#pragma once

#include <array>
#include <cmath>

#include "src/ops/pool/pool_testing.h"
#include "tenor/view.h"

namespace tenor::testing {

constexpr DType kPoolDTypes[] = {float32, bfloat16, float16, float64, int8,  uint8,
                                 int16,   uint16,   int32,   uint32,  int64, uint64};

/// Elements with ties and, of floats, NaN and infinities.
inline std::vector<double> tied(Draw& draw, int64_t n, DType dtype) {
  std::vector<double> x(static_cast<size_t>(n));
  const bool special = is_float(dtype) && draw.coin();
  for (double& v : x) {
    v = static_cast<double>(draw.upto(9));
    if (is_float(dtype) && draw.coin()) v = draw.normal();
    if (special && draw.upto(9) == 0) v = draw.coin() ? kNan : draw.coin() ? -kInf : kInf;
  }
  return x;
}

inline void expect_max(const std::vector<reference::PoolWindow>& windows, const PoolDraw& d, const Tensor& x,
                       const Tensor& values_got, const Tensor& indices_got, const std::string& what) {
  std::vector<double> want, places;
  for_windows(windows, values(x), d.plane(), [&](const auto& w, const double* plane) {
    const reference::PoolBest best = reference::pool_max(w, plane, lowest(x.dtype()));
    want.push_back(best.value), places.push_back(static_cast<double>(best.index));
  });
  const std::vector<double> got = values(values_got);
  ASSERT_EQ(got.size(), want.size()) << what;
  for (size_t i = 0; i < want.size(); ++i)
    ASSERT_TRUE(got[i] == want[i] || (std::isnan(got[i]) && std::isnan(want[i])))
        << what << ": element " << i << " is " << got[i] << ", expected " << want[i];
  if (!indices_got.defined()) return;
  ASSERT_EQ(values(indices_got), places) << what;
}

inline void test_max_pool(const Place& place, int rounds) {
  PoolDraw d(1);
  for (int i = 0; i < rounds; ++i) {
    d.next(true);
    const DType dtype = kPoolDTypes[i % 12];
    const Tensor host = d.tensor(d.shape, dtype, tied(d.draw, product(d.shape), dtype)), x = place(host);
    const std::string what = d.what(dtype, host);
    const MaxPoolResult out{place(d.poisoned(d.out_shape, dtype)), place(d.poisoned(d.out_shape, int64))};
    MaxPoolOptions o{d.stride, d.padding, d.dilation, d.ceil_mode, true, out};
    TENOR_BY_DIMS(d.dims, max_pool, x, d.kernel, o);
    expect_max(d.windows, d, host, out.values.to(kCpu), out.indices.to(kCpu), what);
    o.return_indices = false, o.out = {};
    expect_max(d.windows, d, host, TENOR_BY_DIMS(d.dims, max_pool, x, d.kernel, o).values.to(kCpu), {},
               what + " without indices");
    const MaxPoolResult bins = TENOR_BY_DIMS(d.dims, adaptive_max_pool, x, d.bins, {.return_indices = true});
    expect_max(d.bin_windows, d, host, bins.values.to(kCpu), bins.indices.to(kCpu), what + " adaptive");
    expect_max(d.bin_windows, d, host, TENOR_BY_DIMS(d.dims, adaptive_max_pool, x, d.bins).values.to(kCpu), {},
               what + " adaptive, without indices");
  }
}

/// The gradient of an average: what every window gives to its inputs.
inline std::vector<double> average_gradient(const std::vector<reference::PoolWindow>& windows,
                                            const std::vector<double>& grad, int64_t plane,
                                            const std::function<double(const reference::PoolWindow&)>& divisor) {
  std::vector<double> out(grad.size() / windows.size() * static_cast<size_t>(plane), 0.0);
  for (size_t i = 0; i < grad.size(); ++i) {
    const reference::PoolWindow& w = windows[i % windows.size()];
    for (const int64_t at : w.reads) out[i / windows.size() * plane + at] += grad[i] / divisor(w);
  }
  return out;
}

inline void test_avg_pool(const Place& place, int rounds) {
  PoolDraw d(2);
  for (int i = 0; i < rounds; ++i) {
    d.next(false);
    const DType dtype = kFloats[i % 4];
    const Tensor host = d.normal(d.shape, dtype), x = place(host), out = place(d.poisoned(d.out_shape, dtype));
    AvgPoolOptions o{d.stride, d.padding, d.ceil_mode, d.draw.coin(), {}, out};
    if (d.draw.upto(3) == 0) o.divisor_override = d.draw.coin() ? 3 : -2;
    const std::string what = d.what(dtype, host) +
                             core::text(" include {} override {}", o.count_include_pad, o.divisor_override.value_or(0));
    const auto divisor = [&](const reference::PoolWindow& w) {
      return static_cast<double>(
          o.divisor_override.value_or(o.count_include_pad ? w.padded : static_cast<int64_t>(w.reads.size())));
    };
    const auto of_bin = [](const reference::PoolWindow& w) { return static_cast<double>(w.reads.size()); };
    const auto averages = [&](const auto& windows, const auto& by) {
      std::vector<double> want;
      for_windows(windows, values(host), d.plane(),
                  [&](const auto& w, const double* plane) { want.push_back(reference::pool_sum(w, plane) / by(w)); });
      return want;
    };
    TENOR_BY_DIMS(d.dims, avg_pool, x, d.kernel, o);
    expect_close(out.to(kCpu), averages(d.windows, divisor), what, 1, 2e-6);
    expect_close(TENOR_BY_DIMS(d.dims, adaptive_avg_pool, x, d.bins).to(kCpu), averages(d.bin_windows, of_bin),
                 what + " adaptive", 1, 2e-6);

    const Tensor grad = d.normal(d.out_shape, dtype), bin_grad = d.normal(d.bins_shape, dtype);
    const Tensor dx = place(d.poisoned(d.shape, dtype));
    o.out = dx;
    TENOR_BY_DIMS_BACKWARD(d.dims, avg_pool, place(grad), d.shape, d.kernel, o);
    expect_close(dx.to(kCpu), average_gradient(d.windows, values(grad), d.plane(), divisor), what + " backward", 1,
                 4e-6);
    expect_close(TENOR_BY_DIMS_BACKWARD(d.dims, adaptive_avg_pool, place(bin_grad), d.shape).to(kCpu),
                 average_gradient(d.bin_windows, values(bin_grad), d.plane(), of_bin), what + " adaptive backward", 1,
                 4e-6);
  }
}

/// max_pool's gradient: each element of grad added at its place, `windows` of them a plane.
inline std::vector<double> scattered(const std::vector<double>& grad, const std::vector<double>& at, size_t windows,
                                     int64_t plane) {
  std::vector<double> out(grad.size() / windows * static_cast<size_t>(plane), 0.0);
  for (size_t k = 0; k < grad.size(); ++k)
    if (at[k] >= 0) out[k / windows * static_cast<size_t>(plane) + static_cast<size_t>(at[k])] += grad[k];
  return out;
}

/// Any indices: duplicates, none, several of one place.
inline void test_max_pool_backward(const Place& place, int rounds) {
  PoolDraw d(3);
  const DType kinds[] = {int64, int32, int16, int8};
  for (int i = 0; i < rounds; ++i) {
    d.next(true);
    const DType dtype = kFloats[i % 4], kind = kinds[d.draw.upto(d.plane() <= 127 ? 3 : 2)];
    const Tensor grad = d.normal(d.out_shape, dtype);
    std::vector<double> at(static_cast<size_t>(grad.numel()));
    const int64_t spread = d.draw.coin() ? d.plane() : std::min<int64_t>(d.plane(), 3);
    for (double& v : at) v = static_cast<double>(d.draw.upto(spread) - 1);
    const Tensor indices = d.tensor(d.out_shape, kind, at), dx = place(d.poisoned(d.shape, dtype));
    const std::vector<double> want = scattered(values(grad), at, d.windows.size(), d.plane());
    const std::string what = d.what(dtype, grad);
    TENOR_BY_DIMS_BACKWARD(d.dims, max_pool, place(grad), place(indices), d.shape, {.out = dx});
    expect_close(dx.to(kCpu), want, what, 1, 4e-6);
    EXPECT_TRUE(same_bits(
        dx.to(kCpu), TENOR_BY_DIMS_BACKWARD(d.dims, adaptive_max_pool, place(grad), place(indices), d.shape).to(kCpu)))
        << what;
  }
}

inline void test_lp_pool(const Place& place, int rounds) {
  PoolDraw d(4);
  const double orders[] = {1, 2, 3, 1.5, 0.5, kInf};
  for (int i = 0; i < rounds; ++i) {
    do d.next(false);
    while (d.padding != Dims(d.padding.size(), 0));
    const DType dtype = kFloats[i % 4];
    const double p = orders[d.draw.upto(5)], scale = dtype == float16 ? 1
                                                     : d.draw.coin()  ? 1
                                                     : d.draw.coin()  ? 1e25
                                                                      : 1e-25;
    std::vector<double> elements = d.draw.normals(product(d.shape));
    for (double& v : elements) v = d.draw.upto(9) == 0 ? 0 : v * scale;
    const Tensor host = d.tensor(d.shape, dtype, elements), x = place(host),
                 out = place(d.poisoned(d.out_shape, dtype));
    const std::string what = d.what(dtype, host) + core::text(" p {} scale {}", p, scale);
    std::vector<double> norms;
    for_windows(d.windows, values(host), d.plane(),
                [&](const auto& w, const double* plane) { norms.push_back(reference::pool_norm(w, plane, p)); });
    LpPoolOptions o{d.stride, d.ceil_mode, out};
    TENOR_BY_DIMS(d.dims, lp_pool, x, p, d.kernel, o);
    expect_close(out.to(kCpu), norms, what, 8, 0);

    if (p < 1 && dtype != float64) continue;  // slopes near 0 are as large as they like
    const Tensor grad = d.normal(d.out_shape, dtype);
    const std::vector<double> g = values(grad), v = values(host);
    std::vector<double> want(v.size(), 0.0);
    for (size_t k = 0; k < g.size(); ++k) {
      const size_t base = k / d.windows.size() * static_cast<size_t>(d.plane());
      bool found = false;
      for (const int64_t at : d.windows[k % d.windows.size()].reads) {
        const double e = v[base + static_cast<size_t>(at)];
        if (e == 0 || norms[k] == 0) continue;
        double slope = std::pow(std::abs(e) / norms[k], p - 1);
        if (std::isinf(p)) slope = !found && std::abs(e) == norms[k], found = found || slope == 1;
        want[base + static_cast<size_t>(at)] += g[k] * (e < 0 ? -slope : slope);
      }
    }
    const Tensor dx = place(d.poisoned(d.shape, dtype));
    o.out = dx;
    TENOR_BY_DIMS_BACKWARD(d.dims, lp_pool, place(grad), x, p, d.kernel, o);
    expect_close(dx.to(kCpu), want, what + " backward", 16, 2e-5);
  }
}

/// Every window of a line: kernels, strides, paddings, dilations.
inline void test_every_small_window(const Place& place) {
  for (int64_t size = 1; size <= 7; ++size)
    for (int64_t kernel = 1; kernel <= 4; ++kernel)
      for (int64_t stride = 1; stride <= 5; ++stride)
        for (int64_t dilation = 1; dilation <= 3; ++dilation)
          for (int64_t padding = 0; padding <= ((kernel - 1) * dilation + 1) / 2; ++padding)
            for (const bool ceil_mode : {false, true}) {
              const auto axis = reference::pool_windows(size, kernel, stride, padding, dilation, ceil_mode);
              if (axis.reads.empty()) continue;
              const std::string what = core::text("size {} kernel {} stride {} dilation {} padding {} ceil {}", size,
                                                  kernel, stride, dilation, padding, ceil_mode);
              const Tensor x = place(filled({1, 1, size}, float32, [](int64_t i) { return i; }));
              const MaxPoolResult y = max_pool1d(x, {kernel}, {{stride}, {padding}, {dilation}, ceil_mode, true});
              std::vector<double> want;
              for (const auto& reads : axis.reads)
                want.push_back(reads.empty() ? -1 : static_cast<double>(reads.back()));
              ASSERT_EQ(values(y.indices.to(kCpu)), want) << what;
              if (dilation > 1) continue;
              std::vector<double> sums;
              for (size_t o = 0; o < axis.reads.size(); ++o) {
                double sum = 0;
                for (const int64_t at : axis.reads[o]) sum += static_cast<double>(at);
                sums.push_back(sum / static_cast<double>(axis.padded[o]));
              }
              ASSERT_NO_FATAL_FAILURE(
                  expect_close(avg_pool1d(x, {kernel}, {{stride}, {padding}, ceil_mode}).to(kCpu), sums, what));
            }
}

inline void test_nothing_in_the_batch(const Place& place) {
  for (const Dims& shape : {Dims{0, 3, 5, 5}, Dims{2, 0, 5, 5}}) {
    const Tensor x = place(Tensor::empty(shape, float32));
    const Dims pooled{shape[0], shape[1], 2, 2};
    const Tensor g = place(Tensor::empty(pooled, float32)), at = place(Tensor::empty(pooled, int64));
    EXPECT_EQ(max_pool2d(x, {2}, {.return_indices = true}).indices.shape(), pooled);
    EXPECT_EQ(avg_pool2d(x, {2}).shape(), pooled);
    EXPECT_EQ(lp_pool2d(x, 2, {2}).shape(), pooled);
    EXPECT_EQ(adaptive_avg_pool2d(x, {2}).shape(), pooled);
    EXPECT_EQ(adaptive_avg_pool2d(x, {1}).shape(), Dims({shape[0], shape[1], 1, 1}));
    EXPECT_EQ(max_pool2d_backward(g, at, shape).shape(), shape);
    EXPECT_EQ(avg_pool2d_backward(g, shape, {2}).shape(), shape);
    EXPECT_EQ(lp_pool2d_backward(g, x, 3, {2}).shape(), shape);
  }
}

/// Longer rows and wider images than the random ones, in the layouts and dtypes that have kernels of their own.
inline void test_larger_images(const Place& place) {
  PoolDraw d(5);
  for (const auto& [h, w] : {std::pair<int64_t, int64_t>{56, 56}, {28, 28}, {15, 30}, {9, 6000}, {7, 7}})
    for (DType dtype : {bfloat16, float16, float32, uint8})
      for (const int64_t size : {3, 2, 5}) {
        d.dims = 2, d.shape = {2, 16, h, w}, d.kernel = {size}, d.ceil_mode = true;
        std::vector<reference::PoolAxis> axes;
        for (const int64_t n : {h, w}) axes.push_back(reference::pool_windows(n, size, 2, size / 2, 1, true));
        d.windows = reference::pool_windows_of(axes);
        std::vector<double> elements(static_cast<size_t>(product(d.shape)));
        for (double& v : elements) v = static_cast<double>(d.draw.upto(200));
        const Tensor host = d.tensor(d.shape, dtype, elements), x = place(host);
        const std::string what = d.what(dtype, host);
        MaxPoolOptions o{{2}, {size / 2}, {1}, true, d.draw.coin()};
        const MaxPoolResult y = max_pool2d(x, {size}, o);
        expect_max(d.windows, d, host, y.values.to(kCpu), y.indices.to(kCpu), what);
        if (!is_float(dtype)) continue;
        std::vector<double> want;
        for_windows(d.windows, values(host), d.plane(), [&](const auto& v, const double* plane) {
          want.push_back(reference::pool_sum(v, plane) / static_cast<double>(v.padded));
        });
        expect_close(avg_pool2d(x, {size}, {{2}, {size / 2}, true}).to(kCpu), want, what);
        const Tensor grad = d.normal(y.values.shape(), dtype);
        expect_close(avg_pool2d_backward(place(grad), d.shape, {size}, {{2}, {size / 2}, true}).to(kCpu),
                     average_gradient(d.windows, values(grad), d.plane(),
                                      [](const auto& v) { return static_cast<double>(v.padded); }),
                     what + " backward", 1, 4e-6);
      }
}

/// Gradients of max by the places that pooling gives, and where one of them is anywhere else.
inline void test_gradients_of_places(const Place& place) {
  PoolDraw d(8);
  const DType kinds[] = {int64, int64, int32};
  for (const Dims& shape : {Dims{2, 16, 56, 56},
                            {3, 8, 57, 29},
                            {2, 24, 15, 31},
                            {2, 3, 14, 14},
                            {1, 8, 7, 7},
                            {2, 1, 1, 5000},
                            {1, 2, 200, 190},
                            {1, 1, 130, 130}})
    for (const DType dtype : {bfloat16, float32, float64})
      for (const auto& [size, padding, stride] :
           {std::array<int64_t, 3>{3, 1, 2}, {3, 0, 2}, {2, 0, 2}, {3, 1, 1}, {5, 2, 4}})
        for (const bool stray : {false, true}) {
          if (dtype == float64 && shape[1] != 3) continue;
          if (shape[2] == 1 && padding == 0) continue;
          d.dims = 2, d.shape = shape, d.kernel = {size};
          const int64_t tall = shape[2] == 1 ? 1 : size;
          const MaxPoolOptions o{
              {shape[2] == 1 ? 1 : stride, stride}, {shape[2] == 1 ? 0 : padding, padding}, {1}, d.draw.coin(), true};
          const MaxPoolResult y = max_pool2d(d.normal(shape, dtype), {tall, size}, o);
          std::vector<double> at = values(y.indices);
          if (stray) at[at.size() / 2] = static_cast<double>(d.draw.upto(d.plane() - 1));
          const Tensor grad = d.normal(y.values.shape(), dtype),
                       indices = d.tensor(y.values.shape(), kinds[d.draw.upto(2)], at),
                       dx = place(d.poisoned(shape, dtype));
          max_pool2d_backward(place(grad), place(indices), shape, {.out = dx});
          const size_t windows = static_cast<size_t>(y.values.shape(2) * y.values.shape(3));
          expect_close(dx.to(kCpu), scattered(values(grad), at, windows, d.plane()),
                       d.what(dtype, grad) + core::text(" stride {} padding {} stray {}", stride, padding, stray), 1,
                       4e-6);
        }
}

/// Gradients of averages over bins and wide windows.
/// Wide bins, and windows that share nothing, of channels that lie together: whole vectors of them and not.
inline void test_wide_windows(const Place& place) {
  PoolDraw d(11);
  for (const int64_t channels : {3, 8, 24, 264})
    for (const auto& [h, w] : {std::pair<int64_t, int64_t>{56, 56}, {17, 61}, {33, 40}})
      for (const DType dtype : {bfloat16, float16, float32})
        for (const bool bins : {true, false}) {
          const int64_t high = bins ? 1 + d.draw.upto(4) : 6 + d.draw.upto(5), wide = bins ? 1 + d.draw.upto(4) : 7;
          d.dims = 2, d.shape = {2, channels, h, w}, d.bins = {high, wide}, d.kernel = {high, wide};
          const auto axis = [&](int64_t n, int64_t size) {
            return bins ? reference::pool_bins(n, size) : reference::pool_windows(n, size, size + 1, 2, 1, true);
          };
          d.windows = reference::pool_windows_of({axis(h, high), axis(w, wide)});
          const Tensor host = permute(d.normal({2, h, w, channels}, dtype), {0, 3, 1, 2}), x = place(host);
          const std::string what = d.what(dtype, host) + (bins ? " bins" : " windows");
          const AvgPoolOptions avg{{high + 1, wide + 1}, {2}, true};
          const MaxPoolOptions max{{high + 1, wide + 1}, {2}, {1}, true};
          std::vector<double> want;
          for_windows(d.windows, values(host), d.plane(), [&](const auto& v, const double* plane) {
            want.push_back(reference::pool_sum(v, plane) / static_cast<double>(bins ? v.reads.size() : v.padded));
          });
          const Tensor mean = bins ? adaptive_avg_pool2d(x, {high, wide}) : avg_pool2d(x, {high, wide}, avg);
          expect_close(mean.to(kCpu), want, what, 1, 2e-6);
          const MaxPoolResult largest = bins ? adaptive_max_pool2d(x, {high, wide}) : max_pool2d(x, {high, wide}, max);
          expect_max(d.windows, d, host, largest.values.to(kCpu), {}, what);
        }
}
inline void test_gradients_of_bins(const Place& place) {
  PoolDraw d(9);
  for (const Dims& shape : {Dims{2, 8, 56, 56}, {2, 3, 30, 24}, {1, 16, 17, 64}})
    for (const DType dtype : {bfloat16, float16, float32, float64})
      for (const Dims& bins : {Dims{7, 7}, {5, 5}, {3, 8}, {17, 12}, {1, 2}}) {
        d.dims = 2, d.shape = shape, d.bins = bins;
        const Tensor grad = d.normal({shape[0], shape[1], bins[0], bins[1]}, dtype),
                     dx = place(d.poisoned(shape, dtype));
        adaptive_avg_pool2d_backward(place(grad), shape, {.out = dx});
        const auto windows = reference::pool_windows_of(
            {reference::pool_bins(shape[2], bins[0]), reference::pool_bins(shape[3], bins[1])});
        expect_close(dx.to(kCpu),
                     average_gradient(windows, values(grad), d.plane(),
                                      [](const auto& w) { return static_cast<double>(w.reads.size()); }),
                     d.what(dtype, grad), 1, 4e-6);
      }
}

/// A window whose elements no 64 bits count.
inline void test_divisors_beyond_64_bits(const Place& place) {
  constexpr int64_t kSize = int64_t{1} << 30;
  for (const DType dtype : {float32, float64, bfloat16}) {
    const Tensor x = place(filled({1, 2, 1, 1, 1}, dtype, [](int64_t i) { return i + 3; }));
    const AvgPoolOptions o{{}, {kSize / 2}};
    const double by = std::pow(2.0, 90);
    EXPECT_EQ(values(avg_pool3d(x, {kSize}, o).to(kCpu)), std::vector<double>({3 / by, 4 / by}));
    EXPECT_EQ(values(avg_pool3d_backward(x, x.shape(), {kSize}, o).to(kCpu)), std::vector<double>({3 / by, 4 / by}));
  }
}

/// A single slice whose padding counts: three dims where the inner two alone would be another problem.
inline void test_padding_of_a_single_slice(const Place& place) {
  PoolDraw d(6);
  for (const DType dtype : {bfloat16, float32})
    for (int kind = 0; kind < 12; ++kind) {
      d.dims = 3, d.shape = {2, 8, 1, 8, 16};
      std::vector<reference::PoolAxis> axes;
      for (const int64_t n : {1, 8, 16}) axes.push_back(reference::pool_windows(n, 3, 2, 1, 1, false));
      d.windows = reference::pool_windows_of(axes);
      const Tensor host = d.normal(d.shape, dtype);
      const bool include = kind % 2 == 0;
      std::vector<double> want;
      for_windows(d.windows, values(host), d.plane(), [&](const auto& w, const double* plane) {
        want.push_back(reference::pool_sum(w, plane) /
                       static_cast<double>(include ? w.padded : static_cast<int64_t>(w.reads.size())));
      });
      expect_close(avg_pool3d(place(host), {3}, {{2}, {1}, false, include}).to(kCpu), want, d.what(dtype, host), 1,
                   2e-6);
    }
}

/// One output a plane, of few and many places and channels.
inline void test_whole_planes(const Place& place) {
  PoolDraw d(7);
  for (const Dims& shape : {Dims{2, 16, 20, 24},
                            {3, 200, 40, 30},
                            {1, 264, 16, 17},
                            {5, 8, 64, 64},
                            {2, 40, 33, 29},
                            {3, 70, 7, 7},
                            {1, 33, 14, 14},
                            {2, 24, 1, 3},
                            {2, 16, 6, 6}})
    for (const DType dtype : {bfloat16, float16, float32, float64})
      for (int kind = 0; kind < 4; ++kind) {
        d.dims = 2, d.shape = shape;
        std::vector<double> elements = d.draw.normals(product(shape));
        if (kind == 3) elements[elements.size() / 2] = kNan;
        const Tensor host = d.tensor(shape, dtype, elements), x = place(host);
        const std::string what = d.what(dtype, host);
        std::vector<double> means, largest;
        for_windows(reference::pool_windows_of({reference::pool_bins(shape[2], 1), reference::pool_bins(shape[3], 1)}),
                    values(host), d.plane(), [&](const auto& w, const double* plane) {
                      means.push_back(reference::pool_sum(w, plane) / static_cast<double>(w.reads.size()));
                      largest.push_back(reference::pool_max(w, plane, -kInf).value);
                    });
        expect_close(adaptive_avg_pool2d(x, {1}).to(kCpu), means, what, 1, 2e-6);
        expect_close(adaptive_max_pool2d(x, {1}).values.to(kCpu), largest, what, 0, 0);
      }
}

}  // namespace tenor::testing
