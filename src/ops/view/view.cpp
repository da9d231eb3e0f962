#include "tenor/view.h"

#include "src/core/check.h"
#include "src/core/registry.h"
#include "src/core/step.h"
#include "src/ops/elementwise/elementwise_recipe.h"

namespace tenor {
namespace {

using core::check_given;
using core::fail;
using core::normalize_dim;
using core::normalize_dims;
using core::OpClass;
using core::Step;

const core::OpRegistration kOps({
    {"view", "view", OpClass::kView, "x[*S] -> [*shape], same elements, strides permitting"},
    {"reshape", "view", OpClass::kView, "x[*S] -> [*shape], a copy where the strides do not permit a view"},
    {"flatten", "view", OpClass::kView, "x[..., a, b, ...] -> [..., a*b, ...]"},
    {"unflatten", "view", OpClass::kView, "x[..., a*b, ...] -> [..., a, b, ...]"},
    {"transpose", "view", OpClass::kView, "x[..., a, ..., b, ...] -> [..., b, ..., a, ...]"},
    {"swapdims", "view", OpClass::kView, "transpose"},
    {"permute", "view", OpClass::kView, "out dim i = x dim dims[i]"},
    {"movedim", "view", OpClass::kView, "x with dims moved"},
    {"expand", "view", OpClass::kView, "size 1 -> n by stride 0; -1 keeps"},
    {"broadcast_to", "view", OpClass::kView, "size 1 -> n by stride 0"},
    {"unsqueeze", "view", OpClass::kView, "a new dim of size 1"},
    {"squeeze", "view", OpClass::kView, "without dims of size 1"},
    {"select", "view", OpClass::kView, "x[..., index, ...]"},
    {"narrow", "view", OpClass::kView, "x[..., start:start+length, ...]"},
    {"slice", "view", OpClass::kView, "x[..., start:stop:step, ...]"},
    {"split", "view", OpClass::kView, "pieces along dim"},
    {"chunk", "view", OpClass::kView, "at most n equal pieces along dim"},
    {"unbind", "view", OpClass::kView, "every element along dim"},
    {"diagonal", "view", OpClass::kView, "x[i, i + offset] as the last dim"},
    {"unfold", "view", OpClass::kView, "windows along dim as the last dim"},
});

/// The view, stated as a step. @throws ShapeError for too many dims
Tensor viewed(const char* op, const Tensor& x, Dims shape, Dims strides, int64_t offset) {
  if (shape.size() > core::kMaxDims)
    fail<ShapeError>("{}: expected at most {} dims, got {}", op, core::kMaxDims, shape.size());
  int64_t count = 1;
  for (int64_t size : shape)
    if (size > 0 && __builtin_mul_overflow(count, size, &count))
      fail<ShapeError>("{}: shape {} has more elements than 64 bits can count", op, shape);
  Tensor out = x.with_layout(std::move(shape), std::move(strides), offset);
  core::StepScope step([&] { return Step{op, OpClass::kView, {x}, {out}}; });
  return out;
}

/// The dim of an array that has some. @throws IndexError
int dim_of(const char* op, int64_t dim, const Tensor& x) {
  if (x.ndim() == 0) fail<IndexError>("{}: dim {} is out of range: x has no dims", op, dim);
  return normalize_dim(op, dim, x.ndim());
}

/// Says that the sizes that part a dim do not multiply to its size. @throws ShapeError
void check_parts(const Tensor& x, int dim, const Dims& sizes) {
  int64_t product = 1;
  for (int64_t size : sizes)
    if (size < 0 || __builtin_mul_overflow(product, size, &product)) return;  // resolve_shape's own texts
  if (product != x.shape(dim))
    fail<ShapeError>("unflatten: sizes {} multiply to {}, dim {} of x has size {}", sizes, product, dim, x.shape(dim));
}

/// `shape` with its -1 filled in. @throws ShapeError
Dims resolve_shape(const char* op, const Tensor& x, const Dims& shape) {
  Dims out = shape;
  int64_t known = 1;
  int unknown = -1;
  for (size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] == -1) {
      if (unknown >= 0) fail<ShapeError>("{}: only one size may be -1, got {}", op, shape);
      unknown = static_cast<int>(d);
    } else if (shape[d] < 0) {
      fail<ShapeError>("{}: sizes must be >= 0, or -1 once, got {}", op, shape);
    } else if (__builtin_mul_overflow(known, shape[d], &known)) {
      fail<ShapeError>("{}: shape {} has more elements than 64 bits can count, x of shape {} has {}", op, shape,
                       x.shape(), x.numel());
    }
  }
  const int64_t count = x.numel();
  if (unknown >= 0) {
    if (known == 0)
      fail<ShapeError>("{}: the -1 in {} is not determined, since the other sizes multiply to 0", op, shape);
    if (count % known != 0)
      fail<ShapeError>("{}: {} elements of shape {} do not divide into {} (the known sizes multiply to {})", op, count,
                       x.shape(), shape, known);
    out[unknown] = count / known;
  } else if (known != count) {
    fail<ShapeError>("{}: shape {} has {} elements, x of shape {} has {}", op, shape, known, x.shape(), count);
  }
  return out;
}

/// Strides that show x as `shape`, if there are any. Dims of size 1 are dropped, the rest is merged into dense runs,
/// and each run must be filled by whole new dims.
std::optional<Dims> view_strides(const Tensor& x, const Dims& shape) {
  if (x.numel() == 0) return contiguous_strides(shape);
  struct Run {
    int64_t size, stride;
  };
  std::vector<Run> runs;
  for (int d = 0; d < x.ndim(); ++d) {
    if (x.shape(d) == 1) continue;
    if (!runs.empty() && runs.back().stride == x.shape(d) * x.stride(d)) {
      runs.back() = {runs.back().size * x.shape(d), x.stride(d)};
    } else {
      runs.push_back({x.shape(d), x.stride(d)});
    }
  }
  Dims strides(shape.size(), 1);
  size_t d = shape.size();
  int64_t inner = 1;  // the stride for a dim of size 1: beside its right neighbour
  for (size_t r = runs.size(); r-- > 0;) {
    int64_t filled = 1;
    while (filled < runs[r].size) {
      if (d == 0) return {};
      --d;
      strides[d] = shape[d] == 1 ? inner : filled * runs[r].stride;
      filled *= shape[d];
      inner = filled * runs[r].stride;
    }
    if (filled != runs[r].size) return {};
  }
  while (d > 0) strides[--d] = inner;
  return strides;
}

/// The most tensors that one call makes: a dim of stride 0 may be longer than memory has room for its pieces.
constexpr int64_t kMostPieces = int64_t{1} << 24;

void check_pieces(const char* op, int64_t count, const Tensor& x, int d) {
  if (count > kMostPieces)
    fail<ValueError>("{}: expected at most {} pieces, got {} of dim {} of size {}", op, kMostPieces, count, d,
                     x.shape(d));
}

int64_t clamp_bound(std::optional<int64_t> bound, int64_t fallback, int64_t size) {
  if (!bound) return fallback;
  const int64_t b = *bound < 0 ? *bound + size : *bound;
  return b < 0 ? 0 : b > size ? size : b;
}

Tensor expand_as(const char* op, const Tensor& x, const Dims& shape) {
  check_given(op, {"x", x});
  if (shape.size() < x.shape().size())
    fail<ShapeError>("{}: shape {} has fewer dims than x of shape {}", op, shape, x.shape());
  const size_t lead = shape.size() - x.shape().size();
  Dims out = shape, strides(shape.size(), 0);
  for (size_t d = 0; d < shape.size(); ++d) {
    const int64_t have = d < lead ? 1 : x.shape()[d - lead];
    if (shape[d] == -1 && d >= lead) out[d] = have;
    if (out[d] < 0) fail<ShapeError>("{}: size {} in dim {} is not allowed, got {}", op, out[d], d, shape);
    if (out[d] != have && have != 1)
      fail<ShapeError>("{}: x of shape {} has size {} where {} asks for {} in dim {}; only size 1 expands", op,
                       x.shape(), have, shape, out[d], d);
    if (d >= lead && out[d] == have) strides[d] = x.strides()[d - lead];
  }
  return viewed(op, x, out, strides, x.offset());
}

}  // namespace

Tensor view(const Tensor& x, const Dims& shape) {
  check_given("view", {"x", x});
  const Dims sizes = resolve_shape("view", x, shape);
  const auto strides = view_strides(x, sizes);
  if (!strides)
    fail<ShapeError>("view: x of shape {} and strides {} cannot be seen as {} without a copy; use reshape", x.shape(),
                     x.strides(), sizes);
  return viewed("view", x, sizes, *strides, x.offset());
}

Tensor reshape(const Tensor& x, const Dims& shape) {
  check_given("reshape", {"x", x});
  const Dims sizes = resolve_shape("reshape", x, shape);
  if (const auto strides = view_strides(x, sizes)) return viewed("reshape", x, sizes, *strides, x.offset());
  Tensor out = Tensor::empty(sizes, x.dtype(), x.device());
  core::StepScope step([&] {
    const int64_t bytes = x.numel() * static_cast<int64_t>(item_size(x.dtype()));
    return Step{"reshape",
                OpClass::kView,
                {x},
                {out},
                0,
                {},
                {{"x", bytes, "its strides do not allow a view of the new shape"}}}
        .with(std::make_shared<elementwise::Reorder>());
  });
  if (!step.shape_only(out)) {
    const Tensor dense = x.contiguous();
    return dense.with_layout(sizes, contiguous_strides(sizes), dense.offset());
  }
  return out;
}

Tensor flatten(const Tensor& x, int64_t start_dim, int64_t end_dim) {
  check_given("flatten", {"x", x});
  const int first = normalize_dim("flatten", start_dim, x.ndim(), "start_dim"),
            last = normalize_dim("flatten", end_dim, x.ndim(), "end_dim");
  if (first > last) fail<ValueError>("flatten: start_dim {} lies behind end_dim {}", start_dim, end_dim);
  if (x.ndim() == 0) return reshape(x, {1});
  Dims shape(x.shape().begin(), x.shape().begin() + first);
  int64_t merged = 1;
  for (int d = first; d <= last; ++d) merged *= x.shape(d);
  shape.push_back(merged);
  for (int d = last + 1; d < x.ndim(); ++d) shape.push_back(x.shape(d));
  return reshape(x, shape);
}

Tensor unflatten(const Tensor& x, int64_t dim, const Dims& sizes) {
  check_given("unflatten", {"x", x});
  const int d = dim_of("unflatten", dim, x);
  if (sizes.empty()) fail<ShapeError>("unflatten: sizes must not be empty");
  check_parts(x, d, sizes);
  const Tensor line = x.with_layout({x.shape(d)}, {x.stride(d)}, x.offset());
  const Dims parts = resolve_shape("unflatten", line, sizes);
  Dims shape, strides;
  int64_t step = x.stride(d) * x.shape(d);
  for (int i = 0; i < x.ndim(); ++i) {
    if (i != d) {
      shape.push_back(x.shape(i));
      strides.push_back(x.stride(i));
      continue;
    }
    for (int64_t part : parts) {
      step = part > 0 ? step / part : step;
      shape.push_back(part);
      strides.push_back(step);
    }
  }
  return viewed("unflatten", x, shape, strides, x.offset());
}

Tensor permute(const Tensor& x, const Dims& dims) {
  check_given("permute", {"x", x});
  const Dims order = normalize_dims("permute", dims, x.ndim());
  if (static_cast<int>(order.size()) != x.ndim())
    fail<ValueError>("permute: dims {} must name each of the {} dims once", dims, x.ndim());
  Dims shape, strides;
  for (int64_t d : order) {
    shape.push_back(x.shape()[d]);
    strides.push_back(x.strides()[d]);
  }
  return viewed("permute", x, shape, strides, x.offset());
}

namespace {

/// By the name that it was called; the step is a transpose under either.
Tensor exchanged(const char* op, const Tensor& x, int64_t dim0, int64_t dim1) {
  check_given(op, {"x", x});
  const int a = normalize_dim(op, dim0, x.ndim(), "dim0"), b = normalize_dim(op, dim1, x.ndim(), "dim1");
  Dims shape = x.shape(), strides = x.strides();
  if (x.ndim() > 0) {
    std::swap(shape[a], shape[b]);
    std::swap(strides[a], strides[b]);
  }
  return viewed("transpose", x, shape, strides, x.offset());
}

}  // namespace

Tensor transpose(const Tensor& x, int64_t dim0, int64_t dim1) { return exchanged("transpose", x, dim0, dim1); }
Tensor swapdims(const Tensor& x, int64_t dim0, int64_t dim1) { return exchanged("swapdims", x, dim0, dim1); }

Tensor movedim(const Tensor& x, const Dims& source, const Dims& destination) {
  check_given("movedim", {"x", x});
  const Dims from = normalize_dims("movedim", source, x.ndim(), "source"),
             to = normalize_dims("movedim", destination, x.ndim(), "destination");
  if (from.size() != to.size())
    fail<ValueError>("movedim: source {} and destination {} differ in length", source, destination);
  Dims rest;
  for (int d = 0; d < x.ndim(); ++d)
    if (std::find(from.begin(), from.end(), d) == from.end()) rest.push_back(d);
  Dims shape, strides;
  for (int d = 0, next = 0; d < x.ndim(); ++d) {
    const auto at = std::find(to.begin(), to.end(), d);
    const int64_t origin = at != to.end() ? from[at - to.begin()] : rest[next++];
    shape.push_back(x.shape()[origin]);
    strides.push_back(x.strides()[origin]);
  }
  return viewed("movedim", x, shape, strides, x.offset());
}

Tensor expand(const Tensor& x, const Dims& shape) { return expand_as("expand", x, shape); }
Tensor broadcast_to(const Tensor& x, const Dims& shape) { return expand_as("broadcast_to", x, shape); }

Tensor unsqueeze(const Tensor& x, int64_t dim) {
  check_given("unsqueeze", {"x", x});
  const int d = normalize_dim("unsqueeze", dim, x.ndim() + 1);
  Dims shape = x.shape(), strides = x.strides();
  strides.insert(d, d < x.ndim() ? x.shape(d) * x.stride(d) : 1);
  shape.insert(d, 1);
  return viewed("unsqueeze", x, shape, strides, x.offset());
}

Tensor squeeze(const Tensor& x, const Dims& dims) {
  check_given("squeeze", {"x", x});
  const Dims drop = normalize_dims("squeeze", dims, x.ndim());
  Dims shape, strides;
  for (int d = 0; d < x.ndim(); ++d) {
    if (x.shape(d) == 1 && std::find(drop.begin(), drop.end(), d) != drop.end()) continue;
    shape.push_back(x.shape(d));
    strides.push_back(x.stride(d));
  }
  return viewed("squeeze", x, shape, strides, x.offset());
}

Tensor squeeze(const Tensor& x) {
  Dims all;
  for (int d = 0; d < x.ndim(); ++d) all.push_back(d);
  return squeeze(x, all);
}

Tensor select(const Tensor& x, int64_t dim, int64_t index) {
  check_given("select", {"x", x});
  const int d = dim_of("select", dim, x);
  const int64_t size = x.shape(d);
  if (index < -size || index >= size)
    fail<IndexError>("select: index {} is out of range for dim {} of size {}", index, d, size);
  Dims shape = x.shape(), strides = x.strides();
  const int64_t offset = x.offset() + (index < 0 ? index + size : index) * strides[d];
  shape.erase(d);
  strides.erase(d);
  return viewed("select", x, shape, strides, offset);
}

Tensor narrow(const Tensor& x, int64_t dim, int64_t start, int64_t length) {
  check_given("narrow", {"x", x});
  const int d = dim_of("narrow", dim, x);
  const int64_t size = x.shape(d), first = start < 0 ? start + size : start;
  if (first < 0 || first > size)
    fail<IndexError>("narrow: start {} is out of range for dim {} of size {}", start, d, size);
  if (length < 0) fail<IndexError>("narrow: length must be >= 0, got {}", length);
  if (length > size - first)
    fail<IndexError>("narrow: start {} and length {} leave dim {} of size {}", start, length, d, size);
  Dims shape = x.shape();
  shape[d] = length;
  return viewed("narrow", x, shape, x.strides(), x.offset() + (length > 0 ? first * x.stride(d) : 0));
}

Tensor slice(const Tensor& x, int64_t dim, std::optional<int64_t> start, std::optional<int64_t> stop, int64_t step) {
  check_given("slice", {"x", x});
  const int d = dim_of("slice", dim, x);
  if (step < 1) fail<ValueError>("slice: step must be > 0, got {}", step);
  const int64_t size = x.shape(d);
  const int64_t first = clamp_bound(start, 0, size), last = clamp_bound(stop, size, size);
  Dims shape = x.shape(), strides = x.strides();
  shape[d] = last > first ? (last - first - 1) / step + 1 : 0;
  strides[d] = shape[d] > 1 ? strides[d] * step : strides[d];
  return viewed("slice", x, shape, strides, x.offset() + (shape[d] > 0 ? first * x.stride(d) : 0));
}

std::vector<Tensor> split(const Tensor& x, const Dims& sizes, int64_t dim) {
  check_given("split", {"x", x});
  const int d = dim_of("split", dim, x);
  int64_t total = 0;
  for (int64_t size : sizes) {
    if (size < 0) fail<ShapeError>("split: sizes must be >= 0, got {}", sizes);
    if (__builtin_add_overflow(total, size, &total))
      fail<ShapeError>("split: sizes {} sum to more than 64 bits can count, but dim {} has size {}", sizes, d,
                       x.shape(d));
  }
  if (total != x.shape(d))
    fail<ShapeError>("split: sizes {} sum to {}, but dim {} has size {}", sizes, total, d, x.shape(d));
  std::vector<Tensor> pieces;
  int64_t start = 0;
  for (int64_t size : sizes) {
    Dims shape = x.shape();
    shape[d] = size;
    pieces.push_back(x.with_layout(shape, x.strides(), x.offset() + (size > 0 ? start * x.stride(d) : 0)));
    start += size;
  }
  core::StepScope step([&] { return Step{"split", OpClass::kView, {x}, pieces}; });
  return pieces;
}

std::vector<Tensor> split(const Tensor& x, int64_t size, int64_t dim) {
  check_given("split", {"x", x});
  const int d = dim_of("split", dim, x);
  const int64_t total = x.shape(d);
  if (size < 0 || (size == 0 && total != 0)) fail<ValueError>("split: sizes must be > 0, got {}", size);
  check_pieces("split", size == 0 ? 1 : (total - 1) / size + 1, x, d);
  Dims sizes;
  for (int64_t left = total; left > 0; left -= size) sizes.push_back(std::min(size, left));
  if (sizes.empty()) sizes.push_back(0);
  return split(x, sizes, d);
}

std::vector<Tensor> chunk(const Tensor& x, int64_t chunks, int64_t dim) {
  check_given("chunk", {"x", x});
  if (chunks < 1) fail<ValueError>("chunk: chunks must be > 0, got {}", chunks);
  const int d = dim_of("chunk", dim, x);
  const int64_t size = x.shape(d);
  if (size == 0) check_pieces("chunk", chunks, x, d);
  if (size == 0) return split(x, Dims(static_cast<size_t>(chunks), 0), dim);
  return split(x, size / chunks + (size % chunks != 0), dim);
}

std::vector<Tensor> unbind(const Tensor& x, int64_t dim) {
  check_given("unbind", {"x", x});
  const int d = dim_of("unbind", dim, x);
  check_pieces("unbind", x.shape(d), x, d);
  Dims shape = x.shape(), strides = x.strides();
  shape.erase(d);
  strides.erase(d);
  std::vector<Tensor> pieces;
  for (int64_t i = 0; i < x.shape(d); ++i)
    pieces.push_back(x.with_layout(shape, strides, x.offset() + i * x.stride(d)));
  core::StepScope step([&] { return Step{"unbind", OpClass::kView, {x}, pieces}; });
  return pieces;
}

Tensor diagonal(const Tensor& x, int64_t offset, int64_t dim1, int64_t dim2) {
  check_given("diagonal", {"x", x});
  const int a = normalize_dim("diagonal", dim1, x.ndim(), "dim1"),
            b = normalize_dim("diagonal", dim2, x.ndim(), "dim2");
  if (a == b) fail<ValueError>("diagonal: dim1 and dim2 are both {}", dim1);
  // Beyond the matrix every diagonal is empty; so bounded, sums with it stay in 64 bits.
  offset = std::clamp(offset, -x.shape(a), x.shape(b));
  const int64_t rows = x.shape(a) - (offset < 0 ? -offset : 0), columns = x.shape(b) - (offset > 0 ? offset : 0);
  const int64_t length = std::max<int64_t>(0, std::min(rows, columns));
  Dims shape, strides;
  for (int d = 0; d < x.ndim(); ++d) {
    if (d == a || d == b) continue;
    shape.push_back(x.shape(d));
    strides.push_back(x.stride(d));
  }
  shape.push_back(length);
  strides.push_back(x.stride(a) + x.stride(b));
  const int64_t skip = length == 0 ? 0 : offset < 0 ? -offset * x.stride(a) : offset * x.stride(b);
  return viewed("diagonal", x, shape, strides, x.offset() + skip);
}

Tensor unfold(const Tensor& x, int64_t dim, int64_t size, int64_t step) {
  check_given("unfold", {"x", x});
  const int d = dim_of("unfold", dim, x);
  if (step < 1) fail<ValueError>("unfold: step must be > 0, got {}", step);
  if (size < 0) fail<ValueError>("unfold: size must be >= 0, got {}", size);
  if (size > x.shape(d)) fail<ShapeError>("unfold: size {} is larger than dim {} of size {}", size, d, x.shape(d));
  Dims shape = x.shape(), strides = x.strides();
  shape[d] = (x.shape(d) - size) / step + 1;
  if (shape[d] > 1) strides[d] *= step;
  shape.push_back(size);
  strides.push_back(x.stride(d));
  return viewed("unfold", x, shape, strides, x.offset());
}

}  // namespace tenor
