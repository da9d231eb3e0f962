"""tenor run gives, through files and words, the bits of the operator's call in Python: every operator that random calls reach."""
import os
import warnings

import ml_dtypes  # noqa: F401  dtypes of the arrays that are drawn
import numpy as np
import pytest
from command_line import run

import tenor
from tenor._cli.signature import signature
from tenor.checking import properties
from tenor.checking.draw import Draw

OPERATORS = {o[0] for o in tenor._tenor._operators()}
DRAWS = 1500
# What a file does not bring along: memory that is not filled or not the caller's own, and strides, which set the order of sums.
NOT_BITS = {"empty", "empty_like"}


class Recorder:
    """The module, keeping calls of its operators: arguments as they were and what came out, copied."""

    def __init__(self, module, prefix, calls):
        self._module, self._prefix, self._calls = module, prefix, calls

    def __getattr__(self, name):
        found, full = getattr(self._module, name), self._prefix + name
        if name in ("moe", "paged"):
            return Recorder(found, name + ".", self._calls)
        if full not in OPERATORS or not callable(found):
            return found

        def call(*args, **options):
            before = [dense(a) for a in args], {k: dense(v) for k, v in options.items()}
            result = found(*args, **options)
            kept = self._calls.setdefault(full, [])
            if len(kept) < 2 and not {"out", "workspace", "strategy"} & options.keys() and not is_strided((args, options)):
                kept.append((*before, [np.array(a) for a in arrays_of(result)]))
            return result

        return call


def dense(value):
    if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
        return [dense(v) for v in value]
    return np.array(value) if isinstance(value, (np.ndarray, tenor.Tensor)) else value


def is_strided(value):
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return any(is_strided(v) for v in value)
    return isinstance(value, np.ndarray) and not value.flags.c_contiguous


def arrays_of(result):
    if hasattr(result, "_arrays"):
        result = list(result._arrays().values())
    return [r for r in (result if isinstance(result, (tuple, list)) else [result]) if r is not None]


class Words:
    """An argument as it is typed; arrays are files."""

    def __init__(self):
        self.files = 0

    def __call__(self, value):
        if isinstance(value, (np.ndarray, np.generic)):
            self.files += 1
            tenor.save(np.asarray(value), f"a{self.files}.npy")
            return f"a{self.files}.npy"
        if isinstance(value, list):
            return "[" + ", ".join(self(v) for v in value) + "]"
        if isinstance(value, (np.dtype, type)):
            return np.dtype(value).name
        return "none" if value is None else str(value)

    def command(self, name, args, options):
        parameters = signature(name).every
        named = [p.name for p in parameters if p.kind == "positional"]
        starred = [self(v) for v in args[len(named):]]
        given = {**dict(zip(named, args)), **options}
        return [name, *(f"--{k}={self(v)}" for k, v in given.items()), *starred]


@pytest.fixture(scope="module")
def calls():
    found, among = {}, properties()
    recorder = Recorder(tenor, "", found)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for seed in range(DRAWS):
            try:
                among[seed % len(among)].run(recorder, Draw(seed))
            except tenor.Error:  # the draw is of arguments that are refused
                pass
    return found


def test_every_operator_through_files(calls, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert len(calls) > 200
    for name, kept in sorted(calls.items()):
        for args, options, want in kept:
            words = Words().command(name, args, options)
            done = run("run", *words, "-o", "result.npz")
            assert done.status == 0, (words, done.err)
            got = [t.numpy() for t in tenor.load("result.npz").values()]
            assert [(g.shape, g.dtype) for g in got] == [(w.shape, w.dtype) for w in want], words
            if name not in NOT_BITS:
                assert all(g.tobytes() == np.ascontiguousarray(w).tobytes() for g, w in zip(got, want)), words
            os.unlink("result.npz")
