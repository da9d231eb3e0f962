"""Says what this installation and machine are: versions, what the build holds, devices, measured limits, cache folders.

The limits are measured once a device and thread count (a few seconds: the best of several attempts), then read from the
cache folder. Each says how it is known: measured (here; of the h200 on one), from a data sheet, or assumed from another."""
import os
import platform

from tenor._cli.arguments import add_json, add_threads, use_threads
from tenor._cli.output import Progress, bytes_text, paint, print_json, width

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
            print_fact(name, limits_text(value) if head == "limits" else said(value))


def print_fact(name, text):
    """A line, or several within the terminal's width, beside the name."""
    import textwrap

    room = max(min(width(), 120) - 25, 30)
    for number, line in enumerate(textwrap.wrap(text, room) or [""]):
        print(f"  {name if number == 0 else '':22} {line}")


def limits_text(rates):
    """ "measured: memory copy 4.27 TB/s, ...; data sheet: float32 66.9 TFLOP/s" """
    by_source = {}
    for name, rate in rates.items():
        by_source.setdefault(rate["source"], []).append(f"{name} {scaled(rate['value'], rate['unit'])}")
    return "; ".join(f"{source}: {', '.join(parts)}" for source, parts in by_source.items())


def scaled(value, unit):
    prefix, factor = next(((p, f) for p, f in (("T", 1e12), ("G", 1e9)) if value >= f), ("M", 1e6))
    return f"{value / factor:.3g} {prefix}{unit}" if value / factor < 1000 else f"{value / factor:.0f} {prefix}{unit}"


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
                     "oneDNN": build["onednn"], "instruction sets": [instruction_set(name) for name in build["cpu_targets"]]},
        "cpu": {"model": cpu_model(), "processors": os.cpu_count(), "threads used": tenor.get_num_threads(),
                "instruction set used": instruction_set(build["cpu_target"]), "AMX": build["amx"]},
        "cuda": cuda(build["cuda"]),
    }
    if limits:
        facts["limits"] = {name: measured_limits(name, again) for name in devices()}
        facts["limits"].update({name: known_limits(name) for name in ("h200", "h100", "a100")})
    facts["fusion"] = {"tenor.fuse": "on" if tenor._tenor._fuse_enabled() else "off: TENOR_FUSE=0 is set",
                       "kernels": tenor._tenor._fuse_backends(), **kernel_files()}
    facts["caches"] = {"folder": cache_folder(), "memory kept for reuse": bytes_text(tenor.cached_bytes()), **settings()}
    return facts


def instruction_set(target):
    """The processor makers' name of one of Highway's targets."""
    known = {"AVX3": "AVX-512", "AVX3_DL": "AVX-512 (Ice Lake)", "AVX3_ZEN4": "AVX-512 (Zen 4)", "AVX3_SPR": "AVX-512 (Sapphire Rapids)",
             "SCALAR": "any (one element at a time)", "EMU128": "any (compiler's vectors)"}
    return known.get(target, target)


def kernel_files():
    """The compiled kernels on disk, in a build that compiles any."""
    from tenor._tenor import _fuse_kernel_files

    kept = _fuse_kernel_files()
    if kept is None:
        return {}
    size = kept["refused"] or f"{kept['files']} files, {bytes_text(kept['bytes'])}"
    return {"compiled kernels": size, "compiled kernels' folder": kept["folder"] or "none"}


def devices():
    """Where operators can run."""
    import tenor

    return ["cpu", *(f"cuda:{i}" for i in range(tenor.cuda_device_count()))]


def measured_limits(name, again):
    """Of a device of this machine."""
    import tenor

    with Progress(f"info: measuring the limits of {name}"):
        if again:
            tenor.device_limits(again=True, device=name)
        return known_limits(name)


def known_limits(name):
    """{rate: (value, unit, how it is known)}"""
    from tenor._tenor import _limits

    return {limit.name: {"value": limit.value, "unit": limit.unit, "source": limit.source} for limit in _limits(name)}


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
    """The devices with what measurements on them depend on."""
    import tenor

    if not built:
        return {"devices": "this build has no CUDA kernels"}
    count = tenor.cuda_device_count()
    return {"devices": [tenor._tenor._machine_key(f"cuda:{i}") for i in range(count)] or "none found"}


def cache_folder():
    """Where limits and tuning are kept: as src/core/cache_folder.cpp has it."""
    if os.environ.get("TENOR_CACHE_DIR"):
        return os.environ["TENOR_CACHE_DIR"]
    if os.environ.get("XDG_CACHE_HOME"):
        return os.path.join(os.environ["XDG_CACHE_HOME"], "tenor")
    return os.path.join(os.environ["HOME"], ".cache", "tenor") if os.environ.get("HOME") else None


def settings():
    """The environment variables that change what Tenor does, where they are set."""
    names = ("TENOR_CPU_CACHE_BYTES", "TENOR_CUDA_CACHE_BYTES", "TENOR_CACHE_DIR", "TENOR_AUTOTUNE", "TENOR_FUSE", "TENOR_CUBLASLT", "TENOR_CUDNN",
             "TENOR_NVRTC", "OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES")
    return {name: os.environ[name] for name in names if name in os.environ}


def said(value):
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value))
    return "none" if value is None else str(value)
