"""The fragments of a node: installed and removed, each time whole, and within bounds."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import msgspec

from medusa.errors import LinkError, QueryError
from medusa.nodes.catalog.catalog import Catalog
from medusa.nodes.catalog.persistence import CatalogWriter
from medusa.nodes.config.settings import Settings
from medusa.nodes.deploy.admission import Admission
from medusa.nodes.deploy.background_parsing import BackgroundParsing
from medusa.nodes.deploy.cross_query_reads import CrossQueryReads, PendingInstall
from medusa.nodes.deploy.install_checks import check_place
from medusa.nodes.deploy.stale_requests import StaleRequests
from medusa.nodes.deploy.wording import CONTENDED, there_already
from medusa.nodes.diskless.sealed_cuts import CutSealer
from medusa.nodes.fragment.host import FragmentHost
from medusa.nodes.load.loads import NodeLoads
from medusa.nodes.message_table import Heard
from medusa.nodes.remote.stopping import StoppedParts
from medusa.nodes.security.registry import Caller
from medusa.nodes.security.sessions import check_memory, refusal_of
from medusa.nodes.spec.fragment_spec import FragmentSpec
from medusa.wire.messages.commands import Install, Remove, Reply
from medusa.wire.outbox import CloseFragment, OpenFragment, Outbox

__all__ = ["Fragments", "opening"]

FRAGMENTS_MAX = 1000
SPECS_BYTES_MAX = 64 << 20
"""Of all fragments together: each takes some 20 times as much memory, and the catalog is written whole."""


def opening(spec: FragmentSpec) -> OpenFragment:
    """Have the engine make it from nothing."""
    return OpenFragment(fragment=spec.name, graph=spec.graph, counts=spec.keeps_nothing)


class Fragments:
    """Installs and removes fragments.

    Args:
        running: what runs here, by name; shared with the parts of the node that only look.
        saver: makes the catalog durable.
        host: makes the state machine of a fragment.
        seal: of this node.
        accepting: whether a fragment is taken here at all.
        parsing: reads the specs that other nodes send.
        reading: asks for what a fragment reads of other queries.
        stopping: fragments that ended here before their query did.
        loads: told what boxes count.
        abroad: the participant of another one's node; empty: it is of our own.
        removes: told that fragments are about to be taken away: what they did until now has to be looked at.
        removed: told the query, which of its fragments are gone from here, and whether the query is.
        undone: told a query and the life of it whose deployment is undone; the fragments that may have been
            taken over meanwhile, and came by no request of that.
        answered: told what became of a fragment that this node asked itself for, where that took a while.

    Attributes:
        counts: what the driver last said of each fragment's boxes.
    """

    def __init__(
        self,
        settings: Settings,
        catalog: Catalog,
        running: dict[str, FragmentHost],
        *,
        outbox: Outbox,
        saver: CatalogWriter,
        host: Callable[[FragmentSpec], FragmentHost],
        seal: CutSealer,
        accepting: Admission,
        parsing: BackgroundParsing,
        reading: CrossQueryReads,
        stopping: StoppedParts,
        loads: NodeLoads,
        abroad: Callable[[str], str],
        removes: Callable[[], None],
        removed: Callable[[str, list[str], bool], None],
        answered: Callable[[int, str, Reply], None],
        undone: Callable[[str, int], Collection[str]] = lambda query, life: (),
    ) -> None:
        self._undone = undone
        self.running = running
        self.counts: dict[str, Mapping[str, Any]] = {}
        self._settings, self._catalog, self._outbox = settings, catalog, outbox
        self._saver, self._host, self._seal = saver, host, seal
        self._accepting = accepting
        self._parsing = parsing
        self._reading = reading
        self._stopping = stopping
        self._loads = loads
        self._abroad = abroad
        self._removes = removes
        self._removed = removed
        self._answered = answered
        self._late = StaleRequests()

    def counted(self, now_us: int, fragment: str, counts: Mapping[str, Any]) -> bool:
        """What the boxes of a fragment count now; whether there may be something to do at another time."""
        # What boxes take of processors is told as loads alone.
        self.counts[fragment] = {name: count for name, count in counts.items() if name != "cpu_us"}
        self._loads.told(now_us, fragment, counts["boxes"], counts.get("cpu_us"))
        queued = sum(box["queue_bytes"] for box in counts["boxes"].values())
        return self.running[fragment].weighed(now_us, counts["state_bytes"] + queued)

    def counted_beside(self, now_us: int, fragment: str, counts: Mapping[str, Any]) -> None:
        """The same of one that doesn't run here, but is followed."""
        self._loads.told_followed(now_us, fragment, counts["boxes"], counts.get("cpu_us"))

    # --- room -----------------------------------------------------------------------------------

    def check_room(self, *fragments: FragmentSpec, gone: Collection[FragmentSpec] = ()) -> None:
        """Whether there is room for these, instead of those that are ``gone``.

        Raises:
            LinkError: there isn't, or one of them isn't taken here.
        """
        if len(self.running) + len(fragments) - len(gone) > FRAGMENTS_MAX:
            raise LinkError(f"no more than {FRAGMENTS_MAX} fragments run here", code="E_LIMIT")
        self._check_taken(*fragments)
        self.check_memory(sum(len(each.feeds) for each in fragments) - sum(len(each.feeds) for each in gone))

    def _check_taken(self, *fragments: FragmentSpec) -> None:
        for fragment in fragments:
            self._stopping.refuse_ended(fragment)
            self._accepting.accept(fragment)

    def check_memory(self, streams: int, caller: Caller | None = None) -> None:
        """Whether so many more incoming streams may be given credit; see ``sessions.check_memory``."""
        check_memory(self._settings, self.running.values(), streams, caller)

    # --- what other nodes ask ---------------------------------------------------------------------

    def receive(self, heard: Heard) -> None:
        """A node has a fragment installed. It hears once it is on disk, or why not."""
        message, owner = heard.message, heard.peer
        assert isinstance(message, Install)

        def refuse(error: QueryError) -> None:
            self._reply(owner, refusal_of(message.request, error.code, error.message, error.hint))

        def take(now_us: int, fragment: FragmentSpec) -> None:
            if (fragment.name, fragment.query) != (message.fragment, message.query) or fragment.guests:
                refuse(QueryError(f"the spec is of {fragment.name!r}", code="E_SPEC"))
            elif (reply := self.install(message.request, fragment, owner, message.life)) is not None:
                self._reply(owner, reply)

        self._parsing.read_fragment(
            heard.now_us,
            owner,
            heard.caller,
            ("install", message.request),
            bytes(heard.payload or b""),
            then=take,
            refuse=refuse,
        )

    def remove_for(self, peer: str, message: Remove, caller: Caller | None) -> None:
        """A node has a query removed: what this node runs of it for that one."""
        foreign = caller is not None and caller.participant != self._settings.participant
        if not self._stopping.removed(peer, message, foreign=foreign):
            if foreign:  # It has no part in our configurations.
                message = msgspec.structs.replace(message, life=0)
            self._reply(peer, self.remove(message, peer))

    def _reply(self, peer: str, reply: Reply) -> None:
        """After the catalog is durable, so that what was promised survives."""
        if reply.code:
            self._outbox.send(peer, reply)
        else:
            self._saver.send(peer, reply, after=self._saver.save())

    # --- install and remove -------------------------------------------------------------------------

    def install(self, request: int, fragment: FragmentSpec, owner: str, life: int = 0) -> Reply | None:
        """Install a checked fragment; the same one twice is no error. Refused, nothing changed.

        Args:
            life: of its query, by the configuration; 0: it isn't told apart from others of its name.

        Returns:
            None: what it reads of other queries is asked for first.
        """
        known = self._catalog.fragments.get(fragment.name)
        late = self._late.install(owner, fragment.query, request)
        if late or self._catalog.is_buried(fragment.query, life):
            text = f"query {fragment.query!r} was removed after node {owner!r} asked for it"
            return refusal_of(request, "E_STALE", text, "")
        kept = self._catalog.configuration(fragment.query)
        if life and kept is not None and kept.current.parts is not None:
            current = kept.current
            if (current.life, current.coordinator) != (life, owner):
                # The one before was removed while this node was away, or whoever asks has lost its role: one
                # of the two hears so any moment, and nothing is undone meanwhile.
                where = current.coordinator
                return there_already(request, fragment.query, where, self._abroad(where), CONTENDED)
        ours = known is not None and self._catalog.owners[fragment.query] == owner
        if ours and self._catalog.installed_by(fragment.name) == request:
            return Reply(request=request)  # Others may have been taken over since: it is wired anew.
        same = known is not None and known.as_deployed == fragment
        if same and ours:
            if kept is None or kept.current.parts is None:
                return Reply(request=request)
            # Of a query of this name that was removed while this node was away: it hears so any moment.
            return there_already(request, fragment.query, owner, self._abroad(owner), CONTENDED)
        if known is not None or self._catalog.coordinator_of(fragment.query, owner) != owner:
            where = self._catalog.owners[fragment.query]
            code = CONTENDED if owner < where else "E_DEPLOYED"
            return there_already(request, fragment.query, where, self._abroad(where), code)
        try:
            check_place(fragment, self._settings, self._catalog)
        except LinkError as error:
            return refusal_of(request, error.code, error.message, error.hint)
        if len(self.running) >= FRAGMENTS_MAX:
            return refusal_of(request, "E_LIMIT", f"{FRAGMENTS_MAX} fragments run here already", "")
        specs_bytes = sum(len(each.spec.packed) for each in self.running.values())
        if specs_bytes + len(fragment.packed) > SPECS_BYTES_MAX:
            text = f"the specs of all fragments here would have more than {SPECS_BYTES_MAX:,} bytes"
            hint = "undeploy a query first, or deploy this one elsewhere"
            return refusal_of(request, "E_LIMIT", text, hint)
        try:
            self._check_taken(fragment)
            self.check_memory(len(fragment.feeds))
            if not self._reading.ready(request, fragment, owner):
                return None
        except LinkError as error:
            return refusal_of(request, error.code, error.message, error.hint)
        if fragment.keeps_nothing:
            key = self._seal.key_for(f"{fragment.name} {owner} {request}")
            fragment = msgspec.structs.replace(fragment, note_key=key)
        self._catalog.add(fragment, owner, request)
        self.running[fragment.name] = self._host(fragment)
        self._outbox.append(opening(fragment))
        self._saver.save()
        return Reply(request=request)

    def install_read(self, now_us: int, pending: PendingInstall, reply: Reply | None) -> None:
        """What a fragment reads of other queries is there for it, or was refused."""
        if reply is None:
            reply = self.install(pending.request, pending.fragment, pending.owner)
        if reply is not None and pending.owner == self._settings.name:
            self._answered(now_us, pending.owner, reply)
        elif reply is not None:
            self._reply(pending.owner, reply)

    def remove(self, message: Remove, owner: str, over: Collection[str] = ()) -> Reply:
        """Forget a query's fragments here, if there are any that this node asked for, or if they are of a
        query whose configuration says that it is the one that was removed.

        Args:
            over: fragments of it that may have been taken over here while it was deployed.
        """
        query, request = message.query, message.request
        done = Reply(request=request)
        late = self._late.remove(owner, query, request)
        kept = self._catalog.configuration(query)
        if kept is None or kept.current.life != message.life:
            self._catalog.is_over(query, message.life)
        told_apart = message.life != 0 and kept is not None
        same = told_apart and kept is not None and kept.current.life == message.life
        if told_apart and not same and not message.since:
            return done  # Another query of that name is here by now.
        if not same and (late or self._catalog.coordinator_of(query, owner) != owner):
            return done
        self._stopping.undeployed(query)
        came: list[str] | None = None
        if message.since:
            requests = range(message.since, request)
            came = [
                *dict.fromkeys(
                    (*self._catalog.came_by(query, requests), *over, *self._undone(query, message.life))
                )
            ]
        self.drop(query, came, undoes=bool(message.since))
        return done

    def drop(
        self,
        query: str,
        only: Collection[str] | None = None,
        why: str = "",
        code: str = "",
        *,
        undoes: bool = False,
    ) -> None:
        """Nothing of a query is here any more, or not these of its fragments."""
        known = query in self._catalog.owners
        self._removes()
        if only is None or undoes:  # What others have kept here reads no other query.
            specs = (s for s in self._catalog.fragments.values() if s.query == query)
            self._reading.removed(query, [s for s in specs if only is None or s.name in only])
        gone = self._catalog.remove(query, only, undoes=undoes)
        for name in gone:
            hosted = self.running.pop(name)
            self.counts.pop(name, None)
            hosted.close(why or f"query {query!r} was removed", code or "E_REMOVED")
            self._outbox.append(CloseFragment(fragment=name))
        self._removed(query, gone, only is None and not undoes)
        if known:
            self._saver.save()
