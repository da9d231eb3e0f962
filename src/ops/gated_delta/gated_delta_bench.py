"""The gated delta rule's cases for tenor.bench. The peer on CUDA is flash-linear-attention where it is installed (its fla-core and
einops are enough), on the CPU what transformers does with PyTorch alone."""
import importlib.metadata
import importlib.util

from tenor._bench_data import bytes_of, normal


FLA, TRANSFORMERS = (importlib.util.find_spec(name) is not None for name in ("fla", "transformers"))


def operands(dtype, b, h, t, k, v):
    """[B, T, H, ...], as models and fla have them: keys of about length 1, weak decays; and a state."""
    def make(rng):
        q, key, value = normal(rng, dtype, (b, t, h, k), (b, t, h, k), (b, t, h, v))
        key = (key.astype("float32") * k ** -0.5).astype(key.dtype)
        beta = rng.random((b, t, h), "float32").astype(q.dtype)
        return q, key, value, beta, -0.1 * rng.random((b, t, h), "float32"), normal(rng, "float32", (b, h, k, v))[0]
    return make


def rule(tn, fn, q, k, v, beta, g, *state):
    return fn(*(tn.swapdims(x, 1, 2) for x in (q, k, v, beta, g)), *state)


def peer(name, device):
    """The function of that name of fla, or the one of transformers that stands in for it."""
    def fla(torch, q, k, v, beta, g, state):
        from fla.ops import gated_delta_rule
        return getattr(gated_delta_rule, name)(q, k, v, g, beta=beta, scale=q.shape[-1] ** -0.5, initial_state=state, output_final_state=True)

    def transformers(torch, q, k, v, beta, g, state):
        from transformers.models.qwen3_next import modeling_qwen3_next as model
        return getattr(model, "torch_" + name.replace("fused_", ""))(q, k, v, g=g, beta=beta, initial_state=state, output_final_state=True)

    if device:
        return fla if FLA else None
    return transformers if TRANSFORMERS else None


def peer_of(name, device):
    """What a case says of its peer: fla's kernels are compiled for each shape, and its records name it."""
    found = {"peer": peer(name, device)}
    if device and FLA:
        found.update(compiles=True, peer_name=f"fla {importlib.metadata.version('fla-core')}")
    return found


def chunk_case(b, h, t, dtype="bfloat16", device=None, chunk=64):
    shape = (b, h, t, 128)
    target = f"gated_delta_chunk/B{b}-T{t}-H{h}-K128-V128-bf16" if device and dtype == "bfloat16" and chunk == 64 else None
    case = dict(target=target, op="chunk_gated_delta_rule", case=f"B{b} H{h} T{t} K128 V128{'' if chunk == 64 else f' chunk {chunk}'}", dtype=dtype,
                make=operands(dtype, b, h, t, 128, 128), run=lambda tn, *x: rule(tn, lambda *y: tn.chunk_gated_delta_rule(*y, chunk_size=chunk), *x),
                **peer_of("chunk_gated_delta_rule", device), bytes=bytes_of(dtype, shape, shape, shape, shape), flops=7 * b * h * t * 128 * 128)
    return dict(case, device=device) if device else case


def decode_case(b, h, steps=1, dtype="bfloat16", device=None):
    state = (b, h, 128, 128)
    case = dict(target=f"gated_delta_decode/B{b}-H{h}-K128-V128" if device and steps == 1 else None, op="gated_delta_rule",
                case=f"B{b} H{h} T{steps} K128 V128", dtype=dtype, make=operands(dtype, b, h, steps, 128, 128),
                run=lambda tn, *x: rule(tn, tn.gated_delta_rule, *x),
                **peer_of("fused_recurrent_gated_delta_rule", device), bytes=2 * bytes_of("float32", state), flops=0)
    return dict(case, device=device) if device else case


def conv_case(b, c, t, device=None):
    case = dict(target=None, op="causal_conv1d", case=f"B{b} C{c} T{t} W4 silu", dtype="bfloat16", make=lambda rng: normal(rng, "bfloat16", (b, c, t), (c, 4)),
                run=lambda tn, x, w: tn.causal_conv1d(x, w, activation="silu"),
                peer=lambda torch, x, w: torch.nn.functional.silu(torch.nn.functional.conv1d(x, w[:, None], padding=3, groups=c)[..., :t]),
                bytes=2 * bytes_of("bfloat16", (b, c, t)), flops=0)
    return dict(case, device=device) if device else case


def conv_last_case(b, c, t):
    """Channels side by side, as a projection leaves them."""
    return conv_case(b, c, t, "cuda") | dict(
        case=f"B{b} C{c} T{t} W4 silu channels last", make=lambda rng: normal(rng, "bfloat16", (b, t, c), (c, 4)),
        run=lambda tn, x, w: tn.causal_conv1d(tn.swapdims(x, 1, 2), w, activation="silu"),
        peer=lambda torch, x, w: torch.nn.functional.silu(torch.nn.functional.conv1d(x.transpose(1, 2), w[:, None], padding=3, groups=c)[..., :t]))


def norm_case(rows, h, device=None):
    case = dict(target=None, op="gated_rms_norm", case=f"{rows}x{h}", dtype="bfloat16", make=lambda rng: normal(rng, "bfloat16", (rows, h), (rows, h), (h,)),
                run=lambda tn, x, z, w: tn.gated_rms_norm(x, z, w),
                peer=lambda torch, x, z, w: torch.nn.functional.rms_norm(x, (h,), w, 1e-6) * torch.nn.functional.silu(z),
                bytes=3 * bytes_of("bfloat16", (rows, h)))
    return dict(case, device=device) if device else case


CASES = [
    *(chunk_case(1, 8, 512, dtype) for dtype in ("float32", "bfloat16")), *(decode_case(4, 16, 1, dtype) for dtype in ("float32", "bfloat16")),
    conv_case(1, 1024, 512), norm_case(4096, 128),
    chunk_case(1, 32, 8192, device="cuda"), chunk_case(8, 16, 4096, device="cuda"), chunk_case(1, 16, 65536, device="cuda"), chunk_case(1, 32, 2048, device="cuda"),
    *(chunk_case(1, 32, 2048, dtype, device="cuda") for dtype in ("float32", "float16")), chunk_case(1, 32, 2048, device="cuda", chunk=16),
    *(chunk_case(1, 4, 16384, dtype, device="cuda") for dtype in ("float32", "float16")),
    *(decode_case(b, 32, device="cuda") for b in (1, 64, 256)), decode_case(64, 32, 4, device="cuda"),
    conv_case(1, 8192, 8192, device="cuda"), conv_last_case(1, 8192, 8192), norm_case(262144, 128, device="cuda"),
]
