// Fused kernels against the eager operators that they stand for, bit for bit.
#include <atomic>
#include <thread>

#include "src/cuda/capture_testing.h"
#include "src/cuda/fusion/executor.h"
#include "src/cuda/fusion/generate.h"
#include "src/cuda/fusion/program_testing.h"
#include "src/cuda/runtime_kernel.h"
#include "tenor/elementwise.h"
#include "tenor/view.h"

namespace tenor::cuda {
namespace {

using elementwise::Op;
using fusion::Executable;
using testing::Beside;
using testing::Draw;
using testing::Given;
using testing::kGpu;

using Executables = std::vector<std::shared_ptr<const Executable>>;

/// Compiles them side by side.
Executables compiled(const std::vector<std::unique_ptr<Beside>>& all) {
  Executables out(all.size());
  std::vector<std::string> errors(all.size());
  std::atomic<size_t> next = 0;
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < std::max(1u, std::thread::hardware_concurrency()); ++t)
    threads.emplace_back([&] {
      for (size_t i; (i = next++) < all.size();) try {
          out[i] = compile_fused(all[i]->program, kGpu);
        } catch (const std::exception& e) {
          errors[i] = e.what();
        }
    });
  for (std::thread& thread : threads) thread.join();
  for (size_t i = 0; i < all.size(); ++i) EXPECT_EQ(errors[i], "") << generate_kernel(all[i]->program).text;
  return out;
}

void expect_equals_eager(const Beside& b, const std::string& what) {
  for (const auto& [from, out] : b.stored)
    EXPECT_TRUE(testing::same_elements(testing::on_cpu(out), testing::on_cpu(b.value(from))))
        << what << ": v" << from << ", " << name(out.dtype()) << ", kernel of " << generate_kernel(b.program).layout
        << "\n"
        << generate_kernel(b.program).text;
}

void expect_all_equal_eager(const std::vector<std::unique_ptr<Beside>>& all, const std::string& what) {
  const Executables executables = compiled(all);
  for (size_t i = 0; i < all.size(); ++i)
    if (executables[i]) executables[i]->run(all[i]->pointers);
  for (size_t i = 0; i < all.size() && !::testing::Test::HasFailure(); ++i)
    expect_equals_eager(*all[i], what + " " + std::to_string(i));
}

class FusedCudaTest : public testing::CudaTest {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    if (!IsSkipped() && !why_no_nvrtc().empty()) GTEST_SKIP() << why_no_nvrtc();
  }
};

/// Ten at a time, so that they are compiled side by side.
std::vector<std::unique_ptr<Beside>> every_operator(DType dtype) {
  std::vector<std::unique_ptr<Beside>> all;
  Draw draw(static_cast<uint32_t>(dtype) + 1);
  Tensor x = Tensor::empty({3, 88}, dtype), y = Tensor::empty({3, 88}, dtype);
  testing::fill_any(draw, x);
  testing::fill_any(draw, y);
  x = testing::on_gpu(x), y = testing::on_gpu(y);
  for (size_t from = 0; from < elementwise::table().size(); from += 10) {
    auto b = std::make_unique<Beside>(Dims{3, 88}, 0);
    const int a = b->load(x), c = b->load(y);
    testing::add_every_operator(*b, a, c, kGpu, from, from + 10);
    if (!b->stored.empty()) all.push_back(std::move(b));
  }
  return all;
}

TEST_F(FusedCudaTest, EveryOperatorEqualsTheEagerOne) {
  for (const DType dtype : {bfloat16, float16, float32, float64, int8, int32, int64, uint8, uint64, boolean})
    expect_all_equal_eager(every_operator(dtype), std::string(name(dtype)));
}

void expect_random_programs_equal(uint32_t seed, int reduced, int count) {
  std::vector<std::unique_ptr<Beside>> all;
  Draw draw(seed);
  for (int i = 0; i < count; ++i) {
    const Dims shape = testing::any_shape(draw, reduced);
    testing::RandomProgram random(draw, kGpu, shape, reduced, 2 + static_cast<int>(draw.upto(8)));
    if (why_not_fused(random.beside.program).empty()) all.push_back(std::make_unique<Beside>(std::move(random.beside)));
  }
  EXPECT_GT(all.size(), static_cast<size_t>(count) / 3);
  expect_all_equal_eager(all, "random program of " + std::to_string(reduced) + " reduced dims");
}

TEST_F(FusedCudaTest, RandomLoopsEqualEagerOperators) { expect_random_programs_equal(1, 0, 150); }
TEST_F(FusedCudaTest, RandomRowsEqualEagerOperators) { expect_random_programs_equal(2, 1, 150); }
TEST_F(FusedCudaTest, RandomPlanesEqualEagerOperators) { expect_random_programs_equal(3, 2, 40); }

/// Every pair of 16-bit floats, those with which shorter instructions must agree with rounding a float.
TEST_F(FusedCudaTest, EveryPairOfShortFloatsRoundsOnce) {
  const std::string head =
      "#include \"src/cuda/fusion/prelude/packs.cuh\"\nusing namespace tenor;\nusing namespace tenor::fused;\n";
  const std::string body = R"(
template <class T, Op kOp> __device__ T once(T a, T b) {
  const float x = convert<float>(a), y = convert<float>(b);
  if constexpr (kOp == Op::kRelu) return convert<T>(Formula<kOp, float>()(x));
  else return convert<T>(Formula<kOp, float>()(x, y));
}
template <class T, Op kOp> __device__ int differs(Pack<T, 2> a, Pack<T, 1> b) {
  Pack<T, 2> y;
  if constexpr (kOp == Op::kRelu) y = map<T, float, 2>(Formula<kOp, float>{}, a);
  else y = map<T, float, 2>(Formula<kOp, float>{}, a, b);
  return (y.at[0].bits != once<T, kOp>(a.at[0], b.at[0]).bits) + (y.at[1].bits != once<T, kOp>(a.at[1], b.at[0]).bits);
}
template <class T> __device__ int all_differ(unsigned i, unsigned j) {
  const Pack<T, 2> a{T{static_cast<uint16_t>(2 * j)}, T{static_cast<uint16_t>(2 * j + 1)}};
  const Pack<T, 1> b{T{static_cast<uint16_t>(i)}};
  return differs<T, Op::kAdd>(a, b) + differs<T, Op::kSub>(a, b) + differs<T, Op::kMul>(a, b) + differs<T, Op::kDiv>(a, b) +
         differs<T, Op::kRelu>(a, b);
}
extern "C" __global__ void fused(const __grid_constant__ Parameters<1, 1, 1> p) {
  for (unsigned j = threadIdx.x; j < 32768; j += blockDim.x) {
    const int n = all_differ<BFloat16>(blockIdx.x, j) + all_differ<Float16>(blockIdx.x, j);
    if (n != 0) static_cast<int*>(p.data[0])[0] = 1;
  }
}
)";
  const auto kernel = runtime_kernel(head + body, "fused", prelude(), kGpu);
  const Tensor count = testing::on_gpu(testing::full({2}, int32, 0));
  struct {  // as Parameters<1, 1, 1>
    void* data;
    int64_t rest[7] = {};
    int divider[4] = {};
  } parameters{count.raw()};
  kernel->launch("pairs", 65536, 256, kGpu, &parameters);
  EXPECT_EQ(testing::values(testing::on_cpu(count))[0], 0) << "some pair is rounded otherwise";
}

/// Softmax as an expression: two reductions that hang on one another.
std::unique_ptr<Beside> softmax(int64_t rows, int64_t n, DType dtype, uint32_t seed) {
  Draw draw(seed);
  auto b = std::make_unique<Beside>(Dims{rows, n}, 1);
  const int x = b->load(testing::on_gpu(draw.dense({rows, n}, dtype)));
  const int e = b->map(Op::kExp, {b->map(Op::kSub, {x, b->reduce(reduce::Op::kMax, x)})});
  const int total = b->reduce(reduce::Op::kSum, e);
  b->store(b->map(Op::kDiv, {e, total}), Tensor::empty({rows, n}, dtype, kGpu));
  b->store(total, Tensor::empty({rows, 1}, dtype, kGpu));
  return b;
}

TEST_F(FusedCudaTest, RowsOfEveryLengthEqualEagerOperators) {
  std::vector<std::unique_ptr<Beside>> all;
  for (const int64_t n : {2,    5,    9,    16,   63,    64,    127,   255,   257,   1000,   1023,  1025,
                          2047, 4104, 8191, 8192, 16384, 20000, 32768, 66000, 70001, 131072, 300000})
    for (const DType dtype : {bfloat16, float32})
      all.push_back(softmax(n > 8192 ? 65 : 67, n, dtype, static_cast<uint32_t>(n)));
  expect_all_equal_eager(all, "softmax");
}

/// So many rows that a warp takes several blocks of each.
TEST_F(FusedCudaTest, ManyRowsEqualEagerOperators) {
  Draw draw(9);
  for (const DType dtype : {bfloat16, float32})
    for (const auto& [rows, n] : {std::pair{4100, 2048}, {4101, 3000}, {2100, 8192}, {2800, 5000}, {1100, 16384}}) {
      const Tensor some = testing::on_gpu(draw.dense({100, n}, dtype)), x = Tensor::empty({rows, n}, dtype, kGpu);
      for (int64_t r = 0; r < rows; r += 100)
        core::copy_into(narrow(some, 0, 0, std::min<int64_t>(100, rows - r)),
                        narrow(x, 0, r, std::min<int64_t>(100, rows - r)));
      Beside b({rows, n}, 1);
      const int v = b.load(x), wide = b.convert(v, float32);
      const int e = b.map(Op::kExp, {b.map(Op::kSub, {wide, b.convert(b.reduce(reduce::Op::kMax, v), float32)})});
      const int y = b.map(Op::kDiv, {e, b.reduce(reduce::Op::kSum, e)});
      const int z = b.map(Op::kDiv, {v, b.reduce(reduce::Op::kSum, v)});
      const Tensor softmax = Tensor::empty({rows, n}, float32, kGpu), shares = Tensor::empty({rows, n}, dtype, kGpu);
      b.store(y, softmax);
      b.store(z, shares);
      compile_fused(b.program, kGpu)->run(b.pointers);
      Beside alone({rows, n}, 1);  // less to hold
      const int u = alone.load(x), w = alone.map(Op::kDiv, {u, alone.reduce(reduce::Op::kSum, u)});
      const Tensor again = Tensor::empty({rows, n}, dtype, kGpu);
      alone.store(w, again);
      compile_fused(alone.program, kGpu)->run(alone.pointers);
      const std::string what = generate_kernel(b.program).layout + ", " + generate_kernel(alone.program).layout;
      for (const auto& [got, want] : {std::pair{softmax, b.value(y)}, {shares, b.value(z)}, {again, alone.value(w)}})
        EXPECT_EQ(testing::values(testing::on_cpu(count_nonzero(ne(got, want))))[0], 0) << what;
    }
}

/// Offsets of 64 bits, in loops and in rows.
TEST_F(FusedCudaTest, ReachesBeyondTwoToThe31) {
  const int64_t apart = int64_t{1} << 25;
  const Tensor memory = Tensor::empty({64 * apart + 1000}, bfloat16, kGpu);
  const Tensor x = memory.with_layout({65, 1000}, {apart, 1}, 0);
  core::copy_into(testing::on_gpu(Draw(6).dense({65, 1000}, bfloat16)), x);
  for (const int reduced : {0, 1}) {
    Beside b({65, 1000}, reduced);
    const int v = b.load(x), w = b.map(Op::kMul, {v, reduced ? Given(b.reduce(reduce::Op::kSum, v)) : Given(3.0)});
    b.store(w, Tensor::empty({65, 1000}, bfloat16, kGpu));
    EXPECT_NE(generate_kernel(b.program).text.find("int64_t"), std::string::npos);
    compile_fused(b.program, kGpu)->run(b.pointers);
    expect_equals_eager(b, "far apart");
  }
}

TEST_F(FusedCudaTest, WritesInPlace) {
  Draw draw(5);
  const Tensor x = testing::on_gpu(draw.dense({300, 77}, bfloat16)), copy = testing::on_gpu(testing::on_cpu(x));
  auto b = std::make_unique<Beside>(Dims{300, 77}, 0);
  const int v = b->load(copy), w = b->map(Op::kMul, {v, b->map(Op::kSigmoid, {v})});
  b->store(w, copy);
  const Tensor want = testing::on_cpu(b->value(w));
  compile_fused(b->program, kGpu)->run(b->pointers);
  EXPECT_TRUE(testing::same_elements(testing::on_cpu(copy), want));
}

class FusedCaptureTest : public testing::CudaCaptureTest {};

TEST_F(FusedCaptureTest, IsCapturedWhenItWasNeverRun) {
  const Tensor x = normal({70, 3000}, float16), out = result({70, 3000}, float16);
  Beside b({70, 3000}, 1);
  const int v = b.load(x);
  b.store(b.map(Op::kDiv, {v, b.reduce(reduce::Op::kNorm, v)}), out);
  const auto executable = compile_fused(b.program, kGpu);
  expect_replays("fused", {out}, [&] { executable->run(b.pointers); });
}

TEST_F(FusedCudaTest, IsFoundInMemoryAndOnDisk) {
  const FusedKernel kernel = generate_kernel(softmax(70, 3016, float16, 8)->program);
  const auto first = runtime_kernel(kernel.text, "fused", prelude(), kGpu);
  EXPECT_EQ(runtime_kernel(kernel.text, "fused", prelude(), kGpu), first);
  EXPECT_GT(first->facts().registers, 0);
  if (kernel_files().refused().empty()) {
    EXPECT_GT(kernel_files().size().files, 0);
  }
}

}  // namespace
}  // namespace tenor::cuda
