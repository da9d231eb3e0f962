"""What every operator makes of its arguments: numbers beyond their types, scalars that a dtype cannot hold, masked arrays, odd bools."""
import numpy as np
import pytest

import tenor as tn

WIDE = 2**70
X = np.arange(6, dtype=np.float32).reshape(2, 3)

REFUSED = {
    "linspace": lambda n: tn.linspace(0, 1, n),
    "eye": lambda n: tn.eye(n),
    "eye m": lambda n: tn.eye(2, n),
    "one_hot": lambda n: tn.one_hot(np.arange(3), n),
    "bincount": lambda n: tn.bincount(np.arange(3), minlength=n),
    "multinomial": lambda n: tn.multinomial(X, n, replacement=True, seed=1),
    "group_norm": lambda n: tn.group_norm(X, n),
    "rope_tables": lambda n: tn.rope_tables(n, 4),
    "rope_tables rotary_dim": lambda n: tn.rope_tables(4, n),
    "rope": lambda n: tn.rope(np.zeros((2, 1, 4), np.float32), *tn.rope_tables(2, 4), rotary_dim=n),
    "narrow start": lambda n: tn.narrow(X, 0, n, 1),
    "narrow length": lambda n: tn.narrow(X, 0, 0, n),
    "unfold size": lambda n: tn.unfold(X, 0, n, 1),
    "topk": lambda n: tn.topk(X, n),
    "kthvalue": lambda n: tn.kthvalue(X, n),
    "repeat_interleave": lambda n: tn.repeat_interleave(X, n),
    "repeat_interleave output_size": lambda n: tn.repeat_interleave(X, np.ones(6, np.int64), output_size=n),
    "roll": lambda n: tn.roll(X, n),
    "tile": lambda n: tn.tile(X, n),
    "split": lambda n: tn.split(X, [n, 1]),
    "select": lambda n: tn.select(X, 0, n),
    "chunk of nothing": lambda n: tn.chunk(np.zeros((0, 2), np.float32), n),
    "norm": lambda n: tn.norm(X, n),
    "layer_norm": lambda n: tn.layer_norm(X, np.ones(3, np.float32), epsilon=n * 2**1000),
    "attention": lambda n: tn.attention(X[None, None], X[None, None], X[None, None], scale=n * 2**1000),
    "set_num_threads": tn.set_num_threads,
    "stream": lambda n: tn.Stream(n),
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("n", [WIDE, -WIDE])
def test_integers_beyond_64_bits_are_the_contract_s_error(name, n):
    with pytest.raises((tn.ValueError, tn.IndexError, tn.ShapeError)):
        REFUSED[name](n)


def test_bounds_beyond_64_bits_bound_nothing():
    assert np.array_equal(tn.slice(X, 0, -WIDE, WIDE), X) and tn.slice(X, 0, 0, 2, WIDE).shape == (1, 3)
    assert np.array_equal(tn.tril(X, WIDE), X) and not tn.tril(X, -WIDE).any() and not tn.triu(X, WIDE).any()
    for offset in (WIDE, -WIDE, 2**63 - 1, -2**63):
        assert tn.diagonal(X, offset).shape == (0,)
    assert len(tn.chunk(X, WIDE, 1)) == 3 and tn.unfold(X, 1, 2, WIDE).shape == (2, 1, 2)
    assert np.array_equal(tn.leaky_relu(-X - 1, 10**400), np.full((2, 3), -np.inf))
    with pytest.raises(tn.ValueError, match="chunk: expected at most"):
        tn.chunk(np.zeros((0, 2), np.float32), 2**40)
    with pytest.raises(tn.ValueError, match="unbind: expected at most"):
        tn.unbind(tn.expand(tn.zeros(1), 2**40))
    with pytest.raises(tn.ValueError, match="split: expected at most"):
        tn.split(tn.expand(tn.zeros(1), 2**40), 1)
    with pytest.raises(tn.ShapeError, match="64 bits"):
        tn.reshape(X, (2**40, 2**40))
    with pytest.raises(TypeError):
        tn.layer_norm(X, np.ones(3, np.float32), epsilon="1")


WRITES = {
    "masked_fill": lambda x, v: tn.masked_fill(x, np.ones(3, bool), v),
    "masked_fill_": lambda x, v: tn.masked_fill_(x, np.ones(3, bool), v),
    "fill_": tn.fill_,
    "copy_": tn.copy_,
    "pad": lambda x, v: tn.pad(x, (0, 3), value=v)[3:],
    "scatter": lambda x, v: tn.scatter(x, 0, np.arange(3), value=v),
    "scatter_add": lambda x, v: tn.scatter_add(np.zeros_like(x), 0, np.arange(3), value=v),
    "index_put": lambda x, v: tn.index_put(x, [np.arange(3)], v),
    "index_add": lambda x, v: tn.index_add(np.zeros_like(x), 0, np.arange(3), np.ones_like(x), alpha=v),
    "full": lambda x, v: tn.full((3,), v, dtype=x.dtype).numpy(),
    "full_like": tn.full_like,
    "setitem": lambda x, v: (lambda t: (t.__setitem__(slice(None), v), t.numpy())[1])(tn.asarray(x)),
    "setitem at": lambda x, v: (lambda t: (t.__setitem__([0, 1, 2], v), t.numpy())[1])(tn.asarray(x)),
}


@pytest.mark.parametrize("name", WRITES)
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int64", "uint64"])
def test_scalars_that_do_not_fit_are_refused(name, dtype):
    x = np.arange(3).astype(dtype)
    beyond = 2.0**64 if dtype == "uint64" else 2.0**63
    for value in (1.5, -0.5, np.nan, np.inf, beyond, int(beyond), -(2**63) - 1):
        with pytest.raises(tn.ValueError, match="fit"):
            WRITES[name](x, value)
    assert np.array_equal(x, np.arange(3))
    for value in (2.0, 2, True):
        got = np.asarray(WRITES[name](x.copy(), value))
        assert got.dtype == dtype and (got == int(value)).all()


def test_scalars_beside_floats_and_bools():
    assert tn.full_like(X, 2**64 - 1)[0, 0] == 2.0**64 and tn.masked_fill(X, X > 2, 1.5).max() == 2
    assert tn.index_add(X[0], 0, np.arange(3), X[0], alpha=2**63)[1] == 1 + 2.0**63
    flags = np.zeros(3, bool)
    assert tn.full_like(flags, 2).all() and tn.logical_or(flags, 0.5).all()
    with pytest.raises(tn.ValueError, match="0.5 does not fit bool"):
        tn.fill_(flags, 0.5)
    assert tn.asarray(1.5, dtype="int32").item() == tn.asarray([1.5], dtype="int32").item() == 1  # asked to convert


def test_masked_arrays_are_refused():
    masked = np.ma.masked_array(X, X > 2)
    for call in (lambda: tn.sum(masked), lambda: tn.add(X, masked), lambda: tn.asarray(masked), lambda: tn.add(X, X, out=masked),
                 lambda: tn.add(X, np.ma.masked), lambda: tn.cat([X, masked])):
        with pytest.raises(tn.UnsupportedError, match="masked array"):
            call()
    assert tn.sum(masked.filled(0)) == 3 and tn.sum(masked.data) == 15


@pytest.mark.parametrize("layout", ["dense", "transposed", "strided", "repeated"])
def test_any_byte_but_0_is_true(layout):
    bytes_ = np.random.default_rng(0).integers(0, 256, (37, 90)).astype(np.uint8)
    bytes_[::3] //= 128
    bytes_[5] = 0
    seen = {"dense": lambda x: x, "transposed": lambda x: x.T, "strided": lambda x: x[1::2, ::3],
            "repeated": lambda x: np.broadcast_to(x[:, :1], (37, 8))}[layout]
    odd, plain = seen(bytes_.view(bool)), seen(bytes_ != 0)
    values = np.arange(plain.size, dtype=np.float32).reshape(plain.shape)
    for fn in (tn.sum, lambda x: tn.sum(x, 0), tn.mean, lambda x: tn.where(x, values, 0), lambda x: tn.masked_select(values, x), tn.nonzero,
               lambda x: tn.eq(x, True), lambda x: tn.add(x, 1), lambda x: tn.to(x, "float32"), lambda x: tn.cumsum(x, 1), lambda x: tn.sort(x, 1).indices,
               lambda x: tn.max(x, 0).indices, lambda x: tn.unique(x, return_counts=True).counts, lambda x: tn.matmul(x, x.T), tn.logical_not,
               lambda x: tn.asarray(values)[tn.asarray(x)].numpy(), lambda x: tn.cat([x, x]).view(np.uint8), lambda x: np.array(tn.asarray(x).tolist())):
        assert np.array_equal(fn(odd), fn(plain))
    if layout != "repeated":
        written = tn.logical_or_(odd, False)
        assert written is odd and np.array_equal(odd.view(np.uint8) if odd.base is None or odd.flags.c_contiguous else odd.astype(np.uint8), plain)
        assert bytes_.max() == 1 or layout == "strided"
    out = np.full(plain.shape, 7, np.uint8).view(bool)
    assert np.array_equal(tn.logical_not(plain, out=out).view(np.uint8), ~plain)
