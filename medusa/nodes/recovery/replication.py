"""What an owner sends its secondaries, and what they say of it. No IO.

    fragment ── what it is fed ──> a tap each ──> frames ──> secondary
        ^── has so much, has on disk what checkpoint N holds ──┘

A fragment never waits for a secondary that is slow: one that is too far behind is given up and seeded anew.
Which of them count, the configuration says; ``succession`` proposes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgspec

from medusa.automaton import next_state
from medusa.nodes.catalog.catalog import Catalog
from medusa.nodes.fragment.change_feed import StandbyChangeFeed
from medusa.nodes.fragment.host import FragmentHost
from medusa.nodes.migration.state_sender import StateSender
from medusa.nodes.recovery.backup_holders import followers_wanted
from medusa.nodes.recovery.checkpoint_shipping import CheckpointFeed, CheckpointSender
from medusa.nodes.recovery.replication_automaton import REPLICATION, ReplicationEvent, ReplicationState
from medusa.nodes.recovery.rewiring import replicas_of, rewired
from medusa.nodes.recovery.standby_kind import is_idle
from medusa.nodes.reports import Copied
from medusa.nodes.spec.fragment_spec import FragmentSpec, fragment_to
from medusa.query.recovery import STATE_BACKUP
from medusa.wire.link.automaton import LinkEvent
from medusa.wire.messages.configuration import Configuration, Replicas
from medusa.wire.messages.move import GiveUp, Got, Ready, Seed
from medusa.wire.outbox import Outbox
from medusa.wire.status_and_metrics import FOLLOWING, MISSING, SEEDING, SecondaryStatus

__all__ = ["Replication"]

ASK_AGAIN_US = 300_000
"""An unanswered ``Seed`` is said again after this."""

ASK_US = 5_000_000
"""A node that hasn't answered for so long is asked anew, later."""

REST_US = 100_000
"""So long after a broken link the next one begins, and twice as long after each further one."""

REST_US_MAX = 3_200_000


PASSED_OVER_US = 60_000_000
"""A node that has no room for a state to hold is asked again after this. Too small: a large state is sent
again and again in vain; too large: so long a fragment may be without a backup for
which there is room by now."""

NO_ROOM = ("E_LIMIT", "E_MEMORY")
RELEASED = "E_RELEASED"
"""An owner says with this that another node holds its state now."""

_S, _E = ReplicationState, ReplicationEvent

SHOWN = {
    _S.RESTING: MISSING,
    _S.ASKING: MISSING,
    _S.SEEDING: SEEDING,
    _S.FOLLOWING: FOLLOWING,
}
"""As the status has them."""


@dataclass(slots=True, kw_only=True)
class _Link:
    """One secondary of one fragment.

    Attributes:
        spec: that it was sent.
        fits: the spec here, and the configuration, that were found to fit it; None: none were.
        since_us: since when it is in its state.
        why: how it broke last.
        code: with which the other side refused it then; empty: it didn't.
    """

    fragment: str
    node: str
    state: ReplicationState = _S.RESTING
    attempt: int = 0
    spec: FragmentSpec | None = None
    fits: tuple[FragmentSpec, Configuration] | None = None
    tap: StandbyChangeFeed = field(default_factory=StandbyChangeFeed)
    sender: StateSender | None = None
    since_us: int = 0
    asked_us: int = 0
    again_us: int = 0
    tries: int = 0
    why: str = ""
    code: str = ""

    @property
    def close(self) -> bool:
        """Little of what was fed is on its way to it."""
        return self.sender is not None and self.sender.near

    def move(self, now_us: int, event: ReplicationEvent) -> None:
        """Take a step of the automaton."""
        about = f"secondary {self.node!r} of fragment {self.fragment!r}"
        self.state, self.since_us = next_state(REPLICATION, self.state, event, of=about), now_us


class Replication:
    """The owner's side, for all guarded fragments of a node.

    Args:
        fragments: what runs here, by name.
        configuration: of a query, as far as it is known here.
        is_up: whether a node is there.
        abroad: whether a node is of another participant: how it runs fragments isn't known here.
        next_token: gives the numbers of attempts: larger than any before, over all lives.
        to: the node to which a fragment of ours is ordered; empty: none.
        keeps_here: whether a fragment that we took over is restored in parts, and goes to nobody as a whole.
    """

    def __init__(
        self,
        me: str,
        catalog: Catalog,
        fragments: Mapping[str, FragmentHost],
        *,
        outbox: Outbox,
        configuration: Callable[[str], Configuration | None],
        is_up: Callable[[str], bool],
        abroad: Callable[[str], bool],
        next_token: Callable[[], int],
        to: Callable[[str], str],
        keeps_here: Callable[[FragmentSpec, Replicas], bool],
    ) -> None:
        self._me, self._abroad = me, abroad
        self._to = to
        self._keeps_here = keeps_here
        self._catalog = catalog
        self._fragments = fragments
        self._outbox = outbox
        self._configuration = configuration
        self._is_up = is_up
        self._next_token = next_token
        self._links: dict[tuple[str, str], _Link] = {}
        self._no_room: dict[tuple[str, str], int] = {}
        """Fragment whose state is to be held, and node that had no room for it -> not asked until then."""
        self._unheld: dict[str, None] = {}
        """Fragments of which we said that nobody holds their state."""
        self._now_us = 0

    # --- what is asked --------------------------------------------------------------------------

    def owned(self) -> Iterator[tuple[FragmentHost, Configuration, Replicas]]:
        """Guarded fragments that are this node's."""
        for name, hosted in self._fragments.items():
            configuration = self._configuration(hosted.spec.query) if hosted.spec.standby else None
            replicas = None if configuration is None else replicas_of(configuration, name)
            if configuration is not None and replicas is not None and replicas.owner == self._me:
                yield hosted, configuration, replicas

    def _owned_by(self, spec: FragmentSpec) -> tuple[int, int]:
        """Epoch and number of the configuration by which a fragment is this node's."""
        configuration = self._configuration(spec.query)
        replicas = None if configuration is None else replicas_of(configuration, spec.name)
        return (0, 0) if configuration is None or replicas is None else (replicas.epoch, configuration.number)

    def follows(self, fragment: str, node: str) -> bool:
        """Whether a node has fed nearly all that this fragment was fed."""
        link = self._links.get((fragment, node))
        return link is not None and link.state is _S.FOLLOWING

    def near(self, fragment: str, node: str) -> bool:
        """Whether it has fed all but the last few of them: if it has the fragment next the pause is short.
        One of another participant may work in batches, and is near where it keeps pace."""
        link = self._links.get((fragment, node))
        return self.follows(fragment, node) and link is not None and self._is_close(link)

    def _is_close(self, link: _Link) -> bool:
        steady = link.sender is not None and link.sender.keeps_pace
        return link.close or (steady and self._abroad(link.node))

    def why(self, fragment: str, node: str) -> str:
        """How the last attempt of one that doesn't follow ended; empty: there was none, or it follows."""
        link = self._links.get((fragment, node))
        return "" if link is None else link.why

    def refused(self, fragment: str, node: str) -> tuple[str, str]:
        """Code and text with which one that is to follow refused that last; empty: it didn't."""
        link = self._links.get((fragment, node))
        return ("", "") if link is None or not link.code else (link.code, link.why)

    def status(self, now_us: int, fragment: str, node: str) -> SecondaryStatus:
        """Of a secondary."""
        link = self._links.get((fragment, node))
        if link is None:
            return SecondaryStatus(state=MISSING)
        behind = None if link.sender is None else link.tap.nbytes
        return SecondaryStatus(
            state=SHOWN[link.state],
            since_us=now_us - link.since_us,
            behind_bytes=behind,
            deltas=link.sender.deltas if isinstance(link.sender, CheckpointSender) else None,
        )

    # --- messages ---------------------------------------------------------------------------------

    def has(self, peer: str, fragment: str, attempt: int) -> bool:
        """Whether an attempt is one of ours to that node."""
        link = self._links.get((fragment, peer))
        return link is not None and link.attempt == attempt

    def receive(self, now_us: int, peer: str, message: Ready | Got | GiveUp) -> None:
        """A secondary says something of an attempt that ``has`` knows."""
        link = self._links[message.fragment, peer]
        hosted = self._fragments.get(message.fragment)
        if hosted is None:
            return
        match message:
            case Ready():
                if link.state is _S.ASKING and hosted.spec.keeps_nothing:  # There is nothing to send.
                    link.move(now_us, _E.READY)
                    link.move(now_us, _E.NEAR)
                    link.tries, link.why = 0, ""
                elif link.state is _S.ASKING:
                    link.move(now_us, _E.READY)
                    of = now_us, hosted, message
                    about: dict[str, Any] = {"node": self._me, "target": peer, "outbox": self._outbox}
                    if isinstance(link.tap, CheckpointFeed):
                        link.sender = CheckpointSender(
                            *of, tap=link.tap, owned_by=partial(self._owned_by, hosted.spec), **about
                        )
                    else:
                        link.sender = StateSender(*of, tap=link.tap, **about)
            case Got():
                if link.sender is not None:
                    link.sender.got(now_us, message)
                    self._heard(now_us, hosted, link)
            case GiveUp():
                self._broken(now_us, link, message.text or "it gave up", message.code)

    def _heard(self, now_us: int, hosted: FragmentHost, link: _Link) -> None:
        sender = link.sender
        if sender is None:
            return
        if link.state is _S.SEEDING and self._is_close(link):
            link.move(now_us, _E.NEAR)
            link.tries, link.why = 0, ""
            self._outbox.report("info", "secondary follows", fragment=link.fragment, peer=link.node)
        hosted.secondary_said(now_us, link.node, decided=sender.decided, covered=sender.covered)

    def copied(self, now_us: int, done: Copied) -> None:
        """A checkpoint was read to be sent."""
        for link in self._links.values():
            wanted = link.fragment == done.fragment and link.sender is not None
            if wanted and link.sender is not None and link.sender.token == done.token:
                link.sender.copied(now_us, done)
        if (hosted := self._fragments.get(done.fragment)) is not None:
            hosted.secondaries_said(now_us)  # Its checkpoints go on.

    def peer_event(self, now_us: int, peer: str, event: LinkEvent) -> None:
        """A node came, went or restarted: one that was restarted follows nothing any more."""
        for link in [each for each in self._links.values() if each.node == peer]:
            if event is LinkEvent.PEER_RESTARTED and link.state is not _S.RESTING:
                self._broken(now_us, link, "it was restarted")
                link.again_us = now_us
            elif event is LinkEvent.PEER_UP and link.state is _S.RESTING:
                link.again_us = now_us

    # --- ends ---------------------------------------------------------------------------------------

    def _broken(self, now_us: int, link: _Link, why: str, code: str = "") -> None:
        if link.state is _S.RESTING:
            return
        said = link.state is _S.FOLLOWING
        link.move(now_us, _E.BROKEN)
        link.again_us = now_us + min(REST_US << min(link.tries, 10), REST_US_MAX)
        link.tries += 1
        link.why, link.code = why, code
        link.sender = None
        if code in NO_ROOM and self._is_backed_up(link.fragment):
            self._no_room[link.fragment, link.node] = now_us + PASSED_OVER_US
        self._outbox.report(
            "warning" if said else "info",
            "secondary doesn't follow",
            fragment=link.fragment,
            peer=link.node,
            why=why,
        )
        self._tap(link.fragment)

    def _tap(self, fragment: str) -> None:
        """The fragment feeds the taps of those that are sent what it is fed."""
        if (hosted := self._fragments.get(fragment)) is not None:
            empty = hosted.spec.keeps_nothing
            of = (each for each in self._links.values() if each.fragment == fragment and not empty)
            hosted.tapped_for_standbys(tuple(each.tap for each in of if each.state is not _S.RESTING))

    def drop(self, fragment: str) -> None:
        """It isn't ours any more, or is gone."""
        for key in [key for key in self._links if key[0] == fragment]:
            link = self._links.pop(key)
            if link.state is not _S.RESTING:
                self._outbox.send(link.node, GiveUp(fragment=fragment, attempt=link.attempt))
        for key in [key for key in self._no_room if key[0] == fragment]:
            del self._no_room[key]
        self._unheld.pop(fragment, None)
        if (hosted := self._fragments.get(fragment)) is not None:
            hosted.tapped_for_standbys(())

    # --- who holds the state --------------------------------------------------------------------

    def _is_backed_up(self, fragment: str) -> bool:
        hosted = self._fragments.get(fragment)
        return hosted is not None and hosted.spec.method == STATE_BACKUP

    def wanted(self, spec: FragmentSpec, replicas: Replicas) -> tuple[str, ...]:
        """The nodes that are to follow a fragment of ours: all that may, but of those that hold its state for
        others one."""
        return followers_wanted(
            spec,
            replicas,
            is_up=self._is_up,
            to=self._to(spec.name),
            keeps_here=self._keeps_here(spec, replicas),
            refused=lambda node: self._no_room.get((spec.name, node), 0) > self._now_us,
        )

    def _release(self, hosted: FragmentHost, replicas: Replicas, follow: Sequence[str]) -> None:
        """Nodes whose word counts no more, since another holds the state, need keep nothing."""
        name = hosted.spec.name
        kept = dict.fromkeys((*follow, *replicas.secondaries, *hosted.counted))
        for node in [node for of, node in self._links if of == name and node not in kept]:
            link = self._links.pop((name, node))
            if link.state is not _S.RESTING:
                self._outbox.send(node, GiveUp(fragment=name, attempt=link.attempt, code=RELEASED))
                self._tap(name)

    def _say_unheld(self, hosted: FragmentHost, replicas: Replicas, follow: Sequence[str]) -> None:
        """Once: nobody is there that could hold it, and why not."""
        name = hosted.spec.name
        if follow or self._keeps_here(hosted.spec, replicas):
            self._unheld.pop(name, None)
        elif name not in self._unheld:
            self._unheld[name] = None
            others = [node for node in replicas.members if node != self._me]
            why = "; ".join(
                f"{node} has no room" if self._is_up(node) else f"{node} is silent" for node in others
            )
            self._outbox.report("error", "no node holds the state", fragment=name, why=why)

    def stop(self) -> None:
        """The node ends: secondaries stay as they are, and hear nothing more."""
        for name in dict.fromkeys(fragment for fragment, _ in self._links):
            if (hosted := self._fragments.get(name)) is not None:
                hosted.tapped_for_standbys(())
        self._links = {}

    # --- time -----------------------------------------------------------------------------------------

    def flush(self, now_us: int) -> None:
        """Send what was fed since the last call."""
        for link in self._links.values():
            if link.sender is not None and link.tap.due and not link.sender.rests(now_us):
                link.sender.tick(now_us)

    def tick(self, now_us: int) -> None:
        """Ask nodes that should follow, send again what is overdue, notice what is broken."""
        self._now_us = now_us
        wanted: set[tuple[str, str]] = set()
        for hosted, configuration, replicas in list(self.owned()):
            follow = self.wanted(hosted.spec, replicas)
            if hosted.spec.method == STATE_BACKUP:
                self._release(hosted, replicas, follow)
                self._say_unheld(hosted, replicas, follow)
                held = (node for of, node in self._links if of == hosted.spec.name)
                follow = tuple(dict.fromkeys((*follow, *held)))
            for node in follow:
                key = hosted.spec.name, node
                wanted.add(key)
                link = self._links.get(key)
                if link is None:
                    link = self._links[key] = _Link(fragment=key[0], node=node, since_us=now_us)
                self._tick(now_us, hosted, configuration, replicas, link)
        for fragment in dict.fromkeys(key[0] for key in self._links if key not in wanted):
            self.drop(fragment)

    def _tick(
        self, now_us: int, hosted: FragmentHost, configuration: Configuration, replicas: Replicas, link: _Link
    ) -> None:
        if link.state is not _S.RESTING and self._changed(hosted.spec, configuration, link):
            self._broken(now_us, link, "what it reads, or who reads it, has changed")
            link.again_us = now_us
        match link.state:
            case ReplicationState.RESTING:
                if now_us >= link.again_us and self._is_up(link.node) and not hosted.failed:
                    self._ask(now_us, hosted, replicas, link)
            case ReplicationState.ASKING:
                if now_us - link.since_us >= ASK_US:
                    self._broken(now_us, link, f"no answer in {ASK_US // 1_000_000} s")
                elif now_us - link.asked_us >= ASK_AGAIN_US:
                    self._say(now_us, replicas, link)
            case _ if link.sender is not None:
                link.sender.tick(now_us)
                self._heard(now_us, hosted, link)
                if link.sender.broken:
                    self._outbox.send(link.node, GiveUp(fragment=link.fragment, attempt=link.attempt))
                    self._broken(now_us, link, link.sender.broken)

    def _changed(self, spec: FragmentSpec, configuration: Configuration, link: _Link) -> bool:
        """A secondary has what was sent: a new reader, say, is none that it would keep rows for."""
        assert link.spec is not None
        known = link.fits
        if known is not None and known[0] is spec and known[1] is configuration:
            return False
        link.spec = rewired(link.spec, configuration)
        changed = msgspec.structs.replace(spec, node=link.node, standby=link.spec.standby) != link.spec
        link.fits = None if changed else (spec, configuration)
        return changed

    def _ask(self, now_us: int, hosted: FragmentHost, replicas: Replicas, link: _Link) -> None:
        link.move(now_us, _E.DUE)
        link.attempt = self._next_token()
        others = tuple(node for node in replicas.members if node != link.node)
        link.spec, link.fits = msgspec.structs.replace(hosted.spec, node=link.node, standby=others), None
        link.tap = StandbyChangeFeed()
        if is_idle(hosted.spec, replicas):
            link.tap = CheckpointFeed(marks=hosted.spec.reads_again)
        self._tap(link.fragment)
        self._say(now_us, replicas, link)

    def _say(self, now_us: int, replicas: Replicas, link: _Link) -> None:
        assert link.spec is not None
        link.asked_us = now_us
        owners = self._catalog.owners
        message = Seed(
            fragment=link.fragment,
            attempt=link.attempt,
            epoch=replicas.epoch,
            coordinator=owners.get(link.spec.query, self._me),
        )
        self._outbox.send(link.node, message, fragment_to(link.spec))

    def wake_at_us(self, now_us: int) -> int | None:
        """When ``tick`` has work."""
        times: list[int] = []
        for link in self._links.values():
            if link.state is _S.RESTING:
                if self._is_up(link.node):
                    times.append(max(link.again_us, now_us))
            elif link.state is _S.ASKING:
                times.append(link.asked_us + ASK_AGAIN_US)
            elif link.sender is not None:
                times.append(link.sender.wake_at_us(now_us))
        return min(times, default=None)
