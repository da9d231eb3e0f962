"""tenor.fuse: kernels, structures, fallbacks and errors; bits are those of the function itself."""
import collections
import os
import subprocess
import sys
import threading

import numpy as np
import pytest

import tenor as tn
from fused_calls import bits, normal, rng, same, softmax


def layer_norm(x, gamma, beta):
    centred = x - x.mean(-1, keepdim=True)
    return centred * ((centred * centred).mean(-1, keepdim=True) + 1e-5).rsqrt() * gamma + beta


def rope(x, cos, sin):
    half = x.shape[-1] // 2
    a, b = x[..., :half], x[..., half:]
    return tn.cat([a * cos - b * sin, a * sin + b * cos], -1)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
def test_expressions_of_the_article(dtype):
    x = tn.asarray(normal(6, 5, 64)).to(dtype)
    gate, up = (tn.asarray(normal(30, 100)).to(dtype) for _ in range(2))
    gamma, beta = (tn.asarray(normal(64)).to(dtype) for _ in range(2))
    same(softmax, x)
    same(layer_norm, x, gamma, beta)
    same(lambda g, u: g * g.sigmoid() * u, gate, up)
    same(lambda v: v / (v * v).sum(-1, keepdim=True).sqrt(), x)
    same(lambda v: v.logsumexp(-1) - v.amax(-1), x)
    same(lambda v: (v.transpose(-1, -2) * 2 + 1).relu(), x)
    fused = tn.fuse(rope)
    cos, sin = (tn.asarray(normal(5, 32)).to(dtype) for _ in range(2))
    assert bits(fused(x, cos, sin)) == bits(rope(x, cos, sin))


def test_explain_shows_the_kernels_that_run():
    def fn(x, w):
        return softmax(x * 2) @ w + 1

    x, w = normal(33, 65), normal(65, 9)
    planned = [k for k in tn.explain(fn, x, w).kernels if k.strategy == "fused"]
    assert tn.fuse(fn).kernels(x, w) == len(planned) == 1
    assert bits(tn.fuse(fn)(x, w)) == bits(fn(tn.asarray(x), tn.asarray(w)))


def test_results_keep_their_structure_and_library():
    Pair = collections.namedtuple("Pair", "a b")
    fused = tn.fuse(lambda x: {"y": x * 2, "more": [x.sum(), (None, 3)], "pair": Pair(x + 1, "text")})
    x = normal(3, 4)
    got = fused(x)
    assert isinstance(got["y"], np.ndarray) and isinstance(fused(tn.asarray(x))["y"], tn.Tensor)
    assert got["more"][1] == (None, 3) and type(got["pair"]) is Pair and got["pair"].b == "text"
    np.testing.assert_array_equal(got["pair"].a, x + 1)
    assert tn.fuse(lambda x: (x + 1,))(x)[0].shape == (3, 4)


def test_gathers_feed_kernels():
    ids, weight, gamma = rng.integers(-50, 50, (3, 7)), normal(50, 40), normal(40)

    def embedded(ids, weight, gamma):
        x = weight[ids]
        return x * (x * x).mean(-1, keepdim=True).rsqrt() * gamma

    same(embedded, ids, weight, gamma)
    same(lambda i, w, g: tn.embedding(i, w) * 2 + g, ids, weight, gamma)
    same(lambda x, i: x.logsumexp(-1, keepdim=True) - tn.gather(x, -1, i), normal(6, 9), rng.integers(0, 9, (6, 1)))
    fused = tn.fuse(embedded)
    ids[1, 2] = 50
    with pytest.raises(tn.IndexError, match=r"index_get: indices\[0\] at .*2.* is 50, out of range(.|\n)*test_fuse.py:\d+: x = weight"):
        fused(ids, weight, gamma)


def test_errors_are_the_functions_own_with_its_line():
    fused = tn.fuse(lambda x, y: (x + y).tanh())
    with pytest.raises(tn.ShapeError, match=r"add: .*\(2, 3\)"):
        fused(normal(2, 3), normal(2, 4))
    take = tn.fuse(lambda x, i: tn.index_select(x * 2, 0, i))
    take(normal(4, 3), np.array([1, 3]))
    with pytest.raises(tn.IndexError, match=r"is 9, out of range(.|\n)*test_fuse.py:\d+: take = "):
        take(normal(4, 3), np.array([1, 9]))
    with pytest.raises(tn.DTypeError, match="fast"):
        tn.fuse(lambda x: x, fast=1)
    with pytest.raises(tn.DTypeError, match="function"):
        tn.fuse(3)
    with pytest.raises(tn.DTypeError, match="no argument|unexpected|array"):
        tn.fuse(lambda x: tn.sum(x, axes=1))(normal(3))


def test_empty_and_single():
    for shape in ((), (0,), (1,), (0, 5), (1, 1)):
        x = normal(*shape)
        assert bits(tn.fuse(lambda v: (v * 2 + 1).exp() / 3)(x)) == bits((tn.asarray(x) * 2 + 1).exp() / 3)
    x = normal(3, 0)
    assert bits(tn.fuse(lambda v: v - v.sum(-1, keepdim=True))(x)) == bits(tn.asarray(x))
    assert bits(tn.fuse(lambda v: (v + 1).sum(-1))(x)) == bits(np.zeros(3, np.float32))


def test_modes_hold_where_they_are():
    x, w = normal(4, 64), normal(64, 8)
    product = tn.fuse(lambda x, w: (x @ w) * 2)
    with tn.batch_invariant():
        assert bits(product(x, w)) == bits((tn.asarray(x) @ tn.asarray(w)) * 2)
    assert bits(product(x, w)) == bits((tn.asarray(x) @ tn.asarray(w)) * 2)

    @tn.fuse
    def inside(x, w):
        with tn.batch_invariant():
            y = x @ w
        return y * 2

    assert "batch_invariant" in inside.why_not(x, w)
    assert bits(inside(x, w)) == bits(inside._fn(tn.asarray(x), tn.asarray(w)))


def test_functions_may_stand_in_each_other():
    inner = tn.fuse(softmax)
    same(lambda x: inner(x * 2) + 1, normal(6, 9))
    assert len(tn.explain(inner, normal(6, 9)).steps) == len(tn.explain(softmax, normal(6, 9)).steps)
    x = normal(3)
    assert bits(tn.fuse(lambda x, s: x * s)(x, np.float32(2.5))) == bits(tn.asarray(x) * np.float32(2.5))


def test_creation_inside():
    fused = same(lambda x: tn.where(x > 0, x, tn.zeros_like(x)) + tn.full((1,), 2.0), normal(5, 6))
    assert fused.why_not(normal(5, 6)) is None


def test_many_threads_share_a_function():
    fused, x = tn.fuse(softmax), [normal(n, 50 + n) for n in range(1, 9)]
    want = [bits(softmax(tn.asarray(v))) for v in x]
    wrong = []

    def run(k):
        for i in range(40):
            if bits(fused(x[(i + k) % 8])) != want[(i + k) % 8]:
                wrong.append((k, i))

    threads = [threading.Thread(target=run, args=(k,)) for k in range(6)]
    [t.start() for t in threads], [t.join() for t in threads]
    assert not wrong


def test_thread_counts_give_the_same_bits():
    before = tn.get_num_threads()
    fused, x = tn.fuse(softmax), normal(70, 9000)
    try:
        got = []
        for n in (1, 2, 5):
            tn.set_num_threads(n)
            got.append(bits(tn.fuse(softmax)(x)))
            got.append(bits(fused(x)))
    finally:
        tn.set_num_threads(before)
    assert len(set(got)) == 1


def test_it_can_be_switched_off():
    code = "import tenor as tn, numpy as np; f = tn.fuse(lambda x: (x * 2 + 1).tanh()); x = np.ones((3, 4), np.float32)\nprint(f.why_not(x), f.kernels(x), f(x).shape)"
    out = subprocess.run([sys.executable, "-c", code], env={**os.environ, "TENOR_FUSE": "0"}, capture_output=True, text=True)
    assert out.stdout.strip() == "TENOR_FUSE=0 is set 0 (3, 4)", out.stderr


def test_a_decorator_keeps_what_it_decorates():
    @tn.fuse
    def scale(x, by=2):
        """x times by."""
        return x * by

    assert scale.__doc__ == "x times by." and scale.__name__ == "scale"
    assert bits(tn.fuse(fast=False)(lambda x: x + 1)(np.ones(2, np.float32))) == bits(np.full(2, 2, np.float32))


def test_torch_in_torch_out():
    torch = pytest.importorskip("torch")
    x = torch.randn(5, 7)
    fused = tn.fuse(softmax)
    got = fused(x)
    assert isinstance(got, torch.Tensor) and bits(got.numpy()) == bits(softmax(tn.asarray(x.numpy())))


def test_interrupts_of_a_trace_go_on():
    kinds = iter((KeyboardInterrupt, SystemExit, MemoryError))

    @tn.fuse
    def fn(x):
        if kind := next(kinds, None):
            raise kind
        return (x + 1).tanh()

    x = normal(3, 4)
    for kind in (KeyboardInterrupt, SystemExit, MemoryError):
        with pytest.raises(kind):
            fn(x)
    assert fn.why_not(x) is None and fn.kernels(x) == 1


def test_an_error_names_no_line_of_another():
    take = tn.fuse(lambda x, i: tn.index_select(x * 2, 0, i))
    take(normal(4, 3), np.array([1, 3]))
    table = next(iter(take._tables.values()))
    with pytest.raises(tn.IndexError):
        table.run([normal(4, 3), np.array([1, 9])])  # nobody asks where
    with pytest.raises(tn.DTypeError) as error:
        tn.fuse(lambda x: x * 2)(np.array(["text"]))
    assert "take = " not in str(error.value)
    with pytest.raises(tn.IndexError, match="take = "):
        take(normal(4, 3), np.array([1, 9]))
    assert table.failed_at() == ""


def test_fast_lets_contractions_take_epilogues():
    x, w, b, r = normal(40, 64), normal(48, 64), normal(48), normal(40, 48)
    fn = lambda x, w, b, r: tn.gelu(tn.linear(x, w, b)) * 0.5 + r
    fused = tn.fuse(fn, fast=True)
    assert fused.why_not(x, w, b, r) is None and fused.kernels(x, w, b, r) == 1
    wide = fn(*(tn.asarray(a.astype(np.float64)) for a in (x, w, b, r))).numpy()
    assert np.abs(fused(x, w, b, r) - wide).max() < 1e-4
    explained = tn.explain(fused, x, w, b, r)
    assert len(explained.kernels) == 1 and "epilogue" in explained.kernels[0].strategy and not explained.intermediates
    assert len(tn.explain(tn.fuse(fn), x, w, b, r).kernels) == 2

    @tn.fuse(fast=True)
    def declined(x, w):
        return tn.softmax(tn.linear(x, w).exp())
    cuts = tn.explain(declined, x, w).cuts
    assert "exp is no epilogue step" in cuts[0].reason
    assert bits(declined(x, w)) == bits(tn.softmax(tn.linear(tn.asarray(x), tn.asarray(w)).exp()))


def test_errors_that_the_function_catches():
    def guarded(x):
        try:
            return x[tn.asarray(np.array([0, -1]))] * 2
        except tn.Error:
            return x - 1

    def sized(x):
        try:
            return x + tn.ones((7,))
        except tn.ShapeError:
            return x * 3 + 1

    def read(x):
        try:
            return x * 2 if float(x.sum()) > 0 else x * 3
        except Exception:
            return x - 1

    x = np.ones((3, 4), np.float32)
    for fn in (guarded, sized, read):
        fused = tn.fuse(fn)
        for v in (x, -x):
            assert bits(fused(v)) == bits(fn(tn.asarray(v)))
            assert "catches an error" in fused.why_not(v)
    assert tn.fuse(softmax).why_not(x) is None


def test_errors_of_contents_that_the_function_catches():
    def picked(x, index):
        try:
            return (x[index] * 2).exp()
        except IndexError:
            return x - 1

    def renamed(x, index):
        try:
            return (x[index] * 2).exp()
        except IndexError:
            raise LookupError("its own") from None

    x = normal(5, 4)
    fused = tn.fuse(picked)
    good, bad = np.array([0, 4]), np.array([0, 5])
    for arrays in ((x, good), (x, bad), (tn.asarray(x), tn.asarray(good)), (tn.asarray(x), tn.asarray(bad)), (x, good)):
        assert bits(fused(*arrays)) == bits(picked(*map(tn.asarray, arrays)))
        assert fused.why_not(*arrays) is None
    with pytest.raises(LookupError, match="its own") as error:
        tn.fuse(renamed)(x, bad)
    assert type(error.value) is LookupError
    with pytest.raises(IndexError, match="test_fuse.py:"):
        tn.fuse(lambda x, index: (x[index] * 2).exp())(x, bad)


def test_errors_have_no_context_of_the_key():
    def fails(x, unknown):
        raise RuntimeError("its own")

    with pytest.raises(RuntimeError, match="its own") as error:
        tn.fuse(fails)(normal(3), iter([1]))
    assert error.value.__context__ is None
