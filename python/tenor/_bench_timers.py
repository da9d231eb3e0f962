"""How long calls take: on the CPU by the clock, on CUDA by events with the L2 cache flushed."""
import time

_FLUSH_BYTES = 256 << 20  # beyond any L2


def compare(ours, theirs, rounds, seconds, device="cpu"):
    """Median seconds of both, measured in turn; theirs may be None."""
    timed = _on_clock if device == "cpu" else _events(device)
    a, b = [], []
    for fn in (ours, theirs):
        if fn:
            fn()  # warm: caches, threads, lazily built kernels
    for _ in range(rounds):
        a += timed(ours, seconds)
        if theirs:
            b += timed(theirs, seconds)
    return median(a), median(b) if b else None


def median(values):
    values = sorted(values)
    return values[len(values) // 2]


def _on_clock(fn, seconds):
    """Times of single calls, for about that long (three at least)."""
    times, end = [], time.perf_counter() + seconds
    while len(times) < 3 or (time.perf_counter() < end and len(times) < 1000):
        start = time.perf_counter()
        fn()
        times.append(time.perf_counter() - start)
    return times


def _events(device):
    """PyTorch's events on its current stream, which both libraries are made to use."""
    import torch

    import tenor

    flush = torch.empty(_FLUSH_BYTES, dtype=torch.uint8, device=device)

    def timed(fn, seconds):
        count = max(3, min(200, int(seconds / 1e-3)))
        marks = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(count)]
        with tenor.stream(torch.cuda.current_stream().cuda_stream, device):
            for first, last in marks:
                flush.zero_()
                first.record()
                fn()
                last.record()
        torch.cuda.synchronize()
        return [first.elapsed_time(last) * 1e-3 for first, last in marks]

    return timed
