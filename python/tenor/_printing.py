"""How a tensor shows itself: repr, str and format."""


def tensor_repr(x):
    """tensor([[1., 2.], [3., 4.]], dtype=float32). Large and empty ones say their shape; large ones show their edges."""
    facts = [f"shape={x.shape}"] if x.size == 0 or x.size > _SUMMARISED or x.device == "meta" else []
    facts.append(f"dtype={x.dtype}")
    if x.device != "cpu":
        facts.append(f"device='{x.device}'")
    return f"tensor({_values(x)}, {', '.join(facts)})"


_SUMMARISED = 1000


def _values(x):
    import numpy as np

    if x.device == "meta" or x.nbytes >= 1 << 63:  # NumPy counts bytes in 64 bits
        return "..."
    if x.size == 0:
        return "[]"
    return np.array2string(x.numpy(), separator=", ", prefix="tensor(", threshold=_SUMMARISED, precision=4)


def tensor_format(x, spec):
    """A one-element tensor formats as its number: f"{loss:.3f}"."""
    return format(x.item(), spec) if spec and x.size == 1 else format(repr(x), spec)
