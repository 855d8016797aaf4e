"""docs/threats.md names, for every row of the threat table, tests that are there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
ROWS = 36
LATER: tuple[str, ...] = ()
"""Rows about what isn't there yet, whole."""


def table(text):
    """Number -> (what it gets, its cell of tests)."""
    rows = {}
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("|") and cells[0].isdigit():
            assert len(cells) == 4, line
            assert cells[0] not in rows
            rows[cells[0]] = (cells[2], cells[3])
    return rows


def named(cell):
    """(file, test) of each test in a cell."""
    found = []
    for part in filter(None, cell.split(";")):
        file, *tests = re.findall(r"`([^`]+)`", part)
        assert tests, f"{file}: no test"
        found += [(file, test) for test in tests]
    return found


def names_in(file):
    text = (ROOT / file).read_text()
    if file.endswith(".c"):
        run = text[text.index("TEST_MAIN(") :]
        return {name for name in re.findall(r"static int (test_\w+)\(void\)", text) if f"TEST({name})" in run}
    return {node.name for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)}


def test_every_row_has_tests_that_are_there():
    rows = table((ROOT / "docs/threats.md").read_text())
    assert list(rows) == [str(number) for number in range(1, ROWS + 1)]
    missing = []
    for number, (gets, cell) in rows.items():
        pairs = named(cell)
        assert bool(pairs) != (number in LATER), f"row {number}"
        assert number not in LATER or "*later*" in gets
        missing += [f"row {number}: {file}: {test}" for file, test in pairs if test not in names_in(file)]
    assert not missing, "\n".join(missing)


def test_a_name_that_is_no_test_shows():
    assert "test_every_row_has_tests_that_are_there" in names_in("tests/test_threats.py")
    assert "test_of_nothing" not in names_in("tests/test_threats.py")
    assert named("`a.py`: `test_x`, `test_y`; `b.c`: `test_z`") == [
        ("a.py", "test_x"),
        ("a.py", "test_y"),
        ("b.c", "test_z"),
    ]
