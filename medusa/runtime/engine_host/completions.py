"""What the threads beside the loop tell it of their work, when that has come to an end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from medusa.elements import Element
from medusa.engine.fragment import Fragment
from medusa.engine.held_rows_count import NOTHING, Held
from medusa.errors import QueryError
from medusa.ports import Buffer

__all__ = [
    "Copied",
    "Done",
    "Failed",
    "Fetched",
    "Logged",
    "Parsed",
    "Persisted",
    "Ran",
    "Remade",
    "Stats",
    "Warned",
    "Weighed",
]


@dataclass(frozen=True, slots=True)
class Ran:
    """An element was fed; (sink, element) came out. Or ``Silent`` was asked; (source, boundary) says it.

    Attributes:
        refused: why nothing of it was taken.
        dying: what would die with the fragment, where that is counted.
    """

    fragment: str
    outputs: list[tuple[str, Element]]
    refused: str = ""
    dying: Held = NOTHING


@dataclass(frozen=True, slots=True)
class Stats:
    """What the boxes of a fragment have counted."""

    fragment: str
    counts: Mapping[str, Any]

    @classmethod
    def of(cls, name: str, fragment: Fragment) -> Stats:
        """As they are now; only the engine's thread may ask."""
        boxes = fragment.boxes.values()
        counts = {
            # Those that another fragment judged it has counted.
            "late": sum(box.late for box in fragment.sources.values() if not box.spec.judged),
            "dead": sum(box.dead for box in boxes),
            "state_bytes": sum(box.state_bytes() for box in boxes),
            "boxes": {figures.pop("box"): figures for figures in fragment.figures()},
        }
        return cls(name, counts)


@dataclass(frozen=True, slots=True)
class Failed:
    """A fragment can't go on.

    Attributes:
        code: ``E_MEMORY``, ``E_BUSY``: its query took more than it may, so it ends; empty: its own mistake.
    """

    fragment: str
    why: str
    code: str = ""


@dataclass(frozen=True, slots=True)
class Persisted:
    """A group is on disk, or not."""

    token: int
    ok: bool
    why: str = ""


@dataclass(frozen=True, slots=True)
class Logged:
    """What a ``Log`` brought is on disk, or not."""

    fragment: str
    ok: bool
    why: str = ""


@dataclass(frozen=True, slots=True)
class Fetched:
    """Output was read from a segment, or not: ``why``."""

    fragment: str
    token: int
    payloads: tuple[bytes, ...]
    why: str = ""


@dataclass(frozen=True, slots=True)
class Copied:
    """A checkpoint was read to be sent, or not: ``why``."""

    fragment: str
    token: int
    files: dict[str, Buffer]
    why: str = ""


@dataclass(frozen=True, slots=True)
class Remade:
    """New fragments took the state of others, or could not: ``why``.

    Attributes:
        reached_us: fragment -> its ends that are new -> the boundary that stands there.
        outputs: (sink, element) that came out on the way.
        rows: of each part, how many rows of its keys it holds.
    """

    token: int
    reached_us: Mapping[str, Mapping[str, int]]
    outputs: list[tuple[str, Element]]
    why: str = ""
    rows: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class Weighed:
    """Where ranges of the keys of a box end that share what it holds, or why there are none."""

    token: int
    cuts: tuple[int, ...]
    why: str = ""


@dataclass(frozen=True, slots=True)
class Warned:
    """What whoever runs the node should know."""

    text: str


@dataclass(frozen=True, slots=True)
class Parsed:
    """What a ``Parse`` gave, or why it gave nothing."""

    token: int
    found: object
    error: QueryError | None


Done: TypeAlias = Ran | Stats | Failed | Persisted | Logged | Fetched | Copied | Remade | Warned | Weighed
