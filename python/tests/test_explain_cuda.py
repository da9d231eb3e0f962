"""explain, autotuning and limits on a CUDA device; skipped where there is none."""
import json

import numpy as np
import pytest
from command_line import run

import tenor as tn

pytestmark = pytest.mark.skipif(tn.cuda_device_count() == 0, reason="no CUDA device")


@pytest.fixture(scope="module", autouse=True)
def own_cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("cache")
        patch.setenv("TENOR_CACHE_DIR", str(folder))
        yield folder


def test_arrays_are_explained_where_they_are():
    x = tn.zeros(64, 64, device="cuda")
    e = tn.explain("x @ x", x=x)
    assert e.device == "cuda:0" and e.kernels[0].strategy in tn.strategies("matmul") and "NVIDIA" in e.device_source
    assert tn.explain("x @ x", x=x, device="cpu").device == "cpu"
    assert {limit.name: limit.source for limit in e.limits}["memory copy"] == "measured"


def test_measuring():
    e = tn.explain("y = x.exp()\ny.T.contiguous() + torch.ones(1)", x="f32[4096,4096]", device="cuda", measure=True)
    assert all(s.time_us > 0 and 0.2 < s.share < 1.1 for s in e.steps if not s.view and s.bytes_written > 1 << 20), str(e)
    assert "events on the current stream" in " ".join(e.remarks) and all(len(line) <= 100 for line in str(e).splitlines())


def test_arrays_move_to_the_device_that_is_measured():
    x = np.full((64, 64), 2, np.float32)
    there = tn.asarray(x, device="cuda")
    assert tn.explain("x.mul_(3)", x=x, device="cuda", measure=True).steps[0].time_us > 0 and x[0, 0] == 2
    assert tn.explain("x.mul_(3)", x=there, device="cpu", measure=True).device == "cpu"
    assert np.asarray(tn.to(there, device="cpu"))[0, 0] == 2


def test_a_function_and_a_torch_tensor():
    torch = pytest.importorskip("torch")
    x = torch.rand(1024, 1024, device="cuda", dtype=torch.bfloat16)
    e = tn.explain(lambda a: tn.softmax(a, dim=-1), x, measure=True)
    assert e.device == "cuda:0" and e.steps[0].time_us > 0


def test_the_limits_of_the_device():
    limits = tn.device_limits(device="cuda")
    assert limits.copy_bytes > 3e11 and limits.bfloat16_flops > limits.float32_flops > 5e12
    assert tn.device_limits(device="cuda") == limits != tn.device_limits()


def test_the_command():
    found = run("explain", "x @ w", "x=bf16[16,4096]", "w=bf16[4096,4096]", "--device=cuda", "--measure", "--json").json
    assert found["device"] == "cuda:0" and found["steps"][0]["time_us"] > 0
    info = run("info", "--json").json
    assert "NVIDIA" in info["cuda"]["devices"][0] and info["limits"]["cuda:0"]["memory copy"]["source"] == "measured"


def test_tuning(own_cache):
    (row,) = run("tune", "matmul", "bf16[8,4096]", "bf16[4096,1024]", "--device=cuda", "--json").json
    assert row["winner"] in row["microseconds"] and len(row["microseconds"]) > 1
    entries = json.loads((own_cache / "tuning.json").read_text())["entries"]
    assert any("cuBLASLt" in entry["machine"] for entry in entries)
    assert "cuBLASLt" in run("tune", "--show").out
