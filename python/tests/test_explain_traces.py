"""What is traced is what runs: the random calls of tenor.checking, each also on shapes alone, give the same shapes and dtypes, and
plans that add up."""
import numpy as np
import pytest

import tenor as tn
from tenor import checking
from tenor._explain import convert, tensors_of
from tenor._tenor import _Recorder, _traced
from tenor.checking.draw import Draw

# Their results' sizes, or what they check, depend on data, and they say so.
ON_DATA = (tn.UnsupportedError,)


class Both:
    """tenor, whose every function also runs on shapes."""

    def __init__(self):
        self.compared = 0

    def __getattr__(self, name):
        fn = getattr(tn, name)
        if not callable(fn) or isinstance(fn, type) or name in ("asarray", "from_dlpack", "strategies", "einsum_path"):
            return fn

        def call(*args, **kwargs):
            shapes = [convert(list(args), _traced), convert(kwargs, _traced)]
            try:
                result = fn(*args, **kwargs)
            except (tn.ShapeError, tn.DTypeError) as error:
                if tensors_of(shapes):
                    with pytest.raises(type(error)):
                        fn(*shapes[0], **shapes[1])
                raise
            self.compare(name, fn, shapes, result)
            return result
        return call

    def compare(self, name, fn, shapes, result):
        recorder = _Recorder("h200")
        args, kwargs = shapes
        if kwargs.get("device") is None and not tensors_of(args) + tensors_of(list(kwargs.values())):
            return  # creation: nothing says that shapes are meant
        try:
            with recorder:
                traced = fn(*args, **kwargs)
        except ON_DATA:
            return
        want = [tn.asarray(x) for x in arrays_of(result)]
        got = tensors_of(traced)
        assert [(x.shape, x.dtype) for x in got] == [(x.shape, x.dtype) for x in want], name
        e = recorder.explain(got, [], None)
        assert e.bytes_needed <= e.bytes_moved <= sum(s.bytes_read + s.bytes_written for s in e.steps) + 2 * sum(c.bytes for c in e.copies), name
        assert sorted(i for k in e.kernels for i in k.steps) == list(range(len(e.steps))), name
        self.compared += 1


def arrays_of(value):
    if isinstance(value, (np.ndarray, np.generic, tn.Tensor)):
        return [value]
    return [x for v in value for x in arrays_of(v)] if isinstance(value, (list, tuple)) else []


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("prop", checking.properties(), ids=lambda p: f"{p.family}-{p.name}")
def test_traces_agree_with_runs(prop):
    both = Both()
    for seed in range(40):
        try:
            outcome = prop.run(both, Draw(seed))
            if outcome is not None:
                outcome.check(both)
        except tn.Error:
            pass  # of a call that must be refused


def test_the_comparison_compares():
    both = Both()
    both.softmax(np.ones((2, 3), np.float32), dim=0)
    both.gather(tn.ones([2, 3]), 1, np.zeros((2, 1), np.int64))
    assert both.compared == 2
    with pytest.raises(AssertionError):
        both.compare("exp", tn.exp, [[_traced(np.ones(3, np.float32))], {}], np.ones(4, np.float32))
