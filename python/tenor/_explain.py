"""tenor.explain: what an expression costs, what bounds it and what fusing would save, from shapes alone.

Recording and planning are C++ (src/fusion/); here are the inputs, the two ways to name a computation (text and callable), and
the runs that measure.
"""
import re
import time

from tenor import _tenor
from tenor._tenor import Explanation, Tensor, _Recorder, _traced

_SPEC = re.compile(r"\s*([A-Za-z]\w*)\s*\[([^\[\]]*)\]\s*\Z")

_SHORT = {"bfloat16": "bf16", **{f"{kind}{bits}": f"{kind[0]}{bits}" for kind in ("float", "int", "uint") for bits in (8, 16, 32, 64)}}


def explain(expression, /, *inputs, device=None, measure=False, **named):
    """Says of every operator in `expression` its class, result, bytes, FLOPs, bound and floor, and how a fusing compiler would
    plan them: kernels, cuts with reasons, results that reach memory, hidden copies, promotions.

    expression: text (a Python expression or several assignments, with tenor, torch, F or np names, operators, methods and
    subscripts as people paste them; `self.weight` is the input `weight`), or a function of arrays. inputs: arrays, specs such
    as "bf16[4096,8192]", numbers, dtypes; by name for text, by position or name for a function. Positional inputs of a text go
    to its unknown names in order. device: None for this machine, measured once; "h200", "h100", "a100" from a table.
    Nothing is computed or allocated unless measure=True, which also runs it (on copies of the arrays, zeros for specs), adds
    each step's best time and the share of its limit; it takes arrays on the CPU alone.

    Counting: views nothing; elementwise 1 FLOP an output element, reductions 1 an input element, index and order steps 0,
    contractions 2 a multiply-add (1 where nothing is summed) and 1 an output for a bias; operands by distinct elements, of a
    read at places that data names no more than what comes out; bytes_needed is inputs once plus outputs once.

    Raises ValueError for an unknown name, device, spec or syntax, and the operator's own error, with the usual mend, for
    shapes that do not fit; UnsupportedError for measure=True with arrays on a CUDA device.

        print(tenor.explain("x / x.sum(-1, keepdim=True)", x="bf16[4096,8192]", device="h200"))
    """
    target = "" if device is None else str(device)
    if target not in ("", *_tenor._target_names()):
        _tenor._limits_of(target)  # raises, naming those it knows
    if isinstance(expression, str):
        program = _Text(expression, inputs, named)
    elif callable(expression):
        program = _Function(expression, inputs, named)
    else:
        raise _tenor.DTypeError(f"explain: expected text or a function, got {type(expression).__name__}")
    recorder, outputs, sources = program.trace()
    explanation = recorder.explain(outputs, target, sources)
    explanation.expression = program.title
    explanation.inputs = program.inputs
    explanation.remarks = program.remarks
    if measure:
        _measure(program, explanation)
    return explanation


def is_array(x):
    return hasattr(x, "__dlpack__") or hasattr(x, "__array_interface__")


def parse_spec(name, text, sizes):
    """ "bf16[4096,8192]" as a tensor without memory; sizes may be names of integer inputs."""
    found = _SPEC.match(text)
    if not found:
        raise _tenor.ValueError(f"explain: {name}: a spec is a dtype and sizes, such as bf16[4096,8192], got {text!r}")
    try:
        dtype = _tenor.promote_types(found[1], found[1])
    except _tenor.DTypeError as error:
        raise _tenor.ValueError(f"explain: {name}: {error}") from None
    shape = []
    for part in filter(None, (p.strip() for p in found[2].split(","))):
        value = sizes.get(part, part)
        if not isinstance(value, int) and not part.isdigit():
            raise _tenor.ValueError(f"explain: {name}: size {part!r} of {text!r} is no number, nor an integer input of that name")
        shape.append(int(value))
    return _tenor._shape(shape, dtype)


def _read_text(name, text, sizes):
    """A text input: a spec, a dtype's name, or a number."""
    import ast
    if "[" in text or "]" in text:
        return parse_spec(name, text, sizes)
    try:
        return _tenor.promote_types(text.strip(), text.strip())
    except _tenor.DTypeError:
        pass
    try:
        return ast.literal_eval(text.strip())
    except (ValueError, SyntaxError):
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
    return str(value)


def convert(value, fn):
    """fn of each array in value, which may be nested lists, tuples and dicts."""
    if isinstance(value, Tensor) or is_array(value):
        return fn(value)
    if isinstance(value, (list, tuple)) and type(value) in (list, tuple):
        return type(value)(convert(v, fn) for v in value)
    if isinstance(value, dict):
        return {k: convert(v, fn) for k, v in value.items()}
    return value


def _real(x):
    """A copy that may be written, or zeros for a shape: zeros are in range for every index."""
    x = _tenor.asarray(x) if not isinstance(x, Tensor) else x
    if x.device.startswith("cuda"):  # a clock here would time the launches alone
        raise _tenor.UnsupportedError(f"explain: measure=True takes arrays on the CPU, got one on {x.device}")
    return _tenor.zeros(x.shape, dtype=x.dtype) if x.device == "meta" else x.clone()


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

    def _read(self, inputs):
        """Specs of one call: an array given twice is one input."""
        sizes = {k: v for k, v in inputs.items() if isinstance(v, int) and not isinstance(v, bool)}
        sizes.update({k: int(v) for k, v in inputs.items() if isinstance(v, str) and v.strip().isdigit()})
        self.given = {k: _read_input(k, v, sizes) for k, v in inputs.items()}
        self.inputs = {k: _shown(v) for k, v in self.given.items()}

    def _arguments(self, fn):
        made = {}
        return convert(self.given, lambda x: made.setdefault(id(x), fn(x)))

    def trace(self):
        arguments = self._arguments(_traced)
        recorder = _Recorder()
        with recorder:
            outputs, sources = self._call(arguments, recorder, True)
        return recorder, tensors_of(outputs), sources

    def run(self, arguments):
        recorder = _Recorder()
        with recorder:
            self._call(arguments, recorder, False)
        return recorder


class _Text(_Program):
    def __init__(self, text, inputs, named):
        from tenor import _explain_parse
        self.tree = _explain_parse.parse(text)
        self.title = text.strip()
        if inputs:
            free = [n for n in _explain_parse.free_names(self.tree) if n not in named]
            if len(inputs) > len(free):
                raise _tenor.ValueError(f"explain: {len(inputs)} positional inputs for the names {', '.join(free) or '(none)'} of the text")
            named = {**dict(zip(free, inputs)), **named}
        self._read(named)

    def _call(self, arguments, recorder, traced):
        from tenor._explain_eval import Evaluator
        evaluator = Evaluator(arguments, recorder, traced)
        result = evaluator.run(self.tree)
        self.remarks = evaluator.remarks
        return result, evaluator.sources


class _Function(_Program):
    def __init__(self, fn, inputs, named):
        self.fn = fn
        self.title = getattr(fn, "__name__", type(fn).__name__)
        self.count = len(inputs)
        self._read({**{f"argument {i}": v for i, v in enumerate(inputs)}, **named})

    def _call(self, arguments, recorder, traced):
        values = list(arguments.values())
        keywords = dict(list(arguments.items())[self.count:])
        if not traced:
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


def _without_data(fn):
    """The function with the arrays that it captures, or finds among its globals, seen as shapes."""
    import types
    if not isinstance(fn, types.FunctionType):
        return fn
    made = {}

    def shape_of(x):
        return convert(x, lambda a: made.setdefault(id(a), _traced(a)))

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


def _measure(program, explanation):
    """The best of several runs: at least three, then while half a second lasts."""
    arguments = program._arguments(_real)
    start = time.perf_counter()
    for count in range(50):
        if count >= 3 and time.perf_counter() - start > 0.5:
            break
        recorder = program.run(arguments)
        explanation._add_times(recorder.ops, recorder.seconds)
    over = [s for s in explanation.steps if (s.share or 0) > 1.5 and s.bytes_read + s.bytes_written > 1 << 20]
    if over and explanation.device == "cpu":
        explanation.remarks = [*explanation.remarks, "shares far above 100% say that the machine was busy when its limits were "
                               "measured: tenor.device_limits(again=True)"]


def _str(self):
    """The table of at most 100 columns; coloured on a terminal."""
    import os
    import sys
    color = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    return heading(self) + self.to_text(100, color)


def heading(explanation):
    """What was explained, and with which inputs; each statement of several stands above its steps."""
    import textwrap
    title = getattr(explanation, "expression", "")
    inputs = ", ".join(f"{k} {v}" for k, v in getattr(explanation, "inputs", {}).items())
    lines = [] if not title or "\n" in title else [textwrap.shorten(title, 100, placeholder=" ...")]
    if inputs:
        lines += textwrap.wrap("with " + inputs, 100)
    for remark in getattr(explanation, "remarks", ()):
        lines += textwrap.wrap(remark, 100)
    return "\n".join(lines) + "\n\n" if lines else ""


def _attach():
    """What Explanation does beside its fields is written in Python."""
    def lazily(name):
        def method(self, *args):
            from tenor import _explain_output
            return getattr(_explain_output, name)(self, *args)
        return method
    Explanation.__str__ = _str
    Explanation.__repr__ = lambda self: f"<tenor.Explanation: {len(self.steps)} steps, {len(self.kernels)} kernels, {self.flops} FLOPs, {self.bytes_moved} bytes moved>"
    for name in ("to_json", "to_dict", "to_svg", "_repr_html_"):
        setattr(Explanation, name, lazily(name))
    Explanation.to_json.__doc__ = "The explanation as JSON text, names as in its fields."
    Explanation.to_dict.__doc__ = "What to_json writes, as dicts and lists."
    Explanation.to_svg.__doc__ = "Writes a roofline, each step a labelled point, to `path`; returns the SVG text. path None only returns it."


_attach()
