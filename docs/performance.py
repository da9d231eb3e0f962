"""Writes docs/performance.md and its plots from the records in bench/results: the newest record of each case.

    python docs/performance.py            writes the page and docs/performance/*.svg
    python docs/performance.py --check    exit status 1 when they say something else
"""
import json
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import performance_plots as plots

PAGE = pathlib.Path(__file__).with_suffix(".md")
RECORDS = PAGE.parents[1] / "bench" / "results"
PICTURES = PAGE.with_suffix("")
SINGLE_CALLS = ("Single calls by the clock; medians, both libraries in turn. The limit is the copy from memory: data that stays in the "
                "caches goes beyond it.")
MACHINES = {  # by the beginning of a record file's name, up to its date
    "h200": ("One NVIDIA H200", "CUDA events, the L2 cache flushed before each run; medians. The limit of what memory bounds is a copy measured in the same "
             "run (bytes read and written), of what arithmetic bounds the vendor's product of that dtype."),
    "cpu2": ("Two CPU cores", SINGLE_CALLS),
    "cpu1-epyc": ("One core of an AMD EPYC with AVX-512, without AMX", "The least of many calls, on a machine that was busy beside."),
    "cpu16-xeon": ("Sixteen threads of an Intel Xeon with AMX", SINGLE_CALLS),
    "cpu2-epyc": ("Two cores of an AMD EPYC with AVX-512, without AMX", SINGLE_CALLS),
}
ROW_OPERATORS = ("rms_norm", "layer_norm", "softmax", "add_rms_norm")
HEAD = """# Performance

What the records in [bench/results](../bench/results) say; `python docs/performance.py` writes this page from them, the newest record
of each case. `tenor bench` measures and records (`--record`), with the peer in the same run. A ratio above 1 means that Tenor is the
faster one. **Every** case recorded is here, those that the peer wins too.
"""


def load(folder=RECORDS):
    """{machine: {(op, case, dtype): record}}; a later date wins, on one day a later file or line."""
    machines = {}
    for path in sorted(folder.glob("*.jsonl")):
        name = re.sub(r"-\d{4}-\d\d-\d\d.*", "", path.stem)
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            record = json.loads(line)
            if not {"op", "case", "dtype", "ms", "date", "commit"} <= record.keys():
                raise ValueError(f"{path.name}:{number}: a record has op, case, dtype, ms, date and commit")
            kept = machines.setdefault(name, {})
            key = record["op"], record["case"], record["dtype"]
            if key not in kept or record["date"] >= kept[key]["date"]:
                kept[key] = record
    return machines


def rate_of(record):
    if record.get("value") is None or record.get("unit") in (None, "ms", "us"):
        return ""
    value, unit = record["value"], record["unit"]
    if unit in ("GB/s", "GFLOP/s") and value >= 1000:
        value, unit = value / 1000, unit.replace("G", "T", 1)
    return f"{value:.4g} {unit}"


def row_of(record):
    share = f"{100 * record['share']:.0f} %" if record.get("share") else ""
    ratio = f"{record['ratio']:.2f}" if record.get("ratio") else ""
    if record.get("compiled_ratio"):
        ratio += f" ({record['compiled_ratio']:.2f} compiled)"
    cells = (record["op"], record["case"], record["dtype"], record.get("strategy") or "", f"{record['ms']:.4g}", rate_of(record), share, ratio)
    return "| " + " | ".join(c.replace("|", "\\|") for c in cells) + " |"


def summary(records):
    """How often Tenor is the faster one."""
    ratios = [r["ratio"] for r in records if r.get("ratio")]
    ahead = sum(r >= 1 for r in ratios)
    return f"{len(records)} cases, {len(ratios)} of them beside a peer: Tenor is at least as fast in {ahead}, slower in {len(ratios) - ahead}."


def worst(records, count=10):
    """The cases furthest behind the peer."""
    behind = sorted((r for r in records if r.get("ratio") and r["ratio"] < 0.95), key=lambda r: r["ratio"])[:count]
    if not behind:
        return ""
    return "Furthest behind: " + "; ".join(f"{r['op']} {r['case']} {r['dtype']} ({r['ratio']:.2f})" for r in behind) + ".\n"


def row_lines(records):
    """{operator: [(width, share)]} of bfloat16 rows; of several heights of one width the one that moves most."""
    lines = {}
    for op in ROW_OPERATORS:
        best = {}
        for r in records:
            shape = re.fullmatch(r"(\d+)x(\d+)", r["case"])
            if r["op"] == op and r["dtype"] == "bfloat16" and shape and r.get("share") and int(shape[1]) * int(shape[2]) >= 1 << 22:
                n, width = int(shape[1]), int(shape[2])
                best[width] = max(best.get(width, (0, 0)), (n * width, r["share"]))
        if len(best) > 1:
            lines[op] = [(w, best[w][1]) for w in sorted(best)]
    return lines


def ratio_rows(records):
    ops = sorted({r["op"] for r in records if r.get("ratio")})
    return [(op, [(r["ratio"], f"{op} {r['case']} {r['dtype']}: {r['ratio']:.2f}x") for r in records if r["op"] == op and r.get("ratio")]) for op in ops]


def pictures(machines):
    """{file name: SVG}."""
    drawn = {}
    for name, kept in machines.items():
        title, records = MACHINES.get(name, (name, ""))[0], list(kept.values())
        if lines := row_lines(records):
            drawn[f"{name}-rows.svg"] = plots.share_by_width(lines, f"Row operators, bfloat16: {title}", "share of a copy's rate, by the length of a row")
        if rows := ratio_rows(records):
            drawn[f"{name}-ratio.svg"] = plots.ratios(rows, f"Beside PyTorch: {title}", "the peer's time over Tenor's; a dot a case (hover for which)")
    return drawn


def section(name, kept, drawn):
    title, how = MACHINES.get(name, (name, ""))
    records = sorted(kept.values(), key=lambda r: (r["op"], r["case"], r["dtype"]))
    days = sorted({r["date"] for r in records})
    parts = [f"## {title}\n", f"{how} {summary(records)} Recorded {days[0]}{' to ' + days[-1] if len(days) > 1 else ''}.\n".lstrip(), worst(records)]
    for kind, words in (("rows", "share of a copy's rate against the length of a row"), ("ratio", "ratio to PyTorch by operator")):
        if f"{name}-{kind}.svg" in drawn:
            parts.append(f"![{title}: {words}](performance/{name}-{kind}.svg)\n")
    table = ["| operator | case | dtype | strategy | ms | rate | share of limit | times as fast as the peer |", "|---|---|---|---|---|---|---|---|"]
    parts.append("<details><summary>All cases</summary>\n\n" + "\n".join(table + [row_of(r) for r in records]) + "\n\n</details>\n")
    return "\n".join(p for p in parts if p)


def files(machines=None):
    """{path: text} of all that this script writes."""
    machines = machines or load()
    drawn = pictures(machines)
    order = [m for m in MACHINES if m in machines] + sorted(m for m in machines if m not in MACHINES)
    out = {PAGE: HEAD + "\n" + "\n".join(section(m, machines[m], drawn) for m in order)}
    return out | {PICTURES / file: svg for file, svg in drawn.items()}


def main(words):
    wanted = files()
    stale = [p for p, text in wanted.items() if not p.exists() or p.read_text(encoding="utf-8") != text]
    left = [p for p in PICTURES.glob("*.svg") if p not in wanted]
    if "--check" in words:
        return f"run python docs/performance.py: {', '.join(p.name for p in stale + left)} is not what it writes" if stale + left else 0
    PICTURES.mkdir(exist_ok=True)
    for path in left:
        path.unlink()
    for path in stale:
        path.write_text(wanted[path], encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
