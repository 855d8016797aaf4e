"""What goes over the links of a node: bytes of streams per second, to and from each node and client.

Counted are frames of streams as credit counts them; acknowledgements, heartbeats and commands are not. The
counts are those that senders and receivers keep anyway, so nothing is done per frame.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from medusa.elements import END_US, START_US
from medusa.engine.qos.rates import Smoothed
from medusa.nodes.fragment.host import FragmentHost
from medusa.nodes.fragment.inputs import FragmentInput
from medusa.nodes.fragment.outputs import FragmentOutput
from medusa.wire.link.receiver_views import ReceiverView
from medusa.wire.status_and_metrics import LinkStatus

__all__ = ["LinkLoads"]

PEERS_MAX = 1_000
"""Of more nodes and clients nothing is known one by one."""


class _Grown:
    """A count that begins anew with each attachment: how much it has grown."""

    __slots__ = ("_epoch", "_last")

    def __init__(self) -> None:
        self._epoch = self._last = 0

    def since(self, epoch: int, count: int) -> int:
        """By so much since the last call."""
        grown = count - self._last if epoch == self._epoch and count >= self._last else count
        self._epoch, self._last = epoch, count
        return grown


class _Counts:
    """Counts by name that only grow, and their rates. Who isn't there any more is forgotten."""

    def __init__(self, half_life_us: int, width: int) -> None:
        self._half_life_us = half_life_us
        self._width = width
        self._known: dict[str, tuple[list[int], Smoothed]] = {}
        self._noted_us: int | None = None

    def note(self, now_us: int, growth: Mapping[str, list[int]]) -> None:
        """Each of these has grown so much since the last time."""
        before, self._known = self._known, {}
        for name, grown in list(growth.items())[:PEERS_MAX]:
            totals, smoothed = self._known[name] = before.get(name) or self._begun()
            for place, count in enumerate(grown):
                totals[place] += count
            smoothed.note(now_us, totals)
        self._noted_us = now_us

    def _begun(self) -> tuple[list[int], Smoothed]:
        """Of one that wasn't there before: then nothing had come of it."""
        totals, smoothed = [0] * self._width, Smoothed(self._half_life_us)
        if self._noted_us is not None:
            smoothed.note(self._noted_us, totals)
        return totals, smoothed

    def rates(self, name: str) -> list[float] | None:
        """None: unknown yet."""
        known = self._known.get(name)
        return None if known is None else known[1].rates


class LinkLoads:
    """By peer and by stream."""

    def __init__(self, half_life_us: int) -> None:
        self._sent: dict[tuple[str, str], _Grown] = {}
        """(stream, who reads it) -> bytes sent."""
        self._came: dict[tuple[str, str, str], _Grown] = {}
        """(fragment, stream, whose) -> bytes that came."""
        self._peers = _Counts(half_life_us, 2)
        self._streams = _Counts(half_life_us, 1)

    def look(self, now_us: int, fragments: Iterable[FragmentHost]) -> None:
        """Take note of what has gone over the links so far."""
        sent, self._sent, came, self._came = self._sent, {}, self._came, {}
        peers: dict[str, list[int]] = {}
        streams: dict[str, list[int]] = {}
        for hosted in fragments:
            for output in hosted.outputs.values():
                of_stream = streams.setdefault(output.stream, [0])
                for key, view in output.sender.receivers.items():
                    place = output.stream, key
                    count = self._sent[place] = sent.get(place) or _Grown()
                    grown = count.since(view.epoch, view.sent_bytes)
                    of_stream[0] += grown
                    if view.peer:
                        peers.setdefault(view.peer, [0, 0])[0] += grown
            for input in hosted.inputs.values():
                where = hosted.spec.name, input.stream, input.peer
                count = self._came[where] = came.get(where) or _Grown()
                peers.setdefault(input.by, [0, 0])[1] += count.since(0, input.came_bytes)
        self._peers.note(now_us, peers)
        self._streams.note(now_us, streams)

    def of(self, peer: str) -> tuple[float, float] | None:
        """Bytes per second to and from a peer; None: unknown yet."""
        rates = self._peers.rates(peer)
        return None if rates is None else (rates[0], rates[1])

    def share(self, peer: str, bandwidth: Mapping[str, int]) -> float | None:
        """Of what the line to a peer carries, in the busier direction; None: unknown."""
        rates, most = self.of(peer), bandwidth.get(peer)
        return None if rates is None or most is None else max(rates) / most

    def out_of(self, hosted: FragmentHost) -> float:
        """Bytes per second of all outputs of a fragment, to all readers."""
        known = (self._streams.rates(output.stream) for output in hosted.outputs.values())
        return sum(rates[0] for rates in known if rates is not None)

    def status(
        self, fragments: Iterable[FragmentHost], bandwidth: Mapping[str, int]
    ) -> dict[str, LinkStatus]:
        """Of each node and client with streams: see docs/brain.md."""
        found: dict[str, LinkStatus] = {}
        for hosted in fragments:
            newest_us = max((each.fed_us for each in hosted.inputs.values()), default=START_US)
            for input in (each for each in hosted.inputs.values() if each.by):
                link = found.get(input.by) or self._link(input.by, bandwidth)
                found[input.by] = replace(
                    link,
                    queue_bytes=link.queue_bytes + input.receiver.held_bytes,
                    lag_us=max(link.lag_us, _lag_us(input, newest_us)),
                )
            for output in hosted.outputs.values():
                for view in (each for each in output.sender.receivers.values() if each.peer):
                    link = found.get(view.peer) or self._link(view.peer, bandwidth)
                    found[view.peer] = replace(
                        link,
                        waiting_bytes=link.waiting_bytes + _waiting_bytes(output, view),
                        lag_rows=link.lag_rows + _lag_rows(output, view),
                    )
        return found

    def _link(self, peer: str, bandwidth: Mapping[str, int]) -> LinkStatus:
        out, came = self.of(peer) or (None, None)
        return LinkStatus(
            bytes_out_per_s=out,
            bytes_in_per_s=came,
            bandwidth=bandwidth.get(peer),
            share=self.share(peer, bandwidth),
        )


def _lag_us(input: FragmentInput, newest_us: int) -> int:
    """How far what this peer has promised is behind what another input of the fragment has."""
    if input.gone or not START_US < input.fed_us <= newest_us < END_US:
        return 0
    return newest_us - input.fed_us


def _lag_rows(output: FragmentOutput, view: ReceiverView) -> int:
    log = output.sender.log
    return max(log.next_seq - max(view.acked, log.start_seq), 0)


def _waiting_bytes(output: FragmentOutput, view: ReceiverView) -> int:
    """What is kept and wasn't sent to this reader, told by rows: all rows that are kept count the same."""
    log = output.sender.log
    kept = log.next_seq - log.start_seq
    if view.cursor >= log.end or not kept:
        return 0
    unsent = max(log.next_seq - max(view.sent_seq, log.start_seq), 0)
    return log.nbytes * unsent // kept
