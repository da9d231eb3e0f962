"""docs/performance.md says what the records in bench/results say."""
import importlib.util
import json
import pathlib
import sys
import xml.etree.ElementTree as xml

import pytest

SCRIPT = pathlib.Path(__file__).parents[2] / "docs" / "performance.py"


@pytest.fixture(scope="module")
def performance():
    spec = importlib.util.spec_from_file_location("performance", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    before = list(sys.path)
    spec.loader.exec_module(module)
    sys.path[:] = before
    return module


def test_the_page_and_its_plots_are_what_the_records_say(performance):
    assert performance.main(["--check"]) == 0


def test_plots_stay_within_their_picture(performance):
    for path, text in performance.files().items():
        if path.suffix != ".svg":
            continue
        root = xml.fromstring(text)
        width, height = map(float, root.get("viewBox").split()[2:])
        for node in root.iter():
            for key, most in (("x", width), ("cx", width), ("y", height), ("cy", height)):
                assert 0 <= float(node.get(key, 0)) <= most, (path.name, node.attrib)
        assert "prefers-color-scheme: dark" in text


def record(**more):
    return {"op": "softmax", "case": "4096x4096", "dtype": "bfloat16", "ms": 1.0, "date": "2026-01-01", "commit": "a", "share": 0.5, "ratio": 2.0, **more}


def write(folder, name, *records):
    (folder / name).write_text("".join(json.dumps(r) + "\n" for r in records))


def test_the_newest_record_of_a_case_counts(performance, tmp_path):
    write(tmp_path, "h200-2026-01-02.jsonl", record(date="2026-01-02", ms=2.0))
    write(tmp_path, "h200-2026-01-01.jsonl", record(), record(op="neg"))
    machines = performance.load(tmp_path)
    assert machines["h200"]["softmax", "4096x4096", "bfloat16"]["ms"] == 2.0 and len(machines["h200"]) == 2
    write(tmp_path, "h200-2026-01-03.jsonl", {"op": "softmax"})
    with pytest.raises(ValueError, match="h200-2026-01-03.jsonl:1"):
        performance.load(tmp_path)


def test_what_the_peer_wins_is_told(performance, tmp_path):
    write(tmp_path, "own-2026-01-01.jsonl", record(ratio=0.25, compiled_ratio=0.5), record(case="8192x1024", ratio=1.5))
    page = performance.files(performance.load(tmp_path))[performance.PAGE]
    assert "at least as fast in 1, slower in 1" in page and "Furthest behind: softmax 4096x4096 bfloat16 (0.25)" in page
    assert "| 0.25 (0.50 compiled) |" in page and "| 50 % |" in page
