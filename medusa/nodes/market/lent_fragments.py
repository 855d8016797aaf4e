"""``TaskMoves`` by ``AbroadMoves``: fragments that are lent by permits, as tasks of the market.

What was sent, and how far a fragment was when it went or came home, is known in this life only. After a
restart what is abroad counts as handed over at the row up to which the host's next checkpoint has it: what it
did before that it isn't paid for.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from medusa.market.contract.terms import ANY
from medusa.nodes.abroad.abroad_moves import AbroadMoves, HandedOver, Lost, NotSent, Returned
from medusa.nodes.abroad.permits import Allowance, PermitIn, PermitOut, Permits
from medusa.nodes.config.settings_offers import KINDS
from medusa.nodes.fragment.host import FragmentHost
from medusa.nodes.market.tasks_port import (
    FragmentAway,
    HostedGuest,
    TaskEvent,
    TaskHandedOver,
    TaskHome,
    TaskPermit,
    TaskStayed,
)

__all__ = ["LentFragments"]


class LentFragments:
    """Those of one node.

    Args:
        fragments: what runs here, by name.
    """

    takes_guests = True

    def __init__(self, moves: AbroadMoves, permits: Permits, fragments: Mapping[str, FragmentHost]) -> None:
        self._moves, self._permits, self._fragments = moves, permits, fragments
        self._going: dict[str, None] = {}
        self._began: dict[str, int] = {}
        self._home: dict[str, int] = {}

    def obstacle(self, fragment: str) -> str:
        return self._moves.obstacle(fragment)

    def permit_out(self, permit: TaskPermit) -> None:
        made = PermitOut(
            fragment=permit.fragment,
            participant=permit.host,
            node=permit.node,
            until_us=permit.ends_us,
        )
        self._permits.permit_out(made)

    def permit_in(self, permit: TaskPermit) -> None:
        boxes = KINDS if ANY in permit.boxes else permit.boxes
        made = PermitIn(
            fragment=permit.fragment,
            participant=permit.owner,
            allows=Allowance(boxes=boxes, streams=permit.streams, columns=permit.columns),
            keep_us=permit.keep_us,
            until_us=permit.ends_us,
            checkpoint_every_us=permit.checkpoint_every_us,
        )
        self._permits.permit_in(made)

    def end_out(self, fragment: str) -> None:
        self._permits.end_out(fragment)

    def end_in(self, fragment: str) -> None:
        self._permits.end_in(fragment)

    def permitted_out(self) -> Collection[str]:
        return [each.fragment for each in self._permits.all_out() if not each.ended]

    def permitted_in(self) -> Collection[str]:
        return [each.fragment for each in self._permits.all_into() if not each.ended]

    def send(self, now_us: int, fragment: str, node: str) -> None:
        self._going[fragment] = None
        self._moves.send(now_us, fragment, node)

    def await_move(
        self, now_us: int, fragment: str, node: str, client: str, request: int, timeout_us: int
    ) -> None:
        self._moves.await_move(now_us, fragment, node, client, request, timeout_us)

    def recall(self, now_us: int, fragment: str) -> None:
        self._moves.recall(now_us, fragment)

    def give_back(self, now_us: int, fragment: str) -> None:
        self._moves.give_back(now_us, fragment)

    def going(self) -> Collection[str]:
        # After a restart we may not know yet that others decided on it: it stays once its host isn't invited.
        found = {**self._going, **dict.fromkeys(self._moves.inviting())}
        for lent in self._moves.lent():
            if lent.fragment not in self._began and self._moves.row_of_host(lent.fragment) is None:
                found[lent.fragment] = None  # From which row on it is there the host's first checkpoint says.
        return list(found)

    def sending(self) -> Collection[str]:
        return tuple(self._going)

    def away(self) -> Mapping[str, FragmentAway]:
        found = {}
        for lent in self._moves.lent():
            if lent.fragment in self._going:
                continue  # It hasn't begun there yet, as far as we heard.
            began = self._began.get(lent.fragment)
            if began is None:
                # What our own disk has of it is older than what was handed over before a restart.
                began = self._moves.row_of_host(lent.fragment)
            if began is None:
                continue
            self._began[lent.fragment] = began
            row = self._row(lent.fragment)
            at = began if row is None else max(row, began)
            found[lent.fragment] = FragmentAway(node=lent.node, begin_row=began, row=at)
        return found

    def home_row(self, fragment: str) -> int | None:
        return self._home.get(fragment)

    def guests(self) -> Mapping[str, HostedGuest]:
        return {
            each.fragment: HostedGuest(
                participant=each.participant,
                row=each.rows_in,
                runs=not self._fragments[each.fragment].failed,
            )
            for each in self._moves.guests()
        }

    def giving_back(self) -> Mapping[str, int]:
        return self._moves.giving_back()

    def take_events(self) -> Sequence[TaskEvent]:
        return [found for event in self._moves.take_events() if (found := self._event(event)) is not None]

    def _event(self, event: HandedOver | Returned | Lost | NotSent) -> TaskEvent | None:
        self._going.pop(event.fragment, None)
        match event:
            case HandedOver():
                if event.rows_in is not None:  # Else ``going`` has it until it is known.
                    self._began[event.fragment] = event.rows_in
                self._home.pop(event.fragment, None)
                return TaskHandedOver(fragment=event.fragment)
            case NotSent():
                return TaskStayed(fragment=event.fragment, why=f"{event.code}, {event.text}")
        self._home.pop(event.fragment, None)
        if event.rows_in is not None:  # As it was decided: by now it has had rows of its own here.
            self._home[event.fragment] = event.rows_in
        self._began.pop(event.fragment, None)
        return TaskHome(fragment=event.fragment, lost=isinstance(event, Lost))

    def _row(self, fragment: str) -> int | None:
        """None: nothing of it is here just now."""
        progress = self._moves.progress(fragment)
        return None if progress is None else progress[0]
