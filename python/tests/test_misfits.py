"""Calls whose arguments do not fit: what is wrong with which argument, in functions, methods, explained text and signatures."""
import inspect
import pickle
import timeit

import numpy as np
import pytest

import tenor as tn

X = np.arange(12, dtype=np.float32).reshape(3, 4)
G = np.ones(4, np.float32)

MISFITS = [
    (lambda: tn.rms_norm(X, G, eps=1e-6), "rms_norm: no argument 'eps'; did you mean 'epsilon'?"),
    (lambda: tn.softmax(X, axis=0), "softmax: no argument 'axis'; did you mean 'dim'?"),
    (lambda: tn.asarray(X).softmax(dimension=0), "softmax: no argument 'dimension'; did you mean 'dim'?"),
    (lambda: tn.layer_norm(X), "layer_norm: gamma is missing"),
    (lambda: tn.cumsum(X), "cumsum: dim is missing"),
    (lambda: tn.topk(X, 2.5), "topk: k must be an int, got 2.5"),
    (lambda: tn.var(X, unbiased=False), "var: no argument 'unbiased'; did you mean 'correction'? (unbiased=False is correction=0)"),
    (lambda: tn.softmax(X, dim=True), "softmax: dim must be an int, got True"),
    (lambda: tn.softmax(None), "softmax: x must be an array, got None"),
    (lambda: tn.softmax(X, 0, 1), "softmax: takes at most 2 arguments by position (x, dim), got 3; out by name only"),
    (lambda: tn.softmax(X, x=X), "softmax: x is given both by position and by name"),
    (lambda: tn.argsort(X, descending=1), "argsort: descending must be True or False, got 1"),
    (lambda: tn.asarray(X).clone(3), "clone: takes 0 arguments, got 1"),
    (lambda: tn.asarray(X).equal(X), "equal: other must be a tenor.Tensor, got ndarray of shape (3, 4)"),
    (lambda: tn.zeros(3, foo=1), "zeros: no argument 'foo'; it takes dtype, device, out"),
    (lambda: tn.moe.route(X, top=1), "moe.route: no argument 'top'; did you mean 'top_k'?"),
    (lambda: tn.moe.route(X, True), "moe.route: top_k must be an int, got True"),
    (lambda: tn.paged.HostPlan(4, "x"), "HostPlan: pages must be an int, got 'x'"),
]


@pytest.mark.parametrize("call, said", MISFITS, ids=[said[:40] for _, said in MISFITS])
def test_the_argument_is_named(call, said):
    with pytest.raises(tn.DTypeError) as error:
        call()
    assert str(error.value) == said and type(error.value) is tn.ArgumentError
    again = pickle.loads(pickle.dumps(error.value))
    assert type(again) is tn.ArgumentError and str(again) == said and isinstance(again, TypeError) and isinstance(again, tn.ValueError)


@pytest.mark.parametrize("name, here", [("conv2d", "conv_forward"), ("scaled_dot_product_attention", "attention"), ("nothing_like_it", None)])
def test_names_of_other_libraries(name, here):
    with pytest.raises(AttributeError) as error:
        getattr(tn, name)
    assert str(error.value) == f"module 'tenor' has no attribute {name!r}" + (f" (another library's name; here it is {here!r})" if here else "")
    assert not hasattr(tn, "_private_name")


def test_errors_of_an_argument_itself_stay():
    class Odd:
        def __index__(self):
            raise RuntimeError("mine")

        def __repr__(self):
            raise RuntimeError("no repr")

    with pytest.raises(RuntimeError, match="mine"):
        tn.topk(X, Odd())
    with pytest.raises(TypeError):
        tn.topk(X, type("Silent", (), {"__repr__": Odd.__repr__})())


def test_every_function_and_method_shows_its_signature():
    shown = 0
    for scope in (tn, tn.Tensor):
        for name in dir(scope):
            function = getattr(scope, name)
            if hasattr(function, "__nb_signature__"):
                shown += 1
                assert "None | None" not in f"{inspect.signature(function)}{function.__doc__}", name
    assert shown > 300
    assert str(inspect.signature(tn.softmax)) == "(x: ArrayLike, dim: int = -1, *, out: ArrayLike | tuple[ArrayLike, ...] | None = None)"
    assert list(inspect.signature(tn.asarray(X).softmax).parameters) == ["dim", "out"]
    assert list(inspect.signature(tn.asarray(X).allclose).parameters) == ["other", "rtol", "atol", "equal_nan"]


def test_functions_of_modules_go_by_the_name_that_people_call():
    for module, names in ((tn.moe, ("route", "route_sigmoid_grouped", "grouped_matmul")), (tn.paged, ("copy_pages", "copy_pages_"))):
        for name in names:
            function = getattr(module, name)
            assert (function.__module__, function.__name__) == (module.__name__, name) and function.__doc__.startswith(name + "(")


def test_calls_that_fit_pay_nothing():
    a = tn.ones((4, 4))
    assert min(timeit.repeat(lambda: tn.add(a, a), number=2000, repeat=20)) / 2000 < 4e-6  # 0.6 us; a call through Python takes 2 more


EXPLAINED = [
    ("torch.softmax(x, dims=0)", "softmax: no argument 'dims'; did you mean 'dim'?"),
    ("x.softmax(dimension=1)", "did you mean 'dim'?"),
    ("F.softmax(x, dim=-1, bogus=True)", "softmax: no argument 'bogus'; it takes x, dim, dtype"),
    ("F.softmax(x, inplace=True)", "no argument 'inplace'"),
    ("torch.exp(x, requires_grad=True)", "no argument 'requires_grad'"),
    ("x.to(bogus=1)", "to has no argument 'bogus'"),
    ("x.float(3)", "float takes at most 0 arguments, got 1"),
    ("F.layer_norm(x, (5,))", "normalized_shape (5,) must be the last dims of x, which has shape (3, 4)"),
    ("F.rms_norm(x, (4,), bias=x)", "no argument 'bias'"),
    ("layer_norm(x)", "layer_norm: gamma is missing"),
    ("topk(x, 2.5)", "topk: k must be an int, got 2.5"),
    ("x[0].mT", "the last two dims are exchanged, and x has shape (4,)"),
]


@pytest.mark.parametrize("text, said", EXPLAINED)
def test_explained_text_takes_real_arguments_alone(text, said):
    with pytest.raises(tn.Error) as error:
        tn.explain(text, x="f32[3,4]", device="h200")
    assert said in str(error.value)


@pytest.mark.parametrize("text", ["F.relu(x, inplace=True)", "F.dropout(x, 0.1, training=False) + 1", "torch.softmax(input=x, dim=0)", "x.var(0, unbiased=False)",
                                  "F.softmax(x, -1, dtype=torch.float32)", "x.to(torch.bfloat16, non_blocking=True)", "rms_norm(x, x[0], eps=1e-6)",
                                  "F.rms_norm(x, (4,), eps=1e-6)", "torch.zeros(3, requires_grad=True) + x[0, :3]"])
def test_explained_text_takes_pytorch_s_arguments(text):
    assert tn.explain(text, x="f32[3,4]", device="h200").steps


def test_addmm_scales():
    e = tn.explain("torch.addmm(b, x, w, alpha=2)", b="f32[5]", x="f32[3,4]", w="f32[4,5]", device="h200")
    assert [s.op for s in e.steps] == ["matmul", "mul", "add"]


def test_inputs_that_the_text_does_not_use_are_reported():
    for text, extra, said in (("x.exp()", dict(c="f32[3]"), "does not use c"), ("x.exp()", dict(foo=3), "does not use foo"),
                              ("height = 2\nx * height", dict(heigth=3), "does not use heigth; did you mean height?")):
        with pytest.raises(tn.ValueError) as error:
            tn.explain(text, x="f32[4]", device="h200", **extra)
        assert said in str(error.value)
    assert tn.explain("x[:, :d]", x="f32[4,D]", D=8, d=2, device="h200").steps[0].shape == (4, 2)


NOISE = [
    "import torch\nimport torch.nn.functional as F\ny = F.silu(x)",
    "import torch as th\nfrom torch.nn import functional as G\nassert x.ndim == 2, 'matrix'\nwith th.no_grad():\n    y = G.silu(x)",
    ">>> import torch\n>>> y = F.silu(x)\n>>> y\ntensor([[1., 2.]])\n",
    "    >>> def f(x):\n    ...     return F.silu(x)\n",
    "@torch.compile\ndef f(x, unused=3):\n    '''Says what it does.'''\n    y = F.silu(x)\n    return y",
    "from tenor import silu\nsilu(x)",
]


@pytest.mark.parametrize("text", NOISE)
def test_what_is_pasted_along_is_passed_over(text):
    e = tn.explain(text, x="bf16[3,4]", device="h200")
    assert [s.op for s in e.steps] == ["silu"]


def test_weights_are_inputs_of_self():
    text = "def forward(self, x, eps=1e-6):\n    return rms_norm(x, self.weight, eps)"
    for inputs in ({"weight": "f32[4]"}, {"self.weight": "f32[4]"}, {"weight": "f32[4]", "eps": 1e-5}):
        assert [s.op for s in tn.explain(text, x="f32[3,4]", device="h200", **inputs).steps] == ["rms_norm"]


@pytest.mark.parametrize("text, said", [("import os\nx", "an import"), ("import torch, os\nx", "an import"), ("with open('f') as g:\n    x", "a with block"),
                                        ("y = x + 1\ndef f(y): return y", "a function definition"), ("import torch", "nothing to evaluate")])
def test_the_rest_is_refused_by_name(text, said):
    with pytest.raises(tn.ValueError, match=said):
        tn.explain(text, x="f32[3,4]", device="h200")


@pytest.mark.parametrize("name, mend", [("torch.quantize_per_tensor", ""), ("rearrange", ""), ("print", ""), ("sofmax", "did you mean softmax?"), ("layernorm", "did you mean layer_norm?")])
def test_only_names_that_resolve_are_proposed(name, mend):
    with pytest.raises(tn.ValueError) as error:
        tn.explain(f"{name}(x)", x="f32[3,4]", device="h200")
    assert mend in str(error.value) and (mend or "did you mean" not in str(error.value))
