"""Random calls against independent references: what `tenor check` and tests/fuzz/fuzz.py run.

A family's file check_<family>.py lists its properties in `PROPERTIES`: functions of (tenor, draw) that call an operator
and return `Same(got, want, tol)`, `Refused(call, kinds)` for arguments that must be refused, or None where the draw had
nothing to say. A draw is reproduced by its property and seed.
"""
from tenor.checking.harness import Failure, Property, Tally, check, covering, properties

__all__ = ["Failure", "Property", "Tally", "check", "covering", "properties"]
