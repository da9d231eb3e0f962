// RowWalk: every element is visited once, dense, whatever the layout; and DenseVector.
#include "src/cpu/rows.h"

#include <sys/mman.h>

#include "src/core/testing.h"
#include "tenor/view.h"

namespace tenor::cpu {
namespace {

using namespace testing;

/// out = x + place: writes what the kernel was told about each element, so that a wrong place shows.
void add_place(const RowBlock& block, int64_t whole) {
  for (int64_t r = 0; r < block.count; ++r)
    for (int64_t i = 0; i < block.length; ++i)
      block.row<double>(1, r)[i] =
          block.row<const double>(0, r)[i] + static_cast<double>((block.first + r) * whole + block.begin + i);
}

TEST(RowWalk, VisitsEveryElementOfAnyLayout) {
  Draw draw(1);
  for (int i = 0; i < 300; ++i) {
    Dims shape;
    for (int64_t d = draw.upto(4); d >= 0; --d) shape.push_back(draw.upto(9));
    if (draw.upto(4) == 0) shape.back() = 40000;
    if (product(shape) > 200000) continue;
    const int row_dims = static_cast<int>(draw.upto(static_cast<int64_t>(shape.size())));
    const Tensor x = draw.view(shape, float64), out = draw.coin() ? x : draw.poisoned(shape, float64);
    std::vector<double> want = values(x);
    int64_t whole = 1;
    for (int d = 0; d < row_dims; ++d) whole *= shape[shape.size() - 1 - d];
    for (size_t e = 0; e < want.size(); ++e) want[e] += static_cast<double>(e);
    const Threads use(1 + static_cast<int>(draw.upto(3)));
    RowWalk walk(shape, row_dims, draw.coin() ? RowWalk::Rows::kMayBeCut : RowWalk::Rows::kWhole);
    walk.read(x);
    walk.write(out);
    walk.run([&](const RowBlock& block) { add_place(block, whole); });
    ASSERT_EQ(values(out), want) << to_string(shape) << to_string(x.strides()) << row_dims;
  }
}

TEST(RowWalk, OffsetsBeyondTwoToThe31) {
  // Only the pages touched become memory.
  const size_t bytes = (size_t{1} << 31) * 3;
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) GTEST_SKIP() << "no address space";
  const int64_t stride = (int64_t{1} << 31) / 2 + 5;  // of float16: two rows beyond 2^31 bytes, the third beyond 2^32
  const Tensor x = Tensor::wrap(memory, kCpu, float16, {3, 10}, {stride, 1}), out = Tensor::empty({3, 10}, float16);
  assign(x, std::vector<double>(30, 2));
  for (const Tensor& seen : {x, x.with_layout({10, 3}, {1, stride}, 0)}) {
    RowWalk walk(seen.shape(), 1);
    walk.read(seen);
    walk.write(out.with_layout(seen.shape(), contiguous_strides(seen.shape()), 0));
    walk.run([](const RowBlock& block) {
      for (int64_t r = 0; r < block.count; ++r)
        std::memcpy(block.row<Float16>(1, r), block.row<Float16>(0, r), static_cast<size_t>(block.length) * 2);
    });
    EXPECT_EQ(values(out), std::vector<double>(30, 2));
  }
  munmap(memory, bytes);
}

TEST(RowWalk, AnErrorReachesTheCaller) {
  const Tensor x = full({500, 500}, float32, 1);
  RowWalk walk(x.shape(), 1);
  walk.read(x);
  EXPECT_THROW(walk.run([](const RowBlock&) { throw ValueError("stop"); }), ValueError);
}

TEST(DenseVector, ConvertsWhatIsNotDenseComputeType) {
  const Tensor x = tensor_of({3}, float32, {1, 2, 3});
  EXPECT_EQ(DenseVector(x, float32).data(), x.raw());
  EXPECT_EQ(DenseVector().data(), nullptr);
  EXPECT_EQ(DenseVector(Tensor(), float32).data(), nullptr);
  const DenseVector shifted(x, float32, 1), wide(x.to(bfloat16), float64),
      strided(select(full({3, 2}, float16, 5), 1, 1), float32);
  EXPECT_EQ(static_cast<const float*>(shifted.data())[2], 4);
  EXPECT_EQ(static_cast<const double*>(wide.data())[1], 2);
  EXPECT_EQ(static_cast<const float*>(strided.data())[2], 5);
}

}  // namespace
}  // namespace tenor::cpu
