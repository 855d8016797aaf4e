"""Streams defined by name: what is published under a name is read under it, with no query around it.

A definition is a query of one source and one sink, so its rows are numbered, judged, kept and resumed as
any stream's are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from medusa.errors import QueryError
from medusa.nodes.catalog.catalog import RUNNING, Catalog, Deployment
from medusa.nodes.catalog.directory import Directory
from medusa.nodes.config.settings import Settings
from medusa.nodes.deploy.background_parsing import BackgroundParsing
from medusa.nodes.deploy.coordinator import LOOK_US, WAITING_MAX, DeploymentCoordinator
from medusa.nodes.deploy.query_plan import check_name
from medusa.nodes.fragment.host import FragmentHost
from medusa.nodes.placement.placement import cut
from medusa.nodes.security.registry import Caller
from medusa.nodes.spec.spec_limits import check_limits
from medusa.ports import Buffer
from medusa.query.boxes import Graph, Input, Sink, Source
from medusa.query.codec import graph_from_msgpack, graph_to_msgpack
from medusa.wire import limits
from medusa.wire.messages.commands import Reply
from medusa.wire.messages.directory import Define
from medusa.wire.outbox import Outbox

__all__ = ["SINK", "SOURCE", "Definitions"]

SOURCE, SINK = "in", "out"
"""Of a definition: publishers feed ``NAME.in``, readers read ``NAME.out``; both are also called ``NAME``."""


class _NotYet(QueryError):
    """It may be taken in a moment: what stands is being changed, or a node that has to hear of it doesn't
    answer, as one that has just started hasn't heard the others yet."""


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A question of a client, and until when it may wait."""

    until_us: int
    message: Define
    graph: Graph
    caller: Caller | None


class Definitions:
    """Takes definitions from clients of this node.

    Args:
        settings: as long as a deployment may take, a new version waits for another change to be over, and for
            nodes that have to hear of it.
        fragments: what runs here, by name.
        parsing: reads graphs that clients send.
    """

    def __init__(
        self,
        settings: Settings,
        catalog: Catalog,
        directory: Directory,
        coordinator: DeploymentCoordinator,
        fragments: Mapping[str, FragmentHost],
        *,
        parsing: BackgroundParsing,
        outbox: Outbox,
    ) -> None:
        self._catalog = catalog
        self._directory = directory
        self._coordinator = coordinator
        self._fragments = fragments
        self._parsing = parsing
        self._outbox = outbox
        self._timeout_us = settings.limits.deploy_timeout_us
        self._waiting: dict[tuple[str, int], _Waiting] = {}
        """Client, its request -> what it asked."""
        self._look_at_us = 0

    def define(
        self, now_us: int, client: str, message: Define, payload: Buffer, caller: Caller | None
    ) -> None:
        """Take a definition; the client hears when it stands, or why it doesn't and nothing changed."""
        data = bytes(payload)
        try:
            query = check_name(data, caller)
        except QueryError as error:
            self._refuse(client, message, error)
            return
        self._parsing.read(
            now_us,
            client,
            caller,
            ("define", message.request),
            nbytes=len(data),
            read=partial(_graph, data),
            then=lambda now_us, graph: self._defined(
                now_us, client, _Waiting(now_us + self._timeout_us, message, graph, caller)
            ),
            refuse=partial(self._refuse, client, message),
            query=query,
        )

    def _defined(self, now_us: int, client: str, asked: _Waiting) -> None:
        """What it defines is known."""
        message = asked.message
        key = client, message.request
        if self._coordinator.is_on(*key):
            return  # The link broke meanwhile, and it is asked again.
        waiting = self._waiting.get(key, asked)
        try:
            self._take(now_us, client, waiting)
        except _NotYet as error:
            if now_us < waiting.until_us and (key in self._waiting or len(self._waiting) < WAITING_MAX):
                self._waiting[key] = waiting
                return
            self._refuse(client, message, error)
        except QueryError as error:
            self._refuse(client, message, error)
        self._waiting.pop(key, None)

    def tick(self, now_us: int) -> None:
        """Look whether what waits can be taken."""
        if not self._waiting or now_us < self._look_at_us:
            return
        self._look_at_us = now_us + LOOK_US
        for (client, _), each in list(self._waiting.items()):
            self._defined(now_us, client, each)

    def wake_at_us(self) -> int | None:
        """When ``tick`` has work."""
        return self._look_at_us if self._waiting else None

    def _refuse(self, client: str, message: Define, error: QueryError) -> None:
        most = limits.TEXT_CHARS_MAX
        text, hint = error.message[:most], error.hint[:most]
        self._outbox.send(client, Reply(request=message.request, code=error.code, text=text, hint=hint))

    def _take(self, now_us: int, client: str, asked: _Waiting) -> None:
        """Begin what was asked, or say that it stands already.

        Raises:
            QueryError: refused; nothing changed.
        """
        graph, request = asked.graph, asked.message.request
        version = self._version(graph)
        plan = cut(graph, {self._catalog.node: (SOURCE, SINK)}, nodes=[self._catalog.node])
        check_limits(plan.fragments[0].graph)
        if version is None:
            self._coordinator.runs(client, request)
        elif version > 1:
            self._coordinator.redefine(now_us, client, request, plan, version)
        else:
            self._coordinator.deploy(now_us, client, request, plan, defined=version)

    def _version(self, graph: Graph) -> int | None:
        """Of the definition; None: it stands already as it is.

        Raises:
            QueryError: the name is taken, or what stands is in use.
        """
        name, me = graph.name, self._catalog.node
        elsewhere = self._directory.find("definition", name) or self._directory.find("query", name)
        if elsewhere is not None and elsewhere.writer != me:
            text = f"{name!r} is defined at node {elsewhere.writer!r} already"
            raise QueryError(text, hint="define it there", code="E_DEFINED")
        known = self._catalog.deployment(name)
        if known is None:
            return 1
        if not known.defined:
            raise QueryError(f"{name!r} is a deployed query", hint="take another name", code="E_DEFINED")
        if known.state != RUNNING:
            raise _NotYet(f"{name!r} is being changed", hint="try again in a moment", code="E_DEFINED")
        if known.definition == graph_to_msgpack(graph):
            return None
        self._check_reachable(known)
        hosted = self._fragments[f"{name}/{SOURCE}"]
        readers = list(hosted.outputs[SINK].sender.receivers)
        # Another owner holds nothing up here: what it reads ends, as when the stream is undefined.
        readers += [f"query {guest.query!r}" for guest in hosted.spec.guests.values() if not guest.foreign]
        if readers:
            raise QueryError(
                f"{name!r} is read by {', '.join(readers[:8])}, who count on its definition",
                hint="end the reading first, or define another name",
                code="E_READ",
            )
        return known.defined + 1

    def _check_reachable(self, known: Deployment) -> None:
        """Whether a definition can be changed: it is here, and nodes where it was hear of that.

        Raises:
            QueryError: it isn't, or one doesn't.
        """
        name, me = known.query, self._catalog.node
        if f"{name}/{SOURCE}" not in self._fragments:
            where = self._directory.where(f"{name}.{SINK}")
            at = "at another node" if where in (None, me) else f"at node {where!r}"
            raise QueryError(
                f"{name!r} runs {at}, to which it was moved: node {me!r} can change it only while it has it",
                hint=f"medusa move {name}/{SOURCE} --to {me}, then define it again",
                code="E_DEFINED",
            )
        away = [node for node in known.nodes if node != me and not self._directory.is_there(node)]
        if away:
            nodes = ", ".join(map(repr, away))
            text = f"{name!r} was at node {nodes}, which doesn't answer and wouldn't forget it"
            raise _NotYet(text, hint="define it again when the node is back", code="E_DEFINED")


def _graph(payload: bytes) -> Graph:
    """One source, one sink that reads it, called as they must be.

    Raises:
        QueryError: it is anything else.
    """
    graph = graph_from_msgpack(payload)
    if graph_to_msgpack(graph) != payload:
        raise QueryError("a definition that is not in canonical form", code="E_MESSAGE")
    boxes = {box.id: box for box in graph.boxes}
    source, sink = boxes.get(SOURCE), boxes.get(SINK)
    is_one = len(boxes) == 2 and isinstance(source, Source) and not source.judged
    if not is_one or not isinstance(sink, Sink) or sink.inputs != (Input(SOURCE),):
        raise QueryError(
            f"a definition is one source {SOURCE!r} and one sink {SINK!r}", hint="fed.define", code="E_SPEC"
        )
    return graph
