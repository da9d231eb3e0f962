// The family's operators on CUDA tensors, against their CPU selves.
#include <array>
#include <cmath>

#include "src/core/step.h"
#include "src/cuda/testing.h"
#include "src/ops/contract/contract_reference.h"
#include "tenor/contract.h"
#include "tenor/modes.h"
#include "tenor/view.h"

namespace tenor {
namespace {

using namespace testing;

class ContractCuda : public CudaTest {};

/// Equal to the CPU's result within what two float32 sums of `terms` products of normals may differ by.
void expect_like_cpu(const Tensor& got, const Tensor& want, double terms, const std::string& what) {
  ASSERT_EQ(got.device().type, DeviceType::kCuda) << what;
  ASSERT_EQ(got.shape(), want.shape()) << what;
  ASSERT_EQ(got.dtype(), want.dtype()) << what;
  const std::vector<double> g = values(on_cpu(got)), w = values(want);
  const double sum = (is_float(want.dtype()) ? want.dtype() == float64 ? 1e-14 : 4e-6 : 0) * (terms + 4);
  const double last = want.dtype() == bfloat16 ? 0x1p-7 : want.dtype() == float16 ? 0x1p-10 : 0;
  for (size_t i = 0; i < g.size(); ++i)
    ASSERT_LE(std::abs(g[i] - w[i]), sum + last * std::abs(w[i]))
        << what << ": element " << i << " is " << g[i] << ", expected " << w[i];
}

TEST_F(ContractCuda, MatmulOfEveryRank) {
  Draw draw(1);
  for (int i = 0; i < 120; ++i) {
    const int64_t m = draw.upto(20), k = draw.upto(40), n = draw.upto(20);
    const bool row = draw.upto(4) > 0, column = draw.upto(4) > 0;
    const Dims batch = {draw.upto(2) + 1, draw.upto(2) + 1, draw.upto(2) + 1};
    const auto shape_of = [&](bool matrix, Dims last) {
      Dims shape;
      for (int64_t d = matrix ? draw.upto(3) : 0; d > 0; --d)
        shape.push_back(draw.upto(3) == 0 ? 1 : batch[static_cast<size_t>(3 - d)]);
      for (int64_t s : last) shape.push_back(s);
      return shape;
    };
    const DType dtype = kFloats[i % 4];
    const Tensor a = draw.view(row ? shape_of(true, {m, k}) : Dims{k}, dtype),
                 b = draw.view(column ? shape_of(true, {k, n}) : Dims{k}, dtype);
    const Tensor want = matmul(a, b), ga = on_gpu(a), gb = on_gpu(b);
    const std::string what = to_string(a.shape()) + " @ " + to_string(b.shape());
    expect_like_cpu(matmul(ga, gb), want, static_cast<double>(k), what);
    const Tensor out = on_gpu(draw.poisoned(want.shape(), dtype));
    expect_like_cpu(matmul(ga, gb, {.out = out}), want, static_cast<double>(k), what + " into out");
    if (HasFatalFailure()) return;
  }
}

TEST_F(ContractCuda, IntegersAreExactAndWrap) {
  Draw draw(2);
  constexpr DType kIntegers[] = {int8, int16, int32, int64, uint8, uint16, uint32, uint64};
  for (int i = 0; i < 120; ++i) {
    const DType da = kIntegers[i % 8], db = draw.coin() || da == uint64 ? da : kIntegers[draw.upto(6)];
    const auto random = [&](const Dims& shape, DType d) {
      std::vector<double> v(static_cast<size_t>(product(shape)));
      for (double& e : v) e = static_cast<double>(draw.upto(is_unsigned(d) ? 100 : 200) - (is_unsigned(d) ? 0 : 100));
      const Tensor x = draw.any_layout(shape, d);
      assign(x, v);
      return x;
    };
    const Tensor a = random({draw.upto(80), draw.upto(40)}, da), b = random({a.shape(1), draw.upto(80)}, db);
    EXPECT_TRUE(same_bits(on_cpu(matmul(on_gpu(a), on_gpu(b))), matmul(a, b)))
        << name(da) << name(db) << to_string(a.shape()) << to_string(b.shape());
  }
  const Tensor a = tensor_of({2, 3}, boolean, {1, 1, 0, 0, 0, 0}), b = tensor_of({3, 2}, boolean, {1, 0, 1, 0, 0, 1});
  EXPECT_EQ(values(on_cpu(matmul(on_gpu(a), on_gpu(b)))), (std::vector<double>{1, 0, 0, 0}));
  EXPECT_EQ(values(on_cpu(matmul(on_gpu(a), on_gpu(b), {.dtype = int32}))), (std::vector<double>{2, 0, 0, 0}));
}

TEST_F(ContractCuda, DtypeIsTheResultsAlone) {
  const Tensor a = on_gpu(tensor_of({1, 4}, float16, {2048, 1, 1, 1})), b = on_gpu(full({4, 1}, float16, 1));
  EXPECT_EQ(values(on_cpu(matmul(a, b))), std::vector<double>{2052});
  EXPECT_EQ(values(on_cpu(matmul(a, b, {.dtype = float32}))), std::vector<double>{2051});
  EXPECT_EQ(values(on_cpu(matmul(a, b, {.dtype = int32}))), std::vector<double>{2051});
  EXPECT_EQ(matmul(a, on_gpu(full({4, 1}, bfloat16, 1))).dtype(), float32);
  EXPECT_EQ(values(on_cpu(matmul(a, on_gpu(full({4, 1}, int8, 1))))), std::vector<double>{2052});
  EXPECT_EQ(matmul(a, on_gpu(full({4, 1}, float64, 1))).dtype(), float64);
}

TEST_F(ContractCuda, EmptyInnerDimGivesZerosAndTheBias) {
  for (DType dtype : {float32, bfloat16, float64, int32, boolean}) {
    const Tensor out = on_gpu(full({2, 3}, dtype, 1)), left = Tensor::empty({2, 0}, dtype, kGpu),
                 right = Tensor::empty({0, 3}, dtype, kGpu);
    EXPECT_EQ(values(on_cpu(matmul(left, right, {.out = out}))), std::vector<double>(6, 0));
    const Tensor bias = on_gpu(tensor_of({2}, dtype, {0, 1}));
    EXPECT_EQ(values(on_cpu(linear(Tensor::empty({1, 0}, dtype, kGpu), left, bias))), (std::vector<double>{0, 1}));
  }
  EXPECT_EQ(matmul(Tensor::empty({0, 5}, float32, kGpu), Tensor::empty({5, 3}, float32, kGpu)).shape(), (Dims{0, 3}));
}

TEST_F(ContractCuda, ResultKeepsTheDimOrderOfTheFirstOperand) {
  Draw draw(3);
  const Tensor base = draw.dense({5, 4, 3}, float32), x = permute(base, {1, 2, 0}), w = draw.dense({5, 6}, float32);
  const Tensor y = matmul(permute(on_gpu(base), {1, 2, 0}), on_gpu(w));
  EXPECT_EQ(y.strides(), (Dims{3, 1, 12}));
  expect_like_cpu(y, matmul(x, w), 5, "permuted");
}

TEST_F(ContractCuda, OutMayBeAnOperand) {
  Draw draw(4);
  for (DType dtype : {float32, bfloat16, int32}) {
    const Tensor a = on_gpu(draw.dense({20, 20}, dtype)), b = on_gpu(draw.dense({20, 20}, dtype));
    const Tensor want = on_cpu(matmul(a, b));
    EXPECT_TRUE(same_bits(on_cpu(matmul(a, b, {.out = a})), want));
    EXPECT_TRUE(same_bits(on_cpu(a), want));
  }
}

TEST_F(ContractCuda, LinearOfFewRowsAndMany) {
  Draw draw(5);
  for (DType dtype : {bfloat16, float16, float32})
    for (int64_t rows : {1, 2, 5, 8, 9, 16, 17, 40})
      for (const auto& [k, n] : {std::array<int64_t, 2>{512, 640}, {1000, 333}, {2049, 70}, {4096, 24}}) {
        const Tensor x = draw.dense({rows, k}, dtype), w = draw.dense({n, k}, dtype), bias = draw.dense({n}, dtype),
                     flipped = transpose(w, 0, 1).contiguous();
        const std::string what = "linear " + std::to_string(rows) + "x" + std::to_string(k) + "x" + std::to_string(n) +
                                 " " + std::string(name(dtype));
        const double terms = 4 * std::sqrt(static_cast<double>(k));
        const Tensor want = linear(x, w, bias), gx = on_gpu(x);
        expect_like_cpu(linear(gx, on_gpu(w), on_gpu(bias)), want, terms, what);
        expect_like_cpu(matmul(gx, on_gpu(flipped)), matmul(x, flipped), terms, what + ", rows of weights contiguous");
        expect_like_cpu(matmul(on_gpu(w), transpose(gx, 0, 1)), matmul(w, transpose(x, 0, 1)), terms,
                        what + ", the few as columns");
        if (HasFatalFailure()) return;
      }
}

TEST_F(ContractCuda, OuterAndDot) {
  Draw draw(6);
  for (DType dtype : kFloats) {
    const Tensor x = draw.view({70}, dtype), y = draw.view({33}, dtype);
    EXPECT_TRUE(same_bits(on_cpu(outer(on_gpu(x), on_gpu(y))), outer(x, y))) << name(dtype);
    EXPECT_TRUE(same_bits(on_cpu(outer(on_gpu(x), on_gpu(y), {.dtype = float32})), outer(x, y, {.dtype = float32})))
        << name(dtype);
    const Tensor wide = draw.dense({80}, dtype), tall = draw.dense({300}, dtype);  // rows of whole vectors
    EXPECT_TRUE(same_bits(on_cpu(outer(on_gpu(tall), on_gpu(wide))), outer(tall, wide))) << name(dtype);
    const Tensor into = on_gpu(draw.poisoned({300, 80}, dtype));
    EXPECT_TRUE(same_bits(on_cpu(outer(on_gpu(tall), on_gpu(wide), {.out = into})), outer(tall, wide))) << name(dtype);
    for (int64_t n : {0, 1, 7, 4096, 100001}) {
      const Tensor u = draw.view({n}, dtype), v = draw.view({n}, dtype);
      reference::expect_sum(on_cpu(dot(on_gpu(u), on_gpu(v))), reference::contract({{u, "i"}, {v, "i"}}, ""), n,
                            dtype == float64 ? float64 : float32, "dot " + std::to_string(n));
    }
  }
  EXPECT_EQ(values(on_cpu(outer(on_gpu(tensor_of({2}, int64, {3, -4})), on_gpu(tensor_of({2}, int64, {5, 6}))))),
            (std::vector<double>{15, 18, -20, -24}));
}

TEST_F(ContractCuda, EinsumLikeTheCpu) {
  struct Case {
    const char* equation;
    std::vector<Dims> shapes;
  };
  const Case cases[] = {{"ij,jk->ik", {{30, 300}, {300, 40}}},
                        {"bij,bjk->bik", {{3, 7, 50}, {3, 50, 9}}},
                        {"bqhd,bkhd->bhqk", {{2, 20, 3, 64}, {2, 30, 3, 64}}},
                        {"bhqk,bkhd->bqhd", {{2, 3, 20, 30}, {2, 30, 3, 64}}},
                        {"ii->i", {{6, 6}}},
                        {"ii->", {{40, 40}}},
                        {"ijk->k", {{5, 6, 300}}},
                        {"ijk->i", {{5, 6, 70}}},
                        {"ij->ji", {{5, 6}}},
                        {"i,j->ij", {{50}, {60}}},
                        {"i,i->", {{900}, {900}}},
                        {"ij,jk,kl->il", {{20, 2}, {2, 30}, {30, 3}}},
                        {"...ij,...jk->...ik", {{2, 1, 4, 5}, {3, 5, 6}}},
                        {"abcd,cdef->abef", {{3, 4, 5, 6}, {5, 6, 7, 8}}},
                        {"acbd,dcef->baef", {{3, 5, 4, 6}, {6, 5, 7, 8}}},
                        {"bi,bi->b", {{40, 300}, {40, 300}}},
                        {"bi,bi->bi", {{40, 30}, {40, 30}}},
                        {"ab,bc,cd,de->ae", {{8, 9}, {9, 10}, {10, 11}, {11, 12}}},
                        {"i,i->i", {{0}, {0}}},
                        {"ij,jk->ik", {{3, 0}, {0, 4}}}};
  Draw draw(12);
  for (const Case& c : cases)
    for (DType dtype : {float32, bfloat16, float64, int32}) {
      std::vector<Tensor> host, device;
      for (const Dims& shape : c.shapes) {
        host.push_back(dtype == int32 ? draw.view(shape, float32).to(int32) : draw.view(shape, dtype));
        device.push_back(on_gpu(host.back()));
      }
      const Tensor want = einsum(c.equation, host);
      expect_like_cpu(einsum(c.equation, device), want, 400, std::string(c.equation) + " " + std::string(name(dtype)));
      const BatchInvariantGuard guard;
      expect_like_cpu(einsum(c.equation, device), want, 400,
                      std::string(c.equation) + " batch-invariant " + std::string(name(dtype)));
      if (HasFatalFailure()) return;
    }
  const Tensor x = draw.dense({3, 4, 5}, float32), y = draw.dense({5, 4, 6}, float32);
  expect_like_cpu(tensordot(on_gpu(x), on_gpu(y), {1, 2}, {1, 0}), tensordot(x, y, {1, 2}, {1, 0}), 20, "tensordot");
}

TEST_F(ContractCuda, ErrorsAreTheCpus) {
  const Tensor m = on_gpu(full({2, 3}, float32, 1)), cpu = full({3, 2}, float32, 1);
  expect_error<ShapeError>(
      [&] { matmul(m, m); },
      "matmul: inner sizes differ: x of shape (2, 3) has 3 columns, other of shape (2, 3) has 2 rows");
  EXPECT_THROW(matmul(m, cpu), DeviceError);
  EXPECT_THROW(outer(select(m, 0, 0), select(cpu, 0, 0)), DeviceError);
  EXPECT_THROW(einsum("ij,jk->ik", std::vector<Tensor>{m, cpu}), DeviceError);
  EXPECT_THROW(linear(m, m, full({2}, float32, 1)), DeviceError);
  EXPECT_THROW(matmul(m, on_gpu(cpu), {.out = full({2, 2}, float32, 0)}), DeviceError);
  EXPECT_THROW(matmul(on_gpu(full({2, 2}, uint64, 1)), on_gpu(full({2, 2}, int8, 1))), DTypeError);
}

TEST_F(ContractCuda, TheStepNamesTheCandidateAndWhyOthersDeclined) {
  struct Recorder : core::Tracer {
    std::vector<core::Step> steps;
    void record(const core::Step& step) override { steps.push_back(step); }
  } recorder;
  const Tensor x = on_gpu(full({3, 512}, bfloat16, 1)), w = on_gpu(full({64, 512}, bfloat16, 1)),
               square = on_gpu(full({40, 40}, int32, 1));
  {
    const core::TracerGuard guard(&recorder);
    linear(x, w);
    matmul(square, square);
  }
  ASSERT_EQ(recorder.steps.size(), 2u);
  EXPECT_EQ(recorder.steps[0].strategy.substr(0, 5), "rows\n");
  EXPECT_EQ(recorder.steps[1].strategy.substr(0, 7), "simple\n");
  EXPECT_NE(recorder.steps[1].strategy.find("vendor: takes float64"), std::string::npos);
}

}  // namespace
}  // namespace tenor
