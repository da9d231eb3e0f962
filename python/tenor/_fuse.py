"""tenor.fuse: a function of arrays whose chains of operators run as one kernel each.

Keys, tracing and running are C++ (src/fusion/); here are the arguments and results: which of them are arrays, and what
structure they stand in.
"""
import copy
import dataclasses
import enum
import functools
import numbers
import sys
import threading
import types

from tenor import _tenor
from tenor._explain import _without_data, is_array
from tenor._tenor import Tensor

_HERE = __file__.rpartition("_fuse")[0]


class _Slot:
    """The place of an array in a structure."""

    __slots__ = ("index",)

    def __init__(self, index):
        self.index = index


def source_line():
    """Where the innermost frame outside of this package stands: "file:line: text"."""
    import linecache

    frame = sys._getframe(0)
    while frame is not None and frame.f_code.co_filename.startswith(_HERE):
        frame = frame.f_back
    if frame is None:
        return ""
    name, line = frame.f_code.co_filename, frame.f_lineno
    text = linecache.getline(name, line).strip()
    return f"{name}:{line}" + (f": {text}" if text else "")


def _is_number(value):
    """Whether it is one of NumPy's scalars, which look like arrays."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.generic)


def _with_items(value, items):
    """A dict of value's type, and what else it holds (a defaultdict's factory), with other items."""
    if type(value) is dict:
        return items
    made = copy.copy(value)
    for k, v in items.items():
        made[k] = v
    return made


def _with_members(value, members):
    """A list or tuple of value's type, and what else it holds, with other members; a type's own constructor may want other things."""
    kind = type(value)
    if kind in (list, tuple):
        return kind(members)
    if isinstance(value, list):
        made = copy.copy(value)
        made[:] = members
        return made
    if all(old is new for old, new in zip(value, members)):
        return value
    made = tuple.__new__(kind, members)
    if hasattr(value, "__dict__"):
        made.__dict__.update(value.__dict__)
    return made


def _flatten(value, arrays):
    """`value` with a _Slot for each array, which goes to `arrays`."""
    if isinstance(value, Tensor) or is_array(value) and not _is_number(value):
        arrays.append(value)
        return _Slot(len(arrays) - 1)
    if isinstance(value, (list, tuple)):
        return _with_members(value, [_flatten(v, arrays) for v in value])
    if isinstance(value, dict):
        return _with_items(value, {k: _flatten(v, arrays) for k, v in value.items()})
    return value


def _flatten_arguments(args, kwargs, arrays):
    """_flatten of a call's arguments, whose structure is the caller's."""
    try:
        return _flatten((args, kwargs), arrays)
    except RecursionError:
        raise _tenor.ValueError("fuse: an argument holds itself, or arrays too many levels deep") from None


def _rebuild(value, arrays):
    """A structure of _flatten with other arrays."""
    if isinstance(value, _Slot):
        return arrays[value.index]
    if isinstance(value, (list, tuple)):
        return _with_members(value, [_rebuild(v, arrays) for v in value])
    if isinstance(value, dict):
        return _with_items(value, {k: _rebuild(v, arrays) for k, v in value.items()})
    return value


_PLAIN = (numbers.Number, str, bytes, type(None), type(...), type, enum.Enum, range, _tenor.DType)  # what holds no arrays and does not change


def _unknown_part(value):
    """The name of the type of a part of a flattened result that may hold arrays of the trace, or change: a generator, an object."""
    if isinstance(value, (list, tuple)):
        return next(filter(None, map(_unknown_part, value)), None)
    if isinstance(value, dict):
        return _unknown_part([*value, *value.values()])
    return None if isinstance(value, (_Slot, *_PLAIN)) or _is_number(value) else type(value).__name__


class _NoKey(Exception):
    """Says why a call cannot be told from others."""


class _Met(dict):
    """The containers and objects that a key has gone through: id -> (how many came before, the object, so that it stays)."""

    def place(self, value):
        """Where it stands among them if it was met before; None, and it stands there from now on, if not."""
        known = self.get(id(value))
        if known is None:
            self[id(value)] = len(self), value
        return known and known[0]


def _key(value, met):
    """What tells a structure of Python arguments from another: 1, 1.0 and True are three, 0.0 and -0.0 two. Raises _NoKey for
    what can change and has no contents that are known. What was met before, such as an object that several hold or that
    holds itself, is named by its place: it is walked once."""
    kind = type(value)
    if kind is _Slot:
        return _Slot
    if kind in (int, bool, str, type(None)):
        return kind, value
    if isinstance(value, numbers.Number) and not isinstance(value, int) and kind.__repr__ is not object.__repr__:
        return kind, repr(value)
    if not _has_parts(value):
        return _key_of_one(value)
    if (place := met.place(value)) is not None:
        return kind, _Met, place
    if isinstance(value, (list, tuple, set, frozenset)):  # sets in their order, which the function may go by
        return (kind, *(_key(v, met) for v in value))
    if isinstance(value, dict):
        return (kind, getattr(value, "default_factory", None), *((_key(k, met), _key(v, met)) for k, v in value.items()))
    if isinstance(value, slice):
        return kind, _key(value.start, met), _key(value.stop, met), _key(value.step, met)
    if dataclasses.is_dataclass(value):
        return (kind, *_contents(value, met))
    if isinstance(value, functools.partial):
        return kind, _key(value.func, met), _key(value.args, met), _key(value.keywords, met)
    if isinstance(value, types.MethodType):
        return kind, value.__func__, _key(value.__self__, met)
    return (kind, value, *_contents(value, met))  # the object itself, as it is now


_FIXED = (type, types.FunctionType, types.BuiltinFunctionType, types.ModuleType)  # functions are read once, as closures are


def _has_parts(value):
    """Whether its key is made of those of what it holds."""
    if isinstance(value, _FIXED):
        return False
    if isinstance(value, (list, tuple, set, frozenset, dict, slice, functools.partial, types.MethodType)) or dataclasses.is_dataclass(value):
        return True
    return type(value).__hash__ is object.__hash__ and not _is_unknown(value)


def _is_unknown(value):
    return is_array(value) and not isinstance(value, Tensor) and not _is_number(value) or hasattr(value, "__next__")


def _key_of_one(value):
    """Of a value that is compared as a whole."""
    kind = type(value)
    try:
        if _is_unknown(value):
            raise TypeError
        hash(value)
    except Exception:
        raise _NoKey(f"an argument holds {kind.__name__!r}, whose contents are not known") from None
    return kind, value


def _contents(value, met):
    """Keys of an object's attributes."""
    slots = {}
    for base in type(value).__mro__:
        names = base.__dict__.get("__slots__", ())
        for name in (names,) if isinstance(names, str) else names:
            if name.startswith("__") and not name.endswith("__"):  # as the class's body mangles it
                name = f"_{base.__name__.lstrip('_')}{name}"
            slots[name] = getattr(value, name, None)
    fields = {f.name: getattr(value, f.name, None) for f in dataclasses.fields(value)} if dataclasses.is_dataclass(value) else {}
    return tuple((k, _key(v, met)) for k, v in {**slots, **fields, **getattr(value, "__dict__", {})}.items())


def _key_of(value):
    """_key, or _NoKey also for structures of too many levels."""
    try:
        return _key(value, _Met())
    except RecursionError:
        raise _NoKey("an argument holds more levels than are told apart") from None


class _Fused:
    """What tenor.fuse() returns."""

    _MOST_TABLES = 1024  # of Python arguments' values: with more, the oldest goes

    def __init__(self, fn, fast):
        self._fn = fn
        self._fast = fast
        self._tables = {}
        self._plain = {}  # tables of calls with arrays alone, by how many
        self._lock = threading.Lock()
        functools.update_wrapper(self, fn, updated=())  # a callable object's own attributes are not this one's

    def __call__(self, *args, **kwargs):
        if not kwargs and (table := self._plain.get(len(args))) is not None and _tenor._fuse_enabled():
            try:
                result = table.run_plain(*args)
            except _tenor.Error as error:
                given = _flatten_arguments(args, kwargs, arrays := [])
                return self._after(self._located(error, table), table, given, arrays)
            if result is not None:
                return result
        arrays = []
        given = _flatten_arguments(args, kwargs, arrays)
        if not _tenor._fuse_enabled():
            return self._as_written(given, arrays)
        try:
            table = self._table(_key_of(given))
        except _NoKey:
            table = None
        if table is None:  # not within the except clause, whose exception the function's own would name as its context
            return self._as_written(given, arrays)
        if not kwargs and len(arrays) == len(args) and all(type(x) is _Slot for x in given[0]):
            self._plain[len(args)] = table
        try:
            result = table.run(arrays)
            if result is None:
                table.trace(arrays, lambda shapes: self._trace(given, shapes))
                result = table.run(arrays)
        except _tenor.Error as error:
            return self._after(self._located(error, table), table, given, arrays)
        if isinstance(result, str):
            return self._as_written(given, arrays)
        structure, results = result
        return results[0] if structure is None else _rebuild(structure[0], results)

    def _table(self, key):
        """The compilations for that key of Python arguments."""
        table = self._tables.get(key)
        if table is not None:
            return table
        with self._lock:
            while len(self._tables) >= self._MOST_TABLES:
                del self._tables[next(iter(self._tables))]
            return self._tables.setdefault(key, _tenor._FuseTable(self._fast))

    def _after(self, error, table, given, arrays):
        """What the function makes of an error that what its arguments hold has raised: it may catch it."""
        if not isinstance(error, _tenor.OutOfMemoryError) and table.may_run_again(arrays):
            try:
                return self._as_written(given, arrays)
            except _tenor.Error:  # it does not: the same error, without the kernel that met it
                pass
        raise error from None

    @staticmethod
    def _located(error, table):
        """An operator's error with the line of the function that called it."""
        source = table.failed_at()
        return type(error)(f"{error}\n  in {source}") if source else error

    def why_not(self, *args, **kwargs):
        """Why a call with such arguments runs the function as it is written; None where it runs kernels."""
        arrays = []
        given = _flatten_arguments(args, kwargs, arrays)
        if not _tenor._fuse_enabled():
            return "TENOR_FUSE=0 is set"
        try:
            table = self._table(_key_of(given))
        except _NoKey as error:
            return str(error)
        return table.why_not(arrays, lambda shapes: self._trace(given, shapes))

    def kernels(self, *args, **kwargs):
        """How many kernels of several steps a call with such arguments runs."""
        return 0 if self.why_not(*args, **kwargs) else self._table(_key_of(_flatten_arguments(args, kwargs, arrays := []))).kernels(arrays)

    def _trace(self, given, shapes):
        captured, made = [], {}

        def seen(array):
            if id(array) not in made:
                made[id(array)] = _tenor._traced(array)
                captured.append((array, made[id(array)]))
            return made[id(array)]
        args, kwargs = _rebuild(given, shapes)
        outputs = []
        before, _ = _tenor._raised()
        structure = _flatten(_without_data(self._fn, seen)(*args, **kwargs), outputs)
        if (raised := _tenor._raised())[0] != before:  # with data it might not have been raised
            raise _tenor.UnsupportedError(f"it catches an error: {raised[1]}")
        for x in outputs:
            if not isinstance(x, Tensor) or x.device != "meta":
                raise _tenor.UnsupportedError("a result does not come from the arguments")
        if (unknown := _unknown_part(structure)) is not None:
            raise _tenor.UnsupportedError(f"a result holds a {unknown}, whose contents are not known")
        return outputs, None if isinstance(structure, _Slot) else (structure,), captured

    def _as_written(self, given, arrays):
        """The function itself, on Tensors."""
        tensors = _tenor._fuse_tensors(arrays)
        args, kwargs = _rebuild(given, tensors)
        outputs = []
        structure = _flatten(self._fn(*args, **kwargs), outputs)
        same = {id(t): a for t, a in zip(tensors, arrays)}
        others = iter(_tenor._fuse_like(arrays, [x for x in outputs if id(x) not in same and isinstance(x, Tensor)]))
        return _rebuild(structure, [same[id(x)] if id(x) in same else next(others) if isinstance(x, Tensor) else x for x in outputs])

    def __get__(self, instance, owner=None):
        return self if instance is None else types.MethodType(self, instance)


def fuse(fn=None, /, *, fast=False):
    """fn, a function of arrays written with Tenor's operators, as one that runs fused kernels; also a decorator.

    The first call for each combination of the arrays' shapes, strides, dtypes, devices and alignments and of the other
    arguments' values traces fn: it is called with tenor.Tensors that have no data. What tenor.explain() plans for it then runs:
    chains of views, elementwise steps and reductions as one kernel each, which may read at places that an index names; a contraction,
    convolution, sort, attention or norm runs as the operator it is. Later calls run that, without fn. One step of an operator that
    cannot be run again from a trace (such as unique or nonzero, whose result's size hangs on data) makes all of fn run
    as it is written. Arrays may stand in lists, tuples and dicts; arrays that fn captures are read once, at the trace (their contents
    at each call). Arguments reach fn as tenor.Tensors; results are arrays of the first one's library, in fn's structure.

    Results, and what fn writes to its arguments, equal fn's own bit for bit. Where fn cannot be traced (it reads values, holds
    arrays in objects, calls operators that need data or are named above, catches an operator's error), where its result holds what is neither an array nor plain (a
    generator, an object), where an argument that is no array can change and
    has no contents that are known (a list's, dict's, set's, slice's and an object's attributes are), where an array that it writes to shares memory with another, and under
    TENOR_FUSE=0, fn runs as it is written: `fused.why_not(*args)` says so, None where kernels run, and `fused.kernels(*args)`
    counts kernels of several steps.

    fast=True lifts the equality of bits where a contraction takes an epilogue: matmul, bmm and linear take the one chain of
    elementwise steps that reads their result (+, -, *, / with numbers and arrays, maximum, minimum, negative, relu, sigmoid, tanh,
    silu, gelu of either kind), so that the result itself never reaches memory. The sum over k stays in float32 from step to
    step, conversions to 16 bits between them are left out, and the chain's end is rounded once, to its dtype: it errs by that
    rounding and by float32's. Everything else keeps its bits. tenor.explain(fused, ...) shows each kernel that takes an epilogue, and
    as a cut's reason why others do not. Its limits:

    - On the CPU operands, arrays and the result are float32, bfloat16 or float16 in any mix. While it runs a call holds the sums of a
      block: 4 MiB, with more than 4 threads 1 MiB for each (128 MiB with 128 threads).
    - On CUDA, which has to be a Hopper GPU, operands are bfloat16 or float16, and the result has their dtype, more than 64 rows and
      columns, and at least 64 tiles of 128 x 256; gelu is taken behind linear with a bias only. A chain has at most 6 steps, and 3 arrays
      beside linear's bias, of the operands' dtype or float32; of the result's size one of them at most, and not beside sigmoid, tanh, silu or gelu, where a kernel of its own is faster. There is no maximum and no
      minimum. It divides by numbers alone, by multiplying with the reciprocal, which may neither be subnormal nor overflow: y / s may differ from
      the quotient in the last bit of float32. Under batch_invariant() it takes no epilogue, since a row has to have the bits that it has
      among 64 or fewer.

    Raises fn's own errors, those of operators that a compiled call runs with the line of fn that called them. Where an error is of what
    arrays on the CPU hold, as an index out of range, and fn writes to none of its arguments, fn is called as it is written once more, since
    it may catch the error.

        @tenor.fuse
        def softmax(x):
            e = (x - x.amax(-1, keepdim=True)).exp()
            return e / e.sum(-1, keepdim=True)
    """
    if not isinstance(fast, bool):
        raise _tenor.DTypeError(f"fuse: fast must be True or False, got {type(fast).__name__}")
    if fn is None:
        return functools.partial(fuse, fast=fast)
    if not callable(fn):
        raise _tenor.DTypeError(f"fuse: expected a function, got {type(fn).__name__}")
    return _Fused(fn, fast)
