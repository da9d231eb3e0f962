// Creation, pad, tril and triu on CUDA against the CPU's, to the last bit.
#include <functional>

#include "src/cuda/testing.h"
#include "tenor/create.h"
#include "tenor/elementwise.h"
#include "tenor/view.h"

namespace tenor {
namespace {

using namespace testing;

constexpr DType kAll[] = {boolean, int8,    uint8,    int16,   uint16,  int32,         uint32,     int64,
                          uint64,  float16, bfloat16, float32, float64, float8_e4m3fn, float8_e5m2};

class CreateCuda : public CudaTest {};

void expect_same(const Tensor& got, const Tensor& want, const std::string& what) {
  ASSERT_EQ(got.device(), kGpu) << what;
  ASSERT_EQ(got.strides(), want.strides()) << what;
  ASSERT_TRUE(same_bits(on_cpu(got), want)) << what;
}

TEST_F(CreateCuda, EveryDtype) {
  for (DType dtype : kAll) {
    const std::string what(name(dtype));
    for (const Dims& shape : {Dims{}, Dims{0, 3}, Dims{1}, Dims{37}, Dims{5, 1000}}) {
      expect_same(zeros(shape, {.dtype = dtype, .device = kGpu}), zeros(shape, {.dtype = dtype}), what);
      expect_same(ones(shape, {.dtype = dtype, .device = kGpu}), ones(shape, {.dtype = dtype}), what);
      expect_same(tenor::full(shape, 3, {.dtype = dtype, .device = kGpu}), tenor::full(shape, 3, {.dtype = dtype}),
                  what);
    }
    expect_same(eye(5, 7, {.dtype = dtype, .device = kGpu}), eye(5, 7, {.dtype = dtype}), what);
    expect_same(arange(0, 100, 3, {.dtype = dtype, .device = kGpu}), arange(0, 100, 3, {.dtype = dtype}), what);
    if (is_float(dtype)) {
      expect_same(arange(-3.5, 9.25, 0.37, {.dtype = dtype, .device = kGpu}),
                  arange(-3.5, 9.25, 0.37, {.dtype = dtype}), what);
      expect_same(linspace(-1, 2, 1001, {.dtype = dtype, .device = kGpu}), linspace(-1, 2, 1001, {.dtype = dtype}),
                  what);
    }
  }
  EXPECT_EQ(empty({3, 4}, {.device = kGpu}).shape(), (Dims{3, 4}));
  expect_same(arange(UINT64_MAX - 2, UINT64_MAX, 1, {.dtype = uint64, .device = kGpu}),
              arange(UINT64_MAX - 2, UINT64_MAX, 1, {.dtype = uint64}), "uint64");
}

/// fill_ and ones through out= on any layout leave what lies between the elements.
TEST_F(CreateCuda, FillsAnyLayout) {
  Draw draw(1);
  for (int i = 0; i < 200; ++i) {
    const DType dtype = kAll[draw.upto(14)];
    const Dims shape{1 + draw.upto(4), 1 + draw.upto(70), 1 + draw.upto(9)};
    const Tensor x = draw.view(shape, dtype), gpu = on_gpu(x);
    fill_(x, Scalar(1));
    fill_(gpu, Scalar(1));
    const Tensor all = x.with_layout({gpu.storage() ? x.offset() + 1 + (shape[0] - 1) * x.stride(0) +
                                                          (shape[1] - 1) * x.stride(1) + (shape[2] - 1) * x.stride(2)
                                                    : 0},
                                     {1}, 0);
    ASSERT_TRUE(same_bits(on_cpu(gpu.with_layout(all.shape(), {1}, 0)), all)) << describe(x);
    ones(shape, {.out = gpu});
    ASSERT_TRUE(same_bits(on_cpu(gpu.with_layout(all.shape(), {1}, 0)), all)) << describe(x);
  }
  const Tensor x = transpose(ones({3, 4}, {.dtype = int16}), 0, 1);
  expect_same(zeros_like(on_gpu(x)), zeros_like(x), "zeros_like");
  expect_same(full_like(on_gpu(x), 3, {.dtype = float64}), full_like(x, 3, {.dtype = float64}), "full_like");
}

TEST_F(CreateCuda, Pad) {
  Draw draw(2);
  for (int i = 0; i < 400; ++i) {
    const char* mode = (const char*[]){"constant", "reflect", "replicate", "circular"}[i % 4];
    const Tensor x = draw.view({2 + draw.upto(3), 1 + draw.upto(3), 3 + draw.upto(90)}, kAll[draw.upto(14)]),
                 gpu = on_gpu(x);
    Dims pads{draw.upto(2), draw.upto(2)};
    if (draw.coin()) pads = {draw.upto(2), draw.upto(2), 0, 0, draw.upto(1), draw.upto(1)};
    if (draw.coin()) pads[0] = draw.upto(4) - 2;
    const Scalar value = i % 4 == 0 ? 7 : 0;
    const Tensor want = pad(x, pads, {.mode = mode, .value = value});
    expect_same(pad(gpu, pads, {.mode = mode, .value = value}), want,
                std::string(mode) + describe(x) + to_string(pads));
    const Tensor out = on_gpu(draw.poisoned(want.shape(), want.dtype()));
    pad(gpu, pads, {.mode = mode, .value = value, .out = out});
    ASSERT_TRUE(same_bits(on_cpu(out), want)) << mode << describe(x) << to_string(pads);
  }
  expect_same(pad(ones({2, 2}, {.device = kGpu}), {-2, 2}, {.value = 3}), pad(ones({2, 2}), {-2, 2}, {.value = 3}),
              "nothing is left");
}

TEST_F(CreateCuda, Triangles) {
  Draw draw(3);
  for (int i = 0; i < 200; ++i) {
    const Dims shape{1 + draw.upto(3), 1 + draw.upto(20), draw.coin() ? 16 * (1 + draw.upto(3)) : 1 + draw.upto(40)};
    const Tensor x = draw.coin() ? draw.view(shape, kAll[draw.upto(14)]) : draw.dense(shape, kAll[draw.upto(14)]),
                 gpu = on_gpu(x);
    const int64_t diagonal = draw.upto(60) - 30;
    expect_same(tril(gpu, {.diagonal = diagonal}), tril(x, {.diagonal = diagonal}), "tril" + describe(x));
    expect_same(triu(gpu, {.diagonal = diagonal}), triu(x, {.diagonal = diagonal}), "triu" + describe(x));
    const Tensor want = triu(x, {.diagonal = diagonal});
    triu(gpu, {.diagonal = diagonal, .out = gpu});
    ASSERT_TRUE(same_bits(on_cpu(gpu), want)) << "in place " << describe(x);
  }
}

TEST_F(CreateCuda, BeyondThirtyTwoBits) {
  const Tensor x = ones({70000, 65536}, {.dtype = int8, .device = kGpu}), last = select(x, 0, 69999);
  EXPECT_EQ(values(on_cpu(slice(last, 0, 65530, {}))), std::vector<double>(6, 1));
  const Tensor lower = tril(x);
  EXPECT_EQ(values(on_cpu(slice(select(lower, 0, 65530), 0, 65530, 65532))), (std::vector<double>{1, 0}));
  EXPECT_EQ(values(on_cpu(slice(select(lower, 0, 69999), 0, 65530, {}))), std::vector<double>(6, 1));
  const Tensor padded = pad(x, {0, 0, 1, 0}, {.value = 5});
  EXPECT_EQ(values(on_cpu(slice(select(padded, 0, 70000), 0, 65534, {}))), std::vector<double>(2, 1));
  EXPECT_EQ(values(on_cpu(slice(select(padded, 0, 0), 0, 65534, {}))), std::vector<double>(2, 5));
}

}  // namespace
}  // namespace tenor
