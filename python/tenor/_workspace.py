"""tenor.workspace_size: how much memory a call needs besides its results."""
import sys

from tenor import _tenor


def workspace_size(op, *args, **options):
    """Bytes that `workspace=` of this very call takes, exactly: workspace_size("sort", x, descending=True) for a uint8 array that
    sort(x, descending=True, out=..., workspace=...) then allocates nothing beside. `op` is an operator's name; the arguments are the
    call's, out= may be left away. Nothing is computed. 0 for operators that need none, and on the CPU, whose threads have memory of their own
    and where the arguments are not looked at further. On CUDA UnsupportedError for operators that wait for the device, and the operator's own
    errors for arguments that it refuses. ValueError for a name that is no operator's."""
    fn = _function(op) if isinstance(op, str) else None
    if fn is None:
        raise _tenor.ValueError(f"workspace_size: no operator is called {op!r}")
    options.pop("workspace", None)
    args, options = [_as_tenor(a) for a in args], {name: _as_tenor(a) for name, a in options.items()}
    device = next((t.device for t in _tensors([args, list(options.values())])), "cpu")
    if device == "cpu":
        return 0
    given = options.pop("out", None)
    held = {}

    def prepare():
        held["out"] = given if given is not None else fn(*args, **options)

    def run():
        try:
            out = held["out"]
            out = [t for t in out if t is not None] if isinstance(out, tuple) else out  # results that this call has not got
            fn(*args, **options, out=tuple(out) if isinstance(out, tuple) else out)
        finally:
            held.clear()  # what was made within the capture ends with it
            out = None

    try:
        return _tenor._workspace_size(device, prepare, run)
    finally:
        held.clear()


def _function(op):
    """The operator of that name or its in-place form; those of the package's modules (moe.forward) as functions of their object."""
    if op.removesuffix("_") not in {known[0] for known in _tenor._operators()}:
        return None
    module, _, name = op.rpartition(".")
    return getattr(sys.modules[f"tenor.{module}"] if module else _tenor, name, None)


def _as_tenor(value):
    """Arrays of other libraries as tensors over their memory: nothing of those libraries takes part."""
    if isinstance(value, (list, tuple)):
        return type(value)(map(_as_tenor, value)) if not hasattr(value, "_fields") else tuple(map(_as_tenor, value))
    return _tenor.from_dlpack(value) if hasattr(value, "__dlpack__") and not isinstance(value, _tenor.Tensor) else value


def _tensors(value):
    if isinstance(value, _tenor.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors(item)
