// The kernels that are planned for functions of a CUDA device: on machines without a GPU they are compiled, but not
// run.
#include <gtest/gtest.h>

#include <algorithm>

#include "src/cuda/fusion/executor.h"
#include "src/cuda/fusion/generate.h"
#include "src/fusion/explanation.h"
#include "src/fusion/lower.h"
#include "src/fusion/planner.h"
#include "src/fusion/random_programs.h"
#include "src/fusion/recorder.h"
#include "src/fusion/target.h"
#include "tenor/tenor.h"

namespace tenor::cuda {
namespace {

/// The texts of the kernels of several steps that fn has on an H200.
template <class Fn>
std::vector<std::string> texts_of(Fn fn, const std::vector<Tensor>& inputs) {
  const core::TraitsGuard traits(fusion::traits_of_target("h200"));
  fusion::Recorder recorder;
  std::vector<Tensor> outputs;
  {
    const core::TracerGuard guard(&recorder);
    outputs = fn(inputs);
  }
  const fusion::Graph graph(recorder.steps, outputs, inputs);
  std::vector<std::string> texts;
  for (const fusion::PlannedKernel& kernel : make_plan(graph, cuda_declines).kernels) {
    const auto runs = [&](int step) { return graph.nodes[static_cast<size_t>(step)].kind != fusion::Kind::kView; };
    if (std::count_if(kernel.steps.begin(), kernel.steps.end(), runs) < 2) continue;
    fusion::Lowered lowered = lower(graph, kernel.steps);
    EXPECT_EQ(lowered.reason, "");
    for (fusion::Argument& argument : lowered.program.arguments) argument.alignment = 128;
    texts.push_back(generate_kernel(lowered.program).text);
  }
  return texts;
}

void expect_compile(const std::vector<std::string>& texts, size_t kernels) {
  EXPECT_EQ(texts.size(), kernels);
  if (!why_no_nvrtc().empty()) GTEST_SKIP() << why_no_nvrtc();
  for (const std::string& text : texts) {
    try {
      EXPECT_FALSE(compile_cubin("fused kernel", text, prelude(), {9, 0}).empty());
    } catch (const Error& e) {
      ADD_FAILURE() << e.what() << "\n" << text;
    }
  }
}

Tensor shaped(const Dims& shape, DType dtype) { return Tensor::empty(shape, dtype, {DeviceType::kMeta, 0}); }

TEST(PlannedText, GathersFeedChains) {
  for (const DType index : {int64, int32, uint8})
    for (const int64_t width : {512, 7, 1}) {
      const std::vector<Tensor> in{shaped({5, 60}, index), shaped({100, width}, bfloat16), shaped({width}, bfloat16)};
      expect_compile(texts_of([](const auto& x) { return std::vector{relu(add(embedding(x[0], x[1]), x[2]))}; }, in),
                     1);
    }
}

TEST(PlannedText, GathersFeedRows) {
  const std::vector<Tensor> in{shaped({300}, int64), shaped({100, 4096}, bfloat16), shaped({300, 64}, int32),
                               shaped({300, 200}, float32)};
  expect_compile(texts_of(
                     [](const auto& x) {
                       const Tensor e = embedding(x[0], x[1]), wide = e.to(float32);
                       return std::vector{
                           mul(wide, rsqrt(mean(mul(wide, wide), {.dim = Dims{-1}, .keepdim = true}))).to(bfloat16)};
                     },
                     in),
                 1);
  expect_compile(texts_of(
                     [](const auto& x) {
                       const Tensor e = gather(x[3], 1, x[2]);
                       return std::vector{div(e, sum(e, {.dim = Dims{-1}, .keepdim = true}))};
                     },
                     in),
                 1);
}

TEST(PlannedText, EntriesAlongAnOuterDimOfARow) {
  const std::vector<Tensor> in{shaped({100, 30, 64}, float32), shaped({20}, int32), shaped({40, 128}, int32)};
  expect_compile(texts_of(
                     [](const auto& x) {
                       return std::vector{sum(index_select(x[0], 1, x[1]), {.dim = Dims{1, 2}})};
                     },
                     in),
                 1);
  expect_compile(texts_of([](const auto& x) { return std::vector{sum(neg(index_select(x[2], 0, x[1])))}; }, in), 1);
}

TEST(PlannedText, EntriesAlongTheInnermostDim) {
  const std::vector<Tensor> in{shaped({64, 128}, int64), shaped({64, 100}, float16), shaped({9}, int32)};
  expect_compile(texts_of([](const auto& x) { return std::vector{mul(gather(x[1], 1, x[0]), 2)}; }, in), 1);
  expect_compile(texts_of([](const auto& x) { return std::vector{mul(index_select(x[1], 1, x[2]), 2)}; }, in), 1);
  expect_compile(
      texts_of([](const auto& x) { return std::vector{mul(gather(x[1], 0, narrow(x[0], 1, 0, 100).contiguous()), 2)}; },
               in),
      1);
}

TEST(PlannedText, ThreadBlocksShareLongRows) {
  const auto error = [](const auto& x) {
    const Tensor d = sub(x[0], x[1]);
    return std::vector{sqrt(mean(mul(d, d)))};
  };
  for (const DType dtype : {float32, bfloat16})
    for (const Dims& shape : {Dims{4096, 4096}, Dims{1000, 1001}})
      expect_compile(texts_of(error, {shaped(shape, dtype), shaped(shape, dtype)}), 1);
  expect_compile(texts_of([](const auto& x) { return std::vector{sum(exp(x[0]), {.dim = Dims{-1}})}; },
                          {shaped({200, 600000}, float32)}),
                 1);
}

/// TENOR_FUSE_TEXTS of them, from TENOR_FUSE_SEED on.
TEST(PlannedText, RandomProgramsCompile) {
  using namespace random_programs;
  if (!why_no_nvrtc().empty()) GTEST_SKIP() << why_no_nvrtc();
  const int first = from_environment("TENOR_FUSE_SEED", 1), programs = from_environment("TENOR_FUSE_TEXTS", 6);
  for (int seed = first; seed < first + programs; ++seed) {
    std::vector<Tensor> shapes;
    for (const Tensor& x : inputs_of(static_cast<uint64_t>(seed) * 7919)) shapes.push_back(fusion::traced(x));
    std::vector<std::string> texts;
    try {
      texts = texts_of(program_of(seed), shapes);
    } catch (const Error&) {  // a program that is not one
      continue;
    }
    expect_compile(texts, texts.size());
  }
}

TEST(PlannedText, WhatOtherThreadsReadIsNotWrittenInPlace) {
  const auto fn = [](const auto& x) {
    mul_(x[0], 0.75);
    return std::vector{mul(x[0], x[1])};
  };
  expect_compile(texts_of(fn, {shaped({1}, float32), shaped({1000}, float32)}), 0);
  expect_compile(texts_of(fn, {shaped({1000}, float32), shaped({1000}, float32)}), 1);
}

/// Columns are read again behind their sums; few long ones are declined.
TEST(PlannedText, WhatIsDeclinedLeavesTheRestFused) {
  const auto less_sums = [](const auto& x) {
    const Tensor e = exp(mul(x[0], 2));
    return std::vector{relu(sub(e, sum(e, {.dim = Dims{0}, .keepdim = true})))};
  };
  expect_compile(texts_of(less_sums, {shaped({300, 200}, float32)}), 1);
  expect_compile(texts_of(less_sums, {shaped({1 << 20, 64}, float32)}), 2);
}

}  // namespace
}  // namespace tenor::cuda
