// cat, stack, tile, repeat, repeat_interleave: several pieces into one tensor.
#include <cstring>

#include "src/core/backend.h"
#include "src/core/layout.h"
#include "src/core/output.h"
#include "src/core/registry.h"
#include "src/core/step.h"
#include "src/core/untraceable.h"
#include "src/core/view_of.h"
#include "src/core/visit.h"
#include "src/cpu/parallel.h"
#include "src/cuda/remap.h"
#include "src/ops/index/index_check.h"
#include "src/ops/index/index_join_cuda.h"
#include "src/ops/index/index_mask_cuda.h"
#include "src/ops/index/index_recipe.h"
#include "src/ops/index/index_rows.h"
#include "tenor/index.h"

namespace tenor {
namespace {

using core::check_given;
using core::fail;
using core::normalize_dim;
using core::OpClass;
using core::Output;
using core::Step;

const core::OpRegistration kOps({
    {"cat", "index", OpClass::kIndex, "tensors [..., n_i, ...] -> [..., sum n_i, ...] along dim"},
    {"stack", "index", OpClass::kIndex, "k tensors [*S] -> [..., k, ...] along a new dim"},
    {"tile", "index", OpClass::kIndex, "x laid out dims[d] times along each dim"},
    {"repeat", "index", OpClass::kIndex, "x laid out sizes[d] times along each dim"},
    {"repeat_interleave", "index", OpClass::kIndex, "each element along dim several times in a row"},
});

/// The dtype that all pieces meet in. @throws DTypeError
DType promoted(const char* op, const std::vector<Tensor>& pieces) {
  DType dtype = pieces[0].dtype();
  try {
    for (const Tensor& x : pieces) dtype = promote(dtype, x.dtype());
  } catch (const DTypeError& error) {
    fail<DTypeError>("{}: {}", op, error.what());
  }
  return dtype;
}

/// Whether dims from d on lie row-major without gaps.
bool is_dense_from(const Tensor& x, int d) {
  int64_t step = 1;
  for (int k = x.ndim(); k-- > d;) {
    if (x.shape(k) != 1 && x.stride(k) != step) return false;
    step *= x.shape(k);
  }
  return true;
}

/// Whether each position of the dims in front of d is one run of bytes from every piece, and there are enough of them.
bool joins_runs(const std::vector<Tensor>& pieces, const Tensor& target, int d) {
  int64_t positions = 1;
  for (int k = 0; k < d; ++k) positions *= target.shape(k);
  if (positions < 4 * num_threads() || !is_dense_from(target, d)) return false;
  for (const Tensor& x : pieces)
    if (x.dtype() != target.dtype() || !is_dense_from(x, d)) return false;
  return true;
}

/// All pieces position by position, so that many narrow ones cost one pass.
void join_runs(const std::vector<Tensor>& pieces, const Tensor& target, int d) {
  const auto item = static_cast<int64_t>(item_size(target.dtype()));
  const Dims outer(target.shape().begin(), target.shape().begin() + d);
  const auto row_of = [&](const Tensor& x, int64_t position) {
    int64_t offset = 0;
    for (size_t k = outer.size(); k-- > 0; position /= outer[k]) offset += position % outer[k] * x.strides()[k];
    return x.data<char>() + offset * item;
  };
  std::vector<size_t> bytes;
  int64_t total = 0;
  for (const Tensor& x : pieces) {
    int64_t run = item;
    for (int k = d; k < x.ndim(); ++k) run *= x.shape(k);
    bytes.push_back(static_cast<size_t>(run));
    total += run;
  }
  cpu::parallel_for(product(outer), cpu::grain_of(2 * total), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      char* to = row_of(target, i);
      for (size_t k = 0; k < pieces.size(); ++k) {
        if (bytes[k] > 0) std::memcpy(to, row_of(pieces[k], i), bytes[k]);
        to += bytes[k];
      }
    }
  });
}

void join_one_by_one(const std::vector<Tensor>& pieces, const Tensor& target, int d) {
  int64_t start = 0;
  for (const Tensor& x : pieces) {
    if (x.numel() > 0)
      core::copy_into(x, target.with_layout(x.shape(), target.strides(), target.offset() + start * target.stride(d)));
    start += x.shape(d);
  }
}

void join_into(const char* op, const std::vector<Tensor>& pieces, const Tensor& target, int d) {
  if constexpr (core::kHasCuda) {
    if (core::on_cuda(target)) {
      if (!index::join_on_device(op, pieces, target, d)) join_one_by_one(pieces, target, d);
      return;
    }
  }
  if (joins_runs(pieces, target, d)) return join_runs(pieces, target, d);
  join_one_by_one(pieces, target, d);
}

/// Checked pieces of one rank, joined along d.
Tensor join(const char* op, const std::vector<Tensor>& given, const std::vector<Tensor>& pieces, int d,
            const Tensor& out_option) {
  Dims shape = pieces[0].shape();
  const DType dtype = promoted(op, pieces);
  shape[d] = 0;
  for (const Tensor& x : pieces) shape[d] = index::plus(op, shape[d], x.shape(d));
  Output out(op, out_option, shape, dtype, pieces[0], {}, {.cuda = core::kHasCuda});
  Tensor target = out.target();
  bool shared = false;
  if (out_option.defined())
    for (const Tensor& x : pieces) shared = shared || core::spans_overlap(x, target);
  core::StepScope step([&] {
    std::vector<core::ViewOf> views;
    for (size_t i = 0; i < pieces.size(); ++i) views.emplace_back(pieces[i], given[i]);
    const auto again = [op, views, d](const auto& in, const auto& outs) {
      std::vector<Tensor> seen;
      for (size_t i = 0; i < views.size(); ++i) seen.push_back(views[i](in[i]));
      join(op, in, seen, d, outs[0]);
    };
    return Step{op, OpClass::kIndex, given, {target}}.with(
        std::make_shared<index::JoinRecipe>(d, given[0].ndim() < pieces[0].ndim(), again));
  });
  if (step.shape_only(target)) return target;
  if (shared) target = Tensor::empty(shape, dtype, target.device());
  join_into(op, pieces, target, d);
  if (shared) core::copy_into(target, out.target());
  return out.finish();
}

void check_pieces(const char* op, const std::vector<Tensor>& tensors) {
  if (tensors.empty()) fail<ValueError>("{}: tensors must not be empty", op);
  for (size_t i = 0; i < tensors.size(); ++i) {
    const std::string name = "tensors[" + std::to_string(i) + "]";
    check_given(op, {name.c_str(), tensors[i]});
    core::check_same_device(op, {{"tensors[0]", tensors[0]}, {name.c_str(), tensors[i]}});
  }
}

/// A view of dim d as [outer, inner] with these strides, the others as they are.
struct Loops {
  Dims shape, strides;
  void add(int64_t size, int64_t stride) {
    shape.push_back(size);
    strides.push_back(stride);
  }
  Tensor of(const Tensor& x) const { return x.with_layout(shape, strides, x.offset()); }
};

/// Each dim of x over and over, on CUDA.
void tile_on_cuda(const char* op, const Tensor& x, const Tensor& out) {
  const size_t rank = out.shape().size(), lead = rank - x.shape().size();
  Dims shape(lead, 1), strides(lead, 0);
  std::vector<cuda::CoordinateRule> rules(rank);
  for (size_t d = 0; d < rank; ++d) {
    if (d >= lead) shape.push_back(x.shape()[d - lead]), strides.push_back(x.strides()[d - lead]);
    if (out.shape()[d] != shape[d]) rules[d] = {cuda::CoordinateRule::kWrap, 0, shape[d]};
  }
  cuda::remap(op, x.with_layout(shape, strides, x.offset()), rules, out);
}

Tensor tiled(const char* op, const Tensor& x, const Dims& counts, const Tensor& out_option) {
  for (int64_t n : counts)
    if (n < 0) fail<ValueError>("{}: counts must be >= 0, got {}", op, counts);
  const size_t rank = std::max(counts.size(), x.shape().size()), x_lead = rank - x.shape().size(),
               lead = rank - counts.size();
  Dims shape;
  for (size_t d = 0; d < rank; ++d)
    shape.push_back(index::times(op, d < x_lead ? 1 : x.shape()[d - x_lead], d < lead ? 1 : counts[d - lead]));
  Output out(op, out_option, shape, x.dtype(), x, {&x}, {.cuda = core::kHasCuda});
  const Tensor& target = out.target();
  core::StepScope step([&] {
    return Step{op, OpClass::kIndex, {x}, {target}}.with(
        core::recipe([op, counts](const auto& in, const auto& outs) { tiled(op, in[0], counts, outs[0]); }));
  });
  if (step.shape_only(target)) return target;
  if constexpr (core::kHasCuda) {
    if (core::on_cuda(x)) {
      tile_on_cuda(op, x, target);
      return out.finish();
    }
  }
  Loops from, to;
  for (size_t d = 0; d < rank; ++d) {
    const int64_t size = d < x_lead ? 1 : x.shape()[d - x_lead], times = d < lead ? 1 : counts[d - lead],
                  stride = target.strides()[d];
    if (times != 1) from.add(times, 0), to.add(times, size * stride);
    if (size != 1) from.add(size, x.strides()[d - x_lead]), to.add(size, stride);
  }
  core::copy_into(from.of(x), to.of(target));
  return out.finish();
}

/// x, or its elements in a row when no dim is given, and the dim to work along.
std::pair<Tensor, int> along(const char* op, const Tensor& x, std::optional<int64_t> dim) {
  check_given(op, {"x", x});
  if (dim) return {index::at_least_1d(x), normalize_dim(op, *dim, x.ndim())};
  if (x.device().type == DeviceType::kMeta) return {x.with_layout({x.numel()}, {1}, x.offset()), 0};
  const Tensor dense = x.contiguous();
  return {dense.with_layout({dense.numel()}, {1}, dense.offset()), 0};
}

void check_output_size(const std::optional<int64_t>& given, int64_t total) {
  if (given && *given != total)
    fail<ValueError>("repeat_interleave: output_size must be the sum of the repeats, {}, got {}", total, *given);
}

/// repeated_places on CUDA: a negative count is 0 and raises the flag, which the wait for the total then throws.
Tensor repeated_places_on_cuda(const Tensor& counts, int64_t n) {
  const char* op = "repeat_interleave";
  const Tensor spread = counts.with_layout({n}, {counts.numel() == 1 ? 0 : 1}, counts.offset()).contiguous(),
               sums = index::device_running_sums({op, "repeats"}, spread);
  const Tensor places = Tensor::empty({index::device_true_count(op, sums)}, int64, counts.device());
  index::write_repeated_places_on_device(op, sums, places);
  return places;
}

/// Each place of 0..n-1, counts[i] times. @throws ValueError, ShapeError
Tensor repeated_places(const Tensor& repeats, int64_t n) {
  const char* op = "repeat_interleave";
  if (repeats.ndim() > 1 || (repeats.numel() != n && repeats.numel() != 1))
    fail<ShapeError>("{}: repeats must have 1 or {} entries, got shape {}", op, n, repeats.shape());
  const Tensor counts = repeats.to(int64).contiguous();
  if constexpr (core::kHasCuda) {
    if (core::on_cuda(repeats)) return repeated_places_on_cuda(counts, n);
  }
  const auto* count = counts.data<int64_t>();
  const int64_t step = repeats.numel() == 1 ? 0 : 1;
  int64_t total = 0;
  for (int64_t i = 0; i < n; ++i) {
    if (count[i * step] < 0 && repeats.dtype() == uint64)
      fail<OutOfMemoryError>("{}: repeats {} at {} exceeds the address space", op,
                             static_cast<uint64_t>(count[i * step]), i * step);
    if (count[i * step] < 0) fail<ValueError>("{}: repeats must be >= 0, got {} at {}", op, count[i * step], i * step);
    total = index::plus(op, total, count[i * step]);
  }
  Tensor places = Tensor::empty({total}, int64);
  auto* to = places.data<int64_t>();
  for (int64_t i = 0; i < n; ++i) to = std::fill_n(to, count[i * step], i);
  return places;
}

}  // namespace

Tensor cat(const std::vector<Tensor>& tensors, int64_t dim, const IndexOptions& options) {
  const char* op = "cat";
  check_pieces(op, tensors);
  const Tensor& first = tensors[0];
  const int d = normalize_dim(op, dim, first.ndim());
  for (size_t i = 0; i < tensors.size(); ++i) {
    const Tensor& x = tensors[i];
    bool fits = x.ndim() > 0 && x.ndim() == first.ndim();
    for (int k = 0; fits && k < x.ndim(); ++k) fits = k == d || x.shape(k) == first.shape(k);
    if (x.ndim() == 0) fail<ShapeError>("{}: tensors[{}] has no dims; stack joins 0-d tensors", op, i);
    if (!fits)
      fail<ShapeError>("{}: tensors[{}] has shape {}, which does not fit tensors[0]'s {} but for dim {}", op, i,
                       x.shape(), first.shape(), d);
  }
  return join(op, tensors, tensors, d, options.out);
}

Tensor stack(const std::vector<Tensor>& tensors, int64_t dim, const IndexOptions& options) {
  const char* op = "stack";
  check_pieces(op, tensors);
  const int d = normalize_dim(op, dim, tensors[0].ndim() + 1);
  std::vector<Tensor> pieces;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const Tensor& x = tensors[i];
    if (x.shape() != tensors[0].shape())
      fail<ShapeError>("{}: tensors[{}] has shape {}, tensors[0] has {}", op, i, x.shape(), tensors[0].shape());
    Dims shape = x.shape(), strides = x.strides();
    strides.insert(d, d < x.ndim() ? x.shape(d) * x.stride(d) : 1);
    shape.insert(d, 1);
    pieces.push_back(x.with_layout(shape, strides, x.offset()));
  }
  return join(op, tensors, pieces, d, options.out);
}

Tensor tile(const Tensor& x, const Dims& dims, const IndexOptions& options) {
  check_given("tile", {"x", x});
  return tiled("tile", x, dims, options.out);
}

Tensor repeat(const Tensor& x, const Dims& sizes, const IndexOptions& options) {
  check_given("repeat", {"x", x});
  if (sizes.size() < x.shape().size())
    fail<ShapeError>("repeat: sizes {} must have an entry for each dim of x, which has shape {}", sizes, x.shape());
  return tiled("repeat", x, sizes, options.out);
}

Tensor repeat_interleave(const Tensor& x, int64_t repeats, const RepeatInterleaveOptions& options) {
  const char* op = "repeat_interleave";
  check_given(op, {"x", x});
  if (repeats < 0) fail<ValueError>("{}: repeats must be >= 0, got {}", op, repeats);
  const auto [from, d] = along(op, x, options.dim);
  Dims shape = from.shape();
  shape[d] = index::times(op, shape[d], repeats);
  check_output_size(options.output_size, shape[d]);
  Output out(op, options.out, shape, x.dtype(), from, {&x, &from}, {.cuda = core::kHasCuda});
  const Tensor& target = out.target();
  core::StepScope step([&] {
    return Step{op, OpClass::kIndex, {x}, {target}}.with(
        core::recipe([repeats, options](const auto& in, const auto& outs) {
          RepeatInterleaveOptions again = options;
          again.out = outs[0];
          repeat_interleave(in[0], repeats, again);
        }));
  });
  if (step.shape_only(target)) return target;
  if constexpr (core::kHasCuda) {
    if (core::on_cuda(x)) {
      std::vector<cuda::CoordinateRule> rules(from.shape().size());
      if (repeats != 1) rules[d] = {cuda::CoordinateRule::kRepeat, repeats, from.shape(d)};
      cuda::remap(op, from, rules, target);
      return out.finish();
    }
  }
  Loops source, to;
  for (int k = 0; k < from.ndim(); ++k) {
    source.add(from.shape(k), from.stride(k));
    to.add(from.shape(k), target.stride(k) * (k == d ? repeats : 1));
    if (k == d) source.add(repeats, 0), to.add(repeats, target.stride(k));
  }
  core::copy_into(source.of(from), to.of(target));
  return out.finish();
}

Tensor repeat_interleave(const Tensor& x, const Tensor& repeats, const RepeatInterleaveOptions& options) {
  const char* op = "repeat_interleave";
  core::check_index_dtype(op, {"repeats", repeats});
  check_given(op, {"x", x});
  core::check_same_device(op, {{"x", x}, {"repeats", repeats}});
  if (x.device().type == DeviceType::kMeta)
    core::fail_untraceable<UnsupportedError>("{}: the size of the result depends on data", op);
  const auto [from, d] = along(op, x, options.dim);
  const Tensor places = repeated_places(repeats, from.shape(d));
  check_output_size(options.output_size, places.numel());
  Dims shape = from.shape();
  shape[d] = places.numel();
  Output out(op, options.out, shape, x.dtype(), from, {&x, &from}, {.cuda = core::kHasCuda});
  core::StepScope step([&] { return Step{op, OpClass::kIndex, {x, repeats}, {out.target()}}; });
  index::select_rows({op, "repeats"}, from, static_cast<size_t>(d), places, out.target(), 1);
  return out.finish();
}

}  // namespace tenor
