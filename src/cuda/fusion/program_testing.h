// Programs built step by step beside the eager operators that they must equal: what tests of fused kernels share.
#pragma once

#include <algorithm>
#include <optional>
#include <variant>

#include "src/core/scalar_value.h"
#include "src/cuda/testing.h"
#include "src/fusion/program.h"
#include "src/ops/elementwise/elementwise_run.h"
#include "tenor/reduce.h"

namespace tenor::testing {

/// A register, or a Python scalar.
using Given = std::variant<int, double>;

/// A program whose axes are the dims of one shape, the last `reduced` of which its reductions take up. Every value is
/// also computed by the eager operator, with the sizes of dims along which it does not vary being 1.
class Beside {
 public:
  Beside(const Dims& shape, int reduced) : reduced_(reduced) {
    for (size_t d = 0; d < shape.size(); ++d)
      program.axes.push_back({shape[d], static_cast<int>(d) >= static_cast<int>(shape.size()) - reduced});
  }

  /// x's sizes are the shape's or 1.
  int load(const Tensor& x) {
    fusion::Instruction in{fusion::Instruction::Kind::kLoad, x.dtype()};
    in.array = {argument(x, false), 0, strides(x)};
    return add(std::move(in), x);
  }
  int map(elementwise::Op op, const std::vector<Given>& given, const std::vector<double>& params = {}) {
    std::vector<Operand> operands;
    for (const Given& g : given)
      operands.push_back(g.index() == 0 ? Operand(value(std::get<int>(g))) : Operand(std::get<double>(g)));
    fusion::Instruction in{fusion::Instruction::Kind::kMap, boolean};
    std::copy(params.begin(), params.end(), in.map.params.begin());
    elementwise::Call call{.op = op, .operands = {}, .params = params.empty() ? nullptr : params.data()};
    for (size_t i = 0; i < operands.size(); ++i) call.operands[i] = &operands[i];
    const elementwise::Types types = elementwise::resolve_types(call);
    const Tensor result = elementwise::run(call);
    const bool logical = elementwise::row(op).rule == elementwise::Rule::kLogical;
    for (const Given& g : given)
      in.inputs.push_back(g.index() == 0 ? std::get<int>(g)
                                         : scalar(std::get<double>(g), logical ? boolean : types.promoted));
    in.dtype = result.dtype();
    in.map.op = op;
    in.map.fn = nullptr;
    in.map.compute = types.compute;
    in.map.computed = types.computed;
    return add(std::move(in), result);
  }
  int convert(int from, DType dtype) {
    fusion::Instruction in{fusion::Instruction::Kind::kConvert, dtype, {from}};
    return add(std::move(in), value(from).to(dtype));
  }
  int reduce(reduce::Op op, int from, double power = 2) {
    Dims dims;
    fusion::Instruction in{fusion::Instruction::Kind::kReduce, boolean, {from}};
    for (size_t d = 0; d < program.axes.size(); ++d) {
      if (!program.axes[d].reduced) continue;
      dims.push_back(static_cast<int64_t>(d));
      in.reduce.axes.push_back(static_cast<int>(d));
      in.reduce.count *= program.axes[d].size;
    }
    const Tensor result = reduced(op, value(from), dims, power);
    in.dtype = result.dtype();
    in.reduce.op = op;
    in.reduce.power = power;
    in.reduce.accumulator = in.dtype == float64 || in.dtype == uint64 ? in.dtype : is_float(in.dtype) ? float32 : int64;
    return add(std::move(in), result);
  }
  void store(int from, const Tensor& out) {
    program.stores.push_back({from, {argument(out, true), 0, strides(out)}});
    stored.push_back({from, out});
  }
  const Tensor& value(int i) const { return values_[static_cast<size_t>(i)]; }
  int last() const { return static_cast<int>(values_.size()) - 1; }
  bool varies_in_row(int i) const {
    for (size_t d = 0; d < program.axes.size(); ++d)
      if (program.axes[d].reduced && program.axes[d].size != value(i).shape(static_cast<int>(d))) return false;
    return true;
  }

  fusion::Program program;
  std::vector<void*> pointers;
  std::vector<std::pair<int, Tensor>> stored;

 private:
  static Tensor reduced(reduce::Op op, const Tensor& x, const Dims& dims, double power) {
    switch (op) {
      case reduce::Op::kVar:
        return var(x, {.dim = dims, .keepdim = true});
      case reduce::Op::kStd:
        return tenor::std(x, {.dim = dims, .keepdim = true});
      case reduce::Op::kLogSumExp:
        return logsumexp(x, {.dim = dims, .keepdim = true});
      case reduce::Op::kSum:
        return sum(x, {.dim = dims, .keepdim = true});
      case reduce::Op::kMean:
        return mean(x, {.dim = dims, .keepdim = true});
      case reduce::Op::kProd:
        return prod(x, {.dim = dims, .keepdim = true});
      case reduce::Op::kMax:
        return amax(x, {.dim = dims, .keepdim = true});
      case reduce::Op::kMin:
        return amin(x, {.dim = dims, .keepdim = true});
      case reduce::Op::kAny:
        return any(x, {.dim = dims, .keepdim = true});
      case reduce::Op::kAll:
        return all(x, {.dim = dims, .keepdim = true});
      case reduce::Op::kCount:
        return count_nonzero(x, {.dim = dims, .keepdim = true});
      default:
        return norm(x, {.p = power, .dim = dims, .keepdim = true});
    }
  }
  int scalar(double value, DType dtype) {
    fusion::Instruction in{fusion::Instruction::Kind::kScalar, dtype};
    core::store_scalar(Scalar(value), dtype, in.element.data());
    return add(std::move(in), Tensor());
  }
  int add(fusion::Instruction in, const Tensor& result) {
    program.code.push_back(std::move(in));
    values_.push_back(result);
    return last();
  }
  int argument(const Tensor& x, bool written) {
    size_t alignment = 128;
    while (reinterpret_cast<uintptr_t>(x.raw()) % alignment != 0) alignment /= 2;
    for (size_t a = 0; a < pointers.size(); ++a)
      if (pointers[a] == x.raw() && program.arguments[a].dtype == x.dtype()) {
        program.arguments[a].written = program.arguments[a].written || written;
        return static_cast<int>(a);
      }
    program.arguments.push_back({x.dtype(), alignment, written});
    pointers.push_back(x.raw());
    return static_cast<int>(pointers.size()) - 1;
  }
  Dims strides(const Tensor& x) const {
    Dims out;
    for (size_t d = 0; d < program.axes.size(); ++d)
      out.push_back(x.shape(static_cast<int>(d)) == 1 ? 0 : x.stride(static_cast<int>(d)));
    return out;
  }

  int reduced_;
  std::vector<Tensor> values_;
};

/// Bit for bit, but that any NaN is like any other.
inline bool same_elements(const Tensor& a, const Tensor& b) {
  if (same_bits(a, b)) return true;
  if (!is_float(a.dtype()) || a.shape() != b.shape() || a.dtype() != b.dtype()) return false;
  const std::vector<double> x = values(a), y = values(b);
  return std::equal(x.begin(), x.end(), y.begin(), [](double p, double q) { return same(p, q); });
}

/// Normal numbers of any size, now and then 0, -0, infinity, NaN or a large one; of integers mostly small ones.
inline void fill_any(Draw& draw, const Tensor& x) {
  std::vector<double> elements(static_cast<size_t>(x.numel()));
  const double special[] = {0, -0.0, kInf, -kInf, kNan, 1e30, -1e-30, 1, -1};
  const bool plain = draw.upto(2) != 0;
  for (double& v : elements) {
    v = draw.normal() * (is_float(x.dtype()) ? 2 : 20);
    if (!plain && draw.upto(20) == 0) v = special[draw.upto(8)];
    if (x.dtype() == boolean) v = draw.upto(1) == 1 ? 1 : 0;
  }
  assign(x, elements);
}

/// Adds `steps` random ones to inputs of random dtypes, layouts and broadcasts, and stores of some values.
class RandomProgram {
 public:
  RandomProgram(Draw& draw, Device device, const Dims& shape, int reduced, int steps)
      : beside(shape, reduced), draw_(draw), device_(device), shape_(shape), reduced_(reduced) {
    const int64_t inputs = 1 + draw.upto(2);
    for (int64_t i = 0; i < inputs; ++i) add_input(i == 0);
    for (int tries = 0, made = 0; made < steps && tries < 20 * steps; ++tries) made += try_step();
    add_stores();
  }
  Beside beside;

 private:
  DType any_dtype() {
    constexpr DType kOften[] = {float32, bfloat16, float16, float32, bfloat16, float16, float64,
                                int32,   int64,    uint8,   int8,    boolean,  uint64,  int16};
    return kOften[draw_.upto(13)];
  }
  void add_input(bool whole) {
    Dims shape = shape_;
    for (auto& size : shape)
      if (!whole && draw_.upto(2) == 0) size = 1;
    const DType dtype = any_dtype();
    const bool dense = reduced_ > 0 || draw_.coin();
    Tensor x = dense ? Tensor::empty(shape, dtype) : draw_.any_layout(shape, dtype);
    fill_any(draw_, x);
    if (device_.type == DeviceType::kCuda) x = on_gpu(x);
    beside.load(x);
  }
  int any_value() {
    for (;;) {
      const int i = static_cast<int>(draw_.upto(beside.last()));
      if (beside.value(i).defined()) return i;
    }
  }
  int try_step() {
    const size_t before = beside.program.code.size();
    try {
      const int64_t kind = draw_.upto(9);
      if (kind == 0) {
        beside.convert(any_value(), any_dtype());
      } else if (kind <= 2 && reduced_ > 0) {
        constexpr reduce::Op kOps[] = {reduce::Op::kSum, reduce::Op::kProd,  reduce::Op::kMean, reduce::Op::kMax,
                                       reduce::Op::kMin, reduce::Op::kCount, reduce::Op::kAny,  reduce::Op::kNorm,
                                       reduce::Op::kAll, reduce::Op::kVar,   reduce::Op::kStd,  reduce::Op::kLogSumExp};
        const int from = any_value();
        if (!beside.varies_in_row(from)) return 0;
        const reduce::Op op = kOps[draw_.upto(is_float(beside.value(from).dtype()) ? 11 : 8)];
        if (beside.value(from).dtype() == float64 &&
            (op == reduce::Op::kMax || op == reduce::Op::kMin || op == reduce::Op::kLogSumExp))
          return 0;
        beside.reduce(op, from, draw_.coin() ? 1 : 2);
      } else {
        random_map();
      }
      return 1;
    } catch (const Error&) {  // dtypes that do not go together
      EXPECT_EQ(before, beside.program.code.size());
      return 0;
    }
  }
  void random_map() {
    const auto op = static_cast<elementwise::Op>(draw_.upto(elementwise::kOps - 1));
    std::vector<Given> given;
    const int array = op == elementwise::Op::kMaskedFill ? 2 : 0;  // what is never a number
    for (int i = 0; i < elementwise::row(op).arity; ++i)
      given.push_back(i > 0 && i != array && draw_.upto(3) == 0
                          ? Given(static_cast<double>(draw_.upto(6)) - (draw_.coin() ? 3 : 0))
                          : Given(any_value()));
    std::vector<double> params;
    if (op == elementwise::Op::kIsclose) params = {1e-2, 1e-3, 1};
    if (op == elementwise::Op::kLeakyRelu || op == elementwise::Op::kElu || op == elementwise::Op::kSoftplus)
      params = {0.75};
    beside.map(op, given, params);
  }
  void add_stores() {
    const int last = beside.last();
    for (int i = last, n = 0; i >= 0 && n < 3; --i)
      if (beside.value(i).defined() &&
          beside.program.code[static_cast<size_t>(i)].kind != fusion::Instruction::Kind::kLoad &&
          (i == last || draw_.upto(2) == 0)) {
        Tensor out = Tensor::empty(beside.value(i).shape(), beside.value(i).dtype());
        assign(out, std::vector<double>(static_cast<size_t>(out.numel()), is_float(out.dtype()) ? kNan : 1));
        if (device_.type == DeviceType::kCuda) out = on_gpu(out);
        beside.store(i, out);
        ++n;
      }
  }

  Draw& draw_;
  Device device_;
  Dims shape_;
  int reduced_;
};

/// Any shape for a loop (reduced = 0) or for rows.
inline Dims any_shape(Draw& draw, int reduced) {
  Dims shape;
  const int64_t kept = draw.upto(2) + (reduced == 0 ? 1 : 0);
  for (int64_t d = 0; d < kept; ++d) shape.push_back(1 + draw.upto(11));
  constexpr int64_t kLengths[] = {2,   7,    8,    31,   64,   100,  128,  129,  256, 300,
                                  512, 1000, 1024, 1032, 2048, 3000, 4097, 5000, 8192};
  if (reduced == 0)
    shape.push_back(draw.coin() ? 8 * (1 + draw.upto(20)) : 1 + draw.upto(200));
  else if (reduced == 1)
    shape.push_back(kLengths[draw.upto(18)]);
  else
    for (int d = 0; d < reduced; ++d) shape.push_back(1 + draw.upto(40));
  return shape;
}

/// Every operator of those rows of the table that takes x's dtype, each stored.
inline void add_every_operator(Beside& b, int x, int y, Device device, size_t from = 0, size_t to = elementwise::kOps) {
  for (const elementwise::OpRow& row :
       elementwise::table().subspan(from, std::min<size_t>(to, elementwise::kOps) - from)) {
    std::vector<Given> given = {x, y, x};
    if (row.rule == elementwise::Rule::kSelect) given[0] = b.map(elementwise::Op::kLt, {x, y});
    if (row.op == elementwise::Op::kMaskedFill) given[1] = y;
    given.resize(static_cast<size_t>(row.arity));
    std::vector<double> params;
    if (row.op == elementwise::Op::kIsclose) params = {1e-2, 1e-3, 1};
    if (row.op == elementwise::Op::kLeakyRelu || row.op == elementwise::Op::kElu ||
        row.op == elementwise::Op::kSoftplus)
      params = {0.75};
    try {
      const int made = b.map(row.op, given, params);
      b.store(made, Tensor::empty(b.value(made).shape(), b.value(made).dtype(), device));
    } catch (const Error&) {  // not for this dtype
    }
  }
}

}  // namespace tenor::testing
