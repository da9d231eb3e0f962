"""Autotuning from Python and `tenor tune`."""
import json
import os
import subprocess
import sys

import numpy as np
import pytest
from command_line import run, spawn

import tenor
from tenor import bench


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TENOR_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def autotuning():
    previous = tenor.autotune(True)
    yield
    tenor.autotune(previous)


def draw(*shape):
    return np.random.default_rng(0).standard_normal(shape, np.float32)


def remembered():
    return tenor._tenor._tunings()


def test_the_switch_returns_what_it_was():
    assert tenor.autotune(True) is False and tenor.autotune(False) is True and tenor.autotune(False) is False


def test_the_environment_switches_it_on():
    code = "import tenor; print(tenor.autotune(False))"
    for value, said in (("1", "True"), ("0", "False"), ("", "False")):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, "TENOR_AUTOTUNE": value})
        assert done.stdout.strip() == said


def test_a_problem_is_measured_once_and_kept_on_disk(own_cache, autotuning):
    x, y = draw(48, 96), draw(96, 40)
    want = x.astype(np.float64) @ y
    assert np.allclose(tenor.matmul(x, y), want, rtol=1e-5, atol=1e-5)
    (entry,) = remembered()
    assert entry["op"] == "matmul" and entry["problem"].startswith("48x96x40 a=float32[96,1]") and entry["winner"] in entry["microseconds"]
    assert len(entry["microseconds"]) > 1 and set(entry["microseconds"]) <= set(tenor.strategies("matmul")) - {"reference"}
    file = json.loads((own_cache / "tuning.json").read_text())
    assert file["entries"][0]["problem"] == entry["problem"]
    written = (own_cache / "tuning.json").stat().st_mtime_ns
    assert np.array_equal(tenor.matmul(x, y), tenor.matmul(x, y)) and (own_cache / "tuning.json").stat().st_mtime_ns == written
    tenor.matmul(x.T.copy().T, y)  # other strides are another problem
    assert len(remembered()) == 2


def test_what_is_remembered_is_taken(own_cache, autotuning):
    x, y = draw(48, 96), draw(96, 40)
    tenor.matmul(x, y)
    file = json.loads((own_cache / "tuning.json").read_text())
    slowest = max(file["entries"][0]["microseconds"], key=lambda pair: pair[1])[0]
    file["entries"][0]["winner"] = slowest
    (own_cache / "tuning.json").write_text(json.dumps(file))
    code = "import numpy as np, tenor\nprint(tenor._tenor._strategies_of(lambda: tenor.matmul(np.zeros((48, 96), 'f'), np.zeros((96, 40), 'f'))))"
    for on, taken in (("1", slowest), ("0", file["entries"][0]["microseconds"][0][0])):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, "TENOR_AUTOTUNE": on})
        assert done.stdout.strip() == str([("matmul", taken)]), done.stderr


def test_nothing_is_measured_where_it_may_not_be(autotuning):
    x, y = draw(8, 8), draw(8, 8)
    with tenor.batch_invariant():
        tenor.matmul(x, y)
    tenor.matmul(tenor.empty(8, 8, device="meta"), tenor.empty(8, 8, device="meta"))
    tenor.matmul(np.zeros((0, 8)), y.astype(float))
    assert remembered() == []
    tenor.autotune(False)
    tenor.matmul(x, y)
    assert remembered() == []


def test_an_output_over_an_input_is_right(autotuning):
    x = draw(32, 32)
    want = x.astype(np.float64) @ x
    tenor.matmul(x, x, out=x)
    assert np.allclose(x, want, rtol=1e-4, atol=1e-4)


# ---- the command --------------------------------------------------------------------------------------------------------


def case(**more):
    return dict({"op": "matmul", "case": "24", "dtype": "float32", "family": "contract", "make": lambda rng: (draw(24, 24), draw(24, 24)),
                 "run": lambda tn, a, b: tn.matmul(a, b)}, **more)


@pytest.fixture
def small(monkeypatch):
    integers = case(case="int", dtype="int32", make=lambda rng: (np.ones((8, 8), np.int32),) * 2)
    monkeypatch.setattr(bench, "load_cases", lambda: [case(), integers, case(op="softmax")])


def test_tune(small, own_cache):
    first, second = run("tune", "matmul", "--json").json
    assert first["winner"] in first["microseconds"] and first["gain"] >= 1 and first["usual"] == next(iter(first["microseconds"]))
    assert second["note"] == "one strategy takes it" and second["usual"] == second["winner"] == "integer"
    written = (own_cache / "tuning.json").stat().st_mtime_ns
    assert run("tune", "matmul", "--json").json[0]["microseconds"] == first["microseconds"]
    assert (own_cache / "tuning.json").stat().st_mtime_ns == written  # remembered
    run("tune", "matmul", "--again", "--json")
    assert (own_cache / "tuning.json").stat().st_mtime_ns != written  # measured once more, whether or not it took as long
    assert len(remembered()) == 1 and tenor.autotune(False) is False
    assert "one strategy takes it" in run("tune").out


def test_tune_of_ones_own_shapes():
    done = spawn("tune", "linear", "bf16[16,64]", "bf16[32,64]")
    assert done.status == 0 and "linear" in done.out and "bfloat16" in done.out
    assert remembered()[0]["problem"].startswith("16x64x32 a=bfloat16")
    (row,) = run("tune", "matmul", "f32[8,9]", "f32[9,8]", "--json").json
    assert row["winner"] in row["microseconds"]


def test_show_and_forget(small):
    assert "nothing is remembered" in run("tune", "--show").out
    run("tune", "matmul")
    shown = run("tune", "--show").out
    assert "24x24x24" in shown and tenor.__version__ in shown
    assert run("tune", "linear", "--show", "--json").json == run("tune", "--show", "--json").json == remembered()
    assert run("tune", "attention", "--show", "--json").json == []
    assert run("tune", "attention", "--forget").out == "forgotten: 0\n"
    assert run("tune", "--forget", "--json").json == {"forgotten": 1} and remembered() == []


def test_again_leaves_other_machines_alone(small, own_cache):
    run("tune", "matmul")
    file = json.loads((own_cache / "tuning.json").read_text())
    mine = file["entries"][0]
    file["entries"] += [dict(mine, machine="NVIDIA H200"), dict(mine, version="0.0.1")]
    (own_cache / "tuning.json").write_text(json.dumps(file))
    done = spawn("tune", "matmul", "f32[24,24]", "f32[24,24]", "--again", "--json")
    assert done.status == 0 and done.json[0]["winner"] in dict(mine["microseconds"])
    assert {(t["machine"], t["version"]) for t in spawn("tune", "--show", "--json").json} == {
        (mine["machine"], mine["version"]), ("NVIDIA H200", mine["version"])}  # an older version's is of no use any more


def test_a_broken_table_is_ignored_with_a_warning(own_cache):
    own_cache.mkdir()
    (own_cache / "tuning.json").write_text("{broken")
    done = spawn("tune", "--show")
    assert done.status == 0 and "nothing is remembered" in done.out and "tuning.json is no tuning table" in done.err
    done = spawn("tune", "matmul", "f32[8,8]", "f32[8,8]")
    assert done.status == 0 and json.loads((own_cache / "tuning.json").read_text())["entries"]


@pytest.mark.parametrize("words, said", [
    (["matmul", "f32[2,3]", "f32[3,2]", "--device=cuda:99"], ["--device cuda:99"]),
    (["matmull"], ["'matmull'", "'matmul'"]), (["softmax"], ["softmax has one way only", "matmul"]), (["linear", "bf16[2,3]"], ["weight is missing"]),
    (["linear", "bf17[2,3]"], ["'bf17'"]), (["linear", "x.npy"], ["'x.npy'", "bf16[4096,8192]"]), (["matmul", "f32[2,3]", "f32[2,3]"], ["matmul"]),
    (["attention_varlen"], ["attention_varlen has no benchmark cases"]),
])
def test_mistakes(words, said):
    run("tune", *words).refused(*said)


def engine_entry(op, **more):
    return dict({"op": op, "problem": "cuDNN 9.19.0's engine: forward bfloat16 N1", "machine": "H200", "version": tenor.__version__, "winner": "67 2:1",
                 "microseconds": [["67 2:1", 40.0], ["73", 46.0]]}, **more)


def test_engines_of_a_library(own_cache):
    """They are remembered by the direction that they compute, whichever operator asked."""
    own_cache.mkdir()
    entries = [engine_entry("conv_forward"), engine_entry("conv_data_backward"), engine_entry("conv_forward_nhwc", problem="forward bfloat16 N2")]
    (own_cache / "tuning.json").write_text(json.dumps({"format": 1, "entries": entries}))

    def shown(op):
        return sorted((t["op"], t["problem"][:5]) for t in run("tune", op, "--show", "--json").json)

    assert shown("conv_forward_nhwc") == [("conv_forward", "cuDNN"), ("conv_forward_nhwc", "forwa")]
    assert shown("conv_transpose_data_backward") == [("conv_forward", "cuDNN")]
    assert shown("conv_transpose") == [("conv_data_backward", "cuDNN")]
    assert run("tune", "conv_transpose", "--forget").out == "forgotten: 1\n"
    assert run("tune", "conv_forward", "--forget").out == "forgotten: 1\n" and [t["op"] for t in remembered()] == ["conv_forward_nhwc"]


def test_engines_in_a_row():
    """The strategy's row says which engine it stands for; where there is one strategy, the row is that of its engines."""
    from tenor._cli.cmd_tune import _row

    engines = engine_entry("conv_forward", microseconds={"67 2:1": 40.0, "73": 46.0})
    strategies = engine_entry("conv_forward", problem="forward", winner="vendor", microseconds={"implicit_gemm": 50.0, "vendor": 40.0})
    row = _row("conv_forward", "case", "bfloat16", [engines, strategies])
    assert (row["usual"], row["winner"], row["gain"]) == ("implicit_gemm", "vendor", 1.25)
    assert row["note"] == "implicit_gemm 50.0 us, vendor 40.0 us, cuDNN 9.19.0 engine 67, of 2 measured"
    assert _row("conv_forward", "case", "bfloat16", [engines])["winner"] == "67 2:1"
