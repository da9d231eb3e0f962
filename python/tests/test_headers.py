"""The public headers: tenor.h has them all, and none needs a third party."""
import pathlib
import re

import pytest

HEADERS = pathlib.Path(__file__).resolve().parents[2] / "include" / "tenor"


def included(path):
    return re.findall(r'#include [<"]([^>"]+)[>"]', path.read_text())


def test_tenor_h_includes_every_header():
    names = {f"tenor/{p.name}" for p in HEADERS.glob("*.h")} - {"tenor/tenor.h"}
    assert set(included(HEADERS / "tenor.h")) == names


@pytest.mark.parametrize("path", sorted(HEADERS.glob("*.h")), ids=lambda p: p.name)
def test_headers_include_only_the_standard_library_and_each_other(path):
    ours = [i for i in included(path) if i.startswith("tenor/")]
    others = [i for i in included(path) if not i.startswith("tenor/")]
    assert all((HEADERS.parent / i).exists() for i in ours)
    assert all(re.fullmatch(r"[a-z_]+", i) for i in others), others
