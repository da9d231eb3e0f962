// Every row of the table on CUDA against the CPU: all dtypes, mixtures, layouts, scalars, in place.
#include <algorithm>

#include "src/cuda/testing.h"
#include "src/ops/elementwise/elementwise_run.h"
#include "tenor/elementwise.h"

namespace tenor {
namespace {

using elementwise::Call;
using elementwise::Op;
using elementwise::OpRow;
using elementwise::Rule;
using testing::CudaTest;
using testing::Draw;
using testing::on_cpu;
using testing::on_gpu;

constexpr DType kNumbers[] = {float32, float16, bfloat16, float64, int8,   int16,  int32,
                              int64,   uint8,   uint16,   uint32,  uint64, boolean};

/// Rows whose formula is exact: the devices agree bit for bit.
bool is_exact(const OpRow& r, DType dtype) {
  if (!is_float(dtype)) return r.rule != Rule::kFloat;
  return r.rule == Rule::kCompare || r.rule == Rule::kLogical || r.rule == Rule::kSelect || r.rule == Rule::kClose ||
         (r.rule == Rule::kArithmetic && r.op != Op::kPow && r.op != Op::kFloorDivide && r.op != Op::kRemainder);
}

double awkward(Draw& draw, int64_t i, DType dtype) {
  if (dtype == boolean) return draw.coin();
  if (is_integer(dtype)) return std::round(draw.normal() * (i % 3 == 0 ? 2 : 40));
  switch (i % 23) {
    case 3:
      return testing::kNan;
    case 7:
      return testing::kInf;
    case 11:
      return -testing::kInf;
    case 13:
      return -0.0;
    case 17:
      return 0;
    default:
      return draw.normal() * (i % 5 == 0 ? 20 : 1);
  }
}
Tensor awkward_tensor(Draw& draw, const Dims& shape, DType dtype, bool strided) {
  const Tensor x = strided ? draw.any_layout(shape, dtype) : Tensor::empty(shape, dtype);
  std::vector<double> elements(static_cast<size_t>(x.numel()));
  for (size_t i = 0; i < elements.size(); ++i) elements[i] = awkward(draw, static_cast<int64_t>(i), dtype);
  testing::assign(x, elements);
  return x;
}

void expect_same(const OpRow& r, DType dtype, const Tensor& gpu, const Tensor& cpu, const std::string& what) {
  const Tensor got = on_cpu(gpu);
  ASSERT_EQ(got.dtype(), cpu.dtype()) << what;
  ASSERT_EQ(got.shape(), cpu.shape()) << what;
  if (is_exact(r, dtype)) {
    const auto a = testing::values(got), b = testing::values(cpu);
    for (size_t i = 0; i < a.size(); ++i)
      ASSERT_TRUE(testing::same(a[i], b[i])) << what << ": element " << i << " is " << a[i] << ", the CPU's " << b[i];
  } else {
    testing::expect_close(got, testing::values(cpu), what, cpu.dtype() == float64 ? 20 : 2, 1e-6);
  }
}

/// fn(operands) on both devices; the CPU's error is the GPU's.
void compare(const OpRow& r, const std::vector<Tensor>& inputs, const std::string& what) {
  static const double params[3] = {0.25, 0.5, 1};
  const auto call = [&](const std::vector<Tensor>& x) {
    const Operand a(x[0]), b(x[x.size() > 1 ? 1 : 0]), c(x[x.size() > 2 ? 2 : 0]);
    return elementwise::run(Call{.op = r.op, .operands = {&a, &b, &c}, .params = params});
  };
  Tensor cpu;
  try {
    cpu = call(inputs);
  } catch (const Error& e) {
    std::vector<Tensor> far;
    for (const Tensor& x : inputs) far.push_back(on_gpu(x));
    EXPECT_THROW(call(far), Error) << what << ": " << e.what();
    return;
  }
  std::vector<Tensor> far;
  for (const Tensor& x : inputs) far.push_back(on_gpu(x));
  const bool any_float = std::any_of(inputs.begin(), inputs.end(), [](const Tensor& x) { return is_float(x.dtype()); });
  expect_same(r, any_float ? float32 : int64, call(far), cpu, what);
}

/// Element for element; a NaN may carry any payload.
bool same_values(const Tensor& gpu, const Tensor& cpu) {
  const auto a = testing::values(on_cpu(gpu)), b = testing::values(cpu);
  if (gpu.dtype() != cpu.dtype() || gpu.shape() != cpu.shape()) return false;
  for (size_t i = 0; i < a.size(); ++i)
    if (!testing::same(a[i], b[i])) return false;
  return true;
}

class ElementwiseCuda : public CudaTest {};

TEST_F(ElementwiseCuda, EveryRowAndDtypeMatchesTheCpu) {
  Draw draw(1);
  const Dims shapes[] = {{}, {1}, {7}, {1024}, {33, 65}, {4, 8, 16}, {0, 3}, {3, 1, 40}, {2049}};
  for (const OpRow& r : elementwise::table())
    for (DType dtype : kNumbers)
      for (const Dims& shape : shapes)
        for (bool strided : {false, true}) {
          std::vector<Tensor> inputs;
          for (int i = 0; i < r.arity; ++i) {
            const bool condition = r.rule == Rule::kSelect && i == 0;
            inputs.push_back(awkward_tensor(draw, shape, condition ? boolean : dtype, strided));
          }
          compare(r, inputs,
                  std::string(r.name) + " " + std::string(name(dtype)) + " " + to_string(shape) +
                      (strided ? " strided" : ""));
        }
}

TEST_F(ElementwiseCuda, OperandsOfAnyTwoDtypesMeet) {
  Draw draw(2);
  for (Op op : {Op::kAdd, Op::kMul, Op::kLt, Op::kLogicalAnd, Op::kDiv, Op::kMaximum})
    for (DType a : kNumbers)
      for (DType b : kNumbers) {
        const OpRow& r = elementwise::row(op);
        compare(r, {awkward_tensor(draw, {5, 24}, a, false), awkward_tensor(draw, {5, 24}, b, false)},
                std::string(r.name) + " " + std::string(name(a)) + " " + std::string(name(b)));
      }
}

TEST_F(ElementwiseCuda, WhereTakesOperandsOfTwoDtypes) {
  Draw draw(20);
  const Tensor which = awkward_tensor(draw, {5, 24}, boolean, false);
  for (const auto& [a, b] :
       {std::pair{float32, bfloat16}, {float16, float32}, {int64, int8}, {float64, float32}, {uint8, uint16}})
    compare(elementwise::row(Op::kWhere),
            {which, awkward_tensor(draw, {5, 24}, a, false), awkward_tensor(draw, {5, 24}, b, false)},
            "where " + std::string(name(a)) + " " + std::string(name(b)));
}

TEST_F(ElementwiseCuda, BroadcastOperandsOfEveryKind) {
  Draw draw(3);
  const Dims left[] = {{64, 96}, {64, 96}, {64, 1}, {1, 96}, {5, 1, 96}, {96}, {1}, {64, 96}};
  const Dims right[] = {{96}, {64, 1}, {1, 96}, {64, 1}, {7, 1}, {5, 4, 96}, {64, 33}, {}};
  for (DType dtype : {bfloat16, float32, int8, float64})
    for (size_t i = 0; i < std::size(left); ++i)
      for (bool strided : {false, true})
        compare(elementwise::row(Op::kSub),
                {awkward_tensor(draw, left[i], dtype, strided), awkward_tensor(draw, right[i], dtype, strided)},
                "sub " + to_string(left[i]) + to_string(right[i]) + std::string(name(dtype)));
}

TEST_F(ElementwiseCuda, TransposedOperandsAndResults) {
  Draw draw(4);
  for (DType dtype : {bfloat16, float32, float64, uint8})
    for (Dims shape : {Dims{130, 70}, Dims{64, 64}, Dims{3, 50, 66}}) {
      Dims turned = shape;
      std::swap(turned[turned.size() - 1], turned[turned.size() - 2]);
      const Tensor x = awkward_tensor(draw, shape, dtype, false), y = awkward_tensor(draw, turned, dtype, false);
      Dims strides = y.strides();
      std::swap(strides[strides.size() - 1], strides[strides.size() - 2]);
      compare(elementwise::row(Op::kMaximum), {x, y.with_layout(shape, strides, 0)}, "maximum " + to_string(shape));
      const Tensor seen = y.with_layout(shape, strides, 0);
      const Tensor there = on_gpu(seen), copy = Tensor::empty(shape, dtype, testing::kGpu);
      copy_(copy, there);
      EXPECT_TRUE(testing::same_bits(on_cpu(copy), seen.contiguous()));
    }
}

/// Operands that the formula takes through shared memory: whole and partial tiles, on either side, the other one
/// broadcast, and in place.
TEST_F(ElementwiseCuda, FormulasTakeAnOperandThatLiesAcross) {
  Draw draw(14);
  for (DType dtype : {bfloat16, float16, float32})
    for (Dims shape : {Dims{256, 128}, Dims{136, 72}, Dims{1000, 264}, Dims{3, 128, 200}, Dims{2, 3, 8, 16}}) {
      Dims turned = shape;
      std::swap(turned[turned.size() - 1], turned[turned.size() - 2]);
      const Tensor x = draw.dense(shape, dtype), y = draw.dense(turned, dtype), row = draw.dense({shape.back()}, dtype);
      Dims strides = y.strides();
      std::swap(strides[strides.size() - 1], strides[strides.size() - 2]);
      const Tensor across = y.with_layout(shape, strides, 0), gx = on_gpu(x), there = on_gpu(across);
      const std::string what = std::string(name(dtype)) + to_string(shape);
      EXPECT_TRUE(testing::same_bits(on_cpu(sub(gx, there)), sub(x, across))) << what;
      EXPECT_TRUE(testing::same_bits(on_cpu(div(there, gx)), div(across, x))) << what;
      EXPECT_TRUE(testing::same_bits(on_cpu(mul(there, on_gpu(row))), mul(across, row))) << what;
      sub(gx, there, {.out = gx});
      EXPECT_TRUE(testing::same_bits(on_cpu(gx), sub(x, across))) << what;
      const Tensor own = on_gpu(across);  // the result lies as the operand does: then the other one lies across
      add(own, on_gpu(x), {.out = own});
      EXPECT_TRUE(testing::same_bits(on_cpu(own).contiguous(), add(across, x).contiguous())) << what;
    }
}

TEST_F(ElementwiseCuda, LargeOperandsThatLieAcross) {
  const int64_t rows = 6000, columns = 3001;
  const Tensor x = testing::filled({rows, columns}, float32, [](int64_t i) { return i % 1000; });
  const Tensor y = testing::filled({columns, rows}, float32, [](int64_t i) { return i % 777; });
  const Tensor seen = y.with_layout({rows, columns}, {1, rows}, 0), far = on_gpu(x), across = on_gpu(seen);
  const Tensor bias = testing::filled({columns}, float32, [](int64_t i) { return i; });
  EXPECT_TRUE(testing::same_bits(on_cpu(sub(far, across)), sub(x, seen)));
  EXPECT_TRUE(testing::same_bits(on_cpu(lerp(far, across, on_gpu(bias))), lerp(x, seen, bias)));
  EXPECT_TRUE(testing::same_bits(on_cpu(where(gt(far, 500), across, 7.0)), where(gt(x, 500), seen, 7.0)));
}

TEST_F(ElementwiseCuda, ScalarsTakeTheArraysDtype) {
  Draw draw(5);
  for (DType dtype : kNumbers) {
    const Tensor x = awkward_tensor(draw, {37}, dtype, false), there = on_gpu(x);
    if (dtype != boolean) {
      EXPECT_TRUE(same_values(add(there, 3), add(x, 3))) << name(dtype);
      EXPECT_TRUE(same_values(lt(there, 2.5), lt(x, 2.5))) << name(dtype);
    }
    EXPECT_TRUE(same_values(eq(there, 1000), eq(x, 1000))) << name(dtype);
    const Tensor filled = Tensor::empty({37}, dtype, testing::kGpu);
    fill_(filled, 1);
    const Tensor want = Tensor::empty({37}, dtype);
    fill_(want, 1);
    EXPECT_TRUE(same_values(filled, want)) << name(dtype);
  }
}

TEST_F(ElementwiseCuda, OutAndInPlace) {
  Draw draw(6);
  for (DType dtype : {float32, bfloat16, int32}) {
    const Tensor x = awkward_tensor(draw, {19, 40}, dtype, false), y = awkward_tensor(draw, {40}, dtype, false);
    const Tensor far = on_gpu(x), out = on_gpu(draw.poisoned({19, 40}, dtype));
    add(far, on_gpu(y), {.out = out});
    EXPECT_TRUE(same_values(out, add(x, y)));
    mul_(far, on_gpu(y));
    EXPECT_TRUE(same_values(far, mul(x, y)));
    // out= lies shifted on an input: as if computed before writing.
    const Tensor line = awkward_tensor(draw, {100}, dtype, false), there = on_gpu(line);
    const Tensor to = there.with_layout({99}, {1}, 1), from = there.with_layout({99}, {1}, 0);
    neg(from, {.out = to});
    EXPECT_TRUE(same_values(to, neg(line.with_layout({99}, {1}, 0))));
  }
}

TEST_F(ElementwiseCuda, MisalignedAndOddLengths) {
  Draw draw(7);
  for (DType dtype : {bfloat16, float32, int8})
    for (int64_t n : {1, 3, 4, 5, 8, 9, 63, 1000, 4099})
      for (int64_t offset : {0, 1, 2, 3, 4}) {
        const Tensor x = awkward_tensor(draw, {n + 8}, dtype, false).with_layout({n}, {1}, offset),
                     y = awkward_tensor(draw, {n}, dtype, false);
        compare(elementwise::row(Op::kAdd), {x, y}, "add " + std::to_string(n) + "+" + std::to_string(offset));
      }
}

/// A place on the line of a 16-bit dtype's values.
int place_of(uint16_t bits) { return bits & 0x8000 ? -(bits & 0x7fff) : bits; }

TEST_F(ElementwiseCuda, ShortFormulasAreWithinAPlaceOfEveryValue) {
  const auto logistic = [](double v) { return 1 / (1 + std::exp(-v)); };
  for (const DType dtype : {bfloat16, float16}) {
    const Tensor x = Tensor::empty({65536}, dtype);
    for (int i = 0; i < 65536; ++i) static_cast<uint16_t*>(x.raw())[i] = static_cast<uint16_t>(i);
    const std::vector<double> inputs = testing::values(x);
    for (const bool hyperbolic : {true, false}) {
      std::vector<double> exact;
      for (double v : inputs) exact.push_back(hyperbolic ? std::tanh(v) : logistic(v));
      const Tensor want = testing::tensor_of({65536}, dtype, exact),
                   got = on_cpu(hyperbolic ? tanh(on_gpu(x)) : sigmoid(on_gpu(x)));
      int far = 0;
      for (int i = 0; i < 65536; ++i) {
        const uint16_t a = static_cast<uint16_t*>(got.raw())[i], b = static_cast<uint16_t*>(want.raw())[i];
        const bool nan = std::isnan(exact[static_cast<size_t>(i)]);
        if (nan ? !std::isnan(testing::get(got, i)) : std::abs(place_of(a) - place_of(b)) > 1) ++far;
      }
      EXPECT_EQ(far, 0) << (hyperbolic ? "tanh " : "sigmoid ") << name(dtype);
    }
  }
}

/// One over the square root, each step rounded: the CPU's bits. Of a NaN any payload.
void expect_rsqrt_as_on_the_cpu(const Tensor& x) {
  const Tensor got = on_cpu(rsqrt(on_gpu(x))), want = rsqrt(x), nan = isnan(want);
  EXPECT_TRUE(testing::same_bits(isnan(got), nan)) << name(x.dtype());
  EXPECT_TRUE(testing::same_bits(where(nan, 0.0, got), where(nan, 0.0, want))) << name(x.dtype());
}

TEST_F(ElementwiseCuda, RsqrtOfEveryHalf) {
  for (const DType dtype : {bfloat16, float16}) {
    const Tensor x = Tensor::empty({65536}, dtype);
    for (int i = 0; i < 65536; ++i) static_cast<uint16_t*>(x.raw())[i] = static_cast<uint16_t>(i);
    expect_rsqrt_as_on_the_cpu(x);
  }
}

/// Every significand under an even and an odd exponent, and the first and last of each exponent.
TEST_F(ElementwiseCuda, RsqrtOfFloats) {
  constexpr uint32_t kOne = 0x3f800000, kSignificands = 1 << 23;
  const Tensor x = Tensor::empty({2 * kSignificands}, float32), ends = Tensor::empty({512, 64}, float32);
  for (uint32_t i = 0; i < 2 * kSignificands; ++i) static_cast<uint32_t*>(x.raw())[i] = kOne + i;
  for (uint32_t i = 0; i < 512 * 64; ++i) static_cast<uint32_t*>(ends.raw())[i] = (i / 64 << 23) + i % 64 - 32;
  expect_rsqrt_as_on_the_cpu(x);
  expect_rsqrt_as_on_the_cpu(ends);
}

TEST_F(ElementwiseCuda, DevicesDoNotMix) {
  const Tensor x = Tensor::empty({3}, float32), there = Tensor::empty({3}, float32, testing::kGpu);
  EXPECT_THROW(add(x, there), DeviceError);
  EXPECT_THROW(add(there, x), DeviceError);
}

TEST_F(ElementwiseCuda, BeyondTwoToThe31Elements) {
  const int64_t n = (int64_t{1} << 31) + 77;
  const Tensor x = Tensor::empty({n}, uint8, testing::kGpu);
  fill_(x, 5);
  add_(x.with_layout({77}, {1}, n - 77), 2);
  const Tensor y = add(x, 1);
  EXPECT_EQ(testing::get(on_cpu(y.with_layout({1}, {1}, n - 1)), 0), 8);
  EXPECT_EQ(testing::get(on_cpu(y.with_layout({1}, {1}, n - 78)), 0), 6);
  const Tensor wide = y.with_layout({2, 3}, {n - 3, 1}, 0);
  EXPECT_EQ(testing::values(on_cpu(mul(wide, 2))), (std::vector<double>{12, 12, 12, 16, 16, 16}));
}

}  // namespace
}  // namespace tenor
