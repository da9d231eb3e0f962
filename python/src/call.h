// What every binding is written with: arguments of any array library in, results of the same kind out.
//
//     def_method(m, "softmax", [](Array x, int64_t dim, Out out) {
//       Call call("softmax", out);
//       const Tensor t = call.array("x", x);
//       return call.run([&] { return softmax(t, {.dim = dim, .out = call.out()}); });
//     }, "x"_a, "dim"_a = -1, nb::kw_only(), "out"_a = nb::none(), "docstring");
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <utility>
#include <vector>

#include "tenor/modes.h"
#include "tenor/scalar.h"
#include "tenor/stream.h"
#include "tenor/tensor.h"
#include "tenor/workspace.h"

namespace tenor::python {

namespace nb = nanobind;
using namespace nb::literals;

// Arguments that stay Python objects until the operator's name is known, so that errors can name it. Each shows in
// signatures under the name given below.
struct Array {
  nb::handle object;
};  ///< any DLPack exporter
struct OptionalArray {
  nb::handle object;
};  ///< or None
struct ArrayOrScalar {
  nb::handle object;
};  ///< or a bool, int or float
struct ArrayList {
  nb::handle object;
};  ///< a sequence of arrays
struct DimList {
  nb::handle object;
};                      ///< an int or a sequence of ints; None where the operator says so
struct Int {            ///< an int; one beyond 64 bits becomes the limit, which every operator finds
  int64_t value;        ///< out of range or takes as what it is: a dim, an index, a k, a bound
  bool beyond = false;  ///< whether it was: Call::count
  operator int64_t() const { return value; }
};
struct OptionalInt : std::optional<int64_t> {};  ///< or None
struct Real {                                    ///< a number; an int beyond float64 becomes an infinity
  double value;
  operator double() const { return value; }
};
struct OptionalReal : std::optional<double> {};  ///< or None
struct DTypeLike {
  nb::handle object;
};  ///< tenor.float32, a NumPy dtype, a name, float, int or bool; or None
struct DeviceLike {
  nb::handle object;
};  ///< "cpu", "cuda", "cuda:1"; or None
struct Out {
  nb::handle object;
};  ///< out=: a writable array, a tuple of them, or None

struct Workspace {
  nb::handle object = nb::handle(Py_None);
};  ///< workspace=: a uint8 array on the operator's device, or None

/// Which library an array belongs to, and how its results are made.
/// A masked array is NumPy's by its base, but its mask lies outside of what Tenor reads.
enum class ArrayKind : uint8_t { kNone, kTenor, kNumPy, kMasked, kTorch, kOther };

/// The most dims that a tensor has, and the most entries of a list with one for each.
inline constexpr size_t kMostDims = 64;
/// For lists whose length no rank bounds.
inline constexpr size_t kAnyCount = SIZE_MAX;

/// One call of an operator: converts its arguments, runs it without the GIL, wraps its results.
class Call {
 public:
  explicit Call(const char* op, Out out = {nb::handle(Py_None)}, Workspace workspace = {});

  /// The array as a Tensor that shares its memory. @throws DTypeError for what is no array.
  Tensor array(const char* name, Array x);
  /// None gives an undefined Tensor.
  Tensor array(const char* name, OptionalArray x);
  Operand operand(const char* name, ArrayOrScalar x);
  std::vector<Tensor> arrays(const char* name, ArrayList xs);
  /// An int as a list of one. @throws DTypeError for anything but ints.
  /// @throws ShapeError for more than `most` entries, of which an endless sequence has too many.
  Dims dims(const char* name, DimList x, size_t most = kMostDims);
  std::optional<Dims> optional_dims(const char* name, DimList x, size_t most = kMostDims);
  /// A size that nothing else bounds. @throws ValueError beyond 64 bits
  int64_t count(const char* name, Int x);
  std::optional<DType> dtype(DTypeLike x);
  Device device(DeviceLike x, Device fallback = kCpu);

  /// out=, or entry i of a tuple of `count`; undefined when absent. @throws ValueError for another length.
  Tensor out(size_t i = 0, size_t count = 1);
  /// None when out= is absent, else what the caller passed.
  nb::object out_object() const;

  /// fn() without the GIL, its result (a Tensor or a vector of them) as arrays of the first argument's kind.
  template <class F>
  nb::object run(F&& fn) {
    return wrap(compute(fn));
  }
  /// As run, the vector's entries as the named tuple `type`.
  template <class F>
  nb::object run_named(nb::handle type, F&& fn) {
    const std::vector<Tensor> results = compute(fn);
    if (!out_.is_none()) return type(*nb::tuple(out_object()));
    nb::list items;
    for (const Tensor& r : results) items.append(wrap_one(r));
    return type(*nb::tuple(items));
  }
  /// fn() without the GIL, for results that are no tensors.
  template <class F>
  auto compute(F&& fn) {
    const auto guard = allocator_guard();
    const auto stream = stream_ ? std::make_unique<StreamGuard>(*stream_) : nullptr;
    const auto workspace = workspace_guard();
    nb::gil_scoped_release unlocked;
    return fn();
  }

  nb::object wrap(const Tensor& result) const;
  nb::object wrap(const std::vector<Tensor>& results) const;  ///< a tuple
  nb::object wrap_one(const Tensor& result) const;            ///< whatever out= is

 private:
  Tensor convert(const char* name, nb::handle x);
  std::unique_ptr<AllocatorGuard> allocator_guard() const;
  std::unique_ptr<WorkspaceGuard> workspace_guard() const;

  const char* op_;
  nb::handle out_, workspace_;
  ArrayKind kind_ = ArrayKind::kNone;
  nb::handle like_;               // the first array: results are of its library
  Device device_;                 // of the first array
  std::optional<Stream> stream_;  // its library's current stream, when it is on a CUDA device
};

/// collections.namedtuple(name, fields), made once and kept.
nb::object named_tuple(const char* name, std::initializer_list<const char*> fields);
nb::object named_tuple(const std::string& name, nb::tuple fields);

/// tenor.DType: the Python object of a dtype (nanobind binds no bare enumerator as a class).
struct DTypeObject {
  DType value;
};

/// A dtype from any dtype-like object. @throws DTypeError
DType to_dtype(nb::handle x);
/// Any array as a Tensor, without a Call (for asarray and indexing). `kind` receives its library when given.
Tensor to_tensor(const char* op, const char* name, nb::handle x, ArrayKind* kind = nullptr);
/// Whether x is an array of a known library or exports DLPack.
bool is_array(nb::handle x);
/// A str as UTF-8; none for another object, and for a str that UTF-8 cannot hold (lone surrogates).
std::optional<std::string> utf8_of(nb::handle x);
/// The device that x names. @throws ValueError
Device to_device(nb::handle x);
/// The attribute, or an invalid object where there is none: any other exception than AttributeError propagates.
nb::object find_attribute(nb::handle x, const char* name);
inline bool has_attribute(nb::handle x, const char* name) { return find_attribute(x, name).is_valid(); }
/// What is_integer_object accepted; none beyond 64 bits. What its __index__ raises propagates.
std::optional<int64_t> to_int64(nb::handle x);
/// Whether x stands for one integer: an int, what has __index__, NumPy's integer scalars, an integer array without
/// dims.
bool is_integer_object(nb::handle x);
/// As a tuple of ints.
nb::tuple to_tuple(const Dims& dims);
/// The tensor as an ndarray that shares its memory.
nb::object to_numpy(const Tensor& x);
/// The number as a Scalar, if it is one. @throws ValueError for an integer that fits no dtype, naming operator and
/// argument.
std::optional<Scalar> to_scalar(nb::handle x, const char* op = nullptr, const char* name = nullptr);

/// Functions that also become methods of tenor.Tensor, by name.
std::vector<std::string>& method_names();

/// m.def, and a method of tenor.Tensor of the same name whose self is the first argument.
template <class F, class... Extra>
void def_method(nb::module_& m, const char* name, F&& fn, const Extra&... extra) {
  m.def(name, std::forward<F>(fn), extra...);
  method_names().push_back(name);
}

}  // namespace tenor::python

// Casters that only keep the handle. nanobind itself adds "| None" to the types of arguments that may be None.
#define TENOR_OBJECT_CASTER(Type, shown)                                                 \
  template <>                                                                            \
  struct nanobind::detail::type_caster<tenor::python::Type> {                            \
    NB_TYPE_CASTER(tenor::python::Type, const_name(shown))                               \
    bool from_python(handle src, uint8_t, cleanup_list*) noexcept {                      \
      value.object = src;                                                                \
      return true;                                                                       \
    }                                                                                    \
    static handle from_cpp(tenor::python::Type src, rv_policy, cleanup_list*) noexcept { \
      return src.object.inc_ref();                                                       \
    }                                                                                    \
  };
TENOR_OBJECT_CASTER(Array, "ArrayLike")
TENOR_OBJECT_CASTER(OptionalArray, "ArrayLike")
TENOR_OBJECT_CASTER(ArrayOrScalar, "ArrayLike | bool | int | float")
TENOR_OBJECT_CASTER(ArrayList, "collections.abc.Sequence[ArrayLike]")
TENOR_OBJECT_CASTER(DimList, "int | collections.abc.Sequence[int]")
TENOR_OBJECT_CASTER(DTypeLike, "DTypeLike")
TENOR_OBJECT_CASTER(DeviceLike, "str")
TENOR_OBJECT_CASTER(Out, "ArrayLike | tuple[ArrayLike, ...]")
TENOR_OBJECT_CASTER(Workspace, "ArrayLike")
#undef TENOR_OBJECT_CASTER

namespace tenor::python {
/// Reads an Int; false for what is none, a bool included. What its __index__ raises propagates.
bool read_int(nb::handle x, Int& to);
/// Reads a Real; false for what is none. What its __float__ or __index__ raises propagates.
bool read_real(nb::handle x, double& value);
}  // namespace tenor::python

template <>
struct nanobind::detail::type_caster<tenor::python::Int> {
  NB_TYPE_CASTER(tenor::python::Int, const_name("int"))
  bool from_python(handle src, uint8_t, cleanup_list*) { return tenor::python::read_int(src, value); }
  static handle from_cpp(tenor::python::Int src, rv_policy, cleanup_list*) noexcept {
    return PyLong_FromLongLong(src.value);
  }
};
template <>
struct nanobind::detail::type_caster<tenor::python::OptionalInt> {
  NB_TYPE_CASTER(tenor::python::OptionalInt, const_name("int"))
  bool from_python(handle src, uint8_t, cleanup_list*) {
    if (src.is_none()) return true;
    tenor::python::Int read{};
    if (!tenor::python::read_int(src, read)) return false;
    value.emplace(read);
    return true;
  }
  static handle from_cpp(tenor::python::OptionalInt src, rv_policy, cleanup_list*) noexcept {
    return src ? PyLong_FromLongLong(*src) : none().release();
  }
};
template <>
struct nanobind::detail::type_caster<tenor::python::Real> {
  NB_TYPE_CASTER(tenor::python::Real, const_name("float"))
  bool from_python(handle src, uint8_t, cleanup_list*) { return tenor::python::read_real(src, value.value); }
  static handle from_cpp(tenor::python::Real src, rv_policy, cleanup_list*) noexcept {
    return PyFloat_FromDouble(src.value);
  }
};
template <>
struct nanobind::detail::type_caster<tenor::python::OptionalReal> {
  NB_TYPE_CASTER(tenor::python::OptionalReal, const_name("float"))
  bool from_python(handle src, uint8_t, cleanup_list*) {
    if (src.is_none()) return true;
    return tenor::python::read_real(src, value.emplace());
  }
  static handle from_cpp(tenor::python::OptionalReal src, rv_policy, cleanup_list*) noexcept {
    return src ? PyFloat_FromDouble(*src) : none().release();
  }
};
