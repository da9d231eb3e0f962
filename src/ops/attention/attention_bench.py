"""The attention family's cases for tenor.bench. FLOPs count the visible pairs."""
from tenor._bench_data import bytes_of, normal


def attention_case(dtype, b, h, hkv, sq, sk, d, causal=False, target=None, bias=False):
    shapes = ((b, h, sq, d), (b, hkv, sk, d), (b, hkv, sk, d), *([(b, h, sq, sk)] if bias else []))
    # PyTorch's is_causal counts from the top left; the same here, so that both compute the same rows.
    causal = causal and ("top_left" if sq != sk else True)
    pairs = b * h * (sum(min(sk, i + 1) for i in range(sq)) if causal else sq * sk)
    name = f"B{b} H{h}" + (f" G{hkv}" if hkv != h else "") + f" S{sq}" + (f" of {sk}" if sk != sq else "") + f" D{d}" + (" causal" if causal else "") + (" bias" if bias else "")
    return dict(
        target=target, op="attention", case=name, dtype=dtype,
        make=lambda rng: normal(rng, dtype, *shapes),
        run=lambda tn, q, k, v, bias=None: tn.attention(q, k, v, bias=bias, causal=causal),
        peer=lambda torch, q, k, v, bias=None: torch.nn.functional.scaled_dot_product_attention(
            q, k, v, attn_mask=bias, is_causal=bool(causal), enable_gqa=h != hkv),
        bytes=bytes_of(dtype, shapes[0], *shapes), flops=4 * pairs * d)


def gpu_case(b, h, s, d, hkv=None, causal=False, bias=False, dtype="bfloat16"):
    """A row of targets.json, on a GPU."""
    groups, short = (f"-G{hkv}" if hkv else ""), {"bfloat16": "bf16", "float32": "f32"}[dtype]
    target = f"attention/B{b}-H{h}{groups}-S{s}-D{d}" + ("-causal" if causal else "") + ("-bias" if bias else "") + f"-{short}"
    return dict(attention_case(dtype, b, h, hkv or h, s, s, d, causal, target, bias), device="cuda")


CASES = [
    *(attention_case(dtype, 1, 8, 8, 1024, 1024, 64, causal) for dtype in ("float32", "bfloat16", "float16") for causal in (False, True)),
    *(attention_case(dtype, 4, 12, 12, 128, 128, 32) for dtype in ("float32", "bfloat16")),
    *(attention_case(dtype, 1, 32, 8, 1, 4096, 128) for dtype in ("float32", "bfloat16")),
    attention_case("float32", 1, 8, 2, 512, 2048, 80, True),
    gpu_case(2, 16, 8192, 128), gpu_case(2, 16, 8192, 128, causal=True), gpu_case(1, 16, 16384, 128, causal=True),
    gpu_case(2, 32, 4096, 128, hkv=8, causal=True), gpu_case(8, 16, 2048, 128, causal=True),
    gpu_case(16, 16, 1024, 128, causal=True), gpu_case(32, 16, 512, 128), gpu_case(4, 32, 4096, 64),
    gpu_case(4, 32, 4096, 64, causal=True), gpu_case(2, 8, 8192, 256, causal=True),
    gpu_case(2, 16, 4096, 128, bias=True), gpu_case(1, 16, 4096, 64, dtype="float32"),
]
