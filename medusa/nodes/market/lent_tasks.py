"""``TaskMoves`` of a node that lends fragments to other participants (``nodes.abroad``).

A fragment's row is the sum of the numbers up to which its inputs were fed. Who follows it at home knows that
of what was fed there: what a host alone has isn't paid for. After a restart of the node at home nobody there
knows from which row on it had been lent, unless the market had said so to the partner before: then the row at
which it is found counts, which is later.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from medusa.nodes.abroad.abroad_moves import AbroadMoves, HandedOver, Lost, Refused
from medusa.nodes.abroad.guest_spec import why_not_abroad
from medusa.nodes.abroad.permits import Allowance, PermitIn, PermitOut
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

__all__ = ["LentTasks"]

ANY = ("*",)


class LentTasks:
    """Of one node: see ``TaskMoves``.

    Args:
        fragments: what runs here, by name.
    """

    takes_guests = True

    def __init__(self, abroad: AbroadMoves, fragments: Mapping[str, FragmentHost]) -> None:
        self._abroad, self._permits = abroad, abroad.permits
        self._fragments = fragments
        self._begins: dict[str, tuple[int, int]] = {}
        """Fragment that is abroad -> the epoch by which, and the row at which it was there first."""
        self._rows: dict[str, int] = {}
        """The last row that was seen here of each of them."""
        self._home: dict[str, int] = {}

    def obstacle(self, fragment: str) -> str:
        """Why a fragment of ours can't run at another participant, whatever is paid; empty: it can."""
        hosted = self._fragments.get(fragment)
        if hosted is None:
            return "it doesn't run here"
        if not hosted.spec.standby:
            return "nobody stands by for it: deploy its query with standby="
        found = why_not_abroad(hosted.spec)
        return "" if found is None else f"{found[0]}: {found[1]}"

    # --- permits --------------------------------------------------------------------------------------

    def permit_out(self, permit: TaskPermit) -> None:
        """It may go there. Raises LinkError: see ``Permits.permit_out``."""
        self._permits.permit_out(
            PermitOut(
                fragment=permit.fragment,
                participant=permit.host,
                node=permit.node,
                until_us=permit.ends_us,
            )
        )

    def permit_in(self, permit: TaskPermit) -> None:
        """It may come here. Raises LinkError: see ``Permits.permit_in``."""
        allows = Allowance(boxes=KINDS if permit.boxes == ANY else permit.boxes, streams=permit.streams)
        self._permits.permit_in(
            PermitIn(
                fragment=permit.fragment,
                participant=permit.owner,
                allows=allows,
                keep_us=permit.keep_us,
                until_us=permit.ends_us,
            )
        )

    def end_out(self, fragment: str) -> None:
        """It may be there no more: it is brought home."""
        self._permits.end_out(fragment)

    def end_in(self, fragment: str) -> None:
        """It may be here no more: it goes home, and is kept until its owner has it, or for ``keep_us``."""
        self._permits.end_in(fragment)

    def permitted_out(self) -> Collection[str]:
        """Fragments that have a permit to go, which hasn't ended."""
        return [each.fragment for each in self._permits.all_out() if not each.ended]

    def permitted_in(self) -> Collection[str]:
        """Fragments that have a permit to come, which hasn't ended."""
        return [each.fragment for each in self._permits.all_into() if not each.ended]

    # --- moves ----------------------------------------------------------------------------------------

    def send(self, now_us: int, fragment: str, node: str) -> None:
        """Hand it over. ``TaskHandedOver`` or ``TaskStayed`` answers."""
        self._abroad.send(now_us, fragment, node)

    def recall(self, now_us: int, fragment: str) -> None:
        """Bring it home. ``TaskHome`` answers."""
        self._abroad.recall(now_us, fragment)

    def give_back(self, now_us: int, fragment: str) -> None:
        """Ask its owner to take a guest home. It is no guest any more once it has."""
        self._abroad.give_back(now_us, fragment)

    def going(self) -> Collection[str]:
        """Fragments of ours that are being handed over."""
        return self._abroad.going()

    def away(self) -> Mapping[str, FragmentAway]:
        """Fragments of ours that run at partners."""
        found: dict[str, FragmentAway] = {}
        for lent in self._abroad.lent():
            row = self._row(lent.fragment)
            epoch, begin = self._begins.get(lent.fragment, (-1, 0))
            if epoch != lent.epoch:
                epoch, begin = self._begins[lent.fragment] = lent.epoch, row
            found[lent.fragment] = FragmentAway(node=lent.node, begin_row=begin, row=max(row, begin))
        self._begins = {name: each for name, each in self._begins.items() if name in found}
        return found

    def _row(self, fragment: str) -> int:
        progress = self._abroad.progress(fragment)
        if progress is not None:
            self._rows[fragment] = max(progress[0], self._rows.get(fragment, 0))
        return self._rows.get(fragment, 0)

    def home_row(self, fragment: str) -> int | None:
        """Up to which row a fragment had come when it came home the last time; None: nobody knows."""
        return self._home.get(fragment)

    def guests(self) -> Mapping[str, HostedGuest]:
        """Fragments of other participants that run here."""
        return {
            each.fragment: HostedGuest(
                participant=each.participant,
                row=each.rows_in,
                runs=not self._fragments[each.fragment].failed,
            )
            for each in self._abroad.guests()
        }

    def take_events(self) -> Sequence[TaskEvent]:
        """What has happened, oldest first."""
        found: list[TaskEvent] = []
        for event in self._abroad.take_events():
            match event:
                case HandedOver():
                    found.append(TaskHandedOver(fragment=event.fragment))
                case Refused():
                    found.append(TaskStayed(fragment=event.fragment, why=f"{event.code}, {event.text}"))
                case _:
                    self._home[event.fragment] = self._row(event.fragment)
                    self._rows.pop(event.fragment, None)
                    found.append(TaskHome(fragment=event.fragment, lost=isinstance(event, Lost)))
        return found
