"""workspace= and tenor.workspace_size. What a GPU takes is tested in C++ (src/cuda/workspace_test.cpp) and, where there is one, here."""
import numpy as np
import pytest

import tenor as tn

X = np.random.default_rng(0).standard_normal((6, 40)).astype(np.float32)
IMAGE, FILTER = X.reshape(2, 3, 4, 10)[..., :6].copy(), X.reshape(-1)[:9].reshape(3, 3, 1, 1)
LAST = IMAGE.transpose(0, 2, 3, 1).copy()
CALLS = {
    "sort": (X,), "argsort": (X,), "topk": (X, 3), "kthvalue": (X, 2), "median": (X, 1), "sum": (X, 0), "mean": (X,), "prod": (X,), "amax": (X, 1), "argmin": (X, 1),
    "max": (X, 1), "var": (X, 1), "norm": (X,), "logsumexp": (X, 1), "any": (X,), "cumsum": (X, 1), "cummax": (X, 1), "logcumsumexp": (X, 0),
    "matmul": (X, X.T.copy()), "linear": (X, X), "einsum": ("ij,kj->ik", X, X), "outer": (X[0], X[1]), "dot": (X[0], X[1]), "tensordot": (X, X, 2),
    "index_add": (X, 0, np.array([1, 1]), X[:2]), "scatter_add": (X, 0, np.array([[1, 2]]), X[:1, :2]), "scatter": (X, 0, np.array([[1, 2]]), X[:1, :2]),
    "index_put": (X, (np.array([1, 1]),), X[:2]), "scatter_reduce": (X, 0, np.array([[1, 2]]), X[:1, :2], "amax"),
    "masked_scatter": (X, X > 0, X), "multinomial": (np.abs(X), 3), "sample": (X,), "sample_from_probs": (np.abs(X),),
    "top_k_mask_logits": (X, 3), "top_p_normalize_probs": (np.abs(X), 0.5),
    "gated_delta_rule": (X[None, None], X[None, None], X[None, None], X[None, None, :, 0], -np.abs(X[None, None, :, 1])),
    "interpolate": (X[None, None], (3, 9)), "interpolate_backward": (X[None, None], (1, 1, 3, 9), (6, 40)),
    "grid_sample": (X[None, None], X[None, :4, :6].reshape(1, 2, 6, 2)), "grid_sample_backward": (X[None, None, :2, :6], X[None, None], X[None, :4, :6].reshape(1, 2, 6, 2)),
    "chunk_gated_delta_rule": (X[None, None], X[None, None], X[None, None], X[None, None, :, 0], -np.abs(X[None, None, :, 1])),
    **{f"conv_{name}": args for name, args in {
        "forward": (IMAGE, FILTER), "forward_nhwc": (LAST, FILTER.reshape(3, 1, 1, 3)), "data_backward": (IMAGE, FILTER, (2, 3, 4, 6)), "weight_backward": (IMAGE, IMAGE, (3, 3, 1, 1)),
        "bias_backward": (IMAGE,), "transpose": (IMAGE, FILTER), "transpose_data_backward": (IMAGE, FILTER, (2, 3, 4, 6)),
        "transpose_weight_backward": (IMAGE, IMAGE, (3, 3, 1, 1))}.items()},
    "im2col": (IMAGE, 2), "col2im": (IMAGE[0], (6,), 1), "deform_conv2d": (IMAGE, IMAGE[:, :2].copy(), FILTER),
    "deform_conv2d_backward": (IMAGE, IMAGE, IMAGE[:, :2].copy(), FILTER),
    "max_pool2d": (IMAGE, 2), "avg_pool2d": (IMAGE, 2), "lp_pool2d": (IMAGE, 3, 2), "adaptive_max_pool2d": (IMAGE, 1), "adaptive_avg_pool2d": (IMAGE, 1),
    "max_pool2d_backward": (IMAGE[..., :2, :3].copy(), np.zeros((2, 3, 2, 3), np.int64), IMAGE.shape), "avg_pool2d_backward": (IMAGE[..., :2, :3].copy(), IMAGE.shape, 2),
    "adaptive_avg_pool2d_backward": (IMAGE[..., :2, :3].copy(), IMAGE.shape), "lp_pool2d_backward": (IMAGE[..., :2, :3].copy(), IMAGE, 3, 2),
}
SEEDED = {"multinomial", "sample", "sample_from_probs"}


def flat(result):
    return [np.asarray(r) for r in (result if isinstance(result, tuple) else (result,)) if r is not None]


@pytest.mark.parametrize("op", CALLS)
def test_every_operator_that_may_need_one_takes_it(op):
    options = {"seed": 3} if op in SEEDED else {}
    want = flat(getattr(tn, op)(*CALLS[op], **options))
    size = tn.workspace_size(op, *CALLS[op], **options)
    assert size == 0  # on the CPU
    got = flat(getattr(tn, op)(*CALLS[op], **options, workspace=np.empty(size, np.uint8)))
    assert all(np.array_equal(a, b) for a, b in zip(got, want))
    with pytest.raises(tn.DTypeError, match=f"{op}: workspace must be uint8"):
        getattr(tn, op)(*CALLS[op], **options, workspace=np.empty(8, np.float32))


def test_what_is_no_workspace():
    with pytest.raises(tn.ValueError, match="sort: workspace must be contiguous"):
        tn.sort(X, workspace=np.empty(100, np.uint8)[::2])
    with pytest.raises(TypeError):
        tn.add(X, X, workspace=np.empty(8, np.uint8))  # needs none, and takes none
    for wrong in ("sorted", "_operators", tn.sort):
        with pytest.raises(tn.ValueError, match="no operator is called"):
            tn.workspace_size(wrong, X)


@pytest.mark.skipif(not tn.cuda_device_count(), reason="no CUDA device")
@pytest.mark.parametrize("op", CALLS)
def test_on_a_gpu_it_is_exact(op):
    options = {"seed": 3} if op in SEEDED else {}
    args = [tn.asarray(a, device="cuda") if isinstance(a, np.ndarray) else a for a in CALLS[op]]
    args = [tuple(tn.asarray(i, device="cuda") for i in a) if isinstance(a, tuple) else a for a in args]
    want = getattr(tn, op)(*args, **options)
    size = tn.workspace_size(op, *args, **options)
    want = tuple(w for w in want if w is not None) if isinstance(want, tuple) else want
    out = tuple(tn.empty_like(w) for w in want) if isinstance(want, tuple) else tn.empty_like(want)
    getattr(tn, op)(*args, **options, out=out, workspace=tn.empty(size, dtype="uint8", device="cuda"))
    for a, b in zip(out if isinstance(out, tuple) else (out,), want if isinstance(want, tuple) else (want,)):
        assert np.array_equal(a.numpy(), b.numpy())
    if size:
        with pytest.raises(tn.ShapeError, match=f"{op}: workspace has {size - 1} bytes"):
            getattr(tn, op)(*args, **options, out=out, workspace=tn.empty(size - 1, dtype="uint8", device="cuda"))


@pytest.mark.parametrize("name", ["strategies", "explain", "set_num_threads", "moe.RoutingPlan", "moe", ""])
def test_a_name_that_is_no_operator_is_refused(name):
    with pytest.raises(tn.ValueError, match="no operator is called"):
        tn.workspace_size(name, 3)
