"""Arrays described in words: bf16[4096,8192], as tenor.explain reads them."""
import re

from tenor._cli.arguments import UsageError

_SPEC = re.compile(r"\s*[A-Za-z]\w*\s*\[[^\[\]]*\]\s*")


def is_spec(text):
    return _SPEC.fullmatch(text) is not None


def draw(text, rng):
    """A tensor of that description, of normal numbers (small whole ones for integers). UsageError for what is none."""
    import tenor
    from tenor._explain import parse_spec

    try:
        described = parse_spec("argument", text, {})
    except tenor.ValueError as error:
        raise UsageError(str(error).partition("argument: ")[2]) from None
    whole = "int" in str(described.dtype) or described.dtype == "bool"
    values = rng.integers(0, 3, described.shape) if whole else rng.standard_normal(described.shape, "float32")
    return tenor.asarray(values).to(described.dtype)
