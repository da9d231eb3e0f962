"""The rows of a targets file: what speed is asked for, and whether a record reaches it.

The file is a JSON list of {"id", "unit", "bar", "goal", ...}. Rates (TB/s, TFLOP/s) must be reached, times (ms) undercut.
A row with "strategy": "own" counts only for Tenor's own kernels, not for a vendor library's."""
import json

from tenor._cli.arguments import UsageError

_FACTORS = {("TB/s", "GB/s"): 1e-3, ("TFLOP/s", "GFLOP/s"): 1e-3, ("GB/s", "GB/s"): 1, ("GFLOP/s", "GFLOP/s"): 1}
_WORK = {"TB/s": ("bytes", 1e12), "GB/s": ("bytes", 1e9), "TFLOP/s": ("flops", 1e12), "GFLOP/s": ("flops", 1e9)}


def load(path):
    """{id: row}. UsageError for a file that holds no such rows."""
    try:
        with open(path, encoding="utf-8") as file:
            rows = json.load(file)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"--targets {path}: not JSON: {error}") from None
    if not (isinstance(rows, list) and rows and all(map(_is_row, rows))):
        raise UsageError(f"--targets {path}: expected a list of objects with id and unit, which are text, bar and goal, which are numbers")
    return {row["id"]: row for row in rows}


def _is_row(row):
    return isinstance(row, dict) and all(isinstance(row.get(key), str) for key in ("id", "unit")) and \
        all(isinstance(row.get(key), (int, float)) for key in ("bar", "goal"))


def judge(record, row, case=None):
    """{"bar", "goal", "target_unit", "target_value", "bar_met", "goal_met"}: what a record adds for its row. `case` states
    the bytes and FLOPs, of which the record holds those that bound it here."""
    value = in_unit(record, row["unit"], case or {})
    counts = value is not None and not (row.get("strategy") == "own" and record.get("strategy") == "vendor")
    lower = row["unit"] in ("ms", "us")
    met = lambda bound: bool(counts and (value <= bound if lower else value >= bound))
    return {"bar": row["bar"], "goal": row["goal"], "target_unit": row["unit"], "target_value": value,
            "bar_met": met(row["bar"]), "goal_met": met(row["goal"])}


def in_unit(record, unit, case):
    """The record's speed in the row's unit; None where the case does not state what it needs."""
    if unit in ("ms", "us"):
        return record["ms"] * (1 if unit == "ms" else 1e3)
    factor = _FACTORS.get((unit, record.get("unit")))
    if factor is not None:
        return float(f"{record['value'] * factor:.5g}")
    work, scale = _WORK.get(unit, (None, None))
    return float(f"{case[work] / record['ms'] * 1e3 / scale:.5g}") if case.get(work) else None
