"""The fenced blocks of a Markdown file."""

from __future__ import annotations

import re
from dataclasses import dataclass

FENCE = re.compile(r"^```(\w*)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """One fenced block: its language, what else stands on the fence, its first line's number, its text."""

    language: str
    note: str
    line: int
    text: str


def blocks(markdown: str, language: str | None = None) -> list[Block]:
    """All blocks in order, or those of one language."""
    found = [
        Block(m[1], m[2].strip(), markdown.count("\n", 0, m.start(3)) + 1, m[3])
        for m in FENCE.finditer(markdown)
    ]
    return [block for block in found if language is None or block.language == language]
