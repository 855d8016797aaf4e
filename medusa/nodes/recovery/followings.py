"""Fragments of other nodes that this one follows as their secondary. No IO.

    owner ── Seed ──> can we? ── Ready ──> Piece ... Whole: opened ── Fed ... ──> fed, mute
                                                                       Got <── has so far, on disk so far

What rests here since a host has it (``nodes.abroad``) stays until the host's checkpoint has come whole, then
what rests is closed, the disk says so, and what came is opened: between them lies only memory of ours.

An owner that was restarted seeds anew. What was followed before stays until the new checkpoint is whole:
between the two there is no moment at which nothing here could take over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TypeAlias

from medusa.errors import LinkError, QueryError, RemoteProtocolError
from medusa.nodes.catalog.catalog import Catalog
from medusa.nodes.catalog.persistence import CatalogWriter
from medusa.nodes.config.settings import Settings
from medusa.nodes.deploy.background_parsing import BackgroundParsing
from medusa.nodes.deploy.room_promises import RoomPromises, RoomWanted
from medusa.nodes.fragment.checkpoint_record import FragmentRecord
from medusa.nodes.fragment.checkpointing import SavedCheckpoint
from medusa.nodes.fragment.host import FragmentHost
from medusa.nodes.fragment.rows_put_out import rows_put_out
from medusa.nodes.message_table import Heard
from medusa.nodes.migration.automaton import TargetState
from medusa.nodes.migration.standby import StandbyFragment
from medusa.nodes.migration.state_receiver import WINDOW_BYTES, Carried, StateReceiver
from medusa.nodes.recovery.heirs import Heir
from medusa.nodes.recovery.held_checkpoint import CheckpointReceiver
from medusa.nodes.recovery.replication import RELEASED
from medusa.nodes.recovery.rewiring import replicas_of
from medusa.nodes.recovery.standby_kind import is_idle
from medusa.nodes.security.registry import Caller
from medusa.nodes.spec.fragment_spec import FragmentSpec
from medusa.ports import Buffer
from medusa.query.recovery import STATE_BACKUP
from medusa.units import size_text
from medusa.wire import limits
from medusa.wire.messages.configuration import Configuration, Replicas
from medusa.wire.messages.move import GiveUp, Seed, Whole
from medusa.wire.outbox import Outbox
from medusa.wire.status_and_metrics import ComingStatus

__all__ = ["Followings"]

FOLLOWED_MAX = 256
"""Fragments that one node follows."""

EARLY_US = 50_000
"""So often is looked whether what a host says to have had is there by now."""

_Failure: TypeAlias = LinkError | QueryError


def _copied(payload: Buffer | None) -> bytes | None:
    return None if payload is None else bytes(payload)


class Followings:
    """The secondary's side, for all fragments that a node follows.

    Args:
        configuration: of a query, as far as it is known here.
        running: what runs here, by name: nobody follows himself.
        leaving: whether our disk may still say that a fragment is ours, which it is no more.
        parsing: reads specs that owners send.
        make: makes the mind of a fragment from a checkpoint of its owner.
        check: raises LinkError if there is no room for a fragment.
        memory: raises LinkError if there is no room for so many streams more.
        next_token: gives tickets: of this life only.
        abroad: whether a node is of another participant.
        admits: raises LinkError if we may not run a fragment for that owner.
        rests: whether a fragment of ours is here, and another node has it.
        closes: whether what was here of a fragment isn't closed yet.
        step_aside: has what rests closed, at a time: we are about to follow it.
        put_out: what a node has put out of its streams to other participants; None: it can't say.
    """

    def __init__(
        self,
        settings: Settings,
        catalog: Catalog,
        running: dict[str, FragmentHost],
        *,
        outbox: Outbox,
        saver: CatalogWriter,
        parsing: BackgroundParsing,
        configuration: Callable[[str], Configuration | None],
        leaving: Callable[[str], bool],
        make: Callable[[FragmentSpec, SavedCheckpoint, str], StandbyFragment],
        check: Callable[[FragmentSpec], None],
        memory: Callable[[int], None],
        next_token: Callable[[], int],
        abroad: Callable[[str], bool],
        admits: Callable[[int, str, FragmentSpec], None],
        rests: Callable[[str], bool],
        closes: Callable[[str], bool],
        step_aside: Callable[[int, str], None],
        put_out: Callable[[str], Mapping[str, int] | None],
    ) -> None:
        self._put_out = put_out
        self._abroad, self._admits = abroad, admits
        self._rests, self._closes, self._step_aside = rests, closes, step_aside
        self._settings = settings
        self._catalog = catalog
        self._running = running
        self._outbox = outbox
        self._saver = saver
        self._parsing = parsing
        self._configuration = configuration
        self._leaving = leaving
        self._make = make
        self._check = check
        self._memory = memory
        self._next_token = next_token
        self._followed: dict[str, StateReceiver] = {}
        """What could take over, by fragment."""
        self._coming: dict[str, StateReceiver] = {}
        """What isn't whole yet."""
        self._heirs: dict[str, Heir] = {}
        """What could be begun anew here, by fragment."""
        self._promises = RoomPromises()
        self._held_frames: dict[str, list[tuple[str, Carried, Buffer | None]]] = {}
        """Fragment -> what its host sent from the end of its checkpoint on, until what rested here is
        closed."""
        self._early: dict[str, tuple[str, Whole, Buffer | None]] = {}
        """Fragment -> who said last that a checkpoint is whole, and with what, which had rows that nobody has
        told of."""
        self._early_at_us = -(1 << 62)
        self._released: dict[str, int] = {}
        """Fragment -> the attempt of which its owner said that another node holds its state now."""
        self._deferred_seeds: dict[str, Callable[[int], None]] = {}
        """Fragment -> to look again at who wants us to follow it, once the disk says that it has left us."""

    def shadow(self, fragment: str) -> StandbyFragment | None:
        """What follows this fragment here."""
        taking = self._followed.get(fragment)
        return None if taking is None else taking.shadow

    def spec_of(self, fragment: str) -> FragmentSpec | None:
        """Of what could take over, or is about to."""
        taking = self._followed.get(fragment)
        return None if taking is None else taking.spec

    def on_disk(self, fragment: str) -> bool:
        """Whether we would find again all that we were fed of what we follow."""
        taking = self._followed.get(fragment)
        return taking is not None and taking.on_disk

    def waits_for_owner(self, fragment: str) -> bool:
        """Whether what its owner has is worth a pause, in which that may come back."""
        taking = self._followed.get(fragment)
        return fragment in self._heirs or (taking is not None and taking.spec.reads_again)

    def held(self, fragment: str) -> FragmentRecord | None:
        """Of the checkpoint that is held of this fragment, where nothing of it runs here."""
        taking = self._followed.get(fragment)
        return taking.record if isinstance(taking, CheckpointReceiver) else None

    def heir(self, fragment: str) -> Heir | None:
        """What is known here of a fragment that could be begun anew."""
        return self._heirs.get(fragment)

    def followed(self) -> Iterator[tuple[str, str, StateReceiver | Heir]]:
        """Fragment, its owner and what we have of it, of all that could take over."""
        for name, heir in self._heirs.items():
            yield name, heir.owner, heir
        for name, taking in self._followed.items():
            if taking.could_succeed:
                yield name, taking.owner, taking

    def status(self) -> dict[str, ComingStatus]:
        """What is followed, or will be."""
        heirs = {
            name: ComingStatus(origin=each.owner, state=TargetState.FOLLOWING.value)
            for name, each in self._heirs.items()
        }
        return heirs | {
            name: ComingStatus(origin=each.owner, state=each.state.value)
            for name, each in (self._coming | self._followed).items()
        }

    def backups(self) -> Iterator[CheckpointReceiver]:
        """What is held of fragments whose states are backed up: what ``limits.backups`` bounds."""
        for each in (*self._coming.values(), *self._followed.values()):
            if not isinstance(each, CheckpointReceiver) or each.spec.method != STATE_BACKUP:
                continue
            if each.shadow is None:
                yield each

    # --- messages -----------------------------------------------------------------------------------

    def receive(self, heard: Heard) -> None:
        """Take an owner's wish."""
        assert isinstance(heard.message, Seed)
        self.asked(heard.now_us, heard.peer, heard.message, heard.payload or b"", heard.caller)

    def asked(
        self, now_us: int, peer: str, message: Seed, payload: Buffer, caller: Caller | None = None
    ) -> None:
        """An owner wants us to follow a fragment."""
        if (coming := self._coming.get(message.fragment)) is not None and (
            (coming.owner, coming.attempt) == (peer, message.attempt)
        ):
            coming.ready()
            return
        heir = self._heirs.get(message.fragment)
        if heir is not None and (heir.owner, heir.attempt) == (peer, message.attempt):
            heir.ready(self._outbox)
            return
        if self._waits(message.fragment):  # A refusal would cost far more time than this write.
            wish = bytes(payload)
            self._deferred_seeds[message.fragment] = lambda now_us: self.asked(
                now_us, peer, message, wish, caller
            )
            return
        try:
            self._check_free(peer, message)
        except LinkError as error:
            self._refuse(peer, message, error)
            return
        self._parsing.read_fragment(
            now_us,
            peer,
            caller,
            ("seed", message.fragment, message.attempt),
            bytes(payload),
            then=lambda now_us, spec: self._begin(now_us, peer, message, spec),
            refuse=partial(self._refuse, peer, message),
        )

    def _waits(self, fragment: str) -> bool:
        """Whether a write is under way that says that this fragment has left us."""
        return self._leaving(fragment) and not self._saver.resting

    def _refuse(self, peer: str, message: Seed, error: _Failure) -> None:
        most = limits.TEXT_CHARS_MAX
        self._outbox.send(
            peer,
            GiveUp(
                fragment=message.fragment,
                attempt=message.attempt,
                code=error.code,
                text=error.message[:most],
                hint=error.hint[:most],
            ),
        )

    def _check_free(self, peer: str, message: Seed) -> Replicas:
        """Who has the fragment, and who stands by for it. Raises LinkError if we can't follow it."""
        me, name = self._settings.name, message.fragment
        query = name.partition("/")[0]
        if self._settings.forgets:
            hint = "name a node with a disk as its standby"
            raise LinkError(f"node {me!r} keeps nothing over its end", hint=hint, code="E_STORE")
        configuration = self._configuration(query)
        replicas = None if configuration is None else replicas_of(configuration, name)
        if replicas is None:
            raise LinkError(f"node {me!r} knows no configuration with {name!r} yet", code="E_BUSY")
        if (replicas.owner, replicas.epoch) != (peer, message.epoch):
            text = f"fragment {name!r} is of node {replicas.owner!r} in epoch {replicas.epoch}"
            raise LinkError(text, code="E_SUCCEEDED")
        here = name in self._running and not (replicas.abroad and self._rests(name))
        if me not in replicas.followers or here:
            raise LinkError(f"node {me!r} is no standby of fragment {name!r}", code="E_ROLE")
        if self._leaving(name):  # If we died we would take what we had then for what we were sent since.
            text = f"the disk of node {me!r} doesn't say yet that fragment {name!r} has left it"
            raise LinkError(text, code="E_BUSY")
        if name not in self._followed and name not in self._heirs:
            self._check_number(1, self._promises.kept_from(peer, name))
        return replicas

    def _check_number(self, more: int, promised: int) -> None:
        known = len(self._followed) + len(self._coming) + len(self._heirs)
        if known + promised + more > FOLLOWED_MAX:
            others = f" and has promised room for {promised}" if promised else ""
            text = f"node {self._settings.name!r} follows {known} fragments already{others}"
            hint = "have other nodes stand by for some of them"
            raise LinkError(f"{text}, at most {FOLLOWED_MAX}", hint=hint, code="E_LIMIT")

    def promise_room(self, now_us: int, peer: str, wanted: RoomWanted) -> None:
        """Keep room for what an owner asks for.

        Raises:
            LinkError: there is none, beside what is here and what others were promised.
        """
        self._promises.expire(now_us)
        fragments, streams = self._promises.beside(peer, wanted.fragment)
        self._check_number(wanted.fragments or 1, fragments)
        self._memory(wanted.streams + streams)
        self._promises.promise(now_us, peer, wanted)

    def restarted(self, peer: str) -> None:
        """An owner knows nothing any more of what it asked for."""
        self._promises.forget(peer=peer)

    def _begin(self, now_us: int, peer: str, message: Seed, spec: FragmentSpec) -> None:
        me, name = self._settings.name, message.fragment
        try:
            replicas = self._check_free(peer, message)
            if (spec.name, spec.node) != (name, me):
                raise LinkError(f"the spec is of {spec.name!r} at {spec.node!r}", code="E_SPEC")
            self._admits(now_us, peer, spec)
            others = {feed.node for feed in spec.feeds} | {message.coordinator}
            others |= {node for nodes in spec.readers.values() for node in nodes}
            if strangers := sorted(others - {me, *self._settings.peers}):
                text = f"{strangers[0]!r}, which fragment {name!r} is linked with, is no peer of {me!r}"
                raise LinkError(text, hint=f"add {strangers[0]} to [peers] of {me}", code="E_PEER")
            self._check(spec)
        except LinkError as error:
            self._refuse(peer, message, error)
            return
        if not any(name in known for known in (self._followed, self._coming, self._heirs)):
            self._promises.use(peer, name, len(spec.feeds))
        if spec.keeps_nothing:
            ticket = self._next_token()
            heir = Heir(spec=spec, owner=peer, attempt=message.attempt, ticket=ticket)
            self._heirs[name] = heir
            self._stands_by(name, message.epoch)
            heir.ready(self._outbox)
            return
        if (before := self._coming.pop(name, None)) is not None:
            before.drop()
        kind = CheckpointReceiver if is_idle(spec, replicas) else StateReceiver
        made = self._coming[name] = kind(
            spec,
            owner=peer,
            attempt=message.attempt,
            epoch=message.epoch,
            coordinator=message.coordinator,
            ticket=self._next_token(),
            make=self._make,
            outbox=self._outbox,
            secondary=True,
        )
        made.heard(now_us)
        made.ready()

    def _taking(self, peer: str, fragment: str, attempt: int) -> StateReceiver | None:
        for known in (self._coming, self._followed):
            taking = known.get(fragment)
            if taking is not None and (taking.owner, taking.attempt) == (peer, attempt):
                return taking
        return None

    def has(self, peer: str, fragment: str, attempt: int) -> bool:
        """Whether a frame of this attempt is for us, as far as something of it is here."""
        heir = self._heirs.get(fragment)
        if heir is not None and (heir.owner, heir.attempt) == (peer, attempt):
            return True
        return self._taking(peer, fragment, attempt) is not None

    def frame(self, now_us: int, peer: str, message: Carried, payload: Buffer | None) -> None:
        """A frame of an owner."""
        name = message.fragment
        taking = self._taking(peer, name, message.attempt)
        if taking is None or self._is_held(peer, message, payload):
            return
        try:
            taking.heard(now_us)
            is_coming = taking is self._coming.get(name)  # What is followed may end while another one comes.
            ends = isinstance(message, Whole) and is_coming and taking.is_next(message)
            if isinstance(message, Whole) and self._is_ahead(now_us, taking, message):
                self._early[name] = (peer, message, _copied(payload))
                return
            if isinstance(message, Whole) and ends and (self._rests(name) or name in self._followed):
                taking.check_whole(message, payload)
                if self._rests(name):
                    self._held_frames[name] = [(peer, message, _copied(payload))]
                    self._step_aside(now_us, name)
                    return
                self._followed.pop(name).drop()  # The engine runs one of a name.
            taking.receive(now_us, message, payload)
            self._check_room(taking)
        except RemoteProtocolError as error:
            self._give_up(taking, error.code, error.message)
            return
        if taking.state is TargetState.FOLLOWING and is_coming:
            self._followed[name] = self._coming.pop(name)
            self._stands_by(name, taking.epoch)

    def _is_ahead(self, now_us: int, taking: StateReceiver, message: Whole) -> bool:
        """Whether a host of another participant says of a fragment of ours that it has had more rows than
        there are: by them it is paid, and its inputs would go on behind them. What is right waits until who
        feeds it has told of them, or has them again after a restart."""
        if not isinstance(taking, CheckpointReceiver) or not taking.is_next(message):
            return False
        if not self._abroad(taking.owner):
            return False
        me, running = self._settings.name, self._running.values()
        return taking.is_ahead(now_us, rows_put_out(taking.spec, me, running, self._put_out))

    def _look_again(self, now_us: int, peer: str, message: Whole, payload: Buffer | None) -> None:
        """At what was too early."""
        taking = self._taking(peer, message.fragment, message.attempt)
        if taking is not None and self._is_ahead(now_us, taking, message):
            self._early[message.fragment] = (peer, message, payload)
        elif taking is not None:
            self.frame(now_us, peer, message, payload)

    def _is_held(self, peer: str, message: Carried, payload: Buffer | None) -> bool:
        """Whether a frame waits until what rests here is closed; of too many the last are sent again."""
        held = self._held_frames.get(message.fragment)
        if held is not None and sum(len(each or b"") for _, _, each in held) < WINDOW_BYTES:
            held.append((peer, message, _copied(payload)))
        return held is not None

    def holds(self, fragment: str) -> bool:
        """Whether what we are to follow has come, and waits until what rested here is closed."""
        return fragment in self._held_frames

    def take_held(self, now_us: int) -> None:
        """Open what waits for nothing any more."""
        for name in [name for name in self._held_frames if not self._closes(name)]:
            for peer, message, payload in self._held_frames.pop(name):
                self.frame(now_us, peer, message, payload)

    def _stands_by(self, fragment: str, epoch: int) -> None:
        """From now on we may be chosen; what our disk says then it says with our vote on that."""
        is_news = self._catalog.stands_by(fragment, epoch)
        configuration = self._configuration(fragment.partition("/")[0])
        replicas = None if configuration is None else replicas_of(configuration, fragment)
        lent = replicas is not None and any(map(self._abroad, replicas.holders))
        counts = replicas is not None and self._settings.name in replicas.secondaries
        if is_news and (lent or counts):  # What counts already may follow no decision that is written.
            self._saver.save()

    def _check_room(self, taking: StateReceiver) -> None:
        """Checkpoints that come at once are in memory, and so is what is held for others. Raises
        RemoteProtocolError if they don't fit."""
        node, most = self._settings.name, self._settings.limits.memory_bytes
        held = (*self._coming.values(), *self._followed.values())
        if taking.spec.method == STATE_BACKUP:
            backups = sum(each.held_bytes for each in self.backups())
            if backups > (bound := self._settings.limits.backups_bytes):
                text = f"fragment {taking.spec.name!r} has {size_text(taking.held_bytes)} of state; "
                text += f"node {node!r} holds at most {size_text(bound)} for others: "
                text += f"raise limits.backups of {node!r}"
                raise RemoteProtocolError(text, peer=taking.owner, code="E_MEMORY")
        if sum(each.held_bytes for each in held) <= most:
            return
        text = f"fragment {taking.spec.name!r} has {size_text(taking.held_bytes)} of state; "
        text += f"node {node!r} takes {size_text(most)} at once: raise limits.memory of {node!r}"
        raise RemoteProtocolError(text, peer=taking.owner, code="E_MEMORY")

    def gave_up(self, peer: str, message: GiveUp) -> None:
        """The owner sends no more of this attempt, and what was followed by it stays as it is; or it doesn't
        need the room that it asked for."""
        self._promises.give_back(peer, message.fragment, message.attempt)
        taking = self._coming.get(message.fragment)
        if taking is not None and (taking.owner, taking.attempt) == (peer, message.attempt):
            self._coming.pop(message.fragment).drop()
        followed = self._followed.get(message.fragment)
        same = followed is not None and (followed.owner, followed.attempt) == (peer, message.attempt)
        if message.code == RELEASED and same:
            self._released[message.fragment] = message.attempt
            self._drop_released()

    def _drop_released(self) -> None:
        """What others hold now, once it is known here that our word counts no more."""
        for name, attempt in list(self._released.items()):
            taking = self._followed.get(name)
            if taking is None or taking.attempt != attempt:
                del self._released[name]
                continue
            configuration = self._configuration(name.partition("/")[0])
            replicas = None if configuration is None else replicas_of(configuration, name)
            if replicas is not None and self._settings.name not in (replicas.owner, *replicas.secondaries):
                del self._released[name]
                self.drop(name, only=taking)

    def _give_up(self, taking: StateReceiver, code: str, text: str) -> None:
        self.drop(taking.spec.name, only=taking)
        most = limits.TEXT_CHARS_MAX
        over = GiveUp(fragment=taking.spec.name, attempt=taking.attempt, code=code, text=text[:most])
        self._outbox.send(taking.owner, over)

    # --- ends ---------------------------------------------------------------------------------------

    def open(self, now_us: int, fragment: str) -> None:
        """It is ours once it is on our disk: have it run, from what is held of it. ``shadow`` says whether it
        does."""
        taking = self._followed.get(fragment)
        if taking is None:
            return
        try:
            taking.open(now_us)
        except RemoteProtocolError as error:
            self._outbox.report(
                "error", "fragment can't be opened", fragment=fragment, owner=taking.owner, why=error.message
            )
            self.drop(fragment, only=taking)

    def take(self, fragment: str) -> StateReceiver:
        """It is taken over: it is followed no more, and nothing of it is dropped."""
        if (coming := self._coming.pop(fragment, None)) is not None:
            coming.drop()
        return self._followed.pop(fragment)

    def take_heir(self, fragment: str) -> Heir:
        """It is begun anew here: it is followed no more."""
        return self._heirs.pop(fragment)

    def inherit(self, spec: FragmentSpec, owner: str) -> None:
        """What was ours is another's, and we could begin it anew: it keeps nothing."""
        ticket = self._next_token()
        self._heirs[spec.name] = Heir(spec=spec, owner=owner, attempt=0, ticket=ticket)

    def drop(self, fragment: str, *, only: StateReceiver | None = None) -> None:
        """Follow a fragment no more; ``only``: if this is what follows it."""
        if only is None:
            self._heirs.pop(fragment, None)
        self._held_frames.pop(fragment, None)
        for known in (self._coming, self._followed):
            if fragment in known and only in (None, known[fragment]):
                known.pop(fragment).drop()

    def removed(self, query: str) -> None:
        """The query is no more."""
        self._promises.forget(query=query)
        for name in [name for name in self._deferred_seeds if name.partition("/")[0] == query]:
            del self._deferred_seeds[name]
        for name in [*self._coming, *self._followed, *self._heirs]:
            if name.partition("/")[0] == query:
                self.drop(name)

    # --- what the driver brings -----------------------------------------------------------------------

    def ran(self, now_us: int, fragment: str) -> None:
        """What follows fed its oldest element."""
        if (taking := self._followed.get(fragment)) is not None:
            taking.ran(now_us)

    def failed(self, fragment: str, why: str, code: str = "") -> None:
        """What follows can't; ``code``: it takes more than it may here."""
        if (taking := self._followed.get(fragment)) is not None:
            node = self._settings.name
            self._give_up(taking, code or "E_FAILED", f"node {node!r} can't follow: {why}")

    def persisted(self, now_us: int, token: int, ok: bool, why: str) -> bool:
        """A checkpoint of what follows is on disk, or isn't; whether it was of one."""
        for taking in list(self._followed.values()):
            if taking.shadow is not None and taking.shadow.persisted(now_us, token, ok, why):
                taking.persisted(now_us, token, ok, why)
                if taking.broken is not None:
                    self._give_up(taking, *taking.broken)
                return True
        return False

    # --- time -----------------------------------------------------------------------------------------

    def tick(self, now_us: int) -> None:
        """Acknowledge what is due, hear who came too early, write decisions again that couldn't be
        written."""
        self._promises.expire(now_us)
        self._drop_released()
        if self._early and now_us >= self._early_at_us:
            self._early_at_us = now_us + EARLY_US
            early, self._early = self._early, {}
            for peer, whole, payload in early.values():
                self._look_again(now_us, peer, whole, payload)
        for name in [name for name in self._deferred_seeds if not self._waits(name)]:
            self._deferred_seeds.pop(name)(now_us)
        for taking in (*self._coming.values(), *self._followed.values()):
            taking.tick(now_us)
            if taking.shadow is not None:
                taking.shadow.tick(now_us)
                taking.note_checkpoint()

    def wake_at_us(self) -> int | None:
        """When ``tick`` has work."""
        times = [self._promises.wake_at_us(), self._early_at_us if self._early else None]
        times += [each.wake_at_us() for each in (*self._coming.values(), *self._followed.values())]
        times += [each.shadow.wake_at_us() for each in self._followed.values() if each.shadow is not None]
        return min((time for time in times if time is not None), default=None)
