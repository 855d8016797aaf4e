"""A client of a node: deploy queries, publish rows, read streams, ask for status."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any

import msgspec

from medusa.decoders import converter
from medusa.elements import END_US
from medusa.engine.input.push_arguments import boundary_time_us
from medusa.errors import LinkError, QueryError
from medusa.nodes.placement.checkpoint_intervals import IntervalWish
from medusa.nodes.placement.placement import cut
from medusa.nodes.placement.standby_plan import StandbyWish
from medusa.query.codec import graph_to_msgpack
from medusa.runtime.client.asking import ask
from medusa.runtime.client.boundaries import await_boundaries
from medusa.runtime.client.checkpoint_intervals import CheckpointEvery, interval_wish
from medusa.runtime.client.client_loop import ClientLoop, now_us
from medusa.runtime.client.connecting import AddressGiven, ServerKeyGiven, first_to_answer, given_nodes
from medusa.runtime.client.contacts import GivenNode
from medusa.runtime.client.followed_names import FollowedNames
from medusa.runtime.client.moves import MoveMethods
from medusa.runtime.client.named_publisher import NamedMethods, NamedPublisher
from medusa.runtime.client.names import NameMethods
from medusa.runtime.client.overview import Overview
from medusa.runtime.client.placement import Balance, PlanMethods, expected
from medusa.runtime.client.publisher import GONE, Publisher, described, source_from
from medusa.runtime.client.remote_definitions import RemoteMethods
from medusa.runtime.client.splits import SplitMethods
from medusa.runtime.client.standby import Standby, deployment, standby_wish
from medusa.runtime.client.subscription import Subscription, check_name
from medusa.runtime.keys.client_keys import KeyGiven, first_use
from medusa.runtime.transport.first_use import pin
from medusa.units import Duration, duration_us
from medusa.wire.messages.links_and_commands import NOW, OLDEST, Declare, Deploy, Message, StatusRequest
from medusa.wire.messages.standby import DeployGuarded, PlannedStandby
from medusa.wire.statement import from_text

if TYPE_CHECKING:
    from medusa.query.boxes import Graph, Source
    from medusa.query.builder import Query

__all__ = ["Federation", "connect", "dial"]

_PLANNED = converter(PlannedStandby)

PAUSES_S = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6)
"""Between attempts to deploy a query whose stream moves meanwhile."""


def connect(
    address: AddressGiven,
    timeout: Duration = "5s",
    *,
    key: KeyGiven | None = None,
    server_key: ServerKeyGiven | None = None,
    trust_first_use: str | os.PathLike[str] | None = None,
    introduction: str | None = None,
) -> Federation:
    """Connect to a node, or to one of several.

    What is published and read goes on when a node is lost, be it this one, as soon as another has what it
    had: the client asks other nodes of the participant, which it knows from this one.

    Args:
        address: where it listens: ``tcp://127.0.0.1:5555`` or ``ipc:///path``; with keys any host. Or a list
            of such, of nodes of one participant: the first that answers is ours, and another becomes ours
            when that is lost. With one address orders that any node takes go to another while ours is
            away, and what only ours can do (``status``, ``declare``, ``deploy``) waits for it.
        timeout: how long to wait for it now, and for each answer later: ``"5s"``; at least 1 ms.
        key: our secret key, made by ``medusa keygen client``: its file, which nobody else may read, or
            its 40 characters.
        server_key: the public key of the node: its ``.pub`` file or its 40 characters. Only who has the
            secret half of it is spoken with. With several addresses a list, one for each.
        trust_first_use: instead of ``server_key``: a file of pinned keys. Where it has none for this address,
            the node is asked for its key, and if the connection then stands, that key is pinned. Whoever
            sits between may answer that first question.
        introduction: where a node that isn't pinned yet says its key: ``introduce`` of its configuration,
            ``tcp://host:port``.

    Raises:
        LinkError: no such address, nobody answers there, it is another than ``server_key`` says, or it
            doesn't admit us.
    """
    return dial(
        address,
        timeout,
        key=key,
        server_key=server_key,
        trust_first_use=trust_first_use,
        introduction=introduction,
    )


def dial(
    address: AddressGiven,
    timeout: Duration = "5s",
    *,
    key: KeyGiven | None = None,
    server_key: ServerKeyGiven | None = None,
    trust_first_use: str | os.PathLike[str] | None = None,
    introduction: str | None = None,
    begun: Callable[[ClientLoop], None] = lambda loop: None,
) -> Federation:
    """``connect``, for one who may want to end it before it stands.

    Args:
        begun: called with what closes it, before the node is waited for.
    """
    timeout_us = duration_us(timeout, what="connect: timeout", minimum_us=1_000, error=LinkError)
    first = first_use(trust_first_use, introduction)
    made = Federation(given_nodes(address, timeout_us, key, server_key, first), timeout_us, begun)
    try:
        made._pin()
    except BaseException:
        made.close()
        raise
    return made


class Federation(NameMethods, NamedMethods, Overview, MoveMethods, SplitMethods, PlanMethods, RemoteMethods):
    """The nodes of a federation, as seen from one of them; ``medusa.connect`` makes it.

    Any thread may call. A node that is killed and comes back loses and repeats nothing of what is
    published or read here. Leaving a ``with`` block waits until all that was published is durable,
    then closes.
    """

    def __init__(
        self,
        given: Sequence[GivenNode],
        timeout_us: int,
        begun: Callable[[ClientLoop], None] = lambda loop: None,
    ) -> None:
        self._publishers: dict[str, Publisher] = {}
        self._named: set[NamedPublisher] = set()
        self._undelivered: list[str] = []
        self._beginning = threading.Lock()
        self._loop = loop = first_to_answer(given, timeout_us, begun)
        try:
            others = [each for each in given if each.address != loop.address]
            self._following = FollowedNames(loop, loop.keys, others, self._goes_by)
        except BaseException:  # Interrupted now, nobody else would close it.
            loop.close()
            raise

    def _pin(self) -> None:
        """Keep the key of our node where it was asked for it, since it is spoken with under that key.

        Raises:
            LinkError: it can't be written.
        """
        keys = self._loop.keys
        if keys is not None and keys.pins is not None and keys.is_new:
            pin(keys.pins, self._loop.address, keys.server)

    def _goes_by(self, loop: ClientLoop) -> None:
        """Orders go by this connection from now on."""
        self._loop = loop

    @property
    def node(self) -> str:
        """The name of the node that we are connected to; where several were given, another after a loss."""
        return self._following.home.node

    # --- queries ----------------------------------------------------------------------------------

    def deploy(
        self,
        q: Query,
        at: Mapping[str, Sequence[str]] | Balance | None = None,
        *,
        standby: Standby | None = None,
        witness: Sequence[str] = (),
        checkpoint_every: CheckpointEvery | None = None,
    ) -> dict[str, Any] | None:
        """Run a query on nodes: all of them take their part, or none does.

        A source with ``of=`` begins with the first row that its stream puts out from now on; the stream may
        be elsewhere than it was when ``stream`` was called, but has to have the same columns.

        Args:
            q: the query.
            at: node -> ids of the boxes and sources that stand there; boxes left out stand where
                their input is; or ``md.balance(...)``: by load, as ``plan`` says. None: everything at
                this node.
            standby: who stands by for what, so that rows go on when a machine is lost for good
                (docs/standby.md): node, box or fragment (``query/box``) -> nodes, in the order in which they
                succeed, or ``"auto"``; ``"*"`` stands for all that no other key names. ``"auto"`` alone:
                the asked node chooses one for each. A sink with ``recovery=`` needs it.
            witness: nodes that run nothing of it and vote on who takes over.
            checkpoint_every: between two checkpoints of a fragment, 50 ms to 10 min: node, box, fragment or
                ``"*"``, as in ``standby``, -> a duration; or one for all (docs/checkpoints.md). What it
                leaves out has the ``checkpoint_every`` of its node.

        Returns:
            None; where somebody stands by, or a fragment has an interval of its own: ``standby``
            (fragment -> nodes), ``witnesses``, ``voters``, ``warnings`` and ``checkpoint_every``
            ((fragment, node, us) each).

        Raises:
            LinkError: a node refused or didn't answer; nothing is deployed.
            QueryError: the query, ``at``, ``standby`` or ``checkpoint_every`` doesn't hold.
        """
        from medusa.query.builder import Query

        if not isinstance(q, Query):
            raise QueryError(f"deploy takes a md.Query, came {type(q).__name__}", code="query.kind")
        if isinstance(at, Balance):
            at = expected(q.graph, at, self.status()).at
        if at is not None and not isinstance(at, Mapping):
            raise QueryError(
                f"deploy: at is {type(at).__name__} {at!r:.60}, expected node -> list of box names",
                hint='at={"edge-1": ["cars"]}; left out, all stands at this node',
                code="query.placement",
            )
        graph = q.graph
        where = at if at is not None else {self.node: [box.id for box in graph.boxes]}
        cut(graph, where)  # What can be refused without asking is refused here, in the same words.
        wish, intervals = standby_wish(standby, witness), interval_wish(checkpoint_every)
        planned = None
        if wish != StandbyWish() or intervals:  # It is deployed as it was chosen, whatever changes meanwhile.
            planned = self._planned_standby(graph, where, wish, intervals)
            wish = StandbyWish(standby=tuple(planned.standby.items()), witnesses=planned.witnesses)
        content = graph_to_msgpack(graph)
        moved: tuple[str, ...] = ()
        for rest_s in (*PAUSES_S, None):
            deploy = deployment(where, self._reads(graph), wish, intervals)
            try:
                self._ask(partial(_numbered, deploy), content, spread=True)
            except LinkError as error:
                # What it reads has just moved: it is looked for anew, once all that was begun is undone.
                if rest_s is None or not deploy.reads or error.code not in ("E_MOVED", *moved):
                    raise
                moved = ("E_DEPLOYED",)
                time.sleep(rest_s)
            else:
                break
        return None if planned is None else msgspec.to_builtins(planned)

    def _planned_standby(
        self, graph: Graph, at: Mapping[str, Sequence[str]], wish: StandbyWish, intervals: IntervalWish
    ) -> PlannedStandby:
        dry = deployment(at, self._reads(graph), wish, intervals, dry=True)
        planned = _PLANNED(self._ask(partial(_numbered, dry), graph_to_msgpack(graph)))
        if intervals and not planned.checkpoint_every:
            raise LinkError(
                f"the release of node {self.node!r} doesn't know checkpoint_every",
                hint="update it, or leave checkpoint_every out",
                code="E_VERSION",
            )
        return planned

    def status(self) -> dict[str, Any]:
        """What the node runs and how it goes: docs/nodes.md describes each field.

        Raises:
            LinkError: no answer in time.
        """
        while True:
            home = self._following.home
            try:
                return dict(
                    ask(
                        home,
                        lambda number: StatusRequest(request=number),
                        lost=lambda home=home: home is not self._following.home,  # type: ignore[misc]
                    )
                )
            except LinkError as error:
                if error.code != "link.lost":
                    raise

    def declare(self, statement: str) -> None:
        """Tell the node what a participant has signed: a certificate or a revocation.

        Args:
            statement: the text of the file that ``medusa keygen certificate`` or ``revocation`` wrote.

        Raises:
            LinkError: no statement, or one that doesn't count there: forged, meant for others, expired, or
                said before (``E_IDENTITY``, ``E_AUDIENCE``, ``E_EXPIRED``, ``E_REPLAY``).
        """
        data = from_text(statement)
        self._ask(lambda number: Declare(request=number, statement=data))

    def _ask(
        self, make: Callable[[int], Message], payload: bytes | None = None, *, spread: bool = False
    ) -> Any:
        """Send a command to our node and wait for its answer."""
        return ask(self._following.home, make, payload, timeout_us=self._spread_us() if spread else None)

    # --- publishing ---------------------------------------------------------------------------------

    def publish(self, name: str, data: Any) -> None:
        """Give rows to a source of a deployed query, ``query.source``, or to a stream defined by name.

        Any node of the participant may have it, and it may move: the rows go after it. Returns when they
        are numbered and kept here: they are sent, kept until the node holds them durably, and resent
        when it comes back. ``flush`` waits for that.

        Args:
            name: it may begin with the own participant and a slash.
            data: as for ``Run.push``: anything with the Arrow PyCapsule interface, or a dict of
                columns.

        Raises:
            LinkError: there is no such source, or its node has refused it.
            DataError: the rows don't fit; none was taken.
            FullError: the node has not taken earlier rows for the whole timeout; none was taken.
        """
        self._publisher(name).publish(data)

    def source(self, name: str) -> dict[str, Any]:
        """What a source takes, or a stream defined by name: ``columns`` (name -> type), ``time`` (which of
        them is the time; None: none), ``unit`` and ``slack_us``.

        Raises:
            LinkError: there is no such source.
        """
        source = self._source_at(name)[0]
        columns = {field.name: field.type for field in source.schema}
        return {"columns": columns, "time": source.time, "unit": source.unit, "slack_us": source.slack_us}

    def boundary(self, name: str, time: Any) -> None:
        """Promise that no later row of this client has a time below ``time``.

        Raises:
            LinkError: as ``publish``.
            DataError: no time, or below an earlier promise.
        """
        self._publisher(name).promise(boundary_time_us(time, name))

    def finish(self, name: str) -> None:
        """End what this client publishes into a source: windows close when all have ended it."""
        self._publisher(name).promise(END_US)

    def _publisher(self, name: str) -> Publisher:
        with self._beginning:
            why = self._drop_if_gone(name)
            if name not in self._publishers:
                try:
                    self._publishers[name] = self._begun(name)
                except LinkError as error:
                    # Nothing came in its place: then why it went says more.
                    raise (why if why is not None and error.code in GONE else error) from None
            return self._publishers[name]

    def _source_at(self, name: str) -> tuple[Source, Mapping[str, Any] | None]:
        """A source, and where it is; None: at our node, as that says."""
        place = self._following.place(name, "source")
        if place is not None:
            return described(place["name"], place), place
        try:
            return source_from(name, self.status()), None
        except LinkError as error:
            raise self._following.hinted(error, name, "source") from None

    def _begun(self, name: str, durable: str = "") -> Publisher:
        """Publishing, wherever its source is."""
        source, place = self._source_at(name)
        if place is None:
            try:
                return Publisher(self._following.home, source, durable)
            except LinkError as error:
                raise self._following.hinted(error, name, "source") from None
        for each in self._publishers.values():
            if each.name == place["name"]:
                return each  # Known by another of its names.
        loop, there = self._following.reach(place, "source")
        return Publisher(loop, source, durable, lambda made: self._following.add(made, there["epoch"]))

    def _drop_if_gone(self, name: str) -> LinkError | None:
        """Forget a publisher that the node has forgotten, for why; ``flush`` tells of its rows."""
        publisher = self._publishers.get(name)
        why = publisher.gone if publisher is not None else None
        if publisher is not None and why is not None:
            del self._publishers[name]
            if rows := publisher.abandon():
                self._undelivered.append(f"{rows:,} rows for {name!r} were not durable when {why.message}")
        return why

    def _publishers_left(self) -> dict[str, Publisher]:
        with self._beginning:
            for name in list(self._publishers):
                self._drop_if_gone(name)
            return dict(self._publishers)

    def flush(self, timeout: Duration = "30s") -> None:
        """Wait until everything published, and every boundary, is durable at the node.

        Raises:
            LinkError: not in time, or the node has refused it. Where a query was removed while rows
                for it were under way, how many; said once.
            DataError: the node could not take rows that it received; said once.
        """
        timeout_us = duration_us(timeout, what="flush: timeout", minimum_us=1, error=LinkError)
        end_us = now_us() + timeout_us
        publishers = self._publishers_left()
        for publisher in publishers.values():
            try:
                publisher.await_durable(max(end_us - now_us(), 1))
            except LinkError as error:
                if error.code not in GONE:
                    raise
        await_boundaries(publishers, end_us, timeout_us)
        self._publishers_left()
        told, self._undelivered = self._undelivered, []
        if told:
            raise LinkError(
                "; ".join(told), hint="publish them again where they are wanted", code="E_REMOVED"
            )
        for publisher in publishers.values():
            publisher.check_taken()
        for each in self._open_names():
            each.flush(max(end_us - now_us(), 1))

    # --- reading --------------------------------------------------------------------------------------

    def subscribe(
        self,
        name: str,
        from_: str | int = "now",
        *,
        durable: str | None = None,
        known: bool = False,
        timeout: Duration | None = None,
    ) -> Subscription:
        """Read a stream: ``query.sink``, any stream between fragments, or one defined by name.

        Any node of the participant may have it, and it may move: reading goes on at the same row. A stream
        that another participant publishes is read at its nodes, which have to know this client.

        Args:
            name: it may begin with a participant and a slash: the own one, or another one whose streams the
                node finds in the catalog between participants.
            from_: ``now``, ``oldest`` (as far as it is kept), or the number of a row.
            durable: a name, 1 to 64 characters of a-z, 0-9, _ and -: the node keeps the rows until they
                are acknowledged (``Subscription.ack``), whether or not anybody reads, within the
                retention of the stream. One program at a time reads under a name; with keys it belongs
                to the key. ``now`` and ``oldest`` count the first time; later reading goes on at the
                first row that was not acknowledged. A number says where this program stands: the rows
                below it are acknowledged.
            known: only go on under a name that the node knows: a stream that was removed and defined anew,
                whose rows are others under the same numbers, is refused (``E_NAME``).
            timeout: how long iterating waits for the next train; None: as long as it takes.

        Raises:
            LinkError: there is no such stream, or this client reads it already; the name is being
                read by another program (``E_TAKEN``); rows from this number on were acknowledged before
                (``E_SEQ``); there are too many names (``E_LIMIT``).
        """
        if durable is not None:
            check_name(durable)
        starts = {"now": NOW, "oldest": OLDEST}
        start = starts.get(from_) if isinstance(from_, str) else from_
        if isinstance(start, bool) or not isinstance(start, int) or (start < 0 and from_ not in starts):
            raise LinkError(
                f"subscribe: from_ is {from_!r}",
                hint='"now", "oldest" or the number of a row',
                code="link.argument",
            )
        wait_us = None
        if timeout is not None:
            wait_us = duration_us(timeout, what="subscribe: timeout", minimum_us=1, error=LinkError)
        place = self._following.place(name, "stream")
        if place is None:
            try:
                return Subscription(self._following.home, name, start, wait_us, durable, known)
            except LinkError as error:
                raise self._following.hinted(error, name, "stream") from None
        loop, there = self._following.reach(place, "stream")
        return Subscription(
            loop,
            there["name"],
            start,
            wait_us,
            durable,
            known,
            there.get("participant", ""),
            lambda made: self._following.add(made, there["epoch"]),
        )

    # --- the end --------------------------------------------------------------------------------------

    def close(self) -> None:
        """Close at once; what is not yet durable may be lost. Named publishers end too."""
        for each in self._open_names():
            each.close()
        home = self._following.home
        self._following.close()
        home.close()
        self._following.join()
        home = self._following.home  # It may have become another one meanwhile.
        home.close()

    def __enter__(self) -> Federation:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None and not self._loop.closed:
                self.flush()
        finally:
            self.close()

    def __repr__(self) -> str:
        return f"<medusa.Federation at {self.node or '?'}, {self._following.home.address}>"


def _numbered(message: Deploy | DeployGuarded, number: int) -> Deploy | DeployGuarded:
    return msgspec.structs.replace(message, request=number)
