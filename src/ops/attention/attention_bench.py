"""The attention family's cases for tenor.bench. FLOPs count the visible pairs."""
from tenor._bench_data import bytes_of, normal


def attention_case(dtype, b, h, hkv, sq, sk, d, causal=False, target=None):
    shapes = (b, h, sq, d), (b, hkv, sk, d), (b, hkv, sk, d)
    # PyTorch's is_causal counts from the top left; the same here, so that both compute the same rows.
    causal = causal and ("top_left" if sq != sk else True)
    pairs = b * h * (sum(min(sk, i + 1) for i in range(sq)) if causal else sq * sk)
    name = f"B{b} H{h}" + (f" G{hkv}" if hkv != h else "") + f" S{sq}" + (f" of {sk}" if sk != sq else "") + f" D{d}" + (" causal" if causal else "")
    return dict(
        target=target, op="attention", case=name, dtype=dtype,
        make=lambda rng: normal(rng, dtype, *shapes),
        run=lambda tn, q, k, v: tn.attention(q, k, v, causal=causal),
        peer=lambda torch, q, k, v: torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=bool(causal), enable_gqa=h != hkv),
        bytes=bytes_of(dtype, shapes[0], *shapes), flops=4 * pairs * d)


CASES = [
    *(attention_case(dtype, 1, 8, 8, 1024, 1024, 64, causal) for dtype in ("float32", "bfloat16", "float16") for causal in (False, True)),
    *(attention_case(dtype, 4, 12, 12, 128, 128, 32) for dtype in ("float32", "bfloat16")),
    *(attention_case(dtype, 1, 32, 8, 1, 4096, 128) for dtype in ("float32", "bfloat16")),
    attention_case("float32", 1, 8, 2, 512, 2048, 80, True),
]
