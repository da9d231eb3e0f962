"""tenor.device_limits and the table of python -m tenor.demo."""
import json

import pytest

import tenor as tn
from tenor import demo


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("TENOR_CACHE_DIR", str(tmp_path_factory.getbasetemp() / "cache"))


def test_limits_are_measured_once():
    limits = tn.device_limits()
    assert limits._fields == ("copy_bytes", "float32_flops", "bfloat16_flops")
    assert min(limits) > 1e8
    assert tn.device_limits() == limits


def test_a_row_states_strategy_error_time_and_share(capsys):
    assert demo.main(["view", "rope", "--json"]) == 0
    view, rope = map(json.loads, capsys.readouterr().out.splitlines())
    assert view["family"] == "view" and view["share"] is None and view["error"] == 0
    assert rope["error"] < 1e-6 and rope["ms"] > 0 and rope["share"] > 0 and rope["bound"] == "memory"


def test_every_family_with_operators_has_a_row():
    assert {o[1] for o in tn._tenor._operators()} == set(demo.FAMILIES)


def test_drawn_tokens_are_the_reference_s():
    for case in demo.sampling_cases():
        assert demo.error_of(case.run()[: case.rows], case.want()) == 0


def test_the_strategy_is_the_one_taken():
    case = next(demo.attention_cases())
    assert demo.strategy_of(case) == "flash_unit"


def test_a_wrong_result_is_status_1(monkeypatch, capsys):
    monkeypatch.setitem(demo.FAMILIES, "view", lambda: [demo.Case("view", "neg", "2", "int64", lambda: tn.neg(tn.arange(2)), lambda: [0, 1])])
    assert demo.main(["view"]) == 1
    assert "WRONG" in capsys.readouterr().out


def test_an_unknown_family_is_status_2(capsys):
    assert demo.main(["veiw"]) == 2
    assert "'veiw'" in capsys.readouterr().err


def test_a_device_that_is_not_there_is_status_2(capsys):
    assert demo.main(["view", "--device=cuda:99"]) == 2 and "cuda:99" in capsys.readouterr().err


def test_a_gpu_is_timed_by_calls_in_a_row():
    calls = []
    before, demo.PLACE = demo.PLACE, "cpu"
    try:
        assert 0 < demo.best_average(lambda: calls.append(0), 0.001) < 1 and len(calls) >= 60
    finally:
        demo.PLACE = before
