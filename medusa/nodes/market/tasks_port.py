"""What the market asks of whoever moves fragments between participants, and what it is told.

A fragment is ours, or a guest: one of another participant that runs here. It leaves by ``send`` and comes
home by ``recall``; a host gives it back by ``give_back``. Each of these is an order that is carried out later
and may fail; said again it changes nothing. Without a permit nothing moves: at the owner for going out, at
the host for coming in. Both outlive a restart, and so does what ``away``, ``going`` and ``guests`` say.

Rows are counted where they come in. Each input of a fragment numbers its rows; the *row* of a fragment is the
sum, over its inputs, of the numbers up to which they are in. It never goes back while the fragment lives, and
is the same at whoever runs it. A host says it as soon as rows are in. The owner says up to where the newest
checkpoint of the host has them that a node at home holds: what a crash of the host can't take away any more.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

__all__ = [
    "FragmentAway",
    "HostedGuest",
    "TaskEvent",
    "TaskHandedOver",
    "TaskHome",
    "TaskMoves",
    "TaskPermit",
    "TaskStayed",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskPermit:
    """One fragment may run at one node of another participant, by a contract that both signed.

    Attributes:
        owner, host: participants; ``node``: the other one's.
        boxes, streams, columns, definitions: that it may have, as ``TaskTerms`` says; ``("*",)``: any.
        ends_us: it counts until then, since the Unix epoch.
        keep_us: so long a host keeps a guest that is to go home, where its owner doesn't take it.
        checkpoint_every_us: so often its host says at least how far it is, by what goes home.
    """

    fragment: str
    owner: str
    host: str
    node: str
    contract: str
    boxes: tuple[str, ...]
    streams: tuple[str, ...]
    columns: tuple[str, ...]
    definitions: tuple[str, ...]
    ends_us: int
    keep_us: int
    checkpoint_every_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FragmentAway:
    """A fragment of ours that runs at a partner.

    Attributes:
        begin_row: up to there it had come when it was handed over.
        row: up to there what we hold at home has it.
    """

    node: str
    begin_row: int
    row: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HostedGuest:
    """A fragment of another participant that runs here.

    Attributes:
        row: up to there rows have come in.
        runs: False while it doesn't, as it failed or waits for state.
    """

    participant: str
    row: int
    runs: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskHandedOver:
    """What was sent runs at the partner: ``away`` says from which row on."""

    fragment: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskHome:
    """A fragment of ours runs here again: ``home_row`` says from which row on.

    Attributes:
        lost: its host was silent, so that it was taken over at home.
    """

    fragment: str
    lost: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskStayed:
    """What was sent stayed here.

    Attributes:
        why: to a person, with a stable code where there is one.
    """

    fragment: str
    why: str


TaskEvent: TypeAlias = TaskHandedOver | TaskHome | TaskStayed


class TaskMoves(Protocol):
    """Moves fragments between participants."""

    @property
    def takes_guests(self) -> bool:
        """Whether fragments of other participants can come here at all."""
        ...

    def obstacle(self, fragment: str) -> str:
        """Why a fragment of ours can't run at another participant, whatever is paid; empty: it can."""
        ...

    def permit_out(self, permit: TaskPermit) -> None:
        """It may go there. Said again it has the new end.

        Raises:
            LinkError: it can't be permitted, as another node still may have it; nothing changed.
        """
        ...

    def permit_in(self, permit: TaskPermit) -> None:
        """It may come here. Said again it has the new end.

        Raises:
            LinkError: it can't be permitted, as another one of this name is here; nothing changed.
        """
        ...

    def end_out(self, fragment: str) -> None:
        """It may be there no more: it is brought home."""
        ...

    def end_in(self, fragment: str) -> None:
        """It may be here no more: it goes home, and is kept until its owner has it, or for ``keep_us``."""
        ...

    def permitted_out(self) -> Collection[str]:
        """Fragments that have a permit to go, which hasn't ended."""
        ...

    def permitted_in(self) -> Collection[str]:
        """Fragments that have a permit to come, which hasn't ended."""
        ...

    def send(self, now_us: int, fragment: str, node: str) -> None:
        """Hand it over. ``TaskHandedOver`` or ``TaskStayed`` answers."""
        ...

    def await_move(
        self, now_us: int, fragment: str, node: str, client: str, request: int, timeout_us: int
    ) -> None:
        """Answer a client once what is being handed over to this node is there."""
        ...

    def recall(self, now_us: int, fragment: str) -> None:
        """Bring it home. ``TaskHome`` answers."""
        ...

    def give_back(self, now_us: int, fragment: str) -> None:
        """Ask its owner to take a guest home. It is no guest any more once it has."""
        ...

    def going(self) -> Collection[str]:
        """Fragments of ours that are being handed over, or may have been before a restart, or are there and
        it isn't known from which row on."""
        ...

    def sending(self) -> Collection[str]:
        """Those of them that run here still, or have gone and nobody said yet that they are there."""
        ...

    def away(self) -> Mapping[str, FragmentAway]:
        """Fragments of ours that run at partners."""
        ...

    def home_row(self, fragment: str) -> int | None:
        """Up to which row a fragment had come when it came home the last time; None: nobody knows."""
        ...

    def guests(self) -> Mapping[str, HostedGuest]:
        """Fragments of other participants that run here."""
        ...

    def giving_back(self) -> Mapping[str, int]:
        """Guests that run here and are to go home, and when their owners were first asked."""
        ...

    def take_events(self) -> Sequence[TaskEvent]:
        """What has happened, oldest first; it is told once, and not again after a restart."""
        ...
