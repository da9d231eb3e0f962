"""tenor.explain: what an expression costs, what bounds it and what fusing would save, from shapes alone.

Recording and planning are C++ (src/fusion/); here are the inputs, the two ways to name a computation (text and callable), and
the runs that measure.
"""
import functools
import re
import unicodedata

from tenor import _tenor
from tenor._tenor import Explanation, Tensor, _Measurement, _Recorder, _traced

_SPEC = re.compile(r"\s*([A-Za-z]\w*)\s*\[([^\[\]]*)\]\s*\Z")

_FLOAT8 = {"f8e4m3": "float8_e4m3fn", "f8e5m2": "float8_e5m2"}  # as the table prints them
_SHORT = {**{long: short for short, long in _FLOAT8.items()}, "bfloat16": "bf16", **{f"{kind}{bits}": f"{kind[0]}{bits}" for kind in ("float", "int", "uint") for bits in (8, 16, 32, 64)}}


def explain(expression, /, *inputs, device=None, measure=False, **named):
    """Says of every operator in `expression` its class, result, bytes, FLOPs, bound and floor, and how a fusing compiler would
    plan them: kernels, cuts with reasons, results that reach memory, copies, promotions.

    expression: text (a Python expression or several assignments, with tenor, torch, F or np names, operators, methods and
    subscripts as people paste them; `self.weight` is the input `weight`), or a function of arrays. inputs: arrays, specs such
    as "bf16[4096,8192]", numbers, dtypes; by name for text, by position or name for a function. Positional inputs of a text go
    to its unknown names in order. device: None for where the arrays are, the CPU for specs; "cpu", "cuda", "cuda:1" are this
    machine's, measured once; "h200", "h100", "a100" are known from a table. The device's own candidates say which strategy
    they would take, and why not the others.
    Nothing is computed or allocated unless measure=True, which also runs it on the device and adds each step's time and the
    share of its limit: on copies of the arrays; specs become random numbers in [0, 1), integers zeros. On the CPU a clock takes
    the least time of several runs. On CUDA it is the median of at least ten by events on the current stream, after two that do
    not count; before each step the L2 cache is filled with something else, so that it reads from memory as its floor has it.
    Nothing waits inside a run, except operators whose result's size depends on data.

    Counting: views nothing; elementwise 1 FLOP an output element, reductions 1 an input element, index and order steps 0,
    contractions 2 a multiply-add (1 where nothing is summed) and 1 an output for a bias; operands by distinct elements, of a
    read at places that data names no more than what comes out; bytes_needed is inputs once plus outputs once.

    Raises ValueError for an unknown name, device, spec or syntax, or measure=True for a GPU that is not here; DeviceError for
    "cuda" where there is none; and the operator's own error, with the usual mend, for shapes that do not fit.

        print(tenor.explain("x / x.sum(-1, keepdim=True)", x="bf16[4096,8192]", device="h200"))
    """
    if isinstance(expression, str):
        program = _Text(expression, inputs, named)
    elif callable(expression):
        program = _Function(expression, inputs, named)
    else:
        raise _tenor.DTypeError(f"explain: expected text or a function, got {type(expression).__name__}")
    target = program.device() if device is None else str(device)
    _check_target(target)
    recorder, outputs, sources = program.trace(target)
    explanation = recorder.explain(outputs, sources, _measured(program, target) if measure else None, program.fast)
    explanation.expression = program.title
    explanation.inputs = program.inputs
    explanation.remarks = [*program.remarks, *explanation.remarks]
    return explanation


def _check_target(name):
    try:
        _tenor._check_target(name)
    except _tenor.DeviceError as error:
        raise _tenor.DeviceError(f"explain: {error}; for a GPU that is not here name h200, h100 or a100") from None


def _is_cuda(x):
    if isinstance(x, Tensor):
        return x.device.startswith("cuda")
    return hasattr(x, "__dlpack_device__") and x.__dlpack_device__()[0] in (2, 13)  # kDLCUDA, kDLCUDAManaged


def is_array(x):
    return hasattr(x, "__dlpack__") or hasattr(x, "__array_interface__")


def _clipped(text):
    return text if len(text) <= 60 else text[:57] + "..."


def parse_spec(name, text, sizes):
    """ "bf16[4096,8192]" as a tensor without memory; sizes may be names of integer inputs."""
    found = _SPEC.match(text)
    if not found:
        raise _tenor.ValueError(f"explain: {name}: a spec is a dtype and sizes, such as bf16[4096,8192], got {_clipped(text)!r}")
    try:
        kind = _FLOAT8.get(found[1], found[1])
        dtype = _tenor.promote_types(kind, kind)
    except _tenor.DTypeError as error:
        raise _tenor.ValueError(f"explain: {name}: {_said_by_user(error)}") from None
    shape = []
    for part in filter(None, (p.strip() for p in found[2].split(","))):
        value = sizes.get(part, part)
        if not isinstance(value, int) and not part.isdecimal():
            raise _tenor.ValueError(f"explain: {name}: size {_clipped(part)!r} of {_clipped(text)!r} is no number, nor an integer input of that name")
        if not isinstance(value, int) and len(part) > 40:
            raise _tenor.ValueError(f"explain: {name}: size {_clipped(part)} does not fit 64 bits")
        shape.append(int(value))
    try:
        return _tenor._shape(shape, dtype)
    except _tenor.Error as error:
        raise type(error)(f"explain: {name}: {_said_by_user(error)}") from None


def _said_by_user(error):
    """The error's text without the function that it names first, which is this module's doing."""
    return str(error).partition(": ")[2]


def _read_text(name, text, sizes):
    """A text input: a spec, a dtype's name, or a number."""
    import ast
    if "[" in text or "]" in text:
        return parse_spec(name, text, sizes)
    try:
        return _tenor.promote_types(text.strip(), text.strip())
    except _tenor.DTypeError:
        pass
    if text.strip().lower().lstrip("+-") in ("nan", "inf"):
        return float(text)
    try:
        return ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return parse_spec(name, text, sizes)


def _read_input(name, value, sizes):
    if isinstance(value, str):
        return _read_text(name, value, sizes)
    if isinstance(value, (list, tuple)) and any(isinstance(v, str) or is_array(v) for v in value):
        return type(value)(_read_input(f"{name}[{i}]", v, sizes) for i, v in enumerate(value))
    return value


def _shown(value):
    """An input as the table names it."""
    if isinstance(value, Tensor) or is_array(value):
        dtype = str(getattr(value.dtype, "name", value.dtype)).replace("torch.", "")
        return f"{_SHORT.get(dtype, dtype)}[{','.join(map(str, value.shape))}]"
    if isinstance(value, (list, tuple)):
        return "(" + ", ".join(map(_shown, value)) + ")"
    if isinstance(value, _tenor._PagedDevicePlan):
        return "a plan of pages"
    return _clipped(str(value))


def convert(value, fn):
    """fn of each array in value, which may be nested lists, tuples and dicts."""
    if isinstance(value, Tensor) or is_array(value):
        return fn(value)
    if isinstance(value, (list, tuple)) and type(value) in (list, tuple):
        return type(value)(convert(v, fn) for v in value)
    if isinstance(value, dict):
        return {k: convert(v, fn) for k, v in value.items()}
    return value


def tensors_of(value):
    """The tensors in a result, however nested."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return [t for v in value for t in tensors_of(v)] if isinstance(value, (list, tuple)) else []


class _Program:
    """A computation with its inputs: traced on shapes, or run on data."""

    remarks = ()
    fast = False  # whether contractions may take epilogues

    def _read(self, inputs):
        """Specs of one call: an array given twice is one input."""
        sizes = {k: v for k, v in inputs.items() if isinstance(v, int) and not isinstance(v, bool)}
        sizes.update({k: int(v) for k, v in inputs.items() if isinstance(v, str) and v.strip().isdecimal() and len(v) <= 40})
        self.given = {k: _read_input(k, v, sizes) for k, v in inputs.items()}
        self.inputs = {k: _shown(v) for k, v in self.given.items()}

    def _arguments(self, fn):
        made = {}
        return convert(self.given, lambda x: made.setdefault(id(x), fn(x)))

    def device(self):
        """Where the arrays are."""
        found = []
        convert(self.given, lambda x: found.append(x) if _is_cuda(x) else None)
        return str(_tenor.asarray(found[0]).device) if found else "cpu"

    def trace(self, device):
        arguments = self._arguments(_traced)
        recorder = _Recorder(device)
        with recorder:
            outputs, sources = self._call(arguments, recorder, "meta")
        return recorder, tensors_of(outputs), sources

    def run(self, arguments, recorder, device):
        with recorder:
            self._call(arguments, recorder, device)


def _not_too_deep(method):
    """The method of a text; a text so deeply nested that Python gives up is an error of the text."""
    @functools.wraps(method)
    def checked(*args):
        try:
            return method(*args)
        except RecursionError:
            raise _tenor.ValueError("explain: the text is nested too deeply to evaluate; give parts of it names") from None
    return checked


class _Text(_Program):
    @_not_too_deep
    def __init__(self, text, inputs, named):
        from tenor import _explain_parse
        named = {unicodedata.normalize("NFKC", name): value for name, value in named.items()}  # as Python reads names
        self.tree = _explain_parse.parse(text, named)
        self.title = text.strip()
        if inputs:
            free = [n for n in _explain_parse.free_names(self.tree) if n not in named]
            if len(inputs) > len(free):
                raise _tenor.ValueError(f"explain: {len(inputs)} positional inputs for the names {', '.join(free) or '(none)'} of the text")
            named = {**dict(zip(free, inputs)), **named}
        self._read(named)
        self.named = named

    def _refuse_unused(self):
        """An input that neither the text nor a spec's sizes name is a mistake in one of them."""
        from tenor import _explain_parse

        named, read = self.named, _explain_parse.read_names(self.tree)
        sizes = {word for v in named.values() if isinstance(v, str) for word in re.findall(r"[A-Za-z_]\w*", v.partition("[")[2])}
        unused = [name for name in named if name not in read and name not in sizes]
        if unused:
            import difflib

            close = difflib.get_close_matches(unused[0], sorted(set(read) - set(named)), 1, 0.7)
            mend = f"; did you mean {close[0]}?" if close else ""
            raise _tenor.ValueError(f"explain: the text does not use {', '.join(unused)}{mend}")

    @_not_too_deep
    def _call(self, arguments, recorder, device):
        from tenor._explain_eval import Evaluator
        evaluator = Evaluator(arguments, recorder, device)
        result = evaluator.run(self.tree)
        self._refuse_unused()
        self.remarks = evaluator.remarks
        return result, evaluator.sources


class _Function(_Program):
    def __init__(self, fn, inputs, named):
        self.fn = fn
        from tenor._fuse import _Fused
        self.fast = isinstance(fn, _Fused) and fn._fast
        self.title = getattr(fn, "__name__", type(fn).__name__)
        self.count = len(inputs)
        self._read({**{f"argument {i}": v for i, v in enumerate(inputs)}, **named})

    def _call(self, arguments, recorder, device):
        values = list(arguments.values())
        keywords = dict(list(arguments.items())[self.count:])
        if device != "meta":
            return self.fn(*values[:self.count], **keywords), []
        try:
            return _without_data(self.fn)(*values[:self.count], **keywords), []
        except _tenor.DeviceError as error:
            raise _tenor.DeviceError(f"{error}\n  explain calls {self.title} with shapes alone, so it must not read values") from None
        except TypeError as error:
            if isinstance(error, _tenor.Error):
                raise
            raise _tenor.DTypeError(f"explain: {self.title}: {error}\n  explain calls it with tenor.Tensors that have no data: use "
                                    "Tenor's operators inside") from error


def _without_data(fn, traced=_traced):
    """The function with the arrays that it captures, or finds among its globals, seen as shapes."""
    import types
    if not isinstance(fn, types.FunctionType):
        return fn
    made = {}

    def shape_of(x):
        return convert(x, lambda a: made[id(a)] if id(a) in made else made.setdefault(id(a), traced(a)))

    def cell(c):
        try:
            return types.CellType(shape_of(c.cell_contents))
        except ValueError:  # not filled yet
            return c
    used = {n: shape_of(fn.__globals__[n]) for n in fn.__code__.co_names
            if isinstance(fn.__globals__.get(n), Tensor) or is_array(fn.__globals__.get(n))}
    closure = tuple(cell(c) for c in fn.__closure__) if fn.__closure__ else None
    copy = types.FunctionType(fn.__code__, {**fn.__globals__, **used}, fn.__name__, fn.__defaults__, closure)
    copy.__kwdefaults__ = fn.__kwdefaults__
    return copy


def _measured(program, target):
    """The times of several runs on copies of the inputs."""
    measurement = _Measurement(target)
    arguments = program._arguments(lambda x: measurement.input(x if isinstance(x, Tensor) else _tenor.asarray(x)))
    while measurement.more():
        recorder = measurement.recorder()
        program.run(arguments, recorder, measurement.device)
        measurement.add(recorder)
    return measurement


def shown(explanation, width=100):
    """The table of at most `width` columns (60 at least); coloured on a terminal that wants colour."""
    import sys
    from tenor._cli.output import colourful
    return heading(explanation, width) + explanation.to_text(width, colourful(sys.stdout))


def heading(explanation, width=100):
    """What was explained, and with which inputs; each statement of several stands above its steps."""
    import textwrap
    title = getattr(explanation, "expression", "")
    inputs = ", ".join(f"{k} {v}" for k, v in getattr(explanation, "inputs", {}).items())
    wrap = lambda text, lines: textwrap.wrap(text, max(width, 60), subsequent_indent="    ", max_lines=lines, placeholder=" ...")
    lines = [] if "\n" in title else wrap(title, 8)
    lines += wrap("with " + inputs, 8) if inputs else []
    for remark in explanation.remarks:
        lines += wrap(remark, None)
    return "\n".join(lines) + "\n\n" if lines else ""


def _rebuild(kind, state):
    return getattr(_tenor, "_make_" + kind)(state)


def _reduce(self, _protocol):
    """For copy and pickle: what C++ holds, and what Python added."""
    return _rebuild, (type(self).__name__, _tenor._state(self)), getattr(self, "__dict__", None) or None


def _count(n, noun):
    return f"{n} {noun}{'' if n == 1 else 's'}"


def _attach():
    """What Explanation does beside its fields is written in Python."""
    def lazily(name):
        def method(self, *args):
            from tenor import _explain_output
            return getattr(_explain_output, name)(self, *args)
        return method
    Explanation.__str__ = shown
    Explanation.__repr__ = lambda self: (f"<tenor.Explanation: {_count(len(self.steps), 'step')}, {_count(len(self.kernels), 'kernel')}, "
                                         f"{_count(self.flops, 'FLOP')}, {_count(self.bytes_moved, 'byte')} moved>")
    for name in ("to_json", "to_dict", "to_svg", "_repr_html_"):
        setattr(Explanation, name, lazily(name))
    for kind in (Explanation, Explanation.Step, Explanation.Kernel, Explanation.Cut, Explanation.Copy, Explanation.Promotion, Explanation.Limit):
        kind.__reduce_ex__ = _reduce
    Explanation.to_json.__doc__ = "The explanation as JSON text, names as in its fields."
    Explanation.to_dict.__doc__ = "What to_json writes, as dicts and lists."
    Explanation.to_svg.__doc__ = "Writes a roofline, each step a labelled point, to `path`; returns the SVG text. path None only returns it."


_attach()
