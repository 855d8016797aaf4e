"""Fragments here that read streams of other queries: those are asked for before the fragment is installed.

    Install ──> on disk that we may be read for ──> Read to each ──> all agreed ──> installed, answered
                                                         └── one refused: the answer says why

Whatever dies, nobody keeps rows for us for ever: what was asked for and is read by no fragment here is given
back (``Release``), again and again until the other side says that it is.  No IO.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from medusa.errors import LinkError, QueryError
from medusa.nodes.catalog.catalog import Catalog, CrossQueryRead
from medusa.nodes.catalog.persistence import CatalogWriter
from medusa.nodes.config.settings import Settings
from medusa.nodes.security.registry import Caller
from medusa.nodes.spec.fragment_spec import Feed, FragmentSpec, guest_name, sink_of
from medusa.query.boxes import Graph, Source
from medusa.query.published_stream import reads_of
from medusa.wire.messages.commands import Reply
from medusa.wire.messages.rerouting import Read, Release
from medusa.wire.outbox import Outbox

__all__ = ["CrossQueryReads", "PendingInstall", "feeds_from"]

ASK_AGAIN_US = 1_000_000
"""What wasn't answered, or was busy, is asked again after this."""


@dataclass(slots=True, kw_only=True)
class PendingInstall:
    """A fragment that waits to be installed."""

    fragment: FragmentSpec
    owner: str
    request: int
    open: dict[int, tuple[str, Read]] = field(default_factory=dict)
    """Questions without an answer, and whom they ask."""
    asked_us: int = 0


class CrossQueryReads:
    """At the node where the readers stand.

    Args:
        number: gives numbers to questions.
        whose: the participant of a node.
        install: told that what a fragment reads is there, or what was answered against it.
    """

    def __init__(
        self,
        settings: Settings,
        catalog: Catalog,
        *,
        outbox: Outbox,
        saver: CatalogWriter,
        number: Callable[[], int],
        whose: Callable[[str], str | None],
        install: Callable[[int, PendingInstall, Reply | None], None],
    ) -> None:
        self._me = settings.name
        self._settings = settings
        self._catalog = catalog
        self._outbox = outbox
        self._saver = saver
        self._number = number
        self._whose = whose
        self._install = install
        self._pending: dict[str, PendingInstall] = {}
        self._giving: dict[int, tuple[str, str]] = {}
        """Releases without an answer: node and stream."""
        self._now_us = 0
        self._look_at_us: int | None = 0

    def ready(self, request: int, fragment: FragmentSpec, owner: str) -> bool:
        """Whether all that a fragment reads of other queries is there for it; if not, ``install`` is called
        when it is.

        Raises:
            LinkError: it can't be read from here.
        """
        feeds = fragment.reads()
        if not feeds:
            return True
        pending = self._pending.get(fragment.name)
        if pending is not None and (pending.fragment, pending.owner) == (fragment, owner):
            pending.request = request
            if pending.open:
                return False
            del self._pending[fragment.name]
            return True
        sources = reads_of(fragment.graph)
        for id, feed in feeds.items():
            self._check(sources[id], feed, fragment)
        pending = PendingInstall(fragment=fragment, owner=owner, request=request)
        for id, feed in feeds.items():
            message = Read(
                request=self._number(),
                query=fragment.query,
                source=id,
                stream=sink_of(feed.stream),
                schema=sources[id].schema,
                timed=sources[id].timed,
            )
            self._catalog.reading[feed.stream] = CrossQueryRead(
                node=feed.node, query=fragment.query, asked=message.request
            )
            pending.open[message.request] = feed.node, message
        self._pending[fragment.name] = pending
        self._giving = {n: each for n, each in self._giving.items() if each[1] not in self._catalog.reading}
        self._ask(pending, after=self._saver.save())
        return False

    def _check(self, source: Source, feed: Feed, fragment: FragmentSpec) -> None:
        of = source.of or ""
        if fragment.keeps_nothing:
            raise LinkError(
                f"source {source.id!r} reads stream {of!r}, and of fragment {fragment.name!r} nothing is "
                "kept when its node is lost",
                hint='give its outputs another method than "amnesia"',
                code="E_STORE",
            )
        if self._settings.forgets:
            raise LinkError(
                f"source {source.id!r} reads stream {of!r}, and node {self._me!r} has no disk to go on after "
                "its end",
                hint="put the source at a node with a disk",
                code="E_STORE",
            )
        participant = self._whose(feed.node)
        if participant != of.partition("/")[0]:
            raise LinkError(
                f"source {source.id!r} reads stream {of!r}, and node {feed.node!r} is of {participant!r}",
                code="E_SENDER",
            )

    def _ask(self, pending: PendingInstall, *, after: int) -> None:
        pending.asked_us = self._now_us
        self._look_at_us = min(self._look_at_us or self._now_us, self._now_us + ASK_AGAIN_US)
        for node, message in pending.open.values():
            self._saver.send(node, message, after=after)

    def answered(self, now_us: int, peer: str, reply: Reply) -> bool:
        """Take an answer; whether it was to a question of ours."""
        self._now_us = now_us
        if (given := self._giving.get(reply.request)) is not None and given[0] == peer:
            del self._giving[reply.request]
            if reply.code not in ("E_BUSY", "E_STALE"):
                self._catalog.reads_no_more(given[1])
                self._saver.save()
            return True
        for pending in self._pending.values():
            node, message = pending.open.get(reply.request, ("", None))
            if node != peer or message is None:
                continue
            if reply.code == "E_BUSY":
                return True  # It is asked again.
            if reply.code:
                del self._pending[pending.fragment.name]
                self._look_at_us = now_us
                text = f"source {message.source!r}, node {peer!r}: {reply.text}"
                self._install(
                    now_us,
                    pending,
                    Reply(request=pending.request, code=reply.code, text=text[:2000], hint=reply.hint),
                )
                return True
            del pending.open[reply.request]
            if not pending.open:
                self._install(now_us, pending, None)
            return True
        return False

    def removed(self, query: str, fragments: Iterable[FragmentSpec]) -> None:
        """A query is no more; those of its fragments were here."""
        self._pending = {n: each for n, each in self._pending.items() if each.fragment.query != query}
        for fragment in fragments:
            for feed in fragment.reads().values():
                self._catalog.reading[feed.stream] = CrossQueryRead(node=feed.node, query=query)
        self._look_at_us = self._now_us

    # --- time ---------------------------------------------------------------------------------------

    def tick(self, now_us: int) -> None:
        """Ask again; give back what nobody reads."""
        self._now_us = now_us
        if self._look_at_us is None or now_us < self._look_at_us:
            return
        for pending in self._pending.values():
            if now_us - pending.asked_us >= ASK_AGAIN_US:
                self._ask(pending, after=0)
        used = {feed.stream for each in self._pending.values() for feed in each.fragment.feeds}
        here = {feed.stream for each in self._catalog.fragments.values() for feed in each.feeds}
        here |= self._catalog.reads_in_doubt()
        self._giving = {}
        idle = {stream: of for stream, of in self._catalog.reading.items() if stream not in used | here}
        token = self._saver.save() if idle else 0
        for stream, of in idle.items():
            number = self._number()
            self._giving[number] = of.node, stream
            message = Release(request=number, query=of.query, stream=stream, reader=self._me)
            self._saver.send(of.node, message, after=token)
        self._look_at_us = now_us + ASK_AGAIN_US if self._pending or idle else None

    def wake_at_us(self) -> int | None:
        """When ``tick`` has work."""
        return self._look_at_us


def feeds_from(
    graph: Graph, reads: Iterable[tuple[str, str, str, int]], own: str, caller: Caller | None
) -> dict[str, Feed]:
    """The feeds of sources that read streams of other queries, as a client says where those are.

    Args:
        reads: (source, node, stream there, epoch).
        own: our participant.

    Raises:
        QueryError: they don't fit the query, or the client may not read such a stream.
    """
    sources, found = reads_of(graph), {}
    for source, node, stream, epoch in reads:
        of = sources[source].of if source in sources else None
        participant, _, entity = (of or "").partition("/")
        if of is None or source in found or stream not in (entity, f"{entity}.out") or epoch < 1:
            text = f"source {source[:100]!r} doesn't read stream {stream[:100]!r}, or it is named twice"
            raise QueryError(text, code="E_MESSAGE")
        full = stream if participant == own else f"{participant}/{stream}"
        if caller is not None and not caller.may("subscribe", full):
            raise QueryError(
                f"client {caller.name!r} may not read {full!r}, which source {source!r} reads",
                hint=f'the node\'s configuration would have to say subscribe = ["{full}"] in '
                f"[clients.{caller.name}]",
                code="E_ROLE",
            )
        query, _, sink = stream.partition(".")
        reader = "" if participant == own else own
        guest = f"{query}.{guest_name(sink, reader, graph.name, source)}"
        found[source] = Feed(source=source, node=node, stream=guest, epoch=epoch)
    return found
