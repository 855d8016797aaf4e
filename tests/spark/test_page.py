"""The blocks of the pages about Spark run and print what stands below them, in the session of these tests."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path
from typing import Any

import pytest

import medusa as md
from tests.blocks import blocks
from tests.test_docs import ON_SPARK, check_prints, program_of


@pytest.mark.parametrize("page", ON_SPARK, ids=lambda page: page.name)
def test_blocks_run_and_print_what_stands_below_them(
    page: Path, spark: Any, tmp_path: Path, monkeypatch: Any
) -> None:
    assert md.spark.session() is spark
    monkeypatch.chdir(tmp_path)
    examples = blocks(page.read_text(encoding="utf-8"))
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(program_of(page, examples), str(page), "exec"), {"__name__": "page"})
    check_prints(page, examples, printed.getvalue())
