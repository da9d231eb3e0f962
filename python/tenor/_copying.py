"""pickle, copy.copy and copy.deepcopy of tensors and dtypes."""
from tenor import _tenor


def reduce_tensor(x, protocol):
    """The elements as an ndarray of bytes (out of band from protocol 5 on), the dtype's name and the shape."""
    import numpy as np

    array = np.ascontiguousarray(x.numpy())
    return rebuild_tensor, (array.reshape(-1).view(np.uint8), str(x.dtype), x.shape)


def rebuild_tensor(data, dtype, shape):
    from tenor._io import tensor_of_bytes

    return tensor_of_bytes(data, dtype, shape)


def copy_tensor(x):
    """Another handle on the same memory, as copy.copy of a PyTorch tensor."""
    return _tenor.from_dlpack(x)


def deepcopy_tensor(x, memo):
    memo[id(x)] = copied = x.clone()
    return copied


def dtype_of_name(name):
    return getattr(_tenor, "bool_" if name == "bool" else name)


def reduce_dtype(dtype, protocol):
    return dtype_of_name, (str(dtype),)


def reduce_result(x):
    """For pickle: a named tuple by its type's name and fields."""
    return _result, (type(x).__name__, x._fields, tuple(x))


def _result(name, fields, values):
    return _tenor._named_tuple(name, tuple(fields))(*values)
