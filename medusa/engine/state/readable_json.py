"""JSON that a person can read: a value a line."""

from __future__ import annotations

import json
from typing import Any

import msgspec

__all__ = ["json_text", "readable"]


def json_text(values: Any) -> str:
    """In one line, as quickly as can be."""
    return json.dumps(values)


def readable(text: str) -> bytes:
    """What ``json_text`` gave, to the byte as ``json.dumps`` would have it with ``indent=1``: that does it in
    Python, and took most of the CPU of a small delta."""
    try:
        return msgspec.json.format(text, indent=1).encode()
    except msgspec.DecodeError:  # NaN and infinities are no JSON, and Python has them.
        return json.dumps(json.loads(text), indent=1).encode()
