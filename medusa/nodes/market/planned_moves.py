"""Moves that were agreed beforehand: a client says go, or come, and a fragment does.

    client ── Move (to a partner's node) ──> what the contract plans is asked for, agreed and handed over
    client ── Move (to this node) ──> what went so comes home

The client hears once it is there. Who asks has to be let ``deploy`` the query, as for any move.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from medusa.market.negotiation.reasons import reason_text
from medusa.nodes.market.measured_tasks import task_of
from medusa.nodes.market.tasks_port import TaskMoves
from medusa.nodes.market.traded_tasks import TradedTasks
from medusa.wire.messages.commands import Reply
from medusa.wire.messages.move import Move
from medusa.wire.outbox import Outbox

__all__ = ["PlannedMoves"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Signal:
    """Who waits for what.

    Attributes:
        number: of the negotiation by which it goes; None: it comes.
    """

    client: str
    move: Move
    number: int | None
    since_us: int


class PlannedMoves:
    """Those of one node, which clients wait for.

    Args:
        own: our participant; ``node``: this one.
        partners: participant -> the node that trades for it.
    """

    def __init__(
        self,
        own: str,
        node: str,
        partners: Mapping[str, str],
        *,
        tasks: TradedTasks,
        moves: TaskMoves,
        outbox: Outbox,
    ) -> None:
        self._own, self._node, self._partners = own, node, partners
        self._tasks, self._moves, self._outbox = tasks, moves, outbox
        self._signals: dict[tuple[str, int], _Signal] = {}

    def signal(self, now_us: int, time_us: int, client: str, move: Move) -> bool:
        """A client wants a fragment of ours moved; whether that is by a plan, and so done or refused here."""
        if (client, move.request) in self._signals:
            return True
        number: int | None = None
        if move.to == self._node:
            if not self._tasks.come_by_plan(time_us, move.fragment):
                return False
        else:
            partner = next((whose for whose, node in self._partners.items() if node == move.to), None)
            if partner is None or not self._tasks.is_planned(time_us, move.fragment, partner):
                return False
            if move.fragment in self._moves.away():
                return False
            if why := self._tasks.why_stays(move.fragment, partner):
                text = f"fragment {move.fragment!r} doesn't go to {partner!r}: {why}"
                self._refuse(client, move, "E_POLICY", text, "medusa explain market/ says what may go where")
                return True
            number = self._tasks.go_by_plan(time_us, move.fragment, partner)
            if number is None:
                text = f"fragment {move.fragment!r} can't go now: it is on its way, it isn't known yet what a"
                text += f" row of it takes, or {partner!r} isn't reached"
                self._refuse(client, move, "E_BUSY", text, "try again in a moment")
                return True
        self._signals[client, move.request] = _Signal(
            client=client, move=move, number=number, since_us=now_us
        )
        return True

    def look(self, now_us: int) -> None:
        """Tell those who wait what came of it."""
        for key, signal in tuple(self._signals.items()):
            if self._is_over(now_us, signal):
                del self._signals[key]

    def _is_over(self, now_us: int, signal: _Signal) -> bool:
        move = signal.move
        if signal.number is None and self._is_home(move.fragment):
            # How long it was fed nothing isn't known here: no longer than this.
            self._answer(signal, pause_us=now_us - signal.since_us)
        elif signal.number is not None and move.fragment in self._moves.going():
            timeout_us = move.timeout_ms * 1_000
            self._moves.await_move(now_us, move.fragment, move.to, signal.client, move.request, timeout_us)
        elif signal.number is not None and move.fragment in self._moves.away():
            self._answer(signal, pause_us=now_us - signal.since_us)
        elif signal.number is not None and (code := self._tasks.came_to_nothing(signal.number)) is not None:
            self._refuse(signal.client, move, code, f"it stays: {reason_text(code)}", "")
        elif now_us - signal.since_us >= move.timeout_ms * 1_000:
            text = f"fragment {move.fragment!r} isn't there yet"
            self._refuse(signal.client, move, "E_TIMEOUT", text, "medusa explain market/ says where it is")
        else:
            return False
        return True

    def _is_home(self, fragment: str) -> bool:
        task = task_of(self._own, fragment)
        return fragment not in self._moves.away() and task not in self._tasks.deals("away")

    def _answer(self, signal: _Signal, *, pause_us: int) -> None:
        told = {"node": signal.move.to, "bytes": 0, "pause_us": pause_us, "attempts": 1}
        self._outbox.send(signal.client, Reply(request=signal.move.request), msgspec.json.encode(told))

    def _refuse(self, client: str, move: Move, code: str, text: str, hint: str) -> None:
        self._outbox.send(client, Reply(request=move.request, code=code, text=text, hint=hint))
