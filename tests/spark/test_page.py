"""The blocks of docs/spark.md run and print what stands below them, in the session of these tests."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path
from typing import Any

import medusa as md
from tests.blocks import blocks
from tests.test_docs import SPARK, check_prints, program_of


def test_blocks_run_and_print_what_stands_below_them(spark: Any, tmp_path: Path, monkeypatch: Any) -> None:
    assert md.spark.session() is spark
    monkeypatch.chdir(tmp_path)
    examples = blocks(SPARK.read_text(encoding="utf-8"))
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(program_of(SPARK, examples), str(SPARK), "exec"), {"__name__": "page"})
    check_prints(SPARK, examples, printed.getvalue())
