// Views: each result against index arithmetic on random shapes and layouts, memory shared, and the errors of the
// contract.
#include "tenor/view.h"

#include <gtest/gtest.h>

#include <random>

#include "src/core/step.h"
#include "src/ops/view/view_reference.h"

namespace tenor {
namespace {

using reference::elements;
using reference::shown;

/// 0, 1, 2, ... in a random layout: permuted, cut out of a larger tensor, or plain.
Tensor counting(const Dims& shape, std::mt19937& rng) {
  Dims padded = shape;
  for (int64_t& size : padded) size += rng() % 2;
  Dims order(shape.size(), 0);
  for (size_t d = 0; d < order.size(); ++d) order[d] = static_cast<int64_t>(d);
  std::shuffle(order.begin(), order.end(), rng);
  Dims strides(shape.size(), 0);
  int64_t step = 1;
  for (int64_t d : order) {
    strides[d] = step;
    step *= std::max<int64_t>(padded[d], 1);
  }
  Tensor memory = Tensor::empty({std::max<int64_t>(step, 1)}, int64);
  for (int64_t i = 0; i < memory.numel(); ++i) memory.data<int64_t>()[i] = i;
  return memory.with_layout(shape, strides, 0);
}

Dims random_shape(std::mt19937& rng, int low = 1, int high = 4) {
  Dims shape;
  for (int n = low + static_cast<int>(rng() % (high - low + 1)); n > 0; --n)
    shape.push_back(static_cast<int64_t>(rng() % 6));
  return shape;
}

template <class E, class F>
void expect_error(F&& call, std::initializer_list<const char*> mentions) {
  try {
    call();
  } catch (const E& e) {
    for (const char* word : mentions)
      EXPECT_NE(std::string(e.what()).find(word), std::string::npos) << e.what() << " lacks " << word;
    return;
  }
  FAIL() << "no error of the expected class";
}

TEST(View, MatchesRowMajorOrderOrSaysWhyNot) {
  std::mt19937 rng(1);
  int views = 0, refusals = 0;
  for (int draw = 0; draw < 3000; ++draw) {
    const Tensor x = counting(random_shape(rng), rng);
    Dims shape = x.shape();  // merge two neighbours, or split one
    const size_t d = rng() % shape.size();
    if (rng() % 2 && d + 1 < shape.size()) {
      shape[d] *= shape[d + 1];
      shape.erase(d + 1);
    } else if (shape[d] % 2 == 0) {
      shape[d] /= 2;
      shape.insert(d + 1, 2);
    }
    EXPECT_EQ(elements(reshape(x, shape)), elements(x));
    try {
      const Tensor v = view(x, shape);
      EXPECT_EQ(v.storage(), x.storage());
      EXPECT_EQ(elements(v), elements(x));
      ++views;
    } catch (const ShapeError& e) {
      EXPECT_NE(std::string(e.what()).find("use reshape"), std::string::npos);
      EXPECT_NE(reshape(x, shape).storage(), x.storage());
      ++refusals;
    }
  }
  EXPECT_GT(views, 500);
  EXPECT_GT(refusals, 100);
}

TEST(View, IgnoresStridesOfSizeOneDims) {
  Tensor base = Tensor::empty({3000}, int64);
  for (int64_t i = 0; i < 3000; ++i) base.data<int64_t>()[i] = i;
  const Tensor junk = base.with_layout({2, 1, 3}, {3, 999, 1}, 0);
  EXPECT_EQ(elements(view(junk, {6})), (std::vector<int64_t>{0, 1, 2, 3, 4, 5}));
  EXPECT_TRUE(junk.is_contiguous());
  EXPECT_EQ(view(Tensor::empty({0, 3}, int64), {0, 5}).shape(), (Dims{0, 5}));
  EXPECT_EQ(view(Tensor::empty({}, int64), {1, 1}).shape(), (Dims{1, 1}));
}

TEST(View, MovesDims) {
  std::mt19937 rng(2);
  for (int draw = 0; draw < 500; ++draw) {
    const Tensor x = counting(random_shape(rng, 2, 4), rng);
    const int n = x.ndim(), a = static_cast<int>(rng() % n), b = static_cast<int>(rng() % n);
    Dims swapped = x.shape();
    std::swap(swapped[a], swapped[b]);
    EXPECT_EQ(elements(transpose(x, a, b - n)), shown(x, swapped, [&](Dims at) {
                std::swap(at[a], at[b]);
                return at;
              }));
    Dims order(n, 0);
    for (int d = 0; d < n; ++d) order[d] = d;
    std::shuffle(order.begin(), order.end(), rng);
    Dims shape(n, 0);
    for (int d = 0; d < n; ++d) shape[d] = x.shape()[order[d]];
    const auto permuted = shown(x, shape, [&](const Dims& at) {
      Dims source(n, 0);
      for (int d = 0; d < n; ++d) source[order[d]] = at[d];
      return source;
    });
    EXPECT_EQ(elements(permute(x, order)), permuted);
    Dims places(n, 0);
    for (int d = 0; d < n; ++d) places[d] = d;
    EXPECT_EQ(elements(movedim(x, order, places)), permuted);  // dim order[d] goes to place d
  }
}

TEST(View, CutsAlongADim) {
  std::mt19937 rng(3);
  for (int draw = 0; draw < 1000; ++draw) {
    const Tensor x = counting(random_shape(rng), rng);
    const int d = static_cast<int>(rng() % x.ndim());
    const int64_t size = x.shape(d), start = static_cast<int64_t>(rng() % (size + 1)),
                  length = static_cast<int64_t>(rng() % (size - start + 1));
    Dims shape = x.shape();
    shape[d] = length;
    const auto cut = shown(x, shape, [&](Dims at) {
      at[d] += start;
      return at;
    });
    EXPECT_EQ(elements(narrow(x, d, start, length)), cut);
    EXPECT_EQ(elements(slice(x, d, start, start + length)), cut);
    const int64_t step = 1 + static_cast<int64_t>(rng() % 3);
    shape[d] = (size - start + step - 1) / step;
    EXPECT_EQ(elements(slice(x, d, start, {}, step)), shown(x, shape, [&](Dims at) {
                at[d] = start + at[d] * step;
                return at;
              }));
    int64_t total = 0;
    for (const Tensor& piece : split(x, std::max<int64_t>(length, 1), d)) total += piece.shape(d);
    EXPECT_EQ(total, size);
    EXPECT_EQ(static_cast<int64_t>(unbind(x, d).size()), size);
    for (int64_t i = 0; i < size; ++i) EXPECT_EQ(elements(select(x, d, i - size)), elements(unbind(x, d)[i]));
  }
}

TEST(View, WindowsAndDiagonals) {
  std::mt19937 rng(4);
  for (int draw = 0; draw < 500; ++draw) {
    const Tensor x = counting(random_shape(rng, 2, 3), rng);
    const int d = static_cast<int>(rng() % x.ndim());
    const int64_t size = static_cast<int64_t>(rng() % (x.shape(d) + 1)), step = 1 + static_cast<int64_t>(rng() % 2);
    const Tensor w = unfold(x, d, size, step);
    EXPECT_EQ(w.shape(d), (x.shape(d) - size) / step + 1);
    EXPECT_EQ(elements(w), shown(x, w.shape(), [&](Dims at) {
                at[d] = at[d] * step + at.back();
                at.pop_back();
                return at;
              }));
    const int64_t offset = static_cast<int64_t>(rng() % 7) - 3;
    const Tensor g = diagonal(x, offset, 0, 1);
    EXPECT_EQ(elements(g), shown(x, g.shape(), [&](const Dims& at) {
                Dims source{at.back() + std::max<int64_t>(-offset, 0), at.back() + std::max<int64_t>(offset, 0)};
                for (size_t i = 0; i + 1 < at.size(); ++i) source.push_back(at[i]);
                return source;
              }));
  }
}

TEST(View, ExpandsSizeOneByStrideZero) {
  std::mt19937 rng(5);
  const Tensor x = counting({3, 1, 2}, rng), e = expand(x, {4, -1, 5, -1});
  EXPECT_EQ(e.shape(), (Dims{4, 3, 5, 2}));
  EXPECT_EQ(e.stride(0), 0);
  EXPECT_EQ(e.stride(2), 0);
  EXPECT_EQ(elements(e), shown(x, e.shape(), [](const Dims& at) { return Dims{at[1], 0, at[3]}; }));
  EXPECT_EQ(squeeze(unsqueeze(x, -1)).shape(), (Dims{3, 2}));
  EXPECT_EQ(squeeze(x, {0, 1}).shape(), (Dims{3, 2}));
  EXPECT_EQ(unflatten(flatten(x), 0, {2, -1}).shape(), (Dims{2, 3}));
}

TEST(View, ErrorsNameOperatorArgumentAndSizes) {
  const Tensor x = Tensor::empty({2, 6}, float32), scalar = Tensor::empty({}, float32);
  expect_error<ShapeError>([&] { view(x, {5, -1}); }, {"view", "5", "12"});
  expect_error<ShapeError>([&] { view(x, {-1, -1}); }, {"view", "-1"});
  expect_error<ShapeError>([&] { view(Tensor::empty({0, 3}, float32), {-1, 0}); }, {"view", "-1", "not determined"});
  expect_error<ShapeError>([&] { reshape(x, {7}); }, {"reshape", "7", "12"});
  expect_error<IndexError>([&] { transpose(x, 0, 2); }, {"transpose", "dim1", "2"});
  expect_error<ValueError>([&] { permute(x, {0, 0}); }, {"permute", "twice"});
  expect_error<ValueError>([&] { permute(x, {0}); }, {"permute", "2 dims"});
  EXPECT_EQ(broadcast_to(x, {5, -1, -1}).shape(), (Dims{5, 2, 6}));
  expect_error<ShapeError>([&] { broadcast_to(x, {-1, 2, 6}); }, {"broadcast_to", "-1"});
  expect_error<ShapeError>([&] { broadcast_to(x, {2, 7}); }, {"broadcast_to", "6", "7"});
  expect_error<ShapeError>([&] { expand(x, {6}); }, {"expand", "fewer"});
  expect_error<ValueError>([&] { slice(x, 0, 1, 0, -1); }, {"slice", "step", "-1"});
  expect_error<ShapeError>([&] { unsqueeze(Tensor::empty(Dims(64, 1), int64), 0); }, {"unsqueeze", "at most 64", "65"});
  expect_error<IndexError>([&] { narrow(x, 1, 4, 3); }, {"narrow", "start 4", "length 3", "6"});
  expect_error<IndexError>([&] { narrow(x, 1, 1, -1); }, {"narrow", "length", "-1"});
  expect_error<IndexError>([&] { narrow(x, 1, 7, 0); }, {"narrow", "start 7"});
  expect_error<IndexError>([&] { narrow(x, 1, 1, INT64_MAX); }, {"narrow", "length 9223372036854775807", "6"});
  expect_error<IndexError>([&] { select(x, 1, 6); }, {"select", "6"});
  expect_error<IndexError>([&] { select(scalar, 0, 0); }, {"select", "no dims"});
  expect_error<ShapeError>([&] { split(x, Dims{2, 2}, 1); }, {"split", "sum to 4", "6"});
  expect_error<ShapeError>(
      [&] {
        split(x, Dims{1LL << 62, 1LL << 62, 1LL << 62, 1LL << 62, 6}, 1);
      },
      {"split", "sum to more", "6"});
  expect_error<ValueError>([&] { split(x, int64_t{0}, 1); }, {"split", "0"});
  expect_error<ValueError>([&] { chunk(x, 0); }, {"chunk", "0"});
  EXPECT_EQ(chunk(x, INT64_MAX, 1).size(), 6u);  // no more pieces than elements
  expect_error<ValueError>([&] { chunk(Tensor::empty({0}, float32), INT64_MAX); },
                           {"chunk", "at most", "9223372036854775807"});
  expect_error<ValueError>([&] { split(expand(Tensor::empty({1}, float32), {INT64_MAX}), 1); }, {"split", "at most"});
  expect_error<ValueError>([&] { unbind(expand(Tensor::empty({1}, float32), {INT64_MAX})); }, {"unbind", "at most"});
  EXPECT_EQ(chunk(Tensor::empty({0, 2}, float32), 3).size(), 3u);
  EXPECT_EQ(unfold(x, 1, 2, INT64_MAX).shape(), (Dims{2, 1, 2}));
  for (int64_t offset : {INT64_MIN, INT64_MIN + 1, INT64_MAX}) EXPECT_EQ(diagonal(x, offset).shape(), (Dims{0}));
  expect_error<ShapeError>([&] { view(x, {INT64_MAX, 4}); }, {"view", "64 bits"});
  expect_error<ShapeError>([&] { view(x, {int64_t{1} << 32, int64_t{1} << 32, 0}); }, {"view", "64 bits"});
  expect_error<ShapeError>([&] { unfold(x, 0, 3, 1); }, {"unfold", "3", "2"});
  expect_error<ValueError>([&] { diagonal(x, 0, 1, -1); }, {"diagonal", "both"});
  expect_error<DTypeError>([&] { view(Tensor(), {1}); }, {"view", "x"});
}

/// Keeps what operators state.
struct Recorder : core::Tracer {
  std::vector<core::Step> steps;
  void record(const core::Step& step) override { steps.push_back(step); }
};

TEST(View, StatesItsStepAndItsCopies) {
  Recorder recorder;
  const core::TracerGuard guard(&recorder);
  const Tensor x = Tensor::empty({4, 6}, float32), t = transpose(x, 0, 1);
  reshape(t, {24});
  view(x, {24});
  ASSERT_EQ(recorder.steps.size(), 3u);
  EXPECT_STREQ(recorder.steps[0].op, "transpose");
  EXPECT_TRUE(recorder.steps[0].copies.empty());
  ASSERT_EQ(recorder.steps[1].copies.size(), 1u);
  EXPECT_EQ(recorder.steps[1].copies[0].bytes, 96);
  for (const core::Step& step : recorder.steps) EXPECT_EQ(step.op_class, core::OpClass::kView);
}

TEST(View, WorksOnShapesWithoutMemory) {
  const Tensor x = Tensor::empty({4, 6}, float32, {DeviceType::kMeta, 0});
  EXPECT_EQ(reshape(transpose(x, 0, 1), {8, 3}).shape(), (Dims{8, 3}));
  EXPECT_EQ(diagonal(unfold(x, 1, 3, 1)).shape(), (Dims{3, 4}));
}

TEST(View, OffsetsBeyondTwoToThe31) {
  // Only addresses are computed: the memory is never touched.
  const Tensor x = Tensor::wrap(reinterpret_cast<void*>(uintptr_t{4096}), kCpu, float32, {3LL << 30, 4});
  EXPECT_EQ(select(x, 0, (3LL << 30) - 1).offset(), ((3LL << 30) - 1) * 4);
  EXPECT_EQ(view(x, {-1}).shape(0), 3LL << 32);
}

}  // namespace
}  // namespace tenor
