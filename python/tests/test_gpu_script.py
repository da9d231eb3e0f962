"""tools/gpu.sh on a machine that only pretends to have a GPU: what it runs, what it tells, when it fails."""
import os
import pathlib
import subprocess

import pytest

SCRIPT = pathlib.Path(__file__).parents[2] / "tools" / "gpu.sh"


def program(path, text):
    path.write_text("#!/bin/bash\n" + text)
    path.chmod(0o755)


@pytest.fixture
def machine(tmp_path):
    """Two test programs, one of which fails its second piece, and tools that write down how they were called."""
    for folder in ("bin", "build/tests", "package/tenor"):
        (tmp_path / folder).mkdir(parents=True)
    program(tmp_path / "bin/nvidia-smi", "echo 'GPU 0: pretended'")
    program(tmp_path / "bin/compute-sanitizer", f'echo "$@" >> {tmp_path}/called\nwhile [[ $1 == --* ]]; do [[ $1 == --*=* ]] && shift || shift 2; done\nexec "$@"')
    program(tmp_path / "bin/python", f'echo "python $@" >> {tmp_path}/called; echo "ok: 5 draws passed"')
    listing = 'if [ "$1" = --gtest_list_tests ]; then echo "NormCudaCapture."; echo "  One"; exit; fi\n'
    program(tmp_path / "build/tests/norm_test", listing + f'echo "norm $GTEST_SHARD_INDEX of $GTEST_TOTAL_SHARDS $*" >> {tmp_path}/called; echo "1 tests ran"')
    program(tmp_path / "build/tests/sort_test", listing + '[ "$GTEST_SHARD_INDEX" != "$FAILING" ] || { echo "[  FAILED  ] Sort"; exit 1; }; echo "1 tests ran"')
    program(tmp_path / "build/tests/core_test", "[ \"$1\" = --gtest_list_tests ] || exit 1")  # nothing of it matches

    def run(*words, failing="none"):
        env = {**os.environ, "PATH": f"{tmp_path}/bin:{os.environ['PATH']}", "FAILING": failing}
        words = [f"--build={tmp_path}/build", f"--package={tmp_path}/package", f"--python={tmp_path}/bin/python", f"--out={tmp_path}/out", "--jobs=3", *words]
        done = subprocess.run(["bash", SCRIPT, *words], capture_output=True, text=True, timeout=60, env=env)
        called = (tmp_path / "called").read_text() if (tmp_path / "called").exists() else ""
        return done, called

    return run


def test_the_pieces_of_every_program_are_run(machine):
    done, called = machine("test")
    assert done.returncode == 0, done.stdout + done.stderr
    assert sorted(line.split()[1] for line in called.splitlines()) == ["0", "1", "2", "3"] and "all steps passed" in done.stdout


def test_a_failing_piece_is_told_and_the_other_steps_run(machine):
    done, called = machine("test", "racecheck", failing="1")
    assert done.returncode == 1 and "[  FAILED  ] Sort" in done.stdout and "failed: test" in done.stdout and "failed: racecheck" in done.stdout
    assert "--tool racecheck" in called and "*CudaCapture*" in called


def test_sanitizers_and_check(machine):
    done, called = machine("memcheck", "check", "--draws=77")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "--tool memcheck" in called and "check --device=cuda --draws=1000" in called and "python -m tenor check --device=cuda --draws=77 --jobs=3" in called


def test_a_benchmark_without_a_record_failed(machine):
    done, called = machine("bench", "--budget=30")
    assert done.returncode == 1 and "failed: bench" in done.stdout and "--budget=30" in called


def test_mistakes():
    done = subprocess.run(["bash", SCRIPT, "tset"], capture_output=True, text=True)
    assert done.returncode == 2 and "what is tset for?" in done.stderr
    assert "--bundle=FILE" in subprocess.run(["bash", SCRIPT, "--help"], capture_output=True, text=True).stdout
    done = subprocess.run(["bash", SCRIPT, "test"], capture_output=True, text=True, env={**os.environ, "PATH": "/usr/bin:/bin"})
    if "GPU 0" not in subprocess.run("nvidia-smi -L || true", shell=True, capture_output=True, text=True).stdout:
        assert done.returncode == 2 and "no NVIDIA GPU" in done.stderr
