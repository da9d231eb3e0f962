#include "call.h"
#include "number.h"
#include "src/core/scalar_value.h"
#include "tenor/create.h"

namespace tenor::python {
namespace {

/// zeros(2, 3) and zeros((2, 3)).
Dims sizes_of(Call& call, nb::args size) {
  const nb::object list = nb::len(size) == 1 ? nb::object(size[0]) : nb::object(size);
  return call.dims("size", {list});
}

CreateOptions options_of(Call& call, DTypeLike dtype, DeviceLike device) {
  return {.dtype = call.dtype(dtype), .device = call.device(device), .out = call.out()};
}

LikeOptions like_options(Call& call, DTypeLike dtype, DeviceLike device) {
  std::optional<Device> where;
  if (!device.object.is_none()) where = call.device(device);
  return {.dtype = call.dtype(dtype), .device = where, .out = call.out()};
}

void bind_sized(nb::module_& m) {
  const auto sized = [&](const char* name, Tensor (*fn)(const Dims&, const CreateOptions&), const char* doc) {
    m.def(
        name,
        [name, fn](nb::args size, DTypeLike dtype, DeviceLike device, Out out) {
          Call call(name, out);
          const Dims shape = sizes_of(call, size);
          const CreateOptions options = options_of(call, dtype, device);
          return call.run([&] { return fn(shape, options); });
        },
        "size"_a, "dtype"_a = nb::none(), "device"_a = nb::none(), "out"_a = nb::none(), doc);
  };
  sized("empty", &empty, "A tensor of this size, contents undefined. float32 unless dtype says otherwise.");
  sized("zeros", &zeros, "A tensor of zeros. float32 unless dtype says otherwise.");
  sized("ones", &ones, "A tensor of ones. float32 unless dtype says otherwise.");
  m.def(
      "full",
      [](DimList size, ArrayOrScalar fill_value, DTypeLike dtype, DeviceLike device, Out out) {
        Call call("full", out);
        const Dims shape = call.dims("size", size);
        const Scalar value = number_of("full", "fill_value", fill_value);
        const CreateOptions options = options_of(call, dtype, device);
        return call.run([&] { return full(shape, value, options); });
      },
      "size"_a, "fill_value"_a, nb::kw_only(), "dtype"_a = nb::none(), "device"_a = nb::none(), "out"_a = nb::none(),
      "A tensor of one value: bool, int64 or float32 as the value is, unless dtype says otherwise.");
}

void bind_like(nb::module_& m) {
  const auto like = [&](const char* name, Tensor (*fn)(const Tensor&, const LikeOptions&), const char* doc) {
    m.def(
        name,
        [name, fn](Array x, DTypeLike dtype, DeviceLike device, Out out) {
          Call call(name, out);
          const Tensor t = call.array("x", x);
          const LikeOptions options = like_options(call, dtype, device);
          return call.run([&] { return fn(t, options); });
        },
        "x"_a, nb::kw_only(), "dtype"_a = nb::none(), "device"_a = nb::none(), "out"_a = nb::none(), doc);
  };
  like("empty_like", &empty_like, "An array of x's shape, dimension order, dtype and device, contents undefined.");
  like("zeros_like", &zeros_like, "Zeros of x's shape, dimension order, dtype and device.");
  like("ones_like", &ones_like, "Ones of x's shape, dimension order, dtype and device.");
  m.def(
      "full_like",
      [](Array x, ArrayOrScalar fill_value, DTypeLike dtype, DeviceLike device, Out out) {
        Call call("full_like", out);
        const Tensor t = call.array("x", x);
        const Scalar value = number_of("full_like", "fill_value", fill_value);
        const LikeOptions options = like_options(call, dtype, device);
        return call.run([&] { return full_like(t, value, options); });
      },
      "x"_a, "fill_value"_a, nb::kw_only(), "dtype"_a = nb::none(), "device"_a = nb::none(), "out"_a = nb::none(),
      "One value in x's shape, dimension order, dtype and device.");
}

/// x.new_zeros(2, 3): a tensor of x's dtype and device.
void bind_new(nb::module_& m) {
  nb::class_<Tensor> tensor = nb::borrow<nb::class_<Tensor>>(m.attr("Tensor"));
  const auto created = [&](const char* name, Tensor (*fn)(const Dims&, const CreateOptions&), const char* doc) {
    tensor.def(
        name,
        [name, fn](const Tensor& x, nb::args size, DTypeLike dtype, DeviceLike device) {
          Call call(name);
          const Dims shape = sizes_of(call, size);
          return fn(shape, {.dtype = call.dtype(dtype).value_or(x.dtype()), .device = call.device(device, x.device())});
        },
        "size"_a, "dtype"_a = nb::none(), "device"_a = nb::none(), doc);
  };
  created("new_empty", &empty, "An undefined tensor of this size with x's dtype and device.");
  created("new_zeros", &zeros, "Zeros of this size with x's dtype and device.");
  created("new_ones", &ones, "Ones of this size with x's dtype and device.");
  tensor.def(
      "new_full",
      [](const Tensor& x, DimList size, ArrayOrScalar fill_value, DTypeLike dtype, DeviceLike device) {
        Call call("new_full");
        const Dims shape = call.dims("size", size);
        const CreateOptions options{.dtype = call.dtype(dtype).value_or(x.dtype()),
                                    .device = call.device(device, x.device())};
        return full(shape, number_of("new_full", "fill_value", fill_value), options);
      },
      "size"_a, "fill_value"_a, nb::kw_only(), "dtype"_a = nb::none(), "device"_a = nb::none(),
      "One value in this size with x's dtype and device.");
}

void bind_ranges(nb::module_& m) {
  m.def(
      "arange",
      [](ArrayOrScalar start, ArrayOrScalar end, ArrayOrScalar step, DTypeLike dtype, DeviceLike device, Out out) {
        Call call("arange", out);
        const bool only_end = end.object.is_none();
        const Scalar from = only_end ? Scalar(0) : number_of("arange", "start", start);
        const Scalar to = number_of("arange", "end", only_end ? start : end), by = number_of("arange", "step", step);
        const CreateOptions options = options_of(call, dtype, device);
        return call.run([&] { return arange(from, to, by, options); });
      },
      "start"_a, "end"_a = nb::none(), "step"_a = 1, nb::kw_only(), "dtype"_a = nb::none(), "device"_a = nb::none(),
      "out"_a = nb::none(),
      "start, start + step, ... before end; arange(n) counts from 0. int64 when all are integers, else float32.");
  m.def(
      "linspace",
      [](ArrayOrScalar start, ArrayOrScalar end, Int steps, DTypeLike dtype, DeviceLike device, Out out) {
        Call call("linspace", out);
        const Scalar from = number_of("linspace", "start", start), to = number_of("linspace", "end", end);
        const CreateOptions options = options_of(call, dtype, device);
        const int64_t count = call.count("steps", steps);
        return call.run([&] { return linspace(from, to, count, options); });
      },
      "start"_a, "end"_a, "steps"_a, nb::kw_only(), "dtype"_a = nb::none(), "device"_a = nb::none(),
      "out"_a = nb::none(), "`steps` values from start to end, both included, evenly spaced.");
  m.def(
      "eye",
      [](Int n, std::optional<Int> columns, DTypeLike dtype, DeviceLike device, Out out) {
        Call call("eye", out);
        const CreateOptions options = options_of(call, dtype, device);
        const int64_t rows = call.count("n", n), width = columns ? call.count("m", *columns) : rows;
        return call.run([&] { return eye(rows, width, options); });
      },
      "n"_a, "m"_a = nb::none(), nb::kw_only(), "dtype"_a = nb::none(), "device"_a = nb::none(), "out"_a = nb::none(),
      "[n, m] (m defaults to n) with 1 on the main diagonal, else 0.");
}

void bind_borders(nb::module_& m) {
  m.def(
      "pad",
      [](Array x, DimList pairs, const std::string& mode, ArrayOrScalar value, Out out) {
        Call call("pad", out);
        const Tensor t = call.array("x", x);
        const Dims borders = call.dims("pad", pairs, 2 * kMostDims);
        const Scalar fill = value.object.is_none() ? Scalar(0) : number_of("pad", "value", value);
        return call.run([&] { return pad(t, borders, {.mode = mode, .value = fill, .out = call.out()}); });
      },
      "x"_a, "pad"_a, "mode"_a = "constant", "value"_a = nb::none(), nb::kw_only(), "out"_a = nb::none(),
      "x with borders: pad is (before, after) of the last dim, then of the one before it, ...; negative ones cut. "
      "mode: 'constant' (value), 'reflect', 'replicate' or 'circular'.");
  const auto triangle = [&](const char* name, Tensor (*fn)(const Tensor&, const TriangleOptions&), const char* doc) {
    def_method(
        m, name,
        [name, fn](Array x, Int diagonal, Out out) {
          Call call(name, out);
          const Tensor t = call.array("x", x);
          return call.run([&] { return fn(t, {.diagonal = diagonal, .out = call.out()}); });
        },
        "x"_a, "diagonal"_a = 0, nb::kw_only(), "out"_a = nb::none(), doc);
  };
  triangle("tril", &tril, "The matrices of x with 0 above diagonal `diagonal`.");
  triangle("triu", &triu, "The matrices of x with 0 below diagonal `diagonal`.");
}

/// Whether NumPy gave objects, or floats that large integers may have become.
bool may_hold_wide_integers(nb::handle array) {
  if (nb::cast<bool>(array.attr("dtype").attr("hasobject"))) return true;
  if (!array.attr("dtype").attr("name").equal(nb::str("float64")) || nb::cast<int64_t>(array.attr("size")) == 0)
    return false;
  return nb::cast<double>(nb::float_(nb::module_::import_("numpy").attr("abs")(array).attr("max")())) >= 0x1p63;
}

/// `array`, what NumPy makes of obj, but uint64 where obj holds only integers and some are beyond int64.
nb::object with_wide_integers(nb::handle obj, nb::object array, std::optional<DType> dtype) {
  if (!may_hold_wide_integers(array)) return array;
  const nb::object make = nb::module_::import_("numpy").attr("asarray");
  nb::object least, greatest;
  for (nb::handle entry : nb::object(make(obj, "dtype"_a = "object").attr("ravel")().attr("tolist")())) {
    if (!PyLong_Check(entry.ptr())) return array;
    if (!least.is_valid() || entry < least) least = nb::borrow(entry);
    if (!greatest.is_valid() || entry > greatest) greatest = nb::borrow(entry);
  }
  if (!least.is_valid()) return array;
  if (dtype && is_float(*dtype)) return make(obj, "dtype"_a = "float64");
  for (const nb::object& entry : {least, greatest})
    if (entry < nb::int_(INT64_MIN) || entry > nb::int_(UINT64_MAX))
      core::fail<ValueError>("asarray: the integer {} fits no dtype", nb::str(entry).c_str());
  if (least < nb::int_(0))
    core::fail<ValueError>("asarray: no integer dtype holds both {} and {}", nb::str(least).c_str(),
                           nb::str(greatest).c_str());
  return make(obj, "dtype"_a = "uint64");
}

/// Nested lists and numbers as NumPy reads them, but float32 where it would say float64 for Python floats.
Tensor from_objects(nb::handle obj, std::optional<DType> dtype) {
  const char* op = "asarray";
  if (auto scalar = to_scalar(obj, op, "obj")) {
    const DType own = scalar->is_float()                      ? float32
                      : scalar->is_bool()                     ? boolean
                      : scalar->kind() == Scalar::Kind::kUInt ? uint64
                                                              : int64;
    // Asked for an integer dtype, floats are converted as an array of them is.
    if (dtype && scalar->is_float()) return core::scalar_tensor(op, "obj", *scalar, float64, kCpu).to(*dtype);
    return core::scalar_tensor(op, "obj", *scalar, dtype.value_or(own), kCpu);
  }
  nb::object array;
  try {
    array = nb::module_::import_("numpy").attr("asarray")(obj);
  } catch (nb::python_error& error) {
    if (!error.matches(PyExc_ValueError)) throw;
    core::fail<ShapeError>("{}: nested lists must have equal lengths: {}", op, error.what());
  }
  array = with_wide_integers(obj, std::move(array), dtype);
  const Tensor t = to_tensor(op, "obj", array);
  if (!dtype) return t.dtype() == float64 ? t.to(float32) : t;
  if (is_integer(t.dtype()) && t.numel() > 0)
    for (const char* bound : {"min", "max"})
      core::check_fits(op, "obj's entry", *to_scalar(array.attr(bound)().attr("item")()), *dtype);
  return t.to(*dtype);
}

void bind_asarray(nb::module_& m) {
  m.def(
      "asarray",
      [](nb::handle obj, DTypeLike dtype, DeviceLike device) {
        Call call("asarray");
        const std::optional<DType> type = call.dtype(dtype);
        const Tensor t = is_array(obj) ? to_tensor("asarray", "obj", obj) : from_objects(obj, type);
        const Tensor typed = type ? t.to(*type) : t;
        return device.object.is_none() ? typed : typed.to(call.device(device));
      },
      "obj"_a, "dtype"_a = nb::none(), "device"_a = nb::none(),
      "A tensor of an array (sharing its memory where neither dtype nor device change), a number or nested lists. "
      "Python floats "
      "become float32, ints int64, bools bool, unless dtype says otherwise.");
}

}  // namespace

void bind_create(nb::module_& m) {
  bind_sized(m);
  bind_like(m);
  bind_new(m);
  bind_ranges(m);
  bind_borders(m);
  bind_asarray(m);
}

}  // namespace tenor::python
