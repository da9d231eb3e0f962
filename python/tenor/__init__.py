"""Tenor (TENsor OpeRators): neural-network operators for CPUs and NVIDIA GPUs, one contract on both.

Every function takes arrays of any DLPack library (tenor.Tensor, NumPy, PyTorch, CuPy, JAX) without a copy and returns the
same kind of array as its first array argument.
"""
from tenor import _tenor
from tenor._tenor import *  # noqa: F401,F403
from tenor._tenor import __version__, _BatchInvariant, _operators
from tenor import _copying, _printing, _signatures
from tenor._io import load, save
from tenor._signatures import ArgumentError
from tenor._explain import explain
from tenor._fuse import fuse
from tenor._workspace import workspace_size

if hasattr(_tenor, "_PagedHostPlan"):  # a build may leave families out
    from tenor import paged
if hasattr(_tenor, "_MoeRoutingPlan"):
    from tenor import moe

# What a Tensor does through NumPy is written in Python and attached here.
Tensor.__repr__ = _printing.tensor_repr  # noqa: F405
Tensor.__format__ = _printing.tensor_format  # noqa: F405
Tensor.__reduce_ex__ = _copying.reduce_tensor  # noqa: F405
Tensor.__copy__ = _copying.copy_tensor  # noqa: F405
Tensor.__deepcopy__ = _copying.deepcopy_tensor  # noqa: F405
DType.__reduce_ex__ = _copying.reduce_dtype  # noqa: F405
_signatures.attach()


def batch_invariant():
    """Context manager: while it is entered, every row's bits are independent of the other rows of the batch."""
    return _BatchInvariant()


def strategies(op):
    """The named strategies of an operator (its name or its function), best first; empty where there is only one way."""
    op = _signatures._called(op) if callable(op) and hasattr(op, "__name__") and hasattr(op, "__qualname__") else op
    if not isinstance(op, str):
        raise DTypeError(f"strategies: op must be an operator or its name, got {type(op).__name__}")  # noqa: F405
    for name, _family, _class, _formula, names in _operators():
        if name == op:
            return list(names)
    raise ValueError(f"strategies: no operator is called {op!r}")  # noqa: F405


def __getattr__(name):
    """What is not here, by the name that another library has for it: the error says what it is called."""
    hint = ""
    if not name.startswith("_"):
        from tenor._cli.arguments import elsewhere

        hint = elsewhere(name)
    raise AttributeError(f"module 'tenor' has no attribute {name!r}{hint}")
