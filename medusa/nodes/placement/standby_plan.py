"""Which nodes stand by for the fragments of a plan, as somebody wishes, and who votes on it. Pure.

    standby = {"core": ["spare-1", "spare-2"], "heavy": ["spare-2"], "*": "auto"}

A key is a fragment (``query/box``), a box, a node, or ``*``; for each fragment the first of these counts that
is there. All that can be known against it is refused here, before anything changes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeGuard

import msgspec

from medusa.errors import QueryError
from medusa.nodes.placement.backup_nodes import BACKUPS_MAX, backup_order
from medusa.nodes.placement.estimating import BoxTraffic, traffic_of
from medusa.nodes.placement.fragment_keys import REST, WishWords, boxes_of, by_fragment
from medusa.nodes.placement.own_streams import with_own_streams
from medusa.nodes.placement.placement import PlacementPlan
from medusa.nodes.placement.secondaries import Unguarded, recovery_work, spread
from medusa.nodes.placement.upstream_plan import check_repeats, check_upstream, repeat_warnings
from medusa.nodes.spec.fragment_spec import FragmentSpec
from medusa.nodes.upstream_backup.decisions import decision_in
from medusa.nodes.upstream_backup.reach import refusal_of
from medusa.query.boxes import Box, Graph, Sink
from medusa.query.recovery import (
    ACTIVE,
    AMNESIA,
    PASSIVE,
    PRECISE_UPSTREAM,
    STATE_BACKUP,
    UPSTREAM,
    methods_for,
    strongest,
)
from medusa.query.suggest import did_you_mean
from medusa.wire import limits
from medusa.wire.messages.configuration import VOTERS_MAX

__all__ = [
    "VOTERS_LEAST",
    "StandbyNode",
    "StandbyWish",
    "against",
    "cost_of",
    "guarded_as",
    "is_output",
    "method_on",
    "standby_warnings",
    "voters",
    "way_to",
    "with_methods",
    "with_standby",
]

_WORDS = WishWords("standby", "who stands by for it", "E_STANDBY")

VOTERS_LEAST = 3
"""Of fewer the loss of one leaves no majority."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StandbyNode:
    """A node, as the one knows it that is asked to deploy.

    Attributes:
        host: the machine; empty: unknown.
        peer: it is in the [peers] of the asked node, or is that node.
        abroad: the participant that it is of; empty: our own.
        up: it answers.
        forgets: it keeps nothing over its end.
        elsewhere: its fragments run on something else, such as Spark.
        agrees: its release knows how nodes agree on who takes over; unknown counts as yes.
        load: the share of a core that it is busy with.
    """

    name: str
    host: str = ""
    peer: bool = True
    abroad: str = ""
    up: bool = True
    forgets: bool = False
    elsewhere: bool = False
    agrees: bool = True
    load: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StandbyWish:
    """What a client asked.

    Attributes:
        standby: (key, nodes in the order in which they succeed); no nodes: they are chosen.
        witnesses: nodes that only vote.
    """

    standby: tuple[tuple[str, tuple[str, ...]], ...] = ()
    witnesses: tuple[str, ...] = ()


def with_standby(
    plan: PlacementPlan, graph: Graph, wish: StandbyWish, *, here: str, nodes: Mapping[str, StandbyNode]
) -> PlacementPlan:
    """The plan with who stands by for each fragment, and with witnesses.

    Args:
        graph: of the query.
        here: the node that deploys it, and coordinates it.
        nodes: those that are known here, by name.

    Raises:
        QueryError: a wish that doesn't hold, or a sink that is to be recovered and can't be.
    """
    return _Planning(plan, graph, wish, here, nodes).planned()


def voters(plan: PlacementPlan, here: str) -> tuple[str, ...]:
    """Who decides together on who takes over: who has a guarded fragment or stands by for one, who
    coordinates the query, and witnesses."""
    guarded = plan.guarded()
    if not guarded:
        return ()
    names = [name for fragment in guarded for name in (fragment.node, *fragment.standby)]
    return tuple(dict.fromkeys([*names, here, *plan.witnesses]))


def standby_warnings(
    plan: PlacementPlan, wish: StandbyWish, *, here: str, nodes: Mapping[str, StandbyNode]
) -> tuple[str, ...]:
    """What is less than one might think, of a plan that holds; arguments as for ``with_standby``."""
    found: list[str] = []
    who = voters(plan, here)
    fit = (each for each in nodes.values() if each.up and not against(each, here))
    spare = next((each.name for each in fit if each.name not in who), "")
    name = spare or "NODE"
    if who and len(who) < VOTERS_LEAST:
        found.append(
            f"{' and '.join(who)} alone can't decide which of them goes on when the other is lost: have a "
            f"third node vote on it as a witness, witness=[{name!r}]"
        )
    elif who and len(who) % 2 == 0:
        less = len(who) - 1
        text = (
            f"{len(who)} voters bear the loss of {less // 2}, no more than {less} do, since more than half "
            "must be there"
        )
        more = f": witness=[{spare!r}] would bear one more" if spare and len(who) < VOTERS_MAX else ""
        found.append(text + more)
    found += _silent_warnings(plan, who, nodes)
    found += _machine_warnings(plan, nodes)
    found += repeat_warnings(plan)
    if any(key == REST for key, _ in wish.standby) and not _wanted(plan):
        bare = [fragment for fragment in plan.fragments if not fragment.standby]
        found += [f"nobody stands by for fragment {each.name!r} at {each.node!r}" for each in bare]
    return tuple(found)


def _machine_warnings(plan: PlacementPlan, nodes: Mapping[str, StandbyNode]) -> Iterator[str]:
    """Of machines that have all who could have a fragment: each machine once, however many fragments."""
    found: dict[str, list[FragmentSpec]] = {}
    for each in plan.guarded():
        if machine := _one_machine(each, nodes):
            found.setdefault(machine, []).append(each)
    for fragments in found.values():
        names = dict.fromkeys(name for each in fragments for name in (each.node, *each.standby))
        of = " or ".join(repr(each.name) for each in fragments[:8])
        more = f" or {len(fragments) - 8} others" if len(fragments) > 8 else ""
        yield f"{', '.join(names)} are on one machine: were that lost nobody would have {of}{more}"


def _silent_warnings(
    plan: PlacementPlan, who: Sequence[str], nodes: Mapping[str, StandbyNode]
) -> Iterator[str]:
    """Of nodes that are to stand by or vote and don't answer."""
    silent = {name for name in who if name in nodes and not nodes[name].up}
    for each in plan.guarded():
        for name in each.standby:
            if name in silent:
                label = f"{name!r}, which is to stand by for {each.name!r}, doesn't answer"
                yield f"{label}: it begins when it does"
    for name in plan.witnesses:
        if name in silent:
            yield f"{name!r}, which is to be a witness, doesn't answer: it votes when it does"
    if silent and len(who) - len(silent) < len(who) // 2 + 1:
        named = ", ".join(name for name in who if name in silent)
        yield f"of {len(who)} voters {named} don't answer: nobody takes over until more than half do"


def way_to(plan: PlacementPlan, sink: FragmentSpec) -> tuple[FragmentSpec, ...]:
    """The fragments of the plan through which the output of one comes, itself last."""
    of = {(each.node, stream): each for each in plan.fragments for stream in each.streams.values()}
    found: dict[tuple[str, str], FragmentSpec] = {}
    stack = [sink]
    while stack:
        each = stack.pop()
        if (each.node, each.name) in found:
            continue
        found[each.node, each.name] = each
        stack += [of[key] for feed in each.feeds if (key := (feed.node, feed.stream)) in of]
    return tuple(reversed(found.values()))


class _Planning:
    """One plan and one wish."""

    def __init__(
        self,
        plan: PlacementPlan,
        graph: Graph,
        wish: StandbyWish,
        here: str,
        nodes: Mapping[str, StandbyNode],
    ) -> None:
        self._plan, self._graph, self._wish = plan, graph, wish
        self._here, self._nodes = here, nodes
        self._names = Counter(fragment.name for fragment in plan.fragments)
        self._wanted = _wanted(plan)
        """Places in the plan of the fragments by which rows come that are to be recovered."""

    def planned(self) -> PlacementPlan:
        found = self._wished()
        upstream = self._upstream(found)
        for place in upstream:
            found.setdefault(place, ())
        for place, names in found.items():
            self._check_owner(self._plan.fragments[place])
            self._check_named(self._plan.fragments[place], names)
        found = self._chosen(found, upstream)
        backups = {place: names or found[place][:1] for place, names in upstream.items()}
        found |= {place: tuple(dict.fromkeys((*names, *found[place]))) for place, names in backups.items()}
        self._check_recovered(found)
        standby = {self._plan.fragments[place].name: names for place, names in found.items()}
        named = {self._plan.fragments[place].name: names for place, names in backups.items()}
        guarded = with_methods(guarded_as(self._plan, standby, named))
        check_upstream(guarded)
        for fragment in guarded.fragments:
            for box in fragment.graph.boxes:
                way = way_to(guarded, fragment)
                if is_output(box, fragment) and method_on(way, box) == PRECISE_UPSTREAM:
                    check_repeats(box.id, way)
        plan = replace(with_own_streams(guarded), witnesses=self._wish.witnesses)
        self._check_voters(plan)
        return plan

    # --- what is wished for -----------------------------------------------------------------------------

    def _wished(self) -> dict[int, tuple[str, ...]]:
        """Place in the plan -> who stands by; nobody: somebody is to be chosen."""
        wish = self._wish.standby
        found = by_fragment(
            wish, self._plan, self._graph, words=_WORDS, rest=self._is_rest, nodes=self._nodes
        )
        if wish and not found:
            raise _refused(
                f"no fragment of query {self._plan.query!r} can be guarded: {self._why_none()}",
                hint="name the boxes of a fragment at one node of your own",
            )
        return found

    def _upstream(self, found: Mapping[int, tuple[str, ...]]) -> dict[int, tuple[str, ...]]:
        """Place of each fragment whose state is to be backed up -> nodes that send to it and can hold that,
        in order. None where none can: then the first that stands by for it does. Who is named to stand by
        goes on with it, and doesn't hold it."""
        methods, places = _methods(self._plan), {}
        for place in self._wanted:
            fragment = self._plan.fragments[place]
            named = found.get(place, ())
            if methods[fragment.node, fragment.name][0] != STATE_BACKUP or self._why_not(fragment):
                continue
            known = (self._nodes[feed.node] for feed in fragment.feeds if feed.node in self._nodes)
            fit = (each.name for each in known if not self._unfit(each, fragment))
            order = backup_order(fragment.name, [name for name in fit if name not in named])
            places[place] = order[: min(BACKUPS_MAX, limits.STANDBY_MAX - len(named or "?"))]
        return places

    def _is_rest(self, place: int) -> bool:
        """Whether the key for all others means it: what has to be guarded; where nothing has, what can be."""
        if self._wanted:
            return place in self._wanted and not self._abroad(self._plan.fragments[place])
        return not self._why_not(self._plan.fragments[place])

    # --- what stands against it -----------------------------------------------------------------------

    def _abroad(self, fragment: FragmentSpec) -> str:
        known = self._nodes.get(fragment.node)
        return "" if known is None else known.abroad

    def _why_not(self, fragment: FragmentSpec) -> str:
        """Why nobody can stand by for a fragment, whoever it be; empty: somebody can."""
        if whose := self._abroad(fragment):
            return f"it runs at {fragment.node!r} of participant {whose!r}"
        if self._names[fragment.name] > 1:
            at = [each.node for each in self._plan.fragments if each.name == fragment.name]
            return f"it runs under one name at {', '.join(at)}"
        known = self._nodes.get(fragment.node)
        return f"{fragment.node!r} forgets over its end" if known is not None and known.forgets else ""

    def _why_none(self) -> str:
        each = [f"{f.name!r}: {why}" for f in self._plan.fragments if (why := self._why_not(f))]
        return "; ".join(each)[:500]

    def _check_owner(self, fragment: FragmentSpec) -> None:
        why = self._why_not(fragment)
        if not why:
            return
        text = f"nobody can stand by for fragment {fragment.name!r}: {why}"
        if whose := self._abroad(fragment):
            hint = f"participant {whose!r} sees to it that it lasts, or it runs at a node of your own"
            raise _refused(text, hint=hint, code="E_ROLE")
        if self._names[fragment.name] > 1:
            raise _refused(text, hint="name its boxes at one node, or a source for each node")
        hint = f'put it at a node with a disk, or give {fragment.node!r} store = "disk"'
        raise _refused(text, hint=hint, code="E_STORE")

    def _check_named(self, fragment: FragmentSpec, names: Sequence[str]) -> None:
        label = f"fragment {fragment.name!r} at {fragment.node!r}"
        for name in names:
            if name == fragment.node:
                raise _refused(
                    f"{label}: its own node is to stand by for it, and would be lost with it",
                    hint="name another node",
                )
            self._check_node(name, f"{label}: {name!r} is to stand by for it")
            if any(each.node == name and each.name == fragment.name for each in self._plan.fragments):
                raise _refused(f"{label}: {name!r} runs a fragment of that name", hint="name another node")
        if len(set(names)) != len(names):
            twice = next(name for name, times in Counter(names).items() if times > 1)
            raise _refused(f"{label}: {twice!r} is to stand by for it twice", hint="name it once")

    def _check_node(self, name: str, label: str) -> None:
        """Whether a node can stand by, or vote."""
        known = self._nodes.get(name)
        if known is None:
            raise _refused(
                f"{label}, and node {self._here!r} knows no such node",
                hint=did_you_mean(name, self._nodes),
                code="query.placement.node",
            )
        if found := against(known, self._here):
            why, hint, code = found
            raise _refused(f"{label}, and {why}", hint=hint, code=code)

    def _check_recovered(self, found: Mapping[int, tuple[str, ...]]) -> None:
        """Whether all own fragments are guarded by which rows come that are to be recovered."""
        for place, sink in self._wanted.items():
            fragment = self._plan.fragments[place]
            if self._abroad(fragment):
                continue
            if place in found:
                self._check_answered(sink, fragment, found[place])
                continue
            self._check_owner(fragment)
            raise _refused(
                f"sink {sink!r} is to be recovered, and nobody stands by for fragment {fragment.name!r} at "
                f"{fragment.node!r}, by which its rows come",
                hint=f'standby="auto", or standby={{"{fragment.node}": ["NODE"]}}',
            )

    def _check_answered(self, sink: str, fragment: FragmentSpec, names: Sequence[str]) -> None:
        """Whether one is there of those that stand by where an output needs it."""
        if not any(self._nodes[name].up for name in names):
            raise _refused(
                f"sink {sink!r} is to be recovered, and of those that are to stand by for fragment "
                f"{fragment.name!r} at {fragment.node!r} none answers: {', '.join(names)}",
                hint="start one of them, or name a node that is there",
            )

    def _check_voters(self, plan: PlacementPlan) -> None:
        """Whether all vote who have to, and nobody twice."""
        names = self._wish.witnesses
        voting = voters(replace(plan, witnesses=()), self._here)
        if names and not voting:
            raise _refused(
                f"{names[0]!r} is to be a witness, and nobody stands by for anything",
                hint='standby="auto", or leave the witness out',
            )
        for name in names:
            self._check_node(name, f"{name!r} is to be a witness")
            if name in voting or names.count(name) > 1:
                why = "votes already" if name in voting else "is named twice"
                raise _refused(f"witness {name!r} {why}", hint="leave it out, or name another node")
        known = self._nodes.get(self._here)
        if voting and known is not None and known.forgets:
            raise _refused(
                f"node {self._here!r}, which is asked to deploy, votes on who takes over, and forgets over "
                "its end",
                hint="deploy at a node with a disk",
                code="E_STORE",
            )

    # --- choosing -------------------------------------------------------------------------------------

    def _chosen(
        self, found: dict[int, tuple[str, ...]], upstream: Mapping[int, tuple[str, ...]]
    ) -> dict[int, tuple[str, ...]]:
        """Somebody for each fragment for which nobody is named: on another machine where there is one, and of
        those so that the fragments of one node are spread (``secondaries``). Nobody where no other node is
        there than those upstream that hold its state."""
        open_places = [
            place
            for place, named in found.items()
            if not named and not (upstream.get(place) and not self._fit(place, upstream[place]))
        ]
        if not open_places:
            return found
        traffic = traffic_of(self._graph)
        busy = {name: node.load for name, node in self._nodes.items()}
        falls: dict[tuple[str, str], float] = {}
        for fragment in self._plan.fragments:
            busy[fragment.node] = busy.get(fragment.node, 0.0) + cost_of(fragment, traffic)
        for place, named in found.items():
            fragment = self._plan.fragments[place]
            for name in named:  # Who stands by feeds what the owner feeds.
                busy[name] = busy.get(name, 0.0) + cost_of(fragment, traffic)
            for name in named[:1]:  # The others come only once that one is lost too.
                key = fragment.node, name
                falls[key] = falls.get(key, 0.0) + recovery_work(fragment, self._graph, traffic)
        of = [self._plan.fragments[place] for place in open_places]
        unguarded = [
            Unguarded(
                owner=fragment.node,
                work=recovery_work(fragment, self._graph, traffic),
                cost=cost_of(fragment, traffic),
                candidates=self._candidates(fragment, upstream.get(place, ())),
            )
            for place, fragment in zip(open_places, of, strict=True)
        ]
        vote = [self._here, *self._wish.witnesses, *(each.node for each in of)]
        for place, named in found.items():
            vote += (self._plan.fragments[place].node, *named)
        names = spread(unguarded, falls_on=falls, loads=busy, voters=vote, voters_max=VOTERS_MAX)
        return {**found, **{place: (name,) for place, name in zip(open_places, names, strict=True)}}

    def _fit(self, place: int, upstream: Collection[str]) -> bool:
        """Whether any other node could go on with a fragment."""
        fragment = self._plan.fragments[place]
        others = (each for each in self._nodes.values() if each.name not in upstream)
        return any(not self._unfit(each, fragment) for each in others)

    def _candidates(self, fragment: FragmentSpec, upstream: Collection[str]) -> tuple[str, ...]:
        """Who may stand by for it: those on other machines than its owner, where there are such."""
        host = self._nodes[fragment.node].host if fragment.node in self._nodes else ""
        others = (each for each in self._nodes.values() if each.name not in upstream)
        why = {each.name: self._unfit(each, fragment) for each in others}
        fit = tuple(name for name, against in why.items() if not against)
        if not fit:
            refused = "; ".join(f"{name}: {of}" for name, of in why.items() if name != fragment.node)
            raise _refused(
                f"no node can stand by for fragment {fragment.name!r} at {fragment.node!r}"
                + (f": {refused}" if refused else ": there is no other"),
                hint=f"add a node to [peers] of {self._here}, or deploy without standby",
            )
        away = tuple(name for name in fit if not host or self._nodes[name].host != host)
        return away or fit

    def _unfit(self, node: StandbyNode, fragment: FragmentSpec) -> str:
        """Why it isn't chosen; empty: it may be."""
        if node.name == fragment.node:
            return "it has the fragment"
        if found := against(node, self._here):
            return found[0]
        if not node.up:
            return "it doesn't answer"
        if node.elsewhere:
            return "it has its fragments run elsewhere"
        here = (each for each in self._plan.fragments if each.node == node.name)
        if any(each.name == fragment.name for each in here):
            return "it runs a fragment of that name"
        return ""


# --- helpers ----------------------------------------------------------------------------------------


def _one_machine(fragment: FragmentSpec, nodes: Mapping[str, StandbyNode]) -> str:
    """The machine of all who could have it, as far as their addresses tell; empty: there are several."""
    hosts = {nodes[name].host for name in (fragment.node, *fragment.standby)}
    return hosts.pop() if len(hosts) == 1 else ""


def guarded_as(
    plan: PlacementPlan,
    standby: Mapping[str, tuple[str, ...]],
    backups: Mapping[str, tuple[str, ...]] | None = None,
) -> PlacementPlan:
    """With who stands by, by the names of fragments.

    Args:
        backups: of those, who holds their state for others.
    """
    held = backups or {}
    fragments = tuple(
        msgspec.structs.replace(each, standby=standby[each.name], backup_nodes=held.get(each.name, ()))
        if each.name in standby
        else each
        for each in plan.fragments
    )
    return replace(plan, fragments=fragments)


def with_methods(plan: PlacementPlan) -> PlacementPlan:
    """With how those who stand by can go on: each guarded fragment as the outputs wish to which its rows go,
    and of several wishes by the strongest. What can't make its output again goes on by passive standby where
    an output wishes for upstream backup and wants to be precise."""
    methods = _methods(plan)
    fragments = []
    for each in plan.fragments:
        method, reason = methods[each.node, each.name]
        if method and each.standby:
            named = "" if method == ACTIVE else method
            each = msgspec.structs.replace(each, method=named, method_reason=reason)
        fragments.append(each)
    return replace(plan, fragments=tuple(fragments))


def _methods(plan: PlacementPlan) -> dict[tuple[str, str], tuple[str, str]]:
    """Node and name of each fragment -> as ``_method_of`` has it, were it guarded."""
    wished: dict[tuple[str, str], dict[str, str]] = {}
    for fragment in plan.fragments:
        way = way_to(plan, fragment)
        for box in fragment.graph.boxes:
            if is_output(box, fragment):
                method = method_on(way, box)
                for each in way:
                    wished.setdefault((each.node, each.name), {}).setdefault(method, box.id)
    keys = (((each.node, each.name), each) for each in plan.fragments)
    return {key: _method_of(each, wished.get(key, {})) for key, each in keys}


def _method_of(fragment: FragmentSpec, wished: Mapping[str, str]) -> tuple[str, str]:
    """How a fragment goes on, and why that is another method than an output wishes for; empty: it isn't.

    Args:
        wished: method -> the first output that wishes for it.
    """
    wishes = {*wished}
    decision = decision_in(fragment.graph) if PRECISE_UPSTREAM in wishes else None
    methods = wishes - {PRECISE_UPSTREAM} | {PASSIVE} if decision is not None else wishes
    method = strongest(filter(None, methods))
    if method in (AMNESIA, UPSTREAM) and "" in methods:
        method = PASSIVE  # An output without a wish loses nothing while the disks are there.
    if decision is not None and method == PASSIVE:
        return method, " ".join(decision)
    return method, _why_stronger(method, wished)


def _why_stronger(method: str, wished: Mapping[str, str]) -> str:
    """Which output brings a method about that others don't wish for; empty: all wish for it."""
    if not wished.keys() - {method, ""}:
        return ""
    if method in wished:
        return f"it feeds sink {wished[method]!r} too, which asks for that"
    if "" in wished:
        return (
            f"it feeds sink {wished['']!r} too, which asks for nothing, and so is to lose and repeat no row"
        )
    may = f"it feeds sink {wished[AMNESIA]!r}, which may lose rows, and sink {wished[UPSTREAM]!r}, which may "
    return f"{may}have them twice: neither may do both"


def is_output(box: Box, fragment: FragmentSpec) -> TypeGuard[Sink]:
    """Whether it is an output of the query, and no stream between two of its fragments."""
    return isinstance(box, Sink) and box.id in fragment.streams and box.id not in fragment.readers


def method_on(way: Iterable[FragmentSpec], sink: Sink) -> str:
    """How an output is recovered: as it wishes, or by the first method that promises that for the boxes on
    its way; empty: it has no wish. Of single fragments ``with_methods`` may say another.

    Args:
        way: the fragments by which its rows come.
    """
    if sink.recovery is None:
        return ""
    possible = methods_for(sink.recovery, sink.method)
    if len(possible) > 1 and any(refusal_of(each.graph) is not None for each in way):
        possible = tuple(method for method in possible if method != UPSTREAM)
    precise = possible[0] == UPSTREAM and sink.recovery == "precise"
    return PRECISE_UPSTREAM if precise else possible[0]


def cost_of(fragment: FragmentSpec, traffic: BoxTraffic) -> float:
    """The share of a core that it takes, of its owner and of each who stands by."""
    return sum(traffic.costs.get(id, 0.0) for id in boxes_of(fragment))


def _wanted(plan: PlacementPlan) -> dict[int, str]:
    """Places of the fragments by which rows come that are to be recovered -> a sink that asks for it."""
    places = {(each.node, each.name): place for place, each in enumerate(plan.fragments)}
    found: dict[int, str] = {}
    for fragment in plan.fragments:
        asks = [box.id for box in fragment.graph.boxes if isinstance(box, Sink) and box.recovery is not None]
        for each in way_to(plan, fragment) if asks else ():
            found.setdefault(places[each.node, each.name], asks[0])
    return dict(sorted(found.items()))


def against(node: StandbyNode, here: str) -> tuple[str, str, str] | None:
    """Why a node can neither stand by nor vote, whatever it be for: the reason, a hint and a code."""
    if node.abroad:
        return (
            f"it is of participant {node.abroad!r}",
            "name a node of your own: only those agree on who takes over",
            "E_ROLE",
        )
    if not node.peer:
        return f"it is no peer of {here!r}", f"add {node.name} to [peers] of {here}", "E_PEER"
    if node.forgets:
        hint = f'name a node with a disk, or give {node.name} store = "disk"'
        return "it forgets over its end what it promised", hint, "E_STORE"
    if not node.agrees:
        return "its release doesn't know how nodes agree on who takes over", "update it", "E_VERSION"
    return None


def _refused(text: str, *, hint: str = "", code: str = "E_STANDBY") -> QueryError:
    return QueryError(text, hint=hint, code=code)
