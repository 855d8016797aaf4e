"""By how much a failure may hold up the fragments of a plan, and what its outputs are promised. Pure.

    a ── first ──┐
                 ├── both ── out, delay="2s"     first, both: 2 s
    b ── second ─┴── more ── fast, delay="1s"    second, more: 1 s

A fragment waits as long as the least of the outputs allows that it feeds, however far down, and has the
policies of those by which new rows show first. All that can be known against it is refused here, before
anything changes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec

from medusa.errors import QueryError
from medusa.nodes.consistency.meeting_sources import MeetingSources
from medusa.nodes.placement.placement import PlacementPlan
from medusa.nodes.placement.standby_plan import StandbyNode, is_output, way_to
from medusa.nodes.spec.fragment_spec import FragmentSpec
from medusa.query.boxes import Graph, Sink
from medusa.query.delay import delay_least_us, delay_line, delay_promise, margin_us
from medusa.query.delay_policies import PROCESS, Policies, policies_met, soonest
from medusa.query.waiting_rows import waiting_rows
from medusa.units import duration_text

__all__ = [
    "DelayedOutput",
    "delay_warnings",
    "delayed_outputs",
    "merged_policies",
    "refuse_mixed",
    "with_delays",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class DelayedOutput:
    """An output that bounds what a failure adds to it; ``str()`` says what it is promised.

    Attributes:
        stream: its name.
        delay_us: X, as its sink wishes.
        least_us: the least X of the fragments by which its rows come.
        waits: some box on their way waits for inputs; else none of its rows can be held up.
        wished, policies: what becomes of new rows in a failure and while corrections come: as its sink
            wishes; and as the fragments do by which its rows come, which may be as another output wishes.
    """

    stream: str
    delay_us: int
    least_us: int
    waits: bool
    wished: Policies
    policies: Policies

    def __str__(self) -> str:
        promise = delay_promise(self.delay_us, self.least_us, *self.policies)
        if not self.waits:
            promise = "no box on its way waits for an input: nothing holds it up, and none is tentative"
        elif self.policies != self.wished:
            promise += f"; {' & '.join(self.policies)}, as another output wants"
        return f"{self.stream}, {delay_line(self.delay_us, *self.wished)}: {promise}"


def with_delays(plan: PlacementPlan, *, noticed_us: int, nodes: Mapping[str, StandbyNode]) -> PlacementPlan:
    """The plan with the X of each fragment, and its policies.

    Args:
        noticed_us: after so long a silent link is noticed; 0: whoever deploys it knows.
        nodes: those that are known here, by name.

    Raises:
        QueryError: an output can't have its X: names the sink, the fragment, and what to do.
    """
    least: dict[tuple[str, str], tuple[int, str]] = {}
    for box, way in _wished(plan):
        sink, delay_us = box.id, _us(box)
        if noticed_us and delay_us < (possible_us := delay_least_us(noticed_us)):
            raise _refused(
                sink,
                f"{duration_text(delay_us)} is too little: a link that is cut is noticed after "
                f"{duration_text(noticed_us)}, and {duration_text(margin_us(possible_us))} are left for the "
                "copy of the state that goes on",
                hint=f'the least is delay="{duration_text(possible_us)}"',
            )
        for each in way:
            _check_node(sink, each, nodes.get(each.node))
            known = least.get((each.node, each.name))
            if known is None or delay_us < known[0]:
                least[each.node, each.name] = delay_us, sink
    fragments, policies = [], _policies(plan)
    for each in plan.fragments:
        delay_us, sink = least.get((each.node, each.name), (0, ""))
        if delay_us:
            refuse_mixed(each, sink)
            failure, stabilization = policies[each.node, each.name]
            each = msgspec.structs.replace(
                each, delay_us=delay_us, delay_failure=failure, delay_stabilization=stabilization
            )
        fragments.append(each)
    return replace(plan, fragments=tuple(fragments)) if least else plan


def delayed_outputs(plan: PlacementPlan, graph: Graph) -> tuple[DelayedOutput, ...]:
    """The outputs that have an X, in the order in which the fragments have them.

    Args:
        graph: of the query, of which ``plan`` is a cut.
    """
    wished = list(_wished(plan))
    waiting, policies = waiting_rows(graph), _policies(plan)
    least: dict[tuple[str, str], int] = {}
    for box, way in wished:
        for each in way:
            least[each.node, each.name] = min(_us(box), least.get((each.node, each.name), _us(box)))
    return tuple(
        DelayedOutput(
            stream=way[-1].streams[box.id],
            delay_us=_us(box),
            least_us=min(least[each.node, each.name] for each in way),
            waits=waiting[box.id].wait,
            wished=box.policies,
            policies=policies_met(box.policies, (policies[each.node, each.name] for each in way)),
        )
        for box, way in wished
    )


def _policies(plan: PlacementPlan) -> dict[tuple[str, str], Policies]:
    """Of each fragment that feeds outputs with an X: by node and name."""
    found: dict[tuple[str, str], Policies] = {}
    for box, way in _wished(plan):
        for each in way:
            key = each.node, each.name
            found[key] = _soonest([box.policies, found.get(key, box.policies)])
    return found


def _soonest(several: Sequence[Policies]) -> Policies:
    return soonest(failure for failure, _ in several), soonest(after for _, after in several)


def merged_policies(specs: Sequence[FragmentSpec]) -> Policies:
    """Of a fragment that is made of these."""
    bounded = [(each.delay_failure, each.delay_stabilization) for each in specs if each.delay_us]
    return _soonest(bounded or [(PROCESS, PROCESS)])


def delay_warnings(plan: PlacementPlan, graph: Graph) -> Iterator[str]:
    """Outputs whose rows wait, and of which all come the same way: while that is cut nothing can be answered.

    Args:
        graph: of the query, of which ``plan`` is a cut.
    """
    waiting, above = waiting_rows(graph), MeetingSources(graph).above
    for box, way in _wished(plan):
        sink = box.id
        if len(above[sink]) > 1 or not waiting[sink].wait or any(map(_unites, way)):
            continue
        [source] = above[sink]
        yield (
            f"delay of {way[-1].streams[sink]}: all of it comes by source {source!r}: while that brings "
            "nothing there is nothing to answer, only where several publish into it those that are there are "
            "answered"
        )


def _unites(fragment: FragmentSpec) -> bool:
    """Whether streams meet in it: of one source too, that came by several nodes."""
    return any(len(sources) > 1 for sources in MeetingSources(fragment.graph).above.values())


def refuse_mixed(fragment: FragmentSpec, sink: str = "") -> None:
    """Whether the rows of each stream that leaves a fragment wait for the same inputs. Else some would come
    on the stable lane, and others that belong between them on the tentative one.

    Args:
        sink: whose delay it is for.

    Raises:
        QueryError: they don't; names the stream and the boxes.
    """
    for id, rows in waiting_rows(fragment.graph).items():
        if rows.mixed:
            raise _refused(
                sink or id,
                f"of stream {fragment.streams[id]!r} of fragment {fragment.name!r} at {fragment.node!r} "
                f"{rows.mixed}: a part of it would be tentative, and the rest not",
                hint='unite them by md.sunion(one, other, bucket="100ms"): all wait for the same there',
            )


def _wished(plan: PlacementPlan) -> Iterator[tuple[Sink, Sequence[FragmentSpec]]]:
    """Sink and way of each output that has an X."""
    for fragment in plan.fragments:
        for box in fragment.graph.boxes:
            if isinstance(box, Sink) and is_output(box, fragment) and box.delay_us is not None:
                yield box, way_to(plan, fragment)


def _us(box: Sink) -> int:
    assert box.delay_us is not None
    return box.delay_us


def _check_node(sink: str, fragment: FragmentSpec, node: StandbyNode | None) -> None:
    """Whether a fragment can be forked where it runs."""
    label = f"fragment {fragment.name!r} on its way runs at {fragment.node!r}"
    if node is not None and node.abroad:
        raise _refused(
            sink,
            f"{label} of participant {node.abroad!r}, and participants offer each other no tentative streams",
            hint="put its boxes at a node of your own, or leave delay out",
            code="E_ROLE",
        )
    if node is not None and node.elsewhere:
        raise _refused(
            sink,
            f"{label}, which has its fragments run elsewhere and can't copy one while its rows flow",
            hint="put its boxes at a node that runs them itself, or leave delay out",
        )


def _refused(sink: str, why: str, *, hint: str, code: str = "E_DELAY") -> QueryError:
    return QueryError(f"sink {sink!r}: delay: {why}", hint=hint, code=code)
