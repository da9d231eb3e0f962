// searchsorted and bincount.
#include <algorithm>
#include <cmath>
#include <memory>

#include "src/core/numeric.h"
#include "src/core/output.h"
#include "src/core/registry.h"
#include "src/core/step.h"
#include "src/cpu/parallel.h"
#include "src/ops/sort/order_check.h"
#include "src/ops/sort/key.h"
#include "tenor/sort.h"

namespace tenor {
namespace {

using core::fail;
using core::OpClass;
using core::Output;

const core::OpRegistration kOps({
    {"searchsorted", "sort", OpClass::kReduction, "sequence[n] or [*B, n], values[*V] or [*B, m] -> places like values"},
    {"bincount", "sort", OpClass::kReduction, "x[n], weights[n] -> [max(x) + 1], how often each value occurs"},
});

/// The number of elements of seq[0, n) whose key is < key, or <= key.
template <class K>
int64_t place_of(const K* seq, int64_t n, int64_t stride, cpu::KeyCode code, K key, bool right) {
  int64_t low = 0;
  for (int64_t left = n; left > 0;) {
    const int64_t half = left / 2;
    const K middle = cpu::encode(seq[(low + half) * stride], code);
    const bool after = right ? middle <= key : middle < key;
    low = after ? low + half + 1 : low;
    left = after ? left - half - 1 : half;
  }
  return low;
}

/// values and out are contiguous; a sequence of one dim serves all values, else each row its own m.
void search_rows(const Tensor& seq, const Tensor& values, bool right, const Tensor& out) {
  const bool one = seq.ndim() == 1;
  const int64_t n = seq.shape(-1), m = one ? values.numel() : values.shape(-1);
  const cpu::KeyCode code = cpu::key_code(seq.dtype());
  core::visit_size(seq.dtype(), [&]<class K>() {
    cpu::parallel_for(values.numel(), cpu::grain_of(256), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const K* row = seq.data<K>() + (one ? 0 : i / m * n);
        const K key = cpu::encode(values.data<K>()[i], code);
        out.data<int64_t>()[i] = place_of(row, n, one ? seq.stride(0) : 1, code, key, right);
      }
    });
  });
}

void check_search(const Tensor& seq, const Dims& values, bool scalar) {
  const auto op = "searchsorted";
  if (seq.ndim() == 0) fail<ShapeError>("{}: sorted_sequence must have at least 1 dim, got a 0-d array", op);
  if (seq.ndim() == 1) return;
  if (scalar || values.empty())
    fail<ShapeError>("{}: a scalar needs a 1-d sorted_sequence, got shape {}", op, seq.shape());
  const auto lead = [](const Dims& shape) { return Dims(shape.begin(), shape.end() - 1); };
  if (lead(seq.shape()) != lead(values))
    fail<ShapeError>("{}: values of shape {} must agree with sorted_sequence of shape {} in all dims but the last", op, values, seq.shape());
}

/// A scalar as an element of an integer or bool dtype, so that the answer is by value: a fraction or a number beyond the
/// dtype's range becomes the nearest element at or below it, and `right` is set where the scalar lies above that.
struct IntegerScalar {
  Tensor value;
  bool right;
  bool before_all = false;  ///< below the dtype's range

  IntegerScalar(DType dtype, const Scalar& scalar, bool right_in) : value(Tensor::empty({}, dtype)), right(right_in) {
    core::visit(dtype, [&]<class T>() {
      if constexpr (std::is_integral_v<T>) {
        // Every integer and its bounds are exact in long double (64-bit significand) or decided by the kind.
        const long double wanted = scalar.is_float() ? static_cast<long double>(scalar.as_double())
                                   : scalar.kind() == Scalar::Kind::kUInt ? static_cast<long double>(static_cast<uint64_t>(scalar.as_int()))
                                                                         : static_cast<long double>(scalar.as_int());
        const long double least = std::numeric_limits<T>::min(), most = std::numeric_limits<T>::max();
        before_all = wanted < least;
        const long double below = std::isnan(wanted) || wanted > most ? most : before_all ? least : std::floor(wanted);
        right = right || std::isnan(wanted) || (!before_all && below < wanted);
        *value.data<T>() = static_cast<T>(below);
      }
    });
  }
};

Tensor scalar_tensor(DType dtype, const Scalar& scalar) {
  Tensor value = Tensor::empty({}, dtype);
  core::visit(dtype, [&]<class T>() { *value.data<T>() = core::cast<T>(scalar.as_double()); });
  return value;
}

Tensor run_search(const Tensor& seq, const Tensor& values, bool right, bool before_all, const Tensor& out_given) {
  Output out("searchsorted", out_given, values.shape(), int64, seq, {&seq, &values}, {.contiguous = true});
  core::StepScope step([&] {
    core::Step made{"searchsorted", OpClass::kReduction, {seq, values}, {out.target()}};
    if (seq.dtype() != values.dtype()) made.strategy = "compared as " + std::string(name(promote(seq.dtype(), values.dtype())));
    if (seq.ndim() > 1 && !seq.is_contiguous())
      made.copies.push_back({"sorted_sequence", seq.numel() * static_cast<int64_t>(item_size(seq.dtype())), "each row is searched as it lies"});
    if (!values.is_contiguous())
      made.copies.push_back({"values", values.numel() * static_cast<int64_t>(item_size(values.dtype())), "values are read in order"});
    return made;
  });
  if (step.shape_only(out.target())) return out.target();
  if (before_all) {
    *out.target().data<int64_t>() = 0;
  } else {
    const DType common = promote(seq.dtype(), values.dtype());
    search_rows(seq.ndim() > 1 ? seq.to(common).contiguous() : seq.to(common), values.to(common).contiguous(), right, out.target());
  }
  return out.finish();
}

/// The largest element of x [n], -1 for none. @throws ValueError naming a negative one (or one beyond int64).
int64_t largest_count(const Tensor& x) {
  int64_t most = -1;
  core::visit_integer(x.dtype(), [&]<class T>() {
    for (int64_t i = 0; i < x.numel(); ++i) {
      const T value = x.data<T>()[i * x.stride(0)];
      if (static_cast<int64_t>(value) < 0) fail<ValueError>("bincount: x must hold integers >= 0, got {} at {}", value, i);
      most = std::max(most, static_cast<int64_t>(value));
    }
  });
  return most;
}

/// Adds 1, or the element's weight, to the bin of every element, in index order.
template <class Sum>
void add_counts(const Tensor& x, const Tensor& weights, Sum* bins) {
  core::visit_integer(x.dtype(), [&]<class T>() {
    const T* at = x.data<T>();
    const int64_t n = x.numel(), stride = x.stride(0);
    if constexpr (std::is_same_v<Sum, int64_t>) {
      for (int64_t i = 0; i < n; ++i) ++bins[at[i * stride]];
    } else {
      for (int64_t i = 0; i < n; ++i) bins[at[i * stride]] += weights.data<double>()[i * weights.stride(0)];
    }
  });
}

}  // namespace

Tensor searchsorted(const Tensor& seq, const Operand& values, const SearchsortedOptions& options) {
  core::check_orderable("searchsorted", {"sorted_sequence", seq});
  check_search(seq, values.is_tensor() ? values.tensor().shape() : Dims(), !values.is_tensor());
  if (!values.is_tensor()) {
    if (is_float(seq.dtype())) return run_search(seq, scalar_tensor(seq.dtype(), values.scalar()), options.right, false, options.out);
    const IntegerScalar exact(seq.dtype(), values.scalar(), options.right);
    return run_search(seq, exact.value, exact.right, exact.before_all, options.out);
  }
  const Tensor& v = values.tensor();
  core::check_orderable("searchsorted", {"values", v});
  core::check_same_device("searchsorted", {{"sorted_sequence", seq}, {"values", v}});
  const bool mixed = (seq.dtype() == uint64 && is_signed(v.dtype())) || (v.dtype() == uint64 && is_signed(seq.dtype()));
  if (mixed) fail<DTypeError>("searchsorted: {} and {} meet in no dtype; convert one of them", seq.dtype(), v.dtype());
  return run_search(seq, v, options.right, false, options.out);
}

Tensor bincount(const Tensor& x, const BincountOptions& options) {
  core::check_index_dtype("bincount", {"x", x});
  core::check_ndim("bincount", {"x", x}, 1);
  const Tensor& weights = options.weights;
  if (weights.defined()) {
    core::check_orderable("bincount", {"weights", weights});
    core::check_shape("bincount", {"weights", weights}, x.shape());
    core::check_same_device("bincount", {{"x", x}, {"weights", weights}});
  }
  if (options.minlength < 0) fail<ValueError>("bincount: minlength must be >= 0, got {}", options.minlength);
  core::check_has_data("bincount", {"x", x});

  const Dims shape{std::max(largest_count(x) + 1, options.minlength)};
  const DType dtype = !weights.defined() ? int64 : weights.dtype() == float32 ? float32 : float64;
  Output out("bincount", options.out, shape, dtype, x, {&x, &weights}, {.contiguous = true});
  core::StepScope step([&] { return core::Step{"bincount", OpClass::kReduction, {x, weights}, {out.target()}}; });
  if (dtype == int64) {
    std::fill_n(out.target().data<int64_t>(), shape[0], 0);
    add_counts(x, {}, out.target().data<int64_t>());
    return out.finish();
  }
  const Tensor sums = dtype == float64 ? out.target() : Tensor::empty(shape, float64);
  std::fill_n(sums.data<double>(), shape[0], 0.0);
  add_counts(x, weights.to(float64), sums.data<double>());
  if (dtype == float32) core::copy_into(sums, out.target());
  return out.finish();
}

}  // namespace tenor
