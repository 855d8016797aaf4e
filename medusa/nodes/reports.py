"""What a driver tells a node, as values: what became of effects, and what happens around the node.

A ``Completion`` says that an effect was done by the engine, the disk or the parser, or could not be. The
others say what only a driver sees: connections that break, what time it is, a new configuration.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from medusa.elements import Element
from medusa.engine.fragment import Fragment
from medusa.engine.held_rows_count import NOTHING, RowsAtRisk
from medusa.engine.state.delta import DeltaFiles
from medusa.errors import QueryError
from medusa.nodes.config.settings_offers import OfferRules
from medusa.nodes.config.settings_security import Security
from medusa.nodes.load.loads import Usage
from medusa.ports import Buffer
from medusa.wire.messages import Message

__all__ = [
    "Completion",
    "Copied",
    "Fetched",
    "Forked",
    "FragmentFailed",
    "LaneChanged",
    "Listening",
    "Logged",
    "NodeReport",
    "NotLetIn",
    "Parsed",
    "PeerLost",
    "Persisted",
    "Ran",
    "Remade",
    "RulesRead",
    "SentToItself",
    "Started",
    "Stats",
    "StopRequested",
    "Surroundings",
    "Weighed",
]


@dataclass(frozen=True, slots=True)
class Ran:
    """An element was fed; (sink, element) came out. Or ``Silent`` was asked; (source, boundary) says it.

    Attributes:
        refused: why nothing of it was taken.
        dying: what would die with the fragment, where that is counted.
        shed: rows of it that were left out under overload.
    """

    fragment: str
    outputs: list[tuple[str, Element]]
    refused: str = ""
    dying: RowsAtRisk = NOTHING
    shed: int = 0


@dataclass(frozen=True, slots=True)
class Stats:
    """What the boxes of a fragment have counted."""

    fragment: str
    counts: Mapping[str, Any]

    @classmethod
    def of(cls, name: str, fragment: Fragment, cpu_us: int | None = None) -> Stats:
        """As they are now; only the engine's thread may ask.

        Args:
            cpu_us: CPU time that its elements have taken; None: it can't be told.
        """
        boxes = fragment.boxes.values()
        counts = {
            # Those that another fragment judged it has counted.
            "late": sum(box.late for box in fragment.sources.values() if not box.spec.judged),
            "dead": sum(box.dead for box in boxes),
            "state_bytes": sum(box.state_bytes() for box in boxes),
            "cpu_us": cpu_us,
            "boxes": {figures.pop("box"): figures for figures in fragment.figures()},
        }
        return cls(name, counts)


@dataclass(frozen=True, slots=True)
class FragmentFailed:
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
    """A checkpoint was read to be sent, or not: ``why``.

    Attributes:
        files: all of it; with ``base`` all but the files of its state.
        sum: the CRC-32C of its manifest, in hex.
        base: the checkpoint that ``deltas`` stand on; 0: ``files`` has the state.
        deltas: the oldest first; the last one is of the checkpoint itself.
    """

    fragment: str
    token: int
    files: Mapping[str, Buffer]
    why: str = ""
    sum: str = ""
    base: int = 0
    deltas: tuple[DeltaFiles, ...] = ()


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
class Forked:
    """A fragment has a second instance with the state that it had, or has none: ``why``."""

    token: int
    fork: str
    why: str = ""


@dataclass(frozen=True, slots=True)
class Parsed:
    """What a ``Parse`` gave, or why it gave nothing."""

    token: int
    found: object
    error: QueryError | None


Completion: TypeAlias = (
    Ran | Stats | FragmentFailed | Persisted | Logged | Fetched | Copied | Remade | Weighed | Forked | Parsed
)
"""What became of an effect that the engine, the disk or the parser was given."""


@dataclass(frozen=True, slots=True)
class Started:
    """The node begins: it calls its peers and goes on with what was installed."""


@dataclass(frozen=True, slots=True)
class StopRequested:
    """The node is to end: it takes nothing new and writes last checkpoints. ``outbox.Stopped`` answers."""


@dataclass(frozen=True, slots=True)
class Listening:
    """Where others reach this node; told before it begins."""

    address: str
    server_key: str


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a node can't know by itself, looked at now and then.

    Attributes:
        wall_us: since the Unix epoch: for what expires, and what arrives.
        door: what the transport counted of callers, for the status.
        usage: what the process has used; None: it wasn't looked at.
    """

    wall_us: int
    door: Mapping[str, int] = field(default_factory=dict)
    usage: Usage | None = None


@dataclass(frozen=True, slots=True)
class PeerLost:
    """The connection to a peer broke."""

    peer: str


@dataclass(frozen=True, slots=True)
class LaneChanged:
    """A connection for streams to a peer stands (``up``), or broke."""

    peer: str
    lane: int
    up: bool


@dataclass(frozen=True, slots=True)
class NotLetIn:
    """A peer that we call lets us not in. ``why`` goes on after its name: ``refuses our key``."""

    peer: str
    why: str


@dataclass(frozen=True, slots=True)
class RulesRead:
    """Keys and rules of the configuration were read again, and are these from now on.

    Attributes:
        offers: to other participants; None: as before. What runs goes on.
        papers: file -> its text: contracts, and their ends; None: as before.
        suggest: as of ``MarketRules``; None: as before.
    """

    security: Security
    offers: Mapping[str, OfferRules] | None = None
    papers: Mapping[str, str] | None = None
    suggest: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class SentToItself:
    """A message that this node has sent to itself: two fragments of a query are neighbours here."""

    message: Message
    payload: Buffer | None


NodeReport: TypeAlias = (
    Completion
    | Started
    | StopRequested
    | Listening
    | Surroundings
    | PeerLost
    | LaneChanged
    | NotLetIn
    | RulesRead
    | SentToItself
)
