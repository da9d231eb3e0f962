// out= rules, candidate lists, cost steps, DLPack from C++.
#include "src/core/output.h"

#include <gtest/gtest.h>

#include "src/core/candidates.h"
#include "src/core/dlpack.h"
#include "src/core/step.h"

namespace tenor::core {
namespace {

float memory[200];
Tensor at(int offset, Dims shape, Dims strides = {}, bool read_only = false) {
  return Tensor::wrap(memory + offset, kCpu, float32, std::move(shape), std::move(strides), {}, read_only);
}

template <class E, class F>
std::string error_of(F&& fn) {
  try {
    fn();
  } catch (const E& e) {
    return e.what();
  }
  return "no error";
}

TEST(Output, NewMemoryFollowsTheFirstArgument) {
  const Tensor like = at(0, {2, 3}, {1, 2});
  Output out("op", {}, {2, 3}, float16, like);
  EXPECT_EQ(out.target().strides(), Dims({1, 2}));
  EXPECT_EQ(out.target().dtype(), float16);
  EXPECT_EQ(Output("op", {}, {2, 3}, float32, like, {}, {.contiguous = true}).target().strides(), Dims({3, 1}));
}

TEST(Output, RefusesWhatDoesNotFit) {
  const Tensor x = at(0, {2, 3});
  const auto with = [&](const Tensor& out) { return [&x, out] { Output("add", out, {2, 3}, float32, x, {&x}); }; };
  EXPECT_EQ(error_of<ShapeError>(with(at(100, {3, 2}))), "add: out must have shape (2, 3), got (3, 2)");
  EXPECT_EQ(error_of<DTypeError>(with(Tensor::wrap(memory, kCpu, int32, {2, 3}))),
            "add: out must be float32, got int32");
  EXPECT_EQ(error_of<ValueError>(with(at(100, {2, 3}, {}, true))), "add: out is read-only");
  EXPECT_NE(error_of<ValueError>(with(at(100, {2, 3}, {0, 1}))).find("add: out has elements that share memory"),
            std::string::npos);
  EXPECT_NE(error_of<ValueError>(with(at(100, {2, 3}, {1, 1}))).find("share memory"), std::string::npos);
}

TEST(Output, WritesInPlaceOnlyWhereItIsSafe) {
  const Tensor x = at(0, {2, 3});
  const auto target = [&](const Tensor& out, OutputRules rules) {
    return Output("op", out, {2, 3}, float32, x, {&x}, rules).target().raw();
  };
  const Tensor apart = at(100, {2, 3}, {6, 2});
  EXPECT_EQ(target(apart, {}), apart.raw());
  EXPECT_NE(target(apart, {.contiguous = true}), apart.raw());
  EXPECT_EQ(target(x, {.elementwise = true}), x.raw());
  EXPECT_NE(target(x, {}), x.raw());                                         // reads after it writes
  EXPECT_NE(target(at(1, {2, 3}), {.elementwise = true}), memory + 1);       // shifted by one
  EXPECT_NE(target(at(0, {2, 3}, {1, 2}), {.elementwise = true}), x.raw());  // the transpose of itself
}

TEST(Output, FinishCopiesATemporaryAndReturnsTheCallersTensor) {
  Tensor x = at(0, {2, 3}), shifted = at(1, {2, 3});
  for (int i = 0; i < 6; ++i) memory[i] = static_cast<float>(i);
  Output out("op", shifted, {2, 3}, float32, x, {&x}, {.elementwise = true});
  for (int i = 0; i < 6; ++i) out.target().data<float>()[i] = 10 + x.data<float>()[i];
  EXPECT_EQ(out.finish().raw(), shifted.raw());
  for (int i = 0; i < 6; ++i) EXPECT_EQ(memory[i + 1], 10.0f + static_cast<float>(i));
}

// ---- candidates
// -------------------------------------------------------------------------------------------------------

struct Problem {
  int size;
};
std::string only_small(const Problem& p) { return p.size < 10 ? "" : "size " + std::to_string(p.size) + " is above 9"; }
const Candidate<Problem> kList[] = {{"small", only_small, nullptr}, {"reference", always<Problem>, nullptr}};

TEST(Candidates, TheFirstThatTakesIt) {
  EXPECT_STREQ(choose<Problem>("op", kList, {5}).name, "small");
  EXPECT_STREQ(choose<Problem>("op", kList, {50}).name, "reference");
  EXPECT_STREQ(choose<Problem>("op", kList, {5}, "reference").name, "reference");
  EXPECT_EQ(declined<Problem>(kList, {50}), "small: size 50 is above 9\n");
  EXPECT_EQ(declined<Problem>(kList, {5}), "");
}

TEST(Candidates, NamedOnesSayWhyNot) {
  EXPECT_EQ(error_of<UnsupportedError>([] { choose<Problem>("op", kList, {50}, "small"); }),
            "op: strategy 'small' cannot do this: size 50 is above 9");
  EXPECT_EQ(error_of<ValueError>([] { choose<Problem>("op", kList, {5}, "fast"); }),
            "op: strategy must be one of 'auto', 'small', 'reference', got 'fast'");
  const std::span<const Candidate<Problem>> first(kList, 1);
  EXPECT_NE(error_of<UnsupportedError>([&] { choose<Problem>("op", first, {50}); }).find("small: size 50 is above 9"),
            std::string::npos);
}

// ---- steps
// ------------------------------------------------------------------------------------------------------------

struct Recorder : Tracer {
  void record(const Step& step) override { steps.push_back(step); }
  std::vector<Step> steps;
};

TEST(Step, IsRecordedOnceHoweverItIsMade) {
  const auto inner = [] { StepScope step([] { return Step{"inner", OpClass::kElementwise, {}, {}, 1}; }); };
  const auto outer = [&] {
    StepScope step([] { return Step{"outer", OpClass::kReduction, {at(0, {2})}, {at(0, {2})}, 7}; });
    inner();
  };
  outer();  // without a reader nothing happens
  Recorder recorder;
  {
    TracerGuard guard(&recorder);
    outer();
    inner();
  }
  inner();
  ASSERT_EQ(recorder.steps.size(), 2u);
  EXPECT_STREQ(recorder.steps[0].op, "outer");
  EXPECT_EQ(recorder.steps[0].flops, 7);
  EXPECT_STREQ(recorder.steps[1].op, "inner");
  EXPECT_EQ(current_tracer, nullptr);
}

TEST(Step, AnErrorInsideLeavesTheTracerInForce) {
  Recorder recorder;
  TracerGuard guard(&recorder);
  EXPECT_THROW(
      {
        StepScope step([] { return Step{"bad", OpClass::kView, {}, {}, 0}; });
        throw ValueError("x");
      },
      ValueError);
  EXPECT_EQ(current_tracer, &recorder);
}

TEST(Step, ShapesWithoutMemory) {
  const Tensor x = Tensor::empty({int64_t{1} << 30, 1 << 20}, float32, Device{DeviceType::kMeta, 0});
  EXPECT_TRUE(StepScope::shape_only(x));
  EXPECT_FALSE(StepScope::shape_only(at(0, {2})));
}

// ---- DLPack
// -----------------------------------------------------------------------------------------------------------

TEST(Output, RefusesCudaMemoryWithoutACudaKernel) {
  // The address is never followed: the refusal comes before anything is read or written.
  const Tensor far = Tensor::wrap(reinterpret_cast<void*>(uintptr_t{4096}), {DeviceType::kCuda, 0}, float32, {2});
  EXPECT_THROW(Output("relu", {}, {2}, float32, far, {&far}), UnsupportedError);
  EXPECT_THROW(Output("zeros", far, {2}, float32, {}), UnsupportedError);  // a creation operator has no input
  EXPECT_NO_THROW(Output("relu", far, {2}, float32, far, {&far}, {.elementwise = true, .cuda = true}));
}

TEST(DLPack, RoundTripOfBothForms) {
  const Tensor x = at(3, {2, 3}, {1, 4});
  for (bool versioned : {false, true}) {
    const Tensor y = versioned ? Tensor::from_dlpack(x.to_dlpack_versioned()) : Tensor::from_dlpack(x.to_dlpack());
    EXPECT_EQ(y.raw(), x.raw());
    EXPECT_EQ(y.shape(), x.shape());
    EXPECT_EQ(y.strides(), x.strides());
    EXPECT_EQ(y.dtype(), x.dtype());
  }
}

TEST(DLPack, EveryDType) {
  for (int i = 0; i < kDTypes; ++i) {
    const auto d = static_cast<DType>(i);
    EXPECT_EQ(Tensor::from_dlpack(Tensor::wrap(memory, kCpu, d, {4}).to_dlpack_versioned()).dtype(), d);
  }
}

TEST(DLPack, ReadOnlyGoesOnlyThroughTheNewForm) {
  const Tensor x = at(0, {2}, {}, true);
  EXPECT_TRUE(Tensor::from_dlpack(x.to_dlpack_versioned()).read_only());
  EXPECT_THROW(x.to_dlpack(), UnsupportedError);
}

TEST(DLPack, AnExportKeepsTheMemory) {
  auto owner = std::make_shared<std::vector<float>>(3);
  std::weak_ptr<void> watch = owner;
  DLManagedTensor* managed = Tensor::wrap(owner->data(), kCpu, float32, {3}, {}, owner).to_dlpack();
  owner.reset();
  EXPECT_FALSE(watch.expired());
  managed->deleter(managed);
  EXPECT_TRUE(watch.expired());
}

TEST(DLPack, WhatIsRefusedIsReleased) {
  static int released;
  released = 0;
  int64_t shape[] = {2};
  const auto managed = [&](uint32_t major, DLDataType dtype, DLDevice device) {
    auto* m = new DLManagedTensorVersioned{{major, 0},
                                           nullptr,
                                           [](DLManagedTensorVersioned* self) { ++released, delete self; },
                                           0,
                                           {memory, device, 1, dtype, shape, nullptr, 0}};
    return Tensor::from_dlpack(m);
  };
  const DLDataType f32{kDlFloat, 32, 1};
  EXPECT_THROW(managed(2, f32, {kDlCpu, 0}), UnsupportedError);
  EXPECT_THROW(managed(1, {kDlFloat, 32, 4}, {kDlCpu, 0}), DTypeError);
  EXPECT_THROW(managed(1, f32, {12, 0}), DeviceError);
  shape[0] = -2;
  EXPECT_THROW(managed(1, f32, {kDlCpu, 0}), ShapeError);
  EXPECT_EQ(released, 4);
}

TEST(Output, ResultsOfOneCallDoNotShareElements) {
  const auto check = [](const Tensor& a, const Tensor& b, const Tensor& c = {}) {
    check_distinct_outputs("op", {&a, &b, &c});
  };
  check(at(0, {2, 3}), at(6, {2, 3}));
  check(at(0, {4}, {2}), at(1, {4}, {2}));  // interleaved
  check(at(0, {2, 3}), {}, at(6, {4}));
  check(at(0, {4}), at(2, {0}));  // nothing lies inside
  EXPECT_THROW(check(at(0, {4}), at(3, {4})), ValueError);
  EXPECT_THROW(check(at(0, {4}, {2}), at(2, {4}, {2})), ValueError);
  EXPECT_THROW(check(at(0, {2, 3}), at(10, {2}), at(5, {4})), ValueError);
  const Tensor places = Tensor::wrap(memory + 2, kCpu, int64, {4});
  EXPECT_NE(error_of<ValueError>([&] { check(at(0, {4}), places); }).find("number 0 with number 1"), std::string::npos);
}

TEST(Tensor, HasNoWayToTheMetaDevice) {
  const std::string text = error_of<DeviceError>([] { at(0, {2}).to(Device{DeviceType::kMeta, 0}); });
  EXPECT_NE(text.find("got meta"), std::string::npos) << text;
}

TEST(DLPack, AContradictoryTensorIsRefusedBeforeItIsRead) {
  int64_t shape[] = {2, 3}, strides[] = {3, 1};
  const auto import = [&](DLTensor t) {
    auto* m = new DLManagedTensor{t, nullptr, [](DLManagedTensor* self) { delete self; }};
    return Tensor::from_dlpack(m);
  };
  const DLTensor good{memory, {kDlCpu, 0}, 2, {kDlFloat, 32, 1}, shape, strides, 0};
  const auto with = [&](auto change) {
    DLTensor t = good;
    change(t);
    return t;
  };
  EXPECT_EQ(import(good).shape(), (Dims{2, 3}));
  EXPECT_THROW(import(with([](DLTensor& t) { t.ndim = -1; })), ShapeError);
  EXPECT_THROW(import(with([](DLTensor& t) { t.ndim = 65; })), ShapeError);
  EXPECT_THROW(import(with([](DLTensor& t) { t.shape = nullptr; })), ShapeError);
  EXPECT_THROW(import(with([](DLTensor& t) { t.data = nullptr; })), ValueError);
  EXPECT_THROW(import(with([](DLTensor& t) { t.byte_offset = 2; })), ValueError);
  EXPECT_THROW(import(with([](DLTensor& t) { t.byte_offset = uint64_t{1} << 63; })), ValueError);
  strides[0] = int64_t{1} << 62;
  EXPECT_THROW(import(good), ValueError);
  shape[0] = 0;  // of an empty tensor neither the strides nor the memory mean anything
  EXPECT_EQ(import(with([](DLTensor& t) { t.data = nullptr; })).numel(), 0);
}

}  // namespace
}  // namespace tenor::core
