"""How much this node and its peers have to do: what placement, and whoever shares load, decides by.

What the engine tells of its boxes, the driver of its process and the links of their streams becomes rates,
smoothed; ``overload`` says when it is too much, and here stands which boxes and queues make it so. Once a
second each node tells the others of its participant (``Load``), so all know all, a second late. Nothing is
decided here: a policy reads ``NodeLoads`` and asks the commands to move or split.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from medusa.engine.qos.rates import Smoothed, ratio
from medusa.nodes.config.settings import Settings
from medusa.nodes.fragment.host import FragmentHost
from medusa.nodes.fragment.rows_put_out import put_out_to
from medusa.nodes.load.link_loads import LinkLoads
from medusa.nodes.load.overload import Overload
from medusa.wire import limits
from medusa.wire.messages.load import FRAGMENTS_MAX, PUT_OUT_MAX, WHOLE, FragmentLoad, Load
from medusa.wire.outbox import Outbox
from medusa.wire.status_and_metrics import CauseStatus, EngineHeld, LinkStatus, SmoothedLoad

__all__ = ["LOOK_US", "NodeLoads", "Usage"]

Figures = Mapping[str, Mapping[str, Any]]
"""Box -> what the engine last told of it."""

LOOK_US = 500_000
"""So often is looked at what has changed. Too small: work for nothing; too large: bursts show late."""

SAY_US = 1_000_000
"""Peers hear of our load so often."""

SAY_FEEDING_US = 200_000
"""The same while nodes of other participants read streams of ours: what a host says to have had of them
counts once peers have heard that it is there. Too large: what is held at home is older."""

HEARD_US = 10_000_000
"""What a peer said counts so long; it says it every second while it is there."""

LEAST_ON_PROCESSOR = 0.02
"""Who has less of a processor has too much to do, however little that is."""

CAUSES_MAX = 5
SHARE_OF_CAUSES = 0.8
"""Boxes are named as causes until they make up so much of what all of them take."""


@dataclass(frozen=True, slots=True)
class Usage:
    """What the process has used so far: the driver reads it, since that is IO.

    Attributes:
        cpu_us: CPU time of all its threads.
        engine_us: of that, the engine's thread; None: it can't be told here.
        memory_bytes: resident now.
        cores: that it may use.
        held: who holds the engine's thread for too long; None: nobody.
    """

    cpu_us: int
    engine_us: int | None
    memory_bytes: int
    cores: int
    held: EngineHeld | None = None


class _Fragment:
    """What is known of one fragment; boxes by id."""

    def __init__(self, figures: Figures, half_life_us: int) -> None:
        self.boxes = tuple(figures)
        self._kinds = [each["kind"] for each in figures.values()]
        self._smoothed = Smoothed(half_life_us)
        self._since_us: int | None = None

    def note(self, now_us: int, figures: Figures, cpu_us: int | None) -> None:
        """Take note of what its boxes count, and of the CPU time of all; None: as long as they were busy."""
        names = ("rows_in", "rows_out", "busy_us")
        if self._since_us is None:
            self._since_us = now_us
        counts = [each[name] for each in figures.values() for name in names]
        self._smoothed.note(now_us, [*counts, sum(counts[2::3]) if cpu_us is None else cpu_us])

    @property
    def _rates(self) -> list[float] | None:
        """None: too little time has passed. What the engine tells comes late where the node is busy, and then
        all at once: of a few milliseconds it would be many cores."""
        noted_us, since_us = self._smoothed.noted_us, self._since_us
        if noted_us is None or since_us is None or noted_us - since_us < LOOK_US:
            return None
        return self._smoothed.rates

    def loads(self) -> dict[str, SmoothedLoad]:
        rates = self._rates
        if rates is None:
            return {}
        return {id: _load(*rates[3 * place : 3 * place + 3]) for place, id in enumerate(self.boxes)}

    def load(self) -> SmoothedLoad | None:
        rates = self._rates
        if rates is None:
            return None
        *of_boxes, _ = rates
        came = sum(rate for rate, kind in zip(of_boxes[::3], self._kinds, strict=True) if kind == "source")
        left = sum(rate for rate, kind in zip(of_boxes[::3], self._kinds, strict=True) if kind == "sink")
        return _load(came, left, sum(of_boxes[2::3]))

    def cpu_cores(self) -> float | None:
        """CPU time a second; None: unknown yet."""
        rates = self._rates
        return None if rates is None else rates[-1] / 1e6


def _load(came: float, left: float, busy_us: float) -> SmoothedLoad:
    return SmoothedLoad(
        rows_in_per_s=came,
        rows_out_per_s=left,
        busy_share=busy_us / 1e6,
        selectivity=ratio(left, came),
        cost_us=ratio(busy_us, came),
    )


class NodeLoads:
    """Of a node: its boxes, fragments, links and process, and what its peers say of theirs.

    Args:
        fragments: those of the node, as they come and go.

    Attributes:
        peers: node -> (when it said so, what), while that counts.
        links: what goes to and comes from each peer.
        usage: what the driver said last; None: nothing.
    """

    def __init__(self, settings: Settings, outbox: Outbox, fragments: Mapping[str, FragmentHost]) -> None:
        self._rules = settings.load
        self._outbox = outbox
        self._hosted = fragments
        self._fragments: dict[str, _Fragment] = {}
        self._figures: dict[str, Figures] = {}
        self._told_us: dict[str, int] = {}
        self._cpu_us: dict[str, int | None] = {}
        self._followed: dict[str, tuple[int, _Fragment]] = {}
        self.usage: Usage | None = None
        self._process = Smoothed(self._rules.half_life_us)
        self._told_took: dict[str, tuple[int, int]] = {}
        """Fragment -> for how long its boxes had been busy, and their CPU time, when that was told last."""
        self._busy_us = self._boxes_cpu_us = 0
        """The same of all that ran here, also of fragments that are gone: so what the process takes beside
        them doesn't jump as one comes or goes."""
        self._overloads = {"cpu": Overload(self._rules)}
        self._overloads |= {f"link {peer}": Overload(self._rules) for peer in self._rules.bandwidth}
        self._look_at_us = self._say_at_us = -(1 << 62)
        self.links = LinkLoads(self._rules.half_life_us)
        self.peers: dict[str, tuple[int, Load]] = {}
        self._own_peers = frozenset(settings.own_peers)
        self._others = frozenset(settings.peers) - self._own_peers
        self._put_out: dict[str, dict[str, int] | None] = {}
        """Peer -> as it said last, however long ago."""
        self._feeds_at_us = self._say_at_us
        self._untold: dict[str, None] = {}
        """Peers that came up since something was said."""

    # --- what comes -----------------------------------------------------------------------------

    def told(self, now_us: int, fragment: str, figures: Figures, cpu_us: int | None = None) -> None:
        """The engine counts this at each box of a fragment now.

        Args:
            cpu_us: CPU time of all of them; None: it can't be told, and they are taken to have had a
                processor for as long as they were busy.
        """
        self._count_boxes(fragment, figures, cpu_us)
        self._figures[fragment] = figures
        self._cpu_us[fragment] = cpu_us
        self._told_us[fragment] = now_us
        if fragment not in self._fragments:  # What it counts from now on is what it has done since.
            self._look_at(now_us, fragment, figures)

    def told_followed(self, now_us: int, fragment: str, figures: Figures, cpu_us: int | None = None) -> None:
        """The same of one that doesn't run here: this node stands by for it."""
        self._count_boxes(fragment, figures, cpu_us)
        _, followed = self._followed.get(fragment, (0, None))
        if followed is None or followed.boxes != tuple(figures):
            followed = _Fragment(figures, self._rules.half_life_us)
        followed.note(now_us, figures, cpu_us)
        self._followed[fragment] = now_us, followed

    def _count_boxes(self, fragment: str, figures: Figures, cpu_us: int | None) -> None:
        busy_us = sum(each["busy_us"] for each in figures.values())
        took = busy_us, busy_us if cpu_us is None else cpu_us
        before = self._told_took.get(fragment, took)
        busy_more_us, cpu_more_us = (
            new - old if new >= old else new for new, old in zip(took, before, strict=True)
        )
        self._busy_us, self._boxes_cpu_us = self._busy_us + busy_more_us, self._boxes_cpu_us + cpu_more_us
        self._told_took[fragment] = took

    def used(self, now_us: int, usage: Usage) -> None:
        """The process has used so much."""
        self._say_held(usage.held, None if self.usage is None else self.usage.held)
        self.usage = usage
        engine_us = 0 if usage.engine_us is None else usage.engine_us
        self._process.note(now_us, (usage.cpu_us, engine_us, self._busy_us, self._boxes_cpu_us))

    def _say_held(self, held: EngineHeld | None, before: EngineHeld | None) -> None:
        """Once for each time: all fragments here wait meanwhile."""
        if held is None or (before is not None and before.for_us < held.for_us):
            return
        about = {"query": held.query, "fragment": held.fragment, "functions": ", ".join(held.functions)}
        self._outbox.report("error", "a fragment holds the engine", **about, seconds=held.for_us // 1_000_000)

    def heard(self, now_us: int, peer: str, load: Load) -> None:
        """A node of our participant has said how it does."""
        self.peers[peer] = now_us, load
        self._put_out[peer] = None if load.put_out is None else dict(load.put_out)

    def came_up(self, peer: str) -> None:
        """A peer is there, or there again: it may know nothing of us, and hears at the next tick."""
        if peer in self._own_peers:
            self._untold[peer] = None

    def put_out(self, peer: str) -> Mapping[str, int] | None:
        """Stream -> the number of its next row, of those that a node has said to go to other participants;
        empty: it hasn't been heard yet. None: it can't say, or is of another participant."""
        return self._put_out.get(peer, {}) if peer in self._own_peers else None

    def tick(self, now_us: int, up: Iterable[str]) -> None:
        """Look at what has changed, and say how we do, where it is time to.

        Args:
            up: peers of our participant that are there.
        """
        if now_us >= self._look_at_us:
            self._look_at_us = now_us + LOOK_US
            self._look(now_us)
        is_due = now_us >= self._say_at_us or self._feeds(now_us)
        if is_due or self._untold:
            message = self.message()
            for peer in up:
                if is_due or peer in self._untold:
                    self._outbox.send(peer, message)
            self._untold = {}
        if is_due:
            self._say_at_us, self._feeds_at_us = now_us + SAY_US, now_us + SAY_FEEDING_US

    def _feeds(self, now_us: int) -> bool:
        """Whether it is time to say again what nodes of other participants have had, or are to have: the
        first of them may have become one just now."""
        if not self._others or now_us < self._feeds_at_us:
            return False
        self._feeds_at_us = now_us + SAY_FEEDING_US
        return bool(put_out_to(self._hosted.values(), self._others))

    def _look(self, now_us: int) -> None:
        for name in [name for name in self._figures if name not in self._hosted]:
            del self._figures[name], self._told_us[name], self._cpu_us[name]
            self._fragments.pop(name, None)
        for name, figures in self._figures.items():
            self._look_at(now_us, name, figures)
        # The engine tells of each some times a second while anything comes.
        for name, (told_us, _) in list(self._followed.items()):
            if name in self._hosted or now_us - told_us > HEARD_US:
                del self._followed[name]
        for name in [name for name in self._told_took if name not in self._figures]:
            if name not in self._followed:
                del self._told_took[name]
        self.links.look(now_us, self._hosted.values())
        for peer in [peer for peer, (at_us, _) in self.peers.items() if now_us - at_us > HEARD_US]:
            del self.peers[peer]
        for what, overload in self._overloads.items():
            load = self.load if what == "cpu" else self.links.share(what[5:], self._rules.bandwidth)
            if overload.note(now_us, load):
                over = "overloaded" if overload.since_us is not None else "not overloaded any more"
                self._outbox.report("warning", over, by=what, load=f"{load or 0:.2f}")

    def _look_at(self, now_us: int, name: str, figures: Figures) -> None:
        fragment = self._fragments.get(name)
        if fragment is None or fragment.boxes != tuple(figures):  # New, or another query of that name.
            fragment = self._fragments[name] = _Fragment(figures, self._rules.half_life_us)
        hosted, told_us = self._hosted[name], self._told_us[name]
        # While the engine is at work its last figures are those of that moment; what it does now is told
        # when it has done it. At rest they hold.
        fragment.note(told_us if hosted.under_way else now_us, figures, self._cpu_us[name])

    # --- what is known ----------------------------------------------------------------------------

    @property
    def busy_share(self) -> float | None:
        """Of all boxes together; None: nothing is known yet."""
        loads = [load for each in self._fragments.values() if (load := each.load()) is not None]
        return sum(load.busy_share for load in loads) if loads else None

    def followed_cores(self, without: Collection[str] = ()) -> float:
        """CPU time a second of the fragments that this node follows, but these, together."""
        found = (each.cpu_cores() for name, (_, each) in self._followed.items() if name not in without)
        return sum(cores for cores in found if cores is not None)

    @property
    def on_processor(self) -> float:
        """Of the time that boxes take, the share in which the engine's thread has a processor; else it waits
        for one, since other threads and processes have them. 1 where that can't be told."""
        rates = self._process.rates
        share = None if rates is None else ratio(rates[3], rates[2])
        return 1.0 if share is None else min(max(share, LEAST_ON_PROCESSOR), 1.0)

    @property
    def beside_cores(self) -> float | None:
        """CPU time per second that the process takes beside all boxes; None: unknown."""
        rates = self._process.rates
        return None if rates is None else max(rates[0] - rates[3], 0.0) / 1e6

    @property
    def engine_share(self) -> float | None:
        """CPU time of the engine's thread per second; None: unknown."""
        rates, usage = self._process.rates, self.usage
        if rates is None or usage is None or usage.engine_us is None:
            return None
        return rates[1] / 1e6

    @property
    def cpu_share(self) -> float | None:
        """CPU time of the process per second and core; None: unknown."""
        rates, usage = self._process.rates, self.usage
        return rates[0] / 1e6 / usage.cores if rates is not None and usage is not None else None

    @property
    def load(self) -> float | None:
        """What counts, the most of three: what boxes take of the engine's thread, since that is one; what the
        thread takes of a core; what the process takes of all its cores. None: nothing is known yet."""
        known = (self.busy_share, self.engine_share, self.cpu_share)
        return max((share for share in known if share is not None), default=None)

    @property
    def overloaded(self) -> list[str]:
        """``cpu``, and ``link PEER``, of which there is too much for us."""
        return [what for what, each in self._overloads.items() if each.since_us is not None]

    def overloaded_us(self, now_us: int) -> int | None:
        """For how long something has been too much; None: nothing is."""
        since = [each.since_us for each in self._overloads.values() if each.since_us is not None]
        return now_us - min(since) if since else None

    def fragment(self, name: str) -> SmoothedLoad | None:
        """None: unknown yet; so of all."""
        found = self._fragments.get(name)
        return None if found is None else found.load()

    def cpu_cores(self, fragment: str) -> float | None:
        """CPU time a second of all boxes of a fragment."""
        found = self._fragments.get(fragment)
        return None if found is None else found.cpu_cores()

    def boxes(self, fragment: str) -> dict[str, SmoothedLoad]:
        """By id; empty: unknown yet."""
        found = self._fragments.get(fragment)
        return {} if found is None else found.loads()

    def causes(self) -> Iterator[CauseStatus]:
        """Which boxes take the most, and which queues are the longest, the largest first."""
        boxes = [
            (load.busy_share, name, box)
            for name, fragment in self._fragments.items()
            for box, load in fragment.loads().items()
            if load.busy_share > 0
        ]
        whole, taken = sum(share for share, _, _ in boxes), 0.0
        for share, name, box in sorted(boxes, reverse=True)[:CAUSES_MAX]:
            if taken >= SHARE_OF_CAUSES * whole:
                break
            taken += share
            yield CauseStatus(fragment=name, box=box, busy_share=share)
        queues = [
            (input.receiver.held_bytes, name, input.stream)
            for name, hosted in self._hosted.items()
            for input in hosted.inputs.values()
            if input.receiver.held_bytes
        ]
        for nbytes, name, stream in sorted(queues, reverse=True)[:CAUSES_MAX]:
            yield CauseStatus(fragment=name, stream=stream, queue_bytes=nbytes)

    def link_status(self) -> dict[str, LinkStatus]:
        """What goes over each link, and what waits there."""
        return self.links.status(self._hosted.values(), self._rules.bandwidth)

    # --- what is said -----------------------------------------------------------------------------

    def message(self) -> Load:
        """What peers hear."""
        usage = self.usage
        found = sorted(
            (
                (load, name)
                for name in self._fragments
                if name in self._hosted and (load := self.fragment(name)) is not None
            ),
            key=lambda each: (-each[0].busy_share, each[1]),
        )
        put_out = tuple(put_out_to(self._hosted.values(), self._others).items())
        return Load(
            load=_whole(self.load, WHOLE),
            overloaded=bool(self.overloaded),
            cpu_share=_whole(self.cpu_share, WHOLE),
            cores=1 if usage is None else usage.cores,
            memory_bytes=0 if usage is None else usage.memory_bytes,
            fragments=tuple(self._said(name, load) for load, name in found[:FRAGMENTS_MAX]),
            put_out=put_out if len(put_out) <= PUT_OUT_MAX else None,
        )

    def _said(self, name: str, load: SmoothedLoad) -> FragmentLoad:
        hosted = self._hosted[name]
        return FragmentLoad(
            fragment=name,
            busy_share=_whole(load.busy_share, WHOLE),
            rows_in_per_s=_whole(load.rows_in_per_s),
            rows_out_per_s=_whole(load.rows_out_per_s),
            bytes_out_per_s=_whole(self.links.out_of(hosted)),
            queue_bytes=sum(input.receiver.held_bytes for input in hosted.inputs.values()),
        )


def _whole(value: float | None, of: int = 1) -> int:
    """As the wire has it."""
    most = 1_000 * WHOLE if of == WHOLE else limits.SEQ_MAX
    return min(max(round((value or 0.0) * of), 0), most)
