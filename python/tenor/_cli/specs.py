"""Arrays described in words: bf16[4096,8192]."""
import re

from tenor._cli.arguments import UsageError, nearest

_SHORT = {"bf16": "bfloat16", "f16": "float16", "fp16": "float16", "half": "float16", "f32": "float32", "fp32": "float32", "float": "float32",
          "f64": "float64", "fp64": "float64", "double": "float64", "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64",
          "u8": "uint8", "u16": "uint16", "u32": "uint32", "u64": "uint64"}
_FULL = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "bfloat16", "float32", "float64")
_SPEC = re.compile(r"([A-Za-z]\w*)\[([\d,\s]*)\]")


def is_spec(text):
    return _SPEC.fullmatch(text.strip()) is not None


def parse(text):
    """(dtype name, shape). UsageError for what is none."""
    match = _SPEC.fullmatch(text.strip())
    if not match:
        raise UsageError(f"{text!r} is no DTYPE[SHAPE], as in bf16[4096,8192]")
    dtype = _SHORT.get(match[1], match[1])
    if dtype not in _FULL:
        raise UsageError(f"{text}: no dtype is called {match[1]!r}{nearest(match[1], [*_SHORT, *_FULL])}")
    return dtype, tuple(int(n) for n in match[2].split(",") if n.strip())


def draw(text, rng):
    """A tensor of that description, of normal numbers (small whole ones for integers)."""
    import tenor

    dtype, shape = parse(text)
    whole = "int" in dtype or dtype == "bool"
    values = rng.integers(0, 3, shape) if whole else rng.standard_normal(shape, "float32")
    return tenor.asarray(values).to(dtype)
