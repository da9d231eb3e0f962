// The family on CUDA against its CPU kernels, which are tested against the float64 reference: the same ids, unless two
// scores or a mass and its limit lie within rounding of one another.
#include "src/cuda/testing.h"
#include "src/ops/sampling/random.h"
#include "tenor/sampling.h"
#include "tenor/view.h"

namespace tenor {
namespace {

using testing::Draw;
using testing::kFloats;
using testing::kGpu;
using testing::kInf;
using testing::kNan;
using testing::on_cpu;
using testing::on_gpu;
using testing::tensor_of;
using testing::values;

using SamplingCuda = testing::CudaTest;

std::vector<double> host(const Tensor& x) { return values(on_cpu(x)); }
Tensor iota(int64_t n) {
  return testing::filled({n}, int64, [](int64_t i) { return i; });
}

Operand moved(const Operand& x) { return x.is_tensor() ? Operand(on_gpu(x.tensor())) : x; }
std::optional<Operand> moved(const std::optional<Operand>& x) { return x ? std::optional<Operand>(moved(*x)) : x; }
SampleOptions moved(SampleOptions o) {
  o.temperature = moved(o.temperature), o.top_k = moved(o.top_k), o.top_p = moved(o.top_p), o.min_p = moved(o.min_p);
  o.seed = moved(o.seed), o.position = moved(o.position);
  return o;
}

/// Rows whose values are those of a model's logits: a few stand out.
Tensor logits(Draw& draw, const Dims& shape, DType dtype) {
  Tensor x = draw.any_layout(shape, dtype);
  std::vector<double> all = draw.normals(product(shape));
  for (double& v : all) v = 2 * v;
  testing::assign(x, all);
  return x;
}

TEST_F(SamplingCuda, DrawsTheCpusTokens) {
  Draw draw(1);
  int64_t rows_seen = 0, different = 0;
  for (DType dtype : kFloats) {
    for (int64_t n : {1, 3, 50, 1000, 5000, 33000, 170003}) {
      const int64_t rows = 3;
      const Tensor x = logits(draw, {rows, n}, dtype);
      const Tensor k = tensor_of({rows}, int32, {5, 0, 2000}), p = tensor_of({rows}, float32, {0.9, 0.5, 1}),
                   t = tensor_of({rows}, float64, {0.8, 0, 1.5});
      for (SampleOptions o :
           {SampleOptions{}, SampleOptions{.temperature = 0.7}, SampleOptions{.top_k = 1},
            SampleOptions{.top_k = 50, .top_p = 0.9}, SampleOptions{.top_k = 1000, .top_p = 0.99, .min_p = 0.01},
            SampleOptions{.top_p = 0.9}, SampleOptions{.top_p = 0}, SampleOptions{.top_k = 3000, .top_p = 0.7},
            SampleOptions{.top_k = 40, .top_p = 0.3, .joint = true}, SampleOptions{.min_p = 0.1},
            SampleOptions{.temperature = t, .top_k = k, .top_p = p}, SampleOptions{.temperature = 0.0}}) {
        o.seed = iota(rows);
        o.position = 7;
        o.return_valid = true;
        SampleOptions gpu = moved(o);
        gpu.out = {on_gpu(testing::full({rows}, int64, -7)), on_gpu(testing::full({rows}, boolean, 0))};
        const auto want = values(sample(x, o).ids), got = host(sample(on_gpu(x), gpu).ids);
        for (size_t r = 0; r < want.size(); ++r, ++rows_seen) different += got[r] != want[r];
        EXPECT_EQ(host(gpu.out.valid), values(testing::full({rows}, boolean, 1)));
        EXPECT_LT(different, 1 + rows_seen / 50)
            << name(dtype) << " n " << n << " got " << got[0] << " wanted " << want[0];
      }
    }
  }
  std::printf("%ld of %ld rows differ\n", static_cast<long>(different), static_cast<long>(rows_seen));
  EXPECT_LE(different, rows_seen / 200);
}

TEST_F(SamplingCuda, TiesAndEdgesAreTheCpus) {
  // Weights and masses that are exact: every id is equal.
  Draw draw(2);
  for (DType dtype : kFloats) {
    for (int64_t n : {40, 3000, 40000}) {
      const Tensor x = testing::filled({2, n}, dtype, [&](int64_t) { return draw.upto(3); });
      for (const SampleOptions& o :
           {SampleOptions{.temperature = 0.0, .seed = 1}, SampleOptions{.top_k = 7, .seed = 1, .position = 3},
            SampleOptions{.top_p = 0.01, .seed = 2}, SampleOptions{.top_k = n / 2, .top_p = 0.6, .seed = 3}})
        EXPECT_EQ(host(sample(on_gpu(x), o).ids), values(sample(x, o).ids)) << name(dtype) << " n " << n;
      EXPECT_EQ(host(top_k_mask_logits(on_gpu(x), n / 3)), values(top_k_mask_logits(x, n / 3)));
      EXPECT_EQ(host(sample_from_probs(on_gpu(x), {.top_p = 0.5, .seed = 5}).ids),
                values(sample_from_probs(x, {.top_p = 0.5, .seed = 5}).ids));
    }
  }
}

TEST_F(SamplingCuda, RowsWithoutADistribution) {
  const Tensor x =
      tensor_of({5, 3}, float32, {0, kNan, 1, -kInf, -kInf, -kInf, kInf, 0, 0, -kInf, 7, -kInf, 3e38, -3e38, 3e38});
  for (SampleOptions o :
       {SampleOptions{}, SampleOptions{.top_k = 2}, SampleOptions{.temperature = 0.0}, SampleOptions{.top_p = 0.5}}) {
    o.seed = 1, o.return_valid = true;
    const SampleResult got = sample(on_gpu(x), o);
    EXPECT_EQ(host(got.valid), (std::vector<double>{0, 0, 0, 1, 1}));
    EXPECT_EQ(host(got.ids), values(sample(x, o).ids));
  }
  const Tensor p = tensor_of({5, 2}, float32, {0, 0, -1, 2, kInf, 1, kNan, 1, 0, 1e-45});
  for (SampleFromProbsOptions o : {SampleFromProbsOptions{}, SampleFromProbsOptions{.top_k = 1}}) {
    o.seed = 1, o.return_valid = true;
    EXPECT_EQ(host(sample_from_probs(on_gpu(p), o).valid), (std::vector<double>{0, 0, 0, 0, 1}));
    EXPECT_EQ(host(sample_from_probs(on_gpu(p), o).ids), values(sample_from_probs(p, o).ids));
  }
}

TEST_F(SamplingCuda, ARowAloneAndInABatchAndAgain) {
  Draw draw(3);
  const Tensor x = on_gpu(draw.dense({40, 50000}, float32));
  for (const SampleOptions& o : {SampleOptions{.seed = 4}, SampleOptions{.top_k = 50, .top_p = 0.9, .seed = 4},
                                 SampleOptions{.top_p = 0.95, .seed = 4}}) {
    const auto all = host(sample(x, o).ids);
    EXPECT_EQ(host(sample(x, o).ids), all);
    for (int64_t r : {0, 17, 39}) EXPECT_EQ(host(sample(slice(x, 0, r, r + 1), o).ids)[0], all[r]);
  }
  const Tensor p = on_gpu(testing::filled({4, 50000}, float32, [](int64_t i) { return 1 + i % 977; }));
  const auto normal = host(top_p_normalize_probs(p, 0.9));
  EXPECT_EQ(host(top_p_normalize_probs(p, 0.9)), normal);
  EXPECT_EQ(host(top_p_normalize_probs(slice(p, 0, 2, 3), 0.9)),
            std::vector<double>(normal.begin() + 100000, normal.begin() + 150000));
}

TEST_F(SamplingCuda, MultinomialIsTheCpus) {
  Draw draw(4);
  for (DType dtype : kFloats) {
    for (int64_t n : {1, 7, 900, 30000}) {
      Tensor x = draw.view({3, n}, dtype);
      std::vector<double> p;
      for (double v : values(x)) p.push_back(std::max(v, 0.0));
      testing::assign(x, p);
      for (int64_t count : {int64_t{1}, std::min<int64_t>(n, 20), n}) {
        const MultinomialOptions o{.seed = 3, .position = iota(3)}, on{.seed = 3, .position = on_gpu(iota(3))};
        const auto want = values(multinomial(x, count, o)), got = host(multinomial(on_gpu(x), count, on));
        size_t different = 0;
        for (size_t i = 0; i < want.size(); ++i) different += got[i] != want[i];
        EXPECT_LE(different, want.size() / 1000) << name(dtype) << " n " << n << " count " << count;
      }
      EXPECT_EQ(host(multinomial(on_gpu(x), 50, {.replacement = true, .seed = 3})),
                values(multinomial(x, 50, {.replacement = true, .seed = 3})));
    }
  }
  const Tensor p = tensor_of({3, 3}, float64, {0, 1, 0, kNan, 1, 1, 0, 0, 0});
  EXPECT_EQ(host(multinomial(on_gpu(p), 2, {.seed = 1})), (std::vector<double>{1, -1, -1, -1, -1, -1}));
  EXPECT_EQ(host(multinomial(on_gpu(p), 1, {.seed = 1})), (std::vector<double>{1, -1, -1}));
  EXPECT_EQ(host(multinomial(on_gpu(p), 2, {.replacement = true, .seed = 1})),
            (std::vector<double>{1, 1, -1, -1, -1, -1}));
  EXPECT_EQ(host(multinomial(on_gpu(select(p, 0, 0)), 2, {.seed = 1})), (std::vector<double>{1, -1}));
}

TEST_F(SamplingCuda, FiltersAreTheCpus) {
  Draw draw(5);
  for (DType dtype : kFloats) {
    for (int64_t n : {1, 100, 5000, 50000}) {
      const Tensor x = logits(draw, {3, n}, dtype), k = tensor_of({3}, int64, {1, static_cast<double>(n / 2), -1});
      EXPECT_EQ(host(top_k_mask_logits(on_gpu(x), on_gpu(k))), values(top_k_mask_logits(x, k))) << name(dtype) << n;
      Tensor p = draw.any_layout({3, n}, dtype);
      std::vector<double> all;
      for (double v : values(x)) all.push_back(std::exp(v / 2));
      testing::assign(p, all);
      for (double top_p : {0.0, 0.5, 0.9, 1.0})
        testing::expect_close(on_cpu(top_p_normalize_probs(on_gpu(p), top_p)), values(top_p_normalize_probs(p, top_p)),
                              std::string(name(dtype)), 1, dtype == float16 ? 0x1p-24 : 1e-30);
    }
  }
  Tensor mine = on_gpu(tensor_of({1, 4}, float32, {1, 3, 3, 2}));
  top_k_mask_logits(mine, 2, {mine});
  EXPECT_EQ(host(mine), (std::vector<double>{-kInf, 3, 3, -kInf}));
  for (double v : host(top_p_normalize_probs(on_gpu(tensor_of({2, 2}, float32, {0, 0, -1, 2})), 0.5)))
    EXPECT_TRUE(std::isnan(v));
}

TEST_F(SamplingCuda, SpeculativeIsTheCpus) {
  Draw draw(6);
  for (DType dtype : kFloats) {
    for (int64_t v : {1, 40, 3000, 40000}) {
      const int64_t batch = 4, n = 3;
      Tensor p = draw.any_layout({batch, n + 1, v}, dtype), q = draw.any_layout({batch, n, v}, dtype);
      std::vector<double> a, b, drafts;
      for (double x : draw.normals(product(p.shape()))) a.push_back(std::exp(x) / static_cast<double>(v));
      for (double x : draw.normals(product(q.shape()))) b.push_back(std::exp(x) / static_cast<double>(v));
      for (int64_t i = 0; i < batch * n; ++i)
        drafts.push_back(draw.upto(5) == 0 ? -1.0 : static_cast<double>(draw.upto(v - 1)));
      testing::assign(p, a);
      testing::assign(q, b);
      const Tensor ids = tensor_of({batch, n}, int32, drafts);
      for (const Tensor& draft : {q, Tensor()}) {
        const SpeculativeResult want = speculative_accept(p, draft, ids, {.seed = 5}),
                                got = speculative_accept(on_gpu(p), on_gpu(draft), on_gpu(ids), {.seed = 5});
        EXPECT_EQ(host(got.accepted), values(want.accepted)) << name(dtype) << v;
        EXPECT_EQ(host(got.ids), values(want.ids)) << name(dtype) << v;
      }
    }
  }
}

TEST_F(SamplingCuda, BadContentsAreDroppedAndTold) {
  const Tensor x = on_gpu(testing::full({3, 5}, float32, 1));
  const SampleResult got =
      sample(x, {.temperature = on_gpu(testing::list({1, -1, 0})), .seed = 1, .return_valid = true});
  EXPECT_THROW(synchronize(kGpu), ValueError);
  EXPECT_EQ(host(got.valid), (std::vector<double>{1, 0, 1}));
  const Tensor p = on_gpu(testing::full({1, 2, 4}, float32, 0.25));
  const SpeculativeResult chain = speculative_accept(p, {}, on_gpu(tensor_of({1, 1}, int64, {4})), {.seed = 1});
  const auto told = [&] {
    try {
      synchronize(kGpu);
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string();
  }();
  EXPECT_NE(told.find("speculative_accept: draft_ids holds 4 at position 0"), std::string::npos) << told;
  EXPECT_EQ(host(chain.accepted), (std::vector<double>{0}));
}

}  // namespace
}  // namespace tenor
