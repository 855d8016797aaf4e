"""What a node says of itself: numbers per fragment and stream."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, get_type_hints

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from medusa.elements import END_US, START_US
from medusa.engine.qos.rates import Meter
from medusa.nodes.catalog.catalog import Deployment
from medusa.nodes.fragment.host import FragmentHost
from medusa.nodes.fragment.inputs import FragmentInput
from medusa.nodes.fragment.outputs import FragmentOutput
from medusa.nodes.load.loads import NodeLoads
from medusa.nodes.names.advertise import source_body
from medusa.nodes.placement.recovered_outputs import guarantee_of
from medusa.nodes.spec.fragment_spec import FragmentSpec
from medusa.query.boxes import Sink, Source
from medusa.query.delay_policies import Policies, policies_met
from medusa.wire import limits
from medusa.wire.link.automaton import ReceiverState, SenderState
from medusa.wire.link.named_subscriptions import owner_and_name
from medusa.wire.link.output_log import OutputLog
from medusa.wire.link.receiver_views import ReceiverView
from medusa.wire.status_and_metrics import (
    FOLLOWING,
    BoxStatus,
    ConfigurationStatus,
    ConsistencyStatus,
    EndStatus,
    FragmentStatus,
    GonePublishers,
    InputStatus,
    NamedStatus,
    NodeStatus,
    OutputStatus,
    PublisherStatus,
    QueryStatus,
    ReceiverStatus,
    RecoveredStatus,
    ReplicasStatus,
    ScalingStatus,
    SourceStatus,
    VisibleStatus,
)

__all__ = ["FragmentRates", "encoded", "fragment_status", "queries_of", "sources_of", "totals"]

RATE_OVER_US = 2_000_000
SAMPLE_US = 100_000


class FragmentRates:
    """Rows per second of each fragment, over the last two seconds; of each box over the last five."""

    def __init__(self) -> None:
        self._fragments: dict[str, Meter] = {}
        self._boxes: dict[str, tuple[list[str], Meter]] = {}

    def tick(
        self, now_us: int, fragments: Iterable[FragmentHost], engine: Mapping[str, Mapping[str, Any]]
    ) -> None:
        """Note where the counts stand.

        Args:
            engine: what the driver last said of the boxes of each fragment.
        """
        known, self._fragments = self._fragments, {}
        for hosted in fragments:
            name = hosted.spec.name
            meter = self._fragments[name] = known.get(name) or Meter(RATE_OVER_US, SAMPLE_US)
            if now_us >= meter.due_us:
                meter.note(now_us, (hosted.rows_in, rows_out(hosted)))
        before, self._boxes = self._boxes, {}
        for name, told in engine.items():
            ids, meter = before.get(name, ([], Meter()))
            if ids != list(told["boxes"]):  # another query of that name
                ids, meter = list(told["boxes"]), Meter()
            self._boxes[name] = ids, meter
            if now_us >= meter.due_us:
                meter.note(now_us, _counts(told["boxes"]))

    def of_boxes(
        self, now_us: int, fragment: str, boxes: Mapping[str, Mapping[str, Any]]
    ) -> dict[str, dict[str, Any]]:
        """What is known of each box, with its rates, unless they are new here."""
        ids, meter = self._boxes.get(fragment, ([], None))
        rates = meter.rates(now_us, _counts(boxes)) if meter is not None and ids == list(boxes) else None
        found = {id: dict(figures) for id, figures in boxes.items()}
        if rates is not None:
            for place, figures in enumerate(found.values()):
                came, left, busy = rates[3 * place : 3 * place + 3]
                figures |= {"rows_in_per_s": came, "rows_out_per_s": left, "load": busy / 1e6}
        return found

    def of(self, now_us: int, hosted: FragmentHost) -> tuple[int, int]:
        """Rows in and out per second."""
        meter = self._fragments.get(hosted.spec.name)
        rates = meter and meter.rates(now_us, (hosted.rows_in, rows_out(hosted)))
        return (int(rates[0]), int(rates[1])) if rates else (0, 0)


def _counts(boxes: Mapping[str, Mapping[str, Any]]) -> list[int]:
    return [each[name] for each in boxes.values() for name in ("rows_in", "rows_out", "busy_us")]


def rows_out(hosted: FragmentHost) -> int:
    guests = hosted.spec.guests  # They get what was counted at their sink.
    return sum(output.rows for id, output in hosted.outputs.items() if id not in guests)


def fragment_status(
    hosted: FragmentHost,
    rates: FragmentRates,
    now_us: int,
    engine: Mapping[str, Any],
    loads: NodeLoads,
    why: Mapping[str, Mapping[str, Any]],
    method: tuple[str, str],
    guarded: tuple[int, ReplicasStatus] | None,
) -> FragmentStatus:
    """One fragment.

    Args:
        engine: what the driver knows of the boxes, as ``reports.Stats`` has counted it: fields of the status,
            and ``boxes``; nothing until the engine has told.
        why: of each box, what it waits for: ``blocking_reasons.explained``.
        method: how who stands by goes on, and why that isn't as was wished.
        guarded: the number of the configuration, and who stands by; None: nobody should.
    """
    # Publishers that went and left nothing open are only remembered.
    shown = [i for i in hosted.inputs.values() if i.judged or i.silent_since_us is None or not i.settled]
    inputs = tuple(_input_status(each) for each in shown)
    spec, told = hosted.spec, engine.get("boxes", {})
    guests = spec.guests
    policies = (spec.delay_failure, spec.delay_stabilization) if spec.delay_us else ("", "")
    bounded = {
        box.id: (box.delay_us, policies_met(box.policies, [policies] if spec.delay_us else []))
        for box in spec.graph.boxes
        if isinstance(box, Sink) and box.delay_us is not None
    }
    outputs = tuple(
        _output_status(
            each,
            guests[id].sink if id in guests else id,
            bounded.get(id, (0, ("", ""))),
            UNSET if hosted.bound is None else hosted.bound.status(now_us, id, told),
        )
        for id, each in hosted.outputs.items()
    )
    came_us = max((each.fed_us for each in hosted.inputs.values()), default=START_US)
    boundary_us = min((each.boundary_us for each in hosted.outputs.values()), default=START_US)
    per_second_in, per_second_out = rates.of(now_us, hosted)
    name = hosted.spec.name
    smoothed = loads.boxes(name)
    boxes = rates.of_boxes(now_us, name, told)
    return FragmentStatus(
        fragment=name,
        query=hosted.spec.query,
        state="failed" if hosted.failed else "finished" if boundary_us >= END_US else "running",
        failed=hosted.failed,
        rows_in=hosted.rows_in,
        rows_out=rows_out(hosted),
        rows_in_per_s=per_second_in,
        rows_out_per_s=per_second_out,
        queue_bytes=sum(each.queue_bytes for each in inputs),
        kept_bytes=sum(each.kept_bytes for each in outputs),
        shed_rows=sum(each.shed_rows for each in outputs),
        lag_us=came_us - boundary_us if START_US < boundary_us <= came_us < END_US else 0,
        boundary_us=_point(boundary_us),
        finished=boundary_us >= END_US,
        lost_rows=hosted.lost_rows,
        lost_by=hosted.lost_by,
        lost_unknown=hosted.lost_unknown,
        left_out_rows=sum(hosted.thinning.shed_rows.values()),
        left_out_by=hosted.thinning.shed_rows,
        uncounted=tuple(hosted.uncounted),
        refused_rows=sum(each.refused_rows for each in inputs),
        checkpoints=hosted.checkpoints,
        checkpoint_failures=hosted.checkpoint_failures,
        checkpoint_every_us=hosted.checkpoint_every_us,
        disk_error=hosted.disk_error or hosted.decided.why or _spill_error(hosted),
        **{name: count for name, count in engine.items() if name != "boxes"},
        boxes={
            id: BoxStatus(**figures, smoothed=smoothed.get(id), **why.get(id, {}))
            for id, figures in boxes.items()
        },
        arcs=tuple((arc.box, arc.port, box.id) for box in hosted.spec.graph.boxes for arc in box.inputs),
        inputs=inputs,
        outputs=outputs,
        publishers=tuple(_publisher_status(each) for each in hosted.inputs.values() if each.named),
        gone_publishers=_gone(hosted, now_us),
        load=loads.fragment(name),
        configuration=UNSET if guarded is None else guarded[0],
        replicas=UNSET if guarded is None else guarded[1],
        method=method[0],
        method_reason=method[1],
        delay_us=spec.delay_us,
        delay_failure=policies[0],
        delay_stabilization=policies[1],
    )


def encoded(status: NodeStatus | VisibleStatus, most: int = limits.PAYLOAD_BYTES_MAX) -> bytes:
    """A status as JSON; where it would be too long for a message without the boxes one by one, then without
    single links and peers, and partitions of sources, too."""
    content = msgspec.json.encode(status)
    if len(content) > most and isinstance(status, NodeStatus):
        fragments = tuple(replace(each, boxes={}, arcs=()) for each in status.fragments)
        status = replace(status, fragments=fragments)
        content = msgspec.json.encode(status)
    if len(content) > most:
        sources = {name: replace(each, partitions=None) for name, each in status.sources.items()}
        status = replace(status, sources=sources)
        if isinstance(status, NodeStatus):
            status = replace(status, load=replace(status.load, links={}, peers={}))
        content = msgspec.json.encode(status)
    return content


def _summed() -> list[str]:
    """Numbers that a node has as its fragments do."""
    of_node, of_fragment = get_type_hints(NodeStatus), get_type_hints(FragmentStatus)
    shared = (name for name, type in of_node.items() if type in (int, float) and name in of_fragment)
    return [name for name in shared if name != "lag_us"]


_SUMS = _summed()


def totals(fragments: Sequence[FragmentStatus]) -> dict[str, Any]:
    """The same counts for a node: sums, the least boundary, the largest lag."""
    boundaries = [each.boundary_us for each in fragments if each.boundary_us is not None]
    return {
        **{name: sum(getattr(each, name) for each in fragments) for name in _SUMS},
        "lag_us": max((each.lag_us for each in fragments), default=0),
        "boundary_us": min(boundaries, default=None),
    }


def _gone(hosted: FragmentHost, now_us: int) -> GonePublishers:
    """Publishers that went: their positions are kept, since what they resend is told by them alone."""
    publishers = [each for each in hosted.inputs.values() if not each.judged]
    ages = [now_us - each.silent_since_us for each in publishers if each.silent_since_us is not None]
    return GonePublishers(count=len(ages), last_us=min(ages, default=None))


def _input_status(input: FragmentInput) -> InputStatus:
    receiver = input.receiver
    refusal = receiver.refusal
    return InputStatus(
        source=input.source,
        stream=input.stream,
        origin=input.by,
        state=receiver.state.value,
        refusal=f"{refusal.text} ({refusal.code})" if refusal else "",
        rows=input.rows,
        next_row=receiver.next_seq,
        durable_row=receiver.durable_seq,
        lost_rows=receiver.lost_rows,
        refused_rows=input.refused_rows,
        overdue_rows=input.overdue_rows,
        queue_bytes=receiver.held_bytes,
        boundary_us=_point(input.fed_us),
        durable_boundary_us=input.durable_us,
        attachments=receiver.attachments,
        duplicates=receiver.duplicates,
        stream_version=receiver.stream_version,
        left_out_rows=input.shed_rows,
    )


def _publisher_status(input: FragmentInput) -> PublisherStatus:
    """A named publisher: how far it is, and who publishes under the name."""
    owner, name = owner_and_name(input.peer)
    return PublisherStatus(
        source=input.source,
        stream=input.stream,
        name=name,
        owner=owner,
        next_row=input.receiver.next_seq,
        durable_row=input.receiver.durable_seq,
        boundary_us=_point(input.fed_us),
        finished=input.fed_us >= END_US,
        connected=input.silent_since_us is None and input.receiver.state is ReceiverState.FLOWING,
        origin=input.by,
        left_out_rows=input.shed_rows,
    )


def _output_status(
    output: FragmentOutput, of: str, bounded: tuple[int, Policies], consistency: ConsistencyStatus | UnsetType
) -> OutputStatus:
    log, receivers = output.sender.log, output.sender.receivers
    delay_us, (failure, stabilization) = bounded
    return OutputStatus(
        sink=output.sink,
        of=of,
        stream=output.stream,
        stream_version=output.sender.stream_version,
        rows=output.rows,
        oldest_row=log.start_seq,
        kept_bytes=log.nbytes,
        spilled_bytes=log.spilled_bytes,
        shed_rows=output.sender.retention.shed_rows,
        boundary_us=_point(output.boundary_us),
        delay_us=delay_us,
        delay_failure=failure,
        delay_stabilization=stabilization,
        named=tuple(_named_status(log, key, view) for key, view in receivers.items() if view.named),
        receivers=tuple(_receiver_status(view) for view in receivers.values() if not view.named),
        consistency=consistency,
        left_out_above=dict(output.sender.thinned),
    )


def _receiver_status(view: ReceiverView) -> ReceiverStatus:
    return ReceiverStatus(
        to=view.peer,
        state=view.state.value,
        plain=view.plain,
        sent_row=view.sent_seq,
        received_row=view.acked,
        durable_row=view.durable,
        lost_rows=view.lost_rows,
        left_out_rows=view.shed_rows,
    )


def _spill_error(hosted: FragmentHost) -> str:
    return next((each.spilling.error for each in hosted.outputs.values() if each.spilling.error), "")


def _named_status(log: OutputLog, key: str, view: ReceiverView) -> NamedStatus:
    """A named subscription: its position, what is kept from there on, and who reads it."""
    owner, name = owner_and_name(key)
    return NamedStatus(
        name=name,
        owner=owner,
        acknowledged_row=view.durable,
        kept_bytes=sum(entry.cost for entry in log.entries() if entry.end > view.durable),
        connected=view.state is SenderState.FLOWING,
        to=view.peer,
        sent_row=view.sent_seq,
        lost_rows=view.lost_rows,
        left_out_rows=view.shed_rows,
    )


def _point(time_us: int) -> int | None:
    return time_us if START_US < time_us < END_US else None


def queries_of(
    deployments: Iterable[Deployment],
    configuration: Callable[[str], ConfigurationStatus | UnsetType] = lambda query: UNSET,
    scaling: Callable[[str], ScalingStatus | UnsetType] = lambda query: UNSET,
) -> dict[str, QueryStatus]:
    """How each query is that this node coordinates.

    Args:
        configuration: of a query; unset: nobody stands by for any of it.
        scaling: of a query; unset: this node doesn't see to its parts.
    """
    return {
        each.query: QueryStatus(
            state=each.shown,
            nodes=each.nodes,
            stopped=dict(each.stopped),
            ended={
                fragment: EndStatus(node=node, code=code, why=why, at_us=at_us or None)
                for fragment, node, code, why, at_us in each.ended
            },
            configuration=(decided := configuration(each.query)),
            outputs=UNSET if decided is UNSET else _recovered(each, decided),
            scaling=scaling(each.query),
        )
        for each in deployments
    }


def _recovered(deployment: Deployment, decided: ConfigurationStatus) -> dict[str, RecoveredStatus]:
    """What holds of its outputs just now."""
    ready = [
        name
        for name, each in decided.fragments.items()
        if any(
            other.state == FOLLOWING and node not in decided.away for node, other in each.secondaries.items()
        )
    ]
    gone = [name for name, each in decided.fragments.items() if each.owner in decided.away]
    return {
        stream: RecoveredStatus(
            method=method,
            fragments=fragments,
            guarantee=guarantee_of(
                [name for name in fragments if name not in ready],
                len(decided.voters),
                method,
                away=decided.away,
                not_voting=decided.not_voting,
                lost=[name for name in fragments if name in gone and name not in ready],
                without_state=[name for name in fragments if name in decided.without_state],
            ),
        )
        for stream, method, fragments in deployment.recovered
    }


def sources_of(fragments: Iterable[FragmentSpec]) -> dict[str, SourceStatus]:
    """What clients can publish into."""
    found: dict[str, SourceStatus] = {}
    for fragment in fragments:
        boxes = {box.id: box for box in fragment.graph.boxes if isinstance(box, Source)}
        for source, name in fragment.entries.items():
            body = source_body(fragment, boxes[source])
            found[name] = SourceStatus(**{field: getattr(body, field) for field in _OF_SOURCE})
    return found


_OF_SOURCE = SourceStatus.__struct_fields__
