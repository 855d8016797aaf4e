"""Who coordinates a query when the node that deployed it is gone. No IO.

    coordinator silent ── a voter proposes itself ── decided ──> it has the plan, and hears where parts are
    a part has moved ── the coordinator proposes the plan with it ── decided ──> whoever succeeds knows
    somebody says that the query was removed ──> it goes from here too, and whoever has a part is told

Nobody's rows wait for a coordinator, so nobody hurries. A removal is once and for all: of a query with a
configuration every node knows which life of it was removed from there, and tells whoever speaks of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import msgspec

from medusa.nodes.abroad.host_view import hosts_of
from medusa.nodes.agreement.agreement import Agreement
from medusa.nodes.agreement.bid import Change
from medusa.nodes.catalog.catalog import REMOVING, RUNNING, Catalog, Deployment
from medusa.nodes.config.settings import Settings
from medusa.nodes.spec.fragment_spec import FragmentSpec
from medusa.wire.messages.configuration import Configuration, QueryParts
from medusa.wire.outbox import Outbox

__all__ = ["AWAY_US", "Coordination", "CoordinatorRole"]

AWAY_US = 2_000_000
"""A coordinator that is silent for so long loses its role. Too small: a node that is restarted loses it."""

RANK_US = 1_000_000
"""The second voter in order waits so long for the first to propose itself, the third twice as long."""

TRY_US = 2_000_000
"""A proposal that isn't decided by then is withdrawn: others of this node wait for it."""

PAUSE_US = 5_000_000
"""Then it is made again."""

ENDED_US = 1_000_000
"""Who hears that a query was removed leaves whoever removes it so much time to say so itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorRole:
    """What the part of a node that coordinates is told.

    Attributes:
        took_over: of a query that is ours from now on.
        handed_over: of one that is another node's from now on.
        ended: of one that was removed, and the nodes that may have something of it.
        placed: of a fragment here, whose query another node coordinates now.
    """

    took_over: Callable[[int, str, QueryParts], None]
    handed_over: Callable[[str, str], None]
    ended: Callable[[int, str, tuple[str, ...]], None]
    placed: Callable[[int, FragmentSpec, str], None]


@dataclass(slots=True)
class _Silent:
    """The coordinator of a query isn't heard.

    Attributes:
        since_us: since then.
        change: what we proposed last.
        proposed_us: when; 0: never.
        again_us: when we may next.
    """

    coordinator: str
    since_us: int
    change: Change | None = None
    proposed_us: int = 0
    again_us: int = 0


class Coordination:
    """At one node, for all queries with a configuration.

    Args:
        is_up: whether a node is heard here; this node always is.
    """

    def __init__(
        self,
        settings: Settings,
        catalog: Catalog,
        *,
        outbox: Outbox,
        agreement: Agreement,
        is_up: Callable[[str], bool],
        role: CoordinatorRole,
    ) -> None:
        self._me = settings.name
        self._own = {settings.name, *settings.own_peers}
        self._peers = settings.peers
        self._catalog = catalog
        self._outbox = outbox
        self._agreement = agreement
        self._is_up = is_up
        self._role = role
        self._silent: dict[str, _Silent] = {}
        self._ended: dict[str, int] = {}
        """Query -> when it is removed from here, if it is still here."""

    def start(self, now_us: int) -> None:
        """After a start: what configurations say that we learned before."""
        for current in self._known():
            self.decided(now_us, current)

    def _known(self) -> list[Configuration]:
        return [kept.current for kept in dict(self._catalog.configurations).values()]

    # --- what is decided ------------------------------------------------------------------------------

    def decided(self, now_us: int, new: Configuration) -> None:
        """A configuration is known here: who has the role by it has it. The first is whoever deploys."""
        query, parts = new.query, new.parts
        if self._me not in new.voters:
            self._silent.pop(query, None)  # Who has no vote waits for no coordinator.
        if parts is None or (new.number == 1 and not self._was_ours(new)):
            return
        deployment = self._catalog.deployment(query)
        if new.coordinator == self._me and deployment is None:
            self._role.took_over(now_us, query, parts)
            self._outbox.report("warning", "coordinator's role taken over", query=query, number=new.number)
            self._place(new)
        elif new.coordinator != self._me and deployment is not None and deployment.state != REMOVING:
            self._role.handed_over(query, new.coordinator)
            to = new.coordinator
            self._outbox.report("warning", "coordinator's role is another node's", query=query, node=to)
        elif deployment is not None and deployment.state != REMOVING:
            deployment.recovers(parts.recovered)
        owners = self._catalog.owners
        if owners.get(query, new.coordinator) != new.coordinator:
            owners[query] = new.coordinator
            if new.coordinator != self._me:
                self._say_placed(now_us, new)

    def _was_ours(self, new: Configuration) -> bool:
        """Whether this node deployed the query in a life whose disk is lost."""
        kept = self._catalog.configuration(new.query)
        return new.coordinator == self._me and kept is not None and kept.forgot

    def _unguarded(self, new: Configuration) -> list[FragmentSpec]:
        """Fragments here that nobody stands by for: nothing else says where they are."""
        here = [each for each in dict(self._catalog.fragments).values() if each.query == new.query]
        return [each for each in here if new.replicas(each.name) is None]

    def _say_placed(self, now_us: int, new: Configuration) -> None:
        for spec in self._unguarded(new):
            self._role.placed(now_us, spec, new.coordinator)

    def _place(self, new: Configuration) -> None:
        """What others tell us, and what is here."""
        deployment = self._catalog.deployments[new.query]
        guarded = tuple((name, each.owner) for each in new.fragments for name in each.streams)
        known = {name for name, _ in guarded}
        others = tuple(each for each in deployment.streams if each[0] not in known)
        deployment.has_streams((*others, *guarded))
        here = [
            name for spec in self._unguarded(new) for name in (*spec.streams.values(), *spec.entries.values())
        ]
        deployment.stands_at(dict.fromkeys(here, self._me))

    # --- what is proposed -------------------------------------------------------------------------------

    def tick(self, now_us: int) -> None:
        """Propose what is due; remove what is said to be no more."""
        for query, at_us in list(self._ended.items()):
            current = self._agreement.current(query)
            if current is None:
                del self._ended[query]
            elif now_us >= at_us:
                del self._ended[query]
                self._outbox.report("warning", "query was removed elsewhere", query=query)
                self._role.ended(now_us, query, current.nodes())
        for current in self._known():
            if current.parts is None or self._me not in current.voters:
                continue
            if current.coordinator == self._me:
                self._silent.pop(current.query, None)
                self._keep(now_us, current)
            else:
                self._watch(now_us, current)

    def _keep(self, now_us: int, current: Configuration) -> None:
        """Whoever succeeds us is to know of parts that moved."""
        deployment = self._catalog.deployment(current.query)
        if deployment is None or deployment.state != RUNNING or self._agreement.proposing(current.query):
            return
        if _parts(current, deployment) != current.parts:
            self._agreement.propose(now_us, current.query, self._with_parts)

    def _with_parts(self, current: Configuration) -> Configuration | None:
        deployment = self._catalog.deployment(current.query)
        if deployment is None or deployment.state != RUNNING or current.coordinator != self._me:
            return None
        parts = _parts(current, deployment)
        if parts == current.parts:
            return None
        return msgspec.structs.replace(current, number=current.number + 1, parts=parts)

    def _watch(self, now_us: int, current: Configuration) -> None:
        """Propose ourselves once the coordinator was silent for long, and nobody before us in order has."""
        query, coordinator = current.query, current.coordinator
        if self._is_up(coordinator):
            self._silent.pop(query, None)
            return
        silent = self._silent.get(query)
        if silent is None or silent.coordinator != coordinator:
            silent = self._silent[query] = _Silent(coordinator, now_us)
        if silent.change is not None and self._agreement.wants(query, silent.change):
            if now_us - silent.proposed_us >= TRY_US:
                self._agreement.withdraw(query)
                silent.again_us = now_us + PAUSE_US
            return
        if now_us < self._due_us(current, silent) or self._agreement.proposing(query):
            return
        if not self._reaches_all(current):
            return  # It couldn't remove the query everywhere.
        silent.change, silent.proposed_us = partial(self._succeeding, coordinator), now_us
        self._agreement.propose(now_us, query, silent.change, suspects=(coordinator,))

    def _reaches_all(self, current: Configuration) -> bool:
        """Whether all nodes of a query are peers: our own, and hosts of its fragments."""
        strangers = [node for node in current.nodes() if node not in self._own]
        hosts = hosts_of(current) if strangers else {}
        return all(node in hosts and node in self._peers for node in strangers)

    def _due_us(self, current: Configuration, silent: _Silent) -> int:
        before = current.voters[: current.voters.index(self._me)]
        rank = sum(node != silent.coordinator and self._is_up(node) for node in before)
        return max(silent.since_us + AWAY_US + rank * RANK_US, silent.again_us)

    def _succeeding(self, coordinator: str, current: Configuration) -> Configuration | None:
        """What we propose: the silent coordinator's role is ours."""
        if current.coordinator != coordinator or self._is_up(coordinator):
            return None
        return msgspec.structs.replace(current, number=current.number + 1, coordinator=self._me)

    # --- a query that is no more ---------------------------------------------------------------------------

    def ended(self, now_us: int, query: str) -> None:
        """A node says that a query was removed that has a configuration here."""
        current = self._agreement.current(query)
        if current is not None and current.parts is not None:
            self._ended.setdefault(query, now_us + ENDED_US)

    def removed(self, query: str) -> None:
        """The query is no more."""
        self._silent.pop(query, None)
        self._ended.pop(query, None)

    def wake_at_us(self, now_us: int) -> int | None:
        """When ``tick`` has work."""
        times = list(self._ended.values())
        for query, silent in self._silent.items():
            current = self._agreement.current(query)
            if current is None or current.coordinator != silent.coordinator:
                continue
            if silent.change is not None and self._agreement.wants(query, silent.change):
                times.append(silent.proposed_us + TRY_US)
            elif self._reaches_all(current):
                due_us = self._due_us(current, silent)
                times.append(due_us if due_us > now_us else now_us + RANK_US)
        return min(times, default=None)


def _parts(current: Configuration, deployment: Deployment) -> QueryParts:
    """As who coordinates the query knows them."""
    assert current.parts is not None
    known = {name for each in current.fragments for name in each.streams}
    streams = tuple(each for each in deployment.streams if each[0] not in known)
    return msgspec.structs.replace(current.parts, nodes=deployment.nodes, streams=streams)
