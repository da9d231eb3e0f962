"""explain's text: what people paste, what is refused, and what errors say."""
import pathlib
import re
import runpy

import numpy as np
import pytest

import tenor as tn

STEP = """
    q_i, k_i, v_i = q[:, :, i], k[:, :, i], v[:, :, i]        # [b,h,dk] / [b,h,dv]
    S = S * g[:, :, i].exp()[..., None, None]                 # [b,h] -> [b,h,1,1]
    v_hat = torch.einsum("bhk,bhkv->bhv", k_i, S)
    delta = beta[:, :, i, None] * (v_i - v_hat)
    S = S + torch.einsum("bhk,bhv->bhkv", k_i, delta)
    outs.append(torch.einsum("bhk,bhkv->bhv", q_i, S))
return torch.stack(outs, dim=2), S
"""
RMS_NORM = """
x = x.to(torch.float32)
variance = x.pow(2).mean(dim=-1, keepdim=True)    # [T, 1]
x = x * torch.rsqrt(variance + self.variance_epsilon)
x = (x * self.weight).to(orig_dtype)
"""
TOP_P = """
probs_sort, probs_idx = probs.sort(dim=-1, descending=True)
probs_sum = torch.cumsum(probs_sort, dim=-1)
probs_sort[torch.arange(V).view(1, -1) >= top_ks.view(-1, 1)] = 0.0
probs_sort[(probs_sum - probs_sort) > top_ps.view(-1, 1)] = 0.0
sampled_index = torch.multinomial(probs_sort, num_samples=1)
batch_next_token_ids = torch.gather(probs_idx, dim=1, index=sampled_index)
"""
ROUTING = """
group_scores = scores.view(num_token, num_expert_group, -1).max(dim=-1).values
group_idx = torch.topk(group_scores, k=topk_group, dim=-1, sorted=False)[1]
group_mask = torch.zeros_like(group_scores)
group_mask.scatter_(1, group_idx, 1)
score_mask = group_mask.unsqueeze(-1).expand(...).reshape(num_token, -1)
tmp_scores = scores.masked_fill(~score_mask.bool(), 0.0)
topk_weights, topk_ids = torch.topk(tmp_scores, k=topk, dim=-1, ...)
"""
MOE = """
w13_weights = layer.w13_weight[topk_ids]
w1_weights, w3_weights = w13_weights.chunk(2, dim=2)
x1 = F.silu(torch.einsum("ti,taoi -> tao", x, w1_weights))
x3 = torch.einsum("ti, taoi -> tao", x, w3_weights)
expert_outs = torch.einsum("tao, taio -> tai", (x1 * x3), w2_weights)
expert_outs = torch.einsum("tai,ta -> ti", expert_outs, topk_weights)
"""
MLA = """
q_nope_out = torch.bmm(q_nope.transpose(0, 1), self.w_kc)
q_nope_out = q_nope_out.transpose(0, 1)
"""
ROW = dict(x="bf16[64,128]")
STATE = dict(q="f32[2,4,8,16]", k="f32[2,4,8,16]", v="f32[2,4,8,32]", g="f32[2,4,8]", beta="f32[2,4,8]", S="f32[2,4,16,32]", i=3)

# (text, inputs, the last step's shape)
SNIPPETS = [
    ("x / x.sum(-1, keepdim=True)", ROW, (64, 128)),
    ("torch.gather(x, 1, idx)", dict(x="f32[3,4]", idx="i64[3,2]"), (3, 2)),
    ('einsum("ti,taoi->tao", x, w)', dict(x="bf16[1,8]", w="bf16[1,2,4,8]"), (1, 2, 4)),
    ("g[:, :, i].exp()[..., None, None]", dict(g="f32[2,4,8]", i=1), (2, 4, 1, 1)),
    ("beta[:, :, i, None]", dict(beta="f32[2,4,8]", i=1), (2, 4, 1)),
    ("F.silu(x[..., :d]) * x[..., d:]", dict(x="bf16[4,16]", d=8), (4, 8)),
    (STEP, STATE, (2, 4, 1, 32)),
    (RMS_NORM, dict(x="bf16[64,128]", weight="f32[128]", variance_epsilon=1e-6, orig_dtype="bf16"), (64, 128)),
    (TOP_P, dict(probs="f32[4,1000]", V=1000, top_ks="i32[4]", top_ps="f32[4]"), (4, 1)),
    (ROUTING, dict(scores="f32[16,256]", num_token=16, num_expert_group=8, topk_group=4, topk=6), (16, 6)),
    (MOE, dict(w13_weight="bf16[8,16,32]", w2_weights="bf16[1,2,32,8]", topk_ids="i64[1,2]", x="bf16[1,32]", topk_weights="bf16[1,2]"), (1, 32)),
    (MLA, dict(q_nope="bf16[7,4,16]", w_kc="bf16[4,16,8]"), (7, 4, 8)),
    ("x + bias", dict(x="f32[2,3,4]", bias="f32[4]"), (2, 3, 4)),
    ("logits.div_(sampling_info.temperatures)\nlogits[:] = torch.softmax(logits, dim=-1)", dict(logits="f32[4,10]", temperatures="f32[4,1]"), (4, 10)),
    ('einsum("bshd,bthd->bhst", q, k)', dict(q="f32[1,5,2,4]", k="f32[1,6,2,4]"), (1, 2, 5, 6)),
    ("(k_i.unsqueeze(-2) @ S).squeeze(-2)", dict(k_i="f32[2,3,4]", S="f32[2,3,4,5]"), (2, 3, 5)),
    ("(k_i[..., None] * S).sum(-2)", dict(k_i="f32[2,3,4]", S="f32[2,3,4,5]"), (2, 3, 5)),
    ("b, h, t, dk = k.shape\nk.new_zeros(b, h, dk) * dk ** -0.5", dict(k="bf16[2,3,4,5]"), (2, 3, 5)),
    ("x.new_empty(x.shape[:-1] + (d,))", dict(x="f32[2,3,4]", d=7), (2, 3, 7)),
    ("F.normalize(x, dim=-1)", ROW, (64, 128)),
    ("topk_weights = w / w.sum(dim=-1, keepdim=True, dtype=torch.float32)", dict(w="bf16[4,8]"), (4, 8)),
    ("w_kc.transpose(1, 2).contiguous().transpose(1, 2)", dict(w_kc="bf16[2,3,4]"), (2, 3, 4)),
    ("torch.zeros_like(x).scatter_(-1, probs_idx, probs_sort)", dict(x="f32[2,5]", probs_idx="i64[2,5]", probs_sort="f32[2,5]"), (2, 5)),
    ("np.mean(x, axis=-1, keepdims=True)", ROW, (64, 1)),
    ("torch.nn.functional.softmax(q @ k.mT / math.sqrt(q.shape[-1]), dim=-1, dtype=torch.float32) @ v.float()",
     dict(q="bf16[2,5,4]", k="bf16[2,6,4]", v="bf16[2,6,4]"), (2, 5, 4)),
    ("F.scaled_dot_product_attention(q, k, v, is_causal=True)", dict(q="bf16[1,2,5,4]", k="bf16[1,2,5,4]", v="bf16[1,2,5,4]"), (1, 2, 5, 4)),
    ("F.layer_norm(x, (128,), w, b, 1e-5)", dict(x="bf16[64,128]", w="bf16[128]", b="bf16[128]"), (64, 128)),
    ("a, c = x.chunk(2, -1)\nmax(a.shape[0], 3) * F.gelu(a, approximate='tanh') * c if x.ndim == 2 else x", ROW, (64, 64)),
    ("x[:, [0, 2, 5]]", ROW, (64, 3)),
    ("x = torch.randn(4, 8, dtype=torch.bfloat16)\nidx = torch.randint(0, 8, (4, 2))\ntorch.gather(x, 1, idx)", {}, (4, 2)),
    ("x += 1\nx *= 2\nx", ROW, (64, 128)),
    ("torch.where(mask, x, torch.finfo(torch.float32).min)", dict(mask="bool[4]", x="f32[4]"), (4,)),
    ("cat([x, x], 1) if True else None", ROW, (64, 256)),
    ("x.masked_fill(torch.ones(4, 4).tril() == 0, float('-inf'))", dict(x="f32[4,4]"), (4, 4)),
]


@pytest.mark.parametrize("text,inputs,shape", SNIPPETS, ids=[f"{i}-{s[0].split()[0][:20]}" for i, s in enumerate(SNIPPETS)])
def test_what_people_paste(text, inputs, shape):
    e = tn.explain(text, device="h200", **inputs)
    assert e.steps[-1].shape == shape, str(e)
    assert all(len(line) <= 100 for line in str(e).splitlines())
    assert e.bytes_needed <= e.bytes_moved or e.copies == []


def test_the_shape_comes_with_its_reason():
    e = tn.explain('einsum("ti,taoi->tao", x, w)\nx.sum(-1)', x="bf16[1,8]", w="bf16[1,2,4,8]", device="h200")
    assert e.steps[0].note == "sums i (8)" and "dim 1 (8)" in e.steps[1].note and e.steps[1].source == "x.sum(-1)"
    assert "outer" not in e.steps[0].note
    assert "sums nothing" in tn.explain('einsum("i,j->ij", a, b)', a="f32[2]", b="f32[3]", device="h200").steps[0].note
    assert "read as (16, 8, 32)" in str(tn.explain(ROUTING, scores="f32[16,256]", num_token=16, num_expert_group=8, topk_group=4, topk=6, device="h200"))


def test_inputs_in_every_form():
    d = dict(device="h200")
    assert tn.explain("x + y", "f32[4,8]", "f32[8]", **d).flops == 32
    assert tn.explain("x * s", x=np.ones((4, 8), np.float32), s=2.0, **d).flops == 32
    assert tn.explain("x.to(t)", x="f32[4]", t="bf16", **d).steps[0].dtype == "bfloat16"
    assert tn.explain("topk(x, k)", x="f32[4,8]", k="2", **d).steps[0].shape == (4, 2)
    assert tn.explain("x + 1", x="bf16[T,H]", T=4, H=8, **d).steps[0].shape == (4, 8)
    assert tn.explain("cat(xs, 0)", xs=["f32[2,3]", "f32[4,3]"], **d).steps[0].shape == (6, 3)
    assert tn.explain("x.exp()", x=" f32[ 2, 3 ] ", **d).steps[0].shape == (2, 3)
    assert tn.explain("x.exp()", x="f32[]", **d).steps[0].shape == ()
    assert tn.explain("\ufeffx + 1\r\nx * 2\r\n", x="f32[2]", **d).flops == 4  # as an editor saved it
    assert tn.explain("x * n", x="f32[2]", n="nan", **d).flops == tn.explain("x * n", x="f32[2]", n="-inf", **d).flops == 2
    for short, long in (("f8e4m3", "float8_e4m3fn"), ("f8e5m2", "float8_e5m2")):  # what the table prints can be given
        e = tn.explain("x.to(float32)", x=f"{short}[4]", **d)
        assert e.inputs == tn.explain("x.to(float32)", x=f"{long}[4]", **d).inputs == {"x": f"{short}[4]"} and e.bytes_needed == 4 + 16


X = dict(x="f32[3,4]")
ERRORS = [  # text, inputs, class, what the error says
    ("sofmax(x)", X, ValueError, ["'sofmax'", "did you mean softmax"]),
    ("torch.nn.functional.sillu(x)", X, ValueError, ["'torch.nn.functional.sillu'", "torch.nn.functional.silu"]),
    ("x.sumn(-1)", X, ValueError, ["x.sumn", "x.sum"]),
    ("x.foo()", X, ValueError, ["'x.foo'; arrays have no 'foo'"]),
    ("'x'", X, ValueError, ["nothing to evaluate"]),
    ("x + yy", X, ValueError, ["'yy'", "give it"]),
    ("x + self.weight", X, ValueError, ["'self.weight'", "weight="]),
    ("x + q.exp()", X, ValueError, ["unknown name 'q'", "give it: q="]), ("x + q.shape[0]", X, ValueError, ["unknown name 'q'"]),
    ("x / / y", X, ValueError, ["'x / / y'", "column"]),
    ("a = x\nb = (a", X, ValueError, ["'b = (a'", "line 2"]),
    ("", X, ValueError, ["empty"]),
    ("for i in range(3): x = x + 1", X, ValueError, ["a for loop", "body"]),
    ("[y for y in x]", X, ValueError, ["a comprehension"]),
    ("(lambda a: a)(x)", X, ValueError, ["a lambda"]),
    ("import os", X, ValueError, ["an import"]),
    ("x.__class__", X, ValueError, ["'__class__'", "underscore"]),
    ("().__class__.__bases__", X, ValueError, ["underscore"]),
    ("torch.__builtins__", X, ValueError, ["underscore"]),
    ("__import__('os')", X, ValueError, ["'__import__'"]),
    ("eval('x')", X, ValueError, ["'eval'"]),
    ("open('/etc/passwd')", X, ValueError, ["'open'"]),
    ("'a'.format(x)", X, ValueError, ["no 'format'"]),
    ("9 ** 9 ** 9", X, ValueError, ["too large"]),
    ("x.foo", X, ValueError, ["'x.foo'"]),
    ("x.exp", X, ValueError, ["the method exp", "call it"]),
    ("torch", X, ValueError, ["the namespace torch"]),
    ("x.exp + 1", X, TypeError, ["the method exp", "an int"]),
    ("x.item()", X, NotImplementedError, ["needs data"]),
    ("x[x > 0]", X, NotImplementedError, ["depends on data"]),
    ("nonzero(x)", X, NotImplementedError, ["depends on data"]),
    ("x / x.sum(-1)", X, tn.ShapeError, ["4 meets 3", "x.sum(-1)", "keepdim=True", "(3, 1) meets (3, 4)"]),
    ("x * b", dict(x="f32[3,4]", b="f32[3]"), tn.ShapeError, ["4 meets 3", "b[..., None]", "(3, 1)"]),
    ("s * g", dict(s="f32[2,3,8,9]", g="f32[2,3]"), tn.ShapeError, ["9 meets 3", "g[..., None, None]"]),
    ("x + y", dict(x="f32[3,4]", y="f32[4,3]"), tn.ShapeError, ["y.transpose(-1, -2)"]),
    ("x - x[:, 0]", X, tn.ShapeError, ["integer index", "dropped dim 1", "i:i+1"]),
    ("q @ k", dict(q="f32[5,8]", k="f32[6,8]"), tn.ShapeError, ["inner sizes", "8", "6", "transpose(-1, -2)"]),
    ('einsum("ij,jk->ik", x, y)', dict(x="f32[3,4]", y="f32[5,6]"), tn.ShapeError, ["'j'", "4", "5"]),
    ("gather(x, 1, i)", dict(x="f32[3,4]", i="i64[3]"), tn.ShapeError, ["index must have x's 2 dims", "index_select"]),
    ("x[:, 0][:, 0]", X, IndexError, ["too many indices", "dropped a dim"]),
    ("x.sum(5)", X, IndexError, ["sum", "5"]),
    ("x.view(5, 5)", X, tn.ShapeError, ["view", "12"]),
    ("x.transpose(0, 1).view(12)", X, tn.ShapeError, ["reshape"]),
    ("x.sum(dims=1)", X, TypeError, ["x.sum(dims=1)", "sum: no argument 'dims'", "did you mean 'dim'"]),
    ("a, b, c = x.shape", X, ValueError, ["3 values", "2 values"]),
    ("x.shape[7]", X, IndexError, ["x.shape[7]"]),
    ("0 < x < 1", X, ValueError, ["truth of a tensor", "&"]),
    ("not x", X, ValueError, ["truth of a tensor", "logical_not", "~"]),
    ("not (x > 0)", X, ValueError, ["truth of a tensor", "~"]),
    ("if x > 0:\n    x", X, ValueError, ["an if statement", "if x > 0: x"]),
    ("x and x", X, ValueError, ["truth of a tensor"]),
    ("x[: x.shape[0] / 2]", X, TypeError, ["//"]),
    ("x", dict(x="bf16(3,4)"), ValueError, ["x: ", "bf16[4096,8192]"]),
    ("x", dict(x="bf17[3,4]"), ValueError, ["bf17"]),
    ("x", dict(x="bf16[3,n]"), ValueError, ["'n'"]),
    ("torch.float32(3)(x)", X, ValueError, ["cannot be called"]),
]


@pytest.mark.parametrize("text,inputs,kind,words", ERRORS, ids=[f"{i}-{e[0].split(chr(10))[0][:24]}" for i, e in enumerate(ERRORS)])
def test_errors_say_what_and_how_to_mend_it(text, inputs, kind, words):
    with pytest.raises(kind) as caught:
        tn.explain(text, device="h200", **inputs)
    assert isinstance(caught.value, tn.Error)
    for word in words:
        assert word in str(caught.value), str(caught.value)


def test_every_operator_can_be_named():
    """Each operator of the registry is known to the text under its name, alone or as a method."""
    from tenor import _explain_names
    from tenor._tenor import _operators
    for name, *_ in _operators():
        if not hasattr(tn, name) and not hasattr(tn.Tensor, name):
            continue  # of the C++ interface alone, or of a subscript
        if hasattr(tn, name):
            assert _explain_names.lookup(name), name


def test_evaluation_takes_no_names_of_its_own():
    for text in ("recorder", "tenor._tenor", "torch._C"):
        with pytest.raises(ValueError):
            tn.explain(text, device="h200")


def test_str_is_what_the_table_says():
    text = str(tn.explain("x / x.sum(-1, keepdim=True)", x="bf16[4096,8192]", device="h200"))
    assert re.search(r"0 +sum +reduce +bf16\[4096,1\] +64\.0 MiB", text)
    assert "1 kernel" in text and "steps 0, 1" in text and "128 MiB needed" in text and "step by step: 192 MiB moved" in text


def test_the_page_on_reading_operators_is_what_explain_says():
    script = pathlib.Path(__file__).parents[2] / "docs" / "reading_operators.py"
    page = runpy.run_path(str(script))["page"]()
    assert script.with_suffix(".md").read_text(encoding="utf-8") == page, "run python docs/reading_operators.py"


@pytest.mark.parametrize("text", ["allow_tf32(True)", "tenor.autotune(True)", "empty_cache()", "set_num_threads(1)", "tenor.set_cache_limit(0)",
                                  "x.set_num_threads()", "take_error()", "tenor.save(x, 'f.npy')", "tenor.load('f.npy')", "from_dlpack(x)"])
def test_text_reaches_operators_alone(text):
    threads = tn.get_num_threads()
    with pytest.raises(tn.ValueError, match="unknown name"):
        tn.explain(text, x="f32[2]", device="h200")
    assert tn.get_num_threads() == threads
