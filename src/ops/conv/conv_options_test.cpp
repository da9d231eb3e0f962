// The contract's errors, and that nothing is written before them.
#include <functional>

#include "src/ops/conv/conv_testing.h"

namespace tenor::testing {
namespace {

Tensor ones(const Dims& shape, DType dtype = float32) { return full(shape, dtype, 1); }

TEST(ConvErrors, Channels) {
  const auto forward = [](const Dims& image, const Dims& filter, int64_t groups) {
    return [=] { conv_forward(ones(image), ones(filter), {}, {.groups = groups}); };
  };
  expect_error<ShapeError>(forward({1, 3, 5, 5}, {4, 1, 3, 3}, 2),
                           "conv_forward: input has 3 channels, which groups 2 does not divide");
  expect_error<ShapeError>(forward({1, 4, 5, 5}, {5, 2, 3, 3}, 2),
                           "conv_forward: weight has 5 output channels, which groups 2 does not divide");
  expect_error<ShapeError>(forward({1, 4, 5, 5}, {4, 4, 3, 3}, 2),
                           "conv_forward: weight must have 2 channels (input's 4 over groups 2), got 4");
  expect_error<ShapeError>(forward({1, 32, 32, 3}, {8, 5, 5, 3}, 1),
                           "conv_forward: weight must have 32 channels (input's 32 over groups 1), got 5; channels "
                           "last are conv_forward_nhwc's");
  expect_error<ValueError>(forward({1, 4, 5, 5}, {4, 4, 3, 3}, 0), "conv_forward: groups must be at least 1, got 0");
  expect_error<ShapeError>(forward({4, 5, 5}, {4, 4, 3, 3}, 1),
                           "conv_forward: weight must have input's 3 dims, got 4 with shape (4, 4, 3, 3)");
  expect_error<ShapeError>(forward({4, 5}, {4, 4}, 1),
                           "conv_forward: input must have 3 to 5 dims (batch, channels and 1 to 3 spatial ones), got 2 "
                           "with shape (4, 5)");
}

TEST(ConvErrors, Options) {
  const auto forward = [](const ConvOptions& o) {
    return [=] { conv_forward(ones({1, 2, 5, 5}), ones({3, 2, 3, 3}), {}, o); };
  };
  expect_error<ValueError>(forward({.stride = {0}}), "conv_forward: stride must be at least 1 in every dim, got (0,)");
  expect_error<ValueError>(forward({.stride = {1, 1, 1}}),
                           "conv_forward: stride must be one number or 2, one a spatial dim, got (1, 1, 1)");
  expect_error<ValueError>(forward({.dilation = {1, 0}}),
                           "conv_forward: dilation must be at least 1 in every dim, got (1, 0)");
  expect_error<ValueError>(forward({.padding = -1}),
                           "conv_forward: padding must be at least 0 in every dim, got (-1,)");
  expect_error<ValueError>(forward({.padding = "full"}),
                           "conv_forward: padding must be numbers, 'valid' or 'same', got 'full'");
  expect_error<ValueError>(forward({.padding = ""}),
                           "conv_forward: padding must be numbers, 'valid' or 'same', got ''");
  expect_error<ValueError>(forward({.stride = {2, 1}, .padding = "same"}),
                           "conv_forward: padding 'same' takes stride 1, got (2, 1)");
  expect_error<ValueError>(
      forward({.strategy = "fft"}),
      "conv_forward: strategy must be one of 'auto', 'direct', 'vendor', 'implicit_gemm', got 'fft'");
  expect_error<ValueError>(forward({.dilation = {int64_t{1} << 31}}),
                           "conv_forward: weight makes a window of (3 - 1) * 2147483648 + 1 inputs, more than 2^31");
}

TEST(ConvErrors, KernelLargerThanThePaddedInput) {
  expect_error<ShapeError>(
      [] {
        conv_forward(ones({1, 1, 4}), ones({1, 1, 3}), {}, {.dilation = {2}});
      },
      "conv_forward: weight's kernel spans 5 in dim 0 (size 3, dilation 2), but input has 4 there, "
      "with padding 4");
  EXPECT_THROW(conv_weight_backward(ones({1, 1, 2}), ones({1, 1, 1}), {1, 1, 3}), ShapeError);
  EXPECT_THROW(conv_forward(ones({1, 1, 4}), ones({1, 1, 0})), ShapeError);
}

TEST(ConvErrors, Gradients) {
  expect_error<ShapeError>(
      [] {
        conv_data_backward(ones({1, 2, 3}), ones({2, 1, 3}), {1, 1, 6});
      },
      "conv_data_backward: grad_output must have shape (1, 2, 4), got (1, 2, 3)");
  expect_error<ShapeError>(
      [] {
        conv_data_backward(ones({1, 2, 3}), ones({2, 1, 3}), {1, 6});
      },
      "conv_data_backward: input_shape must have 3 sizes, got (1, 6)");
  expect_error<ShapeError>(
      [] {
        conv_weight_backward(ones({1, 1, 5}), ones({1, 2, 3}), {3, 1, 3});
      },
      "conv_weight_backward: grad_output must have shape (1, 3, 3), got (1, 2, 3)");
  expect_error<ShapeError>(
      [] {
        conv_weight_backward(ones({1, 1, 5}), ones({1, 2, 3}), {2, 1, -3});
      },
      "conv_weight_backward: weight_shape must be sizes of at least 0 and less than 2^63 bytes, got "
      "(2, 1, -3)");
}

TEST(ConvErrors, Transposed) {
  const auto transpose = [](const Dims& image, const Dims& filter, const ConvTransposeOptions& o) {
    return [=] { conv_transpose(ones(image), ones(filter), {}, o); };
  };
  expect_error<ValueError>(transpose({1, 2, 3}, {2, 1, 3}, {.stride = {2}, .output_padding = Dims{2}}),
                           "conv_transpose: output_padding must be below max(stride, dilation) = 2 in dim 0, got 2");
  expect_error<ShapeError>(transpose({1, 3, 3}, {2, 1, 3}, {}),
                           "conv_transpose: weight must have input's 3 channels first, got 2");
  expect_error<ShapeError>(transpose({1, 3, 3}, {3, 1, 3}, {.groups = 2}),
                           "conv_transpose: input has 3 channels, which groups 2 does not divide");
  expect_error<ShapeError>(transpose({1, 1, 3}, {1, 1, 3}, {.padding = 3}),
                           "conv_transpose: padding takes 6 from 5 outputs in dim 0 (input has 3)");
  expect_error<ShapeError>(
      [] {
        conv_transpose_data_backward(ones({1, 1, 9}), ones({1, 1, 3}), {1, 1, 3}, {.stride = {2}});
      },
      "conv_transpose_data_backward: grad_output has 9 in dim 0, but conv_transpose makes 7 of 3, and less than 2 "
      "more");
}

/// Whether the call throws and leaves its results as they were.
template <class E, class F>
void expect_untouched(const std::vector<Tensor>& results, F&& call) {
  for (const Tensor& x : results) assign(x, std::vector<double>(static_cast<size_t>(x.numel()), 7));
  EXPECT_THROW(call(), E);
  for (const Tensor& x : results)
    EXPECT_EQ(values(x), std::vector<double>(static_cast<size_t>(x.numel()), 7)) << "was written";
}

TEST(ConvErrors, NothingIsWritten) {
  const Tensor out = ones({1, 1, 2});
  expect_untouched<ShapeError>({out}, [&] {
    conv_forward(ones({1, 1, 3}), ones({1, 1, 2}), {}, {.padding = 1, .out = out});
  });
  expect_untouched<DTypeError>({out}, [&] {
    conv_forward(ones({1, 1, 3}, float16), ones({1, 1, 2}, float16), {}, {.out = out});
  });
  expect_untouched<ValueError>({out}, [&] {
    conv_forward(ones({1, 1, 3}), ones({1, 1, 2}), {}, {.strategy = "fft", .out = out});
  });
  EXPECT_THROW(conv_forward(ones({1, 1, 3}, int32), ones({1, 1, 2}, int32)), DTypeError);
  EXPECT_THROW(conv_forward(ones({1, 1, 3}), ones({1, 1, 2}, float16)), DTypeError);
  EXPECT_THROW(conv_forward(ones({1, 1, 3}), ones({1, 1, 2}), ones({2})), ShapeError);
}

/// By each of the contract's own errors, in every direction.
TEST(ConvErrors, NothingIsWrittenInAnyDirection) {
  const Tensor y = ones({1, 4, 3}), x = ones({1, 4, 5}), w = ones({4, 2, 3}), wide = ones({1, 4, 7});
  const auto larger = [](const Tensor& out) { return ConvOptions{.dilation = {3}, .groups = 2, .out = out}; };
  const auto thirds = [](const Tensor& out) { return ConvOptions{.groups = 3, .out = out}; };
  for (const auto& options : {std::function<ConvOptions(const Tensor&)>(larger), {thirds}}) {
    expect_untouched<ShapeError>({y}, [&] { conv_forward(x, w, {}, options(y)); });
    expect_untouched<ShapeError>({x}, [&] { conv_data_backward(y, w, x.shape(), options(x)); });
    expect_untouched<ShapeError>({w}, [&] { conv_weight_backward(x, y, w.shape(), options(w)); });
  }
  const ConvTransposeOptions far{.stride = {2}, .groups = 2, .output_padding = Dims{2}, .out = wide};
  expect_untouched<ValueError>({wide}, [&] { conv_transpose(y, w, {}, far); });
  ConvTransposeOptions thirds_too{.stride = {2}, .groups = 3};
  thirds_too.out = y;
  expect_untouched<ShapeError>({y}, [&] { conv_transpose_data_backward(wide, w, y.shape(), thirds_too); });
  thirds_too.out = w;
  expect_untouched<ShapeError>({w}, [&] { conv_transpose_weight_backward(y, wide, w.shape(), thirds_too); });
}

TEST(ConvErrors, ANamedStrategyNeverTurnsIntoAnother) {
  const Tensor x = ones({1, 1, 3}, float64);
  try {
    conv_forward(x, x, {}, {.strategy = "vendor"});
    ADD_FAILURE() << "no error";
  } catch (const UnsupportedError& e) {  // which reason depends on the build
    EXPECT_EQ(std::string(e.what()).rfind("conv_forward: strategy 'vendor' cannot do this: ", 0), 0u) << e.what();
  }
}

TEST(ConvPaddings, EveryForm) {
  const Tensor x = list({1, 2, 3}).with_layout({1, 1, 3}, {3, 3, 1}, 0),
               w = list({1, 10}).with_layout({1, 1, 2}, {2, 2, 1}, 0);
  const auto y = [&](const ConvPadding& padding, const Dims& dilation = {1}) {
    return values(conv_forward(x, w, {}, {.padding = padding, .dilation = dilation}));
  };
  using V = std::vector<double>;
  EXPECT_EQ(y("same"), (V{21, 32, 3}));
  EXPECT_EQ(y("same", {3}), (V{30, 1, 2}));
  EXPECT_EQ(y("valid"), (V{21, 32}));
  EXPECT_EQ(y(1), (V{10, 21, 32, 3}));
  EXPECT_EQ(y({1}), (V{10, 21, 32, 3}));
  EXPECT_EQ(y({Dims{2}, Dims{0}}), (V{0, 10, 21, 32}));
}

}  // namespace
}  // namespace tenor::testing
