// Products of integers and of bool on register tiles. Sums wrap, so their order does not matter.
#include <vector>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/ops/contract/gemm_integer_cpu.cpp"
#include "hwy/foreach_target.h"
#include "src/core/visit.h"
#include "src/cpu/simd-inl.h"
#include "src/ops/contract/gemm_integer.h"

HWY_BEFORE_NAMESPACE();
namespace tenor::cpu::HWY_NAMESPACE {
namespace contract = tenor::contract;
namespace {

constexpr int kVectors = 2;  // of a strip of columns
constexpr int kRows = 6;     // of a register tile

/// What elements of T are multiplied in: unsigned numbers wrap as the signed ones do. Bytes wrap in wider ones too; of
/// bools the pairs that are both true are counted.
template <class T>
using Wide = std::conditional_t<
    std::is_same_v<T, bool>, uint32_t,
    std::conditional_t<sizeof(T) == 8, uint64_t, std::conditional_t<sizeof(T) == 4, uint32_t, uint16_t>>>;

/// Values [k, k + depth) of `width` columns of b from `column` on, side by side in a strip, with zeros in the rest of
/// it.
template <class T>
void pack(const contract::IntegerTask& t, int64_t k, int64_t depth, int64_t column, int64_t width, int64_t strip,
          Wide<T>* HWY_RESTRICT to) {
  const T* from = reinterpret_cast<const T*>(t.b.data) + k * t.b.row + column * t.b.col;
  for (int64_t i = 0; i < depth; ++i, from += t.b.row, to += strip) {
    if (t.b.col == 1)
      for (int64_t j = 0; j < width; ++j) to[j] = static_cast<Wide<T>>(from[j]);
    else
      for (int64_t j = 0; j < width; ++j) to[j] = static_cast<Wide<T>>(from[j * t.b.col]);
    for (int64_t j = width; j < strip; ++j) to[j] = 0;
  }
}

/// sums[r][j] += sum over k < depth of a[r][k] * panel[k][j].
template <int kCount, class T>
void tile(const contract::IntegerTask& t, const T* a, int64_t depth, const Wide<T>* HWY_RESTRICT panel,
          Wide<T>* HWY_RESTRICT sums) {
  const hn::ScalableTag<Wide<T>> d;
  const size_t lanes = hn::Lanes(d);
  hn::Vec<decltype(d)> acc[kCount][kVectors];
  for (size_t r = 0; r < kCount; ++r)
    for (size_t v = 0; v < kVectors; ++v) acc[r][v] = hn::LoadU(d, sums + (r * kVectors + v) * lanes);
  for (int64_t k = 0; k < depth; ++k, a += t.a.col, panel += kVectors * lanes) {
    const auto left = hn::LoadU(d, panel), right = hn::LoadU(d, panel + lanes);
    for (int r = 0; r < kCount; ++r) {
      const auto x = hn::Set(d, static_cast<Wide<T>>(a[r * t.a.row]));
      acc[r][0] = hn::Add(acc[r][0], hn::Mul(x, left));
      acc[r][1] = hn::Add(acc[r][1], hn::Mul(x, right));
    }
  }
  for (size_t r = 0; r < kCount; ++r)
    for (size_t v = 0; v < kVectors; ++v) hn::StoreU(acc[r][v], d, sums + (r * kVectors + v) * lanes);
}

/// One row of a strip to c, with the bias.
template <class T>
void finish(const contract::IntegerTask& t, int64_t row, int64_t column, int64_t width, const Wide<T>* sums) {
  T* c = reinterpret_cast<T*>(t.c.data) + row * t.c.row + column * t.c.col;
  const T* bias = t.bias ? static_cast<const T*>(t.bias) + row * t.bias_row + column * t.bias_col : nullptr;
  for (int64_t j = 0; j < width; ++j) {
    const Wide<T> more = bias ? static_cast<Wide<T>>(bias[j * t.bias_col]) : Wide<T>(0);
    if constexpr (std::is_same_v<T, bool>)
      c[j * t.c.col] = sums[j] != 0 || more != 0;
    else
      c[j * t.c.col] = static_cast<T>(static_cast<Wide<T>>(sums[j] + more));
  }
}

/// Few columns, which would leave most of a strip empty: one dot product after the other.
template <class T>
void dots(const contract::IntegerTask& t) {
  for (int64_t i = t.first_row; i < t.last_row; ++i)
    for (int64_t j = t.first_column; j < t.last_column; ++j) {
      const T *a = reinterpret_cast<const T*>(t.a.data) + i * t.a.row,
              *b = reinterpret_cast<const T*>(t.b.data) + j * t.b.col;
      Wide<T> sum = 0;
      const auto add = [&](int64_t x, int64_t y) {
        // In 32 bits at least: 16-bit operands would be promoted to int, whose overflow is undefined.
        using Product = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;
        sum = static_cast<Wide<T>>(sum + static_cast<Product>(static_cast<Wide<T>>(a[x])) * static_cast<Wide<T>>(b[y]));
      };
      if (t.a.col == 1 && t.b.row == 1)
        for (int64_t k = 0; k < t.k; ++k) add(k, k);
      else
        for (int64_t k = 0; k < t.k; ++k) add(k * t.a.col, k * t.b.row);
      finish<T>(t, i, j, 1, &sum);
    }
}

template <class T>
void multiply(const contract::IntegerTask& t) {
  constexpr int64_t kDepth = 1024;  // of a panel, which stays in L2
  const auto strip = static_cast<int64_t>(kVectors * hn::Lanes(hn::ScalableTag<Wide<T>>()));
  if (t.last_column - t.first_column < 4) return dots<T>(t);
  const int64_t rows = t.last_row - t.first_row;
  std::vector<Wide<T>> panel(static_cast<size_t>(std::min(kDepth, t.k) * strip));
  std::vector<Wide<T>> sums(static_cast<size_t>(rows * strip));
  const T* a = reinterpret_cast<const T*>(t.a.data) + t.first_row * t.a.row;
  for (int64_t j = t.first_column; j < t.last_column; j += strip) {
    const int64_t width = std::min(strip, t.last_column - j);
    std::fill(sums.begin(), sums.end(), Wide<T>(0));
    for (int64_t k = 0; k < t.k; k += kDepth) {
      const int64_t depth = std::min(kDepth, t.k - k);
      pack<T>(t, k, depth, j, width, strip, panel.data());
      const T* from = a + k * t.a.col;
      int64_t r = 0;
      for (; r + kRows <= rows; r += kRows)
        tile<kRows>(t, from + r * t.a.row, depth, panel.data(), sums.data() + r * strip);
      for (; r < rows; ++r) tile<1>(t, from + r * t.a.row, depth, panel.data(), sums.data() + r * strip);
    }
    for (int64_t r = 0; r < rows; ++r) finish<T>(t, t.first_row + r, j, width, sums.data() + r * strip);
  }
}

void multiply_of(const contract::IntegerTask& t, DType dtype) {
  if (dtype == DType::kBool) return multiply<bool>(t);
  core::visit_integer(dtype, [&]<class T>() { multiply<T>(t); });
}

}  // namespace
}  // namespace tenor::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tenor::cpu {
HWY_EXPORT(multiply_of);
void multiply_integers(const contract::IntegerTask& task, DType dtype) {
  HWY_DYNAMIC_DISPATCH(multiply_of)(task, dtype);
}
}  // namespace tenor::cpu
#endif
