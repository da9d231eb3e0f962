// What the tests of index operators on CUDA share: sizes of any layout, and parity with the CPU.
#pragma once

#include <functional>

#include "src/cuda/testing.h"
#include "src/ops/index/index_testing.h"

namespace tenor::testing {

/// Sizes 1 to most; the last one now and then long enough for whole rows, odd ones included.
inline Dims shape_of(Draw& draw, int64_t rank, int64_t most) {
  Dims shape;
  for (int64_t d = 0; d < rank; ++d) shape.push_back(1 + draw.upto(most - 1));
  if (draw.upto(2) == 0) shape.back() = draw.coin() ? 64 * (1 + draw.upto(3)) : 40 + draw.upto(200);
  return shape;
}

inline Tensor index_of(Draw& draw, const Dims& shape, int64_t n) {
  DType dtype = kIndexTypes[draw.upto(7)];
  if (n > 120 && item_size(dtype) == 1) dtype = int32;
  return small(draw, shape, dtype, is_signed(dtype) ? -n : 0, n - 1);
}

/// Everything from the first element of x's memory to its last.
inline Tensor memory_of(const Tensor& x) {
  int64_t reach = x.offset() + 1;
  for (int d = 0; d < x.ndim(); ++d) reach += (x.shape(d) - 1) * x.stride(d);
  return x.with_layout({x.numel() == 0 ? 0 : reach}, {1}, 0);
}

inline void expect_same(const Tensor& got, const Tensor& want, const std::string& what) {
  ASSERT_EQ(got.device(), kGpu) << what;
  ASSERT_EQ(got.shape(), want.shape()) << what;
  ASSERT_EQ(got.dtype(), want.dtype()) << what;
  const Tensor host = on_cpu(got);
  if (same_bits(host, want)) return;
  const std::vector<double> a = values(host), b = values(want);
  for (size_t i = 0; i < a.size(); ++i)
    ASSERT_TRUE(same(a[i], b[i])) << what << ": element " << i << " of " << to_string(want.shape()) << " is " << a[i]
                                  << ", expected " << b[i];
}

using Call = std::function<Tensor(const std::vector<Tensor>&, const Tensor&)>;

/// call(inputs, out) on both devices: the result, its strides, and through a poisoned out= with its surroundings.
inline void expect_parity(Draw& draw, const std::vector<Tensor>& inputs, const std::string& what, const Call& call) {
  std::vector<Tensor> gpu;
  std::string text = what;
  for (const Tensor& x : inputs) {
    gpu.push_back(on_gpu(x));
    if (x.defined()) text += " " + describe(x) + to_string(x.strides());
  }
  const Tensor want = call(inputs, {}), got = call(gpu, {});
  expect_same(got, want, text);
  const Tensor out = draw.poisoned(want.shape(), want.dtype()), gpu_out = on_gpu(out);
  call(inputs, out);
  call(gpu, gpu_out);
  if (want.numel() > 0) expect_same(memory_of(gpu_out), memory_of(out), text + " out=" + to_string(out.strides()));
  ASSERT_FALSE(take_error(kGpu).has_value()) << text;
}

/// The same for a form that writes its first argument.
inline void expect_parity_in_place(const std::vector<Tensor>& inputs, const std::string& what,
                                   const std::function<Tensor(const std::vector<Tensor>&)>& call) {
  std::vector<Tensor> gpu;
  for (const Tensor& x : inputs) gpu.push_back(on_gpu(x));
  call(inputs);
  call(gpu);
  expect_same(memory_of(gpu[0]), memory_of(inputs[0]), what + " in place " + describe(inputs[0]));
}

/// The text of the error that the next wait throws, if any.
inline std::string take_error_after_wait() {
  try {
    synchronize(kGpu);
  } catch (const IndexError& e) {
    return e.what();
  }
  return "";
}

/// A gather's or scatter's arguments.
struct Case {
  Tensor x, index, src;
  int dim;
};
inline Case case_of(Draw& draw, DType dtype, int64_t most = 6) {
  const Dims shape = shape_of(draw, 1 + draw.upto(3), most);
  const int dim = static_cast<int>(draw.upto(static_cast<int64_t>(shape.size()) - 1));
  Dims at = shape, source;
  for (size_t d = 0; d < at.size(); ++d)
    at[d] =
        static_cast<int>(d) == dim ? draw.upto(9) * (draw.coin() ? 4 : 1) : draw.upto(at[d] - 1) + (draw.upto(15) != 0);
  for (int64_t n : at) source.push_back(n + draw.upto(1));
  return {small(draw, shape, dtype), index_of(draw, at, shape[static_cast<size_t>(dim)]), small(draw, source, dtype),
          dim};
}

/// Some index entries for x: arrays that broadcast, undefined ones, masks.
inline std::vector<Tensor> entries_of(Draw& draw, const Tensor& x, bool masks) {
  const Dims places = draw.coin() ? Dims{3} : Dims{2, 3};
  std::vector<Tensor> entries;
  for (int d = 0; d < x.ndim(); ++d) {
    const int64_t kind = draw.upto(3);
    if (kind == 0) entries.emplace_back();
    if (kind == 1) entries.push_back(index_of(draw, places, x.shape(d)));
    if (kind == 2) entries.push_back(index_of(draw, {places.back()}, x.shape(d)));
    if (kind == 3) entries.push_back(index_of(draw, draw.coin() ? Dims{1} : Dims{}, x.shape(d)));
  }
  if (masks && draw.coin()) {
    const int64_t covered = x.ndim() > 1 && draw.coin() ? 2 : 1;
    Dims shape(x.shape().begin(), x.shape().begin() + covered);
    entries = {small(draw, shape, boolean, 0, 1)};
  }
  return entries;
}

inline std::vector<Tensor> on_gpu_all(const std::vector<Tensor>& list) {
  std::vector<Tensor> out;
  for (const Tensor& x : list) out.push_back(on_gpu(x));
  return out;
}

}  // namespace tenor::testing
