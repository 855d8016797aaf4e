"""Why nothing comes out of a fragment on a node: what each box waits for, and who holds it back.

An embedded run asks its boxes (``run.explain``). Here the figures that the engine tells anyway are enough:
the boundary of each box says which input holds it, and what the links know says why that one doesn't move.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from medusa.elements import END_US, START_US
from medusa.engine.core.box import show_time
from medusa.nodes.fragment.host import FragmentHost
from medusa.nodes.fragment.inputs import FragmentInput
from medusa.nodes.fragment.outputs import FragmentOutput
from medusa.nodes.names.unreachable_peers import UnreachablePeers
from medusa.query.boxes import Box, Sink, Source
from medusa.query.boxes import Input as Arc
from medusa.query.graph import UNTIMED_PORTS
from medusa.query.published_stream import reads_of
from medusa.units import duration_text, size_text
from medusa.wire.link.automaton import ReceiverState, SenderState
from medusa.wire.link.named_subscriptions import owner_and_name
from medusa.wire.link.receiver_views import ReceiverView

__all__ = ["UnmovedBoundaries", "explained"]

_NOT_THERE = "isn't there"

LOOK_US = 250_000
"""Boundaries are looked at so often: since when one stands is known as exactly."""

Figures = Mapping[str, Mapping[str, Any]]
"""Box -> what the engine last told of it."""


class UnmovedBoundaries:
    """Since when the boundaries of boxes stand where they stand, as far as anybody looked."""

    def __init__(self) -> None:
        self._since: dict[str, dict[str, tuple[object, int]]] = {}
        self._look_at_us = 0

    def tick(self, now_us: int, engine: Mapping[str, Mapping[str, Any]]) -> None:
        """Look, if it is time; ``engine`` tells of each fragment what its boxes count."""
        if now_us >= self._look_at_us:
            self._look_at_us = now_us + LOOK_US
            self.note(now_us, {name: known["boxes"] for name, known in engine.items()})

    def note(self, now_us: int, figures: Mapping[str, Figures]) -> None:
        """Look at the boundaries of all boxes.

        Args:
            figures: of each fragment.
        """
        before, self._since = self._since, {}
        for fragment, boxes in figures.items():
            known = before.get(fragment, {})
            found = self._since[fragment] = {}
            for id, box in boxes.items():
                stands = box["boundary"], box["finished"]
                was = known.get(id)
                found[id] = was if was is not None and was[0] == stands else (stands, now_us)

    def since_us(self, fragment: str, box: str) -> int | None:
        """The moment; None: nobody has looked yet."""
        found = self._since.get(fragment, {}).get(box)
        return None if found is None else found[1]


def explained(
    hosted: FragmentHost,
    figures: Figures,
    unmoved: UnmovedBoundaries,
    now_us: int,
    away: UnreachablePeers | None = None,
    *,
    undecided: str = "",
    leads: bool = True,
) -> dict[str, dict[str, Any]]:
    """Of each box that the engine told of, in the order of the fragment: what it waits for.

    Args:
        away: which nodes don't answer, or refuse us.
        undecided: why nothing of its query can be taken over just now; empty: it can.
        leads: whether nobody else can have taken it over, as far as is heard now.

    Returns:
        box -> ``waits_for`` (text), ``held_by`` (the input with the lowest boundary; empty where none holds
        it) and ``unmoved_us`` (for how long its boundary stands where it stands; null: unknown, or at the
        end).
    """
    told = _Told(hosted, figures, now_us, away or UnreachablePeers(()), undecided, leads)
    found = {}
    for spec in hosted.spec.graph.boxes:
        if (figure := figures.get(spec.id)) is None:
            continue
        since_us = unmoved.since_us(hosted.spec.name, spec.id)
        stands = since_us is not None and not figure["finished"]
        arc = told.holder(spec)
        found[spec.id] = {
            "waits_for": told.text(spec),
            "held_by": "" if arc is None else arc.label,
            "unmoved_us": now_us - since_us if stands and since_us is not None else None,
        }
    return found


class _Told:
    """What is told of the boxes of one fragment at one moment."""

    def __init__(
        self,
        hosted: FragmentHost,
        figures: Figures,
        now_us: int,
        away: UnreachablePeers,
        undecided: str,
        leads: bool,
    ) -> None:
        self._hosted = hosted
        self._figures = figures
        self._now_us = now_us
        self._away = away
        self._specs: dict[str, Box] = {spec.id: spec for spec in hosted.spec.graph.boxes}
        self._undecided = undecided
        # What keeps nothing is fed nothing while others may have taken it over.
        waits = hosted.spec.keeps_nothing and bool(hosted.spec.standby) and not leads
        self._rests = undecided if waits and undecided else _rests(hosted)
        self._roots: dict[str, Source | None] = {}

    def text(self, spec: Box) -> str:
        figure = self._figures[spec.id]
        if self._hosted.failed:
            return f"nothing: its fragment has failed: {self._hosted.failed}"
        if isinstance(spec, Sink):
            return "; ".join(self._of_sink(spec))
        if figure["finished"]:
            return "nothing: it has ended"
        if isinstance(spec, Source):
            return self._of_source(spec) + self._left_out(spec)
        return "; ".join(self._of_box(spec))

    def _left_out(self, spec: Source) -> str:
        """What is left out behind a source just now; empty: nothing."""
        share_ppm = self._hosted.shares.get(spec.id, 0)
        if spec.shed is None or not share_ppm:
            return ""
        return f"; {share_ppm / 1e6:.0%} of its rows are left out: too much comes ({spec.shed.describe()})"

    def _boundary_us(self, box: str) -> int:
        figure = self._figures.get(box)
        if figure is None:
            return int(START_US)
        at_us: int | None = figure["boundary"]
        return int(END_US if figure["finished"] else START_US) if at_us is None else at_us

    def holder(self, spec: Box) -> Arc | None:
        """The input with the lowest boundary, the first of several; None: none has time, or all ended."""
        arcs = [arc for arc in spec.inputs if arc.port not in UNTIMED_PORTS]
        lowest = min(arcs, key=lambda each: self._boundary_us(each.box), default=None)
        return None if lowest is None or self._boundary_us(lowest.box) >= END_US else lowest

    def _of_box(self, spec: Box) -> Iterator[str]:
        own = spec.waits
        yield own or "rows"
        arc = self.holder(spec)
        if arc is None:
            return
        if len(spec.inputs) > 1 or own:
            at_us = self._boundary_us(arc.box)
            where = f" at {show_time(at_us)}" if at_us > START_US else ": nothing has come from there yet"
            yield f"{arc.label} holds it{where}"
        if (root := self._root(arc.box)) is not None and not self._figures.get(root.id, {}).get("finished"):
            yield f"source {root.id} waits for {self._of_source(root)}"

    def _root(self, box: str) -> Source | None:
        """Where the arcs that hold a box up begin; None: nothing holds one of them up."""
        way: list[str] = []
        while box not in self._roots:
            spec = self._specs[box]
            further = None if isinstance(spec, Source) else self.holder(spec)
            if further is None:
                self._roots[box] = spec if isinstance(spec, Source) else None
                break
            way.append(box)
            box = further.box
        root = self._roots[box]
        self._roots.update(dict.fromkeys(way, root))
        return root

    # --- where the fragment begins --------------------------------------------------------------

    def _of_source(self, spec: Source) -> str:
        if self._rests:
            return self._rests
        inputs = [each for each in self._hosted.inputs.values() if each.source == spec.id and not each.gone]
        open_ = [each for each in inputs if each.fed_us < END_US]
        if not open_:
            return "its last rows to be fed" if inputs else self._of_nobody(spec)
        slowest = min(open_, key=lambda each: each.fed_us)
        return self._of_input(slowest)

    def _of_nobody(self, spec: Source) -> str:
        """Of a source that waits for none of those who published into it."""
        gone = [
            (each.silent_since_us, each)
            for each in self._hosted.inputs.values()
            if each.source == spec.id and each.silent_since_us is not None and each.fed_us < END_US
        ]
        if not gone:
            return "a publisher"
        since_us, last = max(gone, key=lambda each: each[0])
        since = duration_text(max(self._now_us - since_us, 0) // 1_000_000 * 1_000_000)
        return f"a publisher: {self._name(last)!r}, the last one, is gone for {since} without having finished"

    def _name(self, input: FragmentInput) -> str:
        return owner_and_name(input.peer)[1] if input.named else input.peer

    def _of_input(self, input: FragmentInput) -> str:
        receiver = input.receiver
        name = self._name(input)
        who = f"node {name!r}" if input.judged else f"publisher {name!r}"
        if (source := reads_of(self._hosted.spec.graph).get(input.source)) is not None:
            who = f"stream {source.of!r} at {who}"
        if why := self._away.why(self._now_us, input.peer):
            return f"{who}, which {why}"
        if input.silent_since_us is not None:
            since = duration_text(max(self._now_us - input.silent_since_us, 0) // 1_000_000 * 1_000_000)
            # Of its own query another node would go on with what the silent one had.
            stuck = f"; {self._undecided}" if input.judged and source is None and self._undecided else ""
            return f"{who}, which is silent for {since}{stuck}"
        if receiver.state is ReceiverState.REFUSED:
            refusal = receiver.refusal
            why = f": {refusal.text} ({refusal.code})" if refusal is not None else ""
            return f"{who}, which refuses stream {input.stream!r}{why}"
        if receiver.state is ReceiverState.IDLE:
            return f"{who}, which {_NOT_THERE}"
        if receiver.state is ReceiverState.ATTACHING:
            return f"{who} to answer: it was asked for row {receiver.next_seq:,} of {input.stream!r}"
        if receiver.held_bytes:
            return f"the engine: {size_text(receiver.held_bytes)} from {who} wait for it"
        after = "" if input.fed_us <= START_US else f" beyond {show_time(input.fed_us)}"
        return f"rows or a boundary{after} from {who}"

    # --- where it ends --------------------------------------------------------------------------

    def _of_sink(self, spec: Sink) -> Iterator[str]:
        output = self._hosted.outputs.get(spec.id)
        if output is None:
            yield "rows"
            return
        if output.held:
            # They wait for who stands by too, whom an owner alone can't count out.
            too = f"; {self._undecided}" if self._undecided and self._hosted.spec.standby else ""
            yield f"the disk: {output.held:,} trains and boundaries leave once the decision log has them{too}"
        for key, view in output.sender.receivers.items():
            if text := _reader(output, key, view, self._away.why(self._now_us, view.peer)):
                yield text
        if self._figures[spec.id]["finished"]:
            yield "nothing: it has ended"
            return
        yield from self._of_box(spec)


def _reader(output: FragmentOutput, key: str, view: ReceiverView, refuses: str) -> str:
    """Why this reader doesn't have all that is there; empty: it has.

    Args:
        refuses: it is a node that lets us not in, and why.
    """
    log = output.sender.log
    if view.cursor >= log.end and view.acked >= log.next_seq:
        return ""
    who = f"reader {view.peer or key!r}"
    behind = max(log.next_seq - max(view.acked, log.start_seq), 0)
    if view.state is not SenderState.FLOWING:
        return f"{who}, which {refuses or _NOT_THERE}: {behind:,} rows are kept for it"
    if view.cursor < log.end:
        return f"{who} to take more: {behind:,} rows wait, and its credit is used up"
    return ""


def _rests(hosted: FragmentHost) -> str:
    """Why the fragment takes no input at all; empty: it does."""
    for output in hosted.outputs.values():
        if output.full(0):
            kept = size_text(output.sender.log.memory_bytes + output.held_bytes)
            readers = output.sender.receivers.items()
            slow = min(readers, key=lambda item: item[1].durable, default=None)
            whom = "" if slow is None else f" until {slow[1].peer or slow[0]!r} holds row {slow[1].durable:,}"
            return f"room: output {output.stream!r} keeps {kept}, which is its bound,{whom}"
    if hosted.frozen:
        return "the end of its move: another node may be its owner"
    if hosted.repeating:
        return f"{hosted.repeating:,} decisions of before the restart to be fed again"
    if hosted.decided.full:
        return "the disk: too much waits for the decision log"
    return ""
