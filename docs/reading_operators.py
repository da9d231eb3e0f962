"""Writes docs/reading_operators.md: the text below with what `explain` answers to each expression.

    python docs/reading_operators.py            writes the page
    python docs/reading_operators.py --check    exit status 1 when the page says something else
"""
import pathlib
import sys

import tenor

PAGE = pathlib.Path(__file__).with_suffix(".md")
STATE = dict(q="f32[2,16,64,128]", k="f32[2,16,64,128]", v="f32[2,16,64,128]", g="f32[2,16,64]", beta="f32[2,16,64]", S="f32[2,16,128,128]", i=0)

PARTS = [
    """# Reading operators

There are thousands of operators, and one question sorts them: **which input elements does one output element depend on?** The
answer decides the output's shape, the bytes that move, whether memory or arithmetic is the limit, and what may share a kernel
with its neighbours. `tenor.explain` asks it for you, from shapes alone: nothing below was computed, and no GPU was needed.

This page is written by `docs/reading_operators.py`; every block is what `explain` prints for `device="h200"`.

| class | one output element depends on | cost | examples |
|---|---|---|---|
| 1 view | none: only shape and strides change | nothing | `view`, `transpose`, `x[:, None]`, `expand` |
| 2 elementwise | the element at its own place | memory | `+`, `exp`, `where`, `to` |
| 3 reduction, scan, sort | a row | memory, and the whole row first | `sum`, `softmax`, `cumsum`, `topk` |
| 4 index | places that data names | memory, irregular | `gather`, `x[idx]`, `scatter_`, `cat` |
| 5 contraction | a row and a column | arithmetic when large | `@`, `linear`, `einsum` |

## 1. Views cost nothing, until somebody cannot read them
""",
    ("x.transpose(0, 1)[:, None].expand(-1, 4, -1)", dict(x="bf16[4096,8192]")),
    """Shape, strides and offset change; the data stays where it is. A view is not about being contiguous but about whether strides can
express the new shape. They cannot always: an expanded dim has stride 0, and merging it with its neighbour takes a copy, which
`explain` lists among the hidden ones.
""",
    ("mask.unsqueeze(-1).expand(4096, 8, 32).reshape(4096, 256)", dict(mask="f32[4096,8]")),
    """## 2. Elementwise steps are paid by the byte
""",
    ("gelu(x + bias)", dict(x="bf16[16384,8192]", bias="f32[8192]")),
    """One FLOP an element against six or more bytes: such a step waits for memory, and a chain of them costs as often as its
intermediate results go to memory and back. Fused, they stay in registers. Shapes are aligned from the right, and a dim of 1
repeats. The float32 bias made the sum and all that follows float32: easy to miss, hence the line under *promotions*.

## 3. Reductions need the whole row
""",
    ("x / x.sum(-1, keepdim=True)", dict(x="bf16[4096,8192]")),
    """The sum is complete only at the row's end, so what follows it in the row waits; but the row stays on the chip, and the two
steps still make one kernel, which reads x once. Without `keepdim` the dim is gone, and the shapes do not meet:
""",
    ("x / x.sum(-1)", dict(x="bf16[4096,8192]")),
    """RMSNorm is such a row through and through: one reduction, the rest elementwise. Step by step it moves ten times what it has to.
""",
    ("""x = x.to(torch.float32)
variance = x.pow(2).mean(dim=-1, keepdim=True)
x = x * torch.rsqrt(variance + 1e-6)
x = (x * weight).to(torch.bfloat16)""", dict(x="bf16[4096,8192]", weight="f32[8192]")),
    """A row too long for the chip is read again, and `explain` cuts there:
""",
    ("x - x.mean()", dict(x="bf16[16384,8192]")),
    """## 4. Index steps copy, since no stride can express their order
""",
    ("torch.gather(probs_idx, 1, sampled)", dict(probs_idx="i64[128,151936]", sampled="i64[128,1]")),
    """The result has the shape of the index, and of the table no more is counted than comes out, as for `index_select`, `embedding` and
`x[idx]`: 1 KiB here of the table's 148 MiB. Memory comes in lines, so scattered single elements cost more than their bytes.

`sort` and `topk` return the indices that lead back to the order from before; top-p sampling sorts, scans, writes where a mask says,
and gathers its way back to token ids:
""",
    ("""probs_sort, probs_idx = probs.sort(dim=-1, descending=True)
probs_sum = torch.cumsum(probs_sort, dim=-1)
probs_sort[(probs_sum - probs_sort) > top_p.view(-1, 1)] = 0.0
torch.gather(probs_idx, 1, probs_sort.argmax(-1, keepdim=True))""", dict(probs="f32[128,151936]", top_p="f32[128]")),
    """## 5. Contractions are where the FLOPs are
""",
    ("x @ w", dict(x="bf16[4096,4096]", w="bf16[4096,4096]")),
    ("x @ w", dict(x="bf16[1,4096]", w="bf16[4096,4096]")),
    """2·M·N·K FLOPs on M·K + K·N + M·N elements: bound by arithmetic when all three are large, by memory when one of them is small, as at
every decoding step. In an einsum, what stands right of the arrow stays and what does not is summed; when nothing is missing on the
right, it is an outer product and bound by memory again.
""",
    ('einsum("ti,taoi->tao", x, w)', dict(x="bf16[1,4096]", w="bf16[1,8,2048,4096]")),
    ('einsum("bhk,bhv->bhkv", k, delta)', dict(k="f32[2,16,128]", delta="f32[2,16,128]")),
    """## All of it: one step of the gated delta rule

Integers drop a dim, slices keep it, `None` adds a 1 for broadcasting, `...` stands for the dims in between. Read the shapes down
the column, and the line explains itself.
""",
    ("""q_i, k_i, v_i = q[:, :, i], k[:, :, i], v[:, :, i]
S = S * g[:, :, i].exp()[..., None, None]
v_hat = torch.einsum("bhk,bhkv->bhv", k_i, S)
delta = beta[:, :, i, None] * (v_i - v_hat)
S = S + torch.einsum("bhk,bhv->bhkv", k_i, delta)
out = torch.einsum("bhk,bhkv->bhv", q_i, S)
out, S""", STATE),
    """The state S goes through memory again and again, which is what a fused recurrent kernel saves.

## More

`explain(fn, *arrays)` takes a function instead of text, in C++ as well (`tenor/explain.h`). `measure=True` runs it and adds times;
without `device` it takes the measured limits of where the arrays are, `device="cuda"` those of this machine's GPU. `to_json()` is for
scripts, `to_svg(path)` draws the roofline, and a notebook shows both. On the command line: `tenor explain "x / x.sum(-1, keepdim=True)" "x=bf16[4096,8192]"`.
""",
]


def answer(text, inputs):
    """What a reader would see."""
    try:
        shown = str(tenor.explain(text, device="h200", **inputs))
    except tenor.Error as error:
        given = ", ".join(f"{k} {v}" for k, v in inputs.items())
        shown = f"{text}\nwith {given}\n\n{type(error).__name__}: {error}"
    if "\n" in text:
        shown = text + "\n\n" + shown
    return "```text\n" + shown + "\n```\n"


def page():
    return "\n".join(answer(*part) if isinstance(part, tuple) else part for part in PARTS)


if __name__ == "__main__":
    if "--check" in sys.argv:
        sys.exit(0 if PAGE.read_text(encoding="utf-8") == page() else "docs/reading_operators.md is not what docs/reading_operators.py writes")
    PAGE.write_text(page(), encoding="utf-8")
