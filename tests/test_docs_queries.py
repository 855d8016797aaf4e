"""The examples of these guides run in order and print what stands below them."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path

import pytest

from tests.blocks import blocks

DOCS = Path(__file__).resolve().parents[1] / "docs"


@pytest.mark.parametrize("guide", ["queries.md", "sql.md"])
def test_the_guide_runs_as_printed(guide: str) -> None:
    examples = blocks((DOCS / guide).read_text(encoding="utf-8"))
    assert {block.language for block in examples} == {"python", "text"}
    names: dict[str, object] = {}
    printed = ""
    for block in examples:
        if block.language == "text":
            assert printed.rstrip() == block.text.rstrip(), f"line {block.line}"
            printed = ""
            continue
        assert not printed, "an example prints something that the guide doesn't show"
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(compile(block.text, f"{guide}:{block.line}", "exec"), names)
        printed = out.getvalue()
    assert not printed
