"""Every test that docs/reliability.md names is there."""

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
PAGE = (TESTS.parent / "docs/reliability.md").read_text("utf-8")


def test_every_promise_names_tests_that_exist():
    files = re.findall(r"`(test_\w+\.py)`(?::((?:\s*`test_\w+…?`,?)+))?", PAGE)
    assert len(files) > 20
    for file, names in files:
        source = (TESTS / file).read_text("utf-8")
        for name in re.findall(r"`(test_\w+)(…?)`", names):
            start = f"def {name[0]}" + ("" if name[1] else "(")
            assert start in source, (file, name)


def test_every_row_of_a_table_names_a_test():
    for row in re.findall(r"(?m)^\| (.*) \|$", PAGE):
        assert row == "promise | test" or "`test_" in row, row
