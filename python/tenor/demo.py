"""Every operator family on real shapes: the strategy taken, the error against a float64 reference, the time, and the share
of this machine's measured limit.

    tenor demo [FAMILY ...] [--device cuda] [--threads N] [--json]

The limit is the larger of two times: the bytes that must move at the machine's copy bandwidth, the FLOPs at its rate for
the dtype (tenor.device_limits()). Data that stays in the caches may beat the first. The error is the largest of |got - want|
over the largest of |want| (1 at least); integers are exact, or wrong.
"""
import math
import sys
import time

import numpy as np

import tenor as tn
from tenor._tenor import _strategies_of


PLACE = "cpu"  # where the cases' tensors are made


def data(*shapes, dtype="float32", seed=0):
    """Normal numbers as tensors of that dtype."""
    rng = np.random.default_rng(seed)
    return [tn.asarray(rng.standard_normal(s).astype(np.float32), device=PLACE).to(dtype) for s in shapes]


def wide(x):
    """A result as NumPy, floats in float64."""
    if isinstance(x, tn.Tensor):
        return (x.to(tn.float64) if x.dtype in ("float16", "bfloat16", "float32") else x).numpy()
    return np.asarray(x)


def erf(x):
    return np.vectorize(math.erf, otypes=[np.float64])(x)


def softmax(s):
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def attend(q, k, v, causal):
    """The formula for one key head a query head."""
    s = q @ k.swapaxes(-1, -2) / math.sqrt(q.shape[-1])
    if causal:
        s = np.where(np.tri(q.shape[-2], k.shape[-2], k.shape[-2] - q.shape[-2], dtype=bool), s, -np.inf)
    return softmax(s) @ v


def rotate(x, cos, sin):
    half = x.shape[-1] // 2
    a, b = x[..., :half], x[..., half:]
    c, s = cos[:, None], sin[:, None]
    return np.concatenate([a * c - b * s, b * c + a * s], -1)


def size(*tensors):
    """Bytes of their elements."""
    return sum(math.prod(t.shape) * t.dtype.itemsize for t in tensors)


class Case:
    """One row: run() is timed; want(rows) gives the float64 result, of the first rows only where `rows` says so."""

    def __init__(self, family, op, shape, dtype, run, want, moved=0, flops=0, rows=None):
        self.family, self.op, self.shape, self.dtype = family, op, shape, dtype
        self.run, self.want, self.moved, self.flops, self.rows = run, want, moved, flops, rows


def view_cases():
    x, = data((64, 128, 512))
    yield Case("view", "permute", "64x128x512", "float32", lambda: x.permute(2, 0, 1), lambda: wide(x).transpose(2, 0, 1))


def create_cases():
    yield Case("create", "arange", "4194304", "int64", lambda: tn.arange(1 << 22, device=PLACE), lambda: np.arange(1 << 22), moved=8 << 22)


def elementwise_cases():
    a, b = data((2048, 4096), (2048, 4096))
    h, = data((2048, 4096), dtype="bfloat16")
    row, = data((4096,))
    yield Case("elementwise", "add", "2048x4096", "float32", lambda: tn.add(a, b), lambda: wide(a) + wide(b), moved=size(a, b, a))
    yield Case("elementwise", "add", "2048x4096 + 4096", "float32", lambda: tn.add(a, row), lambda: wide(a) + wide(row), moved=size(a, a))
    yield Case("elementwise", "gelu", "2048x4096", "bfloat16", lambda: tn.gelu(h),
               lambda: (lambda x: x * 0.5 * (1 + erf(x / math.sqrt(2))))(wide(h[:64])), moved=size(h, h), rows=64)


def reduce_cases():
    a, = data((2048, 4096))
    yield Case("reduce", "sum", "2048x4096, rows", "float32", lambda: tn.sum(a, -1), lambda: wide(a).sum(-1), moved=size(a))
    yield Case("reduce", "argmax", "2048x4096, rows", "float32", lambda: tn.argmax(a, -1), lambda: wide(a).argmax(-1), moved=size(a))
    yield Case("reduce", "var", "2048x4096, columns", "float32", lambda: tn.var(a, 0), lambda: wide(a).var(0, ddof=1), moved=size(a))


def scan_cases():
    a, = data((2048, 4096))
    yield Case("scan", "cumsum", "2048x4096, rows", "float32", lambda: tn.cumsum(a, -1), lambda: wide(a).cumsum(-1), moved=size(a, a))


def sort_cases():
    a, b = data((256, 4096), (64, 32000))
    yield Case("sort", "sort", "256x4096", "float32", lambda: tn.sort(a).values, lambda: np.sort(wide(a), -1), moved=4 * size(a))
    yield Case("sort", "topk", "50 of 64x32000", "float32", lambda: tn.topk(b, 50).values, lambda: -np.sort(-wide(b), -1)[:, :50], moved=size(b))


def index_cases():
    table, = data((30522, 384))
    ids = np.random.default_rng(1).integers(0, 30522, (64, 128))
    places = tn.asarray(ids, device=PLACE)
    moved = 2 * ids.size * 384 * 4 + ids.size * 8
    yield Case("index", "embedding", "64x128 of 30522x384", "float32", lambda: tn.embedding(places, table), lambda: wide(table)[ids], moved=moved)
    yield Case("index", "gather", "64x128 of 30522x128", "float32", lambda: tn.gather(table[:, :128], 0, places),
               lambda: np.take_along_axis(wide(table)[:, :128], ids, 0), moved=ids.size * 16)


def contract_cases():
    for dtype in ("float32", "bfloat16"):
        a, b = data((1024, 1024), (1024, 1024), dtype=dtype)
        yield Case("contract", "matmul", "1024x1024x1024", dtype, lambda a=a, b=b: tn.matmul(a, b), lambda a=a, b=b: wide(a[:64]) @ wide(b),
                   moved=size(a, b, a), flops=2 << 30, rows=64)
    x, w, bias = data((288, 384), (1536, 384), (1536,))
    yield Case("contract", "linear", "288x384 -> 1536", "float32", lambda: tn.linear(x, w, bias), lambda: wide(x) @ wide(w).T + wide(bias),
               moved=size(x, w, bias) + 4 * 288 * 1536, flops=288 * 1536 * (2 * 384 + 1))
    q, k = data((32, 8, 64, 64), (32, 8, 64, 64))
    yield Case("contract", "einsum", "bhid,bhjd->bhij", "float32", lambda: tn.einsum("bhid,bhjd->bhij", q, k),
               lambda: np.einsum("bhid,bhjd->bhij", wide(q), wide(k), optimize=True), moved=3 * size(q), flops=2 * 32 * 8 * 64**3)


def norm_cases():
    for dtype in ("float32", "bfloat16"):
        x, = data((2048, 4096), dtype=dtype)
        gamma, beta = data((4096,), (4096,))

        def layer_norm(x=x, gamma=gamma, beta=beta):
            v = wide(x)
            d = v - v.mean(-1, keepdims=True)
            return d / np.sqrt((d * d).mean(-1, keepdims=True) + 1e-5) * wide(gamma) + wide(beta)

        yield Case("norm", "layer_norm", "2048x4096", dtype, lambda x=x, g=gamma, b=beta: tn.layer_norm(x, g, b), layer_norm, moved=2 * size(x))
        yield Case("norm", "rms_norm", "2048x4096", dtype, lambda x=x, g=gamma: tn.rms_norm(x, g),
                   lambda x=x, g=gamma: wide(x) / np.sqrt((wide(x) ** 2).mean(-1, keepdims=True) + 1e-6) * wide(g), moved=2 * size(x))
        yield Case("norm", "softmax", "2048x4096", dtype, lambda x=x: tn.softmax(x), lambda x=x: softmax(wide(x)), moved=2 * size(x))


def activation_cases():
    x, = data((2048, 8192), dtype="bfloat16")
    yield Case("activation", "silu_mul", "2048x8192", "bfloat16", lambda: tn.silu_mul(x),
               lambda: (lambda g, u: g / (1 + np.exp(-g)) * u)(wide(x)[:, :4096], wide(x)[:, 4096:]), moved=size(x) * 3 // 2)


def rope_cases():
    x, = data((4, 1024, 8, 64))
    cos, sin = tn.rope_tables(1024, 64, device=PLACE)
    yield Case("rope", "rope", "4x1024x8x64", "float32", lambda: tn.rope(x, cos, sin), lambda: rotate(wide(x), wide(cos), wide(sin)), moved=2 * size(x))


def attention_cases():
    for dtype, causal in (("float32", False), ("float32", True), ("bfloat16", False), ("bfloat16", True)):
        q, k, v = data(*[(1, 8, 1024, 64)] * 3, dtype=dtype)
        yield Case("attention", "attention", "B1 H8 S1024 D64" + " causal" * causal, dtype,
                   lambda q=q, k=k, v=v, c=causal: tn.attention(q, k, v, causal=c),
                   lambda q=q, k=k, v=v, c=causal: attend(wide(q), wide(k), wide(v), c),
                   moved=4 * size(q), flops=4 * 8 * 64 * (1024 * 1025 // 2 if causal else 1024 * 1024))


def sampling_cases():
    from tenor.checking.check_sampling import SAMPLE, kept, scores  # filters by sorting, and the race of a Philox of its own

    x, = data((64, 32000))

    def drawn(k, top_p):
        rows = wide(x[:8])
        return [int(np.argmax(scores(kept(p, row, k, top_p, 0.0), 7, 0, SAMPLE))) for p, row in zip(softmax(rows), rows)]

    yield Case("sampling", "sample", "64x32000 top-k 50", "int64", lambda: tn.sample(x, top_k=50, seed=7), lambda: drawn(50, 1.0), moved=size(x), rows=8)
    yield Case("sampling", "sample", "64x32000 top-p 0.9", "int64", lambda: tn.sample(x, top_p=0.9, seed=7), lambda: drawn(0, 0.9), moved=size(x), rows=8)


def paged_cases():
    """A decode step of four sequences, grouped heads, pages in random order."""
    sequences, keys, page = 4, 1024, 16
    tables = np.random.default_rng(1).permutation(sequences * keys // page).reshape(sequences, -1)
    for dtype in ("float32", "bfloat16"):
        q, k, v = data((sequences, 32, 128), *[(tables.size, page, 8, 128)] * 2, dtype=dtype)
        host = tn.paged.HostPlan(page, tables.size, tables, [keys] * sequences, range(sequences), [keys - 1] * sequences)
        plan = tn.paged.DevicePlan.upload(host, like=q)
        rows = lambda x: np.repeat(wide(x)[tables].reshape(sequences, keys, 8, 128).swapaxes(1, 2), 4, 1)
        yield Case("paged", "paged.attention", "B4 H32/8 S1024 D128", dtype, lambda q=q, k=k, v=v, plan=plan: plan.attention(q, k, v),
                   lambda q=q, k=k, v=v, rows=rows: attend(wide(q)[:, :, None], rows(k), rows(v), False)[:, :, 0],
                   moved=2 * size(q) + size(k, v), flops=4 * sequences * 32 * keys * 128)


def gated_delta_cases():
    """A prompt by chunks and a decode step, grouped value heads."""
    from tenor.checking.check_gated_delta import recurrence, repeated

    for dtype, steps in (("float32", 512), ("bfloat16", 512), ("float32", 1), ("bfloat16", 1)):
        batch, heads = (1, 8) if steps > 1 else (16, 8)
        q, k, v = data((batch, heads // 2, steps, 128), (batch, heads // 2, steps, 128), (batch, heads, steps, 128), dtype=dtype)
        k, g, state = tn.mul(k, 128**-0.5), tn.mul(data((batch, heads, steps), seed=1)[0].abs(), -0.1), data((batch, heads, 128, 128), seed=2)[0]
        beta = tn.sigmoid(data((batch, heads, steps), dtype=dtype, seed=3)[0])
        args = (q, k, v, beta, g, state)
        fn = tn.chunk_gated_delta_rule if steps > 1 else tn.gated_delta_rule

        def want(x=args):
            wq, wk = repeated(wide(x[0]), wide(x[1]), wide(x[2]).shape[1])
            return recurrence(wq, wk, *(wide(y) for y in x[2:]), 128**-0.5)[0]

        yield Case("gated_delta", fn.__name__, f"B{batch} H{heads} T{steps} K128 V128", dtype, lambda fn=fn, x=args: fn(*x).output, want,
                   moved=2 * size(state) + size(q, k, v, v), flops=7 * batch * heads * steps * 128 * 128)


def ctc_cases():
    from tenor.checking.check_ctc import recursion

    frames, samples, classes, labels = 256, 16, 64, 30
    targets = np.random.default_rng(1).integers(1, classes, (samples, labels))
    lengths = [frames] * samples, [labels] * samples
    for dtype in ("float32", "bfloat16"):
        x = tn.log_softmax(data((frames, samples, classes), dtype=dtype)[0])
        places = tn.asarray(targets, device=PLACE)
        yield Case("ctc", "ctc_loss", f"T{frames} N{samples} C{classes} S{labels}", dtype,
                   lambda x=x: tn.ctc_loss(x, places, *lengths, reduction="none"),
                   lambda x=x: [recursion(wide(x)[:, n], targets[n], 0)[0] for n in range(samples)], moved=size(x) * (labels + 1) // classes)


def moe_cases():
    """A layer of 16 experts, two a token."""
    from tenor.checking.check_moe import swiglu

    tokens, experts, hidden, inner = 256, 16, 512, 384

    def layer_of(gate, up, down, x, plan):
        rows = plan.dispatch(x)
        y = swiglu(*map(wide, (gate, up, down)), rows.tokens.numpy(), rows.offsets.numpy())
        order = np.argsort(plan.expert_indices("int64").numpy().ravel(), kind="stable")
        out = np.zeros((tokens, hidden))
        np.add.at(out, order // 2, wide(plan.weights()).ravel()[order, None] * y)
        return out

    for dtype in ("float32", "bfloat16"):
        x, logits = data((tokens, hidden), (tokens, experts), dtype=dtype)
        gate, up, down = (w * 0.04 for w in data(*[(experts, inner, hidden)] * 2, (experts, hidden, inner), dtype=dtype))
        layer, plan = tn.moe.SwiGluExperts(gate, up, down), tn.moe.route(logits, 2)
        yield Case("moe", "moe.forward", f"T{tokens} E{experts} k2 H{hidden} I{inner}", dtype, lambda layer=layer, x=x, logits=logits: layer.forward(x, logits, 2),
                   lambda gate=gate, up=up, down=down, x=x, plan=plan: layer_of(gate, up, down, x, plan),
                   moved=size(gate, up, down) + 2 * size(x), flops=6 * 2 * tokens * hidden * inner)


def conv_cases():
    """A 3x3 layer in every direction, and a depthwise one."""

    def directions(x, w, g, groups):
        """The definition, a tap at a time: output, gradients to the image and the filter."""
        x, w, g = wide(x), wide(w), wide(g)
        padded, y, dx, dw = np.pad(x, [(0, 0), (0, 0), (1, 1), (1, 1)]), 0, np.zeros((x.shape[0], x.shape[1], 58, 58)), np.zeros(w.shape)
        grouped = lambda a: a.reshape(a.shape[0], groups, -1, 56 * 56)
        for i, j in np.ndindex(3, 3):
            tap, image = w[:, :, i, j].reshape(groups, -1, w.shape[1]), grouped(np.ascontiguousarray(padded[:, :, i:i + 56, j:j + 56]))
            y = y + (tap @ image).reshape(g.shape)
            dx[:, :, i:i + 56, j:j + 56] += (tap.swapaxes(1, 2) @ grouped(g)).reshape(x.shape)
            dw[:, :, i, j] = (grouped(g) @ image.swapaxes(2, 3)).sum(0).reshape(w.shape[:2])
        return y, dx[:, :, 1:57, 1:57], dw

    for dtype in ("float32", "bfloat16"):
        for groups, kind in ((1, "3x3"), (64, "depthwise 3x3")):
            x, w, g = data((2, 64, 56, 56), (64, 64 // groups, 3, 3), (2, 64, 56, 56), dtype=dtype)
            o = dict(padding=1, groups=groups)
            calls = {"conv_forward": lambda x=x, w=w, o=o: tn.conv_forward(x, w, **o),
                     "conv_data_backward": lambda g=g, w=w, x=x, o=o: tn.conv_data_backward(g, w, x.shape, **o),
                     "conv_weight_backward": lambda x=x, g=g, w=w, o=o: tn.conv_weight_backward(x, g, w.shape, **o)}
            for i, (name, run) in enumerate(calls.items()):
                yield Case("conv", name, f"{kind} 64@56 N2", dtype, run, lambda x=x, w=w, g=g, groups=groups, i=i: directions(x, w, g, groups)[i],
                           moved=size(x, w, g), flops=2 * 2 * 64 * 64 // groups * 9 * 56 * 56)


def interpolate_cases():
    from tenor.checking.check_grids import applied, matrix
    x, = data((4, 16, 128, 128))
    for mode, to, antialias in (("bilinear", 256, False), ("bicubic", 256, False), ("bilinear", 64, True)):
        taps = matrix(mode, 128, to, None, False, antialias)
        yield Case("interpolate", "interpolate", f"4x16@128 {mode}{' aa' * antialias} {to}", "float32",
                   lambda mode=mode, to=to, aa=antialias: tn.interpolate(x, to, mode=mode, antialias=aa), lambda taps=taps: applied(wide(x), [taps, taps]),
                   moved=size(x) * (128 * 128 + to * to) // (128 * 128))


def grid_sample_cases():
    x, = data((4, 16, 128, 128))
    half = tn.asarray(np.broadcast_to(np.array([[0.5, 0, 0.25], [0, 0.5, -0.125]], np.float32), (4, 2, 3)).copy(), device=PLACE)  # half as large, and moved
    grid = tn.affine_grid(half, x.shape)

    def want():
        """Every place lies a quarter of a pixel from the one before it: linear in each dim."""
        u = [((0.5 * ((2 * np.arange(128) + 1) / 128 - 1) + shift + 1) * 128 - 1) / 2 for shift in (-0.125, 0.25)]
        low = [np.floor(v).astype(int) for v in u]
        y, (a, b) = wide(x), [v - k for v, k in zip(u, low)]
        rows = y[:, :, low[0]] * (1 - a)[:, None] + y[:, :, low[0] + 1] * a[:, None]
        return rows[..., low[1]] * (1 - b) + rows[..., low[1] + 1] * b
    yield Case("grid_sample", "grid_sample", "4x16x128x128 bilinear", "float32", lambda: tn.grid_sample(x, grid), want, moved=2 * size(x) + size(grid))


def pool_cases():
    """Overlapping windows of an image, rows and channels together."""
    def windows(x):
        v = np.pad(wide(x), ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=-np.inf)
        return [v[..., i : i + 111 : 2, j : j + 111 : 2] for i in range(3) for j in range(3)]

    for dtype in ("float32", "bfloat16"):
        x, = data((8, 64, 112, 112), dtype=dtype)
        channels = data((8, 112, 112, 64), dtype=dtype)[0].permute(0, 3, 1, 2)
        for layout, image in (("NCHW", x), ("NHWC", channels)):
            yield Case("pool", "max_pool2d", f"8x64@112 3x3 s2 {layout}", dtype, lambda image=image: tn.max_pool2d(image, 3, 2, 1),
                       lambda image=image: np.maximum.reduce(windows(image)), moved=size(image) * 5 // 4)
        yield Case("pool", "avg_pool2d", "8x64@112 3x3 s2 NCHW", dtype, lambda x=x: tn.avg_pool2d(x, 3, 2, 1),
                   lambda x=x: sum(np.where(np.isinf(w), 0, w) for w in windows(x)) / 9, moved=size(x) * 5 // 4)


FAMILIES = {name[: -len("_cases")]: make for name, make in list(globals().items()) if name.endswith("_cases")}


ALLOWED = {"float32": 1e-5, "bfloat16": 2.0**-8}


def strategy_of(case):
    """The strategy that "auto" took for the operator, as it states it; "-" where there is only one way."""
    return next((taken for op, taken in _strategies_of(case.run) if op == case.op and taken), "-")


def error_of(got, want):
    got, want = wide(got), np.asarray(want)
    if got.shape != want.shape:
        raise AssertionError(f"shape {got.shape}, expected {want.shape}")
    if got.size == 0:
        return 0.0
    return float(np.max(np.abs(got - want)) / max(1.0, np.max(np.abs(want))))


def best_time(run, seconds=0.15):
    """Seconds of a call: on the CPU the best of single ones, on a GPU the best average of some in a row."""
    run()
    if PLACE != "cpu":
        return best_average(run, seconds)
    times, end = [], time.perf_counter() + seconds
    while len(times) < 3 or (time.perf_counter() < end and len(times) < 1000):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)


def best_average(run, seconds, calls=20):
    times, end = [], time.perf_counter() + seconds
    while len(times) < 3 or time.perf_counter() < end:
        tn.synchronize(PLACE)
        start = time.perf_counter()
        for _ in range(calls):
            run()
        tn.synchronize(PLACE)
        times.append((time.perf_counter() - start) / calls)
    return min(times)


def measure(case, limits):
    """The row as a dict; `share` is None where nothing must move."""
    result = case.run()
    error = error_of(result if case.rows is None else result[: case.rows], case.want())
    seconds = best_time(case.run)
    flops = limits.bfloat16_flops if case.dtype in ("bfloat16", "float16") else limits.float32_flops
    floor = max(case.moved / limits.copy_bytes, case.flops / flops)
    return {"family": case.family, "op": case.op, "shape": case.shape, "dtype": case.dtype, "strategy": strategy_of(case), "error": error,
            "ms": seconds * 1e3, "share": floor / seconds if floor else None,
            "bound": None if not floor else "memory" if case.moved / limits.copy_bytes >= case.flops / flops else "compute"}


COLUMNS = "{:12}{:23}{:24}{:10}{:16}{:>9}{:>11}  {}"
TITLES = ("family", "operator", "shape", "dtype", "strategy", "error", "ms", "share of limit")


def show(row):
    share = "no data moves" if row["share"] is None else f"{100 * row['share']:4.0f}% of {'copy' if row['bound'] == 'memory' else 'FLOPs'}"
    return COLUMNS.format(row["family"], row["op"], row["shape"], row["dtype"], row["strategy"], f"{row['error']:.1e}", f"{row['ms']:.4f}", share)


def wrong(row):
    """Whether the error is above what the dtype allows; a NaN is."""
    return not row["error"] <= ALLOWED.get(row["dtype"], 0)


def main(argv=None):
    """`python -m tenor.demo` is `tenor demo`."""
    from tenor._cli import main as command_line

    return command_line(["demo", *(sys.argv[1:] if argv is None else argv)])


if __name__ == "__main__":
    sys.exit(main())
