// cuDNN's engines under autotuning: each that may be chosen keeps the contract, and the one remembered is the one that
// runs.
#include <set>

#include "src/core/tuning_testing.h"
#include "src/cuda/capture_testing.h"
#include "src/cuda/testing.h"
#include "src/ops/conv/conv_candidates.h"
#include "src/ops/conv/conv_shared_tests.h"
#include "tenor/elementwise.h"
#include "tenor/explain.h"
#include "tenor/modes.h"

namespace tenor {
namespace {

using namespace testing;
using conv::Direction;

constexpr Direction kDirections[] = {Direction::kForward, Direction::kDataBackward, Direction::kWeightBackward};

/// What is remembered of the engines that the last measured problem chose among; nothing where cuDNN is not there.
std::optional<core::Tuning> engines_of(const core::TuningLog& log) {
  for (const core::Tuning& t : core::tunings())
    for (const auto& [op, problem] : log.problems)
      if (t.op == op && t.problem == problem && problem.find("engine: ") != std::string::npos) return t;
  return {};
}

/// Has `run` called with each of the engines in force that it may choose among. Returns how many there are.
template <class Run>
size_t with_each_engine(Run run) {
  const core::TuningLog log;
  try {
    run("");
  } catch (const UnsupportedError&) {
    return 0;
  }
  const auto measured = engines_of(log);
  if (!measured) return 0;
  for (const auto& [engine, microseconds] : measured->microseconds) {
    core::remember_tuning(measured->op, measured->problem, {{engine, 1.0}}, kGpu);
    run(engine);
    if (::testing::Test::HasFailure()) ADD_FAILURE() << "by engine " << engine << " of " << measured->problem;
    if (::testing::Test::HasFailure()) break;
  }
  return measured->microseconds.size();
}

const ConvCase kCases[] = {
    {{2, 64, 9, 11}, {64, 64, 3, 3}, {.stride = {1}, .padding = 1, .strategy = "vendor"}},
    {{3, 32, 12, 10}, {48, 32, 3, 3}, {.stride = {2}, .padding = 1, .strategy = "vendor"}},
    {{2, 40, 7, 8}, {24, 40, 1, 1}, {.strategy = "vendor"}},
    {{2, 5, 9, 8}, {7, 5, 3, 2}, {.padding = {1, 0}, .dilation = {2}, .strategy = "vendor"}},
    {{2, 32, 6, 7}, {64, 16, 3, 3}, {.padding = 2, .groups = 2, .strategy = "vendor"}},
    {{1, 16, 5, 6, 7}, {16, 16, 3, 3, 3}, {.padding = 1, .strategy = "vendor"}},
};

class ConvCudaEngines : public CudaTest, public ::testing::WithParamInterface<int> {};

/// Small integers, so every order of additions gives the same sums; a transform does not.
TEST_P(ConvCudaEngines, AreExact) {
  const FreshTuning tuning;
  ConvDraw draw(31, kGpu, true);
  const ConvCase& c = kCases[GetParam()];
  const ConvData data(c, draw);
  size_t engines = 0;
  for (const DType dtype : {bfloat16, float16, float32})
    for (const bool last : {false, true})
      for (const Direction direction : kDirections)
        engines +=
            with_each_engine([&](const std::string&) { check_direction(direction, c, data, draw, dtype, last); });
  EXPECT_TRUE(engines == 0 || engines > 30) << engines;  // 0: cuDNN is not here
}

/// A factor of 1 + 2^-12 goes through float32 sums of small integers as it came; TF32 drops it. And what is not a
/// number reaches the results that read it alone.
TEST_P(ConvCudaEngines, DropNoBitsAndKeepNumbersApart) {
  const FreshTuning tuning;
  ConvDraw draw(32, kGpu, true);
  const ConvCase& c = kCases[GetParam()];
  const bool tf32 = allow_tf32(false);
  ConvData data(c, draw);
  const double factor = 1 + 0x1p-12;
  for (std::vector<double>* x : {&data.input, &data.grad, &data.y, &data.dx})
    for (double& v : *x) v *= factor;
  data.y = conv::reference::forward(c.problem(), data.input, data.weight);
  for (double& v : data.bias) v = 0;
  const ConvData odd(c, draw, 2);
  for (const bool last : {false, true})
    for (const Direction direction : kDirections)
      with_each_engine([&](const std::string&) {
        if (direction != Direction::kWeightBackward) check_direction(direction, c, data, draw, float32, last);
        check_direction(direction, c, odd, draw, float32, last);
        check_direction(direction, c, odd, draw, bfloat16, last);
      });
  allow_tf32(tf32);
}

/// Of numbers whose sums round, twice the same bits.
TEST_P(ConvCudaEngines, Repeat) {
  const FreshTuning tuning;
  const ConvCase& c = kCases[GetParam()];
  for (const DType dtype : {bfloat16, float32}) {
    const auto wavy = [&](const Dims& shape, double step) {
      const Tensor x = Tensor::empty(shape, float32);
      std::vector<double> values(static_cast<size_t>(x.numel()));
      for (size_t i = 0; i < values.size(); ++i) values[i] = std::sin(static_cast<double>(i) * step);
      assign(x, values);
      return x.to(dtype).to(kGpu);
    };
    const Tensor x = wavy(c.image, 1.7), w = wavy(c.filter, 2.3), g = wavy(c.output(), 3.1);
    for (const Direction direction : kDirections) {
      const auto once = [&] {
        const Tensor y = direction == Direction::kForward        ? conv_forward(x, w, {}, c.options)
                         : direction == Direction::kDataBackward ? conv_data_backward(g, w, c.image, c.options)
                                                                 : conv_weight_backward(x, g, c.filter, c.options);
        return values(y.to(kCpu));
      };
      with_each_engine([&](const std::string&) { EXPECT_EQ(once(), once()); });
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, ConvCudaEngines, ::testing::Range(0, static_cast<int>(std::size(kCases))));

conv::ConvProblem problem_of(const Tensor& x, const Tensor& w, const Tensor& y, const ConvCase& c) {
  constexpr auto kLayout = conv::Layout::kChannelsSecond;
  conv::ConvProblem p = c.problem();
  p.device = kGpu, p.dtype = x.dtype(), p.input = conv::image_of(x, kLayout), p.output = conv::image_of(y, kLayout);
  p.weight = conv::filter_of(w, kLayout);
  return p;
}

/// Without autotuning the usual engine, whatever is remembered; with it the one remembered, which explain states.
using ConvCudaEngine = CudaTest;
TEST_F(ConvCudaEngine, ThatIsRememberedRuns) {
  const FreshTuning tuning;
  const ConvCase& c = kCases[0];
  const Tensor x = Tensor::empty(c.image, bfloat16, kGpu), w = Tensor::empty(c.filter, bfloat16, kGpu);
  const auto forward = [&](std::span<const Tensor> in) {
    return std::vector<Tensor>{conv_forward(in[0], w, {}, c.options)};
  };
  const auto note = [&] { return explain(forward, {x}, {.measure = true}).steps.at(0).note; };
  std::set<std::string> notes;
  size_t entries = 0;
  const size_t engines = with_each_engine([&](const std::string& engine) {
    if (engine.empty()) {
      conv_forward(x, w, {}, c.options);
      entries = core::tunings().size();
      return;
    }
    const std::string number = " engine " + engine.substr(0, engine.find(' ')) + ",";
    EXPECT_NE(note().find(number), std::string::npos) << note() << engine;
    notes.insert(note());
    conv_forward(x, w, {}, c.options);
    EXPECT_EQ(core::tunings().size(), entries);  // nothing is measured again
    const bool on = autotune(false);
    notes.insert(note());
    autotune(on);
  });
  if (engines == 0) GTEST_SKIP() << "no cuDNN";
  EXPECT_GE(engines, 2u);
  EXPECT_GE(notes.size(), 2u);
}

/// A capture takes the usual engine where none is known, and measures nothing. (Small integers: an engine that is found
/// later gives the same bits.)
using ConvCudaEnginesCapture = CudaCaptureTest;
TEST_F(ConvCudaEnginesCapture, BeforeAnyIsKnown) {
  const FreshTuning tuning;
  const ConvCase& c = kCases[0];
  const Tensor x = integers(c.image, 4, bfloat16), w = integers(c.filter, 4, bfloat16),
               y = result(c.output(), bfloat16);
  ConvOptions o = c.options;
  try {
    conv::chosen("conv_forward", problem_of(x, w, y, c), "vendor", false);
  } catch (const UnsupportedError& e) {
    GTEST_SKIP() << e.what();
  }
  o.out = y;
  for (const char* strategy : {"vendor", "auto"}) {
    o.strategy = strategy;
    expect_replays("conv_forward", {y}, [&] { conv_forward(x, w, {}, o); });
  }
}

}  // namespace
}  // namespace tenor
