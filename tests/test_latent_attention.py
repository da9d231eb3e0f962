"""examples/latent_attention: serving from the cache with absorbed weights equals the layer as its formula reads."""
import importlib.util
import os
import sys

import pytest

import tenor as tn

EXAMPLE = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "examples", "latent_attention")
sys.path.append(EXAMPLE)
import layer  # noqa: E402

SPEC = importlib.util.spec_from_file_location("latent_attention_main", os.path.join(EXAMPLE, "main.py"))
example = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(example)

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not tn.cuda_device_count(), reason="no GPU"))]


def run(monkeypatch, *args):
    monkeypatch.setattr(sys, "argv", ["main.py", *map(str, args)])
    return example.main()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", sorted(example.TOLERANCE))
def test_absorbed_equals_unabsorbed(monkeypatch, capsys, dtype, device):
    assert run(monkeypatch, "--dtype", dtype, "--device", device) == 0, capsys.readouterr().out
    assert run(monkeypatch, "--dtype", dtype, "--device", device, "--prompts", 1, 16, 17, 90, "--page-size", 8, "--steps", 3, "--seed", 1) == 0, capsys.readouterr().out


def test_a_wrong_absorption_is_noticed(monkeypatch, capsys):
    right = layer.expand
    monkeypatch.setattr(layer, "expand", lambda context, w_uv: right(context, w_uv * 1.001))
    assert run(monkeypatch, "--device", "cpu") == 1 and "0 copies" in capsys.readouterr().out


def test_a_copy_is_noticed(monkeypatch, capsys):
    right = example.absorb
    monkeypatch.setattr(example, "absorb", lambda q, w: right(q.contiguous(), w))
    assert run(monkeypatch, "--device", "cpu") == 1 and "1 copies" in capsys.readouterr().out
