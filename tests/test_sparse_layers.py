"""examples/sparse_layers: served layers equal their formulas in NumPy's float64 and, where it is installed, transformers' modules."""
import importlib.util
import os
import sys

import pytest

import tenor as tn

EXAMPLE = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "examples", "sparse_layers")
sys.path.append(EXAMPLE)
import deepseek_v3  # noqa: E402
import qwen3_next  # noqa: E402

SPEC = importlib.util.spec_from_file_location("sparse_layers_main", os.path.join(EXAMPLE, "main.py"))
example = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(example)

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not tn.cuda_device_count(), reason="no GPU"))]


def run(monkeypatch, *args):
    monkeypatch.setattr(sys, "argv", ["main.py", *map(str, args)])
    return example.main()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", sorted(example.TOLERANCE))
def test_layers_equal_their_formulas(monkeypatch, capsys, dtype, device):
    assert run(monkeypatch, "--dtype", dtype, "--device", device, "--peer", "none") == 0, capsys.readouterr().out
    assert run(monkeypatch, "--dtype", dtype, "--device", device, "--peer", "none", "--batch", 1, "--prompt", 7, "--steps", 3, "--seed", 1) == 0, capsys.readouterr().out


@pytest.mark.parametrize("device", DEVICES)
def test_layers_equal_those_of_transformers(monkeypatch, capsys, device):
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    assert run(monkeypatch, "--device", device, "--peer", "transformers", "--prompt", 70, "--steps", 2) == 0, capsys.readouterr().out


@pytest.mark.parametrize("module, operator", [(qwen3_next.tn, "gated_delta_gate"), (qwen3_next.tn, "gated_rms_norm"), (qwen3_next.tn, "rope"), (qwen3_next.tn, "causal_conv1d")])
def test_a_wrong_operator_is_noticed(monkeypatch, capsys, module, operator):
    right = getattr(module, operator)

    def wrong(x, *rest, **options):
        return right(x * 1.001, *rest, **options)
    monkeypatch.setattr(module, operator, wrong)
    assert run(monkeypatch, "--device", "cpu", "--peer", "none", "--prompt", 20, "--steps", 1) == 1 and "FAILED" in capsys.readouterr().out


def test_a_wrong_choice_of_experts_is_noticed(monkeypatch, capsys):
    right = deepseek_v3.moe.route_sigmoid_grouped
    monkeypatch.setattr(deepseek_v3.moe, "route_sigmoid_grouped", lambda logits, bias, **options: right(logits, bias * 3, **options))
    assert run(monkeypatch, "--device", "cpu", "--peer", "none", "--prompt", 40, "--steps", 1) == 1 and "FAILED" in capsys.readouterr().out
