"""What this node proposes to the voters: who is to have a fragment, and who may succeed. No IO.

    owner silent ── a secondary proposes itself ── decided ──> it is the owner
    owner wants it ── the same, and the owner is a secondary ── decided ──> the owner rests, and keeps it
    secondary lost ── the owner proposes to go on without it ── decided ──> its word counts no more
    a node follows ── the owner proposes it as secondary ── decided ──> it may succeed
    it is to go elsewhere ── the owner proposes a guest ── decided ──> that is seeded as a secondary is
    it is to go abroad ── the owner proposes the guest as owner ── decided ──> it runs there, and rests here
    it is to come home ── a secondary proposes itself ── decided ──> it is the owner

Whether a node takes over decides ``_should_succeed``; when a peer counts as silent ``wire/link/session``
says, and how long an owner is waited for ``nodes/config/settings_recovery``. The voters decide in
``nodes/agreement``, and ``succession`` does what is decided.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial

import msgspec

from medusa.nodes.agreement.agreement import Agreement
from medusa.nodes.agreement.changes import (
    begun,
    changed,
    given_back,
    lent_to,
    next_number,
    owned_by,
    remembering,
    taken_from,
    with_guest,
)
from medusa.nodes.catalog.catalog import Catalog
from medusa.nodes.fragment.host import FragmentHost
from medusa.nodes.recovery.followings import Followings
from medusa.nodes.recovery.regrouping import alone, is_alone, listed, unlisted
from medusa.nodes.recovery.replication import Replication
from medusa.nodes.recovery.rewiring import streams_read
from medusa.nodes.recovery.succession import Succession
from medusa.nodes.spec.fragment_spec import FragmentSpec
from medusa.query.recovery import STATE_BACKUP
from medusa.wire.link.automaton import LinkEvent
from medusa.wire.messages.configuration import Configuration, Replicas
from medusa.wire.outbox import Outbox

__all__ = ["Proposals"]

LOST_US = 300_000
"""A secondary that is silent for so long counts no more. Too small: a short cut costs a change of the
configuration; too large: so long does output wait that depends on a decision."""

RANK_US = 200_000
"""The second in order waits so long for the first to propose itself, the third twice as long."""

GUEST_US = 20_000
"""So soon a guest is proposed that somebody wishes, and one that nobody wishes any more is sent away."""


class Proposals:
    """At one node.

    Args:
        fragments: what runs here, by name.
        wait_us: so long an owner may be silent before what it has goes on with nothing.
        wanted: whether we are to have what we follow, though its owner lives: that wants so, or it is to come
            home.
        guest: the node that is no member and is to have a fragment of ours; empty: none is.
        lends: the host that is to have a fragment of ours now; empty: none is.
        abroad: whether a node is of another participant.
        regrouped: whether a fragment of ours is just being split or merged: then nobody stands by for it.
        is_up: whether a node is heard here.
    """

    def __init__(
        self,
        me: str,
        catalog: Catalog,
        fragments: Mapping[str, FragmentHost],
        *,
        outbox: Outbox,
        agreement: Agreement,
        replication: Replication,
        followings: Followings,
        succession: Succession,
        wait_us: int,
        wanted: Callable[[Replicas], bool],
        guest: Callable[[Replicas], str],
        lends: Callable[[Replicas], str],
        abroad: Callable[[str], bool],
        regrouped: Callable[[str], bool],
        is_up: Callable[[str], bool],
    ) -> None:
        self._me = me
        self._catalog = catalog
        self._fragments = fragments
        self._outbox = outbox
        self._agreement = agreement
        self._replication = replication
        self._followings = followings
        self._succession = succession
        self._wait_us = wait_us
        self._wanted = wanted
        self._guest = guest
        self._lends = lends
        self._abroad = abroad
        self._regrouped = regrouped
        self._is_up = is_up
        self._silent_since_us: dict[str, int] = {}
        self._ticked_us = -1
        self._sought: dict[tuple[str, str], int] = {}
        """Query and silent owner -> since when that was silent when we looked for what it had decided."""
        self._sought_for: dict[str, None] = {}
        """Fragments that are damaged here, and of which we looked whether somebody stands by for them."""
        self._emptied: dict[tuple[str, int], int] = {}
        """Fragment and epoch of which the owner says that its disk is lost -> since when."""
        self._said_hindered: set[tuple[str, int]] = set()
        """Fragment and epoch of which we said why we can't take it over."""

    def start(self, now_us: int) -> None:
        """After a start, and ``Succession.start``."""
        self._look_after(now_us)

    def peer_event(self, now_us: int, peer: str, event: LinkEvent) -> None:
        """A node came, went or restarted."""
        if event is LinkEvent.PEER_DOWN:
            self._silent_since_us.setdefault(peer, now_us)
        else:
            self._silent_since_us.pop(peer, None)

    def owner_lost(self, now_us: int, current: Configuration, owner: str, fragments: Collection[str]) -> None:
        """An owner that is back says that its disk is lost, and with it these fragments: it is heard, and
        still the first that stands by goes on with them, with the next ``tick``."""
        names = set(fragments)
        for each in current.fragments:
            if each.fragment in names and each.owner == owner:
                self._emptied.setdefault((each.fragment, each.epoch), now_us)

    def tick(self, now_us: int) -> None:
        """Propose what is due, after ``Succession.tick``."""
        self._ticked_us = now_us
        for query, suspects in self._successions(now_us).items():
            if not self._agreement.proposing(query) or self._agreement.suspects(query) != suspects:
                succeeding = partial(self._succeeding, now_us, suspects)
                self._agreement.propose(now_us, query, succeeding, suspects=suspects)
        for query in self._succession.queries_without_state():
            current = self._agreement.current(query)
            if current is None or self._me not in current.voters or self._agreement.proposing(query):
                continue
            if self._resigning(current):
                self._agreement.propose(now_us, query, self._resigning)
            elif self._may_have_been_followed(current):
                self._agreement.propose(now_us, query, next_number)
        for query in self._unheard(now_us):
            self._agreement.propose(now_us, query, next_number)
        for query in self._lent():
            if not self._agreement.proposing(query):
                self._agreement.propose(now_us, query, self._lending)
        self._look_after(now_us)

    # --- who takes over ----------------------------------------------------------------------------

    def _successions(self, now_us: int) -> dict[str, tuple[str, ...]]:
        """Queries of which we should have a fragment, and of their owners those that are silent.

        What its owner wants us to have goes alone, and counts nobody out: else who hears another owner would
        refuse it.
        """
        due: dict[str, dict[str, None]] = {}
        wanted: dict[str, tuple[str, ...]] = {}
        for name, query in self._successors():
            replicas = self._voted_on(name, query)
            if replicas is None:
                continue
            given = self._wanted(replicas) or self._is_emptied(now_us, replicas)
            if given and not self._read_here(but=name).intersection(replicas.reads):
                wanted[query] = ()
            elif self._should_succeed(now_us, replicas):
                due.setdefault(query, {})[replicas.owner] = None
        return {query: tuple(owners) for query, owners in due.items()} | wanted

    def _voted_on(self, fragment: str, query: str) -> Replicas | None:
        """Who has a fragment, where this node votes on that: a host never does, and proposes nothing."""
        configuration = self._agreement.current(query)
        if configuration is None or self._me not in configuration.voters:
            return None
        return configuration.replicas(fragment)

    def _successors(self) -> Iterator[tuple[str, str]]:
        """Fragments of others that we could have, and their queries."""
        for name, _, taking in self._followings.followed():
            yield name, taking.spec.query
        for hosted in self._succession.resting():
            yield hosted.spec.name, hosted.spec.query

    def _unheard(self, now_us: int) -> list[str]:
        """Queries of which we follow a fragment whose owner is silent, and aren't its secondary, as we know.

        The owner may have had us decided on and died before anybody heard: to propose the next number, with
        nothing changed, brings that to its end. Once for each silence.
        """
        found: dict[str, None] = {}
        for name, query in self._successors():
            replicas = self._voted_on(name, query)
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

    def emptied(self) -> Collection[tuple[str, int]]:
        """Fragment and epoch of which the owner says that its disk is lost. Some may be another's by now."""
        return self._emptied.keys()

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
            if each.abroad or not (wanted or emptied):
                return taken_from(each, self._me)
            others = (each.owner, *each.secondaries) if wanted else each.secondaries
            return owned_by(each, self._me, tuple(node for node in others if node != self._me))

        return changed(current, tuple(map(after, current.fragments)), abroad=self._abroad)

    def _may_have_been_followed(self, current: Configuration) -> bool:
        """Once: whether somebody may have been decided on to stand by for what is damaged here, and our disk
        doesn't say so yet. To propose the next number, with nothing changed, brings that to its end."""
        fresh = [
            each.fragment
            for each in current.fragments
            if each.owner == self._me and not each.secondaries and self._succession.is_damaged(each.fragment)
        ]
        fresh = [name for name in fresh if name not in self._sought_for]
        self._sought_for.update(dict.fromkeys(fresh))
        return bool(fresh)

    def _resigning(self, current: Configuration) -> Configuration | None:
        """What we propose: what we were chosen for and can't run is that of another node, who has all that
        was shown or acknowledged before."""

        def after(each: Replicas) -> Replicas:
            began = self._succession.began_without_state(each)
            if each.owner != self._me or began is None:
                return each
            if self._succession.is_damaged(each.fragment):
                heard = (node for node in each.secondaries if self._is_up(node) and not self._abroad(node))
                new = next(heard, None)
                return each if new is None else taken_from(each, new)
            return given_back(each, began=began, is_up=self._is_up, abroad=self._abroad) or each

        return changed(current, tuple(map(after, current.fragments)), abroad=self._abroad)

    # --- what goes abroad --------------------------------------------------------------------------

    def _lent(self) -> list[str]:
        """Queries of which a fragment of ours is to be a host's now."""
        owned = list(self._replication.owned())
        return list(dict.fromkeys(of.query for _, of, each in owned if self._lends(each)))

    def _lending(self, current: Configuration) -> Configuration | None:
        """What we propose, since a host doesn't: it has ours, and we keep what we have until we follow it."""

        def after(each: Replicas) -> Replicas:
            host = self._lends(each)
            if not host or each.owner != self._me or host not in each.secondaries:
                return each
            others = (node for node in each.secondaries if node != host)
            return lent_to(each, host, (self._me, *others))

        return changed(current, tuple(map(after, current.fragments)), abroad=self._abroad)

    # --- who stands by for what is ours ------------------------------------------------------------

    def _look_after(self, now_us: int) -> None:
        """Secondaries of our fragments: those that are lost go, those that follow come; so do guests."""
        for hosted, configuration, replicas in list(self._replication.owned()):
            if replicas.abroad:  # Its owner's nodes say who stands by for it.
                continue
            offered = self._succession.undecided(replicas)
            # From here on, since it may be decided before we hear so.
            counted = dict.fromkeys((*replicas.secondaries, *offered, *self._coming(replicas)))
            if counted.keys() != {*hosted.counted}:
                hosted.count_on(now_us, counted)
            joining, leaving = self._joining(hosted, replicas), self._leaving(now_us, replicas)
            settled = replicas.guest == self._guest(replicas) and self._settled(hosted, replicas)
            if settled and not (offered or joining or leaving):
                continue
            if self._succession.begins(replicas.fragment):
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

    def _coming(self, replicas: Replicas) -> list[str]:
        """Nodes that follow, and don't count."""
        hosted = self._fragments.get(replicas.fragment)
        following = () if hosted is None else self._replication.wanted(hosted.spec, replicas)
        others = (node for node in following if node not in (self._me, *replicas.secondaries))
        return [
            node
            for node in others
            if node not in self._silent_since_us and self._replication.follows(replicas.fragment, node)
        ]

    def _joining(self, hosted: FragmentHost, replicas: Replicas) -> list[str]:
        """Of those, who has all that has left and all that was acknowledged: from then on it may succeed."""
        return [node for node in self._coming(replicas) if hosted.stands_in(node)]

    def _leaving(self, now_us: int, replicas: Replicas) -> list[str]:
        taken_over_at_us = self._succession.taken_over_at_us(replicas.fragment)

        def lost(node: str) -> bool:
            since_us = self._silent_since_us.get(node)
            if since_us is not None and taken_over_at_us is not None and since_us <= taken_over_at_us:
                return True  # It went with the owner, and rows have waited long enough.
            if since_us is not None and now_us - since_us >= LOST_US:
                return True
            return since_us is None and not self._replication.follows(replicas.fragment, node)

        hosted = self._fragments.get(replicas.fragment)
        backed_up = hosted is not None and hosted.spec.method == STATE_BACKUP
        kept: Collection[str] = replicas.secondaries
        if hosted is not None and backed_up:
            kept = self._replication.wanted(hosted.spec, replicas)
        return [node for node in replicas.secondaries if node not in kept or lost(node)]

    def _revised(self, now_us: int, current: Configuration) -> Configuration | None:
        """What we propose: our fragments with the secondaries that follow, in the order of the plan, whoever
        has caught up first, and with the guests that somebody wishes."""

        def after(each: Replicas) -> Replicas:
            # Its owner of before may be counted out once our disk has it, and not sooner.
            here = each.fragment in self._fragments and not self._succession.begins(each.fragment)
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
                self._succession.offered(each.fragment, joining)
            ready = tuple(node for node in each.followers if node in (*kept, *joining))
            return msgspec.structs.replace(each, secondaries=ready)

        regrouped = listed(current, self._made(current), self._is_gone, self._catalog.epoch)
        before = msgspec.structs.replace(current, parts=regrouped.parts)
        revised = changed(before, tuple(map(after, regrouped.fragments)), abroad=self._abroad)
        if revised is not None:
            return revised
        ours = [
            each for each in current.fragments if each.owner == self._me and each.fragment in self._fragments
        ]
        open_ = any(map(self._succession.undecided, ours))
        return next_number(current) if open_ else None

    # --- for others --------------------------------------------------------------------------------

    def silent_us(self, now_us: int, node: str) -> int | None:
        """For how long a node has been silent; None: it isn't, or nobody here has heard it."""
        since_us = self._silent_since_us.get(node)
        return None if since_us is None else now_us - since_us

    def removed(self, query: str) -> None:
        """The query is no more."""
        for one in [one for one in self._emptied if one[0].partition("/")[0] == query]:
            del self._emptied[one]
        hindered = self._said_hindered
        hindered.difference_update([one for one in hindered if one[0].partition("/")[0] == query])
        for about in [about for about in self._sought if about[0] == query]:
            del self._sought[about]
        for name in [name for name in self._sought_for if name.partition("/")[0] == query]:
            del self._sought_for[name]

    @property
    def waits_for_rows(self) -> bool:
        """Rows, and who says that it is there, may bring work sooner than ``wake_at_us`` says: somebody is
        silent, or is to catch up."""
        if self._silent_since_us:
            return True
        owned = (replicas for _, _, replicas in self._replication.owned())
        return any(self._coming(each) or self._succession.undecided(each) for each in owned)

    def wake_at_us(self, now_us: int) -> int | None:
        """When ``tick`` has work."""
        times: list[int] = []
        for name, query in self._successors():
            replicas = self._voted_on(name, query)
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
            if replicas.abroad:
                continue
            since = (self._silent_since_us.get(node) for node in replicas.secondaries)
            times += [at_us + LOST_US for at_us in since if at_us is not None and at_us + LOST_US > now_us]
            settled = replicas.guest == self._guest(replicas) and self._settled(hosted, replicas)
            if not settled and not self._agreement.proposing(configuration.query):
                times.append(now_us + GUEST_US)
        return min(times, default=None)
