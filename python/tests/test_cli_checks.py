"""tenor check, bench and demo."""
import json
import os
import sys
import time

import numpy as np
import pytest
from command_line import run, spawn

import tenor
from tenor import bench, checking, demo
from tenor.checking.draw import FLOATS, Draw
from tenor.checking.outcome import Refused, Same


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("TENOR_CACHE_DIR", str(tmp_path_factory.getbasetemp() / "cache"))


# ---- check --------------------------------------------------------------------------------------------------------------


def test_check_of_everything():
    done = spawn("check", "--draws=700")
    assert done.status == 0 and done.out.startswith("ok: ") and done.err == ""
    facts = run("check", "--draws=700", "--json").json
    assert facts["failures"] == [] and facts["passed"] > 600 and facts["refused"] > 10 and len(facts["properties"]) == len(checking.properties())


def test_check_of_an_operator_and_of_a_family():
    facts = run("check", "softmax", "--draws=200", "--json").json
    assert "row.softmaxes" in facts["properties"] and not any(p.startswith("sort.") for p in facts["properties"]) and facts["passed"] > 50
    assert facts["passed"] + facts["skipped"] == 200
    facts = run("check", "reduce", "--draws=100", "--json").json
    assert {p.split(".")[0] for p in facts["properties"]} == {"reduce"}
    facts = run("check", "expm1", "--draws=100", "--json").json
    assert facts["properties"] == ["elementwise.unary_floats"] and facts["passed"] == 100


def test_every_operator_has_a_check():
    """A new operator needs a property in python/tenor/checking/check_<family>.py."""
    from tenor.checking.harness import _draw

    called = set()
    with np.errstate(all="ignore"):
        for prop in checking.properties():
            for seed in range(60):
                called |= _draw(prop, seed, tenor, None)[1]
    missing = {o[0] for o in tenor._tenor._operators()} - called
    assert {m for m in missing if not checking.covering(m, checking.properties())} == set()


@pytest.fixture
def broken(monkeypatch):
    """softmax gives a wrong number."""
    right = tenor.softmax
    monkeypatch.setattr(tenor, "softmax", lambda *args, **options: np.asarray(right(*args, **options)).astype(np.float64) + 0.25)


def test_a_wrong_operator_is_status_1_and_is_reproduced(broken):
    done = run("check", "softmax", "--draws=50", "--most=3", "--only=softmaxes")
    assert done.status == 1 and done.out.count("FAILED row.softmaxes seed ") == 3
    line = next(line for line in done.out.splitlines() if "again: " in line)
    words = line.split("again: tenor ")[1].split()
    assert words[0] == "check" and "--draws=1" in words
    again = run(*words)
    assert again.status == 1 and again.out.count("FAILED row.softmaxes") == 1
    facts = run("check", "softmax", "--draws=50", "--only=softmaxes", "--json")
    assert facts.status == 1 and facts.json["failures"][0]["family"] == "row" and "expected" in facts.json["failures"][0]["error"]


def test_the_same_seed_draws_the_same():
    one, two = (run("check", "--draws=300", "--seed=5", "--json").json for _ in range(2))
    assert {**one, "seconds": 0} == {**two, "seconds": 0}


def test_processes_draw_what_one_would():
    ignored = {"seconds": 0}
    one = run("check", "--draws=700", "--seed=11", "--json").json
    many = run("check", "--draws=700", "--seed=11", "--jobs=3", "--json").json
    assert {**one, **ignored} == {**many, **ignored}
    assert run("check", "softmax", "--draws=100", "--jobs=2").out.startswith("ok: ")


def test_failures_of_every_process_are_told(monkeypatch):
    found = {"passed": 3, "refused": 0, "skipped": 1, "missing": {"rope": 1}, "draws": 5, "failures": [{"family": "row", "name": "softmaxes", "seed": 4, "error": "wrong"}]}
    from tenor._cli import check_jobs

    monkeypatch.setattr(check_jobs, "_run", lambda args, seed, draws: found)
    done = run("check", "softmax", "--draws=700", "--jobs=2")
    assert done.status == 1 and done.out.count("FAILED row.softmaxes seed 4: wrong") == 2 and "6 draws passed, 2 failed" in done.out
    assert "no kernel on cpu yet: rope (2 draws)" in done.out


def test_a_process_that_crashes_is_a_failure(monkeypatch):
    from tenor._cli import check_jobs

    stderr = 'Fatal Python error: Segmentation fault\n  File "/x/device.py", line 3 in _call\n  File "/x/check_row.py", line 9 in softmaxes\n'
    done = type("Done", (), {"returncode": -11, "stdout": "", "stderr": stderr})
    monkeypatch.setattr(check_jobs.subprocess, "run", lambda *_a, **_o: done)
    told = run("check", "--draws=700", "--jobs=2")
    assert told.status == 1 and "FAILED row.softmaxes seed 0: a process that began with this seed ended with signal 11" in told.out


def test_a_process_that_cannot_run_is_told():
    run("check", "softmax", "--device=cuda:99", "--jobs=2").refused("cuda:99")


def test_operators_without_a_kernel_are_counted_and_named(monkeypatch):
    def missing(*_args, **_options):
        raise tenor.UnsupportedError("softmax: has no CUDA kernel yet; move the arguments to the CPU first")

    monkeypatch.setattr(tenor, "softmax", missing)
    facts = run("check", "row", "--draws=120", "--json")
    assert facts.status == 0 and facts.json["failures"] == [] and facts.json["missing"]["softmax"] > 5
    assert f"no kernel on cpu yet: softmax ({facts.json['missing']['softmax']} draws)" in run("check", "row", "--draws=120").out
    monkeypatch.setattr(tenor, "softmax", lambda *_a, **_o: (_ for _ in ()).throw(tenor.UnsupportedError("softmax: something else")))
    assert run("check", "row", "--draws=120").status == 1  # any other refusal is a failure


@pytest.mark.parametrize("words, said", [
    (["softmx"], ["'softmx'", "'softmax'"]), (["softmax", "--draws=0"], ["--draws", ">= 1"]), (["softmax", "--seed=-1"], ["--seed"]),
    (["softmax", "--only=nothing"], ["--only nothing"]), (["softmax", "--device=gpu"], ["--device gpu"]), (["softmax", "rope"], ["rope"]),
])
def test_mistakes_with_check(words, said):
    run("check", *words).refused(*said)


def test_a_device_that_is_not_there():
    if not tenor.cuda_device_count():
        run("check", "softmax", "--device=cuda").refused("--device cuda")
    run("check", "softmax", "--device=cuda:99").refused("cuda:99")


def test_properties_hold_when_operators_run_elsewhere():
    """What `--device` does, on tensors of this CPU."""
    from tenor.checking.device import OnDevice

    class NoScalars(OnDevice):
        """A NumPy scalar is not uploaded, so beside an array it would be an operand on another device."""

        def _there(self, value, written):
            assert not isinstance(value, np.generic) or isinstance(value, (np.integer, np.bool_)), f"an operand is the scalar {value!r}"
            return super()._there(value, written)

    there = NoScalars(tenor, "cpu")
    with np.errstate(all="ignore"):
        for i, prop in enumerate(checking.properties() * 6):
            outcome = prop.run(there, Draw(i))
            outcome and outcome.check(there)


def test_arrays_keep_their_strides_elsewhere():
    from tenor.checking.device import upload

    kept = 0
    for seed in range(300):
        draw = Draw(seed)
        x = draw.array(draw.shape(), draw.pick(FLOATS), special=0)
        t = upload(tenor, x, "cpu")
        assert t.shape == x.shape and np.array_equal(t.numpy(), x)
        kept += x.size == 0 or all(a * x.itemsize == b or n < 2 for a, b, n in zip(t.strides, x.strides, x.shape))
    assert kept > 250


def test_outcomes_can_fail():
    with pytest.raises(AssertionError, match="shape"):
        Same(np.zeros(2), np.zeros(3)).check(tenor)
    with pytest.raises(AssertionError, match="at \\(1,\\)"):
        Same(np.array([1.0, 2.0]), np.array([1.0, 2.5]), 1e-3).check(tenor)
    with pytest.raises(AssertionError, match="no error"):
        Refused(lambda: None, "ShapeError").check(tenor)
    with pytest.raises(AssertionError, match="DTypeError"):
        Refused(lambda: tenor.softmax(np.zeros(2, np.int32)), "ShapeError").check(tenor)


# ---- bench --------------------------------------------------------------------------------------------------------------

QUICK = ["--rounds=1", "--seconds=0.001"]


def test_bench_of_an_operator(tmp_path):
    file = tmp_path / "records.jsonl"
    done = spawn("bench", "silu_mul", *QUICK, "--vs=none", "--json", f"--record={file}")
    assert done.status == 0
    records = [json.loads(line) for line in done.out.splitlines()]
    assert [json.loads(line) for line in file.read_text().splitlines()] == records
    for r in records:
        assert r["op"] == "silu_mul" and r["device"] == "cpu" and r["ms"] > 0 and r["unit"] == "GB/s" and r["share"] > 0
        assert {"commit", "date", "dtype", "case", "limit", "strategy", "threads", "target", "value"} <= r.keys() and "peer" not in r
    assert "silu_mul" in run("bench", "silu_mul", *QUICK, "--vs=none").out


def case(**more):
    return dict({"op": "neg", "case": "8", "dtype": "float32", "family": "own", "make": lambda rng: [rng.standard_normal(8, np.float32)],
                 "run": lambda tn, x: tn.neg(x), "bytes": 64, "target": "neg/8"}, **more)


def write_targets(tmp_path, **row):
    path = tmp_path / "targets.json"
    path.write_text(json.dumps([{"id": "neg/8", "unit": "ms", "bar": 1e3, "goal": 1e-9, **row}, {"id": "other", "unit": "TB/s", "bar": 1, "goal": 2}]))
    return path


def test_targets_say_which_bars_and_goals_are_met(tmp_path, monkeypatch):
    monkeypatch.setattr(bench, "load_cases", lambda wanted: [case(), case(op="sqrt", target=None)])
    done = run("bench", *QUICK, f"--targets={write_targets(tmp_path)}", "--json")
    record, = map(json.loads, done.out.splitlines())
    assert done.status == 0 and record["bar_met"] and not record["goal_met"] and record["target_value"] == record["ms"]
    done = run("bench", *QUICK, f"--targets={write_targets(tmp_path, bar=1e-9)}")
    assert done.status == 1 and "bar 1e-09 missed" in done.out and "bars met: 0 of 1; goals met: 0 of 1" in done.out
    done = run("bench", *QUICK, f"--targets={write_targets(tmp_path, unit='TB/s', bar=1e-12, goal=1e9)}", "--json")
    assert done.status == 0 and json.loads(done.out)["target_value"] == pytest.approx(json.loads(done.out)["value"] / 1e3, rel=1e-4)
    assert "rows of the file that were not measured: 1" in done_of(tmp_path).out
    run("bench", *QUICK, f"--targets={write_targets(tmp_path, id='nothing')}").refused("none of the cases")


def done_of(tmp_path):
    return run("bench", *QUICK, f"--targets={write_targets(tmp_path)}")


def test_a_budget_ends_a_run(monkeypatch):
    def slow(_tn, x):
        time.sleep(0.05)
        return x

    monkeypatch.setattr(bench, "load_cases", lambda wanted: [case(run=slow), case(op="sqrt", run=slow), case(op="exp", run=slow)])
    tenor.device_limits()  # measured once a process, and no part of a budget
    start = time.monotonic()
    done = run("bench", "--vs=none", "--rounds=20", "--budget=1")
    assert done.status == 0 and time.monotonic() - start < 8 and "not measured: sqrt 8, exp 8" in done.out
    budget = bench.Budget(100, 10)
    rounds, seconds = budget.next(5, 0.08, 2)
    assert (rounds, seconds) == (5, 0.08) and not budget.may_compile() and not bench.Budget(12, 10, True).may_compile()


WARMED = """
import os, time
import numpy as np

def peer(name, act):
    def call(torch, x):
        open(os.path.join(os.environ["MARKS"], name), "a").write(f"{os.getpid()} ")
        act()
    return call

def case(name, act, **more):
    return dict(op="neg", case=name, dtype="float32", make=lambda rng: np.zeros(4, np.float32), run=lambda tn, x: tn.neg(x), peer=peer(name, act), bytes=32, **more)

CASES = [case("quick", lambda: None, compiles=True, peer_name="own 1"), case("broken", lambda: 1 / 0, compiles=True),
         case("slow", lambda: time.sleep(60), compiles=True), case("plain", lambda: None)]
"""
TORCH = """
__version__ = "0"
class Array:
    def __init__(self, x): self.x = x
    def to(self, device): return self.x
from_numpy = Array
"""


@pytest.fixture
def compiling(tmp_path, monkeypatch):
    """A source tree of one bench file whose peers leave marks, and something that passes for PyTorch."""
    (tmp_path / "src/ops/own").mkdir(parents=True)
    (tmp_path / "src/ops/own/own_bench.py").write_text(WARMED)
    (tmp_path / "torch.py").write_text(TORCH)
    monkeypatch.setenv("TENOR_SOURCE", str(tmp_path))
    monkeypatch.setenv("MARKS", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *sys.path]))
    return tmp_path


def test_what_peers_compile_is_done_before_and_within_a_limit(compiling, monkeypatch):
    from tenor import _bench_warm
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    start = time.monotonic()
    seconds, missed = _bench_warm.warm(bench.load_cases(), "cpu", limit=8)
    assert 7 < seconds < 30 and time.monotonic() - start < 30
    assert sorted(c["case"] for c in missed) == ["broken", "slow"]
    assert (compiling / "quick").exists() and (compiling / "broken").exists() and not (compiling / "plain").exists()
    assert _bench_warm.warm([c for c in bench.load_cases() if c["case"] == "plain"], "cpu") == (pytest.approx(0, abs=0.5), [])


def test_a_peer_that_compiles_is_named_and_called_before_the_budget(compiling):
    tree = compiling / "src/ops/own/own_bench.py"
    tree.write_text(WARMED.replace("time.sleep(60)", "None"))
    done = spawn("bench", "neg", *QUICK, "--vs=torch", "--budget=20", "--json")
    assert "peers of 3 cases compiled in" in done.err and "outside of any budget; not done: neg broken\n" in done.err
    records = {r["case"]: r for r in map(json.loads, done.out.splitlines())}
    assert records["quick"]["peer"] == "own 1" and records["slow"]["peer"] == "torch 0" and "ZeroDivisionError" in records["broken"]["peer_error"]
    processes = {name: len(set((compiling / name).read_text().split())) for name in ("quick", "slow", "plain")}
    assert processes == {"quick": 2, "slow": 2, "plain": 1}
    assert "peers of" not in spawn("bench", "neg", *QUICK, "--vs=none").err


def test_half_of_a_budget_is_for_compiling():
    """However many the cases are: a hundred seconds for hundreds of cases compile some of them."""
    budget, compiled = bench.Budget(100, 360, True), 0
    while budget.may_compile():
        budget.compiled(4.0)
        compiled += 1
    assert 8 <= compiled <= 13 and 0 <= budget.for_compiling < 8
    assert bench.Budget(100, 10, True).part() == pytest.approx(5, rel=0.01) and bench.Budget(None, 10, True).may_compile()


def test_what_the_peer_has_not_got_is_no_failure_of_ours(monkeypatch):
    def refuses(_torch, _x):
        raise NotImplementedError('"addmm_cuda" not implemented for Int\nand more')

    monkeypatch.setattr(bench, "to_torch", lambda _torch, x, _device: x)
    record = bench.run_case(case(peer=refuses), type("Torch", (), {"__version__": "0"}), None, 1, 0.001)
    assert record["peer_error"] == 'NotImplementedError: "addmm_cuda" not implemented for Int' and record["ms"] > 0 and "ratio" not in record
    from tenor._cli.cmd_bench import show
    assert "torch: NotImplementedError" in show(record)


def test_the_peer_multiplies_float32_as_exactly_as_this_library():
    """PyTorch's convolutions are in TF32 by default, which is no measure of exact ones."""
    from types import SimpleNamespace as Some
    torch = Some(backends=Some(cudnn=Some(allow_tf32=True), cuda=Some(matmul=Some(allow_tf32=True))))
    assert bench.as_exact(torch) is False and not torch.backends.cudnn.allow_tf32 and not torch.backends.cuda.matmul.allow_tf32
    before = tenor.allow_tf32(True)
    try:
        assert bench.as_exact(torch) and torch.backends.cudnn.allow_tf32 and torch.backends.cuda.matmul.allow_tf32
        assert tenor.allow_tf32(True)
    finally:
        tenor.allow_tf32(before)


def test_a_budget_of_none_and_of_little():
    assert bench.Budget(1, 10).next(5, 0.08, 2)[1] < 0.01 and bench.Budget(None, 1).next(5, 0.08, 2) == (5, 0.08)


def test_operators_without_a_kernel_are_not_measured(monkeypatch):
    def missing(tn, _x):
        raise tenor.UnsupportedError("attention: has no CUDA kernel yet; move the arguments to the CPU first")

    monkeypatch.setattr(bench, "load_cases", lambda wanted: [case(run=missing), case()])
    done = run("bench", *QUICK, "--vs=none")
    assert done.status == 0 and "not measured: no kernel on cpu yet" in done.out and len(done.out.splitlines()) == 3


def test_work_is_what_takes_longer():
    class Limits:
        copy_bytes, float32_flops, bfloat16_flops = 1e9, 1e9, 4e9

        def copy_bytes_of(self, moved):
            return 1e9

    both = {"bytes": 100, "flops": 300, "dtype": "float32"}
    assert bench._work(both, Limits()) == (300, "GFLOP/s", 1e9) and bench._work({**both, "dtype": "bfloat16"}, Limits()) == (100, "GB/s", 1e9)
    assert bench._work({"bytes": 100, "dtype": "float32"}, None) == (100, "GB/s", None) and bench._work({"dtype": "int8"}, Limits())[0] is None


def test_drawn_arrays():
    from tenor._bench_data import bytes_of, integers, normal

    rng = np.random.default_rng(0)
    x, y = normal(rng, "bfloat16", (3, 4), (3000, 3000))
    assert x.dtype.name == "bfloat16" and y.shape == (3000, 3000) and len(np.unique(y[:50].astype(np.float32))) > 500
    assert integers(rng, 7, (5000, 1000)).max() == 6 and bytes_of("bfloat16", (3, 4), (5,)) == 34


def test_a_target_in_flops_of_a_case_that_memory_bounds():
    from tenor._cli.targets import judge
    record = {"ms": 2.0, "value": 500.0, "unit": "GB/s"}
    judged = judge(record, {"unit": "TFLOP/s", "bar": 3, "goal": 5}, {"bytes": 10**9, "flops": 8 * 10**9})
    assert judged["target_value"] == 4 and judged["bar_met"] and not judged["goal_met"]
    assert judge(record, {"unit": "TFLOP/s", "bar": 3, "goal": 5})["target_value"] is None


def test_a_vendors_strategy_does_not_meet_an_own_row():
    from tenor._cli.targets import judge

    row = {"id": "a", "unit": "ms", "bar": 10, "goal": 1, "strategy": "own"}
    assert judge({"ms": 5, "strategy": "implicit_gemm"}, row)["bar_met"] and not judge({"ms": 5, "strategy": "vendor"}, row)["bar_met"]
    assert not judge({"ms": 5, "unit": "GB/s", "value": 3}, {"id": "a", "unit": "TFLOP/s", "bar": 0, "goal": 0})["bar_met"]


def test_a_broken_case_is_status_1_and_hides_no_other(monkeypatch):
    monkeypatch.setattr(bench, "load_cases", lambda wanted: [case(run=lambda tn, x: tn.matmul(x, x[:3])), case()])
    done = run("bench", *QUICK)
    assert done.status == 1 and "failed: ShapeError" in done.out and len(done.out.splitlines()) == 2


@pytest.mark.parametrize("words, said", [
    (["silu_mull"], ["'silu_mull'", "'silu_mul'"]), (["--vs=torc"], ["'torc'", "'torch'"]), (["--rounds=0"], ["--rounds"]),
    (["--seconds=x"], ["--seconds", "a number"]), (["--targets=no.json"], ["no.json", "No such file"]), (["--device=gpu"], ["gpu"]),
    ([f"--targets={__file__}"], ["not JSON"]),
])
def test_mistakes_with_bench(words, said):
    run("bench", *words).refused(*said)


def test_targets_that_are_none(tmp_path):
    path = tmp_path / "t.json"
    for text in ("[1]", "{}", "[]", '[{"id": "a"}]', '[{"id": [], "unit": "ms", "bar": 1, "goal": 1}]', '[{"id": "a", "unit": "ms", "bar": "x", "goal": 1}]', "[" * 100000):
        path.write_text(text)
        run("bench", f"--targets={path}").refused("--targets")


# ---- demo ---------------------------------------------------------------------------------------------------------------


def test_demo():
    done = spawn("demo", "view", "--json")
    assert done.status == 0 and json.loads(done.out)["family"] == "view"
    assert "family" in run("demo", "view").out
    run("demo", "veiw").refused("'veiw'", "'view'")


def test_a_wrong_demo_is_status_1(monkeypatch):
    monkeypatch.setitem(demo.FAMILIES, "view", lambda: [demo.Case("view", "neg", "2", "int64", lambda: tenor.neg(tenor.arange(2)), lambda: [0, 1])])
    done = run("demo", "view")
    assert done.status == 1 and "WRONG" in done.out


def test_the_families_of_ops_are_checked():
    for family, named in (("activation", "row."), ("scan", ".")):
        facts = run("check", family, "--draws=20", "--json").json
        assert facts["properties"] and facts["failures"] == [] and any(named in p for p in facts["properties"])


def test_counts_agree_in_number():
    from tenor._cli.output import bytes_text, count

    assert [bytes_text(n) for n in (0, 1023, 1536, 625999872)] == ["0 B", "1023 B", "1.50 KiB (1536 B)", "597 MiB (625999872 B)"]
    assert [count(1, "draw"), count(2, "draw"), count(1, "property"), count(0, "property")] == ["1 draw", "2 draws", "1 property", "0 properties"]
