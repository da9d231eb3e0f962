"""tenor explain: what the command adds to tenor.explain."""
import json
import os
import re

import numpy as np
import pytest
from command_line import run, spawn

import tenor

ROWS = ["x / x.sum(-1, keepdim=True)", "x=bf16[4096,8192]", "--device=h200"]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TENOR_CACHE_DIR", str(tmp_path / "cache"))
    np.save("x.npy", np.ones((4, 8), np.float32))


def test_text_and_json_are_those_of_the_package():
    explained = tenor.explain(ROWS[0], x="bf16[4096,8192]", device="h200")
    done = spawn("explain", *ROWS)
    assert done.status == 0 and done.err == "" and done.out == f"{explained}\n"
    found = run("explain", *ROWS, "--json").json
    assert found == (json.loads(explained.to_json()) if isinstance(explained.to_json(), str) else explained.to_json())
    assert [s["op"] for s in found["steps"]] == ["sum", "div"]


def test_arrays_by_name_by_file_unnamed_and_numbers():
    ops = lambda *words: [s["op"] for s in run("explain", *words, "--json").json["steps"]]
    assert ops("a @ b", "f32[4,5]", "f32[5,6]") == ops("a @ b", "a=f32[4,5]", "b=f32[5,6]") == ["matmul"]
    assert run("explain", "x.exp()", "x=x.npy", "--json").json["steps"][0]["shape"] == [4, 8]
    assert run("explain", "x[..., :d]", "x=f32[4,8]", "d=4", "--json").json["steps"][0]["shape"] == [4, 4]
    assert spawn("explain", "-", "x=f32[2]", "--json", input="y = x + 1\ny.exp()\n").json["steps"][1]["op"] == "exp"


def test_measuring():
    step, = run("explain", "x.exp()", "x=x.npy", "--measure", "--json").json["steps"]
    assert step["time_us"] > 0 and step["share"] is not None


def test_the_roofline(tmp_path):
    assert run("explain", *ROWS, "--svg=roof.svg").status == 0
    assert (tmp_path / "roof.svg").read_text().lstrip().startswith("<svg")
    run("explain", *ROWS, "--svg=no/roof.svg").refused("no/roof.svg", "No such file")


def test_a_narrow_terminal_and_one_without_colour(monkeypatch):
    import pty
    import subprocess
    import sys

    def on_terminal(columns, **env):
        reader, writer = pty.openpty()
        done = subprocess.run([sys.executable, "-m", "tenor", "explain", "(x @ x).exp().sum(-1) + x.mean()", "x=f32[64,64]", "--device=h200"], stdout=writer,
                              env={**os.environ, "COLUMNS": str(columns), "TERM": "xterm", **env})
        os.close(writer)
        assert done.returncode == 0
        chunks = []
        try:
            while chunk := os.read(reader, 1 << 16):
                chunks.append(chunk)
        except OSError:  # the end of a terminal
            pass
        os.close(reader)
        return b"".join(chunks).decode()

    narrow = on_terminal(64)
    assert "\x1b[" in narrow and max(len(re.sub("\x1b\\[[0-9;]*m", "", line)) for line in narrow.splitlines()) <= 64
    assert "\x1b[" not in on_terminal(120, NO_COLOR="1") and "\x1b[" not in on_terminal(120, TERM="dumb")


@pytest.mark.parametrize("words, said", [
    ([], ["TEXT"]),
    (["x + z", "x=f32[2]"], ["tenor explain: unknown name 'z'"]),
    (["x +", "x=f32[2]"], ["'x +'"]),
    (["x + y", "x=f32[4,8]", "y=f32[3,8]"], ["add", "4", "3"]),
    (["x", "x=f32[2]", "x=f32[3]"], ["given twice"]),
    (["x", "3"], ["what is '3' for"]),
    (["x", "x=nofile.npy"], ["nofile.npy: no such file"]),
    (["x", "x=f33[2]"], ["x: dtype: expected a name", "'f33'"]),
    (["x", "x=f32[99999999999,99999999999]"], ["x: tensor: shape (99999999999, 99999999999)"]),
    (["foo(x)", "x=f32[2]"], ["unknown name 'foo'; no operator has that name"]),
    (["x", "x=f32[2"], ["f32[2"]),
    (["x.exp()", "x=f32[2]", "--device=h2000"], ["h2000", "h200"]),
    (["x.exp()", "x=f32[2]", "--device="], ["'cuda'", "got ''"]),
    (["x.exp()", "x=f32[2]", "--device=a100", "--measure"], ["no a100", "'cpu' or 'cuda'"]),
    (["x.exp()", "x=f32[2]", "--device=cuda:99"], ["cuda:99", "h200, h100 or a100"]),
    (["x.exp()", "x=f32[2]", "--measur"], ["--measur", "'--measure'"]),
])
def test_mistakes(words, said):
    run("explain", *words).refused(*said)


def test_self_s_weights_and_joined_lines():
    assert "mul" in run("explain", "x * self.weight", "x=f32[4]", "self.weight=f32[4]", "--device=h200").out
    run("explain", "x / x.sum(-1)", "x=f32[3,4]", "--device=h200").refused("dim -1; in x / x.sum(-1); sum dropped dim 1")


def test_what_is_no_svg_and_what_no_memory_holds_is_refused(tmp_path):
    run("explain", "x.exp()", "x=f32[4]", f"--svg={tmp_path}/roof.png").refused("must end in .svg")
    assert not (tmp_path / "roof.png").exists()
    for shape in ("f32[99999999999999999999]", "f32[9999999999,9999999999]"):
        run("explain", "x.exp()", f"x={shape}", "--device=h200").refused("9999999999")
