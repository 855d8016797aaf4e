"""What a node writes of itself into the directory: always what its own catalog says, once that is on disk."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from medusa.nodes.catalog.catalog import REMOVING, Catalog, Deployment
from medusa.nodes.catalog.directory import Directory
from medusa.nodes.catalog.entry_bodies import (
    DefinitionBody,
    FragmentBody,
    NodeBody,
    QueryBody,
    SourceBody,
    StreamBody,
    body_to,
)
from medusa.nodes.catalog.kept_moves import FIRST_EPOCH
from medusa.nodes.catalog.persistence import CatalogWriter
from medusa.nodes.clock.expiry import period
from medusa.nodes.config.settings import Settings
from medusa.nodes.deploy.admission import Admission
from medusa.nodes.fragment.host import FragmentHost
from medusa.nodes.spec.fragment_spec import FragmentSpec
from medusa.query.boxes import Graph, Schema, Sink, Source
from medusa.query.codec import graph_from_msgpack
from medusa.wire import limits

__all__ = ["AdvertisedEntries", "columns_of", "source_body"]

LOOK_EVERY_US = 1_000_000
SAVE_EVERY_US = 10_000_000
"""What is learned of others goes to disk so often; until then a restarted node hears it again."""

Wanted = dict[tuple[str, str], tuple[int, bytes]]
"""(kind, name) -> epoch and body."""


class AdvertisedEntries:
    """Keeps the entries of one node as they should be.

    Args:
        fragments: what runs here, by name.
        wall: what time it is; None: not known.
        abroad: the participant of another one's node; empty: it is of our own.
        accepting: says where the node's fragments run.
    """

    def __init__(
        self,
        settings: Settings,
        catalog: Catalog,
        directory: Directory,
        fragments: Mapping[str, FragmentHost],
        saver: CatalogWriter,
        *,
        wall: Callable[[int], int | None],
        abroad: Callable[[str], str],
        accepting: Admission,
    ) -> None:
        self._settings = settings
        self._catalog = catalog
        self._directory = directory
        self._fragments = fragments
        self._saver = saver
        self._wall = wall
        self._abroad = abroad
        self._accepting = accepting
        self._look_at_us = 0
        self._save_at_us = SAVE_EVERY_US
        self._made: dict[str, tuple[FragmentSpec, Wanted]] = {}
        self._versions: dict[str, int] = {}
        """Of the streams here, as readers are told: what isn't on disk yet is told nobody."""
        self._defined: dict[str, tuple[int, bytes, bytes]] = {}
        """Of what was defined here: version, graph and body."""
        self.listens_at(settings.listen)

    def listens_at(self, address: str, server_key: str = "") -> None:
        """Where this node can be reached; told by whoever opened the socket."""
        settings = self._settings
        self._node = NodeBody(
            address=address[: limits.NAME_CHARS_MAX],
            server_key=server_key,
            participant=settings.participant,
            store=settings.store,
            memory_bytes=settings.limits.memory_bytes,
        )

    def tick(self, now_us: int) -> None:
        """Look whether all is as it should be; save what was learned."""
        if now_us >= self._look_at_us:
            self.refresh(now_us)
        if now_us >= self._save_at_us:
            self._save_at_us = now_us + SAVE_EVERY_US
            if self._directory.changed:
                self._directory.settled()
                self._saver.save()

    def refresh(self, now_us: int) -> None:
        """Write what isn't written yet, and that gone is what isn't there any more."""
        self._look_at_us = now_us + LOOK_EVERY_US
        wanted = self._wanted()
        if (own := wanted.get(("node", self._settings.name))) is not None:
            wanted["node", self._settings.name] = period(self._settings.name, self._wall(now_us)), own[1]
        for kind, name in self._directory.own():
            if (kind, name) not in wanted:
                self._directory.remove(now_us, kind, name)
        for (kind, name), (epoch, body) in wanted.items():
            version = self._versions.get(name, 1) if kind == "stream" else 1
            self._directory.put(now_us, kind, name, epoch, body, stream_version=version)

    def _wanted(self) -> Wanted:
        wanted: Wanted = {}
        made, self._made = self._made, {}
        self._versions = {}
        for name, spec in self._catalog.fragments.items():
            hosted = self._fragments.get(name)
            if hosted is None:
                continue
            known = made.get(name)
            if known is None or known[0] is not spec:
                whose = self._abroad(self._catalog.coordinator_of(spec.query, self._settings.name))
                known = spec, _of_fragment(spec, hosted, whose)
            self._made[name] = known
            self._versions |= {e.stream: e.sender.stream_version for e in hosted.outputs.values()}
            own_epoch = self._directory.own_epoch("fragment", name)
            epoch = self._catalog.epoch(name)
            taken_over = epoch != FIRST_EPOCH and not hosted.frozen  # What rests here may be another's.
            epoch = max(own_epoch, epoch, self._above_lost(spec) if taken_over else 0)
            wanted |= {key: (max(epoch, at_least), body) for key, (at_least, body) in known[1].items()}
        for deployment in self._catalog.deployments.values():
            if not deployment.defined:
                body = QueryBody(
                    state=deployment.shown,
                    nodes=tuple(deployment.nodes),
                    reads=deployment.reads,
                    stopped=dict(deployment.stopped),
                    abroad=tuple(e for e in deployment.abroad if e[:2] not in deployment.stopped),
                )
                if len(body_to(body)) > limits.BODY_BYTES_MAX:
                    body = msgspec.structs.replace(body, abroad=())
                wanted["query", deployment.query] = self._above_former(deployment), body_to(body)
            elif deployment.definition and deployment.state != REMOVING:
                wanted["definition", deployment.query] = 1, self._definition(deployment)
        node = msgspec.structs.replace(self._node, **self._accepting.told())
        wanted["node", self._settings.name] = 1, body_to(node)
        return {key: value for key, value in wanted.items() if len(value[1]) <= limits.BODY_BYTES_MAX}

    def _above_former(self, deployment: Deployment) -> int:
        """An epoch above that of the node that coordinated a query before us: its word stands for as long as
        it is away."""
        if not deployment.taken_over:
            return 1
        said = self._directory.holders("query", deployment.query)
        others = [each.epoch + 1 for each in said if each.writer != self._settings.name]
        return max([self._directory.own_epoch("query", deployment.query), *others])

    def _above_lost(self, spec: FragmentSpec) -> int:
        """An epoch above that of every node that had a fragment which was taken over: one that is lost never
        takes its word back, and says a higher one where the query had been deployed there before. It needn't
        stand by any more."""
        said = self._directory.holders("fragment", spec.name) if spec.standby else ()
        return max((each.epoch + 1 for each in said if each.writer != self._settings.name), default=0)

    def _definition(self, of: Deployment) -> bytes:
        known = self._defined.get(of.query)
        if known is None or known[:2] != (of.defined, of.definition):
            body = _definition(graph_from_msgpack(of.definition), of.defined)
            self._defined[of.query] = known = of.defined, of.definition, body
        return known[2]


def columns_of(schema: Schema) -> tuple[tuple[str, str], ...]:
    """Names and types."""
    return tuple((field.name, field.type) for field in schema)


def _of_fragment(spec: FragmentSpec, hosted: FragmentHost, guest_of: str) -> Wanted:
    boxes = {box.id: box for box in spec.graph.boxes}
    body = FragmentBody(
        query=spec.query,
        boxes=tuple(boxes),
        streams=tuple(spec.streams.values()),
        sources=tuple(spec.entries.values()),
        feeds=tuple(feed.source for feed in spec.feeds),
        guest_of=guest_of,
    )
    found: Wanted = {("fragment", spec.name): (1, body_to(body))}
    for id, output in hosted.outputs.items():
        stream = StreamBody(
            query=spec.query,
            fragment=spec.name,
            columns=columns_of(output.sender.schema),
            timed=output.sender.timed,
            window_us=output.window_us,
            reader=spec.guests[id].query if id in spec.guests else "",
        )
        found["stream", output.stream] = 1, body_to(stream)
    for id, name in spec.entries.items():
        box = boxes[id]
        assert isinstance(box, Source)
        found["source", name] = 1, body_to(source_body(spec, box))
    return found


def source_body(spec: FragmentSpec, box: Source) -> SourceBody:
    """What is told of a source of a fragment; without its partitions where those are too many."""
    body = SourceBody(
        query=spec.query,
        fragment=spec.name,
        columns=columns_of(box.schema),
        time=box.time,
        unit=box.unit,
        slack_us=box.slack_us,
        arrival=box.arrival,
        partition=box.partition,
        partitions=box.partitions,
    )
    if box.partitions is None or len(body_to(body)) <= limits.BODY_BYTES_MAX:
        return body
    return msgspec.structs.replace(body, partitions=None)


def _definition(graph: Graph, version: int) -> bytes:
    source = next(box for box in graph.boxes if isinstance(box, Source))
    sink = next(box for box in graph.boxes if isinstance(box, Sink))
    body = DefinitionBody(
        version=version,
        source=f"{graph.name}.{source.id}",
        stream=f"{graph.name}.{sink.id}",
        columns=columns_of(source.schema),
        time=source.time,
        unit=source.unit,
        slack_us=source.slack_us,
    )
    return body_to(body)
