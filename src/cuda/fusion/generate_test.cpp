// The text of fused kernels: on machines without a GPU it is compiled, but not run.
#include "src/cuda/fusion/generate.h"

#include "src/cuda/fusion/executor.h"
#include "src/cuda/fusion/program_testing.h"

namespace tenor::cuda {
namespace {

using elementwise::Op;
using testing::Beside;
using testing::Draw;

void expect_compiles(const fusion::Program& program, const FusedOptions& options = {}) {
  const FusedKernel kernel = generate_kernel(program, options);
  try {
    EXPECT_FALSE(compile_cubin("fused kernel", kernel.text, prelude(), {9, 0}).empty());
  } catch (const Error& e) {
    ADD_FAILURE() << e.what() << "\n" << kernel.text;
  }
}

class FusedTextTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!why_no_nvrtc().empty()) GTEST_SKIP() << why_no_nvrtc();
  }
};

TEST_F(FusedTextTest, EveryOperatorOfEveryDtypeCompiles) {
  for (const DType dtype : {float32, bfloat16, float64, int32, uint64, boolean}) {
    Draw draw(1);
    Beside b({4, 16}, 0);
    const int x = b.load(draw.dense({4, 16}, dtype)), y = b.load(draw.dense({4, 16}, dtype));
    testing::add_every_operator(b, x, y, kCpu);
    expect_compiles(b.program, {.most_width = dtype == bfloat16 ? 2 : 1});  // wider ones take longer
  }
}

TEST_F(FusedTextTest, RandomProgramsCompile) {
  Draw draw(2);
  for (int i = 0; i < 24; ++i) {
    const int reduced = i % 3;
    const Dims shape = testing::any_shape(draw, reduced);
    testing::RandomProgram random(draw, kCpu, shape, reduced, 3 + i % 6);
    if (!why_not_fused(random.beside.program).empty()) continue;
    expect_compiles(random.beside.program, {.most_width = i % 4 == 3 ? 2 : 8, .hold = i % 2 == 0});
  }
}

TEST_F(FusedTextTest, SingleElementsCompile) {
  for (const Dims& shape : {Dims{}, Dims{1, 1}}) {
    Beside b(shape, 0);
    const int x = b.load(Tensor::empty(shape, float32));
    b.store(b.map(Op::kMul, {x, x}), Tensor::empty(shape, float32));
    expect_compiles(b.program);
  }
}

TEST_F(FusedTextTest, DeviationsAndLogSumsCompile) {
  Draw draw(3);
  for (const Dims& shape : {Dims{300, 20}, Dims{300, 1000}, Dims{100, 9000}, Dims{4000, 4096}})
    for (const DType dtype : {bfloat16, float32}) {
      Beside b(shape, 1);
      const int x = b.load(Tensor::empty(shape, dtype)), twice = b.map(Op::kMul, {x, 2.0});
      const int apart = b.map(Op::kSub, {twice, b.reduce(reduce::Op::kStd, twice)});
      b.store(b.map(Op::kSub, {apart, b.reduce(reduce::Op::kLogSumExp, apart)}), Tensor::empty(shape, dtype));
      ASSERT_EQ(why_not_fused(b.program), "");
      expect_compiles(b.program);
    }
}

/// x of [rows, n] divided by its rows' sums.
Beside shares(int64_t rows, int64_t n, DType dtype) {
  Beside b({rows, n}, 1);
  const int x = b.load(Tensor::empty({rows, n}, dtype));
  const int y = b.map(Op::kDiv, {x, b.reduce(reduce::Op::kSum, x)});
  b.store(y, Tensor::empty({rows, n}, dtype));
  return b;
}

TEST_F(FusedTextTest, TextDoesNotHangOnSizes) {
  EXPECT_EQ(generate_kernel(shares(200, 8192, bfloat16).program).text,
            generate_kernel(shares(100, 8192, bfloat16).program).text);
  EXPECT_EQ(generate_kernel(shares(100, 5000, bfloat16).program).text,
            generate_kernel(shares(100, 4104, bfloat16).program).text);
  EXPECT_NE(generate_kernel(shares(100, 5000, bfloat16).program).text,
            generate_kernel(shares(100, 5000, float16).program).text);
}

TEST_F(FusedTextTest, SaysHowRowsLie) {
  EXPECT_EQ(generate_kernel(shares(100, 8192, bfloat16).program).layout, "rows of 8192 held by 8 warps");
  EXPECT_EQ(generate_kernel(shares(100, 64, bfloat16).program).layout, "rows of 64 held by 8 lanes");
  EXPECT_EQ(generate_kernel(shares(100, 400000, float32).program).layout,
            "rows of 400000 read again by each pass of 16 warps");
}

TEST_F(FusedTextTest, SaysWhyNot) {
  EXPECT_EQ(why_not_fused(shares(100, 8192, bfloat16).program), "");
  for (const auto& shape : {Dims{100, 600000}, Dims{3, 100000}})
    EXPECT_EQ(why_not_fused(shares(shape[0], shape[1], bfloat16).program),
              "its rows are long or few, so that several thread blocks share each and do not meet before the end");
  Beside columns({1000, 1000}, 1);
  const int x = columns.load(Tensor::empty({1000000}, float32).with_layout({1000, 1000}, {1, 1000}, 0));
  columns.store(columns.reduce(reduce::Op::kSum, x), Tensor::empty({1000, 1}, float32));
  EXPECT_EQ(why_not_fused(columns.program), "its rows lie across memory");
}

TEST_F(FusedTextTest, CompilersLogIsInTheError) {
  try {
    compile_cubin("wrong", "int main( {", {}, {9, 0});
    ADD_FAILURE() << "compiled";
  } catch (const CudaError& e) {
    EXPECT_NE(std::string(e.what()).find("wrong(1)"), std::string::npos) << e.what();
  }
  EXPECT_THROW(compile_cubin("old", "", {}, {2, 0}), UnsupportedError);
}

}  // namespace
}  // namespace tenor::cuda
