"""Which dtypes an operator takes, found by asking it: a small problem is called in every dtype."""
import itertools

from tenor._cli.signature import signature

DTYPES = ("float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "bool", "int8", "int16", "int32", "int64",
          "uint8", "uint16", "uint32", "uint64")
_SHAPES = [(4, 4), (4,), (1, 4, 4), (1, 4, 4, 4), (1, 4)]
_INDEX = ("index", "indices", "positions", "cu_seqlens_q", "cu_seqlens_k", "cu_seqlens", "offsets")
_MASK = ("mask", "condition")
_OTHERS = {"equation": "ij,ij->i", "reduce": "sum", "dtype": "float32", "fill_value": 1, "sizes": [2, 2], "pad": [1, 1], "value": 1,
           "dims": [0], "shape": [4, 4], "size": [4, 4]}


def accepted_dtypes(name):
    """The dtypes that the operator's first array may have; None where no small problem was found that it takes."""
    sig = signature(name)
    arrays = [p for p in sig.parameters if p.takes_array and (p.required or p.takes_arrays)]
    if not arrays:
        return None
    for shapes in _combinations(len(arrays)):
        taken = [d for d in DTYPES if _takes(sig, arrays, shapes, d)]
        if taken:
            return taken
    return None


def _combinations(count):
    """All arrays alike first, then any two shapes, the first array's being the larger rank."""
    alike = [(s,) * count for s in _SHAPES]
    mixed = [(a,) + (b,) * (count - 1) for a, b in itertools.permutations(_SHAPES + [(4, 2)], 2)] if count > 1 else []
    return alike + mixed


def _takes(sig, arrays, shapes, dtype):
    return _refusal(sig, *_problem(sig, arrays, shapes, dtype)) is None


def _problem(sig, arrays, shapes, dtype):
    """A small call's (positional, named) arguments."""
    positional, named = [], {}
    for p in sig.parameters:
        if p in arrays:
            value = _array(p.name, shapes[arrays.index(p)], dtype)
            value = [value, value] if p.takes_arrays else value
        elif p.required or p.kind == "*":
            value = _OTHERS.get(p.name, 1 if p.accepts("int") and "groups" in p.name else 0 if "dim" in p.name or p.name == "index" else 1)
        else:
            continue
        if p.kind == "*":
            positional.extend(value if isinstance(value, list) else [value])
        elif p.kind == "keyword":
            named[p.name] = value
        else:
            positional.append(value)
    return positional, named


def _refusal(sig, positional, named):
    """The error that the call raises; None where it runs."""
    import tenor

    try:
        sig.function(*positional, **named)
        return None
    except (tenor.Error, TypeError, ValueError) as error:
        return error


def refused_strategies(name, strategies):
    """{strategy: why} of those that the CPU does not have, asked with a small problem that the operator takes."""
    import tenor

    sig = signature(name)
    arrays = [p for p in sig.parameters if p.takes_array and p.required]
    for shapes in _combinations(len(arrays)):
        positional, named = _problem(sig, arrays, shapes, "float32")
        if _refusal(sig, positional, named) is None:
            asked = {s: _refusal(sig, positional, dict(named, strategy=s)) for s in strategies}
            return {s: str(error) for s, error in asked.items() if isinstance(error, tenor.UnsupportedError)}
    return {}


def _array(name, shape, dtype):
    import tenor

    dtype = "int64" if name in _INDEX else "bool" if name in _MASK else dtype
    return tenor.zeros(shape, dtype=dtype)
