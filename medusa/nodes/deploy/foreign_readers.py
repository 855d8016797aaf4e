"""Queries that read sinks of others: what their nodes ask of the node that has the sink. No IO.

    reader ── Read ──> who has the sink: it keeps what comes out from now on, as a stream of its own
    reader ── Attach, Ack ... ──> as any fragment's reader
    reader ── Release ──> that stream is no more

The stream is in the spec, so it moves and comes back with the fragment, and whoever reads it follows it as
any other. Nodes of other participants read what a contract sells them, and else what ``[offers]`` lets
them; they never hold the fragment up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from medusa.errors import LinkError
from medusa.nodes.catalog.catalog import Catalog
from medusa.nodes.config.settings import Settings
from medusa.nodes.config.settings_offers import OfferRules, check_stream
from medusa.nodes.fragment.host import FragmentHost
from medusa.nodes.fragment.outputs import some_columns
from medusa.nodes.spec.fragment_spec import ForeignReader, SoldStream, guest_name, is_stream_name
from medusa.query.boxes import Source
from medusa.query.published_stream import same_columns
from medusa.query.suggest import did_you_mean
from medusa.wire.messages.rerouting import Read
from medusa.wire.outbox import Outbox

__all__ = ["ForeignReaders", "GUESTS_MAX"]

GUESTS_MAX = 100
"""Queries that read one sink: what comes out is kept for each of them."""


ORIGIN_ROWS_MAX = 1 << 61
"""So many rows a reader can have read elsewhere; as many more have room behind them."""


class ForeignReaders:
    """At the node that has the sinks.

    Args:
        fragments: what runs here, by name.
        moving: whether a fragment of ours is just being moved, split or merged.
        offers: to other participants, by name.
        sold: by which contract in force a participant may read a stream, and which columns of it, best just
            these; None: no contract names it; raises ``LinkError``: one does, and doesn't count now.
    """

    def __init__(
        self,
        settings: Settings,
        catalog: Catalog,
        fragments: Mapping[str, FragmentHost],
        outbox: Outbox,
        *,
        moving: Callable[[str], bool],
        offers: Callable[[str], OfferRules | None],
        sold: Callable[[str, str, tuple[str, ...]], SoldStream | None],
    ) -> None:
        self._moving = moving
        self._sold = sold
        self._offers = offers
        self._settings = settings
        self._catalog = catalog
        self._fragments = fragments
        self._outbox = outbox

    def stream(self, participant: str | None, message: Read) -> str:
        """The stream that would come of it."""
        query, _, sink = message.stream.partition(".")
        own = participant == self._settings.participant
        return f"{query}.{guest_name(sink, '' if own else participant or '', message.query, message.source)}"

    def of(self, stream: str) -> ForeignReader | None:
        """Who reads, where this is the stream of a guest."""
        for spec in self._catalog.fragments.values():
            for id, guest in spec.guests.items():
                if spec.streams[id] == stream:
                    return guest
        return None

    def read(self, peer: str, participant: str, message: Read, origin: int | None = None) -> bool:
        """A node wants to read a sink; whether the catalog has changed.

        Args:
            participant: whose node it is.
            origin: what its row 0 is called at the sink, where it has read rows before elsewhere; of what
                it is sold only. None: its row 0 is the next one.

        Raises:
            LinkError: it may not, or there is no such sink.
        """
        foreign = participant != self._settings.participant
        columns = tuple(field.name for field in message.schema)
        sold = self._sold(participant, message.stream, columns) if foreign else None
        if foreign and sold is None:  # First: what isn't offered isn't told of either.
            check_stream(self._offers(participant), self._settings.name, participant, message.stream)
        name, sink = self._catalog.sink(message.stream)
        hosted = self._fragments[name]
        self._check_sink(hosted, sink, message, sold)
        id = guest_name(sink, participant if foreign else "", message.query, message.source)
        if not is_stream_name(f"{hosted.spec.query}.{id}"):  # Nothing that is kept may be refused later.
            raise LinkError(f"{message.query[:100]!r} is no name of a query", code="E_STREAM")
        known = hosted.spec.guests.get(id)
        if known is not None and known.asked == message.request:
            return False
        if known is None and sum(each.sink == sink for each in hosted.spec.guests.values()) >= GUESTS_MAX:
            raise LinkError(
                f"{GUESTS_MAX} queries read stream {message.stream!r} already",
                hint="let some of them read the output of another",
                code="E_LIMIT",
            )
        output = hosted.outputs[sink]
        if sold is not None and origin is not None:
            begin = output.rows - origin
            if begin < 0:
                text = f"stream {message.stream!r} isn't as far here as where it is read"
                raise LinkError(text, hint="try again in a moment", code="E_BUSY")
            if begin > ORIGIN_ROWS_MAX:
                text = f"row 0 of the reader can't be row {origin:,} of stream {message.stream!r}"
                raise LinkError(text, code="E_SEQ")
            sold = msgspec.structs.replace(sold, begin=begin)
        guest = ForeignReader(
            sink=sink, query=message.query, first=output.rows, asked=message.request, foreign=foreign
        )
        stream = f"{hosted.spec.query}.{id}"
        hosted.outputs[id] = output.for_guest(id, stream, guest, peer, self._outbox, sold)
        self._put(hosted, id, stream, guest, peer, sold)
        return True

    def _put(
        self,
        hosted: FragmentHost,
        id: str,
        stream: str,
        guest: ForeignReader,
        peer: str,
        sold: SoldStream | None,
    ) -> None:
        spec = hosted.spec
        others = {each: of for each, of in spec.sold.items() if each != id}
        self._catalog.fragments[spec.name] = hosted.change_spec(
            streams={**spec.streams, id: stream},
            readers={**spec.readers, id: (peer,)},
            guests={**spec.guests, id: guest},
            sold=others if sold is None else {**others, id: sold},
        )
        self._catalog.expects_only(stream)

    def origin(self, stream: str) -> int | None:
        """What the sink calls row 0 of a guest's stream; None: nobody reads that."""
        for spec in self._catalog.fragments.values():
            for id, guest in spec.guests.items():
                if spec.streams[id] == stream:
                    return guest.first - (spec.sold[id].begin if id in spec.sold else 0)
        return None

    def left(self, hosted: FragmentHost, id: str) -> None:
        """Nobody may read this any more, if it was the stream of a guest."""
        spec = hosted.spec
        if id not in spec.guests or spec.readers.get(id):
            return
        del hosted.outputs[id]
        self._catalog.fragments[spec.name] = hosted.change_spec(
            streams={each: stream for each, stream in spec.streams.items() if each != id},
            readers={each: nodes for each, nodes in spec.readers.items() if each != id},
            guests={each: guest for each, guest in spec.guests.items() if each != id},
            sold={each: sold for each, sold in spec.sold.items() if each != id},
        )

    def _check_sink(self, hosted: FragmentHost, sink: str, message: Read, sold: SoldStream | None) -> None:
        spec, stream = hosted.spec, message.stream
        if sink in spec.guests or stream != f"{spec.query}.{sink}":
            own = [name for id, name in spec.streams.items() if name == f"{spec.query}.{id}"]
            raise LinkError(
                f"stream {stream!r} links parts of query {spec.query!r}; other queries read sinks",
                hint=did_you_mean(stream, own),
                code="E_STREAM",
            )
        if self._settings.forgets:
            raise LinkError(
                f"node {self._settings.name!r} has no disk to remember who reads stream {stream!r}",
                hint="put that part of its query at a node with a disk",
                code="E_STORE",
            )
        if spec.reads_again:
            why = (
                "no rows are kept for other queries"
                if spec.repeats
                else "its rows may have other numbers then"
            )
            raise LinkError(
                f"stream {stream!r} is recovered by upstream backup, and {why}",
                hint='give that output of its query another method than "upstream_backup"',
                code="E_STORE",
            )
        if hosted.forgets:
            raise LinkError(
                f"nothing is kept of who reads stream {stream!r} when its node is lost",
                hint='give that output of its query another method than "amnesia"',
                code="E_STORE",
            )
        if self._moving(spec.name) or hosted.frozen:
            text = f"what puts out stream {stream!r} is just being moved, split or merged"
            raise LinkError(text, hint="try again in a moment", code="E_BUSY")
        sender = hosted.outputs[sink].sender
        wanted = Source(id=message.source, schema=message.schema, judged=True, timed=message.timed)
        schema = sender.schema
        if sold is not None:
            schema = some_columns(schema, sold.columns)
            if tuple(field.name for field in schema) != sold.columns:
                raise LinkError(
                    f"contract {sold.contract!r} sells columns of stream {stream!r} that it hasn't, or in"
                    " another order",
                    hint="sign a version with the columns of the stream: medusa contract draft --query",
                    code="E_SCHEMA",
                )
        if differs := same_columns(wanted, schema, sender.timed):
            hint = "ask for it anew with fed.stream, and build the query on that"
            if sold is not None:
                hint = f"contract {sold.contract!r} sells: {', '.join(sold.columns)}"
            raise LinkError(f"stream {stream!r}: {differs}", hint=hint, code="E_SCHEMA")
