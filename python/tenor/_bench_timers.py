"""How long calls take: on the CPU by the clock, on CUDA by events with the L2 cache flushed."""
import time

_FLUSH_BYTES = 256 << 20  # beyond any L2


def compare(runs, rounds, seconds, device="cpu"):
    """Median seconds of each, measured in turn."""
    timed = _on_clock if device.partition(":")[0] == "cpu" else events(device)
    times = [[] for _ in runs]
    for fn in runs:
        fn()  # warm: caches, threads, lazily built kernels
    for _ in range(rounds):
        for found, fn in zip(times, runs):
            found += timed(fn, seconds)
    return [median(found) for found in times]


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


def events(device):
    """A timer of single calls by PyTorch's events on its current stream, which both libraries are made to use."""
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
