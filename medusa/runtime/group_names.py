"""What groups of files of a node's checkpoints and segments are called."""

from __future__ import annotations

import re
from hashlib import blake2b

__all__ = ["group_name", "group_token", "segment_name"]

NODE_GROUP = "node"
SEGMENT = "log"


def group_name(fragment: str, token: int) -> str:
    """The group of a checkpoint; empty ``fragment``: of the node itself. Safe for any name."""
    owner = blake2b(fragment.encode(), digest_size=12).hexdigest() if fragment else NODE_GROUP
    return f"{owner}-{token:012d}"


def group_token(fragment: str, name: str) -> int | None:
    """The token in the name of a group of this fragment; None: it is another's."""
    found = re.fullmatch(re.escape(group_name(fragment, 0)[:-12]) + r"(\d{12})", name)
    return int(found[1]) if found else None


def segment_name(fragment: str, token: int) -> str:
    """The group of a segment of the output of a fragment."""
    owner, _, number = group_name(fragment, token).rpartition("-")
    return f"{owner}-{SEGMENT}-{number}"
