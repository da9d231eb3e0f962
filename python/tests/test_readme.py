"""The README's Python runs and prints what it says; its links lead somewhere."""
import contextlib
import io
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]
TEXT = (ROOT / "README.md").read_text()


def test_the_python_examples_run():
    examples = re.findall(r"```python\n(.*?)```", TEXT, re.S)
    assert len(examples) == 2
    for code in examples:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(code, {})
        (said,) = re.findall(r"print\(.*# (.*)", code)
        assert printed.getvalue().strip() == said


def test_links_lead_somewhere():
    for name in ("README.md", "CONTRIBUTING.md", "docs/design.md"):
        page = ROOT / name
        for link in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
            assert link.startswith("http") or (page.parent / link).exists(), f"{name}: {link}"
