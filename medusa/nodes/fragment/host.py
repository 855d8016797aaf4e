"""One fragment on its node: what comes in is fed in order, what comes out is kept and sent on,
and checkpoints say how far both are durable.

    peers ── Input ──> waiting ──> RunFragment ──> ran ──> Output ──> peers
                          │                          │
                          └── rests while a checkpoint is due, and while an output is full

A checkpoint is taken when nothing runs, so the state, the positions of the inputs and the output
belong together. Receivers say *durable* only once it is on disk. Where the output depends on the order
in which the inputs came, that order is logged (``decided``), and output waits for the log.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import msgspec

from medusa.automaton import next_state
from medusa.elements import Element, Shed, Silent, Train
from medusa.engine.held_rows_count import NOTHING, RowsAtRisk
from medusa.nodes.clock.wall_clock import WallClock
from medusa.nodes.consistency.delay_bound import DelayBound
from medusa.nodes.fragment.automaton import (
    LIFE,
    QUIET,
    TURN,
    LifeEvent,
    LifeState,
    TurnEvent,
    TurnState,
)
from medusa.nodes.fragment.change_feed import ChangeFeed, StandbyChangeFeed
from medusa.nodes.fragment.checkpoint_record import InputRecord
from medusa.nodes.fragment.checkpointing import (
    PendingCheckpoint,
    SavedCheckpoint,
    acknowledged_positions,
    taken,
)
from medusa.nodes.fragment.clock_decisions import ClockDecisions, decides
from medusa.nodes.fragment.durability import Durability
from medusa.nodes.fragment.input_log import InputLog
from medusa.nodes.fragment.input_queue import InputQueue
from medusa.nodes.fragment.inputs import FragmentInput, Work
from medusa.nodes.fragment.link_teardown import RESTING, close_links
from medusa.nodes.fragment.new_life import RETRY_US, attach_again
from medusa.nodes.fragment.outputs import FragmentOutput, all_full, leaving, outputs_of
from medusa.nodes.fragment.published_sources import PublishedSources
from medusa.nodes.fragment.publishers import Publishers
from medusa.nodes.fragment.rested_inputs import RestedInputs
from medusa.nodes.fragment.subscribers import Subscribers
from medusa.nodes.fragment.thinning import Thinning
from medusa.nodes.fragment.upstreams import at_feeds, known_inputs
from medusa.nodes.spec.fragment_spec import FragmentSpec
from medusa.nodes.upstream_backup.marks import STEP, Marks
from medusa.ports import Buffer
from medusa.query.boxes import Schema, Source
from medusa.query.boxes.shedding_rule import SheddingRule
from medusa.wire.link.automaton import LinkEvent, LinkSettings, ReceiverState
from medusa.wire.link.fence import Fence
from medusa.wire.link.receiver import ReceiverMessage
from medusa.wire.messages.links import Ack, Attach, Detach, OpenPublisher, Refuse
from medusa.wire.outbox import GAVE_WAY, Outbox, RunFragment

__all__ = ["FragmentHost"]

FORKED_US = 1_000_000
"""A checkpoint that is due while the engine copies the state for a fork waits so long, again and again. Too
small: it is looked for nothing; too large: it is that late."""

AWAITED_US = 50_000
"""Where output waits for a checkpoint, it is taken so long after the one before, unless the fragment has a
time of its own. Too small: the fragment does little else; too large: so long does output wait."""

AWAITED_TIMES = 3
"""So many times as long as the last one took, from its beginning until all held it: that takes a third of the
time at most, however large the state is."""

RUNNING_MAX = 64
"""Elements under way to the engine. Too few: it waits for us; too many: a checkpoint waits for it."""


PRESSED_MAX = 2
"""While there is too much and rows may be left out: what is under way can't be any more. Too few: the
engine waits for us; too many: what is decided holds that much later."""


class FragmentHost:
    """One installed fragment.

    Attributes:
        spec: what was installed; ``link_of`` says what holds for a stream that leaves it.
        failed: why it stopped for good; empty while it runs, or stops with its node.
        mixed: its output depends on how its inputs interleave, so it leaves only once that is on disk.
        decided: what it was fed, and how much of that is.
        rows_in: fed since the process started.
        forgets: nothing of it is kept over the end of its node.
        known_lost: rows that died with earlier lives of one that forgets.
        known_lost_by: those rows by the source that they came by, as far as that is known.
        lost_unknown: of some of those lives nobody can say.
        uncounted: boxes whose rows would die with it, and nobody could say how many.
        tap: takes what it is fed while it is copied, to another node or into other fragments; None: it isn't.
        standby_taps: take what it is fed for its secondaries.
        durability: what must be true before output leaves and input is acknowledged.
        checkpoint_on_disk: the newest one that is on our disk, by token; 0: none.
        epoch: in which it is surely this node's (``Attach.fragment_epoch``); 0: nobody has said.
        held: what checkpoints say of whose it is (``Catalog.held``).
        marks: of one that is recovered by upstream backup; None: it isn't.
        bound: forks it where an input is missing; None: no output that it feeds has ``delay``.
        thinning: counts what is left out of its sources and above them, and tells who reads.
        shares: of sources, what is left out of them, in millionths; of one that isn't here it isn't known any
            more.

    Args:
        fence: by which configuration of its query its links go.
        durability: the policy of this fragment alone.
        checkpoint_every_us: a checkpoint is due so long after the last one.
        broken_since_us: since when a node or client isn't heard, or doesn't hear us; None: all is well.
        is_foreign: whether a node is of another participant than the fragment.
    """

    known_lost = 0
    known_lost_by: Mapping[str, int] = MappingProxyType({})
    forgets = False
    uncounted: tuple[str, ...] = ()
    tap: ChangeFeed | None = None
    standby_taps: tuple[StandbyChangeFeed, ...] = ()
    lost_unknown = False

    def __init__(
        self,
        spec: FragmentSpec,
        *,
        incarnation: int,
        outbox: Outbox,
        link: LinkSettings,
        link_of: Callable[[str], LinkSettings] | None = None,
        durability: Durability,
        checkpoint_every_us: int,
        next_token: Callable[[], int],
        wall: WallClock,
        clean: bool = False,
        saved: SavedCheckpoint | None = None,
        fence: Fence | None = None,
        epoch: Callable[[], int] = lambda: 0,
        held: Callable[[], tuple[str, int]] = lambda: ("", 0),
        broken_since_us: Callable[[str], int | None] = lambda peer: None,
        is_foreign: Callable[[str], bool] = lambda node: False,
    ) -> None:
        checked = spec.taken()
        saved = at_feeds(spec, saved)
        record = saved.record if saved else None
        self.spec = spec
        self.epoch = epoch
        self.held = held
        self.failed = ""
        self._life = LifeState.RUNNING
        self._turn = TurnState.OPEN
        self.checkpoints = self.checkpoint_failures = 0
        self.disk_error = ""
        """Why the last checkpoint couldn't be written; empty: it could."""
        self._incarnation = incarnation
        self._outbox = outbox
        self._fence = fence or Fence()
        self._link = link
        self._every_us = checkpoint_every_us
        self._next_token = next_token
        self._sources = {box.id: box for box in spec.graph.boxes if isinstance(box, Source)}
        # A secondary has to feed what publishers bring in the order in which the owner did.
        guarded = durability.guarded and bool(spec.entries) and not spec.reads_again
        self.durability = durability
        decided = decides(spec.graph) or guarded or bool(record and record.mixed)
        self.mixed = durability.keeps and decided
        self._mixed_durable = self.mixed or not durability.keeps
        decisions = saved.decisions if saved else ()
        self.inputs: dict[tuple[str, str], FragmentInput] = {}
        fed_us = record.fed_us if record else {}
        self._entries = PublishedSources(
            self._sources, spec.entries, self.inputs, fed_us=fed_us, grace_us=link.idle_us
        )
        for known in known_inputs(spec, record.inputs if record else (), decisions):
            self._add_input(*known)
        self.outputs = outputs_of(
            spec,
            checked.shapes,
            outbox=outbox,
            link_of=link_of or (lambda stream: link),
            next_token=next_token,
            clean=clean,
            records=record.outputs if record else (),
            logs=saved.logs if saved else None,
            fence=self._fence,
            guarded=durability.guarded,
            marks=record.marks if record else None,
        )
        self.thinning = Thinning(
            spec,
            checked,
            self.inputs,
            self.outputs,
            record.shed if record else {},
            is_foreign=is_foreign,
        )
        self.marks = Marks(spec, self._sources, record) if spec.reads_again and durability.keeps else None
        self.subscribers = Subscribers(self.outputs, outbox=outbox, changed=self.changed)
        self.publishers = Publishers(
            self.inputs,
            self._publisher,
            self.changed,
            lambda: bool(self.repeating),
            outbox=outbox,
            has_name=self._has_name,
        )
        at = record.decided if record else 0
        self.decided = InputLog(spec.name, outbox=outbox, next_token=next_token, at=at, usable=self.mixed)
        clocked = ClockDecisions(
            spec, self._sources, wall, incarnation=incarnation, outbox=outbox, settings=link
        )
        self._feeding = InputQueue(
            spec.name,
            decisions,
            self.inputs,
            self._entries,
            self.decided,
            outbox,
            clocked,
            next_token=next_token,
            memory_bytes_max=link.waiting_bytes_max,
            disk_bytes_max=link.waiting_disk_bytes_max if durability.keeps else 0,
        )
        if self.marks is not None and (warm_up := self.marks.begin(self.inputs, self._entries, outbox)):
            self._feeding.warms_up(warm_up)
        self._running: deque[Work] = deque()
        self._newest: Work | None = None
        self._made: deque[tuple[int, FragmentOutput, int]] = deque()
        """Output that waits for the log: the decision that made it, and how many pieces."""
        self._began_at = at
        # Of what a checkpoint says was held back nobody knows any more which decision made it: the last one,
        # at most.
        self._made += [(at - 1, output, output.held) for output in self.outputs.values() if output.held]
        self._running_bytes = 0
        self._writing: PendingCheckpoint | None = None
        self.checkpoint_on_disk = record.token if record else 0
        self._uncovered: deque[PendingCheckpoint] = deque()
        """Checkpoints that the policy doesn't hold for durable yet, the one under way included."""
        if durability.guarded and record is not None:
            self._uncovered.append(
                PendingCheckpoint(
                    token=record.token,
                    positions=acknowledged_positions(self.inputs.values(), self.marks),
                    outputs=[(sink, output.rows) for sink, output in self.outputs.items()],
                    decided=record.decided,
                    places=[],
                    mixed=record.mixed,
                )
            )
        self._renumbers = False
        """Its rows are to have other numbers, from the next checkpoint on."""
        self._renumbered = 0
        """The checkpoint by which they have, by token; nothing is fed until it is on disk."""
        self._shown = self._acknowledged = 0
        """Of the decisions below the first something has left; of the second, the newest checkpoint up to
        which input was acknowledged, by token. Both in this life: a secondary begins with a checkpoint of
        this life."""
        self._dirty = record is None
        self._checkpoint_at_us: int | None = None
        self._began_us = self._took_us = 0
        """When the newest checkpoint was taken; how long the policy took to hold one for durable."""
        self._wanted = False
        self._retry: dict[tuple[str, str], int] = {}
        self._unlinked = False
        """It rests for long, and another node reads what it read: it asks nobody for rows."""
        self.rows_in = 0
        self._is_pressed = False
        self.shares: dict[str, int] = {} if saved is not None else dict.fromkeys(self._sources, 0)
        self.bound: DelayBound | None = None
        if spec.delay_us:
            restored = record is not None or self.forgets or spec.reads_again
            self.bound = DelayBound(
                self,
                broken_since_us,
                restored=restored,
                outbox=outbox,
                next_token=next_token,
                waiting_bytes_max=link.waiting_bytes_max,
                grace_us=link.idle_us,
            )

    def _add_input(
        self, source: str, stream: str, peer: str, record: InputRecord | None = None
    ) -> FragmentInput:
        life, about = self._incarnation, (self._sources[source], stream, peer)
        self.inputs[source, peer] = made = FragmentInput(
            *about,
            incarnation=life,
            outbox=self._outbox,
            settings=self._link,
            record=record,
            guarded=self.durability.guarded,
            fence=self._fence if self._sources[source].of is None else None,
            tentative=self.spec.delay_us > 0,
        )
        made.receiver.fragment_epoch = lambda: self.epoch()
        return made

    @property
    def lost_rows(self) -> int:
        """Input rows that are lost."""
        return self.known_lost + sum(input.receiver.lost_rows for input in self.inputs.values())

    @property
    def lost_by(self) -> dict[str, int]:
        """Those rows by the source that they came by; of what an earlier release counted nobody may know."""
        found = {**dict.fromkeys(self._sources, 0), **self.known_lost_by}
        for input in self.inputs.values():
            found[input.source] += input.receiver.lost_rows
        return found

    def change_spec(self, **changes: Any) -> FragmentSpec:
        """Whom it is linked with, or what its streams are called, is another from now on; its boxes stay."""
        self.spec = msgspec.structs.replace(self.spec, **changes)
        return self.spec

    def begin(self, now_us: int) -> None:
        """The node starts: publishers known from before have some time to come back."""
        self._entries.begin(now_us)
        if self.bound is not None:
            self.bound.begin(now_us)

    # --- its state ------------------------------------------------------------------------------

    @property
    def frozen(self) -> bool:
        """It feeds and emits nothing: it isn't its turn."""
        return self._turn in QUIET

    @property
    def settling(self) -> bool:
        """To be split or merged: no checkpoint is due, and planned readers may attach, frozen or not."""
        return self._turn in (TurnState.SETTLING, TurnState.RESTING)

    @property
    def follows(self) -> bool:
        """It was just made, and is fed what others are fed until it is its turn."""
        return self._turn is TurnState.FOLLOWING

    @property
    def _stopping(self) -> bool:
        return self._life in (LifeState.STOPPING, LifeState.HALTED)

    def _lives(self, event: LifeEvent) -> None:
        self._life = next_state(LIFE, self._life, event, of=f"fragment {self.spec.name!r}")

    def _turns(self, event: TurnEvent) -> None:
        self._turn = next_state(TURN, self._turn, event, of=f"fragment {self.spec.name!r}")

    def freeze(self) -> None:
        """Feed and emit nothing more, acknowledge nothing as durable, until ``thaw``."""
        self._turns(TurnEvent.FREEZE)
        self._mute()

    def hold(self, *, follow: bool = False) -> None:
        """Feed and emit nothing yet: others have its links until ``thaw``.

        Args:
            follow: it is fed what those are fed.
        """
        if self._turn is not TurnState.WAITING:
            self._turns(TurnEvent.HOLD)
            self._mute()
        if follow:
            self._turns(TurnEvent.FOLLOW)

    def _mute(self) -> None:
        self._end_forks()
        for output in self.outputs.values():
            output.sender.muted = True

    def _unmute(self, now_us: int) -> None:
        for output in self.outputs.values():
            output.sender.muted = False
            output.sender.settle(now_us)

    def settle(self) -> None:
        """It is to be split or merged: take no checkpoint, and leave in memory what is there."""
        self._turns(TurnEvent.SETTLE)
        self._end_forks()
        for output in self.outputs.values():
            output.spilling.pause()

    def rest(self, now_us: int) -> None:
        """Feed nothing more; what came out before goes on its way."""
        self.freeze()
        self._unmute(now_us)

    def thaw(self, now_us: int) -> None:
        """Go on."""
        self._turns(TurnEvent.THAW)
        self._unmute(now_us)
        self._pump(now_us)

    def own(self, now_us: int, secondaries: Collection[str] = ()) -> None:
        """It is ours, or again: go on where it stands. Its links begin when their peers are up.

        Args:
            secondaries: whose word counts from now on.
        """
        self.durability.require(secondaries)
        self._unlinked = False
        self._link_anew(now_us)
        self.begin(now_us)
        # Who reads has waited already: the fragment rests for a checkpoint later. Its first is on disk.
        self._checkpoint_at_us = now_us + self._every_us
        self.thaw(now_us)
        self.secondaries_said(now_us)

    def unlink(self, now_us: int) -> None:
        """It rests, and whoever has it reads in its place until ``own``."""
        self._unlinked = True
        self._link_anew(now_us)

    def _link_anew(self, now_us: int) -> None:
        """Nodes that it reads from have had another reader meanwhile."""
        self._retry.clear()
        for input in self.inputs.values():
            if input.judged:
                input.redirect(now_us, input.peer, up=False)

    def tapped(self, tap: ChangeFeed | None) -> None:
        """From now on this takes what the fragment is fed; None: nothing does."""
        self.tap = tap

    def tapped_for_standbys(self, taps: tuple[StandbyChangeFeed, ...]) -> None:
        """From now on these take what the fragment is fed, for its secondaries."""
        self.standby_taps = taps
        self._offer_mark()

    @property
    def counted(self) -> Collection[str]:
        """The secondaries whose word counts."""
        return self.durability.secondaries

    def count_on(self, now_us: int, secondaries: Collection[str]) -> None:
        """From now on the words of these secondaries count, and of no others."""
        self.durability.require(secondaries)
        self.secondaries_said(now_us)

    def secondary_said(self, now_us: int, secondary: str, *, decided: int, covered: int) -> None:
        """A secondary has so much: see ``Durability.heard``."""
        if self.durability.heard(secondary, decided=decided, covered=covered):
            self.secondaries_said(now_us)

    def secondaries_said(self, now_us: int) -> None:
        """``durability`` has changed: let go what may leave, acknowledge what is covered."""
        self._cover(now_us)
        self._release(now_us)
        self._pump(now_us)

    def stands_in(self, secondary: str) -> bool:
        """Whether a node whose word counts could take over: it has all that was shown and acknowledged."""
        return self.durability.has(secondary, decided=self._shown, covered=self._acknowledged)

    @property
    def released(self) -> int:
        """What came of decisions below this one has left, or may leave."""
        running = next((work.number for work in self._running if work.number >= 0), self.decided.at)
        return min(running, self._made[0][0]) if self._made else running

    def _taps(self) -> tuple[ChangeFeed, ...]:
        return self.standby_taps if self.tap is None else (self.tap, *self.standby_taps)

    def fail(self, why: str) -> None:
        """The engine can't go on: stop feeding. What is kept stays, and status tells why."""
        self._lives(LifeEvent.FAIL)
        self.failed = why
        if self.bound is not None:
            self.bound.fail()
        self._outbox.report("error", "fragment failed", fragment=self.spec.name, why=why)

    def drop(self, why: str) -> None:
        """It is no more here; its links are left as they are."""
        self._lives(LifeEvent.CLOSE)
        self.failed = why
        self._end_forks()

    def close(self, why: str, code: str = "E_REMOVED") -> None:
        """End all links: upstream keeps nothing more for us, readers and publishers hear why."""
        self.drop(why)
        close_links(self.inputs.values(), self.outputs.values(), self._outbox, why, code)

    @property
    def streams_in(self) -> int:
        """Incoming streams that have credit."""
        return sum(input.judged or input.silent_since_us is None for input in self.inputs.values())

    @property
    def under_way(self) -> bool:
        """The engine has something of it to do."""
        return bool(self._running)

    @property
    def behind(self) -> int:
        """Elements that the engine hasn't fed yet."""
        return len(self._running)

    @property
    def logged_all(self) -> bool:
        """What it was fed would be found again, where the order matters."""
        return not self.mixed or self.decided.durable >= self.decided.at

    @property
    def decisions_begun(self) -> int:
        """Decisions below it are in the checkpoint that this life began with: of what that held back
        ``decisions_shown`` says at most which made it."""
        return self._began_at

    @property
    def decisions_shown(self) -> int:
        """Of decisions below it something has left, in this life."""
        return self._shown

    @property
    def decisions_fed(self) -> int:
        """Decisions below it were made, or made again since a restart."""
        return self.decided.at

    @property
    def decisions_on_disk(self) -> int:
        """Decisions below it are on our disk."""
        return self.decided.durable

    def received(self, sink: str) -> int | None:
        """Every receiver of this output has the rows below it; None: there is no receiver."""
        return self.outputs[sink].received

    @property
    def quiet(self) -> bool:
        """Frozen, and nothing of it is under way any more: to the engine, to the log or to disk."""
        busy = self._running or self._made or self._writing or not self._feeding.idle
        return self.frozen and not (busy or any(output.held for output in self.outputs.values()))

    @property
    def fed_us(self) -> Mapping[str, int]:
        """Source that publishers feed -> the last boundary that it was fed."""
        return self._entries.fed_us

    def waiting(self) -> list[Work]:
        """What has come, isn't fed and is in memory."""
        return self._feeding.waiting()

    @property
    def rested(self) -> RestedInputs:
        """What has come by sources that rest."""
        return self._feeding.rested

    @property
    def repeating(self) -> int:
        """Decisions of before the restart that are not fed again yet."""
        return self._feeding.repeating

    # --- messages ---------------------------------------------------------------------------

    def input_of(self, stream: str, peer: str) -> FragmentInput | None:
        """The input that reads this stream of this peer."""
        return next((i for i in self.inputs.values() if i.by == peer and i.stream == stream), None)

    def receive(
        self, now_us: int, input: FragmentInput, message: ReceiverMessage, payload: Buffer | None
    ) -> None:
        """Take a message for one of our inputs."""
        skipped = input.receiver.skipped
        works = input.receive(now_us, message, payload)
        if input.receiver.skipped > skipped and self.marks is not None:
            self._renumber(now_us)
        if isinstance(message, Refuse) and input.receiver.state is ReceiverState.REFUSED and input.judged:
            self._retry[input.source, input.peer] = now_us + RETRY_US
        if input.receiver.thinned:
            self.thinning.tell()
        self._feeding.came(now_us, works)
        if self.bound is not None:
            self.bound.came(now_us, input, works)
        # Where rows are kept for states that need them, one checkpoint after the other helps nobody.
        soon = self.marks is None or now_us - self._began_us >= AWAITED_US
        self._wanted = self._wanted or (input.receiver.pressed and self._dirty and soon)
        self._pump(now_us)

    def open_publisher(self, now_us: int, peer: str, source: str, schema: Schema) -> None:
        """A publisher has rows for a source.

        Raises:
            RemoteProtocolError: other columns than the source's, or the source has ended.
        """
        if self._stopping or self.frozen or (self.tap is not None and self.tap.closed):
            return  # It asks again at the next start, or where it went.
        known = self.inputs.get((source, peer))
        if known is not None:
            known.repeat_not_taken()
            if not self._feeding.is_joining(known) and known.receiver.state in RESTING:
                known.receiver.peer_event(now_us, LinkEvent.PEER_RESTARTED)
            return
        made = self._publisher(peer, source, schema, peer)
        if self.mixed:
            self._feeding.joins(made)
            for tap in self._taps():
                tap.joined(made, self._feeding.joined_as(made))
            self._dirty = True
            self._pump(now_us)
        else:
            made.receiver.peer_event(now_us, LinkEvent.PEER_UP)

    def open_named_publisher(
        self, now_us: int, peer: str, source: str, message: OpenPublisher, *, owner: str, others: int
    ) -> None:
        """A publisher has rows under a name: see ``Publishers.open``."""
        if not (self._stopping or self.frozen):
            self.publishers.open(now_us, peer, source, message, owner=owner, others=others)

    def _has_name(self, input: FragmentInput) -> None:
        """A secondary has to know whose a name is before that one goes on there."""
        for tap in self.standby_taps:
            tap.joined(input, -1)

    def _publisher(self, peer: str, source: str, schema: Schema, key: str) -> FragmentInput:
        others = self._entries.check_publisher(peer, source, schema, self._feeding.awaited)
        made = self._add_input(source, self.spec.entries[source], key)
        if others and not self._mixed_durable:
            # Which publisher's row came first is a decision. From now on output waits until those that
            # it depends on are on disk, and from the next checkpoint on they are logged.
            self.mixed = self._wanted = True
            for tap in self._taps():
                tap.give_up("another publisher came, so that the order of arrival matters")
        return made

    def peer_event(self, now_us: int, peer: str, event: LinkEvent) -> None:
        """A node or client came, went or restarted."""
        for input in self.inputs.values():
            if input.by != peer:
                continue
            if event is LinkEvent.PEER_DOWN:
                input.falls_silent(now_us)
            else:
                input.is_heard()
            if not (self._waits(input) or (self._unlinked and input.judged)):
                input.receiver.peer_event(now_us, event)
        for output in self.outputs.values():
            output.sender.peer(now_us, peer, event)
        if event is not LinkEvent.PEER_UP:
            self.subscribers.gone(peer)
        self._look(now_us)

    # --- its forks --------------------------------------------------------------------------

    def _look(self, now_us: int) -> None:
        """Whether an input is missing, or isn't any more."""
        if self.bound is not None:
            self.bound.look(now_us)
            if self._rest():
                self._pump(now_us)

    def _rest(self) -> bool:
        """Feed nothing of the sources that are to rest; whether others are than before."""
        bound = self.bound
        resting = bound.resting if bound is not None and self.may_fork else frozenset[str]()
        return self.rested.rest(resting)

    def weighed(self, now_us: int, held_bytes: int) -> bool:
        """The engine says how much its boxes hold; whether there may be something to do at another time."""
        if self.bound is None or not self.bound.weighed(now_us, held_bytes):
            return False
        self._pump(now_us)
        return True

    def _end_forks(self) -> None:
        if self.bound is not None:
            self.bound.end()

    @property
    def may_fork(self) -> bool:
        """It feeds what comes, as it comes."""
        is_open = self._life is LifeState.RUNNING and self._turn is TurnState.OPEN
        return is_open and not self.frozen and self._feeding.is_live

    @property
    def newest(self) -> Work | None:
        """What the engine was given last, until what came of it may leave; None: all may."""
        return None if self._newest is None or self.has_left(self._newest) else self._newest

    def has_left(self, work: Work) -> bool:
        """Whether this was run, and what came of it may leave."""
        return work.is_over and (work.number < 0 or work.number < self.released)

    def idle_sources(self, now_us: int) -> Collection[str]:
        """Sources with ``idle`` that bring nothing at present."""
        return self._feeding.idle_sources(now_us)

    def _waits(self, input: FragmentInput) -> bool:
        """Whether nothing is asked of its sender yet."""
        return self._feeding.is_joining(input) or self.publishers.rests(input)

    def redirect(self, now_us: int, source: str, node: str, *, up: bool) -> None:
        """A judged source reads from another node from now on, as ``spec`` says; what came stays."""
        old = next(key for key in self.inputs if key[0] == source)
        self._retry.pop(old, None)
        input = self.inputs[source, node] = self.inputs.pop(old)
        self._feeding.renamed(old, (source, node))
        input.redirect(now_us, node, up=up and not self._unlinked)

    # --- what is left out -------------------------------------------------------------------

    @property
    def rules(self) -> dict[str, SheddingRule]:
        """By source what may be left out behind it under overload."""
        if not self.durability.keeps:
            return {}  # What was decided would be forgotten, and other rows left out after that.
        return {id: box.shed for id, box in self._sources.items() if box.shed is not None}

    def sheds(self, source: str) -> bool:
        """Whether rows of this source may be left out under overload."""
        return source in self.rules

    @property
    def may_shed(self) -> bool:
        """Whether rows of some source may be."""
        return bool(self.rules)

    def press(self, pressed: bool) -> None:
        """Whether there is too much for its node: then what comes waits here, and not in the engine."""
        self._is_pressed = pressed

    def waiting_rows(self, source: str) -> int:
        """Rows of a source that have come and weren't run yet, and are in memory."""
        works = (*self._running, *self._feeding.waiting())
        return sum(
            len(work.element)
            for work in works
            if isinstance(work.element, Train) and work.input.source == source
        )

    def shed(self, now_us: int, source: str, share_ppm: int) -> bool:
        """From now on leave out this share of what comes to a source; whether it will be: not while nothing
        is fed as it comes, or nobody has sent to that source yet."""
        input = next((each for (of, _), each in self.inputs.items() if of == source), None)
        if input is None or not (self.sheds(source) and self.may_fork):
            return False
        self._feeding.tells(input, share_ppm)
        self._pump(now_us)
        return True

    # --- the engine -------------------------------------------------------------------------

    def _pump(self, now_us: int) -> None:
        """Feed what may be fed; take the checkpoint that is due."""
        self._end_warm_up(now_us)
        bound = self.bound
        if bound is not None and bound.is_calm:
            bound = None
        if bound is not None:
            self._rest()
        taps = self._taps()
        due = self._wanted and self._writing is None and not self._feeding.repeating
        due = due and self._may_checkpoint and not any(tap.holds_checkpoints for tap in taps)
        running_max = PRESSED_MAX if self._is_pressed else RUNNING_MAX
        if bound is not None and bound.is_late(now_us):
            running_max = 1
        if due and not self._running:
            self._checkpoint(now_us)
            due = self._wanted and self._writing is None
        while (
            not (self.failed or due or self._stopping or self.frozen or self.decided.full)
            and (self.tap is None or not self.tap.full)  # What goes to secondaries is waited for by nobody.
            and not (self._renumbers or self._renumbered > self.checkpoint_on_disk)
            and len(self._running) < running_max
        ):
            if all_full(self.outputs.values(), self._running_bytes, self._link.fragment_bytes_max):
                break
            work = self._feeding.next(now_us, noting=self.mixed)
            if work is None:
                break
            self._dirty = self._dirty or not isinstance(work.element, Silent)
            for tap in taps:
                tap.fed(work)
            if work.element is None:
                work.input.receiver.consumed(now_us, work.cost)
                work.end()
                continue
            if isinstance(work.element, Train):
                self.rows_in += len(work.element)
                if bound is not None:
                    bound.gave(work)
            self._run(work, work.element)
        self.decided.write(now_us)
        if self._end_warm_up(now_us):
            self._pump(now_us)
        elif self.bound is not None and not self.bound.is_calm:
            self.bound.look(now_us)
            if self._rest():
                self._pump(now_us)

    def _end_warm_up(self, now_us: int) -> bool:
        """If the state is that of the mark, go on from there; whether it came to that."""
        marks = self.marks
        if marks is None or marks.warm_up is None or not marks.warm_up.closed or self._running:
            return False
        for output in self.outputs.values():
            output.passed_over()
        marks.warmed_up()
        self._feeding.warmed_up(now_us)
        self._dirty = self._wanted = True
        return True

    @property
    def checkpoint_every_us(self) -> int:
        """Between two of its checkpoints; 0: it takes none."""
        return self._every_us if self.durability.keeps else 0

    @property
    def _may_checkpoint(self) -> bool:
        return not self.frozen

    def _run(self, work: Work, element: Element | Shed | Silent) -> None:
        """Have the engine feed this; ``ran`` says when it has."""
        if isinstance(element, Shed):
            self.shares[work.input.source] = element.share_ppm
        self._running.append(work)
        self._newest = self._newest if isinstance(element, Silent) else work
        self._running_bytes += work.cost
        self._outbox.append(RunFragment(fragment=self.spec.name, stream=work.input.source, element=element))

    def refusal(self, now_us: int, peer: str, message: Attach | Ack) -> Refuse | None:
        """What a reader hears that goes by another configuration of the query; None: it may be heard."""
        return self._fence.refusal(now_us, peer, message)

    def rests_for(self, sink: str, peer: str) -> bool:
        """Whether a reader can't attach yet: nobody knows who the owner is."""
        return self.frozen and not (self.settling and peer in self.spec.readers.get(sink, ()))

    def from_reader(
        self, now_us: int, sink: str, peer: str, message: Attach | Ack | Detach, *, owner: str, others: int
    ) -> None:
        """Take a message of who reads an output: see ``Subscribers.receive``."""
        if isinstance(message, Attach) and self.rests_for(sink, peer):
            return  # It asks again, and then somebody knows who the owner is.
        self.subscribers.receive(now_us, sink, peer, message, owner=owner, others=others)
        self._offer_mark()
        if isinstance(message, Attach):
            self._look(now_us)  # It may be the first that reads what a fork has to say.

    def _noted(self, now_us: int, work: Work, outputs: list[tuple[str, Element]], dying: RowsAtRisk) -> bytes:
        """What goes with the frames of this output, for receivers to keep for us."""
        return b""

    def ran(
        self,
        now_us: int,
        outputs: list[tuple[str, Element]],
        refused: str = "",
        dying: RowsAtRisk = NOTHING,
        shed: int = 0,
    ) -> None:
        """The oldest element under way was fed; this came out.

        Args:
            refused: why the engine took nothing of it.
            dying: what would die with the node.
            shed: rows of it that were left out.
        """
        work = self._running.popleft()
        work.end()
        self._running_bytes -= work.cost
        if isinstance(work.element, Silent):
            self._feeding.answered(outputs)
            self._pump(now_us)
            return
        work.input.receiver.consumed(now_us, work.cost)
        if shed:
            work.input.shed(now_us, shed)
            self.thinning.sheds(work.input.source, shed)
            self.thinning.tell()
        if refused:
            rows = len(work.element) if isinstance(work.element, Train) else 0
            work.input.refused_rows += rows
            about = {"fragment": self.spec.name, "stream": work.input.stream, "why": refused}
            self._outbox.report("error", "input refused", rows=rows, **about)
            if rows and not work.input.judged:
                work.input.tell_not_taken(work.next_seq - rows, work.next_seq, refused)
        if self.marks is not None and not refused:
            self.marks.ran(work)
        note = self._noted(now_us, work, outputs, dying)
        for output, element in leaving(self.outputs, self.spec.guests, outputs):
            if self.marks is not None and self.marks.warm_up is not None:
                output.pass_over(element)
                continue
            held = output.held
            output.take(now_us, element, hold=self.mixed, note=note)
            if output.held > held:
                self._made.append((work.number, output, output.held - held))
        self._release(now_us)
        self._pump(now_us)

    def _release(self, now_us: int) -> None:
        """Let go what the policy says, and let in publishers that the disk knows."""
        below = self.durability.released(self) if self._made else 0
        while self._made and self._made[0][0] < below:
            number, output, count = self._made.popleft()
            self._shown = max(self._shown, number + 1)
            output.release(now_us, count)
        for input in self._feeding.joined():
            if input.silent_since_us is None:
                input.receiver.peer_event(now_us, LinkEvent.PEER_UP)

    def logged(self, now_us: int, ok: bool, why: str = "") -> None:
        """A write of the decision log is durable, or failed."""
        self.decided.logged(now_us, ok, why)
        self._release(now_us)
        self._pump(now_us)

    # --- checkpoints ------------------------------------------------------------------------

    def stop(self, now_us: int) -> None:
        """Feed nothing more, and take a last checkpoint if there is anything new.

        ``at_rest`` says when it is done. What comes from now on stays with who sent it.
        """
        self._lives(LifeEvent.STOP)
        self._end_forks()
        self._wanted = self._wanted or self._dirty
        self._pump(now_us)

    def changed(self, now_us: int, soon: bool) -> None:
        """There is something beside rows that a checkpoint should hold."""
        if self._stopping:
            return  # Who wants it kept asks again.
        self._dirty = True
        self._wanted = self._wanted or soon
        self._pump(now_us)

    @property
    def at_rest(self) -> bool:
        """Nothing runs, and everything that happened is on disk."""
        if self.failed or self.frozen or self._feeding.repeating:  # Then the log has what happened.
            return True
        return not (self._dirty or self._running or self._writing or self._wanted)

    def base(self, now_us: int) -> int:
        """Write what it begins with as its first checkpoint; the token."""
        self._checkpoint(now_us)
        assert self._writing is not None
        return self._writing.token

    def _checkpoint(self, now_us: int) -> None:
        if not self.durability.keeps:
            self._wanted = self._dirty = False
            return
        token = self._next_token()
        if self._renumbers:
            for output in self.outputs.values():
                output.skip(now_us, STEP)
        if self._renumbers or self._renumbered > self.checkpoint_on_disk:
            self._renumbers, self._renumbered = False, token
        self._writing, persist = taken(
            self.spec,
            token,
            inputs=self.inputs.values(),
            outputs=self.outputs.values(),
            fed_us=self._entries.fed_us,
            mixed=self.mixed,
            decided=self.decided.at,
            held=self.held(),
            alone=self.tap is not None or any(not tap.begun for tap in self.standby_taps),
            marks=self.marks,
            keep=self.rested.tokens,
            shed=self.thinning.places,
        )
        self._uncovered.append(self._writing)
        for tap in self._taps():
            tap.begins(token, self.decided.at)
        self.subscribers.covered(token)
        self.publishers.covered(token)
        self.decided.turn(token)
        self._wanted = self._dirty = False
        self._began_us, self._checkpoint_at_us = now_us, now_us + self._every_us
        self._outbox.append(persist)

    def fetched(self, now_us: int, token: int, payloads: Sequence[Buffer], why: str) -> None:
        """What was asked for of a segment was read; or why it couldn't be."""
        if self.rested.fetched(now_us, token, payloads, why):
            if self._feeding.has_asked_again():
                self._end_forks()  # They have had what comes again.
            self._pump(now_us)
            return
        for output in self.outputs.values():
            if output.spilling.fetched(now_us, token, payloads, why):
                return

    def persisted(self, now_us: int, token: int, ok: bool, why: str = "") -> bool:
        """A checkpoint or a segment is durable, or failed; whether it was ours."""
        if any(output.spilling.written(now_us, token, ok, why) for output in self.outputs.values()):
            self._pump(now_us)
            return True
        if self.rested.written(now_us, token, ok, why):
            return True
        writing = self._writing
        if writing is None or writing.token != token:
            return False
        self._writing = None
        for tap in self._taps():
            tap.persisted(token, ok, why)
        if not ok:
            self._uncovered.pop()
            if self.marks is not None:
                self.marks.failed(token)
            self._dirty = True
            if why == GAVE_WAY:
                self._checkpoint_at_us = now_us + min(FORKED_US, self._every_us)
            else:
                self._fails_to_persist(why)
        else:
            self.checkpoints += 1
            if self.disk_error:
                self._outbox.report("info", "checkpoint written again", fragment=self.spec.name)
            self.disk_error = ""
            for output, where in writing.places:
                output.stored(where)
            self.decided.covered(writing.decided, usable=writing.mixed)
            if writing.mixed:
                self._mixed_durable = True
            self.checkpoint_on_disk = token
            self._offer_mark()
            self._release(now_us)
            self._cover(now_us)
        if not ok:
            self.subscribers.persisted(now_us, token, ok)
            self.publishers.persisted(now_us, token, ok)
        self._pump(now_us)
        return True

    def _fails_to_persist(self, why: str) -> None:
        self.checkpoint_failures += 1
        if not self.disk_error:  # Once: it is tried again and again, and status goes on saying why.
            self._outbox.report("error", "checkpoint failed", fragment=self.spec.name, why=why)
        self.disk_error = why

    def _renumber(self, now_us: int) -> None:
        """Rows of an input come again, maybe in another order: what comes of them has other numbers too, once
        that is on disk."""
        if self.marks is None or self.marks.warm_up is not None:
            return  # Nothing has come of it yet.
        self._feeding.renumbered(now_us)
        self._renumbers = self._wanted = self._dirty = True

    def _offer_mark(self) -> None:
        """Those who stand by are sent the newest mark."""
        if self.marks is None:
            return
        if self.marks.waits(self.checkpoint_on_disk):
            held = {output.sink: output.held_durably for output in self.outputs.values()}
            if not any(input.receiver.pressed for input in self.inputs.values()):
                # What nobody has read is kept for who may come, as long as senders have room.
                kept = {output.sink: output.kept_from for output in self.outputs.values()}
                held = {sink: kept[sink] if at is None else at for sink, at in held.items()}
            self.marks.settle(self.checkpoint_on_disk, held)
        if (mark := self.marks.newest) is not None:
            for tap in self.standby_taps:
                tap.offer(mark)

    def _cover(self, now_us: int) -> None:
        """Acknowledge what checkpoints hold that the policy holds for durable."""
        for writing in self.durability.acknowledged(self._uncovered, self):
            self._acknowledged = writing.token
            self._took_us = max(now_us - self._began_us, 0)
            for input, seq, boundary_us in writing.positions:
                input.receiver.durable(now_us, seq)
                input.durable_us = boundary_us
            self.subscribers.persisted(now_us, writing.token, True)
            self.publishers.persisted(now_us, writing.token, True)

    # --- time -------------------------------------------------------------------------------

    @property
    def _awaited_at_us(self) -> int | None:
        """When a checkpoint is due since output waits for it: secondaries hold checkpoints, and nothing that
        came since. None: none is, or one is on its way."""
        if not (self._made and self._dirty and self.counted):
            return None
        passive = self.spec.ships_checkpoints
        if not (passive or any(tap.ships_checkpoints for tap in self.standby_taps)):
            return None
        if self._wanted or self._writing is not None or self._uncovered or self.settling or self.frozen:
            return None
        pause_us = (self.spec.checkpoint_every_us if passive else 0) or AWAITED_US
        return self._began_us + max(pause_us, AWAITED_TIMES * self._took_us)

    def tick(self, now_us: int) -> None:
        """Do what is due: checkpoints, acks, retries."""
        uncovered = self._uncovered if self.marks is None else self._writing or self.marks.warm_up
        rests = not (uncovered or self.frozen or self.tap or self._feeding.repeating)
        if attach_again(now_us, self._retry, self.inputs, rests=rests, checkpoints=self.checkpoints):
            for tap in self.standby_taps:
                tap.give_up("a stream began anew, which a secondary can't follow")
            self._forget_marks()
            self.changed(now_us, True)
        for input in self.inputs.values():
            input.receiver.tick(now_us)
        self.thinning.tell()
        for output in self.outputs.values():
            output.tick(now_us)
        self._offer_mark()
        self._feeding.tick(now_us)
        if self._checkpoint_at_us is None:
            self._checkpoint_at_us = now_us + self._every_us
        if now_us >= self._checkpoint_at_us and self._is_forked(now_us):
            self._checkpoint_at_us = now_us + min(FORKED_US, self._every_us)
        elif now_us >= self._checkpoint_at_us:
            self._checkpoint_at_us = now_us + self._every_us
            outdated = any(output.spilling.outdated for output in self.outputs.values())
            self._wanted = self._wanted or ((self._dirty or outdated) and not self.settling)
        awaited_us = self._awaited_at_us
        self._wanted = self._wanted or (awaited_us is not None and now_us >= awaited_us)
        self._pump(now_us)
        self._look(now_us)

    def _is_forked(self, now_us: int) -> bool:
        """Whether a checkpoint that is due waits, but not for long: the engine is copying the state for a
        fork, and would copy the rest of it in one go."""
        is_copying = self.bound is not None and self.bound.is_copying
        return is_copying and now_us - self._began_us < 2 * self._every_us

    def _forget_marks(self) -> None:
        """Positions of before say nothing of a stream that began anew."""
        if self.marks is not None:
            self.marks.begun_anew()
            self._uncovered.clear()

    def wake_at_us(self) -> int | None:
        """When ``tick`` has work."""
        times = [self._checkpoint_at_us if self._dirty else None, self._awaited_at_us]
        times.append(self.decided.wake_at_us())
        times += [self._feeding.wake_at_us(), *self._retry.values()]
        times += [input.receiver.wake_at_us() for input in self.inputs.values()]
        times += [output.wake_at_us() for output in self.outputs.values()]
        times.append(None if self.bound is None else self.bound.wake_at_us())
        return min((time for time in times if time is not None), default=None)
