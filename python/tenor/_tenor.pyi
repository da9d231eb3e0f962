"""Tenor's compiled operators; use them through the package `tenor`."""

from collections.abc import Iterator, Sequence


import builtins
from typing import Any, Protocol, TypeAlias

import numpy

__version__: str

class SupportsDLPack(Protocol):
    """An array of any library: NumPy, PyTorch, JAX, CuPy, tenor."""

    def __dlpack__(self, *args: Any, **kwargs: Any) -> Any: ...

ArrayLike: TypeAlias = SupportsDLPack | numpy.generic
DTypeLike: TypeAlias = DType | str | type | numpy.dtype | Any

class Error(builtins.Exception):
    """Base of every exception that Tenor raises."""

class ShapeError(Error, builtins.ValueError):
    """
    Sizes that do not fit together, or a view that the strides do not allow.
    """

class DTypeError(Error, builtins.TypeError):
    """A dtype that the operator does not take, or two that do not combine."""

class DeviceError(Error):
    """
    Arguments on different devices, or on one that this build does not serve.
    """

class ValueError(Error, builtins.ValueError):
    """An option value, step, count, k or scalar out of its range."""

class IndexError(Error, builtins.IndexError):
    """A dim or an index out of range."""

class UnsupportedError(Error, builtins.NotImplementedError):
    """A valid request that this strategy, build or device does not serve."""

class OutOfMemoryError(Error, builtins.MemoryError):
    """No memory for a result or a workspace."""

class CudaError(Error):
    """The CUDA driver or runtime refused a call."""

class DType:
    """An element type: tenor.float32, tenor.bfloat16, ..."""

    @property
    def name(self) -> str:
        """NumPy's name of it."""

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""

    def __repr__(self) -> str: ...

    def __str__(self) -> str: ...

    def __hash__(self) -> int: ...

    def __eq__(self, other: object | None) -> bool:
        """
        Equal to the same dtype, however it is written: a NumPy dtype or a name.
        """

bool_: DType = ...

int8: DType = ...

int16: DType = ...

int32: DType = ...

int64: DType = ...

uint8: DType = ...

uint16: DType = ...

uint32: DType = ...

uint64: DType = ...

float16: DType = ...

bfloat16: DType = ...

float32: DType = ...

float64: DType = ...

float8_e4m3fn: DType = ...

float8_e5m2: DType = ...

def promote_types(a: DTypeLike | None, b: DTypeLike | None) -> DType:
    """The dtype that two operands meet in."""

def set_num_threads(count: int) -> None:
    """Sets the threads of CPU operators, process-wide."""

def get_num_threads() -> int:
    """The threads of CPU operators."""

def allow_tf32(on: bool) -> bool:
    """
    Lets float32 contractions of this thread run in plain TF32. Returns the previous setting.
    """

def empty_cache() -> None:
    """Returns the freed CPU blocks kept for reuse to the system."""

def cached_bytes() -> int:
    """Bytes of freed CPU blocks kept for reuse."""

def set_cache_limit(bytes: int) -> None:
    """The most bytes of freed CPU blocks kept for reuse."""

class _BatchInvariant:
    def __init__(self) -> None: ...

    def __enter__(self) -> None: ...

    def __exit__(self, *args) -> None: ...

def _operators() -> list:
    """Every operator as (name, family, class, formula, strategies)."""

class Tensor:
    """
    An n-dimensional array on the CPU or a CUDA device: shared storage seen through a dtype, a shape and strides.
    """

    @property
    def shape(self) -> tuple:
        """The sizes, a tuple."""

    @property
    def strides(self) -> tuple:
        """The strides, in elements."""

    @property
    def dtype(self) -> DType:
        """The element type."""

    @property
    def device(self) -> str:
        """'cpu' or 'cuda:N'."""

    @property
    def ndim(self) -> int:
        """The number of dims."""

    @property
    def size(self) -> int:
        """The number of elements."""

    @property
    def nbytes(self) -> int:
        """Bytes of the elements."""

    def numel(self) -> int:
        """The number of elements."""

    def data_ptr(self) -> int:
        """The address of the first element."""

    def is_contiguous(self) -> bool:
        """Row-major without gaps; strides of dims of size 1 do not count."""

    def contiguous(self) -> Tensor:
        """Itself when row-major, else a row-major copy."""

    def clone(self) -> Tensor:
        """A copy with the same dimension order."""

    def numpy(self) -> object:
        """
        An ndarray that shares the memory (a CUDA tensor is copied to the host).
        """

    def item(self) -> object:
        """The only element, as a Python number."""

    def tolist(self) -> object:
        """The elements as nested lists of Python numbers."""

    def __dlpack__(self, *, stream: object | None = None, max_version: object | None = None, dl_device: object | None = None, copy: object | None = None) -> object:
        """A DLPack capsule of this memory."""

    def __dlpack_device__(self) -> tuple:
        """(DLPack device type, index)."""

    def __array__(self, dtype: object | None = None, copy: object | None = None) -> object:
        """For numpy.asarray and numpy.array."""

    def __len__(self) -> int: ...

    def __bool__(self) -> bool: ...

    def __int__(self) -> int: ...

    def __float__(self) -> float: ...

    def __index__(self) -> int: ...

    def new_empty(self, *size, dtype: DTypeLike | None | None = None, device: str | None | None = None) -> Tensor:
        """An undefined tensor of this size with x's dtype and device."""

    def new_zeros(self, *size, dtype: DTypeLike | None | None = None, device: str | None | None = None) -> Tensor:
        """Zeros of this size with x's dtype and device."""

    def new_ones(self, *size, dtype: DTypeLike | None | None = None, device: str | None | None = None) -> Tensor:
        """Ones of this size with x's dtype and device."""

    def new_full(self, size: int | Sequence[int] | None, fill_value: ArrayLike | bool | int | float, *, dtype: DTypeLike | None | None = None, device: str | None | None = None) -> Tensor:
        """One value in this size with x's dtype and device."""

    def __getitem__(self, key: object | None) -> Tensor:
        """
        x[key]: integers, slices (step > 0), None and ... give a view; masks and integer arrays a copy, with dims placed as in PyTorch.
        """

    def __setitem__(self, key: object | None, value: object) -> None:
        """
        x[key] = value, converted to x's dtype and broadcast; everything is read before x is written, and the last write wins.
        """

    def __iter__(self) -> Iterator:
        """The slices along dim 0."""

    def __matmul__(self, arg: object, /) -> object: ...

    def __rmatmul__(self, arg: object, /) -> object: ...

    def view(self, *shape) -> Tensor:
        """
        x under another shape (one size may be -1) without a copy; ShapeError where the strides do not allow it.
        """

    def reshape(self, *shape) -> Tensor:
        """x under another shape; copies only where a view is not possible."""

    def permute(self, *shape) -> Tensor:
        """Dim i of the result is dim dims[i] of x."""

    def expand(self, *shape) -> Tensor:
        """
        Repeats dims of size 1 and new leading dims by stride 0; -1 keeps a size.
        """

    def broadcast_to(self, *shape) -> Tensor:
        """As expand, without -1."""

    def flatten(self, start_dim: int = 0, end_dim: int = -1) -> Tensor:
        """Dims start_dim..end_dim as one."""

    def unflatten(self, dim: int, sizes: int | Sequence[int] | None) -> Tensor:
        """Dim `dim` as several; one size may be -1."""

    def transpose(self, dim0: int, dim1: int) -> Tensor:
        """Exchanges two dims."""

    def swapdims(self, dim0: int, dim1: int) -> Tensor:
        """Exchanges two dims."""

    def movedim(self, source: int | Sequence[int] | None, destination: int | Sequence[int] | None) -> Tensor:
        """Moves dims; the others keep their order."""

    def unsqueeze(self, dim: int) -> Tensor:
        """A new dim of size 1 before `dim`."""

    def squeeze(self, dim: int | Sequence[int] | None | None = None) -> Tensor:
        """Without dims of size 1: all, or those named."""

    def select(self, dim: int, index: int) -> Tensor:
        """Element `index` of `dim`, which disappears."""

    def narrow(self, dim: int, start: int, length: int) -> Tensor:
        """`length` elements of `dim` from `start`."""

    def slice(self, dim: int = 0, start: int | None = None, stop: int | None = None, step: int = 1) -> Tensor:
        """start:stop:step of `dim`, clamped as in Python; step > 0."""

    def split(self, split_size_or_sections: int | Sequence[int] | None, dim: int = 0) -> Any:
        """Pieces of one size (the last smaller), or of the sizes given."""

    def chunk(self, chunks: int, dim: int = 0) -> Any:
        """At most `chunks` pieces of equal size but the last."""

    def unbind(self, dim: int = 0) -> Any:
        """Every element along `dim`, which disappears."""

    def diagonal(self, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
        """The diagonal of two dims as a new last dim."""

    def unfold(self, dim: int, size: int, step: int) -> Tensor:
        """Windows of `size` every `step` along `dim`, as a new last dim."""

    def tril(self, diagonal: int = 0, *, out: ArrayLike | tuple[ArrayLike, ...] | None | None = None) -> Tensor:
        """The matrices of x with 0 above diagonal `diagonal`."""

    def triu(self, diagonal: int = 0, *, out: ArrayLike | tuple[ArrayLike, ...] | None | None = None) -> Tensor:
        """The matrices of x with 0 below diagonal `diagonal`."""

    def sum(self, dim: int | Sequence[int] | None | None = None, keepdim: bool = False, *, dtype: DTypeLike | None | None = None, out: ArrayLike | tuple[ArrayLike, ...] | None | None = None) -> Tensor:
        """
        The sum over dim. Integers and bool give int64, unsigned integers uint64. Of nothing: 0. dtype: what the elements are converted to, and the result's.

        dim: an int, a tuple, or None for all dims (() reduces nothing); keepdim leaves them with size 1. 16-bit floats accumulate
        in float32 and round once; NaN propagates. IndexError for a dim out of range, ValueError for a repeated one.
        """

    def mean(self, dim: int | Sequence[int] | None | None = None, keepdim: bool = False, *, dtype: DTypeLike | None | None = None, out: ArrayLike | tuple[ArrayLike, ...] | None | None = None) -> Tensor:
        """
        The mean over dim. Integers give float32. Of nothing: NaN. dtype: what the elements are converted to, and the result's.

        dim: an int, a tuple, or None for all dims (() reduces nothing); keepdim leaves them with size 1. 16-bit floats accumulate
        in float32 and round once; NaN propagates. IndexError for a dim out of range, ValueError for a repeated one.
        """

    def prod(self, dim: int | Sequence[int] | None | None = None, keepdim: bool = False, *, dtype: DTypeLike | None | None = None, out: ArrayLike | tuple[ArrayLike, ...] | None | None = None) -> Tensor:
        """
        The product over dim, with sum's dtypes. Of nothing: 1. dtype: what the elements are converted to, and the result's.

        dim: an int, a tuple, or None for all dims (() reduces nothing); keepdim leaves them with size 1. 16-bit floats accumulate
        in float32 and round once; NaN propagates. IndexError for a dim out of range, ValueError for a repeated one.
        """

    def amax(self, dim: int | Sequence[int] | None | None = None, keepdim: bool = False, *, out: ArrayLike | tuple[ArrayLike, ...] | None | None = None) -> Tensor:
        """
        The largest element over dim. ShapeError for an empty axis.

        dim: an int, a tuple, or None for all dims (() reduces nothing); keepdim leaves them with size 1. 16-bit floats accumulate
        in float32 and round once; NaN propagates. IndexError for a dim out of range, ValueError for a repeated one.
        """

    def amin(self, dim: int | Sequence[int] | None | None = None, keepdim: bool = False, *, out: ArrayLike | tuple[ArrayLike, ...] | None | None = None) -> Tensor:
        """
        The smallest element over dim. ShapeError for an empty axis.

        dim: an int, a tuple, or None for all dims (() reduces nothing); keepdim leaves them with size 1. 16-bit floats accumulate
        in float32 and round once; NaN propagates. IndexError for a dim out of range, ValueError for a repeated one.
        """

    def any(self, dim: int | Sequence[int] | None | None = None, keepdim: bool = False, *, out: ArrayLike | tuple[ArrayLike, ...] | None | None = None) -> Tensor:
        """
        Whether some element is not zero (NaN is not). Of nothing: False.

        dim: an int, a tuple, or None for all dims (() reduces nothing); keepdim leaves them with size 1. 16-bit floats accumulate
        in float32 and round once; NaN propagates. IndexError for a dim out of range, ValueError for a repeated one.
        """

    def all(self, dim: int | Sequence[int] | None | None = None, keepdim: bool = False, *, out: ArrayLike | tuple[ArrayLike, ...] | None | None = None) -> Tensor:
        """
        Whether every element is not zero. Of nothing: True.

        dim: an int, a tuple, or None for all dims (() reduces nothing); keepdim leaves them with size 1. 16-bit floats accumulate
        in float32 and round once; NaN propagates. IndexError for a dim out of range, ValueError for a repeated one.
        """

    def count_nonzero(self, dim: int | Sequence[int] | None | None = None, keepdim: bool = False, *, out: ArrayLike | tuple[ArrayLike, ...] | None | None = None) -> Tensor:
        """
        How many elements are not zero, int64.

        dim: an int, a tuple, or None for all dims (() reduces nothing); keepdim leaves them with size 1. 16-bit floats accumulate
        in float32 and round once; NaN propagates. IndexError for a dim out of range, ValueError for a repeated one.
        """

    def logsumexp(self, dim: int | Sequence[int] | None | None = None, keepdim: bool = False, *, out: ArrayLike | tuple[ArrayLike, ...] | None | None = None) -> Tensor:
        """
        log(sum exp(x)) about the maximum; of nothing, and of -inf alone: -inf. Integers give float32.

        dim: an int, a tuple, or None for all dims (() reduces nothing); keepdim leaves them with size 1. 16-bit floats accumulate
        in float32 and round once; NaN propagates. IndexError for a dim out of range, ValueError for a repeated one.
        """

    def var(self, dim: int | Sequence[int] | None | None = None, keepdim: bool = False, correction: float = 1.0, *, out: ArrayLike | tuple[ArrayLike, ...] | None | None = None) -> Tensor:
        """
        sum (x - mean)^2 / (N - correction), in two passes. NaN where N - correction <= 0. Integers give float32.

        dim: an int, a tuple, or None for all dims (() reduces nothing); keepdim leaves them with size 1. 16-bit floats accumulate
        in float32 and round once; NaN propagates. IndexError for a dim out of range, ValueError for a repeated one.
        """

    def std(self, dim: int | Sequence[int] | None | None = None, keepdim: bool = False, correction: float = 1.0, *, out: ArrayLike | tuple[ArrayLike, ...] | None | None = None) -> Tensor:
        """
        sqrt(var). NaN where N - correction <= 0. Integers give float32.

        dim: an int, a tuple, or None for all dims (() reduces nothing); keepdim leaves them with size 1. 16-bit floats accumulate
        in float32 and round once; NaN propagates. IndexError for a dim out of range, ValueError for a repeated one.
        """

    def argmax(self, dim: int | None = None, keepdim: bool = False, *, out: ArrayLike | tuple[ArrayLike, ...] | None | None = None) -> Tensor:
        """
        The index (int64) of the first NaN, else of the first largest element; without dim, in the flattened x.
        """

    def argmin(self, dim: int | None = None, keepdim: bool = False, *, out: ArrayLike | tuple[ArrayLike, ...] | None | None = None) -> Tensor:
        """
        The index (int64) of the first NaN, else of the first smallest element; without dim, in the flattened x.
        """

    def max(self, dim: int | None = None, keepdim: bool = False, *, out: ArrayLike | tuple[ArrayLike, ...] | None | None = None) -> Any:
        """
        The largest element of x; with dim, (values, indices) along it: the first NaN, else the first of equals. ShapeError for an empty axis.
        """

    def min(self, dim: int | None = None, keepdim: bool = False, *, out: ArrayLike | tuple[ArrayLike, ...] | None | None = None) -> Any:
        """
        The smallest element of x; with dim, (values, indices) along it: the first NaN, else the first of equals. ShapeError for an empty axis.
        """

    def norm(self, p: object = 2, dim: int | Sequence[int] | None | None = None, keepdim: bool = False, *, dtype: DTypeLike | None | None = None, out: ArrayLike | tuple[ArrayLike, ...] | None | None = None) -> Tensor:
        """
        (sum |x|^p)^(1/p) over dim; p = inf: the largest |x|, -inf: the smallest, 0: the count of x != 0. Integers give float32.

        dim: an int, a tuple, or None for all dims (() reduces nothing); keepdim leaves them with size 1. 16-bit floats accumulate
        in float32 and round once; NaN propagates. IndexError for a dim out of range, ValueError for a repeated one.
        """

    def cumsum(self, dim: int, *, dtype: DTypeLike | None | None = None, out: ArrayLike | tuple[ArrayLike, ...] | None | None = None) -> Tensor:
        """
        x[0] + .. + x[i] along dim. Integers and bool give int64, unsigned integers uint64; 16-bit floats accumulate in float32.

        dtype: what the elements are converted to, and the result's. IndexError for a dim out of range.
        """

    def cumprod(self, dim: int, *, dtype: DTypeLike | None | None = None, out: ArrayLike | tuple[ArrayLike, ...] | None | None = None) -> Tensor:
        """
        x[0] * .. * x[i] along dim, with cumsum's dtypes. IndexError for a dim out of range.
        """

    def cummax(self, dim: int, *, out: ArrayLike | tuple[ArrayLike, ...] | None | None = None) -> Any:
        """
        (values, indices) of the largest of x[0..i] along dim: the first of equals; a NaN stays. IndexError for a dim out of range.
        """

    def cummin(self, dim: int, *, out: ArrayLike | tuple[ArrayLike, ...] | None | None = None) -> Any:
        """
        (values, indices) of the smallest of x[0..i] along dim: the first of equals; a NaN stays. IndexError for a dim out of range.
        """

    def logcumsumexp(self, dim: int, *, out: ArrayLike | tuple[ArrayLike, ...] | None | None = None) -> Tensor:
        """
        log(e^x[0] + .. + e^x[i]) along dim, relative to the running maximum. DTypeError for integers, IndexError for a dim out of range.
        """

    def sort(self, dim: int = -1, descending: bool = False, stable: bool = True, *, out: ArrayLike | tuple[ArrayLike, ...] | None | None = None) -> Any:
        """
        x sorted along dim: (values of x's shape and dtype, indices int64). Always stable: of equal elements the lower index
        comes first, in both directions. NaN is the greatest whatever its sign bit, -0 equals +0. out= takes (values, indices).
        IndexError for a dim out of range, DTypeError for an 8-bit float.
        """

    def argsort(self, dim: int = -1, descending: bool = False, stable: bool = True, *, out: ArrayLike | tuple[ArrayLike, ...] | None | None = None) -> Tensor:
        """The indices of sort, int64 of x's shape."""

    def topk(self, k: int, dim: int = -1, largest: bool = True, sorted: bool = True, *, out: ArrayLike | tuple[ArrayLike, ...] | None | None = None) -> Any:
        """
        The k largest (or smallest) elements along dim, (values, indices int64), in sort's order: lower index first on ties,
        NaN the greatest. sorted=False gives the same. ValueError unless 0 <= k <= x.shape[dim].
        """

    def kthvalue(self, k: int, dim: int = -1, keepdim: bool = False, *, out: ArrayLike | tuple[ArrayLike, ...] | None | None = None) -> Any:
        """
        The k-th smallest element along dim, k counted from 1, and its index: element k - 1 of sort(x).
        ValueError unless 1 <= k <= x.shape[dim].
        """

    def median(self, dim: int | None = None, keepdim: bool = False, *, out: ArrayLike | tuple[ArrayLike, ...] | None | None = None) -> Any:
        """
        The lower of the two middle elements, or the first NaN: over all elements one value, along dim (values, indices int64).
        ShapeError over an empty dim.
        """

    def unique(self, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None, *, out: ArrayLike | tuple[ArrayLike, ...] | None | None = None) -> Any:
        """
        The distinct elements (or slices along dim, in lexicographic order), ascending. With return_inverse and return_counts a
        tuple (values, inverse_indices, counts) of what was asked for: x = values[inverse_indices]. Every NaN is distinct, -0
        equals +0; of equal elements the first is returned. The result is sorted whatever sorted says.
        """

    def bincount(self, weights: ArrayLike | None | None = None, minlength: int = 0, *, out: ArrayLike | tuple[ArrayLike, ...] | None | None = None) -> Tensor:
        """
        How often each of 0, 1, 2, ... occurs in the integers x [n]: int64 [max(max(x) + 1, minlength)], or the sums of the
        weights [n] in index order: float32 for float32 weights, else float64. ValueError for a negative element or minlength.
        """

    def index_select(self, dim: int, index: ArrayLike, *, out: ArrayLike | tuple[ArrayLike, ...] | None | None = None) -> Tensor:
        """
        Rows of `dim` that a 1-d integer index names: [..., n, ...] -> [..., len(index), ...]. Indices -n..n-1 (IndexError).
        """

    def gather(self, dim: int, index: ArrayLike, *, out: ArrayLike | tuple[ArrayLike, ...] | None | None = None) -> Tensor:
        """
        out[i][j][k] = x[index[i][j][k]][j][k] for dim 0. index has x's rank, and is no larger than x outside of dim.
        """

    def take_along_dim(self, indices: ArrayLike, dim: int | None = None, *, out: ArrayLike | tuple[ArrayLike, ...] | None | None = None) -> Tensor:
        """
        As gather, x and indices broadcast outside of dim; without dim, over the flattened arrays.
        """

    def scatter(self, dim: int, index: ArrayLike, src: ArrayLike | bool | int | float | None = None, *, value: ArrayLike | bool | int | float | None = None, out: ArrayLike | tuple[ArrayLike, ...] | None | None = None) -> Tensor:
        """
        x with out[index[i][j][k]][j][k] = src[i][j][k] for dim 0; src is an array of x's dtype or one value. The last write wins.
        """

    def scatter_add(self, dim: int, index: ArrayLike, src: ArrayLike | bool | int | float | None = None, *, value: ArrayLike | bool | int | float | None = None, out: ArrayLike | tuple[ArrayLike, ...] | None | None = None) -> Tensor:
        """
        As scatter, adding in index order; 16-bit data in float32, rounded once.
        """

    def scatter_(self, dim: int, index: ArrayLike, src: ArrayLike | bool | int | float | None = None, *, value: ArrayLike | bool | int | float | None = None) -> Tensor:
        """The same, written into x, which is returned."""

    def scatter_add_(self, dim: int, index: ArrayLike, src: ArrayLike | bool | int | float | None = None, *, value: ArrayLike | bool | int | float | None = None) -> Tensor:
        """The same, written into x, which is returned."""

    def scatter_reduce(self, dim: int, index: ArrayLike, src: ArrayLike | bool | int | float, reduce: str, *, include_self: bool = True, out: ArrayLike | tuple[ArrayLike, ...] | None | None = None) -> Tensor:
        """
        As scatter, combining by reduce: 'sum', 'prod', 'mean', 'amax' or 'amin'; include_self: whether x's own value takes part.
        """

    def scatter_reduce_(self, dim: int, index: ArrayLike, src: ArrayLike | bool | int | float, reduce: str, *, include_self: bool = True) -> Tensor:
        """The same, written into x, which is returned."""

    def index_add(self, dim: int, index: ArrayLike, source: ArrayLike, *, alpha: ArrayLike | bool | int | float = 1, out: ArrayLike | tuple[ArrayLike, ...] | None | None = None) -> Tensor:
        """
        x with alpha * source[..., i, ...] added to x[..., index[i], ...], in index order; 16-bit data in float32, rounded once.
        """

    def index_add_(self, dim: int, index: ArrayLike, source: ArrayLike, *, alpha: ArrayLike | bool | int | float = 1) -> Tensor:
        """The same, written into x, which is returned."""

    def index_put(self, indices: object, values: ArrayLike | bool | int | float, accumulate: bool = False, *, out: ArrayLike | tuple[ArrayLike, ...] | None | None = None) -> Tensor:
        """
        x with x[indices] = values (the last write wins), or += values with accumulate. indices: integer arrays, masks or None, one a dim.
        """

    def index_put_(self, indices: object, values: ArrayLike | bool | int | float, accumulate: bool = False) -> Tensor:
        """The same, written into x, which is returned."""

    def masked_select(self, mask: ArrayLike, *, out: ArrayLike | tuple[ArrayLike, ...] | None | None = None) -> Tensor:
        """
        The elements of x where the bool mask holds, in row-major order; x and mask broadcast.
        """

    def masked_scatter(self, mask: ArrayLike, source: ArrayLike, *, out: ArrayLike | tuple[ArrayLike, ...] | None | None = None) -> Tensor:
        """
        x with its places where mask holds, row-major, set to source's elements in order.
        """

    def masked_scatter_(self, mask: ArrayLike, source: ArrayLike) -> Tensor:
        """The same, written into x, which is returned."""

    def nonzero(self, *, as_tuple: bool = False, out: ArrayLike | tuple[ArrayLike, ...] | None | None = None) -> Any:
        """
        The places of x that are not zero, row-major: int64 [count, ndim], or with as_tuple one array a dim.
        """

    def tile(self, *dims, **named) -> Tensor:
        """
        x laid out dims[d] times along each dim; missing leading entries count as 1.
        """

    def repeat(self, *sizes, **named) -> Tensor:
        """
        x laid out sizes[d] times along each dim; at least one entry a dim of x.
        """

    def flip(self, *dims, **named) -> Tensor:
        """Elements in reverse order along each of dims."""

    def repeat_interleave(self, repeats: object, dim: int | None = None, *, output_size: int | None = None, out: ArrayLike | tuple[ArrayLike, ...] | None | None = None) -> Tensor:
        """
        Each element along dim (of the flattened x without one) repeats times in a row: a count for all, or one each.
        """

    def roll(self, shifts: int | Sequence[int] | None, dims: int | Sequence[int] | None | None = None, *, out: ArrayLike | tuple[ArrayLike, ...] | None | None = None) -> Tensor:
        """
        Elements moved by shifts[i] along dims[i], around the end; without dims, along the flattened x.
        """

    def matmul(self, other: ArrayLike, *, dtype: DTypeLike | None | None = None, out: ArrayLike | tuple[ArrayLike, ...] | None | None = None) -> Tensor:
        """
        x @ other: [*, m, k] @ [*, k, n] -> [*, m, n], leading dims broadcast; a 1-d operand is a row or a column whose dim the
        result lacks. Promotes; 16-bit accumulates in float32 and rounds once, at the end; integers wrap. `dtype` is the
        result's: float32 from 16-bit operands is the unrounded accumulator. ShapeError for a 0-d operand, unequal inner
        sizes or batches that do not broadcast; DTypeError for float8.
        """

    def bmm(self, mat2: ArrayLike, *, dtype: DTypeLike | None | None = None, out: ArrayLike | tuple[ArrayLike, ...] | None | None = None) -> Tensor:
        """
        [b, m, k] @ [b, k, n] -> [b, m, n], without broadcasting. ShapeError; otherwise as matmul.
        """

    def dot(self, tensor: ArrayLike, *, dtype: DTypeLike | None | None = None, out: ArrayLike | tuple[ArrayLike, ...] | None | None = None) -> Tensor:
        """
        x [k], tensor [k] -> 0-d: their inner product. ShapeError unless both are 1-d of one size.
        """

    def outer(self, vec2: ArrayLike, *, dtype: DTypeLike | None | None = None, out: ArrayLike | tuple[ArrayLike, ...] | None | None = None) -> Tensor:
        """
        x [m], vec2 [n] -> [m, n]: x[i] * vec2[j]. ShapeError unless both are 1-d.
        """

    def softmax(self, dim: int = -1, *, out: ArrayLike | tuple[ArrayLike, ...] | None | None = None) -> Tensor:
        """
        exp(x - max) / sum(exp(x - max)) along dim. A row that is all -inf, or holds +inf or NaN, gives NaN.
        """

    def log_softmax(self, dim: int = -1, *, out: ArrayLike | tuple[ArrayLike, ...] | None | None = None) -> Tensor:
        """
        x - max - log(sum(exp(x - max))) along dim. A row that is all -inf, or holds +inf or NaN, gives NaN.
        """

def from_dlpack(x: object) -> Tensor:
    """A tensor that shares the memory of any DLPack exporter."""

def view(x: ArrayLike, *shape) -> Any:
    """
    x under another shape (one size may be -1) without a copy; ShapeError where the strides do not allow it.
    """

def reshape(x: ArrayLike, *shape) -> Any:
    """x under another shape; copies only where a view is not possible."""

def permute(x: ArrayLike, *shape) -> Any:
    """Dim i of the result is dim dims[i] of x."""

def expand(x: ArrayLike, *shape) -> Any:
    """
    Repeats dims of size 1 and new leading dims by stride 0; -1 keeps a size.
    """

def broadcast_to(x: ArrayLike, *shape) -> Any:
    """As expand, without -1."""

def flatten(x: ArrayLike, start_dim: int = 0, end_dim: int = -1) -> Any:
    """Dims start_dim..end_dim as one."""

def unflatten(x: ArrayLike, dim: int, sizes: int | Sequence[int] | None) -> Any:
    """Dim `dim` as several; one size may be -1."""

def transpose(x: ArrayLike, dim0: int, dim1: int) -> Any:
    """Exchanges two dims."""

def swapdims(x: ArrayLike, dim0: int, dim1: int) -> Any:
    """Exchanges two dims."""

def movedim(x: ArrayLike, source: int | Sequence[int] | None, destination: int | Sequence[int] | None) -> Any:
    """Moves dims; the others keep their order."""

def unsqueeze(x: ArrayLike, dim: int) -> Any:
    """A new dim of size 1 before `dim`."""

def squeeze(x: ArrayLike, dim: int | Sequence[int] | None | None = None) -> Any:
    """Without dims of size 1: all, or those named."""

def select(x: ArrayLike, dim: int, index: int) -> Any:
    """Element `index` of `dim`, which disappears."""

def narrow(x: ArrayLike, dim: int, start: int, length: int) -> Any:
    """`length` elements of `dim` from `start`."""

def slice(x: ArrayLike, dim: int = 0, start: int | None = None, stop: int | None = None, step: int = 1) -> Any:
    """start:stop:step of `dim`, clamped as in Python; step > 0."""

def split(x: ArrayLike, split_size_or_sections: int | Sequence[int] | None, dim: int = 0) -> Any:
    """Pieces of one size (the last smaller), or of the sizes given."""

def chunk(x: ArrayLike, chunks: int, dim: int = 0) -> Any:
    """At most `chunks` pieces of equal size but the last."""

def unbind(x: ArrayLike, dim: int = 0) -> Any:
    """Every element along `dim`, which disappears."""

def diagonal(x: ArrayLike, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    """The diagonal of two dims as a new last dim."""

def unfold(x: ArrayLike, dim: int, size: int, step: int) -> Any:
    """Windows of `size` every `step` along `dim`, as a new last dim."""

def empty(*size, dtype: DTypeLike | None | None = None, device: str | None | None = None, out: ArrayLike | tuple[ArrayLike, ...] | None | None = None) -> Any:
    """
    A tensor of this size, contents undefined. float32 unless dtype says otherwise.
    """

def zeros(*size, dtype: DTypeLike | None | None = None, device: str | None | None = None, out: ArrayLike | tuple[ArrayLike, ...] | None | None = None) -> Any:
    """A tensor of zeros. float32 unless dtype says otherwise."""

def ones(*size, dtype: DTypeLike | None | None = None, device: str | None | None = None, out: ArrayLike | tuple[ArrayLike, ...] | None | None = None) -> Any:
    """A tensor of ones. float32 unless dtype says otherwise."""

def full(size: int | Sequence[int] | None, fill_value: ArrayLike | bool | int | float, *, dtype: DTypeLike | None | None = None, device: str | None | None = None, out: ArrayLike | tuple[ArrayLike, ...] | None | None = None) -> Any:
    """
    A tensor of one value: bool, int64 or float32 as the value is, unless dtype says otherwise.
    """

def empty_like(x: ArrayLike, *, dtype: DTypeLike | None | None = None, device: str | None | None = None, out: ArrayLike | tuple[ArrayLike, ...] | None | None = None) -> Any:
    """
    An array of x's shape, dimension order, dtype and device, contents undefined.
    """

def zeros_like(x: ArrayLike, *, dtype: DTypeLike | None | None = None, device: str | None | None = None, out: ArrayLike | tuple[ArrayLike, ...] | None | None = None) -> Any:
    """Zeros of x's shape, dimension order, dtype and device."""

def ones_like(x: ArrayLike, *, dtype: DTypeLike | None | None = None, device: str | None | None = None, out: ArrayLike | tuple[ArrayLike, ...] | None | None = None) -> Any:
    """Ones of x's shape, dimension order, dtype and device."""

def full_like(x: ArrayLike, fill_value: ArrayLike | bool | int | float, *, dtype: DTypeLike | None | None = None, device: str | None | None = None, out: ArrayLike | tuple[ArrayLike, ...] | None | None = None) -> Any:
    """One value in x's shape, dimension order, dtype and device."""

def arange(start: ArrayLike | bool | int | float, end: ArrayLike | bool | int | float | None = None, step: ArrayLike | bool | int | float = 1, *, dtype: DTypeLike | None | None = None, device: str | None | None = None, out: ArrayLike | tuple[ArrayLike, ...] | None | None = None) -> Any:
    """
    start, start + step, ... before end; arange(n) counts from 0. int64 when all are integers, else float32.
    """

def linspace(start: ArrayLike | bool | int | float, end: ArrayLike | bool | int | float, steps: int, *, dtype: DTypeLike | None | None = None, device: str | None | None = None, out: ArrayLike | tuple[ArrayLike, ...] | None | None = None) -> Any:
    """`steps` values from start to end, both included, evenly spaced."""

def eye(n: int, m: int | None = None, *, dtype: DTypeLike | None | None = None, device: str | None | None = None, out: ArrayLike | tuple[ArrayLike, ...] | None | None = None) -> Any:
    """[n, m] (m defaults to n) with 1 on the main diagonal, else 0."""

def pad(x: ArrayLike, pad: int | Sequence[int] | None, mode: str = 'constant', value: ArrayLike | bool | int | float | None = None, *, out: ArrayLike | tuple[ArrayLike, ...] | None | None = None) -> Any:
    """
    x with borders: pad is (before, after) of the last dim, then of the one before it, ...; negative ones cut. mode: 'constant' (value), 'reflect', 'replicate' or 'circular'.
    """

def tril(x: ArrayLike, diagonal: int = 0, *, out: ArrayLike | tuple[ArrayLike, ...] | None | None = None) -> Any:
    """The matrices of x with 0 above diagonal `diagonal`."""

def triu(x: ArrayLike, diagonal: int = 0, *, out: ArrayLike | tuple[ArrayLike, ...] | None | None = None) -> Any:
    """The matrices of x with 0 below diagonal `diagonal`."""

def asarray(obj: object, dtype: DTypeLike | None | None = None, device: str | None | None = None) -> Tensor:
    """
    A tensor of an array (sharing its memory where neither dtype nor device change), a number or nested lists. Python floats become float32, ints int64, bools bool, unless dtype says otherwise.
    """

def sum(x: ArrayLike, dim: int | Sequence[int] | None | None = None, keepdim: bool = False, *, dtype: DTypeLike | None | None = None, out: ArrayLike | tuple[ArrayLike, ...] | None | None = None) -> Any:
    """
    The sum over dim. Integers and bool give int64, unsigned integers uint64. Of nothing: 0. dtype: what the elements are converted to, and the result's.

    dim: an int, a tuple, or None for all dims (() reduces nothing); keepdim leaves them with size 1. 16-bit floats accumulate
    in float32 and round once; NaN propagates. IndexError for a dim out of range, ValueError for a repeated one.
    """

def mean(x: ArrayLike, dim: int | Sequence[int] | None | None = None, keepdim: bool = False, *, dtype: DTypeLike | None | None = None, out: ArrayLike | tuple[ArrayLike, ...] | None | None = None) -> Any:
    """
    The mean over dim. Integers give float32. Of nothing: NaN. dtype: what the elements are converted to, and the result's.

    dim: an int, a tuple, or None for all dims (() reduces nothing); keepdim leaves them with size 1. 16-bit floats accumulate
    in float32 and round once; NaN propagates. IndexError for a dim out of range, ValueError for a repeated one.
    """

def prod(x: ArrayLike, dim: int | Sequence[int] | None | None = None, keepdim: bool = False, *, dtype: DTypeLike | None | None = None, out: ArrayLike | tuple[ArrayLike, ...] | None | None = None) -> Any:
    """
    The product over dim, with sum's dtypes. Of nothing: 1. dtype: what the elements are converted to, and the result's.

    dim: an int, a tuple, or None for all dims (() reduces nothing); keepdim leaves them with size 1. 16-bit floats accumulate
    in float32 and round once; NaN propagates. IndexError for a dim out of range, ValueError for a repeated one.
    """

def amax(x: ArrayLike, dim: int | Sequence[int] | None | None = None, keepdim: bool = False, *, out: ArrayLike | tuple[ArrayLike, ...] | None | None = None) -> Any:
    """
    The largest element over dim. ShapeError for an empty axis.

    dim: an int, a tuple, or None for all dims (() reduces nothing); keepdim leaves them with size 1. 16-bit floats accumulate
    in float32 and round once; NaN propagates. IndexError for a dim out of range, ValueError for a repeated one.
    """

def amin(x: ArrayLike, dim: int | Sequence[int] | None | None = None, keepdim: bool = False, *, out: ArrayLike | tuple[ArrayLike, ...] | None | None = None) -> Any:
    """
    The smallest element over dim. ShapeError for an empty axis.

    dim: an int, a tuple, or None for all dims (() reduces nothing); keepdim leaves them with size 1. 16-bit floats accumulate
    in float32 and round once; NaN propagates. IndexError for a dim out of range, ValueError for a repeated one.
    """

def any(x: ArrayLike, dim: int | Sequence[int] | None | None = None, keepdim: bool = False, *, out: ArrayLike | tuple[ArrayLike, ...] | None | None = None) -> Any:
    """
    Whether some element is not zero (NaN is not). Of nothing: False.

    dim: an int, a tuple, or None for all dims (() reduces nothing); keepdim leaves them with size 1. 16-bit floats accumulate
    in float32 and round once; NaN propagates. IndexError for a dim out of range, ValueError for a repeated one.
    """

def all(x: ArrayLike, dim: int | Sequence[int] | None | None = None, keepdim: bool = False, *, out: ArrayLike | tuple[ArrayLike, ...] | None | None = None) -> Any:
    """
    Whether every element is not zero. Of nothing: True.

    dim: an int, a tuple, or None for all dims (() reduces nothing); keepdim leaves them with size 1. 16-bit floats accumulate
    in float32 and round once; NaN propagates. IndexError for a dim out of range, ValueError for a repeated one.
    """

def count_nonzero(x: ArrayLike, dim: int | Sequence[int] | None | None = None, keepdim: bool = False, *, out: ArrayLike | tuple[ArrayLike, ...] | None | None = None) -> Any:
    """
    How many elements are not zero, int64.

    dim: an int, a tuple, or None for all dims (() reduces nothing); keepdim leaves them with size 1. 16-bit floats accumulate
    in float32 and round once; NaN propagates. IndexError for a dim out of range, ValueError for a repeated one.
    """

def logsumexp(x: ArrayLike, dim: int | Sequence[int] | None | None = None, keepdim: bool = False, *, out: ArrayLike | tuple[ArrayLike, ...] | None | None = None) -> Any:
    """
    log(sum exp(x)) about the maximum; of nothing, and of -inf alone: -inf. Integers give float32.

    dim: an int, a tuple, or None for all dims (() reduces nothing); keepdim leaves them with size 1. 16-bit floats accumulate
    in float32 and round once; NaN propagates. IndexError for a dim out of range, ValueError for a repeated one.
    """

def var(x: ArrayLike, dim: int | Sequence[int] | None | None = None, keepdim: bool = False, correction: float = 1.0, *, out: ArrayLike | tuple[ArrayLike, ...] | None | None = None) -> Any:
    """
    sum (x - mean)^2 / (N - correction), in two passes. NaN where N - correction <= 0. Integers give float32.

    dim: an int, a tuple, or None for all dims (() reduces nothing); keepdim leaves them with size 1. 16-bit floats accumulate
    in float32 and round once; NaN propagates. IndexError for a dim out of range, ValueError for a repeated one.
    """

def std(x: ArrayLike, dim: int | Sequence[int] | None | None = None, keepdim: bool = False, correction: float = 1.0, *, out: ArrayLike | tuple[ArrayLike, ...] | None | None = None) -> Any:
    """
    sqrt(var). NaN where N - correction <= 0. Integers give float32.

    dim: an int, a tuple, or None for all dims (() reduces nothing); keepdim leaves them with size 1. 16-bit floats accumulate
    in float32 and round once; NaN propagates. IndexError for a dim out of range, ValueError for a repeated one.
    """

def argmax(x: ArrayLike, dim: int | None = None, keepdim: bool = False, *, out: ArrayLike | tuple[ArrayLike, ...] | None | None = None) -> Any:
    """
    The index (int64) of the first NaN, else of the first largest element; without dim, in the flattened x.
    """

def argmin(x: ArrayLike, dim: int | None = None, keepdim: bool = False, *, out: ArrayLike | tuple[ArrayLike, ...] | None | None = None) -> Any:
    """
    The index (int64) of the first NaN, else of the first smallest element; without dim, in the flattened x.
    """

def max(x: ArrayLike, dim: int | None = None, keepdim: bool = False, *, out: ArrayLike | tuple[ArrayLike, ...] | None | None = None) -> Any:
    """
    The largest element of x; with dim, (values, indices) along it: the first NaN, else the first of equals. ShapeError for an empty axis.
    """

def min(x: ArrayLike, dim: int | None = None, keepdim: bool = False, *, out: ArrayLike | tuple[ArrayLike, ...] | None | None = None) -> Any:
    """
    The smallest element of x; with dim, (values, indices) along it: the first NaN, else the first of equals. ShapeError for an empty axis.
    """

def norm(x: ArrayLike, p: object = 2, dim: int | Sequence[int] | None | None = None, keepdim: bool = False, *, dtype: DTypeLike | None | None = None, out: ArrayLike | tuple[ArrayLike, ...] | None | None = None) -> Any:
    """
    (sum |x|^p)^(1/p) over dim; p = inf: the largest |x|, -inf: the smallest, 0: the count of x != 0. Integers give float32.

    dim: an int, a tuple, or None for all dims (() reduces nothing); keepdim leaves them with size 1. 16-bit floats accumulate
    in float32 and round once; NaN propagates. IndexError for a dim out of range, ValueError for a repeated one.
    """

def cumsum(x: ArrayLike, dim: int, *, dtype: DTypeLike | None | None = None, out: ArrayLike | tuple[ArrayLike, ...] | None | None = None) -> Any:
    """
    x[0] + .. + x[i] along dim. Integers and bool give int64, unsigned integers uint64; 16-bit floats accumulate in float32.

    dtype: what the elements are converted to, and the result's. IndexError for a dim out of range.
    """

def cumprod(x: ArrayLike, dim: int, *, dtype: DTypeLike | None | None = None, out: ArrayLike | tuple[ArrayLike, ...] | None | None = None) -> Any:
    """
    x[0] * .. * x[i] along dim, with cumsum's dtypes. IndexError for a dim out of range.
    """

def cummax(x: ArrayLike, dim: int, *, out: ArrayLike | tuple[ArrayLike, ...] | None | None = None) -> Any:
    """
    (values, indices) of the largest of x[0..i] along dim: the first of equals; a NaN stays. IndexError for a dim out of range.
    """

def cummin(x: ArrayLike, dim: int, *, out: ArrayLike | tuple[ArrayLike, ...] | None | None = None) -> Any:
    """
    (values, indices) of the smallest of x[0..i] along dim: the first of equals; a NaN stays. IndexError for a dim out of range.
    """

def logcumsumexp(x: ArrayLike, dim: int, *, out: ArrayLike | tuple[ArrayLike, ...] | None | None = None) -> Any:
    """
    log(e^x[0] + .. + e^x[i]) along dim, relative to the running maximum. DTypeError for integers, IndexError for a dim out of range.
    """

def sort(x: ArrayLike, dim: int = -1, descending: bool = False, stable: bool = True, *, out: ArrayLike | tuple[ArrayLike, ...] | None | None = None) -> Any:
    """
    x sorted along dim: (values of x's shape and dtype, indices int64). Always stable: of equal elements the lower index
    comes first, in both directions. NaN is the greatest whatever its sign bit, -0 equals +0. out= takes (values, indices).
    IndexError for a dim out of range, DTypeError for an 8-bit float.
    """

def argsort(x: ArrayLike, dim: int = -1, descending: bool = False, stable: bool = True, *, out: ArrayLike | tuple[ArrayLike, ...] | None | None = None) -> Any:
    """The indices of sort, int64 of x's shape."""

def topk(x: ArrayLike, k: int, dim: int = -1, largest: bool = True, sorted: bool = True, *, out: ArrayLike | tuple[ArrayLike, ...] | None | None = None) -> Any:
    """
    The k largest (or smallest) elements along dim, (values, indices int64), in sort's order: lower index first on ties,
    NaN the greatest. sorted=False gives the same. ValueError unless 0 <= k <= x.shape[dim].
    """

def kthvalue(x: ArrayLike, k: int, dim: int = -1, keepdim: bool = False, *, out: ArrayLike | tuple[ArrayLike, ...] | None | None = None) -> Any:
    """
    The k-th smallest element along dim, k counted from 1, and its index: element k - 1 of sort(x).
    ValueError unless 1 <= k <= x.shape[dim].
    """

def median(x: ArrayLike, dim: int | None = None, keepdim: bool = False, *, out: ArrayLike | tuple[ArrayLike, ...] | None | None = None) -> Any:
    """
    The lower of the two middle elements, or the first NaN: over all elements one value, along dim (values, indices int64).
    ShapeError over an empty dim.
    """

def unique(x: ArrayLike, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None, *, out: ArrayLike | tuple[ArrayLike, ...] | None | None = None) -> Any:
    """
    The distinct elements (or slices along dim, in lexicographic order), ascending. With return_inverse and return_counts a
    tuple (values, inverse_indices, counts) of what was asked for: x = values[inverse_indices]. Every NaN is distinct, -0
    equals +0; of equal elements the first is returned. The result is sorted whatever sorted says.
    """

def bincount(x: ArrayLike, weights: ArrayLike | None | None = None, minlength: int = 0, *, out: ArrayLike | tuple[ArrayLike, ...] | None | None = None) -> Any:
    """
    How often each of 0, 1, 2, ... occurs in the integers x [n]: int64 [max(max(x) + 1, minlength)], or the sums of the
    weights [n] in index order: float32 for float32 weights, else float64. ValueError for a negative element or minlength.
    """

def searchsorted(sorted_sequence: ArrayLike, values: ArrayLike | bool | int | float, right: bool = False, *, out: ArrayLike | tuple[ArrayLike, ...] | None | None = None) -> Any:
    """
    Where each value would go to keep the order: how many elements are < value (<= with right), int64 of values' shape.
    sorted_sequence [n] takes values of any shape or a scalar, [*B, n] takes values [*B, m]. NaN is the greatest.
    ShapeError when the dims before the last differ.
    """

def index_select(x: ArrayLike, dim: int, index: ArrayLike, *, out: ArrayLike | tuple[ArrayLike, ...] | None | None = None) -> Any:
    """
    Rows of `dim` that a 1-d integer index names: [..., n, ...] -> [..., len(index), ...]. Indices -n..n-1 (IndexError).
    """

def embedding(indices: ArrayLike, weight: ArrayLike, *, out: ArrayLike | tuple[ArrayLike, ...] | None | None = None) -> Any:
    """weight[indices]: indices [*S], weight [V, *R] -> [*S, *R]."""

def gather(x: ArrayLike, dim: int, index: ArrayLike, *, out: ArrayLike | tuple[ArrayLike, ...] | None | None = None) -> Any:
    """
    out[i][j][k] = x[index[i][j][k]][j][k] for dim 0. index has x's rank, and is no larger than x outside of dim.
    """

def take_along_dim(x: ArrayLike, indices: ArrayLike, dim: int | None = None, *, out: ArrayLike | tuple[ArrayLike, ...] | None | None = None) -> Any:
    """
    As gather, x and indices broadcast outside of dim; without dim, over the flattened arrays.
    """

def scatter(x: ArrayLike, dim: int, index: ArrayLike, src: ArrayLike | bool | int | float | None = None, *, value: ArrayLike | bool | int | float | None = None, out: ArrayLike | tuple[ArrayLike, ...] | None | None = None) -> Any:
    """
    x with out[index[i][j][k]][j][k] = src[i][j][k] for dim 0; src is an array of x's dtype or one value. The last write wins.
    """

def scatter_add(x: ArrayLike, dim: int, index: ArrayLike, src: ArrayLike | bool | int | float | None = None, *, value: ArrayLike | bool | int | float | None = None, out: ArrayLike | tuple[ArrayLike, ...] | None | None = None) -> Any:
    """
    As scatter, adding in index order; 16-bit data in float32, rounded once.
    """

def scatter_(x: ArrayLike, dim: int, index: ArrayLike, src: ArrayLike | bool | int | float | None = None, *, value: ArrayLike | bool | int | float | None = None) -> Any:
    """The same, written into x, which is returned."""

def scatter_add_(x: ArrayLike, dim: int, index: ArrayLike, src: ArrayLike | bool | int | float | None = None, *, value: ArrayLike | bool | int | float | None = None) -> Any:
    """The same, written into x, which is returned."""

def scatter_reduce(x: ArrayLike, dim: int, index: ArrayLike, src: ArrayLike | bool | int | float, reduce: str, *, include_self: bool = True, out: ArrayLike | tuple[ArrayLike, ...] | None | None = None) -> Any:
    """
    As scatter, combining by reduce: 'sum', 'prod', 'mean', 'amax' or 'amin'; include_self: whether x's own value takes part.
    """

def scatter_reduce_(x: ArrayLike, dim: int, index: ArrayLike, src: ArrayLike | bool | int | float, reduce: str, *, include_self: bool = True) -> Any:
    """The same, written into x, which is returned."""

def index_add(x: ArrayLike, dim: int, index: ArrayLike, source: ArrayLike, *, alpha: ArrayLike | bool | int | float = 1, out: ArrayLike | tuple[ArrayLike, ...] | None | None = None) -> Any:
    """
    x with alpha * source[..., i, ...] added to x[..., index[i], ...], in index order; 16-bit data in float32, rounded once.
    """

def index_add_(x: ArrayLike, dim: int, index: ArrayLike, source: ArrayLike, *, alpha: ArrayLike | bool | int | float = 1) -> Any:
    """The same, written into x, which is returned."""

def index_put(x: ArrayLike, indices: object, values: ArrayLike | bool | int | float, accumulate: bool = False, *, out: ArrayLike | tuple[ArrayLike, ...] | None | None = None) -> Any:
    """
    x with x[indices] = values (the last write wins), or += values with accumulate. indices: integer arrays, masks or None, one a dim.
    """

def index_put_(x: ArrayLike, indices: object, values: ArrayLike | bool | int | float, accumulate: bool = False) -> Any:
    """The same, written into x, which is returned."""

def masked_select(x: ArrayLike, mask: ArrayLike, *, out: ArrayLike | tuple[ArrayLike, ...] | None | None = None) -> Any:
    """
    The elements of x where the bool mask holds, in row-major order; x and mask broadcast.
    """

def masked_scatter(x: ArrayLike, mask: ArrayLike, source: ArrayLike, *, out: ArrayLike | tuple[ArrayLike, ...] | None | None = None) -> Any:
    """
    x with its places where mask holds, row-major, set to source's elements in order.
    """

def masked_scatter_(x: ArrayLike, mask: ArrayLike, source: ArrayLike) -> Any:
    """The same, written into x, which is returned."""

def nonzero(x: ArrayLike, *, as_tuple: bool = False, out: ArrayLike | tuple[ArrayLike, ...] | None | None = None) -> Any:
    """
    The places of x that are not zero, row-major: int64 [count, ndim], or with as_tuple one array a dim.
    """

def cat(tensors: Sequence[ArrayLike], dim: int = 0, *, out: ArrayLike | tuple[ArrayLike, ...] | None | None = None) -> Any:
    """
    The arrays one after the other along dim; equal sizes elsewhere, also for empty ones. The dtype is the promotion of all.
    """

def stack(tensors: Sequence[ArrayLike], dim: int = 0, *, out: ArrayLike | tuple[ArrayLike, ...] | None | None = None) -> Any:
    """Arrays of one shape along a new dim."""

def tile(x: ArrayLike, *dims, **named) -> Any:
    """
    x laid out dims[d] times along each dim; missing leading entries count as 1.
    """

def repeat(x: ArrayLike, *sizes, **named) -> Any:
    """
    x laid out sizes[d] times along each dim; at least one entry a dim of x.
    """

def flip(x: ArrayLike, *dims, **named) -> Any:
    """Elements in reverse order along each of dims."""

def repeat_interleave(x: ArrayLike, repeats: object, dim: int | None = None, *, output_size: int | None = None, out: ArrayLike | tuple[ArrayLike, ...] | None | None = None) -> Any:
    """
    Each element along dim (of the flattened x without one) repeats times in a row: a count for all, or one each.
    """

def roll(x: ArrayLike, shifts: int | Sequence[int] | None, dims: int | Sequence[int] | None | None = None, *, out: ArrayLike | tuple[ArrayLike, ...] | None | None = None) -> Any:
    """
    Elements moved by shifts[i] along dims[i], around the end; without dims, along the flattened x.
    """

def one_hot(x: ArrayLike, num_classes: int = -1, *, out: ArrayLike | tuple[ArrayLike, ...] | None | None = None) -> Any:
    """
    int64 [*S, num_classes], 1 at x's class; classes are 0..num_classes-1 (IndexError), -1 means the largest + 1.
    """

def matmul(x: ArrayLike, other: ArrayLike, *, dtype: DTypeLike | None | None = None, out: ArrayLike | tuple[ArrayLike, ...] | None | None = None) -> Any:
    """
    x @ other: [*, m, k] @ [*, k, n] -> [*, m, n], leading dims broadcast; a 1-d operand is a row or a column whose dim the
    result lacks. Promotes; 16-bit accumulates in float32 and rounds once, at the end; integers wrap. `dtype` is the
    result's: float32 from 16-bit operands is the unrounded accumulator. ShapeError for a 0-d operand, unequal inner
    sizes or batches that do not broadcast; DTypeError for float8.
    """

def bmm(x: ArrayLike, mat2: ArrayLike, *, dtype: DTypeLike | None | None = None, out: ArrayLike | tuple[ArrayLike, ...] | None | None = None) -> Any:
    """
    [b, m, k] @ [b, k, n] -> [b, m, n], without broadcasting. ShapeError; otherwise as matmul.
    """

def dot(x: ArrayLike, tensor: ArrayLike, *, dtype: DTypeLike | None | None = None, out: ArrayLike | tuple[ArrayLike, ...] | None | None = None) -> Any:
    """
    x [k], tensor [k] -> 0-d: their inner product. ShapeError unless both are 1-d of one size.
    """

def outer(x: ArrayLike, vec2: ArrayLike, *, dtype: DTypeLike | None | None = None, out: ArrayLike | tuple[ArrayLike, ...] | None | None = None) -> Any:
    """
    x [m], vec2 [n] -> [m, n]: x[i] * vec2[j]. ShapeError unless both are 1-d.
    """

def linear(x: ArrayLike, weight: ArrayLike, bias: ArrayLike | None | None = None, *, dtype: DTypeLike | None | None = None, out: ArrayLike | tuple[ArrayLike, ...] | None | None = None) -> Any:
    """
    x [*, k], weight [n, k], bias [n] -> [*, n]: x @ weight^T + bias; the bias joins before the one rounding. ShapeError.
    """

def einsum(equation: str, *operands, dtype: DTypeLike | None | None = None, out: ArrayLike | tuple[ArrayLike, ...] | None | None = None) -> Any:
    """
    Einstein summation, einsum('bij,bjk->bik', x, y): a letter names a dim, '...' those between, a letter twice in one operand
    its diagonal; a letter that the output lacks is summed; without '->' the output is '...' and the letters that occur once,
    in order. Size 1 broadcasts. Several operands meet in pairs in the cheapest order. ShapeError names the subscript, the
    operand and both sizes; ValueError for a malformed equation.
    """

def tensordot(x: ArrayLike, b: ArrayLike, dims: object = 2, *, dtype: DTypeLike | None | None = None, out: ArrayLike | tuple[ArrayLike, ...] | None | None = None) -> Any:
    """
    Sums over the last `dims` dims of x and the first of b, or over the pairs of a (dims of x, dims of b). ValueError for a
    count out of range, ShapeError for unequal sizes.
    """

def layer_norm(x: ArrayLike, gamma: ArrayLike, beta: ArrayLike | None | None = None, epsilon: float = 1e-05, *, out: ArrayLike | tuple[ArrayLike, ...] | None | None = None) -> Any:
    """
    (x - mean) / sqrt(variance + epsilon) * gamma + beta over the last axis: x[..., H], H > 0; gamma, beta [H], float32 or x's dtype. Statistics and affine in float32, two-pass variance, one rounding.
    """

def rms_norm(x: ArrayLike, gamma: ArrayLike, epsilon: float = 1e-06, *, weight_offset: float = 0.0, out: ArrayLike | tuple[ArrayLike, ...] | None | None = None) -> Any:
    """
    x / sqrt(mean(x^2) + epsilon) * (gamma + weight_offset) over the last axis: x[..., H], H > 0; gamma [H], float32 or x's dtype.
    """

def add_rms_norm(x: ArrayLike, residual: ArrayLike, gamma: ArrayLike, epsilon: float = 1e-06, *, weight_offset: float = 0.0, out: ArrayLike | tuple[ArrayLike, ...] | None | None = None) -> Any:
    """
    new_residual = x + residual, rounded to x's dtype; y = rms_norm(new_residual). Returns (y, new_residual), bit for bit what add and rms_norm give; out=(x, residual) works in place.
    """

def add_layer_norm(x: ArrayLike, residual: ArrayLike, gamma: ArrayLike, beta: ArrayLike | None | None = None, epsilon: float = 1e-05, *, out: ArrayLike | tuple[ArrayLike, ...] | None | None = None) -> Any:
    """
    new_residual = x + residual, rounded to x's dtype; y = layer_norm(new_residual). Returns (y, new_residual); out=(x, residual) works in place.
    """

def softmax(x: ArrayLike, dim: int = -1, *, out: ArrayLike | tuple[ArrayLike, ...] | None | None = None) -> Any:
    """
    exp(x - max) / sum(exp(x - max)) along dim. A row that is all -inf, or holds +inf or NaN, gives NaN.
    """

def log_softmax(x: ArrayLike, dim: int = -1, *, out: ArrayLike | tuple[ArrayLike, ...] | None | None = None) -> Any:
    """
    x - max - log(sum(exp(x - max))) along dim. A row that is all -inf, or holds +inf or NaN, gives NaN.
    """

def softmax_last_axis(x: ArrayLike, *, out: ArrayLike | tuple[ArrayLike, ...] | None | None = None) -> Any:
    """softmax over the last axis, whose length must be > 0."""

def normalize(x: ArrayLike, p: float = 2.0, dim: int = -1, epsilon: float = 1e-12, *, out: ArrayLike | tuple[ArrayLike, ...] | None | None = None) -> Any:
    """
    x / max(norm_p(x), epsilon) along dim; p any number, infinities included.
    """

def group_norm(x: ArrayLike, groups: int, gamma: ArrayLike | None | None = None, beta: ArrayLike | None | None = None, epsilon: float = 1e-05, *, out: ArrayLike | tuple[ArrayLike, ...] | None | None = None) -> Any:
    """
    x[N, C, *S], each of `groups` runs of channels normalised with its *S, then gamma[C] and beta[C].
    """

def instance_norm(x: ArrayLike, gamma: ArrayLike | None | None = None, beta: ArrayLike | None | None = None, epsilon: float = 1e-05, *, out: ArrayLike | tuple[ArrayLike, ...] | None | None = None) -> Any:
    """
    x[N, C, *S], each channel of each sample normalised over its *S, then gamma[C] and beta[C].
    """

def batch_norm(x: ArrayLike, mean: ArrayLike, variance: ArrayLike, gamma: ArrayLike | None | None = None, beta: ArrayLike | None | None = None, epsilon: float = 1e-05, *, out: ArrayLike | tuple[ArrayLike, ...] | None | None = None) -> Any:
    """
    (x - mean) / sqrt(variance + epsilon) * gamma + beta per channel of x[N, C, *S]: batch normalisation at inference.
    """

def silu_mul(gate: ArrayLike, up: ArrayLike | None | None = None, *, out: ArrayLike | tuple[ArrayLike, ...] | None | None = None) -> Any:
    """
    silu(gate) * up for two arrays of one shape; of one array x[..., 2d] the first half of the last axis is the gate, the second half is up. Computed in float32, one rounding.
    """

def gelu_mul(gate: ArrayLike, up: ArrayLike | None | None = None, *, approximate: str = 'none', out: ArrayLike | tuple[ArrayLike, ...] | None | None = None) -> Any:
    """
    gelu(gate) * up, as silu_mul. approximate: 'none' (the normal distribution function) or 'tanh'.
    """

def rope(x: ArrayLike, cos: ArrayLike, sin: ArrayLike, *, interleaved: bool = False, rotary_dim: int | None = None, positions: ArrayLike | None | None = None, out: ArrayLike | tuple[ArrayLike, ...] | None | None = None) -> Any:
    """
    Rotary position embedding of x[..., S, H, D] with cos, sin [maxpos, rotary_dim/2]: each pair (a, b) of a head becomes (a cos - b sin, b cos + a sin) at its position. Pairs are (i, i + rotary_dim/2), or (2i, 2i + 1) when interleaved; the head beyond rotary_dim passes through. positions [S] or [..., S], default 0..S-1.
    """

def rope_tables(maxpos: int, rotary_dim: int, theta: float = 10000.0, scaling: object | None = None, device: str | None = 'cpu', *, out: ArrayLike | tuple[ArrayLike, ...] | None | None = None) -> Any:
    """
    The tables (cos, sin) [maxpos, rotary_dim/2] of rope, computed in float64, stored float32. scaling is a dict as in model configurations, of rope_type 'linear', 'llama3' or 'yarn' (whose attention factor is in the tables).
    """

def attention(query: ArrayLike, key: ArrayLike, value: ArrayLike, mask: ArrayLike | None | None = None, bias: ArrayLike | None | None = None, *, scale: float | None = None, causal: object = False, window: object | None = None, softcap: float | None = None, sinks: ArrayLike | None | None = None, strategy: str = 'auto', return_lse: bool = False, out: ArrayLike | tuple[ArrayLike, ...] | None | None = None) -> Any:
    """
    softmax(scale * query key^T + bias) value over the keys that each query may see.

    query [B, Hq, Sq, D], key [B, Hkv, Sk, D], value [B, Hkv, Sk, Dv] of one float dtype; Hq a multiple of Hkv. Returns
    [B, Hq, Sq, Dv], with return_lse=True AttentionResult(out, lse), lse [B, Hq, Sq] float32 (natural logarithm, without the
    sink).

    mask: bool, True = attend. bias: float32 or query's dtype, added to the scores. Both broadcast to [B, Hq, Sq, Sk].
    scale: finite and > 0; None is D ** -0.5. causal: True lets query i see keys j <= i + Sk - Sq (bottom-right), "top_left"
    j <= i. window: (left, right) extra keys each side of that diagonal, inclusive, -1 unlimited. softcap: scores become
    c * tanh(s / c), before mask and bias. sinks [Hq]: exp(sink) joins the denominator. strategy: "auto", "flash_tensorcore",
    "flash_unit", "fallback". A row with nothing to attend gives 0 and lse -inf.

    Raises ShapeError, DTypeError, DeviceError, ValueError, UnsupportedError.
    """

def attention_varlen(query: ArrayLike, key: ArrayLike, value: ArrayLike, cu_seqlens_q: ArrayLike, cu_seqlens_k: ArrayLike, *, scale: float | None = None, causal: object = False, window: object | None = None, softcap: float | None = None, sinks: ArrayLike | None | None = None, strategy: str = 'auto', return_lse: bool = False, out: ArrayLike | tuple[ArrayLike, ...] | None | None = None) -> Any:
    """
    attention() of packed sequences: query [Tq, Hq, D], key [Tk, Hkv, D], value [Tk, Hkv, Dv].

    Sequence n has the queries cu_seqlens_q[n] to cu_seqlens_q[n + 1] - 1, and likewise keys; both arrays are int32 or int64,
    equally long, rise from 0 and end at T at most. Rows past the end give 0 and lse -inf. Returns [Tq, Hq, Dv], with
    return_lse=True AttentionResult(out, lse), lse [Tq, Hq] float32. Options as attention's.

    Raises ShapeError, DTypeError, DeviceError, ValueError, UnsupportedError.
    """

def merge_states(out_a: ArrayLike, lse_a: ArrayLike, out_b: ArrayLike, lse_b: ArrayLike, *, out: ArrayLike | tuple[ArrayLike, ...] | None | None = None) -> Any:
    """
    The attention over two disjoint sets of keys, from the attention over each: AttentionResult(out, lse).

    out_a, out_b [..., Dv] of one float dtype, lse_a, lse_b [...] float32. lse = log(exp(lse_a) + exp(lse_b)), out is the mean
    of both weighted by exp(lse - that). A state without keys (0, -inf) changes no bit of the other.

    Raises ShapeError, DTypeError, DeviceError, ValueError.
    """
