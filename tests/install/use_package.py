"""What a user does after `pip install`: nothing but the package and NumPy is there."""
import importlib.metadata
import os
import subprocess
import sys

import numpy as np

import tenor

x = np.ones((2, 3), np.float32)
assert np.allclose(tenor.softmax(x), 1 / 3)
assert isinstance(tenor.asarray(x) + 1, tenor.Tensor)
folder = os.path.dirname(tenor.__file__)
assert {"py.typed", "_tenor.pyi", "__init__.py"} <= set(os.listdir(folder)), os.listdir(folder)
assert importlib.metadata.version("tenor") == tenor.__version__
assert not [f for f in importlib.metadata.files("tenor") if str(f).startswith(("include", "lib", "..")) and "bin" not in str(f)]

# The command line is installed beside Python, with the checks and the benchmarks' cases.
command = os.path.join(os.path.dirname(sys.executable), "tenor")
for words, status in ((["ops", "softmax"], 0), (["check", "softmax", "--draws=50"], 0), (["bench", "rope", "--rounds=1", "--seconds=0.01"], 0), (["chek"], 2)):
    assert subprocess.run([command, *words], env={**os.environ, "TENOR_CACHE_DIR": "cache"}).returncode == status, words
