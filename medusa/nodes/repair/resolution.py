"""How fragments in doubt (``nodes.catalog.in_doubt``) become this node's again, or another's, or nobody's. No
IO.

    in doubt ── nobody has it, its state is on disk, all own peers were heard ──> here, from that state
        │ ├──── its coordinator installs it again ─────────────────────────────> here, from that state
        │ ├──── another node has it in a later epoch ──────────────────────────> there
        │ ├──── its coordinator has removed the query ─────────────────────────> gone
        └────── none of these ─────────────────────────────────────────────────> waits for an operator

Why state on disk says that it is ours: files of a fragment that is removed go before the catalog that says
so, and those of one that has moved are followed by its new owner's word, in a later epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping

import msgspec

from medusa.errors import LinkError
from medusa.nodes.catalog.catalog import ENDED, REMOVING, RUNNING, Catalog, Deployment, ForwardingAddress
from medusa.nodes.catalog.directory import CatalogEntry
from medusa.nodes.catalog.entry_bodies import (
    KINDS,
    FragmentBody,
    QueryBody,
    SourceBody,
    StreamBody,
    body_from,
)
from medusa.nodes.catalog.in_doubt import FragmentInDoubt, InDoubt, shared_box
from medusa.nodes.catalog.kept_moves import FIRST_EPOCH
from medusa.nodes.catalog.persistence import CatalogWriter
from medusa.nodes.config.settings import Settings
from medusa.nodes.deploy.coordinator import REQUESTS_PER_LIFE, DeploymentCoordinator
from medusa.nodes.fragment.checkpointing import SavedCheckpoint
from medusa.nodes.fragment.host import FragmentHost
from medusa.nodes.fragments import opening
from medusa.nodes.message_table import Heard
from medusa.nodes.migration.moved_readers import followers
from medusa.nodes.migration.outgoing import OutgoingMoves
from medusa.nodes.migration.rerouting import Rerouting
from medusa.nodes.names.names import NodeNames
from medusa.nodes.repair.lost_parts import lost_parts
from medusa.nodes.security.guard import Guard
from medusa.nodes.security.registry import Refusal
from medusa.nodes.security.sessions import say_no
from medusa.nodes.spec.fragment_spec import fragment_to
from medusa.ports import Buffer
from medusa.wire.messages import Message
from medusa.wire.messages.commands import Deploy, Forget, Install, Remove
from medusa.wire.messages.configuration import Accept, Prepare
from medusa.wire.messages.directory import Define, Lookup
from medusa.wire.messages.move import Grant, Move, Receive, Settle
from medusa.wire.messages.remote import Instantiate
from medusa.wire.messages.rerouting import Expect, Follow, Moved, Placed, Read, Release, Unexpect
from medusa.wire.messages.split import Merge, Split
from medusa.wire.messages.standby import DeployGuarded
from medusa.wire.outbox import CloseFragment, Outbox
from medusa.wire.status_and_metrics import DoubtfulStatus, DoubtStatus

__all__ = ["DoubtResolution"]

LOOK_US = 1_000_000
"""So often it is looked whether peers know more. It is also the least time between the word of the last peer
and a judgement: what that peer says of keys comes just behind it."""


START_ANEW = "stop it, and start it again with medusa node CONFIG.toml --rebuild"


class DoubtResolution:
    """Ends the doubt of one node.

    Args:
        fragments: what runs here, by name; what is resolved is put in.
        host: makes the mind of a fragment.
        naming: what peers wrote, and whether all of them were heard.
        moves: takes up moves that an older catalog names.
        coordinator: takes up removals that an older catalog names.
        diverting: keeps rows for readers that moved meanwhile.
        without_state: of a node that is rebuilt, given what says whether a query runs: its fragments that
            nobody else has, with their streams.
        was_returned: whether who stood by for a fragment had nothing of it, and gave it back.
        taken_up: told of a query of which such a fragment is here again.
    """

    def __init__(
        self,
        settings: Settings,
        catalog: Catalog,
        fragments: MutableMapping[str, FragmentHost],
        *,
        incarnation: int,
        outbox: Outbox,
        saver: CatalogWriter,
        host: Callable[..., FragmentHost],
        naming: NodeNames,
        moves: OutgoingMoves,
        coordinator: DeploymentCoordinator,
        diverting: Rerouting,
        without_state: Callable[[Callable[[str, str], bool]], dict[str, tuple[str, ...]]] = lambda runs: {},
        was_returned: Callable[[str], bool] = lambda fragment: False,
        taken_up: Callable[[int, str], None] = lambda now_us, query: None,
    ) -> None:
        self._me = settings.name
        self._life = incarnation
        self._new_life = incarnation * REQUESTS_PER_LIFE
        """Of streams whose fragment begins anew: the number of no request, which name the other lives."""
        self._peers_of_ours = tuple(filter(naming.is_ours, settings.peers))
        self._has_peers = bool(self._peers_of_ours)
        wait = "wait for the peers that are away, " if self._has_peers else ""
        self._remedy = (
            f"{wait}put back a copy of the data folder {settings.data!r}, or stop the node and decide with "
            "medusa repair"
        )
        self._catalog = catalog
        self._fragments = fragments
        self._outbox = outbox
        self._saver = saver
        self._host = host
        self._naming, self._directory = naming, naming.directory
        self._moves = moves
        self._coordinator = coordinator
        self._diverting = diverting
        self._without_state = without_state
        self._was_returned, self._taken_up = was_returned, taken_up
        self._forgot: tuple[int, str, int] | None = None
        """Token of the catalog that says so, the peer that knows an earlier life, and that."""
        self._lost: dict[str, tuple[str, ...]] = {}
        """Of a node that is rebuilt: what nobody stood by for."""
        self._guard: Guard | None = None
        self._holds_back = False
        """Clients and other participants aren't let in yet."""
        self._saved: Mapping[str, SavedCheckpoint] = {}
        self._old = Catalog(settings.name)
        self._look_at_us: int | None = None
        self._heard = False
        self._closing: list[tuple[int, str]] = []
        """Token of the catalog that no longer has it, and the fragment: then its files go."""

    @property
    def _doubt(self) -> InDoubt:
        return self._catalog.in_doubt

    # --- life -----------------------------------------------------------------------------------------

    def begin(self, saved: Mapping[str, SavedCheckpoint], guard: Guard | None) -> None:
        """Take what was found on disk, before the node starts: fragments that aren't in doubt are made."""
        self._saved, self._guard = saved, guard
        for spec in self._catalog.fragments.values():
            self._fragments[spec.name] = self._host(spec, saved.get(spec.name))
        doubt = self._doubt
        if doubt.old:
            self._old = Catalog.from_bytes(doubt.old, node=self._me, where="the catalog before")
        if doubt.newest and guard is not None:
            self._holds_back = True
            guard.let_in(own_nodes_only=True)

    def start(self, now_us: int) -> None:
        """Say what is in doubt, and do what an operator has decided."""
        doubt = self._doubt
        if self._catalog.birth.rebuilt:
            self._look_at_us = now_us + LOOK_US
            if doubt.newest:
                what = "the disk was lost: peers are asked what this node had"
                so = "it votes on a query once all other voters of that were heard"
                self._outbox.report("warning", what, peers=", ".join(self._peers_of_ours), so=so)
            return
        if not doubt:
            return
        self._look_at_us = now_us + LOOK_US
        if doubt.newest and not doubt.accepted:
            what = "the newest catalog was lost: names that are unknown here wait"
            self._outbox.report("error", what, catalog=doubt.newest, see=self._remedy)
        for owner, why in doubt.unreadable.items():
            self._outbox.report("error", "groups are kept that nobody can read", groups=owner, why=why)
        for name, each in list(doubt.fragments.items()):
            if each.decision == "adopt":
                self._adopt(now_us, name, "an operator decided so")
            elif each.decision == "forget":
                self._forget(name, "an operator decided so")
            else:
                self._say(name, each)
        if doubt.accepted:
            self._accept(now_us)

    def _accept(self, now_us: int) -> None:
        """An operator says that there was nothing else: names that are unknown here are unknown."""
        doubt = self._doubt
        for query, old in list(self._old.deployments.items()):
            if not doubt.query_of(query):
                self._redeploy(now_us, query, anyway=any(node != self._me for node in old.nodes))
        self._outbox.report("warning", "the catalog counts again: an operator decided so", lost=doubt.newest)
        self._catalog.accept(self._life)
        self._let_in()
        self._saver.save()

    def _let_in(self) -> None:
        if self._holds_back and self._guard is not None:
            self._holds_back = False
            self._guard.let_in(own_nodes_only=False)

    def _say(self, name: str, each: FragmentInDoubt) -> None:
        self._outbox.report("error", "fragment in doubt", fragment=name, why=each.why, see=self._remedy)

    def tick(self, now_us: int) -> None:
        """Look whether peers know more."""
        self._say_forgot()
        for token, name in [each for each in self._closing if each[0] <= self._saver.durable]:
            self._closing.remove((token, name))
            if name not in self._fragments:
                self._outbox.append(CloseFragment(fragment=name))
        if self._look_at_us is None or now_us < self._look_at_us:
            return
        rebuilt = self._catalog.birth.rebuilt
        if not self._doubt and not rebuilt:
            self._look_at_us = None
            return
        self._look_at_us = now_us + LOOK_US
        if rebuilt:
            self._rebuild()
            return
        self._take_returned(now_us)
        heard, self._heard = self._heard, self._naming.heard_all
        if heard and self._doubt.newest:
            self._judge_all(now_us)

    def _take_returned(self, now_us: int) -> None:
        """There is nothing newer than the checkpoint that is here."""
        if self._doubt.newest:
            return
        for name, each in list(self._doubt.fragments.items()):
            if each.state != "lost" and self._was_returned(name):
                self._adopt(now_us, name, "who stood by for it has lost it too")
                self._taken_up(now_us, each.spec.query)

    def _rebuild(self) -> None:
        """Once all own peers have said what they have, this node is what they know of it."""
        heard, self._heard = self._heard, self._naming.heard_all
        if not heard:
            return
        if self._doubt.newest:
            self._doubt.accept()
            self._let_in()
            self._saver.save()
            self._outbox.report("info", "all peers were heard: what they know of this node is here again")
        before, self._lost = self._lost, lost_parts(self._catalog, self._directory, self._without_state)
        for name, streams in self._lost.items():
            if name not in before:
                about = {"part": name, "streams": ", ".join(streams)}
                why = "nobody stood by for it, so no peer has its state"
                see = f"undeploy query {name.partition('/')[0]}, and deploy it again"
                self._outbox.report("error", "lost with the disk", why=why, see=see, **about)

    def wake_at_us(self) -> int | None:
        """When ``tick`` has work."""
        return self._look_at_us

    def status(self) -> DoubtStatus:
        """What is in doubt."""
        doubt = self._doubt
        if not doubt and self._lost:
            return DoubtStatus(lost_parts=dict(self._lost))
        if not doubt:
            birth = self._catalog.birth
            return DoubtStatus(see=START_ANEW) if birth.lost and not birth.rebuilt else DoubtStatus()
        fragments = {
            name: DoubtfulStatus(
                query=each.spec.query,
                coordinator=each.coordinator,
                epoch=each.epoch,
                state=each.state,
                why=each.why,
            )
            for name, each in doubt.fragments.items()
        }
        return DoubtStatus(
            lost_catalog=doubt.newest or None,
            fragments=fragments,
            kept_groups=dict(doubt.unreadable),
            see=self._remedy,
        )

    def has_forgotten(self, peer: str, life: int) -> None:
        """A peer knows this node of an earlier life than the first one that its disk knows."""
        if self._catalog.has_forgotten():
            self._forgot = self._saver.save(), peer, life

    def _say_forgot(self) -> None:
        """Once it is on disk: an operator may act on it at once."""
        if self._forgot is None or self._forgot[0] > self._saver.durable:
            return
        _, peer, life = self._forgot
        self._forgot = None
        self._outbox.report(
            "error",
            "peers know this node of a life that its disk doesn't: the data folder was lost",
            peer=peer,
            life=life,
            first=self._catalog.birth.life,
            so="it votes on no takeover, and nothing comes back by itself",
            see=START_ANEW,
        )

    # --- messages -------------------------------------------------------------------------------------

    def absorbs(self, heard: Heard) -> bool:
        """Take a message that can't be answered before the doubt is over; whether it was one.

        A question with a number is answered ``E_BUSY``; others are asked again by themselves.
        """
        doubt = self._doubt
        if not doubt:
            return False
        peer, message, client = heard.peer, heard.message, heard.client
        if not client and isinstance(message, Install):
            self._installed(heard.now_us, peer, message, heard.payload)
        elif not client and isinstance(message, Remove) and not message.asked:
            self._removed(peer, message)
        if not self._waits(message, client):
            return False
        text = f"node {self._me!r} has lost its newest catalog, and doesn't know yet whether that is here"
        if not doubt.newest:
            text = f"what this is about at node {self._me!r} has lost its state, and waits for an operator"
        if not isinstance(message, Settle):
            say_no(self._outbox, peer, message, Refusal(code="E_BUSY", text=text, hint=self._remedy))
        return True

    def _waits(self, message: Message, client: bool) -> bool:
        catalog, doubt = self._catalog, self._doubt
        match message:
            case Instantiate():  # Its definition may have been withdrawn.
                return bool(doubt.newest) or message.fragment in doubt.fragments
            case Install() | Receive() | Move() | Grant() | Split() | Merge():
                return message.fragment in doubt.fragments
            case Settle():
                unknown = message.fragment not in catalog.ownership.taken
                return message.fragment in doubt.fragments or (bool(doubt.newest) and unknown)
            case Deploy() | DeployGuarded() | Define() if client:
                return bool(doubt.newest)
            case Remove() if client:
                known = message.query in catalog.deployments
                return doubt.query_of(message.query) or (bool(doubt.newest) and not known)
            case Prepare() | Accept():
                return catalog.may_not_vote
            case Placed():
                return bool(doubt.newest) and message.query not in catalog.deployments
            case Lookup() if client and message.name:
                return doubt.hides(message.name) and not self._naming.stands(message.name, message.kind)
            case Forget() if client:
                return not self._has(message.stream, source=message.publisher) and doubt.hides(message.stream)
            case Expect() | Unexpect() | Release() | Read():
                return not self._has(message.stream) and doubt.hides(message.stream)
            case Follow() | Moved():
                feeds = (feed for each in doubt.fragments.values() for feed in each.spec.feeds)
                return any(feed.stream == message.stream for feed in feeds)
        return False

    def _has(self, stream: str, *, source: bool = False) -> bool:
        try:
            self._catalog.entry(stream) if source else self._catalog.sink(stream)
        except LinkError:
            return False
        return True

    def _installed(self, now_us: int, peer: str, message: Install, payload: Buffer | None) -> None:
        """A coordinator says that a fragment is to be here: if it is the one in doubt, it goes on."""
        each = self._doubt.fragments.get(message.fragment)
        if each is None or each.state == "lost" or each.coordinator != peer or payload is None:
            return
        if fragment_to(each.spec.as_deployed) == payload:  # A spec has one form.
            self._adopt(now_us, message.fragment, f"node {peer!r}, which deployed it, installs it again")

    def _removed(self, peer: str, message: Remove) -> None:
        """A coordinator has removed a query: nothing of it is in doubt any more.

        One that undoes a deployment may not know what was here before: only what has no state goes then.
        """
        for name, each in list(self._doubt.fragments.items()):
            if message.since and each.state != "none":
                continue
            if (each.spec.query, each.coordinator) == (message.query, peer):
                self._forget(name, f"node {peer!r}, which deployed it, has removed it")

    # --- judgement --------------------------------------------------------------------------------------

    def _judge_all(self, now_us: int) -> None:
        """All own peers have said what they have."""
        if self._has_peers:
            self._let_in()
        for name in list(self._doubt.fragments):
            self._judge(now_us, name)
        for query in list(self._old.deployments):
            if not self._doubt.query_of(query):
                self._redeploy(now_us, query)

    def _judge(self, now_us: int, name: str) -> None:
        each = self._doubt.fragments[name]
        claims = [e for e in self._directory.holders("fragment", name) if e.writer != self._me]
        last = max(claims, key=lambda claim: claim.epoch, default=None)
        handing = name in self._old.ownership.moves and self._old.ownership.moves[name].handing
        if last is not None and each.epoch and last.epoch > each.epoch:
            self._gone(name, each, last)
        elif last is not None:
            self._because(name, f"node {last.writer!r} has it too, in epoch {last.epoch}")
        elif (other := self._overlaps(name, each)) is not None:
            self._because(name, f"it has boxes in common with {other!r}: one took the other's place")
        elif each.state == "lost":
            self._because(name, "it had checkpoints, and none of them is whole")
        elif each.state == "checkpoint" and (each.epoch or handing):
            self._adopt(now_us, name, "its state is here, and no peer has it")
        elif each.state == "checkpoint":
            self._because(name, "its state is here, and it may not have been this node's yet")
        elif each.coordinator != self._me and self._naming.is_ours(each.coordinator):
            self._as_coordinated(now_us, name, each)
        else:
            self._because(name, "no state of it is here, and nobody else knows whether it was removed")

    def _as_coordinated(self, now_us: int, name: str, each: FragmentInDoubt) -> None:
        """It has no state; the node that deployed its query says whether that runs."""
        entries = self._directory.holders("query", each.spec.query)
        said = next((entry for entry in entries if entry.writer == each.coordinator), None)
        body = None if said is None else body_from(said.body, QueryBody)
        if body is not None and body.state in (RUNNING, ENDED) and self._me in body.nodes:
            self._adopt(now_us, name, f"node {each.coordinator!r}, which deployed it, says that it runs")
        elif said is None and entries:
            where = entries[0].writer
            self._because(name, f"no state of it is here, and node {where!r} has a query of that name by now")
        elif said is None:
            self._forget(name, f"node {each.coordinator!r}, which deployed it, has removed it")
        else:
            self._because(name, f"no state of it is here, and node {each.coordinator!r} doesn't name it")

    def _overlaps(self, name: str, each: FragmentInDoubt) -> str | None:
        """Of a query here in which one fragment took another's place: one that has boxes in common with this
        one, or is next to it. None: there is none."""
        doubt = self._doubt.fragments
        specs = (*(other.spec for other in doubt.values()), *self._catalog.fragments.values())
        here = [spec for spec in specs if spec.query == each.spec.query]
        if not any(shared_box(one, other) for one in here for other in here):
            return None
        mine = {box.id for box in each.spec.graph.boxes}
        for spec in here:
            if spec.name != name and mine & {box.id for box in spec.graph.boxes}:
                return spec.name
        return None

    def _because(self, name: str, why: str) -> None:
        each = self._doubt.fragments[name]
        why = f"{why}, so it waits for an operator"
        if each.why != why:
            each = self._doubt.fragments[name] = msgspec.structs.replace(each, why=why)
            self._saver.save()
            self._say(name, each)

    # --- ends -------------------------------------------------------------------------------------------

    def _adopt(self, now_us: int, name: str, why: str) -> None:
        """It is here, and goes on from its newest whole checkpoint, or from nothing."""
        each = self._doubt.settle(name)
        spec, old = each.spec, self._old
        saved = self._saved.get(name) if each.state != "lost" else None
        moved = followers(spec, self._directory)
        if saved is None:
            for sink, word in moved.items():
                kept = (each for each in spec.readers[sink] if each not in (word.like, word.reader))
                readers = {**spec.readers, sink: (*kept, word.reader)}
                spec = msgspec.structs.replace(spec, readers=readers)
        # What it lost it may have sent: its readers must not take the first new rows for those.
        life = self._new_life if saved is None and each.state == "lost" else 0
        self._catalog.is_here_again(name)
        self._catalog.add(spec, each.coordinator, life)
        hosted = self._fragments[name] = self._host(spec, saved)
        if saved is None:
            self._outbox.append(opening(spec))
        if each.epoch > FIRST_EPOCH:
            self._catalog.ownership.epochs[name] = each.epoch
        for sink, stream in spec.streams.items():
            for reader, like in old.expected.get(stream, {}).items():
                if reader in spec.readers.get(sink, ()):
                    self._catalog.expect(stream, reader, like, old.awaited_in(stream, reader))
        if (coordinator := old.ownership.unplaced.get(name)) is not None:
            self._catalog.ownership.unplaced[name] = coordinator
        hosted.begin(now_us)
        if saved is not None:
            for sink, word in moved.items():
                if word.reader in spec.readers[sink]:  # Rows are kept for it already.
                    self._catalog.expect(word.stream, word.reader, word.like, word.epoch)
                else:
                    self._diverting.receive(now_us, word.like, word)
        if each.coordinator == self._me:
            self._redeploy(now_us, spec.query)
        moving = old.ownership.moves.get(name, self._catalog.ownership.moves.get(name))
        if moving is not None:
            self._catalog.ownership.moves[name] = moving
            self._moves.start(now_us)
        self._saver.save()
        log = saved is not None and bool(saved.decisions)
        state = each.state if each.state == "checkpoint" else "its decision log" if log else "nothing"
        self._outbox.report("warning", "fragment in doubt is here", fragment=name, begins=state, why=why)

    def _gone(self, name: str, each: FragmentInDoubt, claim: CatalogEntry) -> None:
        """Another node has it in a later epoch: who still asks here is told so."""
        names = (*each.spec.streams.values(), *each.spec.entries.values())
        left = ForwardingAddress(query=each.spec.query, node=claim.writer, epoch=claim.epoch, names=names)
        self._catalog.left[name] = left
        self._forget(name, f"node {claim.writer!r} has it, in epoch {claim.epoch}")

    def _forget(self, name: str, why: str) -> None:
        """It isn't here: its files go once the disk says so."""
        self._doubt.settle(name)
        self._catalog.end_move(name)
        self._closing.append((self._saver.save(), name))
        self._outbox.report("warning", "fragment in doubt is not here", fragment=name, why=why)

    def _redeploy(self, now_us: int, query: str, *, anyway: bool = False) -> None:
        """A query that this node had deployed, as the older catalog has it, or as peers and disk show it.

        Args:
            anyway: also where nobody is known to have anything of it: peers weren't heard.
        """
        if query in self._catalog.deployments:
            return
        parts = self._parts(query)
        here = any(spec.query == query for spec in self._catalog.fragments.values())
        old = self._old.deployments.get(query)
        if old is not None:
            self._old.hand_over(query)
        if old is None:
            found = self._deployment(query, parts)
        elif old.state == REMOVING and here:
            found = old
        elif anyway or here or parts or old.abroad:
            found = msgspec.structs.replace(old, state=RUNNING)
        else:
            return  # Nobody has anything of it.
        self._catalog.deployments[query] = found
        self._saver.save()
        self._outbox.report("warning", "query taken up again", query=query, state=found.state)
        if found.state == REMOVING:
            self._coordinator.resume(now_us)

    def _parts(self, query: str) -> list[CatalogEntry]:
        """What peers have of a query."""
        bodies = ((e, body_from(e.body, FragmentBody)) for e in self._directory.entries("fragment"))
        return [e for e, body in bodies if body is not None and (body.query, body.guest_of) == (query, "")]

    def _deployment(self, query: str, parts: list[CatalogEntry]) -> Deployment:
        specs = [spec for spec in self._catalog.fragments.values() if spec.query == query]
        names = [n for spec in specs for n in (*spec.streams.values(), *spec.entries.values())]
        streams = [(name, self._me) for name in names]
        for kind in ("stream", "source"):
            for entry in self._directory.standing(kind):
                body = body_from(entry.body, KINDS[kind])
                if isinstance(body, StreamBody | SourceBody) and body.query == query:
                    streams.append((entry.name, entry.writer))
        nodes = dict.fromkeys((self._me, *(entry.writer for entry in parts)))
        return Deployment(
            query=query,
            nodes=tuple(nodes),
            state=RUNNING,
            client="",
            request=0,
            streams=tuple(dict.fromkeys(streams)),
        )
