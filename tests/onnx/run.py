"""The ONNX node suite: every node test of the `onnx` package whose operators map to Tenor's functions.

    python tests/onnx/run.py [WORD ...] [-v]      tests whose name holds every WORD; -v prints each skip's reason

The maps are in ops_<family>.py, the reasons for skips in skips.py. Exit status 1 when a test fails, or when fewer than 400
of the whole suite ran.
"""
import collections
import glob
import importlib
import os
import sys
import traceback
import warnings

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

import numpy as np  # noqa: E402

import graph  # noqa: E402
import skips  # noqa: E402

DTYPES = {"bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64",
          "bfloat16", "float8_e4m3fn", "float8_e5m2"}
AT_LEAST = 400


def collect():
    """Every case, with the random inputs of a fixed seed."""
    from onnx.backend.test.case.node import collect_testcases

    np.random.seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = [c for c in collect_testcases(None) if c.model is not None]
    for case in cases:
        case.data_sets = [[[arrays_of(x) for x in arrays] for arrays in pair] for pair in case.data_sets]
    return cases


def arrays_of(x):
    """Tensors of dtypes that NumPy lacks come as protocol buffers."""
    from onnx import TensorProto, numpy_helper

    return numpy_helper.to_array(x) if isinstance(x, TensorProto) else x


def why_skipped(case):
    """The reason why a case cannot run, or None."""
    if case.name in skips.TESTS:
        return skips.TESTS[case.name]
    for node in graph.nodes_of(case.model):
        if node.op in skips.OPERATORS:
            return f"{node.op}: {skips.OPERATORS[node.op]}"
        if node.op not in graph.OPS:
            return None  # neither mapped nor excused: it fails
    for arrays in case.data_sets[0]:
        for x in arrays:
            if not isinstance(x, (np.ndarray, np.generic)):
                return f"{type(x).__name__}: {skips.OPERATORS['SequenceInsert']}"
            if x.dtype.name not in DTYPES:
                return f"dtype {x.dtype.name} is not among Tenor's"
    return None


def compare(got, want, rtol, atol):
    got, want = np.asarray(got), np.asarray(want)
    assert got.dtype == want.dtype, f"dtype {got.dtype}, expected {want.dtype}"
    assert got.shape == want.shape, f"shape {got.shape}, expected {want.shape}"
    if want.dtype.kind in "fV":
        # The suite's tolerance is float32's, and it rounds each step to 16 bits where Tenor rounds once: two units are allowed.
        rtol = max(rtol, {"bfloat16": 2.0**-6, "float16": 2.0**-9}.get(want.dtype.name, 0))
        wide = np.float64
        with np.errstate(invalid="ignore"):
            same = np.isclose(got.astype(wide), want.astype(wide), rtol=rtol, atol=atol, equal_nan=True)
    else:
        same = got == want
    assert same.all(), f"{(~same).sum()} of {same.size} differ: got {got[~same].ravel()[:4]}, expected {want[~same].ravel()[:4]}"


def run_case(case):
    for inputs, outputs in case.data_sets:
        results = graph.run(case.model, [np.ascontiguousarray(x).reshape(np.shape(x)) for x in inputs])
        for got, want in zip(results, outputs):
            assert got is not None, "an output is missing"
            compare(got, want, case.rtol, case.atol)


def main(arguments):
    words, verbose = [a for a in arguments if a != "-v"], "-v" in arguments
    for path in sorted(glob.glob(os.path.join(HERE, "ops_*.py"))):
        importlib.import_module(os.path.basename(path)[:-3])
    passed, failed, skipped = 0, 0, collections.Counter()
    for case in collect():
        if not all(w in case.name for w in words):
            continue
        reason = why_skipped(case)
        if reason is None:
            try:
                run_case(case)
                passed += 1
                continue
            except graph.Cannot as cannot:
                reason = str(cannot)
            except Exception as error:
                failed += 1
                print(f"FAILED {case.name}: {type(error).__name__}: {str(error)[:300]}")
                if verbose:
                    traceback.print_exc()
                continue
        skipped[reason] += 1
        if verbose:
            print(f"skipped {case.name}: {reason}")
    for reason, count in skipped.most_common():
        print(f"  {count:4} skipped: {reason}")
    print(f"onnx node suite: {passed} passed, {failed} failed, {sum(skipped.values())} skipped")
    return 1 if failed or (not words and passed < AT_LEAST) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
