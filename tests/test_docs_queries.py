"""The examples of docs/queries.md run in order and print what stands below them."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path

from tests.blocks import blocks

GUIDE = Path(__file__).resolve().parents[1] / "docs" / "queries.md"


def test_the_guide_runs_as_printed() -> None:
    examples = blocks(GUIDE.read_text(encoding="utf-8"))
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
            exec(compile(block.text, f"queries.md:{block.line}", "exec"), names)
        printed = out.getvalue()
    assert not printed
