#include "src/ops/sampling/row_options.h"

#include <cmath>

#include "src/core/numeric.h"
#include "src/core/visit.h"

namespace tenor {
namespace {

using core::fail;

/// What a real option must be, if this value is not it; nothing when it is.
const char* complaint(const RowValue& option, double value) {
  const std::string_view name = option.name;
  if (name == "temperature") return value >= 0 ? nullptr : "must be >= 0";
  if (name == "min_p") return value <= 1 ? nullptr : "must be <= 1";
  return std::isnan(value) ? "must be a number" : nullptr;
}

void check_rows(const char* op, const RowValue& option, core::Named x, int64_t batch) {
  core::check_same_device(op, {x, {option.name, option.rows}});
  if (option.rows.ndim() > 1 || (option.rows.ndim() == 1 && option.rows.shape(0) != batch))
    fail<ShapeError>("{}: {} must be a number or have shape {}, got {}", op, option.name, Dims{batch},
                     option.rows.shape());
}

}  // namespace

double RowValue::real_at(int64_t r) const {
  if (!rows.defined()) return real;
  const int64_t at = rows.ndim() == 0 ? 0 : r * rows.stride(0);
  return core::visit(rows.dtype(), [&]<class T>() { return core::cast<double>(rows.data<T>()[at]); });
}

int64_t RowValue::integer_at(int64_t r) const {
  if (!rows.defined()) return integer;
  const int64_t at = rows.ndim() == 0 ? 0 : r * rows.stride(0);
  return core::visit(rows.dtype(), [&]<class T>() { return core::cast<int64_t>(rows.data<T>()[at]); });
}

void RowValues::set_real(const char* op, RowValue& value, const std::optional<Operand>& given, core::Named x,
                         int64_t batch) {
  if (!given) return;
  if (given->is_tensor()) {
    value.rows = given->tensor();
    const DType dtype = value.rows.dtype();
    if (dtype == boolean || is_float8(dtype))
      fail<DTypeError>("{}: {} must be a number or an array of floats or integers, got {}", op, value.name, dtype);
    return check_rows(op, value, x, batch);
  }
  value.real = given->scalar().as_double();
  if (const char* wanted = complaint(value, value.real))
    fail<ValueError>("{}: {} {}, got {}", op, value.name, wanted, value.real);
}

void RowValues::set_integer(const char* op, RowValue& value, const std::optional<Operand>& given, core::Named x,
                            int64_t batch) {
  if (!given) return;
  if (given->is_tensor()) {
    value.rows = given->tensor();
    core::check_index_dtype(op, {value.name, value.rows});
    return check_rows(op, value, x, batch);
  }
  if (given->scalar().is_float())
    fail<DTypeError>("{}: {} must be an integer, got {}", op, value.name, given->scalar().as_double());
  value.integer = given->scalar().as_int();
  // Above int64 is above any V.
  if (&value == &top_k && given->scalar().kind() == Scalar::Kind::kUInt) value.integer = INT64_MAX;
}

void RowValues::set_seed(const char* op, const std::optional<Operand>& given, const Operand& where, core::Named x,
                         int64_t batch) {
  if (!given) fail<ValueError>("{}: seed is required: a draw is a function of it", op);
  set_integer(op, seed, given, x, batch);
  set_integer(op, position, where, x, batch);
}

std::vector<Tensor> RowValues::arrays() const {
  std::vector<Tensor> all;
  for (const RowValue* option : {&temperature, &top_k, &top_p, &min_p, &seed, &position})
    if (option->rows.defined()) all.push_back(option->rows);
  return all;
}

RowValues RowValues::with_arrays(const std::vector<Tensor>& all, size_t first) const {
  RowValues made = *this;
  for (RowValue* option : {&made.temperature, &made.top_k, &made.top_p, &made.min_p, &made.seed, &made.position})
    if (option->rows.defined()) option->rows = all[first++];
  return made;
}

std::vector<cpu::RowOptions> RowValues::on_host(const char* op, int64_t batch) const {
  for (const RowValue* option : {&temperature, &top_p, &min_p}) {
    if (!option->rows.defined()) continue;
    for (int64_t r = 0; r < (option->rows.ndim() == 0 ? 1 : batch); ++r)
      if (const char* wanted = complaint(*option, option->real_at(r)))
        fail<ValueError>("{}: {} {}, got {} at {}", op, option->name, wanted, option->real_at(r), r);
  }
  std::vector<cpu::RowOptions> all(static_cast<size_t>(batch));
  for (int64_t r = 0; r < batch; ++r)
    all[r] = {temperature.real_at(r),
              top_k.integer_at(r),
              top_p.real_at(r),
              min_p.real_at(r),
              static_cast<uint64_t>(seed.integer_at(r)),
              static_cast<uint64_t>(position.integer_at(r))};
  return all;
}

cuda::RowOptionSet RowValues::on_device() const {
  const auto option = [](const RowValue& v) { return cuda::RowOption{v.rows, v.real, v.integer}; };
  return {option(temperature), option(top_k), option(top_p), option(min_p), option(seed), option(position)};
}

}  // namespace tenor
