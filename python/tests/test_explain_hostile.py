"""Text and specs that mean harm, or were generated: each is refused in Tenor's own words, or explained, in a moment and in little memory."""
import subprocess
import sys
import time

import pytest

import tenor as tn

X = {"x": "f32[3,4]"}
HUGE, LONG = 1 << 40, 1 << 27  # no kernel takes longer sequences
DEEP = "nested too deeply"
REFUSED = [  # text, inputs, what the error says
    ("(" * 5000 + "x" + ")" * 5000, X, "too many nested parentheses"),
    ("-" * 100000 + "x", X, DEEP), ("x" + "+x" * 900, X, DEEP), ("x" + "+x" * 30000, X, DEEP), ("x" + ".exp()" * 900, X, DEEP), ("x" + "[0:2]" * 5000, X, DEEP),
    ("x" * 100000, X, "unknown name"), ("x + " + "y" * 300, X, "unknown name"), ("x\0y", X, "null bytes"), ("x + \ud800", X, "surrogates"),
    ("(1,) * 100000000", X, "too large"), ("'a' * 10**10", X, "too large"), ("[0]*64*64*64*64*64*64", X, "too large"), ("range(10**12)", X, "too large"),
    ("list(range(10**9))", X, "too large"), ("tuple(range(10**9))", X, "too large"), ("((9**9)**9)**9", X, "too large"), ("1 << 64 << 64", X, "too large"),
    ("a = [0]*60\nb = [a]*60\nc = [b]*60\nd = [c]*60\ne = [d]*60\ntorch.tensor(e)", X, "too large"),
    ("s = 'ab'\n" + "s = s + s\n" * 60, X, "too large"), ("s = [x]\n" + "s = s + s\n" * 60, X, "too large"), ("s = 7\n" + "s = s * s\n" * 60, X, "too large"),
    ("s = [x]\n" + "s = [s, s]\n" * 60 + "cat(s)", X, "too large"), ("s = (x,)\n" + "s = (*s, *s)\n" * 60, X, "too large"),
    ("int('9' * 5000)", X, "digits"), ("1 / 0", X, "division by zero"), ("x[1/0]", X, "division by zero"),
    ("x + 1", {"x": f"f32[{HUGE},{HUGE}]"}, "address space"), ("x @ x.mT", {"x": f"f32[{HUGE},1]"}, "address space"), ("x.sum(-1)", {"x": "f32[4611686018427387904]"}, "address space"),
    (f"x.expand({HUGE}, {HUGE}) + 1", {"x": "f32[1,1]"}, "64 bits"), ("x.repeat(10**9, 10**9)", X, "address space"), ("eye(10**10) + x", X, "address space"),
    ("x + 1", {"x": "f32[" + ",".join(["1"] * 70) + "]"}, "64"), ("x + 1", {"x": "f32[" + "9" * 5000 + "]"}, "64 bits"), ("x + 1", {"x": "1" * 5000}, "a spec is"),
    ("x + 1", {"x": "(" * 2000 + ")" * 2000}, "a spec is"), ("x + 1", {"x": "f32[2]" * 1000}, "a spec is"), ("x + 1", {"x": "f32[-3]"}, "no number"),
    ("x + 1", {"x": "f32[1e3]"}, "no number"), ("x + 1", {"x": "f32[²]"}, "no number"), ("x + 1", {"x": "__import__('os')"}, "a spec is"), ("x + 1", {"x": ""}, "a spec is"),
    ("x", {"x": "f32[3,n]", "n": "9" * 5000}, "n"),
]


@pytest.mark.parametrize("text,inputs,said", REFUSED, ids=[f"{i}-{''.join(c for c in r[0][:20] if c.isprintable() and c.isascii())}" for i, r in enumerate(REFUSED)])
def test_it_is_refused_in_a_line_that_can_be_read(text, inputs, said):
    with pytest.raises(tn.Error) as caught:
        tn.explain(text, device="h200", **inputs)
    assert said in str(caught.value) and len(str(caught.value)) < 500, str(caught.value)[:600]


EXPLAINED = [  # text, inputs, FLOPs
    ("x + 1", {"x": f"f32[{HUGE}]"}, HUGE), ("x.sum(0)", {"x": f"f32[{HUGE},4]"}, 4 * HUGE), ("softmax(x, -1)", {"x": f"bf16[{HUGE},4]"}, 4 * HUGE),
    ("x.T.contiguous()", {"x": f"f32[{HUGE},4]"}, 4 * HUGE), ("x @ w", {"x": f"bf16[{HUGE},8]", "w": "bf16[8,2]"}, 32 * HUGE),
    ("bmm(x, x)", {"x": f"f32[{HUGE},2,2]"}, 16 * HUGE), ("einsum('bi,bj->bij', x, x)", {"x": f"f32[{HUGE},2]"}, 4 * HUGE), ("einsum('bi,bi->', x, x)", {"x": f"f32[{HUGE},2]"}, 4 * HUGE),
    ("attention(x, x, x)", {"x": f"bf16[{HUGE},1,2,4]"}, HUGE * 2 * 4 * 8), ("attention(q, x, x)", {"q": f"bf16[1,1,{LONG},4]", "x": "bf16[1,1,2,4]"}, LONG * 2 * 2 * 8),
    ("attention(q, x, x, causal='top_left')", {"q": f"bf16[1,1,{LONG},4]", "x": "bf16[1,1,2,4]"}, (2 * LONG - 1) * 2 * 8),
    ("attention_varlen(q, q, q, c, c)", {"q": f"bf16[{LONG},1,4]", "c": "i32[3]"}, None),
    ("sort(x)", {"x": f"f32[{HUGE},2]"}, 0), ("topk(x, 1)", {"x": f"f32[{HUGE},2]"}, 0), ("cumsum(x, 0)", {"x": f"f32[{HUGE},2]"}, 2 * HUGE), ("embedding(i, w)", {"i": f"i64[{HUGE}]", "w": "f32[9,2]"}, 0),
    ("gather(x, 0, i)", {"x": f"f32[{HUGE}]", "i": f"i64[{HUGE}]"}, 0), ("rms_norm(x, w)", {"x": f"bf16[{HUGE},4]", "w": "bf16[4]"}, 4 * HUGE), ("x.unfold(0, 2, 1)", {"x": f"f32[{HUGE}]"}, 0),
    ("rope(x, c, s)", {"x": f"f32[{HUGE},1,1,4]", "c": "f32[1,2]", "s": "f32[1,2]"}, None), ("one_hot(i, 10**12)", {"i": "i64[100]"}, 0), ("multinomial(p, 1, seed=1)", {"p": f"f32[{HUGE},2]"}, None),
    ("x.to(float16)", {"x": f"f32[{HUGE}]"}, HUGE), ("where(x > 0, x, x)", {"x": f"f32[{HUGE}]"}, 2 * HUGE), ("cat([x, x])", {"x": f"f32[{HUGE}]"}, 0), ("x[i]", {"x": f"f32[{HUGE}]", "i": "i64[3]"}, 0),
    ("x.flip((0,))", {"x": f"f32[{HUGE}]"}, 0), ("x.tril()", {"x": f"f32[{HUGE},2]"}, 2 * HUGE), ("x.var(1)", {"x": f"f32[{HUGE},2]"}, 2 * HUGE), ("x.argmax(0)", {"x": f"f32[{HUGE},2]"}, 2 * HUGE),
]


@pytest.mark.parametrize("text,inputs,flops", EXPLAINED, ids=[f"{i}-{e[0][:20]}" for i, e in enumerate(EXPLAINED)])
def test_shapes_beyond_any_machine_are_explained_at_once(text, inputs, flops):
    before = time.process_time()
    try:
        e = tn.explain(text, device="h200", **inputs)
    except tn.UnsupportedError as error:
        assert "depends on data" in str(error)
        return
    assert time.process_time() - before < 1 and str(e) and e.to_json() and e.to_svg()
    assert flops is None or e.flops == flops


def test_a_thousand_statements_take_no_thousand_times_as_long():
    """Plans of many steps: independent ones, a chain that one kernel takes, views of views."""
    for text in ("\n".join(f"y{i} = x * {i}" for i in range(1000)), "y = x\n" + "y = (y + x) * 2\n" * 500, "y = x\n" + "y = y.T\n" * 1000):
        before = time.process_time()
        e = tn.explain(text, x="f32[4,4]", device="h200")
        assert len(e.steps) == 1000 and sorted(i for k in e.kernels for i in k.steps) == list(range(1000))
        assert time.process_time() - before < 5


def test_names_as_python_reads_them():
    assert tn.explain("х + α", device="h200", **{"х": "f32[2]", "α": "f32[2]"}).flops == 2  # a Cyrillic and a Greek letter
    assert tn.explain("ﬁ + 1", device="h200", **{"ﬁ": "f32[2]"}).flops == 2  # a ligature, which Python reads as two letters


def test_little_memory_is_enough():
    """All that is refused, in a process that may not take more than it needs to start."""
    code = ("import sys; sys.path[:0] = sys.argv[1:]\nimport tenor as tn, test_explain_hostile as t, resource\n"
            "used = int(next(l for l in open('/proc/self/status') if l.startswith('VmSize')).split()[1]) << 10\n"
            "resource.setrlimit(resource.RLIMIT_AS, (used + (600 << 20),) * 2)\n"
            "for text, inputs, _ in t.REFUSED:\n"
            "    try: tn.explain(text, device='h200', **inputs)\n"
            "    except tn.Error: pass\n"
            "print('done')")
    done = subprocess.run([sys.executable, "-c", code, __file__.rpartition("/")[0]], capture_output=True, text=True, timeout=120)
    assert done.stdout == "done\n", done.stderr[-500:]


@pytest.mark.parametrize("text", ["x + paged.pi", "x + moe.inf", "x.to(moe.float)"])
def test_a_module_of_the_package_has_its_own_names_alone(text):
    with pytest.raises(tn.ValueError, match="unknown name"):
        tn.explain(text, x="f32[2]")
