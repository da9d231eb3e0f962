// Every small window, against the sentence that defines it: tap k of output o lies on input o * stride + k * dilation -
// before.
#include "src/core/window.h"

#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "tenor/error.h"

namespace tenor::core {
namespace {

void for_every_window(const std::function<void(WindowDim)>& check) {
  for (int64_t input = 0; input <= 6; ++input)
    for (int64_t kernel = 1; kernel <= 4; ++kernel)
      for (int64_t stride = 1; stride <= 4; ++stride)
        for (int64_t dilation = 1; dilation <= 3; ++dilation)
          for (int64_t before = 0; before <= 5; ++before)
            for (int64_t after = 0; after <= 5; after += 2) {
              WindowDim dim{input, kernel, stride, dilation, before, after};
              dim.output = std::max<int64_t>(window_outputs(dim), 0);
              check(dim);
            }
}

bool inside(const WindowDim& dim, int64_t position) { return position >= 0 && position < dim.input; }

TEST(Window, CountsWhatFits) {
  for_every_window([](WindowDim dim) {
    for (const bool ceil_mode : {false, true}) {
      int64_t count = 0;
      for (;; ++count) {
        const int64_t begin = count * dim.stride, end = begin + dim.span(), padded = dim.input + dim.before + dim.after;
        const bool fits = end <= padded;
        // Rounded up, a window may hang over the end by less than a stride, if it begins before the padding after the
        // input.
        const bool hangs = ceil_mode && end < padded + dim.stride && begin < dim.input + dim.before;
        if (!fits && !hangs) break;
      }
      ASSERT_EQ(std::max<int64_t>(window_outputs(dim, ceil_mode), 0), count)
          << dim.input << " k" << dim.kernel << " s" << dim.stride << " d" << dim.dilation << " p" << dim.before << ","
          << dim.after << " " << ceil_mode;
    }
  });
}

TEST(Window, TapsAndOutputsAreInverse) {
  for_every_window([](WindowDim dim) {
    for (int64_t out = 0; out < dim.output; ++out)
      for (int64_t tap = 0; tap < dim.kernel; ++tap) {
        const int64_t position = out * dim.stride + tap * dim.dilation - dim.before;
        ASSERT_EQ(dim.position(out, tap), position);
        const WindowRange taps = dim.taps(out), outputs = dim.outputs(tap);
        ASSERT_EQ(tap >= taps.first && tap < taps.last, inside(dim, position));
        ASSERT_EQ(out >= outputs.first && out < outputs.last, inside(dim, position));
        if (inside(dim, position)) ASSERT_EQ(dim.output_at(position, tap), out);
      }
  });
}

TEST(Window, AnInputKnowsItsReaders) {
  for_every_window([](WindowDim dim) {
    for (int64_t in = 0; in < dim.input; ++in) {
      std::set<int64_t> covering;
      for (int64_t out = 0; out < dim.output; ++out)
        if (in >= dim.start(out) && in < dim.start(out) + dim.span()) covering.insert(out);
      const WindowRange range = dim.covering(in);
      ASSERT_EQ(range.count(), static_cast<int64_t>(covering.size()));
      if (!covering.empty()) ASSERT_TRUE(range.first == *covering.begin() && range.last == *covering.rbegin() + 1);
      for (int64_t tap = 0; tap < dim.kernel; ++tap) {
        const int64_t out = dim.output_at(in, tap);
        if (out >= 0) ASSERT_EQ(dim.position(out, tap), in);
        for (int64_t other = 0; other < dim.output; ++other)
          if (dim.position(other, tap) == in) ASSERT_EQ(out, other);
      }
    }
  });
}

TEST(Window, OptionsAreCheckedByName) {
  EXPECT_EQ(values_per_dim("conv_forward", "stride", {2}, 3, 1), (Dims{2, 2, 2}));
  EXPECT_EQ(values_per_dim("conv_forward", "stride", {2, 3}, 2, 1), (Dims{2, 3}));
  EXPECT_THROW(values_per_dim("conv_forward", "stride", {2, 3, 4}, 2, 1), ValueError);
  EXPECT_THROW(values_per_dim("conv_forward", "stride", {}, 2, 1), ValueError);
  EXPECT_THROW(values_per_dim("conv_forward", "stride", {0}, 2, 1), ValueError);
  EXPECT_THROW(values_per_dim("conv_forward", "padding", {int64_t{1} << 62}, 2, 0), ValueError);
  EXPECT_NO_THROW(check_span("conv_forward", "dilation", 1, int64_t{1} << 40));
  EXPECT_THROW(check_span("conv_forward", "dilation", 3, int64_t{1} << 31), ValueError);
  try {
    values_per_dim("max_pool2d", "kernel_size", {0, 2}, 2, 1);
    FAIL();
  } catch (const ValueError& error) {
    EXPECT_EQ(std::string(error.what()), "max_pool2d: kernel_size must be at least 1 in every dim, got (0, 2)");
  }
}

}  // namespace
}  // namespace tenor::core
