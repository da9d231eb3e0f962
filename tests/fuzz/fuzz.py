"""The fuzzer: random shapes, strides, dtypes and options, each ending in the reference's result or the contract's error.

    python tests/fuzz/fuzz.py [FAMILY ...] [--draws 10000] [--seed 0] [--threads N]

A family file lists its properties in `PROPERTIES`: functions of (tenor, draw) that call an operator and return
`Same(got, want, tol)`, or `Refused(call, kinds)` for arguments that must be refused. A draw is reproduced by its seed:
`--seed S --draws 1 --only NAME`.
"""
import argparse
import glob
import importlib.util
import os
import sys
import time
import warnings

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

import numpy as np  # noqa: E402

import tenor  # noqa: E402
from draw import Draw  # noqa: E402


def families(wanted):
    """(family, property) for every property of the wanted families, all of them for none named."""
    found = []
    for path in sorted(glob.glob(os.path.join(HERE, "fuzz_*.py"))):
        family = os.path.basename(path)[len("fuzz_"):-len(".py")]
        if wanted and family not in wanted:
            continue
        spec = importlib.util.spec_from_file_location(f"fuzz_{family}", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        found += [(family, p) for p in module.PROPERTIES]
    return found


def main(argv=None):
    parser = argparse.ArgumentParser(description="Fuzzes the operators against NumPy references.")
    parser.add_argument("family", nargs="*")
    parser.add_argument("--draws", type=int, default=10000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="properties whose name holds this")
    parser.add_argument("--most", type=int, default=20, help="stop after so many failures")
    args = parser.parse_args(argv)
    properties = [(f, p) for f, p in families(args.family) if args.only in p.__name__]
    if not properties:
        print("fuzz: no such family or property", file=sys.stderr)
        return 2
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    start, failed, refused, ran = time.time(), 0, 0, 0
    for i in range(args.draws):
        family, prop = properties[i % len(properties)]
        seed = args.seed + i
        try:
            outcome = prop(tenor, Draw(seed))
            if outcome is None:
                continue  # the draw had nothing to say (an empty choice)
            ran += 1
            refused += outcome.check(tenor)
        except Exception as error:
            failed += 1
            print(f"FAILED {family}.{prop.__name__} seed {seed}: {type(error).__name__}: {str(error)[:300]}", flush=True)
            if failed >= args.most:
                break
    print(f"fuzz: {ran - failed} passed, {failed} failed ({refused} of them refused as they must be) in {time.time() - start:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
