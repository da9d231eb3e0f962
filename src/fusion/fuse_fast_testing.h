// Contractions with epilogues beside float64: what the CPU's and CUDA's tests share.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "tenor/fuse.h"
#include "tenor/tenor.h"

namespace tenor::fast_testing {

struct Case {
  const char* name;
  std::function<Tensor(const std::vector<Tensor>&)>
      fn;               ///< of x [.., m, k], w [n, k], bias [n], residual [.., m, n], y [m, 1]
  bool on_cuda = true;  ///< whether the Hopper GEMM takes the chain
  int kernels = 1;
};

inline Tensor product_of(const std::vector<Tensor>& in) { return linear(in[0], in[1]); }

inline std::vector<Case> cases() {
  return {
      {"relu", [](const auto& in) { return relu(linear(in[0], in[1], in[2])); }},
      {"gelu", [](const auto& in) { return gelu(linear(in[0], in[1], in[2])); }},
      {"gelu_tanh", [](const auto& in) { return gelu(linear(in[0], in[1], in[2]), {.approximate = "tanh"}); }},
      {"gelu without a bias", [](const auto& in) { return gelu(product_of(in)); }, false},
      {"silu", [](const auto& in) { return silu(linear(in[0], in[1], in[2])); }},
      {"tanh", [](const auto& in) { return tanh(mul(product_of(in), in[4])); }},
      {"product, relu", [](const auto& in) { return relu(mul(product_of(in), in[3])); }},
      {"silu, product", [](const auto& in) { return mul(silu(product_of(in)), in[3]); }, false},
      {"sigmoid, 1 - y", [](const auto& in) { return sub(1.0, sigmoid(product_of(in))); }},
      {"tanh, residual", [](const auto& in) { return add(in[3], tanh(linear(in[0], in[1], in[2]))); }, false},
      {"scale, residual", [](const auto& in) { return add(mul(product_of(in), 0.375), in[3]); }},
      {"residual - y", [](const auto& in) { return sub(in[3], linear(in[0], in[1], in[2])); }},
      {"y - residual", [](const auto& in) { return sub(product_of(in), in[3]); }},
      {"bias as a step, neg", [](const auto& in) { return neg(add(product_of(in), in[2])); }},
      {"a number a row", [](const auto& in) { return mul(div(product_of(in), 3.0), in[4]); }},
      {"six steps",
       [](const auto& in) { return add(mul(add(mul(relu(sub(product_of(in), 0.25)), 1.75), in[2]), in[3]), in[2]); }},
      {"maximum", [](const auto& in) { return maximum(product_of(in), in[3]); }, false},
      {"other / y", [](const auto& in) { return div(in[3], add(sigmoid(product_of(in)), 1.0)); }, false},
  };
}

struct Shape {
  Dims batch;
  int64_t m, n, k;
};

/// Inputs of every case, on the CPU.
template <class Random>
std::vector<Tensor> inputs_of(const Shape& s, DType dtype, Random random) {
  const auto shaped = [&](int64_t rows, int64_t cols) {
    Dims shape = s.batch;
    shape.push_back(rows), shape.push_back(cols);
    return shape;
  };
  const Tensor scale = random(Dims{1}, float32, 9).to(dtype);
  return {random(shaped(s.m, s.k), dtype, 1),
          mul(random(Dims{s.n, s.k}, dtype, 2), 2 / std::sqrt(double(s.k))).to(dtype), random(Dims{s.n}, dtype, 3),
          random(shaped(s.m, s.n), dtype, 4), random(Dims{s.m, 1}, dtype, 5)};
}

/// How many of got's elements are the reference's rounded to its dtype, and the largest error in units of what its
/// rounding and float32 sums of k terms of size 1 may err by.
struct Errors {
  double exact = 0, worst = 0;
};

inline Errors errors_of(const Tensor& got, const Tensor& reference, int64_t k) {
  const Tensor rounded = reference.to(got.dtype()).to(float64).contiguous(), x = got.to(float64).contiguous(),
               want = reference.contiguous();
  const double unit = got.dtype() == bfloat16 ? 0x1p-8 : got.dtype() == float16 ? 0x1p-11 : 0x1p-24;
  Errors out;
  for (int64_t i = 0; i < x.numel(); ++i) {
    const double a = x.data<double>()[i], b = want.data<double>()[i];
    out.exact += a == rounded.data<double>()[i];
    const double within = std::abs(b) * unit * 1.01 + 0x1p-22 * (4 + std::sqrt(double(k)) / 4) * (1 + std::abs(b)) +
                          (got.dtype() == float16 ? 0x1p-14 * std::abs(b) + 0x1p-24 : 0);
    const double error = std::abs(a - b) / within;
    out.worst = std::max(out.worst, std::isnan(error) ? INFINITY : error);
  }
  out.exact /= static_cast<double>(std::max<int64_t>(x.numel(), 1));
  return out;
}

}  // namespace tenor::fast_testing
