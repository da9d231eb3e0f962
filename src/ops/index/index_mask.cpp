// masked_select, masked_scatter, nonzero: places that a mask or the data itself names, in row-major order.
#include <bit>
#include <numeric>

#include "src/core/backend.h"
#include "src/core/layout.h"
#include "src/core/output.h"
#include "src/core/registry.h"
#include "src/core/step.h"
#include "src/core/untraceable.h"
#include "src/core/visit.h"
#include "src/cpu/parallel.h"
#include "src/ops/index/index_check.h"
#include "src/ops/index/index_mask_cuda.h"
#include "tenor/elementwise.h"
#include "tenor/index.h"

namespace tenor {
namespace {

using core::broadcast_strides;
using core::check_given;
using core::fail;
using core::OpClass;
using core::Step;

const core::OpRegistration kOps({
    {"masked_select", "index", OpClass::kIndex, "x, mask [*S] -> [count]: the elements where mask holds, row-major"},
    {"masked_scatter", "index", OpClass::kIndex, "x with source's elements, in order, where mask holds"},
    {"nonzero", "index", OpClass::kIndex, "x [*S] -> int64 [count, ndim]: the places that are not zero, row-major"},
});

/// Places are counted in chunks of this many, then filled from each chunk's start: the same places for any thread
/// count.
constexpr int64_t kChunk = 1 << 14;

/// Calls fn(position, offset in a, offset in b) for flat positions begin..end of a shape, row-major.
template <class Fn>
void walk(const Dims& shape, const Dims& a, const Dims& b, int64_t begin, int64_t end, Fn fn) {
  const int64_t length = shape.empty() ? 1 : shape.back(), sa = a.empty() ? 0 : a.back(), sb = b.empty() ? 0 : b.back();
  while (begin < end) {
    int64_t rest = begin / length, oa = 0, ob = 0;
    for (size_t d = shape.empty() ? 0 : shape.size() - 1; d-- > 0;) {
      oa += rest % shape[d] * a[d];
      ob += rest % shape[d] * b[d];
      rest /= shape[d];
    }
    const int64_t first = begin % length, last = std::min(length, first + end - begin);
    for (int64_t j = first; j < last; ++j) fn(begin + j - first, oa + j * sa, ob + j * sb);
    begin += last - first;
  }
}

/// Elements of one size, some of whose bits make them "not zero": all but the sign of floats.
template <class T>
struct Truth {
  const T* data;
  T bits;
  bool operator()(int64_t offset) const { return (data[offset] & bits) != 0; }
};

template <class T>
Truth<T> truth_of(const Tensor& x) {
  const T all = static_cast<T>(~T(0));
  return {x.data<T>(), is_float(x.dtype()) ? static_cast<T>(all >> 1) : all};
}

/// starts[c] is the number of true places in front of chunk c; the last entry is their number.
template <class T>
std::vector<int64_t> chunk_starts(const Dims& shape, const Dims& strides, Truth<T> truth) {
  const int64_t count = product(shape), chunks = (count + kChunk - 1) / kChunk;
  std::vector<int64_t> starts(chunks + 1, 0);
  cpu::parallel_for(chunks, 2, [&](int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; ++c) {
      int64_t found = 0;
      walk(shape, strides, strides, c * kChunk, std::min(count, (c + 1) * kChunk),
           [&](int64_t, int64_t a, int64_t) { found += truth(a); });
      starts[c + 1] = found;
    }
  });
  std::partial_sum(starts.begin(), starts.end(), starts.begin());
  return starts;
}

/// Calls fn(k, position, offset in a, offset in b) for the k-th true place; a has the truth.
template <class T, class Fn>
void for_each_true(const Dims& shape, const Dims& a, const Dims& b, Truth<T> truth, const std::vector<int64_t>& starts,
                   Fn fn) {
  const int64_t count = product(shape);
  cpu::parallel_for(static_cast<int64_t>(starts.size()) - 1, 2, [&](int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; ++c) {
      int64_t k = starts[c];
      if (k == starts[c + 1]) continue;
      walk(shape, a, b, c * kChunk, std::min(count, (c + 1) * kChunk), [&](int64_t at, int64_t oa, int64_t ob) {
        if (truth(oa)) fn(k++, at, oa, ob);
      });
    }
  });
}

void check_data_dependent(const char* op, const Tensor& x) {
  if (x.device().type == DeviceType::kMeta)
    core::fail_untraceable<UnsupportedError>("{}: the size of the result depends on data", op);
}

Tensor expanded(const Tensor& x, const Dims& shape) {
  return x.with_layout(shape, broadcast_strides(x, shape), x.offset());
}

/// target[k-th true place] = source[k], for a target and mask of one shape.
void fill_masked(const Tensor& target, const Tensor& mask, const Tensor& source, const std::vector<int64_t>& starts) {
  const Tensor values = source.contiguous();
  core::visit_size(target.dtype(), [&]<class T>() {
    const T* from = values.data<T>();
    T* to = target.data<T>();
    for_each_true(mask.shape(), mask.strides(), target.strides(), truth_of<uint8_t>(mask), starts,
                  [&](int64_t k, int64_t, int64_t, int64_t at) { to[at] = from[k]; });
  });
}

struct MaskedScatter {
  const char* op;
  Tensor mask, source;  // mask at the result's shape
  std::vector<int64_t> starts;
};

void fill_masked(const MaskedScatter& m, const Tensor& target, const Tensor& mask, const Tensor& source) {
  if constexpr (core::kHasCuda) {
    if (core::on_cuda(target))
      return index::put_masked_on_device({m.op, "mask, which selects more than source has,"}, target, mask,
                                         index::device_true_starts(m.op, mask), source, false);
  }
  fill_masked(target, mask, source, m.starts);
}

MaskedScatter check_masked_scatter(const char* op, const Tensor& x, const Tensor& mask, const Tensor& source,
                                   const Dims& shape) {
  core::check_same_dtype(op, {"x", x}, {"source", source});
  core::check_same_device(op, {{"x", x}, {"mask", mask}, {"source", source}});
  MaskedScatter m{op, expanded(mask, shape), source, {}};
  if (x.device().type != DeviceType::kCpu) return m;
  m.starts = chunk_starts(shape, m.mask.strides(), truth_of<uint8_t>(m.mask));
  if (source.numel() < m.starts.back())
    fail<ShapeError>("{}: source of shape {} has {} elements, mask selects {}", op, source.shape(), source.numel(),
                     m.starts.back());
  return m;
}

}  // namespace

namespace {

/// put_masked on CUDA, where the number of true places is not asked for.
void put_masked_on_cuda(const char* op, const Tensor& x, const Tensor& mask, const Tensor& values) {
  if (values.ndim() > 1)
    fail<ShapeError>("{}: values of shape {} cannot broadcast to the 1-d indexed shape", op, values.shape());
  core::check_writable(op, "x", x);
  const bool repeat = values.numel() == 1;
  const Tensor where = index::read_first(mask, core::spans_overlap(mask, x)),
               from = index::read_first(values, core::spans_overlap(values, x)),
               starts = index::device_true_starts(op, where);
  index::put_masked_on_device({op, "mask, which selects more than there are values,"}, x, where, starts, from, repeat);
  if (!repeat) index::expect_count_on_device({op, "values for a mask"}, starts, from.numel());
}

/// masked_select on CUDA.
Tensor select_masked_on_cuda(const char* op, const Tensor& x, const Tensor& mask, const Tensor& out_option,
                             std::initializer_list<const Tensor*> inputs) {
  const Tensor starts = index::device_true_starts(op, mask);
  core::Output out(op, out_option, {index::device_true_count(op, starts)}, x.dtype(), x.with_layout({}, {}, x.offset()),
                   inputs, {.contiguous = true, .cuda = core::kHasCuda});
  core::StepScope step([&] { return Step{op, OpClass::kIndex, {x, mask}, {out.target()}}; });
  index::select_masked_on_device(op, x, mask, starts, out.target());
  return out.finish();
}

/// nonzero on CUDA.
Tensor nonzero_on_cuda(const char* op, const Tensor& x, const Tensor& out_option) {
  const Tensor starts = index::device_true_starts(op, x);
  core::Output out(op, out_option, {index::device_true_count(op, starts), x.ndim()}, int64, x, {&x},
                   {.contiguous = true, .cuda = core::kHasCuda});
  core::StepScope step([&] { return Step{op, OpClass::kIndex, {x}, {out.target()}}; });
  index::write_places_on_device(op, x, starts, out.target());
  return out.finish();
}

}  // namespace

void index::put_masked(const char* op, const Tensor& x, const Tensor& mask, const Tensor& values) {
  if constexpr (core::kHasCuda) {
    if (core::on_cuda(x)) return put_masked_on_cuda(op, x, mask, values);
  }
  const std::vector<int64_t> starts = chunk_starts(mask.shape(), mask.strides(), truth_of<uint8_t>(mask));
  const int64_t count = starts.back();
  if (values.ndim() > 1 || (values.numel() != 1 && values.numel() != count))
    fail<ShapeError>("{}: values of shape {} cannot broadcast to the indexed shape {}", op, values.shape(),
                     Dims{count});
  core::check_writable(op, "x", x);
  if (values.numel() == 1) {
    masked_fill_(x, mask, values.with_layout({}, {}, values.offset()));
  } else {
    fill_masked(x, read_first(mask, core::spans_overlap(mask, x)), read_first(values, core::spans_overlap(values, x)),
                starts);
  }
}

Tensor masked_select(const Tensor& x, const Tensor& mask, const IndexOptions& options) {
  const char* op = "masked_select";
  check_given(op, {"x", x});
  index::check_mask(op, {"mask", mask});
  core::check_same_device(op, {{"x", x}, {"mask", mask}});
  const Dims shape = core::broadcast_shapes(op, x.shape(), mask.shape());
  check_data_dependent(op, x);
  const Tensor from = expanded(x, shape), where = expanded(mask, shape);
  if constexpr (core::kHasCuda) {
    if (core::on_cuda(x)) return select_masked_on_cuda(op, from, where, options.out, {&x, &mask});
  }
  const std::vector<int64_t> starts = chunk_starts(shape, where.strides(), truth_of<uint8_t>(where));
  core::Output out(op, options.out, {starts.back()}, x.dtype(), {}, {&x, &mask}, {.contiguous = true});
  core::StepScope step([&] { return Step{op, OpClass::kIndex, {x, mask}, {out.target()}}; });
  core::visit_size(x.dtype(), [&]<class T>() {
    const T* data = from.data<T>();
    T* to = out.target().data<T>();
    for_each_true(shape, where.strides(), from.strides(), truth_of<uint8_t>(where), starts,
                  [&](int64_t k, int64_t, int64_t, int64_t at) { to[k] = data[at]; });
  });
  return out.finish();
}

Tensor masked_scatter(const Tensor& x, const Tensor& mask, const Tensor& source, const IndexOptions& options) {
  const char* op = "masked_scatter";
  check_given(op, {"x", x});
  index::check_mask(op, {"mask", mask});
  const Dims shape = core::broadcast_shapes(op, x.shape(), mask.shape());
  const MaskedScatter m = check_masked_scatter(op, x, mask, source, shape);
  core::Output out(op, options.out, shape, x.dtype(), x, {&x, &mask, &source}, {.cuda = core::kHasCuda});
  core::StepScope step([&] {
    return Step{op, OpClass::kIndex, {x, mask, source}, {out.target()}}.with(
        core::recipe([](const auto& in, const auto& outs) { masked_scatter(in[0], in[1], in[2], {.out = outs[0]}); }));
  });
  if (step.shape_only(out.target())) return out.target();
  core::copy_into(expanded(x, shape), out.target());
  fill_masked(m, out.target(), m.mask, source);
  return out.finish();
}

Tensor masked_scatter_(const Tensor& x, const Tensor& mask, const Tensor& source) {
  const char* op = "masked_scatter_";
  check_given(op, {"x", x});
  index::check_mask(op, {"mask", mask});
  if (core::broadcast_shapes(op, x.shape(), mask.shape()) != x.shape())
    fail<ShapeError>("{}: mask of shape {} does not broadcast to x of shape {}", op, mask.shape(), x.shape());
  const MaskedScatter m = check_masked_scatter(op, x, mask, source, x.shape());
  core::check_writable(op, "x", x);
  core::StepScope step([&] {
    return Step{op, OpClass::kIndex, {x, mask, source}, {x}}.with(
        core::recipe([](const auto& in, const auto& outs) { masked_scatter_(outs[0], in[1], in[2]); }));
  });
  if (step.shape_only(x)) return x;
  fill_masked(m, x, index::read_first(m.mask, core::spans_overlap(m.mask, x)),
              index::read_first(source, core::spans_overlap(source, x)));
  return x;
}

Tensor nonzero(const Tensor& x, const IndexOptions& options) {
  const char* op = "nonzero";
  check_given(op, {"x", x});
  check_data_dependent(op, x);
  if constexpr (core::kHasCuda) {
    if (core::on_cuda(x)) return nonzero_on_cuda(op, x, options.out);
  }
  return core::visit_size(x.dtype(), [&]<class T>() {
    const Truth<T> truth = truth_of<T>(x);
    const std::vector<int64_t> starts = chunk_starts(x.shape(), x.strides(), truth);
    core::Output out(op, options.out, {starts.back(), x.ndim()}, int64, {}, {&x}, {.contiguous = true});
    core::StepScope step([&] { return Step{op, OpClass::kIndex, {x}, {out.target()}}; });
    auto* to = out.target().template data<int64_t>();
    const size_t rank = x.shape().size();
    for_each_true(x.shape(), x.strides(), x.strides(), truth, starts, [&](int64_t k, int64_t at, int64_t, int64_t) {
      for (size_t d = rank; d-- > 0;) {
        to[static_cast<size_t>(k) * rank + d] = at % x.shape()[d];
        at /= x.shape()[d];
      }
    });
    return out.finish();
  });
}

}  // namespace tenor
