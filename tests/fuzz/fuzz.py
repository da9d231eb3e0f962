"""The fuzzer: random shapes, strides, dtypes and options, each ending in the reference's result or the contract's error.

    python tests/fuzz/fuzz.py [FAMILY ...] [--draws 10000] [--seed 0] [--only NAME]

The properties and what runs them are the package's (python/tenor/checking, also behind `tenor check`). A draw is
reproduced by its seed: `--seed S --draws 1 --only NAME`.
"""
import argparse
import sys

from tenor import checking


def main(argv=None):
    parser = argparse.ArgumentParser(description="Fuzzes the operators against NumPy references.")
    parser.add_argument("family", nargs="*")
    parser.add_argument("--draws", type=int, default=10000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="properties whose name holds this")
    parser.add_argument("--most", type=int, default=20, help="stop after so many failures")
    args = parser.parse_args(argv)
    try:
        among = [p for p in checking.properties(args.family) if args.only in p.name]
    except ValueError as error:
        parser.error(str(error))
    if not among:
        parser.error(f"no property's name holds {args.only!r}")
    tally = checking.check(among, args.draws, args.seed, args.most, on_failure=lambda f: print(f"FAILED {f}", flush=True))
    print(f"fuzz: {tally.passed} passed, {len(tally.failures)} failed ({tally.refused} calls refused as they must be) in {tally.seconds:.0f} s")
    return 1 if tally.failures else 0


if __name__ == "__main__":
    sys.exit(main())
