"""What a mind wants done, as values.

A mind never acts. It appends effects to its outbox, and a driver (ZeroMQ and files, or the
simulator) carries them out **in order**, with one exception that is written into the effect: a
``Send`` with ``after=token`` waits until the ``Persist`` of that token is on disk, and a failed
``Persist`` drops it. Everything sent to one peer keeps its order among what waits for the same
token.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeAlias

from medusa.elements import Element, Shed, Silent
from medusa.engine.state.delta import DeltaFiles
from medusa.ports import Buffer, Content
from medusa.query.boxes import Graph, Input
from medusa.wire.messages import Message
from medusa.wire.messages.links import Hello

__all__ = [
    "GAVE_WAY",
    "AddReceipt",
    "CallAt",
    "CloseFragment",
    "Copy",
    "CutPeer",
    "Effect",
    "Fetch",
    "Fork",
    "Introduce",
    "Log",
    "OpenFragment",
    "Outbox",
    "Owned",
    "Parse",
    "Persist",
    "Regroup",
    "ReportLine",
    "RunFragment",
    "Send",
    "Stopped",
    "Trust",
    "WakeAt",
    "Weigh",
    "WriteSegment",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Send:
    """Hand a frame to the network; it may be lost there.

    Attributes:
        peer: name of the node or client.
        payload: goes beside the message; shared, never copied or changed by the driver.
        after: a token of a ``Persist`` that must be durable first.
    """

    peer: str
    message: Message
    payload: Buffer | None = None
    after: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WakeAt:
    """Call ``tick`` at this time at the latest. The last one given counts."""

    at_us: int


GAVE_WAY = "a fork of the fragment had to be copied first"
"""Why a ``Persist`` wasn't done that only has to be asked for again a little later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Persist:
    """Store the state of a fragment and these files beside it, as one atomic group.

    ``fragment`` is empty for what the node itself keeps: then there are only the files.

    The driver takes the fragment's state before it carries out any later effect, and answers with
    the token and whether it is durable.

    Attributes:
        keep: tokens of earlier groups of the same fragment that this one refers to, and segments that are
            just being written; once it is durable, others but the last may be deleted.
    """

    token: int
    fragment: str
    files: Mapping[str, Content] = field(default_factory=dict)
    keep: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """Add to the end of a file of the decision log of a fragment, and sync it.

    The driver answers with whether it is durable. One is under way at a time. A durable ``Persist`` lets
    go of files with a number below the oldest token that is kept.

    Attributes:
        number: of the file: a token, of which there is only one on a node.
    """

    fragment: str
    number: int
    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteSegment:
    """Store output of a fragment in a group of its own, a *segment*, beside the fragment's thread.

    The driver answers as to a ``Persist``. It keeps the segment until a ``Persist`` with a larger token is
    durable that neither refers to it nor follows right on one that does.
    """

    token: int
    fragment: str
    payloads: tuple[Buffer, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetch:
    """Read output from a segment; the driver answers with the token and the payloads, or why not.

    Attributes:
        places: first byte and number of bytes of each payload.
    """

    token: int
    fragment: str
    places: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFragment:
    """Feed one element to a fragment's input and run it until it rests; its output comes back.

    ``Silent`` is a question about its sources: the answer comes back, by source. Of a fragment it is about
    those with ``idle``, of a fork about all. ``Shed`` says how much is left out of the stream from here on;
    nothing comes of it.
    """

    fragment: str
    stream: str
    element: Element | Shed | Silent


@dataclass(frozen=True, slots=True, kw_only=True)
class Parse:
    """Read and check what somebody sent, beside everything else; one at a time is asked for.

    The driver answers with the token and what ``read`` gave, or the ``QueryError`` that it raised.

    Attributes:
        nbytes: of what is read.
        read: a pure function that shares nothing that changes.
    """

    token: int
    nbytes: int
    read: Callable[[], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenFragment:
    """Make a fragment ready to run. ``graph`` was checked. ``files``: its state, from another node; None:
    from nothing. ``deltas``: on that state, the oldest first. ``counts``: it counts the rows that it holds,
    since those die with it."""

    fragment: str
    graph: Graph
    files: Mapping[str, Buffer] | None = None
    counts: bool = False
    deltas: tuple[DeltaFiles, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Owned:
    """What the fragments of a query take counts for this owner from now on."""

    query: str
    owner: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """Read a durable checkpoint of a fragment, to be sent to another node.

    The driver answers with the token and the files, or why they can't be read: those of the checkpoint, and
    the output of others that it refers to as ``log-TOKEN``.

    Attributes:
        base: a checkpoint that the other node holds: where this one stands on it, only what was written after
            it is read of the state; 0: all is wanted.
        base_sum: the CRC-32C of that one's manifest, in hex.
    """

    fragment: str
    token: int
    base: int = 0
    base_sum: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Regroup:
    """Make fragments with the state of others, in which a box is split, or merged again.

    The driver answers with the token, the boundaries where the new ones are linked and what came out, or why
    it can't be done. The old ones stay as they are.

    Attributes:
        aside: their state is taken before any later effect, and they may go on at once: the rest is done
            beside them. Else they rest.
        merges: else it is split.
        gone: names of the old ones.
        whole: the graph in which ``box`` is split.
        opened: the graphs of the new ones, by name.
        arcs: of those in which the box is split: sources and sinks by which they are only linked with each
            other -> arc of ``whole``.
    """

    token: int
    box: str
    merges: bool
    gone: tuple[str, ...]
    whole: Graph
    opened: Mapping[str, Graph]
    arcs: Mapping[str, Mapping[str, Input]]
    aside: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Weigh:
    """Find where ranges of the keys of a box end, such that parts share the rows that it holds now.

    The driver answers with the token and the cuts, or why there are none. The fragment goes on meanwhile.
    """

    token: int
    fragment: str
    box: str
    parts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Fork:
    """Copy the state that a fragment has after all that it was given before into a second instance.

    The fragment goes on meanwhile. What is given to the fork waits until it is there. The driver answers with
    the token, or why there is none: then what was given to it is gone, and the fragment is as it was.

    A fork is run and closed as a fragment is, and answers as one; its sinks promise once more what they had.
    It counts in the budget of its query, and ends before the query does where that holds too much. Nothing of
    it is on disk: it takes no ``Persist``.

    Attributes:
        fork: its name (``fork_names``), which no other fork has or had.
    """

    token: int
    fragment: str
    fork: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CloseFragment:
    """Stop a fragment and delete what was stored of it; or a fork: then nothing more is said of it."""

    fragment: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CutPeer:
    """Forget the connections of a peer; a node that we call is called anew.

    Attributes:
        shun: hear nothing more of them; else what comes next may begin a link again.
    """

    peer: str
    shun: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CallAt:
    """Call a peer at this address from now on."""

    peer: str
    address: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Trust:
    """From now on these CURVE keys are let in at the door, and no others.

    Attributes:
        server_keys: peer -> keys under which it is called from now on, the newest first.
    """

    keys: tuple[str, ...]
    server_keys: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Introduce:
    """Streams may go to a peer by this connection of their own: these are its first words."""

    peer: str
    lane: int
    hello: Hello


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped:
    """All that happened is on disk: the node may end.

    Attributes:
        fragments: that run here.
        rows_in: of all of them.
    """

    fragments: int
    rows_in: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AddReceipt:
    """Add what two participants have signed to the file of their contract, once: it may come again.

    Attributes:
        partner, contract: whose file it is.
        kind: ``receipt`` or ``settlement``.
        data: its bytes, as they were signed, with both signatures.
    """

    partner: str
    contract: str
    kind: str
    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportLine:
    """A line for people: ``level`` is debug, info, warning or error.

    Attributes:
        cause: the command that led to it, ``sender#request``; empty: none.
    """

    level: str
    what: str
    fields: Mapping[str, str | int] = field(default_factory=dict)
    cause: str = field(default="", compare=False)


Effect: TypeAlias = (
    Send
    | WakeAt
    | Persist
    | Log
    | WriteSegment
    | Fetch
    | RunFragment
    | Parse
    | OpenFragment
    | Owned
    | Copy
    | Regroup
    | Weigh
    | Fork
    | CloseFragment
    | CutPeer
    | CallAt
    | Trust
    | Introduce
    | Stopped
    | AddReceipt
    | ReportLine
)


class Outbox:
    """Effects in the order in which they are to be done."""

    __slots__ = ("_cause", "_effects")

    def __init__(self) -> None:
        self._effects: list[Effect] = []
        self._cause = ""

    @contextmanager
    def caused_by(self, sender: str, request: int) -> Iterator[None]:
        """What is appended meanwhile is the consequence of this command."""
        before, self._cause = self._cause, f"{sender}#{request}"
        try:
            yield
        finally:
            self._cause = before

    def send(self, peer: str, message: Message, payload: Buffer | None = None) -> None:
        self.append(Send(peer=peer, message=message, payload=payload))

    def report(self, level: str, what: str, **fields: str | int) -> None:
        self.append(ReportLine(level=level, what=what, fields=fields, cause=self._cause))

    def wake_at(self, at_us: int) -> None:
        self.append(WakeAt(at_us=at_us))

    def append(self, effect: Effect) -> None:
        self._effects.append(effect)

    def replace(self, old: Effect, new: Effect, over: tuple[type, ...]) -> bool:
        """Put an effect in the place of one that wasn't taken yet; whether it could.

        Args:
            over: kinds that may stand behind it: what they do is the same before the new one and after it.
        """
        for at in range(len(self._effects) - 1, -1, -1):
            if self._effects[at] is old:
                self._effects[at] = new
                return True
            if not isinstance(self._effects[at], over):
                return False
        return False

    def take(self) -> list[Effect]:
        """Everything since the last call; the driver does it before it calls the mind again."""
        effects, self._effects = self._effects, []
        return effects

    def __len__(self) -> int:
        return len(self._effects)


class Detour(Outbox):
    """Passes all on to an outbox that can be changed: what uses it moves from one mind to another."""

    __slots__ = ("target",)

    def __init__(self, target: Outbox) -> None:
        super().__init__()
        self.target = target

    def lead_to(self, target: Outbox) -> None:
        """From now on it passes all on to this one."""
        self.target = target

    def append(self, effect: Effect) -> None:
        self.target.append(effect)
