"""Compiles what a peer compiles for a case, before a benchmark's budget begins. Peers written in Triton take a minute for a shape
and leave what they compiled on disk, so that each such case is called once in a process of its own, side by side."""
import os
import subprocess
import sys
import time

_LIMIT_S = 120.0  # for all of them


def warm(cases, device, limit=_LIMIT_S):
    """Calls the peer of every case that says `compiles`, a process each, as many at once as there are cores. Returns (seconds,
    the cases that were not done in `limit` seconds or failed); a process beyond the limit is ended."""
    start, waiting, running, missed = time.monotonic(), [c for c in cases if c.get("compiles") and c.get("peer")], [], []
    try:
        while (waiting or running) and time.monotonic() - start < limit:
            while waiting and len(running) < (os.cpu_count() or 1):
                running.append((waiting[0], _begin(waiting.pop(0), device)))
            ended = [(case, process) for case, process in running if process.poll() is not None]
            missed += [case for case, process in ended if process.returncode]
            running = [pair for pair in running if pair not in ended]
            time.sleep(0.05)
    finally:
        for _, process in running:
            process.kill()
            process.wait()
    return time.monotonic() - start, missed + [case for case, _ in running] + waiting


def _begin(case, device):
    command = [sys.executable, "-m", "tenor._bench_warm", device, case["op"], case["case"], case["dtype"]]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def main(device, op, name, dtype):
    """Calls the peer of one case, once."""
    import torch

    from tenor import bench

    kind = device.partition(":")[0]
    case = next(c for c in bench.load_cases([op]) if (c["case"], c["dtype"]) == (name, dtype) and c.get("device", kind) == kind)
    bench.peer_call(case, torch, device)()
    if kind != "cpu":
        torch.cuda.synchronize(device)


if __name__ == "__main__":
    main(*sys.argv[1:])
