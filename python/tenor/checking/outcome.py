"""What a draw must end in."""
import numpy as np

from tenor.checking.draw import wide


def host(x):
    """Any array as NumPy's, from any device."""
    return x.numpy() if hasattr(x, "numpy") else np.asarray(x)


def missing_kernel(error):
    """The operator that says it has no kernel for its arguments' device; None of another error."""
    text = str(error)
    return text.partition(":")[0] if type(error).__name__ == "UnsupportedError" and ": has no CUDA kernel yet" in text else None


class Same:
    """`got` equals `want`: shape, and values within tol (absolute and relative; 0 means exactly; NaN equals NaN)."""

    def __init__(self, got, want, tol=0.0, note=""):
        self.got, self.want, self.tol, self.note = got, want, tol, note

    def check(self, _tenor):
        got, want = host(self.got), np.asarray(self.want)
        assert got.shape == want.shape, f"{self.note} shape {got.shape}, expected {want.shape}"
        got, want = wide(got), wide(want)
        if self.tol == 0 and got.dtype.kind != "f":
            good = got == want
        else:
            good = np.isclose(got.astype(np.float64), want.astype(np.float64), rtol=self.tol, atol=self.tol, equal_nan=True)
        if not np.all(good):
            at = np.unravel_index(int(np.argmin(good)), good.shape) if good.ndim else ()
            raise AssertionError(f"{self.note} at {tuple(map(int, at))}: got {got[at]}, expected {want[at]}")
        return 0


class Each:
    """Several outcomes of one draw."""

    def __init__(self, *outcomes):
        self.outcomes = outcomes

    def check(self, tenor):
        return sum(o.check(tenor) for o in self.outcomes)


class Refused:
    """`call()` raises a tenor.Error of one of these kinds, and leaves `untouched` as it is."""

    def __init__(self, call, *kinds, untouched=None):
        self.call, self.kinds, self.untouched = call, kinds, untouched

    def check(self, tenor):
        before = None if self.untouched is None else np.array(self.untouched)
        try:
            self.call()
        except tenor.Error as error:
            if missing_kernel(error):  # it stands before the checks: nothing is known of them there
                raise
            assert type(error).__name__ in self.kinds, f"raised {type(error).__name__} ({error}), expected {self.kinds}"
        else:
            raise AssertionError(f"no error, expected {self.kinds}")
        if before is not None:
            assert before.tobytes() == np.array(self.untouched).tobytes(), "the output was written before the error"
        return 1
