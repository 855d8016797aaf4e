"""What a node does of what is decided about the fragments of a query: takeover, rest, stepping down. No IO.

    it is to be ours ── its checkpoint and decisions on disk ── the catalog on disk ──> we feed and emit
    it was ours, is another's for certain ── the catalog on disk ──> closed, and who asks is told where
    it was handed over, nobody has begun yet ──> it rests, and we could have it back
    another is its owner ── we follow ──> as ``followings`` does

Which of these, says ``succession_table``; what is decided, the configuration. Every node that hears of one
does so, twice if need be, and again after a restart. What this node would have decided is in ``proposals``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, MutableMapping
from dataclasses import dataclass

import msgspec

from medusa.nodes.agreement.agreement import Agreement
from medusa.nodes.catalog.catalog import Catalog
from medusa.nodes.catalog.in_doubt import FragmentInDoubt
from medusa.nodes.catalog.kept_moves import FIRST_EPOCH
from medusa.nodes.catalog.persistence import CatalogWriter
from medusa.nodes.fragment.host import FragmentHost
from medusa.nodes.migration.rerouting import Rerouting
from medusa.nodes.recovery.followings import Followings
from medusa.nodes.recovery.regrouping import is_alone
from medusa.nodes.recovery.replication import Replication
from medusa.nodes.recovery.rewiring import reader_switches, rewired, switched_feeds
from medusa.nodes.recovery.succession_table import SUCCESSION, Here, Role, Step, role_of
from medusa.nodes.spec.fragment_spec import FragmentSpec
from medusa.wire.messages.configuration import Configuration, Replicas
from medusa.wire.outbox import CloseFragment, Outbox

__all__ = ["Succession"]


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
        owned: called when a fragment that was taken over, or is ours again, may begin, with the secondaries
            whose word counts.
        foreign: whether a query is another participant's: what was here of it is a guest.
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
        owned: Callable[[int, FragmentHost, Collection[str]], None],
        foreign: Callable[[str], bool],
    ) -> None:
        self._foreign = foreign
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
        self._owned = owned
        self._logging: dict[str, None] = {}
        """Fragments that are ours once all that we were fed of them is on our disk. Until then our catalog
        names them not, so if we die another secondary has it, which was fed the same, or the owner that
        handed it to us. Else we would come back as the owner without decisions that what was shown depends
        on."""
        self._kept: dict[str, None] = {}
        """Fragments that were moved to another node, and that we could have back: they rest here until it is
        decided that nobody needs that any more."""
        self._takeovers: dict[str, _Takeover] = {}
        self._closing: list[tuple[int, str]] = []
        """Token of the catalog without it, and the fragment: then its files go."""
        self._without_state: dict[tuple[str, int], bool] = {}
        """Fragment and epoch that are ours and that we can't run -> whether we may have begun in it: our disk
        has lost something. Else it would be named there: nothing is shown or acknowledged before."""
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

    # --- what is decided ---------------------------------------------------------------------------

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
            if role in (Role.SECONDARY, Role.OTHER):
                self._forget_damaged(replicas)
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
                    if replicas.abroad or self._foreign(new.query):
                        hosted.unlink(now_us)
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
        self._saver.save(joins=True)

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
        hosted.count_on(now_us, dict.fromkeys((*replicas.secondaries, *self.undecided(replicas))))
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

    # --- takeover ----------------------------------------------------------------------------------

    def logged(self, now_us: int) -> None:
        """More of what we follow is on disk: take over what waits for that."""
        for name in list(self._logging):
            configuration = self._agreement.current(name.partition("/")[0])
            replicas = None if configuration is None else configuration.replicas(name)
            if configuration is None or replicas is None or replicas.owner != self._me:
                del self._logging[name]
                continue
            if self._followings.holds(name):
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
            if (damaged := self._damaged(name)) is not None:
                self._lose_damaged(damaged, replicas)
                return
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
        token = self._saver.save(joins=True)
        self._takeovers[name] = _Takeover(hosted=hosted, token=token, epoch=replicas.epoch)

    def _damaged(self, fragment: str) -> FragmentInDoubt | None:
        """What our catalog says of a fragment whose newest state here is damaged; None: it isn't one."""
        doubt = self._catalog.in_doubt
        return None if doubt.newest else doubt.fragments.get(fragment)

    def _lose_damaged(self, damaged: FragmentInDoubt, replicas: Replicas) -> None:
        """Who stands by for it has all of it. Where that one gives it back, since it has lost it too, nothing
        is newer than what is left here."""
        name = replicas.fragment
        if damaged.epoch < replicas.epoch:
            why = f"{damaged.why}; who stood by for it has nothing of it either"
            # In one write: in this epoch and without that it would wait for another node for ever.
            found = msgspec.structs.replace(damaged, epoch=replicas.epoch, why=why, returned=True)
            self._catalog.in_doubt.fragments[name] = found
            self._saver.save()
            self._outbox.report("error", "fragment in doubt", fragment=name, why=why)
        elif not damaged.returned:
            self._say_without_state(replicas, damaged.why, began=True)

    def _forget_damaged(self, replicas: Replicas) -> None:
        """Another node has begun with it: what is left of it here goes, and who asks is told where it is."""
        name = replicas.fragment
        damaged = self._damaged(name)
        if damaged is None or replicas.epoch <= damaged.epoch:
            return
        self._catalog.is_elsewhere(name, replicas.owner, replicas.epoch)
        self._offered.pop(name, None)
        self._closing.append((self._saver.save(), name))
        self._outbox.report(
            "warning", "fragment in doubt is not here", fragment=name, why=f"node {replicas.owner!r} has it"
        )

    def lost(self, replicas: Replicas) -> None:
        """A fragment of ours was on a disk that is lost: it is that of the next in order."""
        if (replicas.fragment, replicas.epoch) not in self._without_state:
            self._say_without_state(replicas, "the disk of this node, its owner, was lost", began=True)

    def _runs(self, fragment: str) -> bool:
        hosted = self._fragments.get(fragment)
        return hosted is not None and not hosted.frozen

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

    # --- a fragment of ours that another node has --------------------------------------------------

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
        self._followings.drop(name)  # Its host had begun to send us what it made of it.
        self._catalog.ownership.epochs[name] = replicas.epoch
        token = self._saver.save(joins=True)
        self._takeovers[name] = _Takeover(hosted=hosted, token=token, epoch=replicas.epoch)

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
        if self._foreign(hosted.spec.query):  # Its neighbours hear so from their own nodes.
            token = self._forget_guest(hosted.spec)
        else:
            token = self._diverting.left(now_us, hosted, replicas.owner, replicas.epoch)
        self._closing.append((token, name))
        self._outbox.report(
            "warning", "fragment has another owner", fragment=name, to=replicas.owner, epoch=replicas.epoch
        )

    def _forget_guest(self, spec: FragmentSpec) -> int:
        """Nothing here names it any more; the token of the catalog that says so."""
        self._catalog.remove(spec.query, [spec.name])
        return self._saver.save()

    def step_aside(self, now_us: int, fragment: str) -> None:
        """What rests here, since a host has it, makes room for what we follow."""
        current = self._agreement.current(fragment.partition("/")[0])
        replicas = None if current is None else current.replicas(fragment)
        hosted = self._fragments.get(fragment)
        if replicas is not None and hosted is not None and self.stands_by(fragment):
            self._step_down(now_us, hosted, replicas)

    def turn_out(self, hosted: FragmentHost) -> None:
        """A guest goes though nobody has said that its owner has it: it was kept for as long as was
        agreed."""
        name = hosted.spec.name
        for known in (self._kept, self._takeovers, self._alone_since_us, self._taken_over_at_us):
            known.pop(name, None)
        self._had_before.pop(name, None)
        self._replication.drop(name)
        hosted.freeze()
        del self._fragments[name]
        self._closing.append((self._forget_guest(hosted.spec), name))

    def closes(self, fragment: str) -> bool:
        """Whether what was here of a fragment isn't closed yet, since the disk hasn't said that it left."""
        return any(name == fragment for _, name in self._closing)

    def changes(self, fragment: str) -> bool:
        """Whether it isn't ours for certain, or not any more."""
        return fragment in self._kept or fragment in self._takeovers or fragment in self._logging

    def leaving(self, fragment: str) -> bool:
        """Whether we stepped down from it and our disk may say otherwise: after a death we would keep what it
        was then. Or whether we keep it only until its new owner says that it has begun."""
        closing = (name for token, name in self._closing if token > self._saver.durable)
        damaged = self._damaged(fragment) is not None
        return fragment in closing or damaged or self._precedes(fragment)

    def _precedes(self, fragment: str) -> bool:
        """Whether what rests here is that of an owner before, of whose successor nothing is known yet."""
        current = self._agreement.current(fragment.partition("/")[0]) if fragment in self._kept else None
        replicas = None if current is None else current.replicas(fragment)
        return replicas is not None and self._me in replicas.predecessors

    def tick(self, now_us: int) -> None:
        """Begin what is on disk, close what is another's there."""
        for about in [each for each in self._without_state if self._runs(each[0])]:
            del self._without_state[about]  # It was found again: an operator took it up, say.
        self.logged(now_us)
        self._look(now_us)
        for token, name in [each for each in self._closing if each[0] <= self._saver.durable]:
            self._closing.remove((token, name))
            if name not in self._fragments and self._followings.shadow(name) is None:
                self._outbox.append(CloseFragment(fragment=name))

    # --- for what is proposed -----------------------------------------------------------------------------

    def resting(self) -> Iterator[FragmentHost]:
        """Fragments that were moved from here, and that we could have back."""
        for name in self._kept:
            hosted = self._fragments.get(name)
            if hosted is not None and not hosted.failed:
                yield hosted

    def begins(self, fragment: str) -> bool:
        """Whether it is ours as soon as our disk says so."""
        return fragment in self._takeovers

    def taken_over_at_us(self, fragment: str) -> int | None:
        """Since when a fragment that was taken over goes on here; None: it wasn't."""
        return self._taken_over_at_us.get(fragment)

    def began_without_state(self, replicas: Replicas) -> bool | None:
        """Of a fragment that is ours and that we can't run, whether we may have begun in this epoch; None: it
        isn't one."""
        return self._without_state.get((replicas.fragment, replicas.epoch))

    def is_damaged(self, fragment: str) -> bool:
        """Whether its newest state here is damaged. What is left stays until another node has begun."""
        return self._damaged(fragment) is not None

    def was_returned(self, fragment: str) -> bool:
        """Whether it is damaged here, and who stood by for it has nothing of it either."""
        damaged = self._damaged(fragment)
        return damaged is not None and damaged.returned

    def without_state(self) -> Mapping[tuple[str, int], bool]:
        """Fragment and epoch that are ours and that we can't run -> whether we may have begun in it. Some may
        be another's by now."""
        return self._without_state

    def queries_without_state(self) -> Collection[str]:
        """Those that have such a fragment."""
        return dict.fromkeys(name.partition("/")[0] for name, _ in sorted(self._without_state))

    def offered(self, fragment: str, nodes: Collection[str]) -> None:
        """These are being proposed as secondaries of a fragment of ours: their words count from now on."""
        self._offered.setdefault(fragment, {}).update(dict.fromkeys(nodes))

    def undecided(self, replicas: Replicas) -> list[str]:
        """Nodes that we proposed, and that aren't in what is decided."""
        return [node for node in self._offered.get(replicas.fragment, ()) if node not in replicas.secondaries]

    # --- for others --------------------------------------------------------------------------------

    def alone_us(self, now_us: int, replicas: Replicas) -> int | None:
        """For how long nobody could have taken a fragment of ours over; None: somebody can, or it isn't
        ours."""
        since_us = self._alone_since_us.get(replicas.fragment)
        return None if replicas.secondaries or since_us is None else now_us - since_us

    def taken_over_us(self, now_us: int, replicas: Replicas) -> int | None:
        """How long ago this node took a fragment of ours over; None: it didn't, or it isn't ours."""
        at_us = self.taken_over_at_us(replicas.fragment) if replicas.owner == self._me else None
        return None if at_us is None else now_us - at_us

    def taken_over_from(self, replicas: Replicas) -> str:
        """Who had it then; empty: nobody, or that wasn't heard here."""
        known = replicas.owner == self._me and replicas.fragment in self._taken_over_at_us
        return self._had_before.get(replicas.fragment, "") if known else ""

    def removed(self, query: str) -> None:
        """The query is no more."""
        known = self._takeovers, self._offered, self._alone_since_us, self._logging, self._kept
        for by_fragment in (*known, self._taken_over_at_us, self._had_before):
            for name in [name for name in by_fragment if name.partition("/")[0] == query]:
                del by_fragment[name]
        for one in [one for one in self._without_state if one[0].partition("/")[0] == query]:
            del self._without_state[one]

    @property
    def waits_for_rows(self) -> bool:
        """Something taken over is to begin, which rows may bring about sooner than ``wake_at_us`` says."""
        return bool(self._logging or self._takeovers or self._without_state)
