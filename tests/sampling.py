"""Which tests `make test` runs: all but what ``tests/sample.toml`` leaves to `make test-ci`."""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

__all__ = ["SAMPLE", "left_to_ci"]

SAMPLE = Path(__file__).with_name("sample.toml")
REST = "*"
"""Stands for all functions of a file that have no line of their own, counted together."""


def left_to_ci(items: Iterable[Any], table: Mapping[str, Mapping[str, int]] | None = None) -> set[str]:
    """The ids of the tests that `make test` leaves out.

    Args:
        items: of pytest, in their order.
        table: file -> function, or ``*`` -> n: the first of each n cases stays, with 0 none does.
    """
    rows = tomllib.loads(SAMPLE.read_text()) if table is None else table
    seen: Counter[tuple[str, str]] = Counter()
    left = set()
    for item in items:
        file, name = item.nodeid.split("::")[0], getattr(item, "originalname", None) or item.name
        row = rows.get(file, {})
        name = name if name in row else REST
        every = row.get(name, 1)
        if every == 0 or seen[file, name] % every:
            left.add(item.nodeid)
        seen[file, name] += 1
    return left
