"""Finds the properties, runs their draws, counts what came out."""
import importlib
import os
import re
import time
import warnings
from typing import Callable, NamedTuple

import numpy as np

import tenor
from tenor._tenor import _strategies_of
from tenor.checking.draw import Draw
from tenor.checking.outcome import missing_kernel

_LEARNING_DRAWS = 16  # draws of a property that show which operators it calls


class Property(NamedTuple):
    """One statement about a family's operators."""

    family: str
    name: str
    run: Callable


class Failure(NamedTuple):
    """A draw that ended otherwise than in the reference's result or the contract's error."""

    family: str
    name: str
    seed: int
    error: str

    def __str__(self):
        return f"{self.family}.{self.name} seed {self.seed}: {self.error}"


class Tally:
    """What a run came to: `passed` draws, `refused` calls in them, `skipped` draws (what they drew has nothing to check, or not
    the operator asked for), `failures`, `seconds`, and under `missing` how many draws asked for an operator that the device has
    no kernel for."""

    def __init__(self):
        self.passed, self.refused, self.skipped, self.failures, self.seconds, self.missing = 0, 0, 0, [], 0.0, {}


def properties(families=()):
    """Every property of those families, of all of them for none named. ValueError for an unknown family."""
    here = os.path.dirname(os.path.abspath(__file__))
    known = sorted(name[len("check_"):-len(".py")] for name in os.listdir(here) if name.startswith("check_") and name.endswith(".py"))
    for family in families:
        if family not in known:
            raise tenor.ValueError(f"check: no family is called {family!r}; known: {', '.join(known)}")
    modules = ((f, importlib.import_module(f"tenor.checking.check_{f}")) for f in known if not families or f in families)
    return [Property(f, p.__name__, p) for f, module in modules for p in module.PROPERTIES]


class _Recorder:
    """The module `tenor`, remembering which of its functions were asked for."""

    def __init__(self, module):
        self._module, self.asked = module, set()

    def __getattr__(self, name):
        self.asked.add(name)
        return getattr(self._module, name)


def _draw(prop, seed, tn, prefer):
    """(what came out: None for nothing, else how many calls were refused; the operators that were called)."""
    recorder, outcome = _Recorder(tn), None

    def run():
        nonlocal outcome
        result = prop.run(recorder, Draw(seed, prefer))
        outcome = None if result is None else result.check(tn)

    steps = _strategies_of(run)
    return outcome, recorder.asked | {op for op, _strategy in steps}


def covering(ops, among):
    """The properties that call the operator, or one of several (some draw of theirs does)."""
    ops = {ops} if isinstance(ops, str) else set(ops)
    prefer = next(iter(ops)) if len(ops) == 1 else None
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        likely = [p for p in among if _mentions(p.family, ops)]
        return [p for p in likely if _calls(p, ops, prefer)] or [p for p in among if p not in likely and _calls(p, ops, prefer)]


def _mentions(family, ops):
    """Whether the family's file has one of the names: drawing takes far longer than reading."""
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), f"check_{family}.py"), encoding="utf-8") as file:
        return not ops.isdisjoint(re.findall(r"\w+", file.read()))


def _calls(prop, ops, prefer):
    for seed in range(_LEARNING_DRAWS):
        try:
            called = _draw(prop, seed, tenor, prefer)[1]
        except Exception:  # the run proper will report it
            return True
        if not ops.isdisjoint(called):
            return True
    return False


def check(among, draws, seed=0, most=20, op=None, device="cpu", on_failure=None, on_draw=None):
    """Runs the draws seed, seed + 1, ... of the properties in turn; the Tally.

    Stops after `most` failures. With `op`, its name is preferred wherever operators are picked by name, and only draws
    that called it count. `on_failure(failure)` and `on_draw(i)` are called as they come.
    """
    from tenor.checking.device import OnDevice

    tn = tenor if device == "cpu" else OnDevice(tenor, device)
    tally, start = Tally(), time.perf_counter()
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for i in range(draws):
            prop = among[i % len(among)]
            try:
                refused, called = _draw(prop, seed + i, tn, op) if op else _plain(prop, seed + i, tn)
                if refused is not None and (op is None or op in called):
                    tally.passed += 1
                    tally.refused += refused
                else:
                    tally.skipped += 1
            except Exception as error:
                if lacking := missing_kernel(error):
                    tally.missing[lacking] = tally.missing.get(lacking, 0) + 1
                    continue
                tally.failures.append(Failure(prop.family, prop.name, seed + i, f"{type(error).__name__}: {str(error)[:300]}"))
                if on_failure:
                    on_failure(tally.failures[-1])
                if len(tally.failures) >= most:
                    break
            if on_draw:
                on_draw(i + 1)
    tally.seconds = time.perf_counter() - start
    return tally


def _plain(prop, seed, tn):
    result = prop.run(tn, Draw(seed))
    return (None if result is None else result.check(tn)), ()
