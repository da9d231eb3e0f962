// Copies on CUDA: runs, strides and turned dims of every alignment, bit for bit against the CPU, and nothing written
// beside the target.
#include "src/cuda/testing.h"
#include "tenor/elementwise.h"
#include "tenor/view.h"

namespace tenor {
namespace {

using testing::Draw;
using testing::on_cpu;
using testing::on_gpu;
using CopyCuda = testing::CudaTest;

/// Numbers that no two neighbouring elements of 16 bits and more share.
Tensor numbered(const Dims& shape, DType dtype) {
  return testing::filled(shape, dtype,
                         [&](int64_t i) { return static_cast<double>(dtype == uint8 ? i % 251 : i % 2039); });
}

/// A copy of x into a target of these strides within poison, which stays as it is between the target's elements.
void expect_copied(const Tensor& x, const Dims& strides, int64_t offset, const std::string& what) {
  int64_t reach = offset + 17;
  for (int d = 0; d < x.ndim(); ++d) reach += (x.shape(d) - 1) * strides[static_cast<size_t>(d)];
  const Tensor around = testing::filled({reach}, x.dtype(), [](int64_t) { return 77.0; });
  const Tensor far = on_gpu(around);
  copy_(far.with_layout(x.shape(), strides, offset), on_gpu(x));
  copy_(around.with_layout(x.shape(), strides, offset), x);
  ASSERT_TRUE(testing::same_bits(on_cpu(far), around))
      << what << name(x.dtype()) << to_string(x.shape()) << to_string(x.strides()) << " to " << to_string(strides)
      << " from " << x.offset() << " to " << offset;
}
Dims dense_strides(const Dims& shape, int64_t pitch) {
  Dims strides(shape.size(), 1);
  for (size_t d = shape.size() - 1; d-- > 0;)
    strides[d] = d + 2 == shape.size() ? pitch : strides[d + 1] * shape[d + 1];
  return strides;
}

TEST_F(CopyCuda, RunsInAnyOrderOfTheOtherDims) {
  for (DType dtype : {bfloat16, float32, uint8, int64})
    for (const Dims& shape : {Dims{2, 9, 17, 64}, Dims{3, 16, 8, 40}, Dims{1, 70, 5, 33}, Dims{2, 3, 130, 512}})
      for (const Dims& order : {Dims{0, 2, 1, 3}, Dims{2, 0, 1, 3}, Dims{1, 2, 0, 3}}) {
        const Tensor x = permute(numbered(shape, dtype), order);
        for (int64_t gap : {0, 8, 3})
          for (int64_t offset : {0, 16, 1})
            expect_copied(x, dense_strides(x.shape(), x.shape(-1) + gap), offset, "runs ");
      }
}

TEST_F(CopyCuda, SlicesOfRows) {
  for (DType dtype : {bfloat16, float32, uint8, float64})
    for (int64_t width : {1, 7, 16, 100, 1000, 3001, 4096})
      for (int64_t start : {0, 8, 5}) {
        const Tensor x = slice(numbered({37, width + 16}, dtype), 1, start, start + width);
        expect_copied(x, {width, 1}, 0, "slice ");
        expect_copied(x, {width + 5, 1}, 3, "slice ");
      }
}

TEST_F(CopyCuda, StridedElements) {
  for (DType dtype : {bfloat16, float32, uint8, int64})
    for (int64_t width : {5, 300, 2048, 9001})
      for (int64_t step : {2, 3, 7}) {
        const Tensor x = slice(numbered({11, width * step}, dtype), 1, step - 1, {}, step);
        expect_copied(x, {width, 1}, 0, "strided ");
        expect_copied(x, {width * 2 + 1, 2}, 1, "strided ");
        expect_copied(numbered({11, width}, dtype), {width * step, step}, 0, "to strides ");
      }
}

TEST_F(CopyCuda, FloatsToHalves) {
  for (DType dtype : {bfloat16, float16})
    for (int64_t n : {1, 3, 4, 5, 1023, 1024, 1029, 40000})
      for (int64_t from : {0, 4, 1})
        for (int64_t to : {0, 8, 3}) {
          const Tensor all = testing::filled({n + 8}, float32, [](int64_t i) {
            return i % 97 == 5 ? testing::kInf : static_cast<double>(i * 7919 % 20011) / 77 - 130;
          });
          const Tensor x = all.with_layout({n}, {1}, from);
          const Tensor around = testing::filled({n + 16}, dtype, [](int64_t) { return 77.0; }), far = on_gpu(around);
          copy_(far.with_layout({n}, {1}, to), on_gpu(all).with_layout({n}, {1}, from));
          copy_(around.with_layout({n}, {1}, to), x);
          ASSERT_TRUE(testing::same_bits(on_cpu(far), around)) << name(dtype) << n << " from " << from << " to " << to;
        }
}

TEST_F(CopyCuda, TurnedTilesAtTheEdges) {
  for (DType dtype : {bfloat16, float32, uint8, float64})
    for (const Dims& shape : {Dims{3, 128, 3136}, Dims{1, 136, 264}, Dims{2, 100, 333}, Dims{2, 8, 24}}) {
      const Tensor x = transpose(numbered(shape, dtype), 1, 2);
      expect_copied(x, dense_strides(x.shape(), x.shape(-1)), 0, "turned ");
      expect_copied(x, dense_strides(x.shape(), x.shape(-1) + 16), 16, "turned ");
      expect_copied(x, dense_strides(x.shape(), x.shape(-1) + 3), 1, "turned ");
    }
}

}  // namespace
}  // namespace tenor
