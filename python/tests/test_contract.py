"""matmul, bmm, linear, outer, dot, tensordot, einsum and @ from Python."""
import ml_dtypes
import numpy as np
import pytest

import tenor as tn

bf16 = ml_dtypes.bfloat16
rng = np.random.default_rng(0)


def check(got, want, dtype, tolerance=0.0):
    assert isinstance(got, np.ndarray), "NumPy in, NumPy out"
    assert got.dtype == np.dtype(dtype)
    np.testing.assert_allclose(got.astype(np.float64), np.asarray(want, np.float64), rtol=tolerance, atol=tolerance)


def test_every_rank_of_matmul():
    v, m, b = np.float32([1, 10]), np.float32([[1, 2], [3, 4]]), np.arange(8, dtype=np.float32).reshape(2, 2, 2)
    for x, y in ((v, v), (m, v), (v, m), (v, b), (b, v), (b, m), (m, b), (b, b), (b[None], b[:, None])):
        check(tn.matmul(x, y), x @ y, "float32")
    check(tn.bmm(b, b), b @ b, "float32")
    check(tn.outer(v, np.float32([1, 2, 3])), [[1, 2, 3], [10, 20, 30]], "float32")
    check(tn.dot(v, v), 101, "float32")


def test_an_empty_inner_dim_writes_zeros_and_the_bias():
    out = np.full((4, 1, 9), 7, np.float32)
    assert tn.matmul(np.ones((4, 1, 0), np.float32), np.ones((4, 0, 9), np.float32), out=out) is out
    assert not out.any()
    check(tn.linear(np.ones((2, 0), np.float32), np.ones((3, 0), np.float32), np.float32([1, 2, 3])), [[1, 2, 3]] * 2, "float32")
    check(tn.einsum("ij,jk->ik", np.ones((2, 0), np.float32), np.ones((0, 2), np.float32)), np.zeros((2, 2)), "float32")
    check(tn.dot(np.zeros(0, np.float32), np.zeros(0, np.float32)), 0, "float32")
    check(tn.matmul(np.ones((0, 3), np.float32), np.ones((3, 2), np.float32)), np.zeros((0, 2)), "float32")


def test_expanded_and_transposed_operands():
    a = np.broadcast_to(np.float32([[1, 2], [3, 4]]), (3, 2, 2))
    b = np.arange(12, dtype=np.float32).reshape(3, 2, 2)
    check(tn.matmul(a, b), a @ b, "float32")
    check(tn.bmm(b.transpose(0, 2, 1), a), b.transpose(0, 2, 1) @ a, "float32")
    check(tn.matmul(a[0], np.broadcast_to(np.float32(2), (2,))), [6, 14], "float32")


def test_integers_wrap_in_the_promoted_dtype():
    check(tn.matmul(np.int32([[16777217, 2]]), np.eye(2, dtype=np.int32)), [[16777217, 2]], "int32")
    check(tn.matmul(np.int8([[100, 100]]), np.int8([[2], [2]])), [[-112]], "int8")
    check(tn.matmul(np.int8([[100, 100]]), np.int8([[2], [2]]), dtype="int32"), [[400]], "int32")
    check(tn.matmul(np.uint8([200, 200]), np.int16([2, 3])), 1000, "int16")
    x = np.int64([[2 ** 53 + 1, 2 ** 62]])
    assert tn.matmul(x, np.int64([[1, 0], [0, 2]])).tolist() == [[2 ** 53 + 1, -2 ** 63]]
    with pytest.raises(tn.DTypeError, match="uint64"):
        tn.matmul(np.uint64([1]), np.int8([1]))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_16_bit_is_rounded_once_at_the_end(dtype):
    t = np.dtype(bf16 if dtype == "bfloat16" else dtype)
    big = {"float16": 2048, "bfloat16": 256}[dtype]
    row, ones = np.array([[big, 1, 1, 1]], t), np.ones((4, 1), t)
    check(tn.matmul(row, ones), [[np.float64(t.type(big + 3))]], t)
    check(tn.matmul(row, ones, dtype=tn.float32), [[big + 3]], "float32")
    check(tn.linear(row[:, :2], np.ones((1, 2), t), np.array([2], t)), [[np.float64(t.type(big + 3))]], t)
    check(tn.einsum("ij,jk,k->i", row, ones, np.ones(1, t), dtype="float32"), [big + 3], "float32")
    x, w = (rng.standard_normal((40, 300)).astype(t), rng.standard_normal((50, 300)).astype(t))
    want = x.astype(np.float64) @ w.astype(np.float64).T
    error = np.linalg.norm(tn.linear(x, w).astype(np.float64) - want) / np.linalg.norm(want)
    assert error < {"float16": 2 ** -11, "bfloat16": 2 ** -8}[dtype]


def test_mixed_floats_promote():
    x = np.ones((2, 3), np.float16)
    check(tn.matmul(x, np.ones((3, 2), bf16)), np.full((2, 2), 3), "float32")
    check(tn.matmul(x, np.ones((3, 2), np.float64)), np.full((2, 2), 3), "float64")
    check(tn.matmul(x, np.ones((3, 2), np.int32)), np.full((2, 2), 3), "float16")


@pytest.mark.parametrize("equation", ["ij,jk->ik", "ij,jk", "ij,kj->ki", "ii->i", "ii", "ij->", "ij->j", "i,j->ij", "bij,bjk->bik", "bij,bkj->kbi",
                                      "bhqd,bhkd->bhqk", "bqhd,bkhd->bhqk", "...ij,...jk->...ik", "i...,i", "ij,jk,kl,lm->im", "ij,ij->ij", "ij,ij->",
                                      "abc,cde->abde", "abc,bad->dc", "b...,b...->...", "iji->j", "ij,i,j->", "abcd,d->cab"])
def test_einsum_against_numpy(equation):
    size = dict(zip("abcdehijklmq", (2, 3, 4, 5, 6, 3, 4, 5, 2, 7, 6, 4)))
    shapes = [[n for c in term.replace("...", "*") for n in ((3, 2) if c == "*" else (size[c],))] for term in equation.split("->")[0].split(",")]
    xs = [rng.standard_normal(s).astype(np.float32) for s in shapes]
    check(tn.einsum(equation, *xs), np.einsum(equation, *xs), "float32", 1e-4)
    ints = [(x * 10).astype(np.int32) for x in xs]
    check(tn.einsum(equation, *ints), np.einsum(equation, *ints), "int32")


def test_size_one_broadcasts_in_einsum():
    check(tn.einsum("ij,jk->ik", np.float32([[1], [2]]), np.float32([[1, 2], [3, 4], [5, 6]])), [[9, 12], [18, 24]], "float32")
    check(tn.einsum("i,i->", np.ones(1, np.float32), np.zeros(0, np.float32)), 0, "float32")


def test_tensordot():
    a, b = rng.standard_normal((2, 3, 4)), rng.standard_normal((3, 4, 5))
    check(tn.tensordot(a, b), np.tensordot(a, b), "float64", 1e-12)
    check(tn.tensordot(a, b, 0), np.tensordot(a, b, 0), "float64", 1e-12)
    check(tn.tensordot(a, b, ([2, 1], [1, 0])), np.tensordot(a, b, ([2, 1], [1, 0])), "float64", 1e-12)
    with pytest.raises(tn.ShapeError, match="size 4.*size 3"):
        tn.tensordot(a, b, ([2], [0]))
    with pytest.raises(tn.ValueError, match="dims"):
        tn.tensordot(a, b, 4)


def test_the_operator():
    x = tn.from_dlpack(np.float32([[1, 2], [3, 4]]))
    for y in (x @ x, x @ x.numpy(), x.matmul(x)):
        assert isinstance(y, tn.Tensor) and y.tolist() == [[7, 10], [15, 22]]
    with pytest.raises(TypeError):
        x @ "text"
    with pytest.raises(TypeError):
        2 @ x


def test_batch_invariance():
    for dtype in (np.float32, bf16, np.float16, np.float64):
        x, w = rng.standard_normal((70, 333)).astype(dtype), rng.standard_normal((48, 333)).astype(dtype)
        with tn.batch_invariant():
            rows = tn.linear(x, w)
            for i in (0, 17, 69):
                assert tn.linear(x[i:i + 1].copy(), w).tobytes() == rows[i:i + 1].tobytes()


def test_after_fork_and_between_threads():
    import concurrent.futures
    import multiprocessing
    x = {d: rng.standard_normal((200, 300)).astype(d) for d in (np.float32, bf16)}
    want = {d: tn.matmul(v, v.T) for d, v in x.items()}
    for d, v in x.items():
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            for got in pool.map(lambda _: tn.matmul(v, v.T), range(8)):
                assert got.tobytes() == want[d].tobytes()

    def child(queue):
        queue.put([np.allclose(tn.matmul(v, v.T).astype(np.float32), want[d].astype(np.float32), rtol=1e-2, atol=1e-3) for d, v in x.items()])
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    process = context.Process(target=child, args=(queue,))
    process.start()
    assert queue.get(timeout=60) == [True, True]
    process.join()


def test_errors():
    m, b = np.ones((2, 3), np.float32), np.ones((4, 2, 3), np.float32)
    for fn, words in ((lambda: tn.matmul(m, m), ("matmul", "3", "2")), (lambda: tn.matmul(np.float32(1), m), ("matmul", "dim")),
                      (lambda: tn.matmul(b, np.ones((5, 3, 2), np.float32)), ("matmul", "4", "5")), (lambda: tn.bmm(m, m), ("bmm", "3")),
                      (lambda: tn.linear(m, m.T), ("linear", "3", "2")), (lambda: tn.einsum("ij,jk->ik", m, np.ones((4, 5), np.float32)), ("'j'", "3", "4", "operand 1"))):
        with pytest.raises(tn.ShapeError) as e:
            fn()
        assert all(w in str(e.value) for w in words), str(e.value)
    for equation in ("ij,jk->ik", "ij->iz", "ij->ii", "i.j", "ij->i?"):
        with pytest.raises(tn.ValueError, match="einsum"):
            tn.einsum(equation, m)
    with pytest.raises(tn.DTypeError, match="float8"):
        tn.matmul(m.astype(ml_dtypes.float8_e5m2), m.T)
    with pytest.raises(tn.ShapeError, match="out"):
        tn.matmul(m, m.T, out=np.empty((2, 3), np.float32))


@pytest.mark.parametrize("equation, subscript", [("é", "é"), ("ij→ji", "→"), ("i\ud800", "ud800")])
def test_einsum_names_a_subscript_that_is_no_letter(equation, subscript):
    with pytest.raises(tn.ValueError, match="einsum: .*" + subscript):
        tn.einsum(equation, tn.ones(2, 2))
