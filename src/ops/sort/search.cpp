// searchsorted: binary searches among keys.
#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>

#include "src/core/backend.h"
#include "src/core/numeric.h"
#include "src/core/output.h"
#include "src/core/registry.h"
#include "src/core/step.h"
#include "src/core/visit.h"
#include "src/cpu/parallel.h"
#include "src/ops/sort/key.h"
#include "src/ops/sort/order_check.h"
#include "src/ops/sort/sort_cuda.h"
#include "tenor/allocator.h"
#include "tenor/sort.h"

namespace tenor {
namespace {

using core::fail;
using core::OpClass;
using core::Output;

const core::OpRegistration kOps({
    {"searchsorted", "sort", OpClass::kReduction,
     "sequence[n] or [*B, n], values[*V] or [*B, m] -> places like values"},
});

/// The number of elements of seq[0, n) whose key is < key, or <= key: few searches in a long sequence, so elements are
/// encoded as they are met.
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

/// The same for many keys among keys, n > 0: as many searches in step as the processor can keep loads in flight,
/// without a branch on data.
template <bool Right, class K>
void places_of(const K* seq, int64_t n, const K* keys, int64_t count, int64_t* places) {
  constexpr int64_t kInStep = 16;
  const auto before = [](K element, K key) { return Right ? element <= key : element < key; };
  for (int64_t first = 0; first < count; first += kInStep) {
    const int64_t some = std::min(kInStep, count - first);
    const K* at[kInStep];
    std::fill_n(at, some, seq);
    for (int64_t left = n; left > 1; left -= left / 2)
      for (int64_t i = 0; i < some; ++i) at[i] += before(at[i][left / 2 - 1], keys[first + i]) ? left / 2 : 0;
    for (int64_t i = 0; i < some; ++i) places[first + i] = at[i] - seq + before(*at[i], keys[first + i]);
  }
}

/// Values [begin, end), all searched in one sequence.
template <class K>
void search_encoded(const K* seq, int64_t n, cpu::KeyCode code, const K* values, int64_t count, bool right,
                    int64_t* places) {
  if (n == 0) return void(std::fill_n(places, count, 0));
  K keys[cpu::kKeyBlock];
  for (int64_t done = 0; done < count; done += cpu::kKeyBlock) {
    const int64_t some = std::min(cpu::kKeyBlock, count - done);
    cpu::encode_all(values + done, static_cast<size_t>(some), code, keys);
    if (right)
      places_of<true>(seq, n, keys, some, places + done);
    else
      places_of<false>(seq, n, keys, some, places + done);
  }
}

/// The keys of a contiguous (or 1-d) sequence.
template <class K>
std::shared_ptr<void> encoded(const Tensor& seq, cpu::KeyCode code) {
  const int64_t n = seq.numel(), stride = seq.ndim() == 1 ? seq.stride(0) : 1;
  auto memory = current_allocator().allocate(static_cast<size_t>(n) * sizeof(K), kCpu);
  K* keys = static_cast<K*>(memory.get());
  cpu::parallel_for(n, cpu::grain_of(8), [&](int64_t begin, int64_t end) {
    K block[cpu::kKeyBlock] = {};
    for (int64_t i = begin; i < end; i += cpu::kKeyBlock) {
      const int64_t some = std::min(cpu::kKeyBlock, end - i);
      cpu::encode_all(cpu::side_by_side(seq.data<K>(), stride, i, some, block), static_cast<size_t>(some), code,
                      keys + i);
    }
  });
  return memory;
}

/// values and out are contiguous; a sequence of one dim serves all values, else each row its own m.
void search_rows(const Tensor& seq, const Tensor& values, bool right, const Tensor& out) {
  const bool one = seq.ndim() == 1;
  const int64_t n = seq.shape(-1), count = values.numel(), m = one ? count : values.shape(-1);
  const cpu::KeyCode code = cpu::key_code(seq.dtype());
  core::visit_size(seq.dtype(), [&]<class K>() {
    const K* wanted = values.data<K>();
    int64_t* places = out.data<int64_t>();
    if (count < seq.numel() / 8) {
      cpu::parallel_for(count, cpu::grain_of(256), [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i)
          places[i] = place_of(seq.data<K>() + (one ? 0 : i / m * n), n, one ? seq.stride(0) : 1, code,
                               cpu::encode(wanted[i], code), right);
      });
      return;
    }
    const auto memory = encoded<K>(seq, code);
    const K* keys = static_cast<const K*>(memory.get());
    cpu::parallel_for(count, cpu::grain_of(128), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end;) {
        const int64_t row_end = std::min(end, (i / m + 1) * m);
        search_encoded(keys + i / m * n, n, code, wanted + i, row_end - i, right, places + i);
        i = row_end;
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
    fail<ShapeError>("{}: values of shape {} must agree with sorted_sequence of shape {} in all dims but the last", op,
                     values, seq.shape());
}

/// A scalar as an element of an integer or bool dtype, so that the answer is by value: a fraction or a number beyond
/// the dtype's range becomes the nearest element at or below it, and `right` is set where the scalar lies above that.
struct IntegerScalar {
  Tensor value;
  bool right;
  bool before_all = false;  ///< below the dtype's range

  IntegerScalar(DType dtype, const Scalar& scalar, bool right_in) : value(Tensor::empty({}, dtype)), right(right_in) {
    core::visit(dtype, [&]<class T>() {
      if constexpr (std::is_integral_v<T>) {
        // Every integer and its bounds are exact in long double (64-bit significand) or decided by the kind.
        const long double wanted = scalar.is_float() ? static_cast<long double>(scalar.as_double())
                                   : scalar.kind() == Scalar::Kind::kUInt
                                       ? static_cast<long double>(static_cast<uint64_t>(scalar.as_int()))
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

/// Of a sequence none: everything is found at 0.
Tensor narrowed(const Tensor& seq) { return seq.with_layout({0}, {1}, seq.offset()); }

/// On the sequence's device; a scalar stays in the host's memory.
void search_into(const Tensor& seq, const Tensor& values, bool right, const Tensor& places) {
  if constexpr (core::kHasCuda) {
    if (core::on_cuda(seq))
      return core::on_cuda(values) ? cuda::search_rows(seq, values, right, places)
                                   : cuda::search_one(seq, values, right, places);
  }
  search_rows(seq, values, right, places);
}

Tensor run_search(const Tensor& seq, const Tensor& values, bool right, bool before_all, const Tensor& out_given) {
  Output out("searchsorted", out_given, values.shape(), int64, seq, {&seq, &values},
             {.contiguous = true, .cuda = core::kHasCuda});
  core::StepScope step([&] {
    core::Step made{"searchsorted", OpClass::kReduction, {seq, values}, {out.target()}};
    made.recipe = core::recipe(
        [right](const auto& in, const auto& outs) { searchsorted(in[0], in[1], {.right = right, .out = outs[0]}); });
    if (seq.dtype() != values.dtype())
      made.strategy = "compared as " + std::string(name(promote(seq.dtype(), values.dtype())));
    if (seq.ndim() > 1 && !seq.is_contiguous())
      made.copies.push_back({"sorted_sequence", seq.numel() * static_cast<int64_t>(item_size(seq.dtype())),
                             "each row is searched as it lies"});
    if (!values.is_contiguous())
      made.copies.push_back(
          {"values", values.numel() * static_cast<int64_t>(item_size(values.dtype())), "values are read in order"});
    return made;
  });
  if (step.shape_only(out.target())) return out.target();
  const DType common = promote(seq.dtype(), values.dtype());
  const Tensor sequence = seq.ndim() > 1 ? seq.to(common).contiguous() : seq.to(common);
  search_into(before_all ? narrowed(sequence) : sequence, values.to(common).contiguous(), right, out.target());
  return out.finish();
}

}  // namespace

Tensor searchsorted(const Tensor& seq, const Operand& values, const SearchsortedOptions& options) {
  core::check_orderable("searchsorted", {"sorted_sequence", seq});
  check_search(seq, values.is_tensor() ? values.tensor().shape() : Dims(), !values.is_tensor());
  if (!values.is_tensor()) {
    if (is_float(seq.dtype()))
      return run_search(seq, scalar_tensor(seq.dtype(), values.scalar()), options.right, false, options.out);
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

}  // namespace tenor
