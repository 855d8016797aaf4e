"""`make test` and `make test-ci` share the tests: none is in both, none in neither."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.sampling import SAMPLE, left_to_ci

ROOT = Path(__file__).resolve().parents[1]
TABLE = tomllib.loads(SAMPLE.read_text())


def items(*ids: str) -> list[SimpleNamespace]:
    return [
        SimpleNamespace(
            nodeid=each, name=each.split("::")[-1], originalname=each.split("::")[-1].split("[")[0]
        )
        for each in ids
    ]


def test_the_first_of_each_n_stays() -> None:
    found = left_to_ci(
        items(*(f"tests/a.py::test_x[{n}]" for n in range(7)), "tests/a.py::test_y", "tests/b.py::test_x"),
        {"tests/a.py": {"test_x": 3}},
    )
    assert found == {f"tests/a.py::test_x[{n}]" for n in (1, 2, 4, 5)}


def test_0_leaves_all_of_a_function_and_a_star_counts_the_rest_of_a_file_together() -> None:
    found = left_to_ci(
        items("tests/a.py::test_x", "tests/a.py::test_y", "tests/a.py::test_z", "tests/a.py::test_v[1]"),
        {"tests/a.py": {"test_x": 0, "*": 2}},
    )
    assert found == {"tests/a.py::test_x", "tests/a.py::test_z"}


@pytest.mark.parametrize("file", TABLE)
def test_what_the_table_names_is_there(file: str) -> None:
    tree = ast.parse((ROOT / file).read_text())
    there = {each.name for each in ast.walk(tree) if isinstance(each, ast.FunctionDef)} | {"*"}
    assert {*TABLE[file]} <= there, f"take what {file} hasn't off tests/sample.toml"
    assert all(isinstance(every, int) and every >= 0 and every != 1 for every in TABLE[file].values())
