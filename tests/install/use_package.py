"""What a user does after `pip install`: nothing but the package and NumPy is there."""
import importlib.metadata
import os

import numpy as np

import tenor

x = np.ones((2, 3), np.float32)
assert np.allclose(tenor.softmax(x), 1 / 3)
assert isinstance(tenor.asarray(x) + 1, tenor.Tensor)
folder = os.path.dirname(tenor.__file__)
assert {"py.typed", "_tenor.pyi", "__init__.py"} <= set(os.listdir(folder)), os.listdir(folder)
assert importlib.metadata.version("tenor") == tenor.__version__
assert not [f for f in importlib.metadata.files("tenor") if str(f).startswith(("include", "lib", "..")) and "bin" not in str(f)]
