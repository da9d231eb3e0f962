"""How long a fused function's first calls and those after take on a CUDA device; skipped where there is none."""
import json
import os
import subprocess
import sys

import pytest

import tenor as tn

pytestmark = pytest.mark.skipif(tn.cuda_device_count() == 0, reason="no CUDA device")

# Two functions of one kernel each, so that the first one's call meets what a process does once (NVRTC's own start, the
# context, the memory), and the second one's a new class of shapes alone.
TIMES = """
import json, time
import numpy as np
import tenor as tn

def softmax(x):
    e = (x - x.amax(-1, keepdim=True)).exp()
    return e / e.sum(-1, keepdim=True)

def gated(x, y):
    return tn.silu(x * 1.5) * y + x

def call(fn, *arrays):
    start = time.perf_counter()
    fn(*arrays)
    return time.perf_counter() - start

x = tn.asarray(np.ones((64, 1024), np.float32), device="cuda").to("bfloat16")
y = x * 2
first, second = tn.fuse(softmax), tn.fuse(gated)
made = {"first": call(first, x), "second": call(second, x, y)}
warm = []
for _ in range(300):
    warm.append(call(second, x, y))
    tn.synchronize()
made["warm"] = sorted(warm)[len(warm) // 2]
assert second.kernels(x, y) == 1
print(json.dumps(made))
"""


def times(folder):
    done = subprocess.run([sys.executable, "-c", TIMES], env={**os.environ, "TENOR_CACHE_DIR": str(folder)}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_first_calls_and_others_are_short(tmp_path):
    cold, found = times(tmp_path), times(tmp_path)
    assert cold["second"] < 0.4, cold
    assert found["second"] < 0.01, found
    assert min(cold["warm"], found["warm"]) < 1e-5, (cold, found)
