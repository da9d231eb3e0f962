"""tenor.fuse: a function of arrays whose chains of operators run as one kernel each.

Keys, tracing and running are C++ (src/fusion/); here are the arguments and results: which of them are arrays, and what
structure they stand in.
"""
import functools
import sys

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


def _flatten(value, arrays):
    """`value` with a _Slot for each array, which goes to `arrays`."""
    if isinstance(value, Tensor) or is_array(value) and not _is_number(value):
        arrays.append(value)
        return _Slot(len(arrays) - 1)
    if isinstance(value, (list, tuple)):
        made = [_flatten(v, arrays) for v in value]
        return type(value)(*made) if hasattr(value, "_fields") else type(value)(made)
    if isinstance(value, dict):
        return type(value)((k, _flatten(v, arrays)) for k, v in value.items())
    return value


def _rebuild(value, arrays):
    """A structure of _flatten with other arrays."""
    if isinstance(value, _Slot):
        return arrays[value.index]
    if isinstance(value, (list, tuple)):
        made = [_rebuild(v, arrays) for v in value]
        return type(value)(*made) if hasattr(value, "_fields") else type(value)(made)
    if isinstance(value, dict):
        return type(value)((k, _rebuild(v, arrays)) for k, v in value.items())
    return value


class _Same:
    """A key for what cannot be hashed: the object itself, which the key keeps alive."""

    __slots__ = ("value",)

    def __init__(self, value):
        self.value = value

    def __hash__(self):
        return id(self.value)

    def __eq__(self, other):
        return isinstance(other, _Same) and other.value is self.value


def _key(value):
    """What tells a structure of Python arguments from another: 1, 1.0 and True are three, 0.0 and -0.0 two."""
    if isinstance(value, _Slot):
        return _Slot
    if hasattr(value, "__float__") and not isinstance(value, int):
        return type(value), repr(value)
    if isinstance(value, (list, tuple)):
        return (type(value), *map(_key, value))
    if isinstance(value, dict):
        return (type(value), *((k, _key(v)) for k, v in value.items()))
    try:
        hash(value)
    except TypeError:
        return _Same(value)
    return type(value), value


class _Fused:
    """What tenor.fuse() returns."""

    def __init__(self, fn):
        self._fn = fn
        self._tables = {}
        self._plain = {}  # tables of calls with arrays alone, by how many
        functools.update_wrapper(self, fn)

    def __call__(self, *args, **kwargs):
        if not kwargs and (table := self._plain.get(len(args))) is not None and _tenor._fuse_enabled():
            try:
                result = table.run_plain(*args)
            except _tenor.Error as error:
                raise self._located(error, table) from None
            if result is not None:
                return result
        arrays = []
        given = _flatten((args, kwargs), arrays)
        if not _tenor._fuse_enabled():
            return self._as_written(given, arrays)
        key = _key(given)
        table = self._tables.get(key)
        if table is None:
            table = self._tables.setdefault(key, _tenor._FuseTable())
            if not kwargs and len(arrays) == len(args) and all(type(x) is _Slot for x in given[0]):
                self._plain[len(args)] = table
        try:
            result = table.run(arrays)
            if result is None:
                table.trace(arrays, lambda shapes: self._trace(given, shapes))
                result = table.run(arrays)
        except _tenor.Error as error:
            raise self._located(error, table) from None
        if isinstance(result, str):
            return self._as_written(given, arrays)
        structure, results = result
        return results[0] if structure is None else _rebuild(structure, results)

    @staticmethod
    def _located(error, table):
        """An operator's error with the line of the function that called it."""
        source = table.failed_at()
        return type(error)(f"{error}\n  in {source}") if source else error

    def why_not(self, *args, **kwargs):
        """Why a call with such arguments runs the function as it is written; None where it runs kernels."""
        arrays = []
        given = _flatten((args, kwargs), arrays)
        if not _tenor._fuse_enabled():
            return "TENOR_FUSE=0 is set"
        table = self._tables.setdefault(_key(given), _tenor._FuseTable())
        return table.why_not(arrays, lambda shapes: self._trace(given, shapes))

    def kernels(self, *args, **kwargs):
        """How many kernels of several steps a call with such arguments runs."""
        return 0 if self.why_not(*args, **kwargs) else self._tables[_key(_flatten((args, kwargs), arrays := []))].kernels(arrays)

    def _trace(self, given, shapes):
        captured, made = [], {}

        def seen(array):
            if id(array) not in made:
                made[id(array)] = _tenor._traced(array)
                captured.append((array, made[id(array)]))
            return made[id(array)]
        args, kwargs = _rebuild(given, shapes)
        outputs = []
        structure = _flatten(_without_data(self._fn, seen)(*args, **kwargs), outputs)
        for x in outputs:
            if not isinstance(x, Tensor) or x.device != "meta":
                raise _tenor.UnsupportedError("a result does not come from the arguments")
        return outputs, None if isinstance(structure, _Slot) else structure, captured

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
        import types

        return self if instance is None else types.MethodType(self, instance)


def fuse(fn=None, /, *, fast=False):
    """fn, a function of arrays written with Tenor's operators, as one that runs fused kernels; also a decorator.

    The first call for each combination of the arrays' shapes, strides, dtypes, devices and alignments and of the other
    arguments' values traces fn: it is called with tenor.Tensors that have no data. What tenor.explain() plans for it then runs:
    chains of views, elementwise steps and reductions as one kernel each, every other operator as it is. Later calls run that,
    without fn. Arrays may stand in lists, tuples and dicts; arrays that fn captures are read once, at the trace (their contents
    at each call). Arguments reach fn as tenor.Tensors; results are arrays of the first one's library, in fn's structure.

    Results, and what fn writes to its arguments, equal fn's own bit for bit. Where fn cannot be traced (it reads values, holds
    arrays in objects, calls operators that need data), where an array that it writes to shares memory with another, and under
    TENOR_FUSE=0, fn runs as it is written: `fused.why_not(*args)` says so, None where kernels run, and `fused.kernels(*args)`
    counts kernels of several steps.

    fast=True would lift the equality of bits and let contractions take what follows them; it is not there yet.

    Raises fn's own errors, those of operators that a compiled call runs with the line of fn that called them;
    UnsupportedError for fast=True.

        @tenor.fuse
        def softmax(x):
            e = (x - x.amax(-1, keepdim=True)).exp()
            return e / e.sum(-1, keepdim=True)
    """
    if fast:
        raise _tenor.UnsupportedError("fuse: fast=True: contractions take no epilogues yet; leave it out")
    if fn is None:
        return fuse
    if not callable(fn):
        raise _tenor.DTypeError(f"fuse: expected a function, got {type(fn).__name__}")
    return _Fused(fn)
