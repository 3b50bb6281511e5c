"""docs/reliability.md names a test for every guarantee, and each of them exists."""

import re

from pages import ROOT

PAGE = (ROOT / "docs/reliability.md").read_text("utf-8")
TESTS = {path.name: path for path in (ROOT / "tests").rglob("test_*.py")}


def test_every_test_that_the_page_names_exists():
    files = re.findall(r"`(test_\w+\.py)`(?::((?:\s*`test_\w+…?`,?)+))?", PAGE)
    assert len(files) > 20
    for file, names in files:
        source = TESTS[file].read_text("utf-8")
        for name, is_cut in re.findall(r"`(test_\w+)(…?)`", names):
            start = f"def {name}" + ("" if is_cut else "(")
            assert start in source, (file, name)


def test_every_guarantee_names_a_test():
    for row in re.findall(r"(?m)^\| (.*) \|$", PAGE):
        assert row == "guarantee | test" or "`test_" in row, row
