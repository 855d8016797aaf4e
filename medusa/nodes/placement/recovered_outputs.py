"""What the outputs of a query go through when a machine is lost for good, and what that costs. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from medusa.engine.held_rows_count import uncounted
from medusa.nodes.fragment.clock_decisions import decides
from medusa.nodes.placement.estimating import BoxTraffic
from medusa.nodes.placement.placement import PlacementPlan
from medusa.nodes.placement.secondaries import fed_bytes_per_s
from medusa.nodes.placement.standby_plan import VOTERS_LEAST, is_output, method_on, way_to
from medusa.nodes.placement.voter_majority import away_text, majority_of, no_majority
from medusa.nodes.spec.fragment_spec import FragmentSpec
from medusa.query.boxes import Graph
from medusa.query.recovery import ACTIVE, AMNESIA, PASSIVE, STATE_BACKUP, UPSTREAM, strongest

__all__ = ["RecoveredOutput", "guarantee_of", "recovered_outputs", "ways_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveredOutput:
    """An output, as a plan recovers it; ``str()`` shows it in a few lines.

    Attributes:
        stream: its name.
        method: ``active_standby``; empty: nobody stands by for any fragment on its way.
        standby: fragment on its way -> its node, and who stands by for it.
        methods: fragment on its way -> how it goes on: by the strongest of what its outputs wish for.
        otherwise: fragment on its way that goes on by another method -> which, and why.
        guarantee: what is promised, in words.
        overhead: what it costs while nothing fails, in words.
        bytes_per_s: of what is fed that are sent once more, as estimated; only active standby sends that.
    """

    stream: str
    method: str
    standby: Mapping[str, tuple[str, ...]]
    guarantee: str
    overhead: str
    bytes_per_s: float
    methods: Mapping[str, str] = field(default_factory=dict)
    otherwise: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        lines = [f"{self.stream}: {self.guarantee}"]
        if self.method:
            by: dict[str, list[str]] = {}
            for name, of in self.standby.items():
                who = f"{', '.join(of) or 'nobody'} for {name}"
                by.setdefault(self.methods.get(name, self.method), []).append(who)
            lines += [f"  {method.replace('_', ' ')}: {'; '.join(whose)}" for method, whose in by.items()]
            lines += [f"  {name} by {how}" for name, how in self.otherwise.items()]
            lines.append(f"  {self.overhead}")
        return "\n".join(lines)


def guarantee_of(
    alone: Sequence[str],
    voters: int,
    method: str = "",
    *,
    away: Sequence[str] = (),
    not_voting: Sequence[str] = (),
    lost: Sequence[str] = (),
    without_state: Sequence[str] = (),
    uncounted: Sequence[str] | None = None,
) -> str:
    """What is promised of an output.

    Args:
        alone: fragments on its way that nobody could take over.
        voters: how many decide on that.
        method: how it is recovered.
        away: those of the voters that aren't heard.
        not_voting: those of them that are, and don't vote yet.
        lost: those of ``alone`` whose node isn't heard.
        without_state: fragments on its way whose node has lost them with its disk, and nobody has taken over.
        uncounted: boxes that may lose rows which nobody can count; None: it isn't known whether there are.
    """
    if stuck := no_majority(voters, away, not_voting):
        return stuck
    if without_state:
        names = " and ".join(without_state)
        return f"waits: the node of {names} has lost its state (medusa status --all says who may have it)"
    if lost:
        return f"as without standby: waits until the node of {' or '.join(lost)} is back"
    if alone:
        return f"as without standby: would wait while the node of {' or '.join(alone)} is away"
    waits = voters < VOTERS_LEAST
    goes_on = "goes on when a node is lost for good"
    if waits:
        goes_on = "a lost node is waited for, since two voters can't decide without one of them"
    elif (away or not_voting) and voters - len(away) - len(not_voting) == majority_of(voters):
        waits = True
        goes_on = f"{away_text(voters, away, not_voting)}, and one more loss stops it"
    if method == AMNESIA:
        counted = (
            "lost and counted, but where its boxes can't be" if uncounted is None else "lost and counted"
        )
        if uncounted:
            boxes = " and ".join(repr(box) for box in uncounted)
            counted = f"lost, and nobody can say how many rows: those in {boxes} can't be counted"
        return f"at most once: what a lost node held is {counted}; {goes_on}"
    if method == UPSTREAM:
        return f"at least once: rows may come again, under other numbers, if a node is lost; {goes_on}"
    return f"exactly once; {goes_on}" if waits else f"exactly once, and {goes_on}"


def ways_of(plan: PlacementPlan) -> tuple[tuple[str, str, tuple[str, ...]], ...]:
    """(stream, method, fragments by which its rows come) of the outputs that somebody stands by for."""
    return tuple(
        (stream, method, tuple(each.name for each in way))
        for stream, method, _, way in _outputs(plan)
        if method
    )


def recovered_outputs(
    plan: PlacementPlan, graph: Graph, traffic: BoxTraffic, *, voters: int, away: Sequence[str] = ()
) -> tuple[RecoveredOutput, ...]:
    """All outputs of a plan, in the order in which its fragments have them.

    Args:
        voters: how many decide on who takes over.
        away: those of them that don't answer.
    """
    return tuple(
        RecoveredOutput(
            stream=stream,
            method=method,
            standby={each.name: each.standby for each in way},
            guarantee=guarantee_of(
                [each.name for each in way if not each.standby],
                voters,
                method,
                away=away if method else (),
                uncounted=[box for each in way if each.keeps_nothing for box in uncounted(each.graph)],
            ),
            overhead=_overhead(way, nbytes),
            bytes_per_s=nbytes,
            methods={each.name: each.method or ACTIVE for each in way if each.standby},
            otherwise={
                each.name: f"{(each.method or ACTIVE).replace('_', ' ')}: {each.method_reason}"
                for each in way
                if each.method_reason and (each.method or ACTIVE) != wish
            },
        )
        for stream, method, wish, way in _outputs(plan)
        for nbytes in [sum(fed_bytes_per_s(each, graph, traffic) * len(each.standby) for each in _sent(way))]
    )


def _outputs(plan: PlacementPlan) -> list[tuple[str, str, str, tuple[FragmentSpec, ...]]]:
    """Stream, method, wish and way of each output of the query itself."""
    found = []
    for fragment in plan.fragments:
        for box in fragment.graph.boxes:
            if is_output(box, fragment):
                way = way_to(plan, fragment)
                guarded = any(each.standby for each in way)
                wish = method_on(way, box) or ACTIVE
                method = _used(way, wish) if guarded else ""
                found.append((fragment.streams[box.id], method, wish, way))
    return found


def _used(way: Sequence[FragmentSpec], wished: str) -> str:
    """How the rows of an output are recovered: as was wished, or by more where each fragment on its way is,
    for the sake of other outputs."""
    used = {each.method or ACTIVE for each in way if each.standby}
    return wished if wished not in (AMNESIA, UPSTREAM) or wished in used else strongest(used)


def _sent(way: Sequence[FragmentSpec]) -> list[FragmentSpec]:
    """Those of which others are sent what they are fed."""
    return [each for each in way if each.standby and not (each.keeps_nothing or each.idle_standby)]


def _overhead(way: Sequence[FragmentSpec], nbytes: float) -> str:
    costs = []
    if guarded := _sent(way):
        costs.append(_of_active(guarded, nbytes))
    if passive := [each for each in way if each.method == PASSIVE]:
        costs.append(_of_passive(passive))
    costs += [_of_backup(each) for each in way if each.method == STATE_BACKUP]
    if again := [each for each in way if each.reads_again]:
        costs.append(
            f"who stands by for {_listed(again)} is sent some hundred bytes with each checkpoint; senders, "
            "and clients that publish, keep rows until no window needs them"
        )
    if empty := [each for each in way if each.keeps_nothing]:
        costs.append(
            f"who stands by for {_listed(empty)} is sent nothing, and nothing is kept; some hundred bytes "
            "more go with each train that comes of it"
        )
    return "; ".join(costs)


def _of_active(guarded: Sequence[FragmentSpec], nbytes: float) -> str:
    deciding = [each for each in guarded if decides(each.graph)]
    waits = "no row waits for that, unless several clients publish into one source"
    if deciding:
        waits = (
            f"rows of {_listed(deciding)} depend on the order in which others came, and wait one round "
            "trip until who stands by has that"
        )
    what = f"what {_listed(guarded)} is fed is sent once more to each who stands by"
    return f"{what}, about {nbytes / 1e6:,.3f} MB/s; {waits}"


def _of_passive(passive: Sequence[FragmentSpec]) -> str:
    deciding = [each for each in passive if each.entries or decides(each.graph)]
    waits = f", and output of {_listed(deciding)} waits for that" if deciding else ""
    what = "is sent each checkpoint, and of a large state what changed since the one before"
    return f"who stands by for {_listed(passive)} {what}{waits}"


def _of_backup(fragment: FragmentSpec) -> str:
    """Who is sent what, and who goes on."""
    first, *others = fragment.backup_nodes
    spares = [node for node in fragment.standby if node not in fragment.backup_nodes]
    then = f" or, once that is lost, {' or '.join(others)}" if others else ""
    goes_on = f"{' or '.join(spares)} goes on with it" if spares else "who holds it goes on with it"
    waits = ", and its output waits for that" if fragment.entries or decides(fragment.graph) else ""
    what = "each checkpoint, and of a large state what changed since the one before"
    return f"the state of {fragment.name} is held by {first}{then}, which is sent {what}{waits}; {goes_on}"


def _listed(fragments: Sequence[FragmentSpec]) -> str:
    return " and ".join(each.name for each in fragments)
