"""Who has a fragment when its owner is gone, and who follows it then. No IO.

    owner silent ── a secondary proposes itself ── decided ──> it is ours: on disk, then we feed and emit
    owner wants it ── the same, and the owner is a secondary ── decided ──> the owner rests, and keeps it
    secondary lost ── the owner proposes to go on without it ── decided ──> its word counts no more
    a node follows ── the owner proposes it as secondary ── decided ──> it may succeed
    it is to go elsewhere ── the owner proposes a guest ── decided ──> that is seeded as a secondary is

Whether a node takes over decides ``_should_succeed``; when a peer counts as silent ``wire/link/session``
says, and how long an owner is waited for ``nodes/config/settings_recovery``.

Everything here follows from the configuration: what is decided is done by every node that hears of it, twice
if need be, and again after a restart.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, MutableMapping
from dataclasses import dataclass
from functools import partial

import msgspec

from medusa.nodes.agreement.agreement import Agreement
from medusa.nodes.agreement.changes import (
    begun,
    changed,
    given_back,
    next_number,
    owned_by,
    remembering,
    taken_from,
    with_guest,
)
from medusa.nodes.catalog.catalog import Catalog
from medusa.nodes.catalog.kept_moves import FIRST_EPOCH
from medusa.nodes.catalog.persistence import CatalogWriter
from medusa.nodes.fragment.host import FragmentHost
from medusa.nodes.migration.rerouting import Rerouting
from medusa.nodes.recovery.followings import Followings
from medusa.nodes.recovery.regrouping import alone, is_alone, listed, unlisted
from medusa.nodes.recovery.replication import Replication
from medusa.nodes.recovery.rewiring import reader_switches, rewired, streams_read, switched_feeds
from medusa.nodes.recovery.succession_table import SUCCESSION, Here, Step, role_of
from medusa.nodes.spec.fragment_spec import FragmentSpec
from medusa.wire.link.automaton import LinkEvent
from medusa.wire.messages.configuration import Configuration, Replicas
from medusa.wire.outbox import CloseFragment, Outbox

__all__ = ["Succession"]

LOST_US = 300_000
"""A secondary that is silent for so long counts no more. Too small: a short cut costs a change of the
configuration; too large: so long does output wait that depends on a decision."""

RANK_US = 200_000
"""The second in order waits so long for the first to propose itself, the third twice as long."""


GUEST_US = 20_000
"""So soon a guest is proposed that somebody wishes, and one that nobody wishes any more is sent away."""


@dataclass(slots=True, kw_only=True)
class _Takeover:
    """A fragment that is ours once the catalog says so on disk.

    Attributes:
        token: of that write.
    """

    hosted: FragmentHost
    token: int
    epoch: int


class Succession:
    """At one node.

    Args:
        fragments: what runs here, by name; what is taken over is put in, what has another owner is taken out.
        empty: makes what succeeds a lost owner with nothing.
        wait_us: so long an owner may be silent before that happens.
        owned: called when a fragment that was taken over, or is ours again, may begin, with the secondaries
            whose word counts.
        wanted: whether the owner of what we follow wants us to have it.
        guest: the node that is no member and is to have a fragment of ours; empty: none is.
        regrouped: whether a fragment of ours is just being split or merged: then nobody stands by for it.
        is_up: whether a node is heard here.
    """

    def __init__(
        self,
        me: str,
        catalog: Catalog,
        fragments: MutableMapping[str, FragmentHost],
        *,
        outbox: Outbox,
        saver: CatalogWriter,
        agreement: Agreement,
        replication: Replication,
        followings: Followings,
        diverting: Rerouting,
        empty: Callable[[FragmentSpec], FragmentHost],
        wait_us: int,
        owned: Callable[[int, FragmentHost, Collection[str]], None],
        wanted: Callable[[Replicas], bool],
        guest: Callable[[Replicas], str],
        regrouped: Callable[[str], bool],
        is_up: Callable[[str], bool],
    ) -> None:
        self._me = me
        self._catalog = catalog
        self._fragments = fragments
        self._outbox = outbox
        self._saver = saver
        self._agreement = agreement
        self._replication = replication
        self._followings = followings
        self._diverting = diverting
        self._empty = empty
        self._wait_us = wait_us
        self._owned = owned
        self._wanted = wanted
        self._guest = guest
        self._regrouped = regrouped
        self._is_up = is_up
        self._logging: dict[str, None] = {}
        """Fragments that are ours once all that we were fed of them is on our disk. Until then our catalog
        names them not, so if we die another secondary has it, which was fed the same, or the owner that
        handed it to us. Else we would come back as the owner without decisions that what was shown depends
        on."""
        self._kept: dict[str, None] = {}
        """Fragments that were moved to another node, and that we could have back: they rest here until it is
        decided that nobody needs that any more."""
        self._silent_since_us: dict[str, int] = {}
        self._ticked_us = -1
        self._takeovers: dict[str, _Takeover] = {}
        self._closing: list[tuple[int, str]] = []
        """Token of the catalog without it, and the fragment: then its files go."""
        self._sought: dict[tuple[str, str], int] = {}
        """Query and silent owner -> since when that was silent when we looked for what it had decided."""
        self._without_state: dict[tuple[str, int], bool] = {}
        """Fragment and epoch that are ours and that we can't run -> whether we may have begun in it: our disk
        has lost something. Else it would be named there: nothing is shown or acknowledged before."""
        self._emptied: dict[tuple[str, int], int] = {}
        """Fragment and epoch of which the owner says that its disk is lost -> since when."""
        self._said_hindered: set[tuple[str, int]] = set()
        """Fragment and epoch of which we said why we can't take it over."""
        self._alone_since_us: dict[str, int] = {}
        """Fragment of ours -> since when nobody could take it over."""
        self._taken_over_at_us: dict[str, int] = {}
        """Fragment that was taken over -> since when it goes on here."""
        self._had_before: dict[str, str] = {}
        """Fragment that is to be ours -> who had it, as far as was heard here."""
        self._offered: dict[str, dict[str, None]] = {}
        """Fragment of ours -> nodes that we proposed as its secondaries and that nobody has decided on:
        somebody may yet bring that to its end, so their words count until the next number is decided,
        whatever it says."""

    def start(self, now_us: int) -> None:
        """After a start: what configurations say that we learned before, and nobody may do otherwise."""
        configurations = self._catalog.configurations
        for kept in list(configurations.values()):
            for replicas in kept.current.fragments if kept.promised is not None else ():
                if replicas.owner == self._me:  # Who proposes has promised: it may have proposed any of them.
                    others = (node for node in replicas.followers if node != self._me)
                    self._offered[replicas.fragment] = dict.fromkeys(others)
            self.decided(now_us, None, kept.current)
        self._look_after(now_us)

    def peer_event(self, now_us: int, peer: str, event: LinkEvent) -> None:
        """A node came, went or restarted."""
        if event is LinkEvent.PEER_DOWN:
            self._silent_since_us.setdefault(peer, now_us)
        else:
            self._silent_since_us.pop(peer, None)

    # --- what is decided ------------------------------------------------------------------------------

    def decided(self, now_us: int, old: Configuration | None, new: Configuration) -> None:
        """A configuration is known here: do what it says."""
        alone_since_us = self._ended_since_us(now_us, new)
        for replicas in new.fragments:
            if old is not None:  # What was proposed for this number is settled.
                self._offered.pop(replicas.fragment, None)
            before = None if old is None else old.replicas(replicas.fragment)
            if before is not None and before.owner != self._me == replicas.owner:
                self._had_before[replicas.fragment] = before.owner
            hosted = self._fragments.get(replicas.fragment)
            if hosted is not None and self._catalog.epoch(replicas.fragment) > replicas.epoch:
                continue  # It says so of an earlier fragment of that name.
            role = role_of(self._me, replicas, knows=not self._catalog.in_doubt.newest)
            match SUCCESSION[role][self._here(hosted, replicas)]:
                case Step.END:
                    self._end(replicas.fragment, hosted)
                case Step.GO_ON if hosted is not None:
                    comes = old is not None and old.replicas(replicas.fragment) is None
                    self._require(now_us, hosted, replicas, alone_since_us if comes else now_us)
                case Step.TAKE_BACK if hosted is not None and hosted.spec.keeps_nothing:
                    self._begin_anew(hosted, new, replicas)
                case Step.TAKE_BACK if hosted is not None:
                    self._take_back(hosted, replicas)
                case Step.TAKE_OVER if not is_alone(replicas):
                    self._logging[replicas.fragment] = None
                    self.logged(now_us)
                case Step.REST if hosted is not None and hosted.spec.keeps_nothing:
                    self._step_down(now_us, hosted, replicas)
                    self._followings.inherit(hosted.spec, replicas.owner)
                case Step.REST if hosted is not None:
                    self._keep(hosted)
                case Step.STEP_DOWN if hosted is not None:
                    self._step_down(now_us, hosted, replicas)
                case Step.FOLLOW if self._me not in (*replicas.followers, *replicas.predecessors):
                    self._followings.drop(replicas.fragment)
        for hosted in list(self._fragments.values()):
            if hosted.spec.query == new.query:
                self._rewire(now_us, hosted, new)
        for _, _, taking in self._followings.followed():
            if taking.spec.query == new.query:
                taking.rewired(now_us, rewired(taking.spec, new))
        self._place(new)
        self._saver.save()

    def _here(self, hosted: FragmentHost | None, replicas: Replicas) -> Here:
        if hosted is None:
            return Here.NOTHING
        if replicas.fragment in self._kept:
            return Here.RESTS
        return Here.STALE if self._catalog.epoch(replicas.fragment) < replicas.epoch else Here.RUNS

    def _ended_since_us(self, now_us: int, new: Configuration) -> int:
        """Since when nobody could take over what others have taken the place of here."""
        ended = (each.fragment for each in new.fragments if each.gone and each.owner == self._me)
        return min((self._alone_since_us.get(name, now_us) for name in ended), default=now_us)

    def _end(self, fragment: str, hosted: FragmentHost | None) -> None:
        """Others have taken its place at this node; it is here only where the catalog that says so was
        lost."""
        self._alone_since_us.pop(fragment, None)
        if hosted is not None:
            hosted.freeze()

    def _require(self, now_us: int, hosted: FragmentHost, replicas: Replicas, alone_since_us: int) -> None:
        """The words of these count, and of those that an earlier life may have proposed."""
        hosted.count_on(now_us, dict.fromkeys((*replicas.secondaries, *self._undecided(replicas))))
        if replicas.secondaries:
            self._alone_since_us.pop(replicas.fragment, None)
        else:
            self._alone_since_us.setdefault(replicas.fragment, alone_since_us)

    def _rewire(self, now_us: int, hosted: FragmentHost, configuration: Configuration) -> None:
        for feed, node, epoch in list(switched_feeds(hosted.spec, configuration)):
            self._diverting.switched(now_us, hosted, feed, node, epoch)
        for switch in list(reader_switches(hosted.spec, configuration)):
            self._diverting.succeeded(now_us, hosted, switch.sink, switch.old, switch.new)

    def _place(self, configuration: Configuration) -> None:
        """Where clients find what they publish into and read; of a query that this node coordinates."""
        deployments = self._catalog.deployments
        deployment = deployments.get(configuration.query)
        if deployment is None:
            return
        at = {name: each.owner for each in configuration.fragments for name in each.streams}
        deployment.stands_at(at)

    # --- takeover ---------------------------------------------------------------------------------------

    def logged(self, now_us: int) -> None:
        """More of what we follow is on disk: take over what waits for that."""
        for name in list(self._logging):
            configuration = self._agreement.current(name.partition("/")[0])
            replicas = None if configuration is None else configuration.replicas(name)
            if configuration is None or replicas is None or replicas.owner != self._me:
                del self._logging[name]
                continue
            self._followings.open(now_us, name)
            if self._followings.shadow(name) is None or self._followings.on_disk(name):
                del self._logging[name]
                self._take_over(now_us, configuration, replicas)

    def _take_over(self, now_us: int, configuration: Configuration, replicas: Replicas) -> None:
        """It is ours; it begins once our disk says so."""
        name = replicas.fragment
        if name in self._takeovers:
            return
        if self._followings.heir(name) is not None:
            spec = rewired(self._followings.take_heir(name).spec, configuration)
            self._close_now(name)
            self._put_in(configuration, replicas, spec, lambda: self._empty(spec))
            self._look(now_us)
            return
        if self._followings.shadow(name) is None:
            if replicas.epoch == FIRST_EPOCH:
                return  # It is being deployed, and comes in a moment.
            # We were chosen, and restarted before we heard: what we followed died with us.
            why = "this node was chosen as its owner and has lost what it followed"
            self._say_without_state(replicas, why, began=not self._catalog.never_owned(name, replicas.epoch))
            return
        taking = self._followings.take(name)
        shadow = taking.shadow
        assert shadow is not None
        shadow.rewired(now_us, rewired(shadow.spec, configuration))
        self._put_in(configuration, replicas, shadow.spec, lambda: shadow)
        self._look(now_us)

    def _begin_anew(self, hosted: FragmentHost, configuration: Configuration, replicas: Replicas) -> None:
        """It is ours again, and has been another's meanwhile: what it holds counts as little as that had."""
        hosted.freeze()
        hosted.drop("it begins anew")
        self._outbox.append(CloseFragment(fragment=replicas.fragment))
        spec = rewired(hosted.spec, configuration)
        self._put_in(configuration, replicas, spec, lambda: self._empty(spec))

    def _close_now(self, fragment: str) -> None:
        """What was ours before still runs if our disk hasn't said yet that it is another's."""
        for each in [each for each in self._closing if each[1] == fragment]:
            self._closing.remove(each)
            self._outbox.append(CloseFragment(fragment=fragment))

    def _put_in(
        self,
        configuration: Configuration,
        replicas: Replicas,
        spec: FragmentSpec,
        made: Callable[[], FragmentHost],
    ) -> None:
        """It is in our catalog, and here, and begins once that is on disk."""
        name = replicas.fragment
        self._diverting.back(name)
        self._catalog.add(spec, configuration.coordinator)
        self._catalog.ownership.epochs[name] = replicas.epoch
        hosted = self._fragments[name] = made()
        self._takeovers[name] = _Takeover(hosted=hosted, token=self._saver.save(), epoch=replicas.epoch)

    def lost(self, replicas: Replicas) -> None:
        """A fragment of ours was on a disk that is lost: it is that of the next in order."""
        if (replicas.fragment, replicas.epoch) not in self._without_state:
            self._say_without_state(replicas, "the disk of this node, its owner, was lost", began=True)

    def owner_lost(self, now_us: int, current: Configuration, owner: str, fragments: Collection[str]) -> None:
        """An owner that is back says that its disk is lost, and with it these fragments: it is heard, and
        still the first that stands by goes on with them, at once."""
        names = set(fragments)
        for each in current.fragments:
            if each.fragment in names and each.owner == owner:
                self._emptied.setdefault((each.fragment, each.epoch), now_us)
        self.tick(now_us)

    def _runs(self, fragment: str) -> bool:
        hosted = self._fragments.get(fragment)
        return hosted is not None and not hosted.frozen

    def _emptied_due_us(self, replicas: Replicas) -> int | None:
        """When we go on with what was on its owner's lost disk; None: we don't."""
        since_us = self._emptied.get((replicas.fragment, replicas.epoch))
        if since_us is None or self._me not in replicas.secondaries:
            return None
        return since_us + self._rank(replicas) * RANK_US

    def _is_emptied(self, now_us: int, replicas: Replicas) -> bool:
        """Whether its owner can't go on with it, and it is our turn."""
        due_us = self._emptied_due_us(replicas)
        return due_us is not None and now_us >= due_us

    def _say_without_state(self, replicas: Replicas, why: str, *, began: bool) -> None:
        name, epoch = replicas.fragment, replicas.epoch
        self._outbox.report("error", "fragment without state", fragment=name, epoch=epoch, why=why)
        self._without_state[name, epoch] = began

    def _look(self, now_us: int) -> None:
        """Takeovers that are on disk begin."""
        for name, each in list(self._takeovers.items()):
            if self._saver.durable < each.token:
                continue
            del self._takeovers[name]
            configuration = self._agreement.current(each.hosted.spec.query)
            replicas = None if configuration is None else configuration.replicas(name)
            if replicas is None or replicas.owner != self._me or name not in self._fragments:
                continue
            if not replicas.secondaries:
                self._alone_since_us.setdefault(name, now_us)
            self._taken_over_at_us[name] = now_us
            self._owned(now_us, each.hosted, replicas.secondaries)
            self._outbox.report("warning", "fragment taken over", fragment=name, epoch=each.epoch)

    # --- a fragment of ours that another node has ------------------------------------------------------

    def stands_by(self, fragment: str) -> bool:
        """Whether it was moved from here, and we could have it back."""
        return fragment in self._kept

    def _keep(self, hosted: FragmentHost) -> None:
        """It rests here as it is; clients wait until one of us has it for certain."""
        name = hosted.spec.name
        if name not in self._kept:
            self._kept[name] = None
            self._alone_since_us.pop(name, None)
            self._replication.drop(name)
            hosted.freeze()

    def _take_back(self, hosted: FragmentHost, replicas: Replicas) -> None:
        """Who was to have it can't: it is ours again, once our disk says so. It may run here still, where we
        hear of both at once."""
        name = hosted.spec.name
        self._keep(hosted)
        del self._kept[name]
        self._catalog.ownership.epochs[name] = replicas.epoch
        self._takeovers[name] = _Takeover(hosted=hosted, token=self._saver.save(), epoch=replicas.epoch)

    def _step_down(self, now_us: int, hosted: FragmentHost, replicas: Replicas) -> None:
        """Another node has it: who asks is told where."""
        name = hosted.spec.name
        self._kept.pop(name, None)
        self._takeovers.pop(name, None)
        self._alone_since_us.pop(name, None)
        self._taken_over_at_us.pop(name, None)
        self._had_before.pop(name, None)
        self._replication.drop(name)
        hosted.freeze()
        del self._fragments[name]
        for known in (self._catalog.ownership.epochs, self._catalog.ownership.unplaced, self._offered):
            known.pop(name, None)
        token = self._diverting.left(now_us, hosted, replicas.owner, replicas.epoch)
        self._closing.append((token, name))
        self._outbox.report(
            "warning", "fragment has another owner", fragment=name, to=replicas.owner, epoch=replicas.epoch
        )

    def changes(self, fragment: str) -> bool:
        """Whether it isn't ours for certain, or not any more."""
        return fragment in self._kept or fragment in self._takeovers or fragment in self._logging

    def leaving(self, fragment: str) -> bool:
        """Whether we stepped down from it and our disk may say otherwise: after a death we would keep what it
        was then. Or whether we keep it only until its new owner says that it has begun."""
        closing = (name for token, name in self._closing if token > self._saver.durable)
        return fragment in closing or self._precedes(fragment)

    def _precedes(self, fragment: str) -> bool:
        """Whether what rests here is that of an owner before, of whose successor nothing is known yet."""
        current = self._agreement.current(fragment.partition("/")[0]) if fragment in self._kept else None
        replicas = None if current is None else current.replicas(fragment)
        return replicas is not None and self._me in replicas.predecessors

    # --- what is proposed ---------------------------------------------------------------------------------

    def tick(self, now_us: int) -> None:
        """Propose what is due; begin what is on disk."""
        self._ticked_us = now_us
        for about in [each for each in self._without_state if self._runs(each[0])]:
            del self._without_state[about]  # It was found again: an operator took it up, say.
        self.logged(now_us)
        self._look(now_us)
        for token, name in [each for each in self._closing if each[0] <= self._saver.durable]:
            self._closing.remove((token, name))
            if name not in self._fragments and self._followings.shadow(name) is None:
                self._outbox.append(CloseFragment(fragment=name))
        for query, suspects in self._successions(now_us).items():
            if not self._agreement.proposing(query) or self._agreement.suspects(query) != suspects:
                succeeding = partial(self._succeeding, now_us, suspects)
                self._agreement.propose(now_us, query, succeeding, suspects=suspects)
        for query in dict.fromkeys(name.partition("/")[0] for name, _ in sorted(self._without_state)):
            current = self._agreement.current(query)
            if current is not None and self._resigning(current) and not self._agreement.proposing(query):
                self._agreement.propose(now_us, query, self._resigning)
        for query in self._unheard(now_us):
            self._agreement.propose(now_us, query, next_number)
        self._look_after(now_us)

    def _successions(self, now_us: int) -> dict[str, tuple[str, ...]]:
        """Queries of which we should have a fragment, and of their owners those that are silent.

        What its owner wants us to have goes alone, and counts nobody out: else who hears another owner would
        refuse it.
        """
        due: dict[str, dict[str, None]] = {}
        wanted: dict[str, tuple[str, ...]] = {}
        for name, query in self._successors():
            configuration = self._agreement.current(query)
            replicas = None if configuration is None else configuration.replicas(name)
            if replicas is None:
                continue
            given = self._wanted(replicas) or self._is_emptied(now_us, replicas)
            if given and not self._read_here(but=name).intersection(replicas.reads):
                wanted[query] = ()
            elif self._should_succeed(now_us, replicas):
                due.setdefault(query, {})[replicas.owner] = None
        return {query: tuple(owners) for query, owners in due.items()} | wanted

    def _successors(self) -> Iterator[tuple[str, str]]:
        """Fragments of others that we could have, and their queries."""
        for name, _, taking in self._followings.followed():
            yield name, taking.spec.query
        for name in self._kept:
            hosted = self._fragments.get(name)
            if hosted is not None and not hosted.failed:
                yield name, hosted.spec.query

    def _unheard(self, now_us: int) -> list[str]:
        """Queries of which we follow a fragment whose owner is silent, and aren't its secondary, as we know.

        The owner may have had us decided on and died before anybody heard: to propose the next number, with
        nothing changed, brings that to its end. Once for each silence.
        """
        found: dict[str, None] = {}
        for name, query in self._successors():
            configuration = self._agreement.current(query)
            replicas = None if configuration is None else configuration.replicas(name)
            since_us = None if replicas is None else self._silent_since_us.get(replicas.owner)
            if replicas is None or since_us is None or self._me in replicas.secondaries:
                continue
            about = query, replicas.owner
            due = now_us - since_us >= LOST_US and not self._agreement.proposing(query)
            if due and self._sought.get(about) != since_us:
                self._sought[about] = since_us
                found[query] = None
        return list(found)

    def _should_succeed(self, now_us: int, replicas: Replicas) -> bool:
        since_us = self._silent_since_us.get(replicas.owner)
        if since_us is None or self._me not in replicas.secondaries:
            return False
        if read := self._read_here(but=replicas.fragment).intersection(replicas.reads):
            self._hindered(replicas, read)
            return False
        return now_us - since_us >= self._patience_us(replicas.fragment) + self._rank(replicas) * RANK_US

    def _rank(self, replicas: Replicas) -> int:
        """So many are heard that come before us."""
        before = replicas.secondaries[: replicas.secondaries.index(self._me)]
        return sum(node not in self._silent_since_us for node in before)

    def _patience_us(self, fragment: str) -> int:
        """An owner may be silent for so long before somebody goes on without what it had."""
        return self._wait_us if self._followings.waits_for_owner(fragment) else 0

    def _read_here(self, *, but: str) -> set[str]:
        """Streams that other fragments of ours read, or would if we had them back."""
        return streams_read(each for name, each in self._fragments.items() if name != but)

    def _hindered(self, replicas: Replicas, read: Collection[str]) -> None:
        """Say once why a fragment stays where it is, or goes to the next in order."""
        about = replicas.fragment, replicas.epoch
        if about not in self._said_hindered:
            self._said_hindered.add(about)
            why = f"another fragment here reads {', '.join(sorted(read))}"
            self._outbox.report(
                "warning", "fragment can't be taken over", fragment=replicas.fragment, why=why
            )

    def _succeeding(
        self, now_us: int, suspects: Collection[str], current: Configuration
    ) -> Configuration | None:
        """What we propose: each fragment that we follow is ours whose owner is silent; without silent ones,
        whose owner wants that: then it is the first that stands by; or whose owner has lost its disk. Of
        several that read one stream it is the first."""
        followed = {name for name, _ in self._successors()}
        taken: set[str] = set()

        def after(each: Replicas) -> Replicas:
            ours = each.fragment in followed and self._me in each.secondaries
            wanted = not suspects and self._wanted(each)
            emptied = not suspects and self._is_emptied(now_us, each)
            since_us = self._silent_since_us.get(each.owner) if each.owner in suspects else None
            silent = since_us is not None and now_us - since_us >= self._patience_us(each.fragment)
            due = wanted or emptied or silent
            if not (ours and due) or (taken | self._read_here(but=each.fragment)).intersection(each.reads):
                return each
            taken.update(each.reads)
            if not (wanted or emptied):
                return taken_from(each, self._me)
            others = (each.owner, *each.secondaries) if wanted else each.secondaries
            return owned_by(each, self._me, tuple(node for node in others if node != self._me))

        return changed(current, tuple(map(after, current.fragments)))

    def _resigning(self, current: Configuration) -> Configuration | None:
        """What we propose: what we were chosen for and can't run is that of another node, who has all that
        was shown or acknowledged before."""

        def after(each: Replicas) -> Replicas:
            began = self._without_state.get((each.fragment, each.epoch))
            if each.owner != self._me or began is None:
                return each
            return given_back(each, began=began, is_up=self._is_up) or each

        return changed(current, tuple(map(after, current.fragments)))

    def _look_after(self, now_us: int) -> None:
        """Secondaries of our fragments: those that are lost go, those that follow come; so do guests."""
        for hosted, configuration, replicas in list(self._replication.owned()):
            offered = self._undecided(replicas)
            # From here on, since it may be decided before we hear so.
            counted = dict.fromkeys((*replicas.secondaries, *offered, *self._coming(replicas)))
            if counted.keys() != {*hosted.counted}:
                hosted.count_on(now_us, counted)
            joining, leaving = self._joining(hosted, replicas), self._leaving(now_us, replicas)
            settled = replicas.guest == self._guest(replicas) and self._settled(hosted, replicas)
            if settled and not (offered or joining or leaving):
                continue
            if replicas.fragment in self._takeovers:
                continue
            if not self._agreement.proposing(configuration.query):
                self._agreement.propose(now_us, configuration.query, partial(self._revised, now_us))
        for query in self._unlisted():
            if not self._agreement.proposing(query):
                self._agreement.propose(now_us, query, partial(self._revised, now_us))

    def _unlisted(self) -> Collection[str]:
        """Queries of which a fragment was made here by a split or merge, and nobody stands by for it yet."""
        queries: dict[str, None] = {}
        for name, hosted in self._fragments.items():
            query = hosted.spec.query
            if hosted.spec.standby and (current := self._agreement.current(query)) is not None:
                known = current.replicas(name)
                if known is None or known.epoch < self._catalog.epoch(name):
                    queries[query] = None
        return queries

    def _made(self, current: Configuration) -> list[FragmentSpec]:
        return unlisted(current, [hosted.spec for hosted in self._fragments.values()], self._catalog.epoch)

    def _settled(self, hosted: FragmentHost, replicas: Replicas) -> bool:
        """Whether those may have it that should."""
        return self._members(hosted, replicas) == replicas

    def _members(self, hosted: FragmentHost, replicas: Replicas) -> Replicas:
        """With nobody beside us while it is split or merged, and with those of its spec if it stays whole. We
        have begun: those who had it before need keep nothing."""
        replicas = begun(replicas)
        if self._regrouped(replicas.fragment):
            return alone(replicas)
        if not is_alone(replicas):
            return replicas
        whole = msgspec.structs.replace(replicas, members=(self._me, *hosted.spec.standby))
        return remembering(replicas, whole)

    def _is_gone(self, replicas: Replicas) -> bool:
        """Whether others have taken its place here."""
        return replicas.owner == self._me and is_alone(replicas) and replicas.fragment not in self._fragments

    def _undecided(self, replicas: Replicas) -> list[str]:
        """Nodes that we proposed, and that aren't in what is decided."""
        return [node for node in self._offered.get(replicas.fragment, ()) if node not in replicas.secondaries]

    def _coming(self, replicas: Replicas) -> list[str]:
        """Nodes that follow, and don't count."""
        others = (node for node in replicas.followers if node not in (self._me, *replicas.secondaries))
        return [
            node
            for node in others
            if node not in self._silent_since_us and self._replication.follows(replicas.fragment, node)
        ]

    def _joining(self, hosted: FragmentHost, replicas: Replicas) -> list[str]:
        """Of those, who has all that has left and all that was acknowledged: from then on it may succeed."""
        return [node for node in self._coming(replicas) if hosted.stands_in(node)]

    def _leaving(self, now_us: int, replicas: Replicas) -> list[str]:
        taken_over_at_us = self._taken_over_at_us.get(replicas.fragment)

        def lost(node: str) -> bool:
            since_us = self._silent_since_us.get(node)
            if since_us is not None and taken_over_at_us is not None and since_us <= taken_over_at_us:
                return True  # It went with the owner, and rows have waited long enough.
            if since_us is not None and now_us - since_us >= LOST_US:
                return True
            return since_us is None and not self._replication.follows(replicas.fragment, node)

        return [node for node in replicas.secondaries if lost(node)]

    def _revised(self, now_us: int, current: Configuration) -> Configuration | None:
        """What we propose: our fragments with the secondaries that follow, in the order of the plan, whoever
        has caught up first, and with the guests that somebody wishes."""

        def after(each: Replicas) -> Replicas:
            # Its owner of before may be counted out once our disk has it, and not sooner.
            here = each.fragment in self._fragments and each.fragment not in self._takeovers
            if each.owner != self._me or not here:
                return each
            each = self._members(self._fragments[each.fragment], each)
            if is_alone(each):
                return each
            each = with_guest(each, self._guest(each))
            gone = self._leaving(now_us, each)
            kept = tuple(node for node in each.secondaries if node not in gone)
            joining = self._joining(self._fragments[each.fragment], each)
            if joining:
                self._offered.setdefault(each.fragment, {}).update(dict.fromkeys(joining))
            ready = tuple(node for node in each.followers if node in (*kept, *joining))
            return msgspec.structs.replace(each, secondaries=ready)

        regrouped = listed(current, self._made(current), self._is_gone, self._catalog.epoch)
        before = msgspec.structs.replace(current, parts=regrouped.parts)
        revised = changed(before, tuple(map(after, regrouped.fragments)))
        if revised is not None:
            return revised
        ours = [
            each for each in current.fragments if each.owner == self._me and each.fragment in self._fragments
        ]
        open_ = any(map(self._undecided, ours))
        return next_number(current) if open_ else None

    # --- for others ---------------------------------------------------------------------------------------

    def alone_us(self, now_us: int, replicas: Replicas) -> int | None:
        """For how long nobody could have taken a fragment of ours over; None: somebody can, or it isn't
        ours."""
        since_us = self._alone_since_us.get(replicas.fragment)
        return None if replicas.secondaries or since_us is None else now_us - since_us

    def taken_over_us(self, now_us: int, replicas: Replicas) -> int | None:
        """How long ago this node took a fragment of ours over; None: it didn't, or it isn't ours."""
        at_us = self._taken_over_at_us.get(replicas.fragment) if replicas.owner == self._me else None
        return None if at_us is None else now_us - at_us

    def taken_over_from(self, replicas: Replicas) -> str:
        """Who had it then; empty: nobody, or that wasn't heard here."""
        known = replicas.owner == self._me and replicas.fragment in self._taken_over_at_us
        return self._had_before.get(replicas.fragment, "") if known else ""

    def silent_us(self, now_us: int, node: str) -> int | None:
        """For how long a node has been silent; None: it isn't, or nobody here has heard it."""
        since_us = self._silent_since_us.get(node)
        return None if since_us is None else now_us - since_us

    def removed(self, query: str) -> None:
        """The query is no more."""
        known = self._takeovers, self._offered, self._alone_since_us, self._logging, self._kept
        for by_fragment in (*known, self._taken_over_at_us, self._had_before):
            for name in [name for name in by_fragment if name.partition("/")[0] == query]:
                del by_fragment[name]
        for of_epochs in (self._emptied, self._without_state):
            for one in [one for one in of_epochs if one[0].partition("/")[0] == query]:
                del of_epochs[one]
        hindered = self._said_hindered
        hindered.difference_update([one for one in hindered if one[0].partition("/")[0] == query])
        for about in [about for about in self._sought if about[0] == query]:
            del self._sought[about]

    @property
    def waits_for_rows(self) -> bool:
        """Rows, and who says that it is there, may bring work sooner than ``wake_at_us`` says: somebody is
        silent or is to catch up, or something taken over is to begin."""
        if self._silent_since_us or self._logging or self._takeovers or self._without_state:
            return True
        owned = (replicas for _, _, replicas in self._replication.owned())
        return any(self._coming(each) or self._undecided(each) for each in owned)

    def wake_at_us(self, now_us: int) -> int | None:
        """When ``tick`` has work."""
        times: list[int] = []
        for name, query in self._successors():
            configuration = self._agreement.current(query)
            replicas = None if configuration is None else configuration.replicas(name)
            if replicas is None:
                continue
            if (emptied_us := self._emptied_due_us(replicas)) is not None:
                times.append(emptied_us if self._ticked_us < emptied_us else now_us + RANK_US)
            since_us = self._silent_since_us.get(replicas.owner)
            if since_us is None:
                continue
            sought = self._sought.get((query, replicas.owner)) == since_us or self._agreement.proposing(query)
            if self._me in replicas.secondaries:
                waited_us = since_us + self._patience_us(name)
                if self._ticked_us < waited_us:  # A message that came just then did nothing yet.
                    times.append(waited_us)
                else:
                    times.append(max(waited_us + len(replicas.secondaries) * RANK_US, now_us + RANK_US))
            elif not sought:
                times.append(max(since_us + LOST_US, now_us))
        if any(not self._agreement.proposing(query) for query in self._unlisted()):
            times.append(now_us + GUEST_US)
        for hosted, configuration, replicas in self._replication.owned():
            since = (self._silent_since_us.get(node) for node in replicas.secondaries)
            times += [at_us + LOST_US for at_us in since if at_us is not None and at_us + LOST_US > now_us]
            settled = replicas.guest == self._guest(replicas) and self._settled(hosted, replicas)
            if not settled and not self._agreement.proposing(configuration.query):
                times.append(now_us + GUEST_US)
        return min(times, default=None)
