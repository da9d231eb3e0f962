// cuDNN's engines under autotuning: each that may be chosen keeps the contract, and the one remembered is the one that
// runs.
#include <set>

#include "src/core/tuning_testing.h"
#include "src/cuda/capture_testing.h"
#include "src/cuda/testing.h"
#include "src/ops/conv/conv_candidates.h"
#include "src/ops/conv/conv_shared_tests.h"
#include "tenor/create.h"
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
    if (::testing::Test::HasFailure()) {
      ADD_FAILURE() << "by engine " << engine << " of " << measured->problem;
      throw std::runtime_error("the first engine that fails ends the test");
    }
  }
  return measured->microseconds.size();
}

const ConvCase kCases[] = {
    {{2, 64, 9, 11}, {64, 64, 3, 3}, {.stride = {1}, .padding = 1, .strategy = "vendor"}},
    {{3, 32, 12, 10}, {48, 32, 3, 3}, {.stride = {2}, .padding = 1, .strategy = "vendor"}},
    {{3, 40, 7, 9}, {24, 40, 1, 1}, {.strategy = "vendor"}},
    {{2, 5, 9, 8}, {7, 5, 3, 2}, {.padding = {1, 0}, .dilation = {2}, .strategy = "vendor"}},
    {{2, 32, 6, 7}, {64, 32, 3, 3}, {.padding = 2, .strategy = "vendor"}},
    {{1, 16, 5, 6, 7}, {16, 16, 3, 3, 3}, {.padding = 1, .strategy = "vendor"}},
};

/// One direction of a case, of numbers whose sums round: twice the same bits.
void check_repeats(Direction direction, const ConvCase& c, DType dtype, bool last) {
  const auto layout = last ? conv::Layout::kChannelsLast : conv::Layout::kChannelsSecond;
  const auto wavy = [&](const Dims& sizes, double step) {
    const Tensor x = Tensor::empty(conv::in_layout(sizes, layout), float32);
    std::vector<double> elements(static_cast<size_t>(x.numel()));
    for (size_t i = 0; i < elements.size(); ++i) elements[i] = std::sin(static_cast<double>(i) * step);
    assign(x, elements);
    return x.to(dtype).to(kGpu);
  };
  const Tensor x = wavy(c.image, 1.7), w = wavy(c.filter, 2.3), g = wavy(c.output(), 3.1);
  const Tensor bias = zeros({c.filter[0]}, {.dtype = dtype, .device = kGpu});  // part of the graph, as above
  const auto once = [&] {
    if (direction == Direction::kForward)
      return on_cpu((last ? conv_forward_nhwc : conv_forward)(x, w, bias, c.options));
    if (direction == Direction::kDataBackward)
      return on_cpu((last ? conv_data_backward_nhwc : conv_data_backward)(g, w, x.shape(), c.options));
    return on_cpu((last ? conv_weight_backward_nhwc : conv_weight_backward)(x, g, w.shape(), c.options));
  };
  EXPECT_TRUE(same_bits(once(), once())) << c.text();
}

class ConvCudaEngines : public CudaTest, public ::testing::WithParamInterface<int> {};

/// Small integers, so every order of additions gives the same sums; a transform does not. A factor of 1 + 2^-12 goes
/// through float32 sums of them as it came; TF32 drops it. What is not a number reaches the results that read it alone.
/// And the same call gives the same bits.
TEST_P(ConvCudaEngines, KeepTheContract) {
  const FreshTuning tuning;
  ConvDraw draw(31, kGpu, true);
  const ConvCase& c = kCases[GetParam() / 4];
  const DType dtype = GetParam() / 2 % 2 == 0 ? bfloat16 : float32;
  const bool last = GetParam() % 2 == 1, tf32 = allow_tf32(false);
  const ConvData data(c, draw), odd(c, draw, 2);
  ConvData fine = data;  // of the products one factor each
  for (std::vector<double>* x : {&fine.input, &fine.bias, &fine.y, &fine.dw})
    for (double& v : *x) v *= 1 + 0x1p-12;
  ConvData fine_gradient = data;
  for (std::vector<double>* x : {&fine_gradient.grad, &fine_gradient.dx})
    for (double& v : *x) v *= 1 + 0x1p-12;
  size_t engines = 0;
  for (const Direction direction : kDirections)
    engines += with_each_engine([&](const std::string& engine) {
      const ConvData& whole = direction == Direction::kDataBackward ? fine_gradient : fine;
      check_direction(direction, c, dtype == float32 ? whole : data, draw, dtype, last);
      if (engine.empty()) return;
      check_direction(direction, c, odd, draw, dtype, last);
      check_repeats(direction, c, dtype, last);
    });
  EXPECT_TRUE(engines == 0 || engines >= 3) << engines;  // 0: cuDNN is not here
  allow_tf32(tf32);
}

INSTANTIATE_TEST_SUITE_P(Cases, ConvCudaEngines, ::testing::Range(0, 4 * static_cast<int>(std::size(kCases))));

conv::ConvProblem problem_of(const Tensor& x, const Tensor& w, const Tensor& y, const ConvCase& c) {
  constexpr auto kLayout = conv::Layout::kChannelsSecond;
  conv::ConvProblem p = c.problem();
  p.device = kGpu, p.dtype = x.dtype(), p.input = conv::image_of(x, kLayout), p.output = conv::image_of(y, kLayout);
  p.weight = conv::filter_of(w, kLayout);
  return p;
}

/// Without autotuning the usual engine, whatever is remembered; with it the one remembered, which the step's note
/// states.
using ConvCudaEngine = CudaTest;
TEST_F(ConvCudaEngine, ThatIsRememberedRuns) {
  const FreshTuning tuning;
  const ConvCase& c = kCases[0];
  const Tensor x = Tensor::empty(c.image, bfloat16, kGpu), w = Tensor::empty(c.filter, bfloat16, kGpu);
  const Tensor y = Tensor::empty(c.output(), bfloat16, kGpu);
  const auto forward = [&] {
    ConvOptions o = c.options;
    o.out = y;
    conv_forward(x, w, {}, o);
  };
  const auto note = [&] {
    const conv::ConvProblem p = problem_of(x, w, y, c);
    return conv::note_of(conv::chosen("conv_forward", p, "vendor", false), p);
  };
  std::set<std::string> notes;
  size_t entries = 0;
  const size_t engines = with_each_engine([&](const std::string& engine) {
    if (engine.empty()) {
      forward();
      entries = core::tunings().size();
      return;
    }
    const std::string number = " engine " + engine.substr(0, engine.find(' ')) + ",";
    EXPECT_NE(note().find(number), std::string::npos) << note() << engine;
    notes.insert(note());
    forward();
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
