"""Says what this installation and machine are: versions, what the build holds, devices, measured limits, cache folders.

The limits are measured once a machine and thread count (a second or two), then read from the cache folder."""
import os
import platform

from tenor._cli.arguments import add_json, add_threads, use_threads
from tenor._cli.output import Progress, paint, print_json

EXAMPLES = [
    "tenor info                  everything",
    "tenor info --json           for a bug report or a script",
    "tenor info --again          measure the limits anew",
    "tenor info --no-limits      without measuring anything",
]


def configure(parser):
    parser.add_argument("--again", action="store_true", help="measure the limits anew")
    parser.add_argument("--no-limits", action="store_true", help="leave the limits out")
    add_threads(parser)
    add_json(parser)


def execute(args):
    use_threads(args)
    facts = gather(limits=not args.no_limits, again=args.again)
    if args.json:
        return print_json(facts)
    for head, rows in facts.items():
        print(paint(head, "1"))
        for name, value in rows.items():
            print(f"  {name:22} {said(value)}")


def gather(limits=True, again=False):
    """The facts as {section: {name: value}}."""
    import tenor
    from tenor._tenor import _build, _operators

    build = _build()
    operators = _operators()
    facts = {
        "versions": {"tenor": tenor.__version__, "python": platform.python_version(), **libraries(), "platform": platform.platform(),
                     "compiler": build["compiler"], "package": os.path.dirname(tenor.__file__)},
        "features": {"operators": len(operators), "families": sorted({o[1] for o in operators}), "CUDA": build["cuda"],
                     "oneDNN": build["onednn"], "instruction sets": build["cpu_targets"]},
        "cpu": {"model": cpu_model(), "processors": os.cpu_count(), "threads used": tenor.get_num_threads(),
                "instruction set used": build["cpu_target"], "AMX": build["amx"]},
        "cuda": cuda(build["cuda"]),
    }
    if limits:
        with Progress("info: measuring this machine's limits"):
            measured = tenor.device_limits(again=again)
        facts["limits"] = {"copy (bytes/s)": measured.copy_bytes, "float32 (FLOP/s)": measured.float32_flops,
                           "bfloat16 (FLOP/s)": measured.bfloat16_flops}
    facts["caches"] = {"folder": cache_folder(), "memory kept for reuse": f"{tenor.cached_bytes()} B", **settings()}
    return facts


def libraries():
    """The versions of what Tenor works with, where installed; nothing large is imported."""
    from importlib import metadata

    found = {}
    for name in ("numpy", "ml_dtypes", "torch", "jax", "cupy", "safetensors"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            pass
    return found


def cpu_model():
    try:
        with open("/proc/cpuinfo") as file:
            return next(line.split(":", 1)[1].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or "unknown"


def cuda(built):
    """What is known of CUDA devices without using one."""
    import tenor

    if not built:
        return {"devices": "this build has no CUDA kernels"}
    count = getattr(tenor, "cuda_device_count", lambda: None)()
    return {"devices": count if count else "none found"}


def cache_folder():
    """Where limits and tuning are kept: as src/cpu/limits.cpp has it."""
    if os.environ.get("TENOR_CACHE_DIR"):
        return os.environ["TENOR_CACHE_DIR"]
    if os.environ.get("XDG_CACHE_HOME"):
        return os.path.join(os.environ["XDG_CACHE_HOME"], "tenor")
    return os.path.join(os.environ["HOME"], ".cache", "tenor") if os.environ.get("HOME") else None


def settings():
    """The environment variables that change what Tenor does, where they are set."""
    names = ("TENOR_CPU_CACHE_BYTES", "TENOR_AUTOTUNE", "OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES")
    return {name: os.environ[name] for name in names if name in os.environ}


def said(value):
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value / 1e9:,.1f} G"
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value))
    return "none" if value is None else str(value)
