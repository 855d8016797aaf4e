"""A network that delays, loses, repeats, reorders and is cut in two.

Between two hosts stands a connection as ZeroMQ gives it: order is kept, and when it breaks what is
under way is lost and order resumes with the next one. On top come faults that ZeroMQ hides (single
loss, repetition, reordering), since the protocol must not depend on it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import msgspec

from medusa.decoders import msgpack_decoder
from medusa.ports import Buffer
from medusa.sim.world.virtual_time import World

__all__ = ["Faults", "Network"]

_PARTS = msgpack_decoder(list[msgspec.Raw])

Way = tuple[str, str]

_HELLO = b"\xa5hello"
"""How the header of a ``Hello`` goes on after its first byte: its tag."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """How bad the network is. Chances are per thousand frames."""

    delay_us: int = 500
    """Of every frame, at least."""

    jitter_us: int = 0
    """Up to so much more."""

    tail_permille: int = 0
    """Frames that take up to fifty times as long."""

    loss_permille: int = 0
    duplicate_permille: int = 0
    reorder_permille: int = 0
    """Frames that overtake those before them."""


class Network:
    """Carries frames between hosts.

    Args:
        deliver: called with (source, target, frames) when a frame arrives.
        deliver_by: called with (source, target, frames, connection) when a frame arrives by a connection
            that isn't the current one of that way; they are numbered from 1. None: such frames are dropped.
    """

    def __init__(
        self,
        world: World,
        faults: Faults,
        deliver: Callable[[str, str, list[Buffer]], None],
        *,
        deliver_by: Callable[[str, str, list[Buffer], int], None] | None = None,
    ) -> None:
        self.faults = faults
        self.sent = self.lost = 0
        self._seen: Callable[[str, list[Buffer]], None] | None = None
        self._world = world
        self._deliver = deliver
        self._deliver_by = deliver_by
        self._dice = world.dice("network")
        self._arrival_us: dict[Way, int] = {}
        self._life: dict[Way, int] = {}
        self._gaps: dict[Way, tuple[int, int]] = {}
        self._cuts: dict[Way, int] = {}
        self._clogs: dict[Way, int] = {}
        self._held: dict[Way, list[list[Buffer]]] = {}
        self._slow_us: dict[Way, int] = {}
        self._late: dict[str, tuple[int, bool]] = {}
        self._repeated: tuple[str, str] | None = None
        """Tags: what comes once more, and behind what."""
        self._kept: dict[Way, list[Buffer]] = {}
        """The last one of that kind that was sent this way."""
        self._hellos: dict[Way, list[Buffer]] = {}
        """The last ``Hello`` that was sent this way: a connection begins with one."""
        self._diverted: dict[Way, list[list[Buffer]]] = {}
        self._copied: set[Way] = set()
        self._connections = 0
        self._awaited: dict[str, list[tuple[int, Callable[[str, str], bool]]]] = {}

    def observe(self, seen: Callable[[str, list[Buffer]], None]) -> None:
        """Tell who sends what."""
        self._seen = seen

    def send(self, source: str, target: str, frames: list[Buffer]) -> None:
        """Take a frame; it arrives once, later, after those before it, unless fate decides otherwise."""
        way = (source, target)
        self.sent += 1
        if self._seen is not None:
            self._seen(source, frames)
        head = frames[0]
        if isinstance(head, bytes) and head[1:7] == _HELLO:
            self._hellos[way] = frames
        if self._awaited:
            self._await(way, frames)
        if way in self._diverted:
            self._diverted[way].append(frames)
            if way not in self._copied:
                return
        if way in self._cuts:
            self.lost += 1
            return
        if way in self._clogs:
            self._held.setdefault(way, []).append(frames)
            return
        faults = self.faults
        if self._chance(faults.loss_permille):
            self.lost += 1
            return
        late_us, again = self._late.get(_tag(frames), (0, False)) if self._late else (0, False)
        if late_us:
            self._fly(way, frames, overtake=True, late_us=late_us)
        if again or not late_us:
            self._fly(way, frames, overtake=self._chance(faults.reorder_permille))
        if self._chance(faults.duplicate_permille):
            self._fly(way, frames, overtake=False)
        if self._repeated is not None:
            self._repeat(way, frames)

    def _repeat(self, way: Way, frames: list[Buffer]) -> None:
        assert self._repeated is not None
        tag, (kind, later) = _tag(frames), self._repeated
        if tag == kind:
            self._kept[way] = frames
        elif tag == later and way in self._kept:
            self._fly(way, self._kept.pop(way), overtake=False)

    def _chance(self, permille: int) -> bool:
        """True so many times in a thousand; draws nothing where it can't be."""
        return permille > 0 and self._dice.randrange(1000) < permille

    def _fly(self, way: Way, frames: list[Buffer], *, overtake: bool, late_us: int = 0) -> None:
        faults, world = self.faults, self._world
        delay_us = faults.delay_us + late_us
        if faults.jitter_us:
            delay_us += self._dice.randrange(faults.jitter_us)
        if self._chance(faults.tail_permille):
            delay_us *= self._dice.randrange(2, 50)
        sent_us = world.now_us
        arrival_us = sent_us + delay_us
        if not overtake:
            # A slow link carries one frame after the other.
            before_us = self._arrival_us.get(way, 0)
            arrival_us = max(arrival_us, before_us + self._slow_us.get(way, 0))
            self._arrival_us[way] = arrival_us
        life = self._life.get(way, 0)
        source, target = way

        def arrive() -> None:
            gap = self._gaps.get(way)
            if self._life.get(way, 0) != life or (gap is not None and gap[0] <= sent_us <= gap[1]):
                self.lost += 1
            else:
                self._deliver(source, target, frames)

        world.at(arrival_us, arrive)

    def cut(self, source: str, target: str, *, hold: bool = False) -> None:
        """Nothing passes this way any more; what is under way is lost.

        Args:
            hold: the cut is too short to be noticed: frames sent meanwhile come after it (the
                kernel resends), and what is under way isn't lost.
        """
        way = (source, target)
        if hold:
            self._clogs[way] = self._clogs.get(way, 0) + 1
        else:
            self._cuts[way] = self._cuts.get(way, 0) + 1
            self._break(way)

    def passes(self, source: str, target: str) -> bool:
        """Whether what is sent this way comes as it does where nothing is cut."""
        way = (source, target)
        return way not in self._cuts and way not in self._clogs and way not in self._diverted

    def heal(self, source: str, target: str, *, hold: bool = False) -> None:
        """One cut (``hold``: one short cut) ends; frames pass when no other is left."""
        way = (source, target)
        counts = self._clogs if hold else self._cuts
        if counts.get(way, 0) > 1:
            counts[way] -= 1
            return
        counts.pop(way, None)
        if hold and way not in self._clogs:
            for frames in self._held.pop(way, []):
                self._fly(way, frames, overtake=False)

    def reconnect(self, source: str, target: str, since_us: int) -> None:
        """The connection breaks and is back at once: what was sent since then and hasn't arrived is
        lost, what was sent before arrives, and order resumes."""
        self._gaps[source, target] = (since_us, self._world.now_us)

    def slow(self, source: str, target: str, us_per_frame: int) -> None:
        """Frames of this way come at least so far apart; 0: as fast as they like."""
        self._slow_us[source, target] = us_per_frame

    def delay(self, tag: str, late_us: int, *, again: bool = False) -> None:
        """Messages of one kind come so much later, and others before them; 0: no more.

        Args:
            again: they come in time too.
        """
        self._late.pop(tag, None)
        if late_us:
            self._late[tag] = late_us, again

    def repeat_behind(self, tag: str, later: str) -> None:
        """The last message of one kind comes once more, right behind the next one of a later kind that goes
        the same way; of one pair of kinds at a time. Until all faults end."""
        self._repeated = tag, later
        self._kept.clear()

    def divert(self, source: str, target: str, *, copies: bool = False) -> None:
        """Frames sent this way from now on go by a connection of their own, stuck until ``restore``.

        Args:
            copies: they come in time too.
        """
        if copies:
            self._copied.add((source, target))
        hello = self._hellos.get((source, target))
        self._diverted.setdefault((source, target), [] if hello is None else [hello])

    def restore(self, source: str, target: str) -> Callable[[], None]:
        """Frames sent from now on go by the current connection again. What the call returns makes those that
        were diverted arrive, in order: the stuck connection is through."""
        frames, deliver_by = self._diverted.pop((source, target), []), self._deliver_by
        self._copied.discard((source, target))
        self._connections += 1
        connection = self._connections

        def release() -> None:
            if deliver_by is None:
                return
            for each in frames:
                self._world.after(self.faults.delay_us, partial(deliver_by, source, target, each, connection))

        return release

    def when_sent(self, tag: str, place: int, action: Callable[[str, str], bool]) -> None:
        """Call this with (source, target) of the messages of a kind, beginning with so many from now on, just
        before they are under way, until it says that it was the right one."""
        self._awaited.setdefault(tag, []).append((place, action))

    def _await(self, way: Way, frames: list[Buffer]) -> None:
        waiting = self._awaited.pop(tag, None) if (tag := _tag(frames)) in self._awaited else None
        for place, action in waiting or ():
            if place > 1 or not action(*way):
                self._awaited.setdefault(tag, []).append((max(place - 1, 1), action))

    def heal_all(self) -> None:
        """End every cut, and every fault that is a matter of chance."""
        self._diverted.clear()
        self._copied.clear()
        self._awaited.clear()
        self._cuts.clear()
        self._slow_us.clear()
        self._late.clear()
        self._repeated = None
        self._kept.clear()
        clogged, self._held = self._held, {}
        self._clogs.clear()
        self.faults = Faults(delay_us=self.faults.delay_us)
        for way, held in clogged.items():
            for frames in held:
                self._fly(way, frames, overtake=False)

    def worsen(self, **changes: int) -> None:
        """Change some of ``faults``."""
        self.faults = replace(self.faults, **changes)

    def forget(self, host: str, *, flushed: bool = False) -> None:
        """The host died: connections with it break.

        Args:
            flushed: what it had sent arrives all the same, as the kernel sees to after a process has died.
        """
        ways = list(self._arrival_us) + list(self._held)
        for way in ways:
            if host in way and not (flushed and way[0] == host):
                self._break(way)
                self._held.pop(way, None)

    def _break(self, way: Way) -> None:
        self._life[way] = self._life.get(way, 0) + 1
        self._arrival_us.pop(way, None)


def _tag(frames: list[Buffer]) -> str:
    """Of the message in a frame: the first field of its header."""
    return str(msgspec.msgpack.decode(_PARTS.decode(frames[0])[0]))
