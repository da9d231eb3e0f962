"""The command line as a whole: help, names, errors, terminals, pipes; info, ops, completion."""
import json
import os
import pty
import re
import resource
import shutil
import signal
import subprocess
import sys
import time

import pytest
from command_line import run, spawn

import tenor
from tenor._cli import COMMANDS


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("TENOR_CACHE_DIR", str(tmp_path_factory.getbasetemp() / "cache"))
    monkeypatch.delenv("TENOR_DEBUG", raising=False)


# ---- help and names -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", [[], ["--help"], ["-h"], ["help"]])
def test_help_lists_every_command(words):
    done = run(*words)
    assert done.status == 0 and done.err == ""
    for command in COMMANDS:
        assert f"  {command} " in done.out


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_examples(command):
    for words in ([command, "--help"], ["help", command], [command, "-h"]):
        done = spawn(*words)
        assert done.status == 0 and "examples:\n  " in done.out and done.err == ""
        assert max(map(len, done.out.splitlines())) <= 125
    narrow = on_terminal([command, "--help"], columns=70, NO_COLOR="1").split("positional arguments:")[0].split("options:")[0]
    prose = [line for line in narrow.splitlines() if not line.startswith((" ", "usage: "))]
    assert max(map(len, prose)) <= 70 and sum(len(line) > 50 for line in prose) >= 1


def test_version():
    assert run("--version").out == f"tenor {tenor.__version__}\n"


def test_help_is_quick():
    """In processor time, which a busy machine does not stretch."""
    used = lambda: sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])
    times = []
    for _ in range(3):
        before = used()
        assert spawn("--help").status == 0
        times.append(used() - before)
    assert min(times) < 0.25


def test_help_imports_neither_numpy_nor_a_command():
    code = "import sys; from tenor._cli import main; main(['--help']); print([m for m in sys.modules if m == 'numpy' or '.cmd_' in m])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("words, said", [
    (["rnu"], ["tenor: no command is called 'rnu'", "'run'"]),
    (["softmax"], ["softmax is an operator", "tenor run softmax"]),
    (["--jsn"], ["no option is called '--jsn'"]),
    (["ops", "softmx"], ["tenor ops: no operator is called 'softmx'", "'softmax'"]),
    (["ops", "soft"], ["'softmax', 'softplus' or 'softmax_last_axis'"]),
    (["explain"], ["tenor explain: TEXT is missing;"]),
    (["ops", "--family=nrom"], ["'nrom'", "'norm'"]),
    (["ops", "--jsno"], ["unrecognized arguments: --jsno", "'--json'"]),
    (["ops", "a", "b"], ["unrecognized arguments: b"]),
    (["ops", "conv2d"], ["another library's name; here it is 'conv_forward'"]),
    (["ops", ""], ["no operator is called ''"]),
    ([""], ["no command is called ''"]),
    (["ops", "_operators"], ["no operator"]),
    (["ops", "Tensor"], ["no operator"]),
    (["info", "--threads=0"], ["--threads", ">= 1", "'0'"]),
    (["info", "--threads=many"], ["--threads", "'many'"]),
    (["completion"], ["which shell"]),
    (["completion", "bsh"], ["invalid choice: 'bsh'", "'bash'"]),
])
def test_bad_arguments_are_one_line_and_status_2(words, said):
    run(*words).refused(*said)
    spawn(*words).refused(*said)


# ---- how it behaves among other programs --------------------------------------------------------------------------------


def test_a_reader_that_leaves_early_is_no_error():
    command = f"'{sys.executable}' -m tenor ops --json; echo status $? >&2"
    done = subprocess.run(["bash", "-c", f"({command}) | head -n 1"], capture_output=True, text=True)
    assert "Traceback" not in done.stderr and "BrokenPipe" not in done.stderr and done.stderr in ("status 141\n", "status 0\n")


def test_closed_stdout_and_stdin():
    done = subprocess.run(["bash", "-c", f"'{sys.executable}' -m tenor --help <&- >&-"], capture_output=True, text=True)
    assert "Traceback" not in done.stderr


def test_interrupt_is_one_line():
    heed = lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)  # which a shell's background jobs, this one perhaps, are told to ignore
    process = subprocess.Popen([sys.executable, "-m", "tenor", "check", "--draws=10000000"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               text=True, preexec_fn=heed)
    time.sleep(2)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130 and err == "tenor: interrupted\n"


def on_terminal(words, columns=80, **env):
    """What the command writes to a terminal of that width."""
    code = (f"import os, fcntl, termios, struct; fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack('HHHH', 24, {columns}, 0, 0)); "
            f"from tenor._cli import main; os._exit(main({words!r}))")
    master, slave = pty.openpty()
    process = subprocess.Popen([sys.executable, "-u", "-c", code], stdin=slave, stdout=slave, stderr=slave,
                               env={**os.environ, "TERM": "xterm", **env})
    os.close(slave)
    said = b""
    while True:
        try:
            part = os.read(master, 65536)
        except OSError:
            break
        if not part:
            break
        said += part
    process.wait()
    os.close(master)
    return said.decode().replace("\r\n", "\n")


def test_colour_on_a_terminal_alone():
    assert "\x1b[1m" in on_terminal(["ops", "softmax"])
    assert "\x1b" not in on_terminal(["ops", "softmax"], NO_COLOR="1")
    assert "\x1b" not in on_terminal(["ops", "softmax"], TERM="dumb")
    assert "\x1b" not in spawn("ops", "softmax").out


def test_tables_fit_a_narrow_terminal():
    said = on_terminal(["ops"], columns=50, NO_COLOR="1")
    assert max(map(len, said.splitlines())) <= 50 and "…" in said
    assert "…" not in spawn("ops").out


def test_progress_on_a_terminal_after_a_second():
    said = on_terminal(["check", "--draws=30000"], NO_COLOR="1")
    assert "\r\x1b[Kcheck " in said and said.rstrip().splitlines()[-1].rpartition("\x1b[K")[2].startswith("ok: ")
    assert "\x1b" not in spawn("check", "--draws=2000").err


def test_what_goes_wrong_inside_is_one_line(monkeypatch):
    from tenor._cli import cmd_info

    monkeypatch.setattr(cmd_info, "gather", lambda **_: 1 / 0)
    done = run("info")
    assert done.status == 1 and done.err == "tenor info: internal error: ZeroDivisionError: division by zero (TENOR_DEBUG=1 shows where)\n"
    monkeypatch.setattr(cmd_info, "gather", lambda **_: (_ for _ in ()).throw(tenor.OutOfMemoryError("no memory")))
    done = run("info")
    assert done.status == 1 and done.err == "tenor info: out of memory: no memory\n"


# ---- info and ops -------------------------------------------------------------------------------------------------------


def test_info():
    facts = run("info", "--json").json
    assert facts["versions"]["tenor"] == tenor.__version__ and facts["features"]["operators"] > 100
    assert facts["cpu"]["instruction set used"] in facts["features"]["instruction sets"]
    assert facts["limits"].keys() >= {"cpu", "h200", "h100", "a100"}
    for rates in facts["limits"].values():
        assert all(r["value"] > 1e8 and r["unit"] in ("B/s", "FLOP/s", "/s") and r["source"] in ("measured", "data sheet", "assumed") for r in rates.values())
    assert {r["source"] for r in facts["limits"]["h100"].values()} == {"data sheet"} and facts["limits"]["cpu"]["memory copy"]["source"] == "measured"
    assert facts["caches"]["folder"] == os.environ["TENOR_CACHE_DIR"]
    if facts["features"]["CUDA"]:
        assert re.fullmatch(r"\d+ files, [\d.]+ \w+", facts["fusion"]["compiled kernels"]), facts["fusion"]
        assert facts["fusion"]["compiled kernels' folder"].startswith(os.environ["TENOR_CACHE_DIR"])
    assert "limits" not in run("info", "--json", "--no-limits").json
    text = run("info").out
    for section in facts:
        assert f"\n{section}\n" in "\n" + text


def test_output_that_goes_nowhere():
    import subprocess
    import sys

    command = [sys.executable, "-m", "tenor"]
    closed = subprocess.run(["sh", "-c", 'exec "$@" >&-', "sh", *command, "info", "--no-limits"], capture_output=True, text=True)
    assert closed.returncode == 0 and closed.stderr == ""
    if os.path.exists("/dev/full"):
        with open("/dev/full", "w") as full:
            done = subprocess.run([*command, "ops"], stdout=full, stderr=subprocess.PIPE, text=True)
        assert done.returncode == 1 and done.stderr == "tenor ops: No space left on device\n"


def test_info_states_the_threads_asked_for():
    assert spawn("info", "--threads=1", "--json", "--no-limits").json["cpu"]["threads used"] == 1


def test_ops_lists_everything():
    listed = run("ops", "--json").json
    assert {o["name"] for o in listed} == {o[0] for o in tenor._tenor._operators()}
    assert {o["family"] for o in run("ops", "--family=norm", "--json").json} == {"norm"}
    lines = run("ops").out.splitlines()
    assert max(map(len, lines)) <= 100
    assert [line.split()[0] for line in lines[1:] if not line.startswith(" ")] == [o["name"] for o in listed]
    for formula in (o["formula"] for o in listed):  # what has no room goes on below, nothing is cut
        assert formula.replace(" ", "") in "".join(lines).replace(" ", "")


@pytest.mark.parametrize("name", [o[0] for o in tenor._tenor._operators()])
def test_ops_describes_every_operator(name):
    facts = run("ops", name, "--json").json
    assert facts["name"] == name and facts["formula"] and facts["doc"] and facts["source"]
    assert facts["signature"].startswith(name + "(")
    text = run("ops", name).out
    assert max(map(len, text.splitlines())) <= 100
    assert "".join(facts["doc"].split()) in "".join(text.split())


def test_ops_of_one():
    facts = run("ops", "attention", "--json").json
    assert facts["strategies"] == tenor.strategies("attention") and facts["class"] == "contraction"
    assert facts["dtypes"] == ["float64", "float32", "float16", "bfloat16"]
    assert {"name": "causal", "type": "bool | str | None", "required": False, "default": False} in facts["parameters"]
    assert run("ops", "bitwise_left_shift", "--json").json["dtypes"] == ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
    text = run("ops", "softmax").out
    assert text.startswith("softmax(x: array, dim: int = -1, *, out: array | tuple[array, ...] | None = None)\n") and "float64, float32, float16, bfloat16\n" in text
    assert run("run", "softmax", "--help").out == text


# ---- completion ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("typed, found", [
    (["ru"], ["run"]), (["completion", ""], ["bash", "fish", "zsh"]), (["run", "softm"], ["softmax", "softmax_last_axis"]),
    (["run", "attention", "--str"], ["--strategy="]), (["run", "softmax", "--keep"], []), (["run", "sum", "--keep"], ["--keepdim"]),
    (["run", "attention", "--strategy=fl"], ["--strategy=flash_tensorcore", "--strategy=flash_unit"]),
    (["run", "softmax", "x"], []), (["bench", "--vs", ""], ["none", "torch"]), (["check", "--dr"], ["--draws"]), (["nope", "x"], []),
    (["ops", "--f"], ["--family"]), (["demo", "nor"], ["norm"]),
])
def test_completions(typed, found):
    assert run("completion", "--words", "tenor", *typed).out.split() == found


def test_the_bash_script_completes():
    script = run("completion", "bash").out
    ask = script + """
tenor() { '%s' -m tenor "$@"; }
COMP_LINE='tenor run attention --strategy=fal'; COMP_POINT=${#COMP_LINE}; _tenor; echo "${COMPREPLY[@]}"
COMP_LINE='tenor run soft'; COMP_POINT=${#COMP_LINE}; _tenor; echo "${COMPREPLY[@]}"
COMP_LINE='tenor '; COMP_POINT=${#COMP_LINE}; _tenor; echo "${COMPREPLY[@]}"
""" % sys.executable
    done = subprocess.run(["bash", "-c", ask], capture_output=True, text=True)
    first, second, third = done.stdout.splitlines()
    assert first == "fallback" and "softmax" in second.split() and set(COMMANDS) <= set(third.split()), done.stderr


@pytest.mark.skipif(not shutil.which("fish"), reason="fish is not installed")
def test_the_fish_script_completes(tmp_path):
    tenor_command = tmp_path / "tenor"
    tenor_command.write_text(f"#!/bin/sh\nexec '{sys.executable}' -m tenor \"$@\"\n")
    tenor_command.chmod(0o755)
    ask = 'tenor completion fish | source; complete -C "tenor run softm"; complete -C "tenor run attention --strategy=fal"'
    done = subprocess.run(["fish", "-c", ask], capture_output=True, text=True, env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"})
    assert done.stdout.split() == ["softmax", "softmax_last_axis", "--strategy=fallback"], done.stderr


@pytest.mark.skipif(not shutil.which("zsh"), reason="zsh is not installed")
def test_the_zsh_script_is_read_by_zsh(tmp_path):
    (tmp_path / "_tenor").write_text(run("completion", "zsh").out)
    assert subprocess.run(["zsh", "-n", tmp_path / "_tenor"], capture_output=True).returncode == 0


def test_json_is_json_everywhere():
    for words in (["info", "--no-limits"], ["ops"], ["ops", "sort"], ["check", "softmax", "--draws=20"], ["run", "zeros", "2,3"]):
        json.loads(run(*words, "--json").out)


def test_ops_says_which_strategies_can_be_asked_for():
    assert "strategy=flash_unit" in run("ops", "attention").out and "not by an argument" in run("ops", "matmul").out
    facts = run("ops", "attention", "--json").json
    assert facts["strategy_argument"] and set(facts["not_on_cpu"]) == {"flash_tensorcore"}
    assert run("ops", "matmul", "--json").json["strategy_argument"] is False
