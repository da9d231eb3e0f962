"""The floors of explain against measured times: several minutes, and only as good as the machine is quiet, so it is asked for by
TENOR_SLOW_TESTS=1."""
import os
import pathlib
import subprocess
import sys

import pytest

import tenor

SCRIPT = pathlib.Path(tenor.__file__).resolve().parents[2] / "bench" / "floors.py"


@pytest.mark.skipif(os.environ.get("TENOR_SLOW_TESTS") != "1" or not SCRIPT.exists(), reason="TENOR_SLOW_TESTS=1 runs it, in a source tree")
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_memory_bound_steps_take_at_most_twice_their_floor(device):
    if device == "cuda" and tenor.cuda_device_count() == 0:
        pytest.skip("no CUDA device")
    done = subprocess.run([sys.executable, str(SCRIPT), f"--device={device}"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
