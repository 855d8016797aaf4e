"""The driver of a node: wait, bring what came to the brain, do what it wants. It decides nothing.

Only this file knows which connection belongs to which peer. A node that we call is reached by our
connections to it; who calls us is whoever its first message says, if the brain finds that this name
belongs to the key that came with it. That key goes to the brain with every message. Of the connections
of a peer that calls us, the one for control stands for it; those for streams only bring frames.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Protocol

from medusa.errors import ConfigError, ContractError, RemoteProtocolError
from medusa.nodes.config.settings import Settings
from medusa.nodes.config.settings_streams import stream_settings
from medusa.nodes.load.loads import LOOK_US, Usage
from medusa.nodes.node import NodeMind
from medusa.nodes.reports import (
    Completion,
    LaneChanged,
    NodeReport,
    NotLetIn,
    PeerLost,
    Persisted,
    RulesRead,
    SentToItself,
    Started,
    StopRequested,
    Surroundings,
)
from medusa.ports import Buffer, Clock
from medusa.runtime.engine_host.host import EngineHost
from medusa.runtime.node.graph_parser import GraphParser
from medusa.runtime.transport.link_events import Arrival, Event, LinkDown, LinkRefused, LinkUp, Refused
from medusa.wire.codec import decode_frame, encode_frame
from medusa.wire.link.lanes import way_of
from medusa.wire.messages import Message
from medusa.wire.messages.links import Hello, Refuse
from medusa.wire.outbox import (
    AddReceipt,
    CallAt,
    CloseFragment,
    Copy,
    CutPeer,
    Effect,
    Fetch,
    Fork,
    Introduce,
    Log,
    OpenFragment,
    Owned,
    Parse,
    Persist,
    Regroup,
    ReportLine,
    RunFragment,
    Send,
    Stopped,
    Trust,
    Weigh,
    WriteSegment,
)

__all__ = ["NodeLoop"]

WAIT_MAX_MS = 1000

OWN_MAX = 64
"""Messages of the node to itself that are taken in one turn, so that others have theirs."""

WEIGHTS_MAX = 4096
"""Streams whose weights are remembered."""

REFUSALS = {"link.not_admitted": "refuses our key"}
LETS_US_NOT_IN = "lets us not in, as the log says"


class Links(Protocol):
    """What a loop needs of ``Transport``; a simulator has its own."""

    def wait(self, timeout_ms: int) -> list[Event]: ...

    def handled(self) -> None: ...

    def send(
        self,
        link: str,
        frames: Sequence[Buffer],
        *,
        stream: str = "",
        weight: int = 1,
        frame: int | None = None,
    ) -> None: ...

    def introduce(self, link: str, lane: int, frames: Sequence[Buffer]) -> None: ...

    def cut(self, link: str, *, shun: bool = True) -> None: ...

    def call_at(self, peer: str, address: str) -> None: ...

    def calls(self, link: str) -> bool: ...

    def door(self) -> dict[str, int]: ...

    def trust(self, keys: Iterable[str], server_keys: Mapping[str, Sequence[str]]) -> None: ...

    def wake(self) -> None: ...


class NodeLoop:
    """Drives one brain until it is stopped.

    Args:
        parser: reads graphs beside the loop.
        say: takes a report.
        reload: reads the keys and rules of the configuration again; None: they stay.
        papers: reads the contracts again by which the node trades; None: it doesn't.
        receipts: keeps what both parties of a contract have signed; None: it isn't kept.
        usage: reads what the process has used; None: that can't be told.

    Attributes:
        refused: frames that broke a rule, and links that never said who they are.
    """

    def __init__(
        self,
        brain: NodeMind,
        transport: Links,
        host: EngineHost,
        clock: Clock,
        *,
        parser: GraphParser,
        say: Callable[[ReportLine], None],
        reload: Callable[[], Settings] | None = None,
        papers: Callable[[Settings], Mapping[str, str]] | None = None,
        receipts: Callable[[AddReceipt], None] | None = None,
        usage: Callable[[], Usage] | None = None,
    ) -> None:
        self._brain = brain
        self._settings = brain.settings
        self._transport = transport
        self._host = host
        self._parser = parser
        self._clock = clock
        self._say = say
        self._reload = reload
        self._papers = papers
        self._receipts = receipts
        self._reloads = False
        self._usage = usage
        self._usage_at_us = -(1 << 62)
        self._names: dict[str, str] = {}
        """Link of a caller -> who it is."""
        self._links: dict[str, str] = {}
        """Who called -> the link by which it did last."""
        self._lanes: dict[str, int] = {}
        """Link of a caller that is for streams -> its number."""
        self._lane_links: dict[tuple[str, int], str] = {}
        """Who called, and the number -> the link."""
        self._weights: dict[str, int] = {}
        self._own_first: deque[Send] = deque()
        """What the node has said to itself and belongs to no stream: as on any link it goes before streams,
        however much of those waits."""
        self._own: deque[Send] = deque()
        """What the node has sent to itself; credit bounds it, as on any link."""
        self._unsynced: set[int] = set()
        self._held: list[Send] = []
        self._wake_at_us = 0
        self._stopping = False
        self._stopped: Stopped | None = None
        self._asked: deque[Callable[[dict[str, Any]], None]] = deque()
        self.refused = 0

    def stop(self) -> None:
        """Write last checkpoints, then end; from any thread or a signal handler."""
        self._stopping = True
        self._transport.wake()

    def reload(self) -> None:
        """Read keys and rules again; from any thread or a signal handler."""
        self._reloads = True
        self._transport.wake()

    def ask(self) -> Future[dict[str, Any]]:
        """Status of the node, from any thread; the loop's own thread answers between two turns."""
        future: Future[dict[str, Any]] = Future()
        self.tell(future.set_result)
        return future

    def tell(self, status: Callable[[dict[str, Any]], None]) -> None:
        """Call this with the status of the node, in the loop's own thread."""
        self._asked.append(status)
        self._transport.wake()

    def run(self, *, stop_timeout_us: int) -> bool:
        """Until ``stop``; whether everything was on disk in time."""
        self.begin()
        while not self._stopping:
            self._turn()
        self._report(StopRequested())
        self._perform()
        deadline_us = self._clock.monotonic_us() + stop_timeout_us
        while self._stopped is None and self._clock.monotonic_us() < deadline_us:
            self._turn()
        if self._stopped is not None:
            counts = {"fragments": self._stopped.fragments, "rows_in": self._stopped.rows_in}
            self._say(ReportLine(level="info", what="ended", fields=counts))
        return self._stopped is not None

    def _report(self, report: NodeReport) -> None:
        self._brain.report(self._clock.monotonic_us(), report)

    def _turn(self) -> None:
        left_us = self._wake_at_us - self._clock.monotonic_us()
        events = self._transport.wait(max(0, min(-(-left_us // 1000), WAIT_MAX_MS)))
        self.turn(events)

    def begin(self) -> None:
        """Let the brain begin; part of ``run``."""
        self._inform()
        self._report(Started())
        self._perform()
        if self._own_first or self._own:
            self._transport.wake()

    def _inform(self) -> None:
        now_us, usage = self._clock.monotonic_us(), None
        if self._usage is not None and now_us >= self._usage_at_us:
            self._usage_at_us = now_us + LOOK_US
            usage = self._usage()
        around = Surroundings(self._clock.now_us(), self._transport.door(), usage)
        self._brain.report(now_us, around)

    def turn(self, events: Iterable[Event]) -> int:
        """Bring what came and what has finished; when to come again at the latest. Never waits."""
        for event in events:
            match event:
                case Arrival():
                    self._arrived(event)
                case LinkDown():
                    self._lost(event.link, event.lane)
                case LinkRefused() | Refused():
                    if isinstance(event, LinkRefused):
                        self._report(NotLetIn(event.link, REFUSALS.get(event.code, LETS_US_NOT_IN)))
                    self._say(_told(event))
                case LinkUp(lane=lane) if lane:
                    self._report(LaneChanged(event.link, lane, up=True))
                case LinkUp():
                    pass
            self._perform()
        self._transport.handled()
        for done in (*self._host.finished(), *self._parser.finished()):
            self._finished(done)
            self._perform()
        self._take_own()
        now_us = self._clock.monotonic_us()
        if self._reloads:
            self._reloads = False
            self._configure(now_us)
        while self._asked:
            self._asked.popleft()(self._brain.status(now_us))
        if now_us >= self._brain.wake_at_us(now_us):
            self._inform()
            self._brain.tick(now_us)
        self._perform()
        if self._own_first or self._own:
            self._transport.wake()
        self._wake_at_us = self._brain.wake_at_us(now_us)
        return self._wake_at_us

    def _configure(self, now_us: int) -> None:
        if self._reload is None:
            return
        try:
            settings = self._reload()
            assert settings.security is not None
            papers = None if self._papers is None else self._papers(settings)
            suggest = None if settings.market is None else settings.market.suggest
            self._brain.report(now_us, RulesRead(settings.security, settings.offers, papers, suggest))
        except ConfigError as error:
            self._say(ReportLine(level="error", what=f"keys and rules stay as they were: {error}"))
            return
        self._say(ReportLine(level="info", what="keys and rules were read again"))
        self._perform()

    def _take_own(self) -> None:
        """Bring the node what it has sent to itself; what that makes it send waits for the next turn."""
        for _ in range(min(len(self._own_first) + len(self._own), OWN_MAX)):
            effect = (self._own_first or self._own).popleft()
            try:
                self._report(SentToItself(effect.message, effect.payload))
            except RemoteProtocolError as error:
                self.refused += 1
                self._say(ReportLine(level="error", what="own message refused", fields={"why": str(error)}))
            self._perform()

    # --- what comes -------------------------------------------------------------------------------

    def _arrived(self, event: Arrival) -> None:
        link = event.link
        peer = link if self._transport.calls(link) else self._names.get(link, "")
        try:
            message, payload = decode_frame(event.frames, peer=peer)
            if not self._transport.calls(link):
                if isinstance(message, Hello):
                    peer = self._admit(link, message, event.key)
                    if message.lane or not peer:
                        return
                elif not peer:
                    self.refused += 1
                    self._transport.cut(link, shun=False)
                    return
            now_us, lane = self._clock.monotonic_us(), self._lanes.get(link, 0)
            self._brain.receive(now_us, peer, message, payload, key=event.key, lane=lane)
        except RemoteProtocolError as error:
            self._broke_a_rule(link, error, known=bool(peer))

    def _admit(self, link: str, hello: Hello, key: str) -> str:
        """Bind a caller's link to its name; empty: it belongs to an earlier life of the caller and is cut."""
        try:
            self._brain.admit(hello, key=key)
        except RemoteProtocolError as error:
            # It says properly who it is, so it gets to know why it can't be here.
            self._tell(link, error)
            raise
        name = hello.node
        if self._names.setdefault(link, name) != name:
            raise RemoteProtocolError(f"calls itself {name!r}", peer=self._names[link], code="E_IDENTITY")
        lane = hello.lane
        before = self._lane_links.get((name, lane)) if lane else self._links.get(name)
        if before == link:
            return name
        earlier, told = self._brain.earlier(self._clock.monotonic_us(), hello, key=key)
        if earlier:
            if told is not None:
                self._transport.send(link, encode_frame(told))
            self._forget(link, shun=True)
            return ""
        if link == self._links.get(name) or link in self._lanes:
            text = f"is connection {lane} now, and was another"
            raise RemoteProtocolError(text, peer=name, code="E_IDENTITY")
        if before is not None:
            self._forget(before, shun=True)
        if lane:
            self._lanes[link] = lane
            self._lane_links[name, lane] = link
        else:
            self._links[name] = link
        return name

    def _broke_a_rule(self, link: str, error: RemoteProtocolError, *, known: bool) -> None:
        """Drop that link and keep the node."""
        self.refused += 1
        self._say(ReportLine(level="warning", what="link dropped", fields={"link": link, "why": str(error)}))
        if known:
            self._tell(link, error)
        if link in self._lanes:
            # Not only this connection: who sends such streams is done with.
            control = self._links.get(self._names[link])
            if control is not None:
                self._lost(control)
                self._forget(control, shun=True)
        self._lost(link)
        self._forget(link, shun=True)

    def _tell(self, link: str, error: RemoteProtocolError) -> None:
        refusal = Refuse(code=error.code, text=error.message[:2000], hint=error.hint[:2000])
        self._transport.send(link, encode_frame(refusal))

    def _lost(self, link: str, lane: int = 0) -> None:
        if lane:
            self._report(LaneChanged(link, lane, up=False))
            return
        if link in self._lanes:
            return  # Who calls by it sees that too, calls again, and says what it had sent.
        called = self._transport.calls(link)
        peer = link if called else self._names.get(link, "")
        # By the link that we called goes all that we say to a node, whether or not it has called us too.
        if peer and (called or self._links.get(peer, link) == link):
            self._report(PeerLost(peer))

    def _forget(self, link: str | None, *, shun: bool) -> None:
        if link is None:
            return
        name, lane = self._names.pop(link, ""), self._lanes.pop(link, 0)
        if self._links.get(name) == link:
            del self._links[name]
        if self._lane_links.get((name, lane)) == link:
            del self._lane_links[name, lane]
        self._transport.cut(link, shun=shun)

    def _finished(self, done: Completion | ReportLine) -> None:
        if isinstance(done, ReportLine):
            self._say(done)
            return
        if isinstance(done, Persisted):
            self._unsynced.discard(done.token)
            waiting = [send for send in self._held if send.after == done.token]
            self._held = [send for send in self._held if send.after != done.token]
            for send in waiting if done.ok else []:
                self._send(send.peer, send)
        self._report(done)

    # --- what is wanted -----------------------------------------------------------------------------

    def _perform(self) -> None:
        while effects := self._brain.outbox.take():
            for effect in effects:
                self._do(effect)

    def _do(self, effect: Effect) -> None:
        match effect:
            case Send(after=after) if after is not None and after in self._unsynced:
                self._held.append(effect)
            case Send():
                self._send(effect.peer, effect)
            case RunFragment():
                self._host.run(effect)
            case Persist():
                self._unsynced.add(effect.token)
                self._host.persist(effect)
            case Log():
                self._host.log(effect)
            case WriteSegment():
                self._host.spill(effect)
            case Fetch():
                self._host.fetch(effect)
            case Parse():
                self._parser.parse(effect)
            case OpenFragment():
                self._host.open(
                    effect.fragment, effect.graph, effect.files, counts=effect.counts, deltas=effect.deltas
                )
            case Owned():
                self._host.owned(effect)
            case Copy():
                self._host.copy(effect)
            case Regroup():
                self._host.regroup(effect)
            case Weigh():
                self._host.weigh(effect)
            case Fork():
                self._host.fork(effect)
            case CloseFragment():
                self._host.close(effect.fragment)
            case CutPeer():
                self._forget(self._link(effect.peer), shun=effect.shun)
            case CallAt():
                self._transport.call_at(effect.peer, effect.address)
            case Trust():
                self._transport.trust(effect.keys, effect.server_keys)
            case Introduce():
                self._transport.introduce(effect.peer, effect.lane, encode_frame(effect.hello))
            case Stopped():
                self._stopped = effect
            case AddReceipt():
                self._add_receipt(effect)
            case ReportLine():
                self._say(effect)

    def _add_receipt(self, receipt: AddReceipt) -> None:
        if self._receipts is None:
            return
        try:
            self._receipts(receipt)
        except ContractError as error:
            # Totals go on in the catalog; the statement names what is missing.
            self._say(ReportLine(level="error", what="a receipt isn't kept", fields={"why": str(error)}))

    def _link(self, peer: str) -> str | None:
        return peer if self._transport.calls(peer) else self._links.get(peer)

    def _send(self, peer: str, effect: Send) -> None:
        message: Message = effect.message
        if peer == self._settings.name:
            (self._own if way_of(message)[0] else self._own_first).append(effect)
            return
        link = self._link(peer)
        if link is None:
            return
        frames = encode_frame(message, effect.payload)
        stream, frame = way_of(message)
        if stream:
            self._transport.send(link, frames, stream=stream, weight=self._weight(stream), frame=frame)
        else:
            self._transport.send(link, frames)

    def _weight(self, stream: str) -> int:
        weight = self._weights.get(stream)
        if weight is None:
            if len(self._weights) >= WEIGHTS_MAX:
                self._weights.clear()
            weight = self._weights[stream] = stream_settings(self._settings, stream).weight
        return weight


def _told(event: LinkRefused | Refused) -> ReportLine:
    if isinstance(event, LinkRefused):
        fields = {"peer": event.link, "code": event.code, "hint": event.hint}
        return ReportLine(level="warning", what=f"no link: {event.why}", fields=fields)
    known = {name: text for name, text in (("address", event.address), ("key", event.key)) if text}
    return ReportLine(
        level="warning", what=f"{event.what}: {event.why}", fields={"count": event.count, **known}
    )
