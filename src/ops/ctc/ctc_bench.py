"""The CTC family's cases for tenor.bench. The peer is PyTorch's own kernel, forward and with its gradient."""
import numpy as np

from tenor._bench_data import bytes_of, integers, normal


def operands(t, n, c, s):
    def make(rng):
        x, = normal(rng, "float32", (t, n, c))
        x -= np.log(np.exp(x).sum(-1, keepdims=True))
        return x, integers(rng, c - 1, (n, s)) + 1
    return make


def torch_loss(torch, x, targets, gradient):
    t, n, _ = x.shape
    lengths = [torch.full((n,), k, dtype=torch.long) for k in (t, targets.shape[1])]
    if not gradient:
        return torch.nn.functional.ctc_loss(x, targets, *lengths, reduction="none")
    x = x.detach().requires_grad_()
    return torch.autograd.grad(torch.nn.functional.ctc_loss(x, targets, *lengths, reduction="sum"), x)[0]


def loss_case(t, n, c, s, gradient=False, device=None):
    def run(tn, x, targets):
        lengths = [t] * n, [s] * n
        return tn.ctc_loss(x, targets, *lengths, reduction="sum" if gradient else "none", return_grad=gradient)
    case = dict(target=f"ctc_loss-{'fwdbwd' if gradient else 'fwd'}/T{t}-N{n}-C{c}-S{s}-f32" if device else None, op="ctc_loss",
                case=f"{'with gradient ' if gradient else ''}T{t} N{n} C{c} S{s}", dtype="float32", make=operands(t, n, c, s), run=run,
                peer=lambda torch, x, targets: torch_loss(torch, x, targets, gradient),
                bytes=2 * bytes_of("float32", (t, n, c)) if gradient else bytes_of("float32", (t, n, min(c, s + 1))), flops=0)
    return dict(case, device=device) if device else case


def decode_case(t, n, c, width=None):
    def run(tn, x, targets):
        return tn.ctc_beam_decode(x, beam_width=width) if width else tn.ctc_greedy_decode(x)
    return dict(target=None, op="ctc_beam_decode" if width else "ctc_greedy_decode", case=f"T{t} N{n} C{c}" + f" width {width}" * bool(width),
                dtype="float32", make=operands(t, n, c, 1), run=run, peer=None, bytes=bytes_of("float32", (t, n, c)), flops=0)


CASES = [
    loss_case(256, 16, 64, 30), loss_case(256, 16, 64, 30, gradient=True), loss_case(512, 16, 5000, 60, gradient=True),
    decode_case(256, 16, 64), decode_case(100, 16, 64, 10),
    loss_case(256, 32, 32, 40, device="cuda"), loss_case(256, 32, 32, 40, gradient=True, device="cuda"),
    loss_case(1024, 64, 128, 100, gradient=True, device="cuda"), loss_case(512, 16, 5000, 60, gradient=True, device="cuda"),
]
