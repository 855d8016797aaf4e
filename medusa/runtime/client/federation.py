"""The nodes of a federation, as a client of one of them sees them: what can be asked and ordered. Each method
asks the part of the client that does it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

from medusa.errors import LinkError
from medusa.query.published_stream import PublishedStream
from medusa.runtime.client.client_loop import now_us
from medusa.runtime.client.deploying import Deploying
from medusa.runtime.client.deployment_wishes import CheckpointEvery, Standby
from medusa.runtime.client.followed_names import FollowedNames
from medusa.runtime.client.home_node import HomeNode
from medusa.runtime.client.moves import Moves
from medusa.runtime.client.named_publisher import DurableNames, NamedPublisher
from medusa.runtime.client.names import Names
from medusa.runtime.client.placement import Balance, Expected
from medusa.runtime.client.publishing import Publishing
from medusa.runtime.client.remote_definitions import RemoteOrders
from medusa.runtime.client.splits import Splits
from medusa.runtime.client.statuses import Statuses
from medusa.runtime.client.subscription import Reading, Subscription
from medusa.units import Duration, duration_us

if TYPE_CHECKING:
    import pyarrow as pa

    from medusa.query.builder import Query

__all__ = ["Federation"]


class Federation:
    """The nodes of a federation, as seen from one of them; ``medusa.connect`` makes it.

    Any thread may call. A node that is killed and comes back loses and repeats nothing of what is
    published or read here. Leaving a ``with`` block waits until all that was published is durable,
    then closes.
    """

    def __init__(self, following: FollowedNames) -> None:
        """``following``: its connections, which it closes."""
        self._following = following
        self._home = HomeNode(following)
        self._names = Names(following, self._home)
        self._statuses = Statuses(following, self._home, self._names)
        self._deploying = Deploying(self._home, self._names)
        self._remote = RemoteOrders(self._home)
        self._moves = Moves(following)
        self._splits = Splits(following, self._moves)
        self._publishing = Publishing(following, self._home)
        self._durable = DurableNames(following)
        self._reading = Reading(following)

    # --- the nodes ------------------------------------------------------------------------------------

    @property
    def node(self) -> str:
        """The name of the node that we are connected to; where several were given, another after a loss."""
        return self._home.name

    def nodes(self) -> list[dict[str, Any]]:
        """The nodes of the participant, by name: ``node``, ``address`` (empty: nobody knows) and
        ``server_key`` (empty: it has no keys).

        Raises:
            LinkError: no answer in time.
        """
        return self._names.nodes()

    def status(self) -> dict[str, Any]:
        """What the node runs and how it goes: docs/nodes.md describes each field.

        Raises:
            LinkError: no answer in time.
        """
        return self._home.status()

    def statuses(self, *, all: bool = False, silent: bool = True) -> list[dict[str, Any]]:
        """Of this node; with ``all`` of every node of its participant that answers, this one first.

        Args:
            silent: nodes that this one doesn't hear are asked too. Each that doesn't answer us either takes a
                second.

        Raises:
            LinkError: this node doesn't answer in time.
        """
        return self._statuses.statuses(all=all, silent=silent)

    def tables(self, *, all: bool = False) -> dict[str, pa.Table]:
        """How it goes, as Arrow tables: ``nodes``, ``fragments``, ``inputs`` (one row per source of a
        fragment: the rows that were lost), ``boxes``, ``streams`` (one row per stream and reader),
        ``replicas`` (one row per fragment and node that stands by for it) and ``links`` (one row per node and
        peer). docs/brain.md describes each column.

        Args:
            all: of every node that answers, not of this one alone.

        Raises:
            LinkError: no answer in time, or this client sees no boxes.
        """
        return self._statuses.tables(all=all)

    def explain(self, query: str | None = None, *, all: bool = False) -> list[dict[str, Any]]:
        """What each box waits for, and who holds it back: ``run.explain()`` as data.

        Args:
            query: only boxes of this query; None: of all.
            all: at every node of the participant, not at this one alone. Of one that doesn't answer the
                catalog knows the boxes; they wait for their node, and nothing more is known of them.

        Returns:
            one dict per box, by query, fragment and place in it: ``query``, ``fragment``, ``node``,
            ``box``, ``kind`` (empty: its node doesn't answer, or the fragment has ended, is in doubt, or runs
            at another participant: it is one dict without a ``box``); ``waits_for`` (text for people) and
            ``held_by`` (the input with the lowest boundary, empty where none holds it); ``since_us`` (for how
            long its boundary stands where it stands, to a quarter of a second; None: unknown, or it has
            ended), ``boundary_us`` (None before anything and after the end) and ``lag_us`` (how far that is
            behind the newest row; None: unknown); ``standby`` where nodes stand by for its fragment, as far
            as these statuses say: those nodes, each with ``seeding``, ``following`` or ``missing``;
            ``undecided`` where one of these nodes waits for votes on the next configuration of its query:
            whose, and why they haven't come; ``streams`` of a box by which streams with ``delay`` leave: of
            each its ``stream``, its state, what is missing and how much is to be corrected; ``scaling`` where
            one of these nodes sees to the parts of its query by itself: what it did last, and why, in words.

        Raises:
            LinkError: no answer in time, this client sees no boxes, or no such query is there.
        """
        return self._statuses.explain(query, all=all)

    def scale_plan(self, query: str) -> list[dict[str, Any]]:
        """In how many parts each box of a query should run by what it does now. Nothing is changed:
        ``split`` and ``merge`` do that. docs/scaling.md says how it is reckoned.

        Args:
            query: its name; of all nodes of the participant that answer.

        Returns:
            one dict per box, the one with most to do first: ``box`` (``query/box``), ``parts`` in which it
            runs now, ``work`` (threads that it would keep busy if all that comes got through; None: nothing
            has come of late, or through a box before it), ``wanted`` parts and ``why``. Whether a box can be
            split at all ``split`` says. ``scaling``: whether a node sees to the parts of the query by itself
            (``[scale]``), and what it did last, in words.

        Raises:
            LinkError: no answer in time, this client sees no boxes, or no such query is there
                (``E_FRAGMENT``).
        """
        return self._statuses.scale_plan(query)

    def declare(self, statement: str) -> None:
        """Tell the node what a participant has signed: a certificate or a revocation.

        Args:
            statement: the text of the file that ``medusa keygen certificate`` or ``revocation`` wrote.

        Raises:
            LinkError: no statement, or one that doesn't count there: forged, meant for others, expired, or
                said before (``E_IDENTITY``, ``E_AUDIENCE``, ``E_EXPIRED``, ``E_REPLAY``).
        """
        self._home.declare(statement)

    # --- names ----------------------------------------------------------------------------------------

    def find(self, name: str, kind: str = "") -> dict[str, Any]:
        """Where something is, whatever node this client is connected to.

        Args:
            name: of a stream, source, query, fragment, node, definition or box (``query/box``); it may begin
                with the own participant and a slash.
            kind: which of these is meant; left out, the first of definition, stream, source, query,
                fragment, node, box that bears the name.

        Returns:
            ``kind``, ``name``, ``node``, its ``address`` and ``server_key``, ``epoch``, what is known of such
            a thing (columns of a stream, state of a query); in ``holders`` all nodes that have it, our own
            before others as ``node``; in ``versions`` one such description for each version of a stream
            that has replicas. Of a box the ``fragment`` that has it, or its router; in ``parts`` of one that
            is split the fragment of each part -> its node, also where a fragment bears the name. A box at a
            node of another ``participant`` is where it was put when its query was deployed.

        Raises:
            LinkError: nothing is called so (``E_STREAM``), with the nearest name.
        """
        return self._names.find(name, kind)

    def stream(self, name: str) -> PublishedStream:
        """A stream that a query is to read: ``q.source("cars", of=fed.stream("bob/cars"))``.

        Args:
            name: of a stream defined by name, or of a query's sink (``query.sink``); it may begin with a
                participant and a slash: the own one, or another one whose streams the node finds in the
                catalog between participants.

        Returns:
            What the catalog says of it now: plain data, which holds no connection. ``deploy`` looks where
            it is then, and refuses it if its columns are others by then.

        Raises:
            LinkError: no stream is called so, with the nearest name (``E_STREAM``).
        """
        return self._names.stream(name)

    def queries(self) -> list[dict[str, Any]]:
        """The queries of the participant, by name: ``name``, ``state``, ``node`` that coordinates it,
        ``nodes``, ``fragments`` with the nodes of each; ``reads``: the streams of other queries that it
        reads, by their full names; ``stopped``: parts that the owners of other nodes have ended there
        (``revoke(..., stop=True)``) -> those nodes; ``abroad``: of each fragment that was put at a node of
        another participant its name, that node, the participant and the boxes. Who stands by for fragments
        of it, and by which configuration, ``tables(all=True)["replicas"]`` says.

        Raises:
            LinkError: no answer in time.
        """
        return self._names.queries()

    def guests(self) -> list[dict[str, Any]]:
        """Parts of other participants' queries that run at nodes of our own, as far as this client may deploy
        queries of those names: ``name`` (participant/query), ``participant``, ``fragment`` and ``node``.

        Raises:
            LinkError: no answer in time.
        """
        return self._names.guests()

    def placed(self) -> list[dict[str, Any]]:
        """Fragments of the participant as its catalog has them: ``name``, ``query``, ``node``, ``boxes``.

        Raises:
            LinkError: no answer in time.
        """
        return self._names.placed()

    def definitions(self) -> list[dict[str, Any]]:
        """The streams defined by name: ``name``, ``version``, ``columns`` (name and type of each), ``time``,
        ``unit``, ``slack_us``, and the ``node`` where the stream of each is now.

        Raises:
            LinkError: no answer in time.
        """
        return self._names.definitions()

    def define(
        self,
        name: str,
        schema: pa.Schema | Mapping[str, str],
        *,
        time: str | None = "ts",
        unit: str | None = None,
        slack: Duration | None = None,
    ) -> int:
        """Define a stream: what is published under its name can be read under it.

        It stands at the node that this client is connected to. Defined again as it is, nothing happens;
        changed, it is a new version, which begins with no rows.

        Args:
            name: a word, as queries have; it may begin with the own participant and a slash.
            schema, time, unit, slack: as for ``Query.source``.

        Returns:
            The version of the definition, from 1 on.

        Raises:
            LinkError: the name is that of a query, or is defined elsewhere (``E_DEFINED``); it changes
                while somebody reads the stream (``E_READ``), or while it is at another node than where it was
                defined (``E_DEFINED``).
            QueryError: no such schema, time or slack.
        """
        return self._names.define(name, schema, time=time, unit=unit, slack=slack)

    def undefine(self, name: str) -> None:
        """Forget a definition and the rows that are kept of the stream.

        Raises:
            LinkError: no stream is defined so (``E_STREAM``), or a node didn't answer.
        """
        self._names.undefine(name)

    # --- queries --------------------------------------------------------------------------------------

    def plan(
        self,
        q: Query,
        at: Mapping[str, Sequence[str]] | Balance | None = None,
        *,
        standby: Standby | None = None,
        witness: Sequence[str] = (),
        checkpoint_every: CheckpointEvery | None = None,
    ) -> Expected:
        """What ``deploy`` would put where, and the loads that are expected of it; nothing is deployed.

        Args:
            at, standby, witness, checkpoint_every: as for ``deploy``.

        Raises:
            LinkError: the node didn't answer, or would refuse it.
            QueryError: the query, ``at``, ``standby`` or ``checkpoint_every`` doesn't hold.
        """
        return self._deploying.plan(
            q, at, standby=standby, witness=witness, checkpoint_every=checkpoint_every
        )

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
        return self._deploying.deploy(
            q, at, standby=standby, witness=witness, checkpoint_every=checkpoint_every
        )

    def undeploy(self, name: str) -> None:
        """Stop a query on all its nodes and forget its state; any node will do.

        Raises:
            LinkError: no such query, or a node didn't answer; the one that coordinates it is away
                (``E_TIMEOUT``), and nothing has changed.
        """
        self._names.undeploy(name)

    def define_remote(
        self,
        name: str,
        q: Query,
        at: Mapping[str, Sequence[str]],
        node: str,
        *,
        expires: Duration | None = None,
    ) -> None:
        """Let another node keep its part of a query, ready to be run by name: docs/remote.md.

        From then on ``deploy`` of that part at that node sends the name and the inputs, not the spec. At a
        node of another participant that is the only way, within what it offers.

        Args:
            name: of the definition, at this node.
            at: the placement, as for ``deploy``; other inputs and readers may be elsewhere later.
            node: who shall keep its part; that must be one connected part.
            expires: it counts for so long from now, as if it were revoked then; None: until it is revoked.
                Defined again as it is, it counts from now.

        Raises:
            LinkError: the node doesn't offer that (``E_OFFER``), keeps too many (``E_LIMIT``), keeps another
                under that name (``E_DEFINED``), or didn't answer. Nothing changed.
            QueryError: the query or ``at`` doesn't hold.
        """
        lifetime_us = 0
        if expires is not None:
            lifetime_us = duration_us(expires, what="define_remote: expires", minimum_us=1)
        self._remote.define(name, q, at, node, lifetime_us=lifetime_us)

    def revoke(self, name: str, *, stop: bool = False) -> None:
        """Nobody shall run this remote definition any more; what runs goes on until it is undeployed.

        Args:
            name: as it was defined at this node; or ``participant/name`` of one that this node keeps.
            stop: at the node that keeps it: what runs here by it ends now, as if its query were undeployed
                here, also where the definition was revoked before. Who had it begun is told. Where nothing
                is defined under the name, ``participant/query`` means all parts of that query at this node.

        Raises:
            LinkError: no such definition, and nothing to stop (``E_NO_DEFINITION``); or the node that keeps
                it didn't answer: this node uses it no more, ask again there; or ``stop`` is asked of the
                node that had it kept (``E_QUERY``): nothing changed.
        """
        self._remote.revoke(name, stop=stop)

    def remote_definitions(self) -> dict[str, Any]:
        """Of this node: ``defined`` (kept elsewhere, by name), ``kept`` (for others, full name), ``offers``,
        ``stopped`` (parts of others that were ended here).

        Raises:
            LinkError: no answer in time.
        """
        return self._remote.definitions()

    # --- what runs, elsewhere or in parts -------------------------------------------------------------

    def move(self, fragment: str, to: str, timeout: Duration = "60s") -> dict[str, Any]:
        """Move a fragment to another node while it runs; returns when that has taken it.

        Nothing is lost and nothing comes twice: readers and publishers go on with the new node by
        themselves. Whatever dies meanwhile, the fragment is at one node in the end; ordered again, the same
        move is done only once. docs/moving.md tells how. What others stand by for goes to a node that
        has followed it until it has its state: docs/standby.md.

        Args:
            fragment: its name, ``query/first-box``, as ``status`` shows it; at any node of the participant.
            to: the node that shall have it.
            timeout: how long attempts that break are begun anew.

        Returns:
            ``node``, ``bytes`` that were sent, ``pause_us`` in which nothing of it was fed, ``attempts``.

        Raises:
            LinkError: it can't be moved there, and is where it was: no such fragment (``E_FRAGMENT``), no
                such peer (``E_PEER``), a node without a disk (``E_STORE``), it or a neighbour is just being
                moved (``E_BUSY``), others stand by for it and that one can't (``E_STANDBY``), no attempt
                got through in time (``E_TIMEOUT``, ``E_BROKEN``). Without an
                answer in time (``E_TIMEOUT``) it may still be on its way: ask again.
        """
        return self._moves.move(fragment, to, timeout)

    def grant(self, fragment: str, to: str) -> None:
        """Say that the node that may have taken a fragment is lost for good, so that ``to`` goes on with it.

        Needed where a node handed a fragment over and the target never came back to say whether it took it:
        then the fragment waits, since two owners would be worse. **If the target comes back after all, and
        had taken it, both run it**: only who knows that it never will may say this.

        Args:
            to: the node that handed it over.

        Raises:
            LinkError: that fragment waits for nobody there (``E_GRANT``), or its node is away, with the time
                since it was seen (``E_TIMEOUT``).
        """
        self._moves.grant(fragment, to)

    def split(
        self,
        box: str,
        n: int,
        at: Sequence[str] | None = None,
        timeout: Duration = "60s",
        *,
        ranges: str | Sequence[int] = "even",
    ) -> dict[str, Any]:
        """Run a box of a deployed query as ``n`` parts, each over a range of its keys, while rows flow.

        The answer of the query stays what it was, row for row. First the box is split where it is: in one
        step on one disk, so that whatever dies it is either split or not. Then each part is moved to the node
        that ``at`` names for it. Ordered again, what is done isn't done twice. docs/splitting.md tells how.
        Nodes that stand by for the box stand by for each part once that is seeded; until then nobody does.

        Args:
            box: its name, ``query/box``.
            n: how many parts, from 2.
            at: nodes, for the first part, the second ...; after the last one from the first again. None: the
                parts stay where the box is.
            timeout: how long attempts to move that break are begun anew, for each part.
            ranges: ``"even"``; ``"weight"``: such that the rows of the keys that the box holds now are shared
                evenly; or where ranges of ``hash_partition`` of the key end, ascending, n - 1 of them.

        Returns:
            ``parts``: name of the fragment of each part -> its node, in order of the ranges; ``node`` where
            router and merge are; ``bytes`` the moves of parts sent; ``pause_us`` in which nothing was fed
            (0: it was split already); ``ranges``: where they end, but the last (none without a key);
            ``shares``: of the rows that the box held, each part's, from 0 to 1 (none if it held no keys, or
            was split already).

        Raises:
            QueryError: the box can't be split (``query.rewrite.split``, with the reason), or isn't there; it
            holds no
                keys to weigh by; ``ranges`` are none.
            LinkError: it is just being moved or split (``E_BUSY``), its node has no disk (``E_STORE``) or no
                room (``E_MEMORY``), ``at`` names no node (``E_PEER``): nothing changed. A part can't be
                moved: the message names it; it and those after it run where the box was.
        """
        return self._splits.split(box, n, at, timeout, ranges=ranges)

    def merge(self, box: str, timeout: Duration = "60s") -> dict[str, Any]:
        """Run a box that was split as one again, while rows flow.

        Its parts, and what has its merge, are moved to the node that has its router; there they become one
        fragment in one step.

        Args:
            box: its name, ``query/box``.
            timeout: as for ``split``.

        Returns:
            ``fragment`` that has the box now, ``node``, ``pause_us`` in which nothing was fed, ``bytes``
            that were sent to bring its parts there.

        Raises:
            QueryError: it isn't split, or just now can't be merged (``query.rewrite.split``, with the
            reason).
            LinkError: as for ``split``; a part can't be moved.
        """
        return self._splits.merge(box, timeout)

    # --- publishing -----------------------------------------------------------------------------------

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
        self._publishing.publish(name, data)

    def source(self, name: str) -> dict[str, Any]:
        """What a source takes, or a stream defined by name: ``columns`` (name -> type), ``time`` (which of
        them is the time; None: none), ``unit`` and ``slack_us``.

        Raises:
            LinkError: there is no such source.
        """
        return self._publishing.source(name)

    def left_out_rows(self, name: str) -> int:
        """So many of the rows that this client has published into a source its node has left out under
        overload, as it said last: only where all outputs that miss them have ``qos=`` (docs/shedding.md). 0
        where nothing was published.

        Raises:
            LinkError: the connection was closed.
        """
        return self._publishing.left_out_rows(name)

    def boundary(self, name: str, time: Any) -> None:
        """Promise that no later row of this client has a time below ``time``.

        Raises:
            LinkError: as ``publish``.
            DataError: no time, or below an earlier promise.
        """
        self._publishing.boundary(name, time)

    def finish(self, name: str) -> None:
        """End what this client publishes into a source: windows close when all have ended it."""
        self._publishing.finish(name)

    def flush(self, timeout: Duration = "30s") -> None:
        """Wait until everything published, and every boundary, is durable at the node.

        A query that is recovered by upstream backup keeps rows with their sender until no window needs
        them and whoever reads a sink holds what came of them; where nobody reads a sink, for who may yet
        come, as long as senders have room. So promise or end the source before, and read the sinks
        meanwhile, in another thread or program: this waits for that.

        Raises:
            LinkError: not in time (``link.timeout``; its hint names sinks that aren't read, where rows wait
                for that), or the node has refused it. Where a query was removed while rows for it were
                under way, how many; said once.
            DataError: the node could not take rows that it received; said once.
        """
        end_us = now_us() + duration_us(timeout, what="flush: timeout", minimum_us=1, error=LinkError)
        try:
            self._publishing.flush(timeout)
            self._durable.flush(end_us)
        except LinkError as error:
            if error.code != "link.timeout":
                raise
            raise self._statuses.held_up(error, self._publishing.queries | self._durable.queries) from None

    def publisher(self, name: str, *, durable: str) -> NamedPublisher:
        """Publish under a name, so that whoever opens it again goes on where it was.

        The node remembers how many rows of the name it has, with the state that came of them, whatever
        dies: a program that keeps a record of its rows, and publishes from ``next_row`` on, has each in
        the answer once. Rows have to be the same under the same number.

        Args:
            name: as for ``publish``.
            durable: 1 to 64 characters of a-z, 0-9, _, - and slashes between. With keys it belongs to
                the key. Who opens a name last has it: an earlier program is refused (``E_TAKEN``).

        Returns:
            it has a connection of its own, which ends with this one.

        Raises:
            LinkError: there is no such source, or its node keeps nothing (``E_STORE``); the name was
                finished (``E_FINISHED``); there are too many (``E_LIMIT``); or all that came before
                wasn't durable in time.
        """
        return self._durable.publisher(name, durable=durable)

    def unpublish(self, name: str, *, durable: str, owner: str | None = None) -> None:
        """End a named publisher for good: its rows stay, their number is forgotten.

        Whoever publishes under it hears so (``E_REMOVED``). Opened again it counts from 0.

        Args:
            name: of the source.
            durable: the name of the publisher, of this client or of an earlier one with its key.
            owner: whose it is, as status shows it, where it is of another key: takes the role ``deploy``
                for the query.

        Raises:
            LinkError: there is none of this name (``E_NAME``), or it is another's and not this client's to
                end (``E_ROLE``).
        """
        self._durable.unpublish(name, durable=durable, owner=owner)

    # --- reading --------------------------------------------------------------------------------------

    def subscribe(
        self,
        name: str,
        from_: str | int = "now",
        *,
        durable: str | None = None,
        known: bool = False,
        timeout: Duration | None = None,
        tentative: bool = False,
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
            tentative: of a query with ``delay``, also the rows that it gives while an input is missing
                (docs/dpc.md): trains of kind ``TENTATIVE``, ``Subscription.state``, and corrections as
                stable rows. Not with ``durable``. Of a stream that leads to no output with ``delay``
                nothing is ever tentative, and the state stays ``stable``, whatever is missing.

        Raises:
            LinkError: there is no such stream, or this client reads it already; the name is being
                read by another program (``E_TAKEN``); rows from this number on were acknowledged before
                (``E_SEQ``); there are too many names (``E_LIMIT``).
        """
        return self._reading.subscribe(
            name, from_, durable=durable, known=known, timeout=timeout, tentative=tentative
        )

    def unsubscribe(self, name: str, *, durable: str, owner: str | None = None) -> None:
        """End a named subscription for good: the node keeps nothing for it any more.

        Args:
            name: of the stream.
            durable: the name of the subscription, of this client or of an earlier one with its key.
            owner: whose it is, as status shows it, where it is of another key: takes the role ``deploy``
                for the query, and ends it also while it is read.

        Raises:
            LinkError: there is none of this name (``E_NAME``), or another program reads it (``E_TAKEN``),
                or it is another's and not this client's to end (``E_ROLE``).
        """
        self._durable.unsubscribe(name, durable=durable, owner=owner)

    # --- the end --------------------------------------------------------------------------------------

    @property
    def closed(self) -> bool:
        """``close`` was called."""
        return self._following.closed

    def close(self) -> None:
        """Close at once; what is not yet durable may be lost. Named publishers end too."""
        self._durable.close()
        self._following.end()

    def __enter__(self) -> Federation:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None and not self.closed:
                self.flush()
        finally:
            self.close()

    def __repr__(self) -> str:
        return f"<medusa.Federation at {self.node or '?'}, {self._following.home.address}>"
