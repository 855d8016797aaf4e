"""A fragment that somebody wants elsewhere, as its owner knows it while it lives."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from medusa.nodes.migration.automaton import OWNER, MoveEvent, OwnerState
from medusa.nodes.migration.state_sender import StateSender
from medusa.nodes.security.registry import Refusal
from medusa.wire.status_and_metrics import GoingStatus

__all__ = ["OutgoingMove", "no"]


def no(code: str, text: str, hint: str) -> Refusal:
    """Why a move isn't."""
    return Refusal(code=code, text=text, hint=hint)


@dataclass(slots=True, kw_only=True)
class OutgoingMove:
    """One fragment that is being moved, through all attempts.

    Attributes:
        answers: (peer, number of the request) of those that wait for the end of it.
        questions: those that weren't answered yet, by number: whom we asked, and what.
        token: of the write that the next step waits for; 0: none.
        silent: of the nodes that it waits for those that are away, and that in words.
        why: how the last attempt ended; ``final``: so would every other.
    """

    fragment: str
    to: str
    until_us: int
    state: OwnerState = OwnerState.RUNNING
    attempt: int = 0
    epoch: int = 0
    tries: int = 0
    begun_us: int = 0
    asked_us: int = 0
    again_us: int | None = None
    answers: list[tuple[str, int]] = field(default_factory=list)
    questions: dict[int, tuple[str, Any]] = field(default_factory=dict)
    handing: StateSender | None = None
    token: int = 0
    stopped_us: int = 0
    nbytes: int = 0
    silent: list[str] = field(default_factory=list)
    waits_for: str = ""
    why: Refusal = field(default_factory=lambda: no("E_TIMEOUT", "there was no time for an attempt", ""))
    final: bool = False

    def move(self, event: MoveEvent) -> bool:
        """Take a step of the automaton; whether there is one."""
        target = OWNER[self.state].get(event)
        if target is None:
            return False
        self.state = target
        return True

    def waited_for(self) -> list[str]:
        """The nodes whose word it needs next."""
        return list(dict.fromkeys(node for node, _ in self.questions.values())) or [self.to]

    def status(self) -> GoingStatus:
        """As the status of the node has it."""
        return GoingStatus(
            to=self.to,
            state=self.state.value,
            attempts=self.tries,
            bytes=self.nbytes + (self.handing.nbytes if self.handing is not None else 0),
            silent=tuple(self.silent),
            waits_for=self.waits_for,
        )
