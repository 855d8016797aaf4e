"""The nodes of a federation and what runs between them, out of what each says of itself. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from msgspec import UNSET

from medusa.runtime.client.status.bounded_streams import STABLE
from medusa.runtime.client.status.guarded_fragments import GuardedFragment, guarded_fragments
from medusa.wire.status_and_metrics import (
    FOLLOWING,
    MISSING,
    SEEDING,
    ConsistencyStatus,
    FragmentStatus,
    InputStatus,
    NodeStatus,
    OutputStatus,
    ReceiverStatus,
)

__all__ = [
    "CUT",
    "FLOWING",
    "UNASKED",
    "UNKNOWN",
    "UNREACHABLE",
    "UP",
    "Link",
    "NetworkView",
    "NodeView",
    "Seen",
    "StandbyView",
    "StreamView",
    "input_rate",
    "network_of",
    "output_rate",
    "unstable",
]

UP, UNREACHABLE, UNASKED = "up", "unreachable", "not asked"
FLOWING, WAITING, CUT, REFUSED, UNKNOWN = "flowing", "waiting", "cut", "refused", "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What is known of the node at an address.

    Attributes:
        name: what others call it; empty: nobody has said yet.
        status: what it said last; None: it has never answered.
        age_s: how long ago that was, or since when it has been asked.
        why: why it didn't answer the last time; empty: it did.
        hint: what to do about that.
    """

    address: str
    name: str = ""
    status: NodeStatus | None = None
    age_s: float = 0.0
    why: str = ""
    hint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeView:
    """A node.

    ``state`` is up, unreachable (its fragments are as it last said) or not asked (others name it).
    """

    name: str
    owner: str
    state: str
    address: str = ""
    age_s: float = 0.0
    why: str = ""
    status: NodeStatus | None = None

    @property
    def fragments(self) -> tuple[FragmentStatus, ...]:
        """What runs there, by name."""
        found = self.status.fragments if self.status is not None else ()
        return tuple(sorted(found, key=lambda each: each.fragment))


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamView:
    """A stream from node to node. Where a side's status isn't known its fragment is empty.

    Attributes:
        state: flowing, waiting (nothing came yet), cut, refused, or unknown (neither side answers).
        rate: rows per second; None: not known.
        behind_rows: rows that left the origin's engine and have not arrived; None: not known.
        why: what is wrong.
        unstable: how it is, where it has a ``delay`` and isn't stable; None: it is, or nobody says.
    """

    name: str
    origin: str
    origin_fragment: str
    target: str
    target_fragment: str
    state: str
    rate: float | None
    behind_rows: int | None
    why: str = ""
    unstable: ConsistencyStatus | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """Two nodes that name each other as peers, the lesser name first, and what each says of the other:
    up, silent, or nothing where it doesn't answer."""

    a: str
    b: str
    said_by_a: str
    said_by_b: str

    @property
    def state(self) -> str:
        said = {self.said_by_a, self.said_by_b} - {""}
        return UNKNOWN if not said else UP if said == {UP} else CUT


@dataclass(frozen=True, slots=True, kw_only=True)
class StandbyView:
    """A node that stands by for a fragment of another, or should.

    Attributes:
        number: of the configuration of the query.
        state: following, seeding or missing.
        since_us: for how long; None: not known.
        behind_bytes: what the owner has fed and it hasn't; None: not known.
        place: in the order of succession, from 1.
    """

    query: str
    fragment: str
    number: int
    owner: str
    node: str
    state: str
    since_us: int | None
    behind_bytes: int | None
    place: int


@dataclass(frozen=True, slots=True)
class NetworkView:
    """Nodes by owner and name, streams and links by their ends, guarded fragments and who stands by for
    them by name."""

    nodes: tuple[NodeView, ...]
    streams: tuple[StreamView, ...]
    links: tuple[Link, ...]
    guarded: tuple[GuardedFragment, ...] = ()
    standbys: tuple[StandbyView, ...] = ()

    @property
    def unstable(self) -> list[str]:
        """Streams with ``delay`` that aren't stable, of nodes that answer."""
        there = (each for node in self.nodes if node.state == UP for each in node.fragments)
        return [out.stream for each in there for out in each.outputs if unstable(out) is not None]

    @property
    def owners(self) -> tuple[str, ...]:
        """The participants, in order; empty text: not known whose."""
        return tuple(dict.fromkeys(node.owner for node in self.nodes))


def network_of(seen: Iterable[Seen]) -> NetworkView:
    """Put together what the nodes say, in an order that only depends on their names."""
    nodes = _nodes(seen)
    statuses = [node.status for node in nodes.values() if node.status is not None]
    away = {node.name for node in nodes.values() if node.state != UP}
    guarded = guarded_fragments(statuses, away)
    standbys = [each for one in guarded for each in _standbys(one)]
    for name in [name for each in standbys for name in (each.owner, each.node)]:
        nodes.setdefault(name, NodeView(name=name, owner="", state=UNASKED))
    return NetworkView(
        tuple(sorted(nodes.values(), key=lambda node: (node.owner == "", node.owner, node.name))),
        tuple(_streams(nodes)),
        tuple(_links(nodes)),
        guarded,
        tuple(standbys),
    )


def _standbys(guarded: GuardedFragment) -> Iterator[StandbyView]:
    replicas = guarded.replicas
    for place, (node, each) in enumerate(replicas.secondaries.items(), start=1):
        yield StandbyView(
            query=guarded.query,
            fragment=guarded.fragment,
            number=guarded.number,
            owner=replicas.owner,
            node=node,
            state=each.state if each.state in (FOLLOWING, SEEDING) else MISSING,
            since_us=each.since_us,
            behind_bytes=each.behind_bytes,
            place=place,
        )


def _nodes(seen: Iterable[Seen]) -> dict[str, NodeView]:
    nodes: dict[str, NodeView] = {}
    for each in sorted(seen, key=lambda one: (one.why != "", one.age_s, one.address)):
        status = each.status
        name = status.node if status is not None else each.name or each.address
        if name in nodes:  # Two addresses of one node: the one that answered last says more.
            continue
        nodes[name] = NodeView(
            name=name,
            owner="" if status is None else status.participant,
            state=UNREACHABLE if each.why or status is None else UP,
            address=each.address,
            age_s=each.age_s,
            why=(f"{each.why}: {each.hint}" if each.hint else each.why)
            or ("" if status is not None else "it has not answered yet"),
            status=status,
        )
    for node in list(nodes.values()):
        for peer in sorted(node.status.peers) if node.status is not None else ():
            if peer not in nodes:
                nodes[peer] = NodeView(name=peer, owner="", state=UNASKED)
    return nodes


def _links(nodes: Mapping[str, NodeView]) -> list[Link]:
    pairs = sorted(
        {
            (min(name, peer), max(name, peer))
            for name, node in nodes.items()
            if node.status is not None
            for peer in node.status.peers
        }
    )
    return [Link(a=a, b=b, said_by_a=_said(nodes, a, b), said_by_b=_said(nodes, b, a)) for a, b in pairs]


def _said(nodes: Mapping[str, NodeView], name: str, of: str) -> str:
    node = nodes[name]
    if node.state != UP or node.status is None:
        return ""
    return node.status.peers.get(of, "")


def _streams(nodes: Mapping[str, NodeView]) -> list[StreamView]:
    """Every stream that either side names, once."""
    made: dict[tuple[str, str, str, str], StreamView] = {}
    for node in sorted(nodes.values(), key=lambda each: each.name):
        for fragment in node.fragments:
            for output in fragment.outputs:
                for receiver in output.receivers:
                    if receiver.to in nodes:
                        for target in _takers(nodes[receiver.to], node.name, output.stream) or [None]:
                            stream = _stream(nodes, node, (fragment, output, receiver), receiver.to, target)
                            made[_ends(stream)] = stream
    met = {(one.name, one.origin, one.target, one.target_fragment) for one in made.values()}
    for node in sorted(nodes.values(), key=lambda each: each.name):
        for fragment in node.fragments:
            for input in fragment.inputs:
                if input.origin in nodes and (
                    (input.stream, input.origin, node.name, fragment.fragment) not in met
                ):
                    stream = _stream(nodes, nodes[input.origin], None, node.name, (fragment, input))
                    made[_ends(stream)] = stream
    return [made[ends] for ends in sorted(made)]


def _ends(stream: StreamView) -> tuple[str, str, str, str]:
    origin = f"{stream.origin}\0{stream.origin_fragment}"
    return origin, stream.target, stream.target_fragment, stream.name


def _takers(node: NodeView, origin: str, stream: str) -> list[tuple[FragmentStatus, InputStatus] | None]:
    return [
        (fragment, input)
        for fragment in node.fragments
        for input in fragment.inputs
        if input.origin == origin and input.stream == stream
    ]


def _stream(
    nodes: Mapping[str, NodeView],
    origin: NodeView,
    sent: tuple[FragmentStatus, OutputStatus, ReceiverStatus] | None,
    target: str,
    taken: tuple[FragmentStatus, InputStatus] | None,
) -> StreamView:
    state, why = _state(nodes, origin, sent, nodes[target], taken)
    behind = None
    if sent is not None:
        arrived = sent[2].received_row
        if taken is not None and nodes[target].state == UP:
            arrived = max(arrived, taken[1].next_row)
        behind = max(sent[1].rows - arrived, 0)
    name = sent[1].stream if sent is not None else taken[1].stream if taken is not None else ""
    return StreamView(
        name=name,
        origin=origin.name,
        origin_fragment="" if sent is None else sent[0].fragment,
        target=target,
        target_fragment="" if taken is None else taken[0].fragment,
        state=state,
        rate=_rate(origin, sent, nodes[target], taken),
        behind_rows=behind,
        why=why,
        unstable=None if sent is None or origin.state != UP else unstable(sent[1]),
    )


def _state(
    nodes: Mapping[str, NodeView],
    origin: NodeView,
    sent: tuple[FragmentStatus, OutputStatus, ReceiverStatus] | None,
    target: NodeView,
    taken: tuple[FragmentStatus, InputStatus] | None,
) -> tuple[str, str]:
    """From the sides that answer: what one remembers of before its death counts no more."""
    states = []
    if sent is not None and origin.state == UP:
        states.append({"flowing": FLOWING, "paused": CUT, "detached": WAITING}.get(sent[2].state, UNKNOWN))
    if taken is not None and target.state == UP:
        if taken[1].refusal:
            return REFUSED, taken[1].refusal
        known = {"flowing": FLOWING, "idle": CUT, "attaching": WAITING, "refused": REFUSED}
        states.append(known.get(taken[1].state, UNKNOWN))
    for one, other in ((origin, target), (target, origin)):
        if _said(nodes, one.name, other.name) not in ("", UP):
            return CUT, f"{one.name} hears nothing of {other.name}"
    for state in (REFUSED, CUT, WAITING, UNKNOWN):
        if state in states:
            return state, ""
    return (FLOWING if states else UNKNOWN), ""


def _rate(
    origin: NodeView,
    sent: tuple[FragmentStatus, OutputStatus, ReceiverStatus] | None,
    target: NodeView,
    taken: tuple[FragmentStatus, InputStatus] | None,
) -> float | None:
    """What enters the sink that it leaves by; or the source that it comes into, if alone there."""
    if sent is not None and origin.state == UP:
        return output_rate(sent[0], sent[1])
    if taken is not None and target.state == UP:
        return input_rate(taken[0], [taken[1]])
    return None


def unstable(output: OutputStatus) -> ConsistencyStatus | None:
    """How an output is that a failure holds up for a while only; None: stable, or it is no such one."""
    of = output.consistency
    return None if of is UNSET or of.state == STABLE else of


def output_rate(fragment: FragmentStatus, output: OutputStatus) -> float | None:
    """Rows per second of an output; None: not known."""
    box = fragment.boxes.get(output.of or output.sink)
    return None if box is None else box.rows_in_per_s


def input_rate(fragment: FragmentStatus, inputs: Sequence[InputStatus]) -> float | None:
    """Rows per second of what comes into a source by these inputs; None: not known, as where others come
    into it, too."""
    sources = {each.source for each in inputs}
    if len(sources) != 1 or sum(each.source in sources for each in fragment.inputs) != len(inputs):
        return None
    box = fragment.boxes.get(inputs[0].source)
    return None if box is None else box.rows_in_per_s
