"""explain: FLOPs and bytes against hand counts, for every family."""
import numpy as np
import pytest

import tenor as tn


def only(text, **inputs):
    """The one step that is not a view."""
    e = tn.explain(text, device="h200", **inputs)
    (step,) = [s for s in e.steps if not s.view]
    return step


# (text, inputs, FLOPs, bytes read, bytes written), each counted by hand.
COUNTS = [
    # view: nothing
    ("x.transpose(0, 1)", dict(x="f32[4,8]"), None),
    ("x[1:3, None, ..., 2]", dict(x="f32[4,8]"), None),
    ("x.expand(5, 4, 8)", dict(x="f32[4,8]"), None),
    ("x.view(2, 2, 8).permute(2, 0, 1)", dict(x="f32[4,8]"), None),
    # elementwise: 1 an output element
    ("x + y", dict(x="f32[4,8]", y="f32[8]"), (32, 128 + 32, 128)),
    ("x + x", dict(x="f32[4,8]"), (32, 128, 128)),
    ("x * 2.0", dict(x="bf16[4,8]"), (32, 64, 64)),
    ("x.to(float32)", dict(x="bf16[4,8]"), (32, 64, 128)),
    ("where(m, x, y)", dict(m="bool[4,1]", x="f32[4,8]", y="f32[]"), (32, 4 + 128 + 4, 128)),
    ("x.expand(4, 8) + y", dict(x="f32[4,1]", y="f32[4,8]"), (32, 16 + 128, 128)),
    ("gelu(x)", dict(x="f16[10]"), (10, 20, 20)),
    ("x.masked_fill(m, 0.0)", dict(x="f32[4,8]", m="bool[4,8]"), (32, 128 + 32, 128)),
    ("zeros(4, 8)", {}, (32, 0, 128)),
    ("silu_mul(x)", dict(x="bf16[4,16]"), (32, 128, 64)),
    # reduction: 1 an input element; order steps 0
    ("x.sum(-1)", dict(x="f32[4,8]"), (32, 128, 16)),
    ("x.mean()", dict(x="bf16[4,8]"), (32, 64, 2)),
    ("x.max(dim=0)", dict(x="f32[4,8]"), (32, 128, 32 + 64)),
    ("x.argmax(-1)", dict(x="f32[4,8]"), (32, 128, 32)),
    ("x.var(1)", dict(x="f32[4,8]"), (32, 128, 16)),
    ("cumsum(x, 1)", dict(x="f32[4,8]"), (32, 128, 128)),
    ("softmax(x, -1)", dict(x="bf16[4,8]"), (32, 64, 64)),
    ("rms_norm(x, w)", dict(x="bf16[4,8]", w="f32[8]"), (32, 64 + 32, 64)),
    ("sort(x)", dict(x="f32[4,8]"), (0, 128, 128 + 256)),
    ("topk(x, 2)", dict(x="f32[4,8]"), (0, 128, 32 + 64)),
    # index: 0 FLOPs; of the table what comes out
    ("gather(x, 1, i)", dict(x="f32[4,8]", i="i64[4,2]"), (0, 32 + 64, 32)),
    ("index_select(x, 0, i)", dict(x="f32[100,8]", i="i64[3]"), (0, 96 + 24, 96)),
    ("embedding(i, w)", dict(i="i32[3]", w="f32[1000,8]"), (0, 96 + 12, 96)),
    ("x[i]", dict(x="f32[100,8]", i="i64[3]"), (0, 96 + 24, 96)),
    ("x[i]", dict(x="f32[2,8]", i="i64[30]"), (0, 64 + 240, 960)),
    ("cat([x, y], 1)", dict(x="f32[4,8]", y="f32[4,2]"), (0, 160, 160)),
    ("scatter(x, 1, i, s)", dict(x="f32[4,8]", i="i64[4,2]", s="f32[4,2]"), (0, 128 + 64 + 32, 128)),
    ("x.scatter_(1, i, s)", dict(x="f32[4,8]", i="i64[4,2]", s="f32[4,2]"), (0, 64 + 32, 32)),
    ("x.scatter_add_(1, i, s)", dict(x="f32[4,8]", i="i64[4,2]", s="f32[4,2]"), (0, 32 + 64 + 32, 32)),
    ("index_add(x, 0, i, s)", dict(x="f32[4,8]", i="i64[2]", s="f32[2,8]"), (0, 128 + 16 + 64, 128)),
    ("flip(x, (0,))", dict(x="f32[4,8]"), (0, 128, 128)),
    ("one_hot(i, 10)", dict(i="i64[4]"), (0, 32, 320)),
    # contraction: 2 a multiply-add, 1 where nothing is summed, 1 an output for a bias
    ("x @ y", dict(x="f32[4,8]", y="f32[8,3]"), (192, 128 + 96, 48)),
    ("x @ y", dict(x="bf16[5,4,8]", y="bf16[8,3]"), (960, 320 + 48, 120)),
    ("linear(x, w, b)", dict(x="f32[4,8]", w="f32[16,8]", b="f32[16]"), (1024 + 64, 128 + 512 + 64, 256)),
    ("bmm(x, y)", dict(x="f32[2,4,8]", y="f32[2,8,3]"), (384, 256 + 192, 96)),
    ('einsum("bhk,bhv->bhkv", k, v)', dict(k="f32[2,3,4]", v="f32[2,3,5]"), (120, 96 + 120, 480)),
    ('einsum("ij,jk,kl->il", a, b, c)', dict(a="f32[2,100]", b="f32[100,100]", c="f32[100,3]"), (2 * 2 * 100 * 100 + 2 * 2 * 100 * 3, 800 + 40000 + 1200, 24)),
    ("outer(a, b)", dict(a="f32[4]", b="f32[8]"), (32, 48, 128)),
    ("dot(a, b)", dict(a="f32[8]", b="f32[8]"), (16, 64, 4)),
    ("attention(q, k, v)", dict(q="f32[1,2,4,8]", k="f32[1,1,6,8]", v="f32[1,1,6,8]"), (2 * 2 * 4 * 6 * 16, 256 + 192 + 192, 256)),
    ("attention(q, k, v, causal=True)", dict(q="f32[1,1,4,8]", k="f32[1,1,4,8]", v="f32[1,1,4,8]"), (2 * 10 * 16, 384, 128)),
    ("rope(x, c, s)", dict(x="f32[1,5,2,8]", c="f32[16,4]", s="f32[16,4]"), (80, 320 + 256 + 256, 320)),
    ("layer_norm(x, g, b)", dict(x="f32[4,8]", g="f32[8]", b="f32[8]"), (32, 128 + 64, 128)),
    ("add_rms_norm(x, r, g)", dict(x="f32[4,8]", r="f32[4,8]", g="f32[8]"), (64, 128 + 128 + 32, 128 + 128)),
    ("merge_states(a, s, b, t)", dict(a="f32[2,3,8]", s="f32[2,3]", b="f32[2,3,8]", t="f32[2,3]"), (48, 2 * 192 + 2 * 24, 192 + 24)),
    # sampling: order steps; creation and scans
    ("multinomial(p, 3, seed=1)", dict(p="f32[4,100]"), (0, 1600, 4 * 3 * 8)),
    ("sample(x, seed=1)", dict(x="f32[4,100]"), (0, 1600, 32)),
    ("top_k_mask_logits(x, 5)", dict(x="f32[4,100]"), (0, 1600, 1600)),
    ("searchsorted(s, v)", dict(s="f32[100]", v="f32[7]"), (0, 400 + 28, 56)),
    ("cummax(x, 1)", dict(x="f32[4,8]"), (32, 128, 128 + 256)),
    ("rope_tables(16, 8)", {}, (2 * 16 * 4, 0, 2 * 16 * 4 * 4)),
    ("gelu_mul(x)", dict(x="f32[4,16]"), (32, 256, 128)),
    # the gated delta rule: 7 for each of the K x V elements of a state a step and value head; two results
    ("gated_delta_rule(q, k, v, b, g)", dict(q="f32[1,2,3,4]", k="f32[1,2,3,4]", v="f32[1,2,3,5]", b="f32[1,2,3]", g="f32[1,2,3]"),
     (7 * 4 * 5 * 3 * 2, 96 + 96 + 120 + 24 + 24, 120 + 160)),
    ("causal_conv1d(x, w)", dict(x="f32[2,3,5]", w="f32[3,4]"), (2 * 30 * 4, 120 + 48, 120 + 72)),
    # convolution: 2 a multiply-add, padding included, 1 an output for a bias; windows are moved, or added up
    ("conv_forward(x, w, b, padding=1)", dict(x="f32[2,4,5,6]", w="f32[3,4,3,3]", b="f32[3]"), (2 * 180 * 36 + 180, 960 + 432 + 12, 720)),
    ("F.conv1d(x, w, None, 2, groups=2)", dict(x="bf16[1,4,9]", w="bf16[6,2,3]"), (2 * 24 * 6, 72 + 72, 48)),
    ("conv_data_backward(g, w, (1, 4, 7), stride=2)", dict(g="f32[1,6,3]", w="f32[6,4,3]"), (2 * 18 * 12, 72 + 288, 112)),
    ("conv_weight_backward(x, g, (6, 4, 3), stride=2)", dict(x="f32[1,4,7]", g="f32[1,6,3]"), (2 * 18 * 12, 112 + 72, 288)),
    ("F.conv_transpose2d(x, w, stride=2)", dict(x="f32[1,4,3,3]", w="f32[4,5,2,2]"), (2 * 36 * 5 * 4, 144 + 320, 720)),
    ("conv_bias_backward(g)", dict(g="f32[2,3,4]"), (24, 96, 12)),
    ("F.unfold(x, 3, padding=1)", dict(x="f32[1,2,4,4]"), (0, 128, 18 * 16 * 4)),
    ("F.fold(x, (4, 4), 3, padding=1)", dict(x="f32[1,18,16]"), (288, 18 * 16 * 4, 128)),
    ("deform_conv2d(x, o, w)", dict(x="f32[1,2,4,4]", o="f32[1,8,3,3]", w="f32[3,2,2,2]"), (2 * 27 * 8, 128 + 288 + 96, 108)),
    # resampled images: 2 for each of the taps of an output; sampled ones move
    ("interpolate(x, size=(4, 8))", dict(x="f32[1,3,2,4]"), (0, 96, 384)),
    ('interpolate(x, scale_factor=2, mode="bilinear")', dict(x="f32[1,3,2,4]"), (2 * 4 * 96, 96, 384)),
    ("grid_sample(x, g)", dict(x="f32[1,3,2,4]", g="f32[1,5,6,2]"), (0, 96 + 240, 360)),
    ("affine_grid(t, (2, 3, 4, 5))", dict(t="f32[2,2,3]"), (2 * 2 * 80, 48, 320)),
    # mixture of experts: every row meets one weight
    ("moe.grouped_matmul(x, w, o)", dict(x="f32[6,4]", w="f32[3,5,4]", o="i64[4]"), (2 * 6 * 4 * 5, 96 + 240 + 32, 120)),
    # pooling: 1 a tap of each window, of bins 1 an element; places that data names cost nothing
    ("max_pool2d(x, 3, 2, 1)", dict(x="f32[2,3,7,7]"), (9 * 2 * 3 * 16, 1176, 384)),
    ("max_pool1d(x, 2, return_indices=True).indices", dict(x="f32[2,3,8]"), (48, 192, 96 + 192)),
    ("adaptive_avg_pool2d(x, 3)", dict(x="f32[2,3,7,7]"), (294, 1176, 216)),
    ("max_pool1d_backward(g, i, (2, 3, 8))", dict(g="f32[2,3,4]", i="i64[2,3,4]"), (0, 96 + 192, 192)),
    # CTC: of each frame the blank and the target's labels, decoded all classes
    ("ctc_loss(x, t, i, l)", dict(x="f32[20,4,9]", t="i64[4,6]", i="i64[4]", l="i64[4]"), (20 * 4 * 7, 4 * 20 * 4 * 7 + 192 + 32 + 32, 4)),
    ("ctc_greedy_decode(x)", dict(x="f32[20,4,9]"), (720, 2880, 640 + 32)),
]


def test_every_family_is_counted_by_hand():
    """But paged, whose arguments are no arrays alone: test_paged_attention_in_text."""
    families = {o[0]: o[1] for o in tn._tenor._operators()}
    counted = {families.get(s.op) for text, inputs, _ in COUNTS for s in tn.explain(text, device="h200", **inputs).steps}
    assert counted >= set(families.values()) - {"paged"}


def test_paged_attention_in_text():
    """Each of three rows sees the keys up to its place, two rows see none."""
    from tenor import paged
    tables, lengths, ids, positions = [[2, 0, 5], [1, -1], [4]], [11, 3, 0], [0, 0, 1, -1, 2], [9, 10, 2, 0, 0]
    plan = paged.DevicePlan.upload(paged.HostPlan(4, 6, tables, lengths, ids, positions), like=np.zeros(1, np.float32))
    specs = dict(q="f32[5,4,16]", k="f32[6,4,2,16]", v="f32[6,4,2,8]")
    for text in ("plan.attention(q, k, v)", "paged.attention(plan, q, k, v)", "tenor.paged.attention(plan, q, k, v)"):
        e = tn.explain(text, plan=plan, **specs)
        (step,) = e.steps
        assert (step.op, step.shape, step.flops) == ("paged.attention", (5, 4, 8), (10 + 11 + 3) * 4 * 2 * (16 + 8)) and "a plan of pages" in str(e)
    assert tn.explain("y = plan.attention(q, k, v)\ny.exp()", plan=plan, **specs).steps[1].op == "exp"
    assert tn.explain("plan.attention(q, k, v)", plan=plan, measure=True, **specs).steps[0].time_us > 0
    with pytest.raises(ValueError, match="paged.attend"):
        tn.explain("paged.attend(plan, q, k, v)", plan=plan, **specs)
    with pytest.raises(ValueError, match="has no 'upload'"):
        tn.explain("plan.upload(q)", plan=plan, **specs)


@pytest.mark.parametrize("text,inputs,want", COUNTS, ids=[f"{c[0]}-{i}" for i, c in enumerate(COUNTS)])
def test_counts_are_those_of_a_hand(text, inputs, want):
    if want is not None:
        s = only(text, **inputs)
        assert (s.flops, s.bytes_read, s.bytes_written) == want
        return
    e = tn.explain(text, device="h200", **inputs)
    if e.steps[0].op_class == 1:
        assert e.flops == e.bytes_needed == e.bytes_moved == 0 and all(s.bound == "none" and s.view for s in e.steps)


def test_attention_counts_the_pairs_that_see_each_other():
    """Against counting them one by one, for every diagonal and window, more queries than keys and fewer."""
    rng = np.random.default_rng(0)
    for _ in range(150):
        queries, keys = (int(rng.choice([1, 2, 3, 7, 16, 33])) for _ in range(2))
        causal = [False, "top_left", True][rng.integers(3)]
        window = None if rng.random() < 0.3 else tuple(int(rng.choice([-1, 0, 1, 2, 5, 40])) for _ in range(2))
        i, j = np.ogrid[:queries, :keys]
        at = i if causal == "top_left" else i + keys - queries
        seen = np.ones((queries, keys), bool) if not causal else j <= at
        if window and window[0] >= 0:
            seen &= j >= at - window[0]
        if window and window[1] >= 0:
            seen &= j <= at + window[1]
        e = tn.explain(lambda q, k: tn.attention(q, k, k, causal=causal, window=window), f"f32[3,2,{queries},4]", f"f32[3,2,{keys},4]", device="h200")
        assert e.flops == 3 * 2 * int(seen.sum()) * 2 * 8, (queries, keys, causal, window)
