// The norm family on a GPU, against the float64 references and the CPU operators.
#include "src/core/output.h"
#include "src/cuda/row.h"
#include "src/cuda/testing.h"
#include "src/ops/norm/norm_testing.h"
#include "tenor/elementwise.h"
#include "tenor/norm.h"
#include "tenor/view.h"

namespace tenor {
namespace {

using namespace testing;
using reference::Row;

/// fn of each row along dim, in x's logical order.
template <class F>
std::vector<double> along(const Tensor& x, int dim, F fn) {
  const Tensor rows = movedim(x, {dim}, {-1}), result = Tensor::empty(x.shape(), float64);
  assign(movedim(result, {dim}, {-1}), by_row(rows, fn));
  return values(result);
}

// Lengths about the limits of what a thread, a warp, a block and a cluster hold, odd ones included.
constexpr int64_t kLengths[] = {1,    2,    7,    8,    31,   32,   33,    64,    100,   255,   256,   1000,
                                1024, 1025, 2048, 4096, 4097, 8200, 12008, 16384, 16392, 33000, 65536, 70001};
constexpr double kFloor = 4e-6;

double floor_of(DType dtype) { return dtype == float32 ? kFloor : 2e-6; }

using NormCuda = CudaTest;

TEST_F(NormCuda, RowNormsMatchTheReferenceOnRandomShapesAndStrides) {
  Draw draw(11);
  for (int i = 0; i < 184; ++i) {
    const DType dtype = kFloats[i % 4], parameters = draw.coin() ? dtype : float32;
    const int64_t length = kLengths[i / 4 % std::size(kLengths)];
    Dims shape;
    for (int64_t d = draw.upto(2); d > 0; --d) shape.push_back(1 + draw.upto(length > 5000 ? 2 : 6));
    shape.push_back(length);
    const bool plain = draw.coin();  // dense and aligned, or any layout
    const auto input = [&](const Dims& s, DType t) { return plain ? draw.dense(s, t) : draw.view(s, t); };
    const Tensor x = input(shape, dtype), residual = input(shape, dtype), gamma = input({length}, parameters),
                 beta = draw.coin() ? input({length}, parameters) : Tensor();
    const double epsilon = draw.coin() ? 1e-5 : 0.1, offset = draw.coin() ? 1.0 : 0.0;
    const std::string what = std::string(name(dtype)) + to_string(shape) + " strides " + to_string(x.strides()) +
                             " offset " + std::to_string(x.offset());
    const Row g = values(gamma), b = beta.defined() ? values(beta) : Row();
    const Tensor gx = on_gpu(x), gr = on_gpu(residual), gg = on_gpu(gamma), gb = on_gpu(beta);
    const Tensor out = on_gpu(plain ? x : draw.poisoned(shape, dtype)), sum_out = on_gpu(draw.poisoned(shape, dtype));
    layer_norm(gx, gg, {.beta = gb, .epsilon = epsilon, .out = out});
    expect_close(on_cpu(out), by_row(x, [&](const Row& r) { return reference::layer_norm(r, g, b, epsilon); }),
                 "layer_norm " + what, 1, floor_of(dtype));
    const Tensor rms = on_cpu(rms_norm(gx, gg, {.epsilon = epsilon, .weight_offset = offset}));
    expect_close(rms, by_row(x, [&](const Row& r) { return reference::rms_norm(r, g, epsilon, offset); }),
                 "rms_norm " + what, 1, floor_of(dtype));
    // Behind an addition: the bits of the CPU's sum, and of the norm of it.
    const Tensor sum = add(x, residual);
    const AddNormResult fused = add_layer_norm(gx, gr, gg, {.beta = gb, .epsilon = epsilon, .out = {out, sum_out}});
    EXPECT_TRUE(same_bits(on_cpu(fused.new_residual), sum)) << what;
    const Tensor like = on_gpu(x);  // the sum in x's layout, whose class decides the order of additions
    core::copy_into(fused.new_residual, like);
    EXPECT_TRUE(same_bits(on_cpu(fused.y), on_cpu(layer_norm(like, gg, {.beta = gb, .epsilon = epsilon})))) << what;
    const AddNormResult root = add_rms_norm(gx, gr, gg, {.epsilon = epsilon, .weight_offset = offset});
    EXPECT_TRUE(same_bits(on_cpu(root.new_residual), sum)) << what;
    EXPECT_TRUE(same_bits(on_cpu(root.y), on_cpu(rms_norm(like, gg, {.epsilon = epsilon, .weight_offset = offset}))))
        << what;
  }
}

TEST_F(NormCuda, SoftmaxesMatchTheReferenceAlongAnyDim) {
  Draw draw(12);
  for (int i = 0; i < 184; ++i) {
    const DType dtype = kFloats[i % 4];
    const int64_t length = kLengths[i / 4 % std::size(kLengths)];
    const int ndim = 1 + static_cast<int>(draw.upto(2)), dim = static_cast<int>(draw.upto(ndim - 1));
    Dims shape;
    for (int d = 0; d < ndim; ++d)
      shape.push_back(d == dim ? length : 1 + draw.upto(length > 5000 ? 2 : length > 500 ? 9 : 40));
    const Tensor x = draw.coin() ? draw.dense(shape, dtype) : draw.view(shape, dtype),
                 out = on_gpu(draw.poisoned(shape, dtype)), g = on_gpu(x);
    const std::string what = std::string(name(dtype)) + to_string(shape) + " strides " + to_string(x.strides()) +
                             " dim " + std::to_string(dim);
    softmax(g, {.dim = dim, .out = out});
    expect_close(on_cpu(out), along(x, dim, [](const Row& r) { return reference::softmax(r, false); }),
                 "softmax " + what, 1, 1e-7);
    expect_close(on_cpu(log_softmax(g, {.dim = dim})),
                 along(x, dim, [](const Row& r) { return reference::softmax(r, true); }), "log_softmax " + what, 1,
                 floor_of(dtype));
    constexpr double kOrders[] = {2, 1, kInf, -kInf, 0, 3, 0.5, -1};
    const double p = kOrders[i % 8];
    expect_close(on_cpu(normalize(g, {.p = p, .dim = dim})),
                 along(x, dim, [&](const Row& r) { return reference::normalize(r, p, 1e-12); }),
                 "normalize " + std::to_string(p) + " " + what, p == 0.5 || p == -1 || p == 3 ? 6 : 2, 1e-7);
  }
}

TEST_F(NormCuda, VeryLongRows) {
  Draw draw(13);
  for (DType dtype : {bfloat16, float32})
    for (int64_t length : {131072, 262144, 262152, 300001, 1000000}) {
      const Tensor x = draw.dense({2, length}, dtype), gamma = draw.dense({length}, float32), g = on_gpu(x),
                   w = on_gpu(gamma);
      const std::string what = std::string(name(dtype)) + std::to_string(length);
      const Row scale = values(gamma);
      expect_close(on_cpu(layer_norm(g, w)),
                   by_row(x, [&](const Row& r) { return reference::layer_norm(r, scale, {}, 1e-5); }), what, 1, kFloor);
      expect_close(on_cpu(rms_norm(g, w)),
                   by_row(x, [&](const Row& r) { return reference::rms_norm(r, scale, 1e-6, 0); }), what, 1, kFloor);
      expect_close(on_cpu(softmax(g)), by_row(x, [&](const Row& r) { return reference::softmax(r, false); }), what, 1,
                   1e-9);
      const AddNormResult fused = add_rms_norm(g, g, w);
      EXPECT_TRUE(same_bits(on_cpu(fused.y), on_cpu(rms_norm(fused.new_residual, w)))) << what;
      const Tensor turned = on_gpu(transpose(draw.dense({length, 3}, dtype), 0, 1));
      expect_close(on_cpu(softmax(turned)),
                   by_row(on_cpu(turned), [&](const Row& r) { return reference::softmax(r, false); }),
                   "columns " + what, 1, 1e-9);
    }
}

/// Rows of several blocks, more of them than clusters of blocks run at once, so that a cluster computes several: each
/// as if alone.
TEST_F(NormCuda, LongRowsInTurn) {
  Draw draw(14);
  const std::vector<double> pool = draw.normals(65521);
  for (DType dtype : {bfloat16, float32})
    for (int64_t length : {131072, 100000}) {
      const int64_t rows = 130;
      const Tensor x = filled({rows, length}, dtype, [&](int64_t i) { return pool[static_cast<size_t>(i % 65521)]; }),
                   g = on_gpu(x);
      const Tensor gamma = draw.dense({length}, dtype), beta = draw.dense({length}, dtype), scale = on_gpu(gamma),
                   shift = on_gpu(beta);
      const auto check = [&](const char* what, auto fn, auto reference) {
        const Tensor all = on_cpu(fn(g));
        for (int64_t r : {int64_t{0}, int64_t{1}, rows / 2, rows - 1}) {
          const Tensor row = narrow(all, 0, r, 1);
          EXPECT_TRUE(same_bits(on_cpu(fn(narrow(g, 0, r, 1))), row)) << what << name(dtype) << length << " row " << r;
          expect_close(row.contiguous(), by_row(narrow(x, 0, r, 1), reference),
                       what + std::string(name(dtype)) + std::to_string(length), 1, kFloor);
        }
      };
      check(
          "layer_norm", [&](const Tensor& t) { return layer_norm(t, scale, {.beta = shift}); },
          [&](const Row& r) { return reference::layer_norm(r, values(gamma), values(beta), 1e-5); });
      check(
          "rms_norm", [&](const Tensor& t) { return rms_norm(t, scale); },
          [&](const Row& r) { return reference::rms_norm(r, values(gamma), 1e-6, 0); });
      check(
          "softmax", [&](const Tensor& t) { return softmax(t); },
          [&](const Row& r) { return reference::softmax(r, false); });
      check(
          "add_rms_norm", [&](const Tensor& t) { return add_rms_norm(t, t, scale).y; },
          [&](Row r) {
            for (double& v : r) v *= 2;
            return reference::rms_norm(r, values(gamma), 1e-6, 0);
          });
    }
}

/// Many rows, whose vectors come from L2, and few, which fetch them to shared memory: the same bits, in place and
/// spaced apart as well.
TEST_F(NormCuda, ManyRowsAsAmongFew) {
  Draw draw(15);
  const std::vector<double> pool = draw.normals(65521);
  for (DType dtype : {bfloat16, float16, float32})
    for (int64_t length : dtype == float16 ? std::vector<int64_t>{1024, 8184}
                                           : std::vector<int64_t>{64, 384, 768, 1024, 2048, 6144, 8192, 12280}) {
      const int64_t rows = 1337, few = 40;
      const Tensor x = filled({rows, length + 8}, dtype,
                              [&](int64_t i) { return pool[static_cast<size_t>(i % 65521)]; }),
                   wide = on_gpu(x), g = narrow(wide, 1, 0, length);
      const Tensor gamma = draw.dense({length}, dtype), beta = draw.dense({length}, dtype), scale = on_gpu(gamma),
                   shift = on_gpu(beta);
      const std::string what = std::string(name(dtype)) + " " + std::to_string(length);
      EXPECT_TRUE(same_bits(on_cpu(narrow(rms_norm(g, scale), 0, rows - few, few)),
                            on_cpu(rms_norm(narrow(g, 0, rows - few, few), scale))))
          << what << " rms_norm";
      for (const Tensor& b : {shift, Tensor()}) {
        const Tensor all = layer_norm(g, scale, {.beta = b});
        for (int64_t first : {int64_t{0}, rows / 2, rows - few})
          EXPECT_TRUE(same_bits(on_cpu(narrow(all, 0, first, few)),
                                on_cpu(layer_norm(narrow(g, 0, first, few), scale, {.beta = b}))))
              << what << " from row " << first;
        const Tensor row = narrow(narrow(x, 0, rows - 1, 1), 1, 0, length).contiguous();
        expect_close(on_cpu(narrow(all, 0, rows - 1, 1)),
                     by_row(row,
                            [&](const Row& r) {
                              return reference::layer_norm(
                                  r, values(gamma), b.defined() ? values(beta) : Row(static_cast<size_t>(length), 0.0),
                                  1e-5);
                            }),
                     what, 1, kFloor);
        const Tensor again = wide.clone(), over = narrow(again, 1, 0, length);
        layer_norm(over, scale, {.beta = b, .out = over});
        EXPECT_TRUE(same_bits(on_cpu(over.contiguous()), on_cpu(all.contiguous()))) << what << " in place";
        EXPECT_TRUE(same_bits(on_cpu(narrow(again, 1, length, 8).contiguous()), narrow(x, 1, length, 8).contiguous()))
            << what << " between the rows";
      }
    }
}

TEST_F(NormCuda, RowsWithoutADistribution) {
  const Tensor x =
      tensor_of({6, 3}, float32,
                {-kInf, -kInf, -kInf, -kInf, 2, -kInf, 0, kInf, 0, 0, kNan, -kInf, kNan, -kInf, -kInf, 1e4, 1e4, -1e4});
  const std::vector<double> want = {kNan, kNan, kNan, 0,    1,    0,    kNan, kNan, kNan,
                                    kNan, kNan, kNan, kNan, kNan, kNan, 0.5,  0.5,  0};
  const double half = -std::log(2);
  const std::vector<double> logs = {kNan, kNan, kNan, -kInf, 0,    -kInf, kNan, kNan, kNan,
                                    kNan, kNan, kNan, kNan,  kNan, kNan,  half, half, -20000 + half};
  for (DType dtype : kFloats)
    for (int64_t pad : {0, 5, 29, 5000}) {  // padded with -inf: which changes nothing
      Tensor wide = full({6, 3 + pad}, float64, -kInf), longer = full({6, 3 + pad}, float64, 0);
      assign(narrow(wide, 1, 0, 3), values(x));
      assign(narrow(longer, 1, 0, 3), want);
      for (int r : {0, 2, 3, 4})
        assign(narrow(narrow(longer, 0, r, 1), 1, 3, pad), std::vector<double>(static_cast<size_t>(pad), kNan));
      const Tensor g = on_gpu(wide.to(dtype));
      expect_close(on_cpu(softmax(g)), values(longer), "softmax");
      expect_close(on_cpu(softmax_last_axis(g)), values(longer), "softmax_last_axis");
      const Tensor columns = on_gpu(transpose(transpose(wide.to(dtype), 0, 1).contiguous(), 0, 1));
      expect_close(on_cpu(softmax(columns)), values(longer), "softmax of columns");
      const Tensor log = on_cpu(log_softmax(g));
      expect_close(narrow(log, 1, 0, 3).contiguous(), logs, "log_softmax",
                   dtype == float32 || dtype == float64 ? 1 : 2);
    }
  // The greatest and the least finite numbers side by side.
  for (DType dtype : {bfloat16, float32}) {
    const Tensor g = on_gpu(tensor_of({1, 4}, dtype, {3e38, -3e38, 3e38, -3e38}));
    EXPECT_EQ(values(on_cpu(softmax(g))), (std::vector<double>{0.5, 0, 0.5, 0}));
  }
}

TEST_F(NormCuda, LargeMeansAndSmallNumbers) {
  Draw draw(15);
  for (int64_t length : {5000, 4096, 100000}) {
    std::vector<double> x(static_cast<size_t>(length));
    for (double& v : x) v = static_cast<float>(1e6 + draw.normal());
    const Tensor ones = on_gpu(full({length}, float32, 1));
    expect_close(on_cpu(layer_norm(on_gpu(tensor_of({length}, float32, x)), ones)),
                 reference::layer_norm(x, {}, {}, 1e-5), "large mean", 4, 4e-6);
  }
  const Tensor zeros = on_gpu(full({9}, float32, 0)), nine = on_gpu(full({9}, float32, 1));
  for (double epsilon : {1e-5, 1e-30, 1e-300}) {
    expect_close(on_cpu(layer_norm(zeros, nine, {.epsilon = epsilon})), std::vector<double>(9, 0), "zeros");
    expect_close(on_cpu(rms_norm(zeros, nine, {.epsilon = epsilon})), std::vector<double>(9, 0), "zeros");
    expect_close(on_cpu(normalize(zeros, {.epsilon = epsilon})), std::vector<double>(9, 0), "zeros");
  }
  expect_close(on_cpu(rms_norm(on_gpu(full({3, 9}, float16, 60000)), nine)), std::vector<double>(27, 1),
               "squares beyond float16");
  for (double bad : {kNan, kInf, -kInf})
    for (int64_t length : {40, 4000, 40001}) {
      const Tensor x = full({3, length}, float32, 2);
      put(x, length + length - 1, bad);
      const Tensor g = on_gpu(x), gamma = on_gpu(full({length}, float32, 1));
      for (const Tensor& y : {layer_norm(g, gamma), rms_norm(g, gamma), normalize(g)}) {
        const std::vector<double> v = values(on_cpu(y));
        EXPECT_TRUE(std::isnan(v[2 * length - 1]));
        for (int64_t i = 0; i < length; ++i) ASSERT_TRUE(std::isfinite(v[i]) && std::isfinite(v[2 * length + i]));
      }
    }
  for (double p : {2.0, 1.0, kInf, -kInf, 3.0}) {
    const std::vector<double> v =
        values(on_cpu(normalize(on_gpu(tensor_of({2, 3}, float32, {1, kNan, 2, 1, 1, 1})), {.p = p})));
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(std::isnan(v[i]) && std::isfinite(v[3 + i])) << p;
  }
}

/// layer_norm estimates a mean from each thread's first elements: rows whose first elements, of the row or of every
/// stretch, are nothing like the others, that all but one element share, with means of 1 to 1000 standard deviations,
/// and an infinity; alone and in one batch.
TEST_F(NormCuda, RowsWhoseFirstElementsMislead) {
  Draw draw(21);
  const std::vector<double> noise = draw.normals(4099);
  for (DType dtype : {float32, bfloat16, float16})  // the reference is float64 itself
    for (int64_t length : {9, 64, 300, 384, 1000, 1024, 4096, 6144, 100000, 131072, 300001}) {
      const auto at = [&](int64_t row, int64_t i) -> double {
        const double v = noise[static_cast<size_t>((row * length + i) % 4099)];
        if (row == 0) return i == 0 ? 20000 : v;
        if (row == 1) return i % 1024 < 256 ? 1000 + v : v;
        if (row == 2) return i < length / 4 ? -500 + v : v;
        if (row == 3) return i == length / 2 ? 1.0078125 : 1;
        if (row == 4) return i == length / 3 ? kInf : v;
        constexpr double kMeans[] = {1, 1.9, 2.1, -3.9, 4.1, 30, 1000};
        return v + kMeans[row - 5];
      };
      const Tensor x = filled({12, length}, dtype, [&](int64_t i) { return at(i / length, i % length); }),
                   gamma = full({length}, dtype, 1), w = on_gpu(gamma), g = on_gpu(x),
                   columns = on_gpu(transpose(transpose(x, 0, 1).contiguous(), 0, 1));
      const std::vector<double> want = by_row(x, [&](const Row& r) { return reference::layer_norm(r, {}, {}, 1e-7); });
      const std::string what = std::string(name(dtype)) + " " + std::to_string(length);
      expect_close(on_cpu(layer_norm(g, w, {.epsilon = 1e-7})), want, what, 1, 8e-6);
      expect_close(on_cpu(layer_norm(columns, w, {.epsilon = 1e-7})), want, "columns " + what, 1, 8e-6);
      const Tensor all = on_cpu(layer_norm(g, w));
      for (int64_t r : {0, 3, 5, 7, 8, 11})
        EXPECT_TRUE(same_bits(on_cpu(layer_norm(narrow(g, 0, r, 1), w)), narrow(all, 0, r, 1))) << what << " row " << r;
    }
}

/// Rows alone, in a batch, at odd addresses and strides, and the same call again: the same bits.
TEST_F(NormCuda, ARowsBitsAreItsOwn) {
  Draw draw(16);
  for (DType dtype : kFloats)
    for (int64_t length : {24, 99, 777, 776, 4096, 4104, 40000, 40001}) {
      const Tensor x = draw.dense({9, length}, dtype), g = on_gpu(x), gamma = on_gpu(draw.dense({length}, float32)),
                   beta = on_gpu(draw.dense({length}, dtype));
      const Tensor wide = Tensor::empty({9, length + 1}, dtype);  // the same rows, spaced oddly and beginning anywhere
      assign(narrow(wide, 1, 1, length), values(x));
      const Tensor odd = narrow(on_gpu(wide), 1, 1, length);
      const auto check = [&](const char* what, auto fn) {
        const Tensor all = on_cpu(fn(g));
        EXPECT_TRUE(same_bits(on_cpu(fn(g)), all)) << what << " again, length " << length << name(dtype);
        EXPECT_TRUE(same_bits(on_cpu(fn(odd)), all)) << what << " at odd addresses, length " << length << name(dtype);
        for (int64_t r : {0, 5, 8}) {
          EXPECT_TRUE(same_bits(on_cpu(fn(narrow(g, 0, r, 1))), narrow(all, 0, r, 1)))
              << what << " alone, length " << length << name(dtype);
          EXPECT_TRUE(same_bits(on_cpu(fn(narrow(odd, 0, r, 1))), narrow(all, 0, r, 1)))
              << what << " alone, odd, length " << length << name(dtype);
        }
        const Tensor columns = on_gpu(transpose(transpose(x, 0, 1).contiguous(), 0, 1));
        const Tensor by_column = on_cpu(fn(columns));
        EXPECT_TRUE(same_bits(on_cpu(fn(narrow(columns, 0, 3, 4))), narrow(by_column, 0, 3, 4)))
            << what << " columns, length " << length << name(dtype);
      };
      check("layer_norm", [&](const Tensor& t) { return layer_norm(t, gamma, {.beta = beta}); });
      check("rms_norm", [&](const Tensor& t) { return rms_norm(t, gamma); });
      check("softmax", [&](const Tensor& t) { return softmax(t); });
      check("log_softmax", [&](const Tensor& t) { return log_softmax(t); });
      check("normalize", [&](const Tensor& t) { return normalize(t); });
    }
}

TEST_F(NormCuda, WritesOverItsInputs) {
  Draw draw(17);
  for (DType dtype : kFloats)
    for (int64_t length : {128, 129, 40000, 600001}) {
      if (length > 50000 && dtype != bfloat16) continue;
      const Tensor x = draw.dense({3, length}, dtype), residual = draw.dense({3, length}, dtype),
                   gamma = on_gpu(draw.dense({length}, float32));
      const AddNormResult apart = add_rms_norm(on_gpu(x), on_gpu(residual), gamma);
      const Tensor y = on_cpu(apart.y), sum = on_cpu(apart.new_residual);
      for (bool swapped : {false, true}) {
        const Tensor a = on_gpu(x), b = on_gpu(residual);
        add_rms_norm(a, b, gamma, {.out = swapped ? AddNormResult{b, a} : AddNormResult{a, b}});
        EXPECT_TRUE(same_bits(on_cpu(swapped ? b : a), y)) << length;
        EXPECT_TRUE(same_bits(on_cpu(swapped ? a : b), sum)) << length;
      }
      const Tensor own = on_gpu(x), want = on_cpu(softmax(own));
      softmax(own, {.out = own});
      EXPECT_TRUE(same_bits(on_cpu(own), want)) << length;
      const Tensor buffer = Tensor::empty({4, length}, dtype);  // shifted by one row: as if computed before writing
      assign(narrow(buffer, 0, 0, 3), values(x));
      const Tensor moved = on_gpu(buffer);
      softmax(narrow(moved, 0, 0, 3), {.out = narrow(moved, 0, 1, 3)});
      EXPECT_TRUE(same_bits(on_cpu(narrow(moved, 0, 1, 3)), want)) << length;
    }
}

std::vector<double> group_reference(const Tensor& x, int64_t groups, const Row& gamma, const Row& beta,
                                    double epsilon) {
  const size_t channels = static_cast<size_t>(x.shape(1)),
               places = static_cast<size_t>(x.numel() / x.shape(0) / x.shape(1));
  std::vector<double> out = values(x);
  const size_t n = out.size() / static_cast<size_t>(x.shape(0) * groups);
  for (size_t start = 0; start < out.size(); start += n) {
    const Row row = reference::layer_norm(Row(out.begin() + start, out.begin() + start + n), {}, {}, epsilon);
    std::copy(row.begin(), row.end(), out.begin() + start);
  }
  for (size_t i = 0; i < out.size(); ++i) {
    const size_t c = i / places % channels;
    out[i] = out[i] * (gamma.empty() ? 1 : gamma[c]) + (beta.empty() ? 0 : beta[c]);
  }
  return out;
}

TEST_F(NormCuda, ChannelNormsMatchTheReferenceOnRandomShapesAndStrides) {
  Draw draw(18);
  for (int i = 0; i < 200; ++i) {
    const DType dtype = kFloats[i % 4], parameters = draw.coin() ? dtype : float32;
    const int64_t groups = 1 + draw.upto(3), channels = groups * (draw.coin() ? 8 : 1 + draw.upto(4));
    Dims shape{1 + draw.upto(2), channels};
    for (int64_t d = draw.upto(3); d > 0; --d) shape.push_back(1 + draw.upto(d == 1 ? 40 : 4));
    Tensor x = draw.coin() ? draw.dense(shape, dtype) : draw.view(shape, dtype);
    if (shape.size() == 4 && draw.coin()) x = permute(permute(x, {0, 2, 3, 1}).contiguous(), {0, 3, 1, 2});
    const Tensor gamma = draw.coin() ? draw.view({channels}, parameters) : Tensor(),
                 beta = draw.coin() ? draw.dense({channels}, parameters) : Tensor();
    const Row g = gamma.defined() ? values(gamma) : Row(), b = beta.defined() ? values(beta) : Row();
    const std::string what = std::string(name(dtype)) + to_string(shape) + to_string(x.strides());
    const Tensor gx = on_gpu(x), out = on_gpu(draw.poisoned(shape, dtype));
    const ChannelNormOptions options{.gamma = on_gpu(gamma), .beta = on_gpu(beta), .epsilon = 1e-2, .out = out};
    group_norm(gx, groups, options);
    expect_close(on_cpu(out), group_reference(x, groups, g, b, 1e-2), "group_norm " + what, 1, 4e-6);
    const Tensor instance = instance_norm(gx, {.gamma = options.gamma, .beta = options.beta, .epsilon = 1e-2});
    expect_close(on_cpu(instance), group_reference(x, channels, g, b, 1e-2), "instance_norm " + what, 1, 4e-6);
    std::vector<double> spread = draw.normals(channels);
    for (double& v : spread) v = v * v;
    const Tensor mean = draw.view({channels}, parameters), variance = tensor_of({channels}, parameters, spread);
    batch_norm(gx, on_gpu(mean), on_gpu(variance), options);
    const Tensor want = batch_norm(x, mean, variance, {.gamma = gamma, .beta = beta, .epsilon = 1e-2});
    expect_close(on_cpu(out), values(want), "batch_norm " + what, 1, 1e-5);
    const Tensor kept =
        batch_norm(gx, on_gpu(mean), on_gpu(variance), {.gamma = options.gamma, .beta = options.beta, .epsilon = 1e-2});
    EXPECT_TRUE(same_bits(on_cpu(kept), on_cpu(out))) << what;
  }
}

TEST_F(NormCuda, ManyChannelsAndChannelsLast) {
  Draw draw(19);
  for (int64_t channels : {2048, 5000}) {
    const Tensor x = draw.dense({3, channels, 5}, bfloat16), v = full({channels}, float32, 0.5),
                 m = draw.dense({channels}, float32);
    const Tensor want = batch_norm(x, m, v, {.gamma = m, .beta = v}),
                 last = transpose(transpose(x, 1, 2).contiguous(), 1, 2);
    for (const Tensor& t : {x, last})
      expect_close(on_cpu(batch_norm(on_gpu(t), on_gpu(m), on_gpu(v), {.gamma = on_gpu(m), .beta = on_gpu(v)})),
                   values(want), "batch_norm", 1, 1e-5);
  }
  const Tensor x = draw.dense({2, 64, 14, 14}, float16), w = draw.dense({64}, float32);
  const Tensor last = permute(permute(x, {0, 2, 3, 1}).contiguous(), {0, 3, 1, 2});
  const Tensor g = on_gpu(last), y = group_norm(g, 8, {.gamma = on_gpu(w), .beta = on_gpu(w)});
  EXPECT_EQ(y.strides(), last.strides());
  expect_close(on_cpu(y), group_reference(x, 8, values(w), values(w), 1e-5), "group_norm", 1, 4e-6);
  EXPECT_TRUE(same_bits(on_cpu(group_norm(narrow(g, 0, 1, 1), 8, {.gamma = on_gpu(w), .beta = on_gpu(w)})),
                        on_cpu(narrow(y, 0, 1, 1))));
  const Tensor one =
      on_cpu(group_norm(g, 1, {.gamma = on_gpu(w), .beta = on_gpu(w)}));  // the whole sample is one dense row
  expect_close(one, group_reference(x, 1, values(w), values(w), 1e-5), "one group", 1, 4e-6);
  const Tensor own = on_gpu(last);
  group_norm(own, 8, {.gamma = on_gpu(w), .beta = on_gpu(w), .out = own});
  EXPECT_TRUE(same_bits(on_cpu(own), on_cpu(y)));
}

TEST_F(NormCuda, EdgesOfShapes) {
  const Tensor five = on_gpu(full({5}, float32, 1)), two = on_gpu(full({2}, float32, 1));
  EXPECT_EQ(layer_norm(Tensor::empty({0, 5}, float32, kGpu), five).shape(), Dims({0, 5}));
  EXPECT_EQ(
      add_rms_norm(Tensor::empty({2, 0, 5}, float16, kGpu), Tensor::empty({2, 0, 5}, float16, kGpu), five).y.shape(),
      Dims({2, 0, 5}));
  EXPECT_EQ(softmax(Tensor::empty({3, 0}, float32, kGpu)).shape(), Dims({3, 0}));
  EXPECT_EQ(values(on_cpu(softmax(on_gpu(full({}, float32, 3))))), std::vector<double>{1});
  EXPECT_EQ(values(on_cpu(softmax(expand(on_gpu(full({1, 4}, float32, 3)), {3, 4})))), std::vector<double>(12, 0.25));
  EXPECT_EQ(values(on_cpu(softmax(expand(on_gpu(full({3, 1}, float32, 3)), {3, 4})))), std::vector<double>(12, 0.25));
  EXPECT_EQ(group_norm(Tensor::empty({0, 2, 3}, float32, kGpu), 2).shape(), Dims({0, 2, 3}));
  EXPECT_EQ(instance_norm(Tensor::empty({2, 0, 3}, float32, kGpu)).shape(), Dims({2, 0, 3}));
  EXPECT_EQ(batch_norm(Tensor::empty({0, 2}, float32, kGpu), two, two).shape(), Dims({0, 2}));
  EXPECT_THROW(layer_norm(on_gpu(full({2, 5}, float32, 1)), full({5}, float32, 1)), DeviceError);
  // Many short rows: more than fit in the grid's first wave.
  Draw draw(20);
  const Tensor x = draw.dense({100000, 3}, bfloat16);
  expect_close(on_cpu(softmax(on_gpu(x))), by_row(x, [](const Row& r) { return reference::softmax(r, false); }),
               "many rows", 1, 1e-7);
}

TEST(RowPlan, FollowsFromTheRowAlone) {
  for (size_t item : {2, 4, 8})
    for (bool columns : {false, true})
      for (int64_t length : kLengths) {
        const cuda::RowPlan plan = cuda::plan_rows(length, true, item, columns);
        const int64_t most =
            cuda::held_elements(item) * int64_t{cuda::kRowThreads} / (columns ? 32 : 1) * cuda::kRowCluster;
        EXPECT_EQ(plan.held, length <= most) << length;
        if (!plan.held) continue;
        EXPECT_GE(int64_t{plan.threads} * plan.cluster * plan.share, length);
        EXPECT_LE(plan.cluster, cuda::kRowCluster);
        EXPECT_EQ(plan.wide, !columns);
        EXPECT_EQ(plan.split, plan.wide && plan.cluster > 1);
      }
  EXPECT_FALSE(cuda::plan_rows(262145, true, 2, false).held);
  EXPECT_EQ(cuda::plan_rows(4096, true, 2, false).explain(),
            "128 threads a row, 16 bytes an access, 1 rows a block, cluster of 1, row held in shared memory");
}

}  // namespace
}  // namespace tenor
