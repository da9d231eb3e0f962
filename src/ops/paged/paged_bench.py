"""The paged family's cases for tenor.bench: decode steps, one query a sequence, pages in random order."""
import numpy as np


def dtype_of(name):
    import ml_dtypes
    return np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)


def halves(rng, shape, dtype):
    """Random bits with exponents about 1: quick to draw in the sizes of a cache."""
    if dtype != "bfloat16":
        return rng.standard_normal(shape, np.float32).astype(dtype_of(dtype))
    bits = rng.integers(0, 1 << 16, shape, np.uint16) & 0x80FF | 0x3F00
    return bits.view(dtype_of(dtype))


class Step:
    """A plan made at the first call on each device: schedules are not what is timed."""

    def __init__(self, sequences, length, page_size):
        self.length, self.pages = length, sequences * length // page_size
        self.page_size, self.sequences, self.plans = page_size, sequences, {}
        self.tables = np.random.default_rng(1).permutation(self.pages).reshape(sequences, -1)

    def plan(self, tn, like):
        if like.device not in self.plans:
            host = tn.paged.HostPlan(self.page_size, self.pages, self.tables, [self.length] * self.sequences, range(self.sequences), [self.length - 1] * self.sequences)
            self.plans[like.device] = tn.paged.DevicePlan.upload(host, like=like)
        return self.plans[like.device]

    def sequences_of(self, torch, cache):
        """PyTorch has no paged cache. On a CPU it gathers the pages into [sequences, length, heads, dim] first; on a GPU its cache
        is taken to be contiguous: the same bytes, without that copy."""
        pages = cache if cache.is_cuda else cache[torch.from_numpy(self.tables)]
        return pages.reshape(self.sequences, self.length, *cache.shape[2:])

    def attend(self, torch, q, k, v):
        k, v = (self.sequences_of(torch, x).transpose(1, 2) for x in (k, v))
        return torch.nn.functional.scaled_dot_product_attention(q.unsqueeze(2), k, v, enable_gqa=True)

    def attend_latent(self, torch, q, qp, c, kp, scale):
        """The heads as query rows that share one key."""
        c, kp = (self.sequences_of(torch, x).transpose(1, 2) for x in (c, kp))
        return torch.nn.functional.scaled_dot_product_attention(torch.cat([q, qp], -1).unsqueeze(1), torch.cat([c, kp], -1), c, scale=scale)


def decode_case(sequences, heads, kv_heads, length, dim, page_size, dtype="bfloat16", device=None):
    step = Step(sequences, length, page_size)
    caches = (step.pages, page_size, kv_heads, dim)
    target = f"paged_decode/B{sequences}-H{heads}-G{kv_heads}-S{length}-D{dim}-page{page_size}-bf16"
    case = dict(
        target=target if device else None, op="paged.attention", case=f"B{sequences} H{heads} G{kv_heads} S{length} D{dim} page {page_size}", dtype=dtype,
        make=lambda rng: (halves(rng, (sequences, heads, dim), dtype), halves(rng, caches, dtype), halves(rng, caches, dtype)),
        run=lambda tn, q, k, v: step.plan(tn, q).attention(q, k, v), peer=step.attend,
        bytes=2 * sequences * kv_heads * length * dim * dtype_of(dtype).itemsize, flops=0)
    return dict(case, device=device) if device else case


def mla_case(sequences, heads, length, rank=512, rope=64, page_size=64, dtype="bfloat16", by_bytes=False, device=None):
    step = Step(sequences, length, page_size)
    shapes = (sequences, heads, rank), (sequences, heads, rope), (step.pages, page_size, 1, rank), (step.pages, page_size, 1, rope)
    flops = 0 if by_bytes else 2 * sequences * heads * length * (2 * rank + rope)
    target, scale = f"mla_decode/B{sequences}-H{heads}-S{length}-R{rank}-P{rope}-bf16", (128 + 64) ** -0.5
    case = dict(
        target=target if device else None, op="paged.mla", case=f"B{sequences} H{heads} S{length} R{rank} P{rope} page {page_size}", dtype=dtype,
        make=lambda rng: tuple(halves(rng, s, dtype) for s in shapes), run=lambda tn, q, qp, c, kp: step.plan(tn, q).mla(q, qp, c, kp, scale, True),
        peer=lambda torch, *arrays: step.attend_latent(torch, *arrays, scale), bytes=sequences * length * (rank + rope) * dtype_of(dtype).itemsize, flops=flops)
    return dict(case, device=device) if device else case


CASES = [
    decode_case(4, 32, 8, 1024, 128, 16), decode_case(4, 32, 8, 1024, 128, 16, "float32"), mla_case(2, 16, 512),
    *(decode_case(b, h, 8, s, 128, page, device="cuda") for page in (16, 64)
      for b, h, s in ((64, 32, 4096), (8, 32, 32768), (1, 32, 131072), (128, 64, 2048))),
    mla_case(64, 128, 4096, device="cuda"), mla_case(128, 16, 4096, by_bytes=True, device="cuda"), mla_case(1, 128, 65536, device="cuda"),
]
