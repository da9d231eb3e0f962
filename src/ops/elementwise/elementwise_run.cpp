#include "src/ops/elementwise/elementwise_run.h"

#include "src/core/backend.h"
#include "src/core/check.h"
#include "src/core/layout.h"
#include "src/core/output.h"
#include "src/core/scalar_value.h"
#include "src/core/step.h"
#include "src/cpu/move.h"
#include "src/cpu/parallel.h"
#include "src/ops/elementwise/elementwise_problem.h"
#include "src/ops/elementwise/elementwise_recipe.h"
#include "src/ops/elementwise/elementwise_work.h"

namespace tenor::elementwise {
namespace {

using core::fail;

const char* operand_name(Op op, int i) {
  static constexpr const char *kBinary[] = {"x", "other", ""}, *kWhere[] = {"condition", "x", "other"},
                              *kFill[] = {"mask", "value", "x"}, *kClamp[] = {"x", "min", "max"},
                              *kLerp[] = {"x", "end", "weight"};
  switch (op) {
    case Op::kWhere:
      return kWhere[i];
    case Op::kMaskedFill:
      return kFill[i];
    case Op::kClamp:
    case Op::kClampMin:
      return kClamp[i];
    case Op::kClampMax:
      return kClamp[2 * i];
    case Op::kLerp:
      return kLerp[i];
    case Op::kPow:
      return i == 0 ? "x" : "exponent";
    default:
      return kBinary[i];
  }
}

Dims broadcast_all(const char* name, const Call& call, int arity) {
  Dims shape;
  for (int i = 0; i < arity; ++i) {
    if (!call.operands[i]->is_tensor()) continue;
    const Dims& next = call.operands[i]->tensor().shape();
    if (shape != next) shape = core::broadcast_shapes(name, shape, next);
  }
  return shape;
}

void fill_inputs(Problem& p, const Call& call, const Types& types) {
  for (int i = 0; i < p.arity; ++i) {
    Input& in = p.inputs[i];
    const Operand& o = *call.operands[i];
    in.compute = types.compute[i];
    if (o.is_tensor()) {
      in.tensor = &o.tensor();
      in.dtype = in.tensor->dtype();
      in.single = in.tensor->numel() == 1;
      in.data = in.tensor->device().type == DeviceType::kMeta ? nullptr : in.tensor->raw();
    } else {
      in.dtype = p.row.rule == Rule::kLogical ? boolean : types.promoted;
      core::store_scalar(o.scalar(), in.dtype, in.element);
      in.data = in.element;
      in.single = true;
    }
  }
}

/// Whether every operand is dense in the result's order, or one element: then no tile is gathered.
bool is_dense(const Problem& p, const Tensor& out) {
  if (!out.is_contiguous()) return false;
  for (int i = 0; i < p.arity; ++i) {
    const Input& in = p.inputs[i];
    if (!in.single && (in.tensor->shape() != out.shape() || !in.tensor->is_contiguous())) return false;
  }
  return true;
}

int64_t bytes_per_element(const Problem& p, const Tensor& out) {
  int64_t bytes = p.row.cost + static_cast<int64_t>(item_size(out.dtype()));
  for (int i = 0; i < p.arity; ++i) bytes += static_cast<int64_t>(item_size(p.inputs[i].dtype));
  return bytes;
}

/// An input as a range of the result reads it, tile by tile.
struct Reader {
  const char* at;   ///< the next tile in memory
  const void* now;  ///< this tile in the compute dtype
  size_t item;      ///< in memory
  bool moves, converts;
  cpu::Converter convert;
};
Reader open_reader(const Input& input, int64_t first, int64_t tile, char* buffer) {
  const size_t item = item_size(input.dtype);
  Reader r{static_cast<const char*>(input.data), buffer, item, !input.single, input.dtype != input.compute,
           {input.dtype, input.compute}};
  if (r.moves) {
    r.at += first * static_cast<int64_t>(item);
  } else {  // spread over a tile, once
    alignas(8) char element[8];
    r.convert(input.data, element, 1);
    cpu::fill_dense(item_size(input.compute), element, buffer, static_cast<size_t>(tile));
  }
  return r;
}

/// Elements first..last of dense operands: pointers advance, what has another dtype than the kernel's passes a buffer.
void run_range(const Problem& p, const Tensor& out, int64_t first, int64_t last) {
  alignas(64) char buffers[4][cpu::kTileElements * 8];
  const int64_t tile = std::min<int64_t>(last - first, cpu::kTileElements);
  const auto reader = [&](int i) {
    return open_reader(p.inputs[i < p.arity ? i : 0], first, i < p.arity ? tile : 0, buffers[i]);
  };
  Reader readers[3] = {reader(0), reader(1), reader(2)};
  const bool converts_out = out.dtype() != p.computed;
  const cpu::Converter store(p.computed, out.dtype());
  const auto out_item = static_cast<int64_t>(item_size(out.dtype()));
  char* to = static_cast<char*>(out.raw()) + first * out_item;
  for (int64_t at = first; at < last; at += cpu::kTileElements, to += cpu::kTileElements * out_item) {
    const auto n = static_cast<size_t>(std::min<int64_t>(last - at, cpu::kTileElements));
    const void* in[3];
    for (int i = 0; i < p.arity; ++i) {
      Reader& r = readers[i];
      if (r.moves && r.converts) r.convert(r.at, buffers[i], n);
      in[i] = r.moves && !r.converts ? r.at : r.now;
      if (r.moves) r.at += n * r.item;
    }
    p.fn(in, converts_out ? buffers[3] : to, n, p.params);
    if (converts_out) store(buffers[3], to, n);
  }
}

void run_dense(const Problem& p, const Tensor& out) {
  const int64_t n = out.numel(), grain = cpu::grain_of(bytes_per_element(p, out));
  if (n <= grain) return run_range(p, out, 0, n);
  // Whole tiles a thread, so that no cache line is shared.
  const int64_t tiles = (n + cpu::kTileElements - 1) / cpu::kTileElements;
  cpu::parallel_for(tiles, std::max<int64_t>(1, grain / cpu::kTileElements), [&](int64_t first, int64_t last) {
    run_range(p, out, first * cpu::kTileElements, std::min(n, last * cpu::kTileElements));
  });
}

void run_general(const Problem& p, const Tensor& out) {
  cpu::TileProgram program;
  program.shape = out.shape();
  program.cost = p.row.cost;
  program.inputs.reserve(3);
  cpu::TileStep step{p.fn, p.params, {0, 1, 2, 3}, p.arity, p.computed, p.computed};
  for (int i = 0; i < p.arity; ++i) {
    const Input& in = p.inputs[i];
    const Dims strides = in.tensor ? core::broadcast_strides(*in.tensor, out.shape()) : Dims(out.shape().size(), 0);
    program.inputs.push_back({const_cast<void*>(in.data), strides, in.dtype, in.compute});
  }
  program.steps.push_back(step);
  program.outputs.push_back({out.raw(), out.strides(), out.dtype(), p.computed});
  program.stored.push_back(p.arity);
  cpu::run_tiles(program);
}

void compute(const Problem& p, const Tensor& out) {
  if (out.numel() == 0) return;
  if constexpr (core::kHasCuda) {
    if (core::on_cuda(out)) return compute_cuda(p, out);
  }
  if (is_dense(p, out))
    run_dense(p, out);
  else
    run_general(p, out);
}

int kind_rank(DType dtype) { return dtype == boolean ? 0 : is_integer(dtype) ? 1 : 2; }

void check_in_place(const char* name, const Tensor& x, const Dims& shape, DType result) {
  if (shape != x.shape()) fail<ShapeError>("{}: x of shape {} would have to grow to {}", name, x.shape(), shape);
  if (kind_rank(result) > kind_rank(x.dtype()))
    fail<DTypeError>("{}: the result is {}, which x of {} cannot hold", name, result, x.dtype());
}

/// The first array argument as the caller wrote them.
const Tensor* first_tensor(const Problem& p) {
  if (p.row.op == Op::kMaskedFill) return p.inputs[2].tensor;
  for (int i = 0; i < p.arity; ++i)
    if (p.inputs[i].tensor) return p.inputs[i].tensor;
  return nullptr;
}

/// How many parameters an operator's kernel reads.
size_t params_of(Op op) {
  switch (op) {
    case Op::kIsclose:
      return 3;
    case Op::kElu:
    case Op::kLeakyRelu:
    case Op::kSoftplus:
      return 1;
    default:
      return 0;
  }
}

std::shared_ptr<const core::Recipe> recipe_of(const Problem& p) {
  auto made = std::make_shared<Recipe>();
  made->op = p.row.op, made->fn = p.fn, made->arity = p.arity, made->computed = p.computed;
  made->has_params = p.params != nullptr;
  made->params = {};
  if (p.params) std::copy_n(p.params, params_of(p.row.op), made->params.begin());
  for (int i = 0, input = 0; i < p.arity; ++i) {
    const Input& in = p.inputs[i];
    Source& source = made->sources[i];
    source.dtype = in.dtype, source.compute = in.compute;
    if (in.tensor)
      source.input = input++;
    else
      std::copy_n(in.element, sizeof(in.element), source.element.begin());
  }
  return made;
}

core::Step state(const Call& call, const Problem& p, const char* name, const Tensor& out) {
  core::Step step{name, core::OpClass::kElementwise, {}, {out}, out.numel()};
  for (int i = 0; i < p.arity; ++i)
    if (p.inputs[i].tensor) step.inputs.push_back(call.operands[i]->tensor());
  step.work = work_of(p.row.op, p.computed, out.numel());
  step.recipe = recipe_of(p);
  return step;
}

/// From decided dtypes on.
Tensor finish(const Call& call, const char* name, const Types& types, cpu::StepFn fn) {
  const OpRow& r = row(call.op);
  Problem p{r, fn, call.params, {}, r.arity, types.computed};
  fill_inputs(p, call, types);
  const Tensor* like = first_tensor(p);
  for (int i = 0; i < p.arity; ++i)
    if (p.inputs[i].tensor)
      core::check_same_device(name, {{"x", *like}, {operand_name(call.op, i), *p.inputs[i].tensor}});
  const Dims shape = broadcast_all(name, call, r.arity);
  if (call.in_place) check_in_place(name, call.out, shape, types.result);
  const DType stored = call.in_place ? call.out.dtype() : types.result;
  // Absent operands repeat the first tensor: Output skips nothing by that.
  const auto input = [&](int i) { return i < p.arity && p.inputs[i].tensor ? p.inputs[i].tensor : like; };
  core::Output out(name, call.out, shape, stored, *like, {input(0), input(1), input(2)},
                   {.elementwise = true, .argument = call.in_place ? "x" : "out", .cuda = core::kHasCuda});
  core::StepScope step([&] { return state(call, p, name, out.target()); });
  if (step.shape_only(out.target())) return out.target();
  compute(p, out.target());
  return out.finish();
}

}  // namespace

/// The kernel that reads and writes 16-bit floats where they lie, where the operator has one and no operand has another
/// dtype: the bits of converting before and after it, without the buffers in between.
cpu::StepFn find_stored(const Call& call, const OpRow& r, const Types& types) {
  if (types.result != types.promoted || (types.promoted != bfloat16 && types.promoted != float16) ||
      r.rule == Rule::kSelect)
    return nullptr;
  for (int i = 0; i < r.arity; ++i)
    if (call.operands[i]->is_tensor() && call.operands[i]->tensor().dtype() != types.promoted) return nullptr;
  return r.find(call.op, types.promoted);
}

Tensor run(const Call& call) {
  const OpRow& r = row(call.op);
  const char* name = call.name ? call.name : r.name;
  Types types = resolve_types(call);
  if (const cpu::StepFn stored = find_stored(call, r, types)) {
    types.compute.fill(types.promoted);
    types.computed = types.promoted;
    return finish(call, name, types, stored);
  }
  const DType kernel = r.rule == Rule::kSelect ? types.computed : types.compute[0];
  const cpu::StepFn fn = r.find(call.op, kernel);
  if (!fn) fail<DTypeError>("{}: {} is not supported", name, types.promoted);
  return finish(call, name, types, fn);
}

void Recipe::run(const std::vector<Tensor>& inputs, const std::vector<Tensor>& outputs) const {
  Problem p{row(op), fn, has_params ? params.data() : nullptr, {}, arity, computed};
  for (int i = 0; i < arity; ++i) {
    const Source& source = sources[i];
    Input& in = p.inputs[i];
    in.dtype = source.dtype, in.compute = source.compute;
    if (source.input < 0) {
      std::copy_n(source.element.begin(), sizeof(in.element), in.element);
      in.data = in.element;
    } else {
      in.tensor = &inputs[static_cast<size_t>(source.input)];
      in.data = in.tensor->raw();
    }
    in.single = !in.tensor || in.tensor->numel() == 1;
  }
  const Tensor& to = outputs[0];
  const auto input = [&](int i) { return i < arity && p.inputs[i].tensor ? p.inputs[i].tensor : &to; };
  core::Output out(p.row.name, to, to.shape(), to.dtype(), to, {input(0), input(1), input(2)},
                   {.elementwise = true, .cuda = core::kHasCuda});
  compute(p, out.target());
  out.finish();
}

Tensor run_unary(Op op, const Tensor& x, const Tensor& out, const double* params) {
  core::check_given(row(op).name, {"x", x});
  const Operand self(x);
  return run({op, {&self}, out, params});
}

Tensor write_call(const char* name, const Tensor& x, Call call) {
  core::check_given(name, {"x", x});
  call.name = name;
  call.out = x;
  call.in_place = true;
  run(call);
  return x;
}

Tensor write_unary(const char* name, Op op, const Tensor& x, const double* params) {
  return write(name, x, [&](const Operand& self) { return Call{.op = op, .operands = {&self}, .params = params}; });
}

Op division_of(const char* name, std::string_view rounding_mode) {
  if (rounding_mode.empty()) return Op::kDiv;
  if (rounding_mode == "floor") return Op::kFloorDivide;
  if (rounding_mode == "trunc") return Op::kTruncDivide;
  fail<ValueError>("{}: rounding_mode must be None, 'floor' or 'trunc', got '{}'", name, std::string(rounding_mode));
}

Op gelu_of(const char* name, std::string_view approximate) {
  if (approximate == "none") return Op::kGelu;
  if (approximate == "tanh") return Op::kGeluTanh;
  fail<ValueError>("{}: approximate must be 'none' or 'tanh', got '{}'", name, std::string(approximate));
}

Call power_call(const char* name, const Operand& x, const Operand& exponent, const Tensor& out) {
  Call call{.op = Op::kPow, .operands = {&x, &exponent}, .out = out, .name = name};
  if (exponent.is_tensor() || !x.is_tensor()) return call;
  const Scalar& e = exponent.scalar();
  if (!e.is_float() && e.kind() != Scalar::Kind::kUInt && e.as_int() < 0 && !is_float(x.tensor().dtype()))
    fail<ValueError>("{}: integers to the negative power {} are no integers; convert x to a float dtype first", name,
                     e.as_int());
  // The commonest power, exactly and at the price of a product.
  if (is_float(x.tensor().dtype()) && e.as_double() == 2)
    return {.op = Op::kMul, .operands = {&x, &x}, .out = out, .name = name};
  return call;
}

Call clamp_call(const char* name, const Operand& x, const std::optional<Operand>& min,
                const std::optional<Operand>& max, const Tensor& out) {
  if (!min && !max) fail<ValueError>("{}: needs min or max", name);
  if (min && max) return {.op = Op::kClamp, .operands = {&x, &*min, &*max}, .out = out, .name = name};
  return {.op = min ? Op::kClampMin : Op::kClampMax, .operands = {&x, min ? &*min : &*max}, .out = out, .name = name};
}

}  // namespace tenor::elementwise
