"""What a node says of itself: the fields of ``medusa status``, each with its type, once.

The node builds these structs, the wire carries them as JSON, and what shows them reads them back
(``status_of``): tables, screens, metrics, the dashboard. docs/nodes.md and docs/brain.md say what each
field means. A field that the node left out has its default, one that this release doesn't know is skipped.
What a field is to Prometheus and to those who show it stands in its type: ``Metric`` (the dashboard shows
those with a title). Who fills them: ``nodes/node`` for the node, ``nodes/status/fragment_status`` for
fragments, ``nodes/load`` for load and for what ``runtime/machine/usage`` measures.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Annotated, Any, NamedTuple, get_type_hints

import msgspec
from msgspec import UNSET, UnsetType

from medusa.decoders import converter
from medusa.errors import DataError
from medusa.units import duration_text, size_text

__all__ = [
    "FOLLOWING",
    "MISSING",
    "SEEDING",
    "AgreementStatus",
    "AwayStatus",
    "BackupsStatus",
    "BoxFigures",
    "BoxStatus",
    "ComingStatus",
    "CauseStatus",
    "ConfigurationStatus",
    "ConsistencyStatus",
    "DoubtStatus",
    "DoubtfulStatus",
    "EndStatus",
    "EngineHeld",
    "FragmentStatus",
    "GoingStatus",
    "GonePublishers",
    "HeldBackupStatus",
    "InputStatus",
    "LinkStatus",
    "LoadStatus",
    "MarketContractStatus",
    "MarketDecisionStatus",
    "MarketOfferStatus",
    "MarketStatus",
    "MarketTaskStatus",
    "Metric",
    "MissingStatus",
    "MovesStatus",
    "NamedStatus",
    "NodeStatus",
    "OutputStatus",
    "OwnInputs",
    "ParsingStatus",
    "PeerFragmentStatus",
    "PeerStatus",
    "PublisherStatus",
    "QueryStatus",
    "ReceiverStatus",
    "RecoveredStatus",
    "ReplicasStatus",
    "RunsOnStatus",
    "ScalingStatus",
    "SecondaryStatus",
    "SmoothedLoad",
    "SourceStatus",
    "SplitStatus",
    "StatelessStatus",
    "VisibleStatus",
    "metrics_of",
    "plain",
    "status_of",
    "titled",
]


class Metric(NamedTuple):
    """What a field is beyond its name and type. A field that has one is served, and a column of its table.

    What is served in seconds (``name`` ends so) is in microseconds in the field; of a text or a list it is
    served whether there is any.

    Attributes:
        name: behind ``medusa_node_``, ``medusa_query_``, ``medusa_link_``, ``medusa_fragment_``,
            ``medusa_market_``, ``medusa_contract_`` or ``medusa_box_``.
        text: what it is, in a sentence.
        title: of its column or line on screens and in the dashboard; empty: they lay it out by hand, or leave
            it out.
        counts: it only grows while the node lives.
        null: what is served where the field is null; None: nothing.
    """

    name: str
    text: str
    title: str = ""
    counts: bool = False
    null: float | None = None


class _Status(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a status: an object of JSON, whose fields come in the order in which they stand here."""


# --- boxes ----------------------------------------------------------------------------------------


class BoxFigures(_Status, frozen=True, kw_only=True):
    """What ``run.stats()`` says of a box (docs/metrics.md); None: not known."""

    kind: str = "box"
    rows_in: Annotated[
        int,
        Metric("rows_in", "Rows that came into the box; of a source all that were accepted.", counts=True),
    ] = 0
    rows_out: Annotated[
        int, Metric("rows_out", "Rows that left the box by its main output.", counts=True)
    ] = 0
    late: Annotated[
        int,
        Metric("late_rows", "Rows judged late (at a source), or left out because they were.", counts=True),
    ] = 0
    ahead: Annotated[int, Metric("ahead_rows", "Rows too far ahead of their arrival.", counts=True)] = 0
    tentative: Annotated[
        int, Metric("tentative_rows", "Early rows that came, which rows_in doesn't count.", counts=True)
    ] = 0
    dead: Annotated[
        int, Metric("dead_rows", "Rows on which an expression or function failed.", counts=True)
    ] = 0
    dropped: Annotated[
        int, Metric("dropped_rows", "Rows that the box was told to leave out.", counts=True)
    ] = 0
    state_bytes: Annotated[int, Metric("state_bytes", "Bytes of rows, groups and indexes held.")] = 0
    queue_bytes: Annotated[int, Metric("queue_bytes", "Bytes of the rows that wait.")] = 0
    busy_us: Annotated[
        int,
        Metric("busy_seconds", "Time spent in the box; of a chain it stands at the first box.", counts=True),
    ] = 0
    boundary: Annotated[
        int | None, Metric("boundary_timestamp_seconds", "The boundary: no later row has a time below it.")
    ] = None
    finished: Annotated[bool, Metric("finished", "1 when the end has passed the box.")] = False
    queue_rows: Annotated[int, Metric("queue_rows", "Rows that wait, for a boundary or to be taken.")] = 0
    lag_us: Annotated[
        int | None, Metric("lag_seconds", "How far the boundary is behind the newest time of the sources.")
    ] = None
    selectivity: Annotated[
        float | None, Metric("selectivity_ratio", "Rows out per row in, since the stream began.")
    ] = None
    cost_us: Annotated[
        float | None, Metric("cost_seconds", "Time busy per row in, since the process took the query up.")
    ] = None
    shed: Annotated[int | None, Metric("shed_rows", "Rows shed because of overload.", counts=True)] = None
    rows_in_per_s: Annotated[
        float | None, Metric("rows_in_per_second", "Rows in per second, mean of the last seconds.")
    ] = None
    rows_out_per_s: Annotated[
        float | None, Metric("rows_out_per_second", "Rows out per second, mean of the last seconds.")
    ] = None
    load: Annotated[
        float | None, Metric("load_ratio", "Share of time that the box was busy, mean of the last seconds.")
    ] = None


class SmoothedLoad(_Status, frozen=True, kw_only=True):
    """How much a box or a fragment has to do, smoothed.

    Attributes:
        busy_share: of the time of the engine's thread: 1 is all of it.
        selectivity: rows out per row in; None: nothing came of late.
        cost_us: time busy per row in; None likewise.
    """

    rows_in_per_s: float = 0.0
    rows_out_per_s: float = 0.0
    busy_share: float = 0.0
    selectivity: float | None = None
    cost_us: float | None = None


class BoxStatus(BoxFigures, frozen=True, kw_only=True):
    """A box of a fragment, and why nothing comes out of it."""

    smoothed: SmoothedLoad | None = None
    waits_for: str = ""
    held_by: str = ""
    unmoved_us: int | None = None


# --- streams --------------------------------------------------------------------------------------


class InputStatus(_Status, frozen=True, kw_only=True, rename={"origin": "from"}):
    """A stream that a fragment takes from one publisher or node."""

    source: str
    stream: str
    origin: str
    state: str = ""
    refusal: str = ""
    rows: int = 0
    next_row: int = 0
    durable_row: int = 0
    lost_rows: int = 0
    refused_rows: int = 0
    overdue_rows: int = 0
    left_out_rows: int = 0
    queue_bytes: int = 0
    boundary_us: int | None = None
    durable_boundary_us: int | None = None
    attachments: int = 0
    duplicates: int = 0
    stream_version: int = 0


class PublisherStatus(_Status, frozen=True, kw_only=True, rename={"origin": "from"}):
    """A named publisher: how far it is, and who publishes under the name."""

    source: str
    stream: str
    name: str
    owner: str = ""
    next_row: int = 0
    durable_row: int = 0
    boundary_us: int | None = None
    finished: bool = False
    connected: bool = False
    origin: str = ""
    left_out_rows: int = 0


class GonePublishers(_Status, frozen=True, kw_only=True):
    """Publishers that went and whose positions are kept; ``last_us``: how long ago the last one went."""

    count: int = 0
    last_us: int | None = None


class ReceiverStatus(_Status, frozen=True, kw_only=True):
    """A node or program that reads an output."""

    to: str
    state: str = ""
    plain: bool = False
    sent_row: int = 0
    received_row: int = 0
    durable_row: int = 0
    lost_rows: int = 0
    left_out_rows: int = 0


class NamedStatus(_Status, frozen=True, kw_only=True):
    """A named subscription of an output: its position, what is kept from there on, and who reads it."""

    name: str
    owner: str = ""
    acknowledged_row: int = 0
    kept_bytes: int = 0
    connected: bool = False
    to: str = ""
    sent_row: int = 0
    lost_rows: int = 0
    left_out_rows: int = 0


class MissingStatus(_Status, frozen=True, kw_only=True, rename={"origin": "from"}):
    """An input that leads to a stream and is missing.

    Attributes:
        source: of the fragment, by which it comes.
        kind: ``node``, ``publisher``, or ``nobody``: nobody publishes into it.
        origin: the name of that node or publisher; empty: there is none.
        why: it counts as missing.
        for_us: so long it is; None: not known.
    """

    source: str
    stream: str
    kind: str
    origin: str = ""
    why: str = ""
    for_us: Annotated[
        int | None,
        Metric("input_missing_seconds", "For how long an input that leads to the stream has been missing."),
    ] = None

    @property
    def what(self) -> str:
        """Which one, in words: ``stream q.a of node left``."""
        return (
            f"stream {self.stream} of {self.kind} {self.origin}" if self.origin else f"source {self.stream}"
        )

    @property
    def text(self) -> str:
        """Which one, why and for how long: ``stream q.a of node left, which isn't heard, for 3 s``."""
        why = f", which {self.why}" if self.origin else f": {self.why}"
        return f"{self.what}{why}{_for(self.for_us)}"


def _for(since_us: int | None) -> str:
    return "" if since_us is None else f", for {since_us // 1_000_000} s"


class ConsistencyStatus(_Status, frozen=True, kw_only=True):
    """How a stream is, of which a failure may hold up the rows only for a while.

    Corrections to come are counted in three ways, and are 0 while it is stable: ``uncorrected_rows`` of what
    was shown, ``behind_rows`` of what is to be fed again, ``behind_us`` in the time of the stream.

    Attributes:
        state: ``stable``, ``up_failure``, ``stabilization``, or ``failure``, where all inputs are missing.
        for_us: so long it is so; None: it always was.
        missing: inputs that lead to it and are missing.
        fork: of the fragment, from which tentative rows come; 0: there is none.
        why: there is none that should be.
        tentative_rows: that forks have put out.
        uncorrected_rows: that the present fork has put out and that hold: the stable boundary hasn't passed
            their train yet.
        behind_rows: that have come and that the fragment itself can't use yet: they wait for it, or in its
            boxes for a boundary.
        behind_us: how far the source that holds it up is behind the one that is furthest; None: nothing has
            come by one of them yet.
        dropped_rows: of the tentative ones, over all readers, that weren't sent, since there was no room.
        late_rows: that came too late for the fork that is there, and will be in what is corrected.
        held_bytes: by so much the state of the fragment has grown since an input was missing.
        disk_bytes: that have come beyond that, and wait on disk.
        suspended: inputs of which nothing more is taken, since that is as much as may be: stream and who
            sends it.
    """

    state: str = "stable"
    for_us: Annotated[
        int | None,
        Metric("state_seconds", "For how long the stream has been in its state. No sample: it always was."),
    ] = None
    missing: Annotated[
        tuple[MissingStatus, ...],
        Metric("input_missing", "1 while an input that leads to the stream is missing."),
    ] = ()
    fork: int = 0
    why: Annotated[str, Metric("fork_refused", "1 while there is no fork that should be.")] = ""
    tentative_rows: Annotated[
        int, Metric("tentative_rows", "Tentative rows that forks have put out.", counts=True)
    ] = 0
    uncorrected_rows: Annotated[
        int, Metric("uncorrected_rows", "Tentative rows that hold, for which corrections are to come.")
    ] = 0
    behind_rows: Annotated[
        int, Metric("behind_rows", "Input rows that wait until the stable rows of the stream can be made.")
    ] = 0
    behind_us: Annotated[
        int | None,
        Metric("behind_seconds", "How far what holds the stream up is behind its furthest input."),
    ] = 0
    dropped_rows: Annotated[
        int,
        Metric("dropped_rows", "Tentative rows not sent to readers that had no room.", counts=True),
    ] = 0
    late_rows: Annotated[
        int, Metric("late_rows", "Rows that came too late for the fork, and are in the corrections.")
    ] = 0
    held_bytes: Annotated[
        int, Metric("held_bytes", "Bytes by which a fragment has grown since an input was missing.")
    ] = 0
    disk_bytes: Annotated[
        int, Metric("inputs_on_disk_bytes", "Bytes of inputs that wait on disk for one that is missing.")
    ] = 0
    suspended: Annotated[
        tuple[str, ...],
        Metric("inputs_suspended", "1 while nothing more is taken of inputs, for want of [delay] disk."),
    ] = ()


class OutputStatus(_Status, frozen=True, kw_only=True):
    """A stream that leaves a fragment.

    Attributes:
        of: the box that it leaves by, where another query reads it.
        delay_us: X: by how much a failure may hold up its rows; 0: they wait until it is over.
        delay_failure, delay_stabilization: what becomes of new rows of it while an input is missing, and
            while corrections come: ``process``, ``delay`` or ``suspend``; empty: it has no X.
        consistency: how it is; left out where no output that it leads to has an X.
    """

    sink: str
    of: str = ""
    stream: str
    stream_version: int = 0
    rows: int = 0
    oldest_row: int = 0
    kept_bytes: int = 0
    spilled_bytes: int = 0
    shed_rows: int = 0
    boundary_us: int | None = None
    delay_us: int = 0
    named: tuple[NamedStatus, ...] = ()
    receivers: tuple[ReceiverStatus, ...] = ()
    consistency: ConsistencyStatus | UnsetType = UNSET
    delay_failure: str = ""
    delay_stabilization: str = ""
    left_out_above: dict[str, int] = {}


class FragmentStatus(_Status, frozen=True, kw_only=True):
    """A part of a query at a node.

    Attributes:
        lost_by: of ``lost_rows`` those that came by each source of the fragment; what an earlier release
            counted may be in none.
        checkpoint_every_us: between two of its checkpoints; 0: its node keeps nothing, and takes none.
        configuration: of its query, the newest that the node knows; left out where nobody stands by for it.
        replicas: who stands by for it, by the word of this node, which has it; left out likewise.
        method: how who stands by for it goes on; empty: nobody was to.
        method_reason: why that isn't as an output wishes that it feeds; empty: it is.
        delay_us: X, the least of the outputs that it feeds: so much less a margin an input is waited for; 0:
            until it is back.
        delay_failure, delay_stabilization: what becomes of new rows meanwhile and afterwards: of what those
            outputs wish that by which rows show first; empty: none has an X.
        left_out_rows, left_out_by: input rows left out behind its sources under overload, all and by
            source; ``shed_rows`` is output that was forgotten at the bound of what is kept.
    """

    fragment: str
    query: str = ""
    state: str = ""
    failed: str = ""
    rows_in: int = 0
    rows_out: int = 0
    rows_in_per_s: float = 0
    rows_out_per_s: float = 0
    queue_bytes: int = 0
    kept_bytes: int = 0
    shed_rows: int = 0
    lag_us: int = 0
    boundary_us: int | None = None
    finished: bool = False
    lost_rows: Annotated[int, Metric("lost_rows", "Input rows that are lost.", counts=True)] = 0
    lost_unknown: Annotated[
        bool, Metric("lost_unknown", "1 when more rows are lost than anybody can count.")
    ] = False
    uncounted: tuple[str, ...] = ()
    refused_rows: int = 0
    checkpoints: int = 0
    checkpoint_failures: int = 0
    disk_error: str = ""
    late: int = 0
    dead: int = 0
    state_bytes: int = 0
    boxes: dict[str, BoxStatus] = {}
    arcs: tuple[tuple[str, str, str], ...] = ()
    inputs: tuple[InputStatus, ...] = ()
    outputs: tuple[OutputStatus, ...] = ()
    publishers: tuple[PublisherStatus, ...] = ()
    gone_publishers: GonePublishers = GonePublishers()
    load: SmoothedLoad | None = None
    checkpoint_every_us: int = 0
    lost_by: dict[str, int] = {}
    configuration: int | UnsetType = UNSET
    replicas: ReplicasStatus | UnsetType = UNSET
    method: str = ""
    method_reason: str = ""
    delay_us: int = 0
    delay_failure: str = ""
    delay_stabilization: str = ""
    left_out_rows: Annotated[
        int, Metric("left_out_rows", "Input rows left out behind its sources under overload.", counts=True)
    ] = 0
    left_out_by: dict[str, int] = {}

    def is_held(self, box: str) -> bool:
        """Whether an input holds a box back while another is further on."""
        above = [self.boxes.get(origin) for origin, _, target in self.arcs if target == box]
        return len({each.finished or each.boundary for each in above if each is not None}) > 1


# --- load -----------------------------------------------------------------------------------------


class CauseStatus(_Status, frozen=True, kw_only=True, omit_defaults=True):
    """What makes a node overloaded: a box that takes much, or a stream of which much waits."""

    fragment: str
    box: str = ""
    busy_share: float = 0.0
    stream: str = ""
    queue_bytes: int = 0


class LinkStatus(_Status, frozen=True, kw_only=True):
    """What goes to and comes from one node or client, and what waits there; None: not known."""

    bytes_out_per_s: Annotated[
        float | None,
        Metric("sent_bytes_per_second", "Bytes of streams to the peer per second, smoothed.", "out/s"),
    ] = None
    bytes_in_per_s: Annotated[
        float | None,
        Metric("received_bytes_per_second", "Bytes of streams from it per second, smoothed.", "in/s"),
    ] = None
    bandwidth: int | None = None
    share: Annotated[
        float | None,
        Metric("bandwidth_ratio", "Share of the configured bandwidth, in the busier direction.", "share"),
    ] = None
    waiting_bytes: Annotated[
        int, Metric("waiting_bytes", "Bytes for the peer that were not sent yet.", "waiting")
    ] = 0
    lag_rows: Annotated[int, Metric("lag_rows", "Rows that the peer has not received yet.", "behind")] = 0
    queue_bytes: Annotated[
        int, Metric("queue_bytes", "Bytes from the peer that are not through the engine.", "queue")
    ] = 0
    lag_us: Annotated[
        int, Metric("lag_seconds", "How far what the peer promised is behind another input.", "lag")
    ] = 0


class PeerFragmentStatus(_Status, frozen=True, kw_only=True):
    """What a peer says of one of its fragments."""

    busy_share: float = 0.0
    rows_in_per_s: int = 0
    rows_out_per_s: int = 0
    bytes_out_per_s: int = 0
    queue_bytes: int = 0


class PeerStatus(_Status, frozen=True, kw_only=True):
    """What a peer said of its load, ``age_us`` ago."""

    age_us: int = 0
    load: float = 0.0
    overloaded: bool = False
    cpu_share: float = 0.0
    cores: int = 1
    memory_bytes: int = 0
    fragments: dict[str, PeerFragmentStatus] = {}


class EngineHeld(_Status, frozen=True, kw_only=True):
    """The fragment that has had the engine's thread for longer than ``piece_time``, and has it still.

    Attributes:
        functions: names and versions of users' functions that it calls: one of them may not return.
    """

    query: str
    fragment: str
    functions: tuple[str, ...] = ()
    for_us: int = 0


class LoadStatus(_Status, frozen=True, kw_only=True):
    """How much a node has to do; None: not known yet."""

    load: Annotated[
        float | None,
        Metric("load_ratio", "How much the node has to do, smoothed: 1 is all that can be done."),
    ] = None
    busy_share: Annotated[
        float | None, Metric("busy_ratio", "Share of time that its boxes were busy, smoothed.")
    ] = None
    engine_share: Annotated[
        float | None, Metric("engine_cpu_ratio", "CPU time of the engine's thread per second, smoothed.")
    ] = None
    cpu_share: Annotated[
        float | None, Metric("cpu_ratio", "CPU time of the process per second and core, smoothed.")
    ] = None
    cores: int | None = None
    memory_bytes: Annotated[int | None, Metric("memory_bytes", "Memory of the process, resident.")] = None
    engine_held: EngineHeld | None = None
    overloaded: Annotated[
        tuple[str, ...], Metric("overloaded", "1 while something is too much for the node.")
    ] = ()
    overloaded_us: int | None = None
    causes: tuple[CauseStatus, ...] = ()
    links: dict[str, LinkStatus] = {}
    peers: dict[str, PeerStatus] = {}


class ShedSourceStatus(_Status, frozen=True, kw_only=True):
    """A source behind which rows may be left out under overload: how, for which outputs, and how many are."""

    fragment: str
    source: str
    how: str
    outputs: tuple[str, ...] = ()
    share: float = 0.0
    left_out_rows: int = 0


class NodeSheddingStatus(_Status, frozen=True, kw_only=True):
    """What is left out at the inputs of a node; ``work`` in processors, None: not known.

    Attributes:
        shedding_us: for how long rows have been left out; None: none are.
        waits_for_others: there is too much, and somebody else may still take it.
    """

    work: Annotated[
        float | None,
        Metric(
            "shedding_work_ratio", "Work that comes and waits, if nothing were left out: 1 is one processor."
        ),
    ] = None
    kept: Annotated[
        float, Metric("shedding_kept_ratio", "Share of that work that is done; 1 while nothing is left out.")
    ] = 1.0
    shedding_us: int | None = None
    waits_for_others: bool = False
    sources: tuple[ShedSourceStatus, ...] = ()


# --- the node -------------------------------------------------------------------------------------


class ParsingStatus(_Status, frozen=True, kw_only=True):
    """Graphs that others sent and that are not read yet."""

    graphs: int = 0
    bytes: int = 0


class AwayStatus(_Status, frozen=True, kw_only=True):
    """A peer that isn't there.

    Attributes:
        seen_us: how long ago it was heard of; None: not since the start of the node.
        refusal: why it lets the node not in; empty: it doesn't answer.
        refused_us: for how long it has said so.
    """

    seen_us: int | None = None
    refusal: str = ""
    refused_us: int | None = None

    @property
    def text(self) -> str:
        """In words, after the name of the peer: ``seen 26 s ago``, ``refuses our key, for 26 s``."""
        if self.refusal:
            return f"{self.refusal}, for {(self.refused_us or 0) // 1_000_000} s"
        if self.seen_us is None:
            return "never seen since our start"
        return f"seen {self.seen_us // 1_000_000} s ago"


class SourceStatus(_Status, frozen=True, kw_only=True):
    """What can be published into: columns, the time, and what else of a row may be refused."""

    columns: tuple[tuple[str, str], ...] = ()
    time: str | None = None
    unit: str | None = None
    slack_us: int | None = None
    arrival: str | None = None
    partition: str | None = None
    partitions: tuple[Any, ...] | None = None


class GoingStatus(_Status, frozen=True, kw_only=True):
    """A fragment that is being moved to another node."""

    to: str
    state: str = ""
    attempts: int = 0
    bytes: int = 0
    silent: tuple[str, ...] = ()
    waits_for: str = ""


class ComingStatus(_Status, frozen=True, kw_only=True, rename={"origin": "from"}):
    """A fragment that another node hands over."""

    origin: str
    state: str = ""


class MovesStatus(_Status, frozen=True, kw_only=True):
    """Fragments on their way from here, and to here."""

    going: dict[str, GoingStatus] = {}
    coming: dict[str, ComingStatus] = {}

    @property
    def under_way(self) -> bool:
        return bool(self.going or self.coming)


class HeldBackupStatus(_Status, frozen=True, kw_only=True):
    """The state of another node's fragment that is held here.

    Attributes:
        owner, epoch: whose it is, and in which epoch that sent it.
        bytes: of the checkpoint that is held and of what has come of the next one.
        age_us: so long ago the newest checkpoint that is held came whole; None: none is whole yet, so nothing
            could be begun with it.
    """

    owner: str
    epoch: int = 0
    bytes: Annotated[int, Metric("backup_bytes", "Bytes of the fragment's state that the node holds.")] = 0
    age_us: Annotated[
        int | None,
        Metric(
            "backup_age_seconds",
            "How long ago the newest checkpoint that is held came whole. No sample: none is whole yet.",
        ),
    ] = None

    @property
    def text(self) -> str:
        """Behind its name: ``of m, epoch 2: 3.2 MiB, newest checkpoint 400ms old``."""
        newest = "no checkpoint is whole yet"
        if self.age_us is not None:
            newest = f"newest checkpoint {duration_text(self.age_us // 100_000 * 100_000)} old"
        return f"of {self.owner}, epoch {self.epoch}: {size_text(self.bytes)}, {newest}"


class BackupsStatus(_Status, frozen=True, kw_only=True):
    """What a node holds of others' fragments by ``method="state_backup"``; ``held`` by fragment."""

    bytes: Annotated[int, Metric("backups_bytes", "Bytes of others' states that the node holds.")] = 0
    limit_bytes: Annotated[
        int, Metric("backups_limit_bytes", "Bytes of others' states that it may hold.")
    ] = 0
    held: dict[str, HeldBackupStatus] = {}


class SplitStatus(_Status, frozen=True, kw_only=True):
    """A box that is being split, or merged."""

    box: str
    what: str = ""
    state: str = ""
    fragments: tuple[str, ...] = ()


class EndStatus(_Status, frozen=True, kw_only=True):
    """Why a fragment was ended; ``at_us``: since 1970, None where nobody knows."""

    node: str = ""
    code: str = ""
    why: str = ""
    at_us: int | None = None


MISSING, SEEDING, FOLLOWING = "missing", "seeding", "following"
"""The states of a node that stands by for a fragment."""


class SecondaryStatus(_Status, frozen=True, kw_only=True):
    """A node that stands by for a fragment.

    Attributes:
        state: ``SEEDING``: it is being sent the state, or isn't counted yet; ``FOLLOWING``: it could take
            over; ``MISSING``.
        since_us: for how long it has been so; None: nobody here knows.
        behind_bytes: what its owner has fed and it hasn't, beside the state that it is still being sent;
            None: nobody here knows.
        deltas: of a passive standby: on a whole checkpoint it holds so many, which make the one that it has;
            None: nobody here knows, or it is none.
    """

    state: str = ""
    since_us: int | None = None
    behind_bytes: Annotated[
        int | None, Metric("behind_bytes", "What the owner has fed and the secondary hasn't.")
    ] = None
    deltas: int | None = None


class ReplicasStatus(_Status, frozen=True, kw_only=True):
    """Who has a fragment, and who stands by for it, in the order in which they succeed.

    Attributes:
        alone_us: for how long nobody could have taken over; None: somebody can, or nobody here knows.
        taken_over_us: so long ago its owner took it over, in its life; None: it didn't, or nobody here knows.
        taken_over_from: who had it before; empty: nobody here knows.
    """

    owner: str
    epoch: int = 1
    secondaries: dict[str, SecondaryStatus] = {}
    alone_us: Annotated[
        int | None,
        Metric(
            "alone_seconds",
            "For how long nobody could have taken the fragment over; 0: somebody can.",
            null=0,
        ),
    ] = None
    taken_over_us: int | None = None
    taken_over_from: str = ""


class ConfigurationStatus(_Status, frozen=True, kw_only=True):
    """Who has what of a query, as its voters have decided.

    Attributes:
        number: one higher with each decision.
        away: voters that this node doesn't hear.
        not_voting: voters that it hears, and that don't vote yet: they have lost what they had said.
        without_state: fragments of which their owner says that they were on a disk that is lost, and that
            nobody has taken over yet.
        fragments: those that somebody stands by for, or did.
    """

    number: int
    coordinator: str
    voters: tuple[str, ...] = ()
    away: tuple[str, ...] = ()
    not_voting: tuple[str, ...] = ()
    without_state: tuple[str, ...] = ()
    fragments: dict[str, ReplicasStatus] = {}


class RecoveredStatus(_Status, frozen=True, kw_only=True):
    """An output that goes on without a lost node, as far as somebody stands by.

    Attributes:
        fragments: by which its rows come.
        guarantee: what holds just now, in words.
    """

    method: str
    fragments: tuple[str, ...] = ()
    guarantee: str = ""


class NodesLackedStatus(_Status, frozen=True, kw_only=True):
    """Nodes with room that a query lacks.

    Attributes:
        count: so many more would get a part now.
        for_us: so long it has lacked some.
        why: in words.
        nodes: that may take parts, and aren't up: whoever keeps some starts them.
    """

    count: int
    for_us: int = 0
    why: str = ""
    nodes: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """In words."""
        nodes = "a node" if self.count == 1 else f"{self.count} nodes"
        away = f"not up: {', '.join(self.nodes)}" if self.nodes else "all that may have any are up"
        return f"lacks {nodes} with room, since {self.for_us // 1_000_000} s ({self.why}): {away}"


class ScalingStatus(_Status, frozen=True, kw_only=True):
    """How the node that coordinates a query splits and merges boxes of it by itself.

    Attributes:
        acts: orders that were carried out, in this life of the node.
        now: the order that is under way; empty: none is.
        waits_for: why nothing is done that should be; empty: there is no reason, or nothing should.
        last: the last order, ``last_us`` ago, ``why`` it was given and what became of it (``outcome``:
            ``done``, or why not); empty, and None: there was none.
        next_look_us: in so long it looks again.
        lacks: nodes with room that are missed; None: none are.
    """

    acts: int = 0
    now: str = ""
    waits_for: str = ""
    last: str = ""
    last_us: int | None = None
    why: str = ""
    outcome: str = ""
    next_look_us: int = 0
    lacks: NodesLackedStatus | None = None

    @property
    def text(self) -> str:
        """In words."""
        said = [f"looks again in {self.next_look_us // 1_000_000} s"]
        if self.now:
            said.append(f"under way: {self.now}")
        if self.waits_for:
            said.append(f"waits: {self.waits_for}")
        if self.lacks is not None:
            said.append(self.lacks.text)
        if self.last:
            ago = (self.last_us or 0) // 1_000_000
            said.append(f"last, {ago} s ago: {self.last} ({self.outcome or 'under way'}), since {self.why}")
        return "; ".join(said)


class QueryStatus(_Status, frozen=True, kw_only=True):
    """A query that the node coordinates.

    Attributes:
        stopped: fragment -> the node whose owner ended it.
        configuration: left out where nobody stands by for any of it; so are ``outputs``, by stream.
        scaling: left out where the node doesn't split and merge by itself.
    """

    state: str = ""
    nodes: tuple[str, ...] = ()
    stopped: dict[str, str] = {}
    ended: dict[str, EndStatus] = {}
    configuration: ConfigurationStatus | UnsetType = UNSET
    outputs: dict[str, RecoveredStatus] | UnsetType = UNSET
    scaling: ScalingStatus | UnsetType = UNSET


class StatelessStatus(_Status, frozen=True, kw_only=True):
    """A fragment that this node is to run or to follow, and of which its owner has nothing.

    Attributes:
        owner: by what is decided.
        streams: those that it has.
        reads: streams of other fragments that it reads.
        may_have_it: other nodes that may have its state still.
        lost: none may: it is lost for good.
        why: in words, and what to do.
    """

    query: str
    epoch: int
    owner: str
    streams: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    may_have_it: tuple[str, ...] = ()
    lost: Annotated[
        bool,
        Metric(
            "state_lost",
            "1: no node has the state of the fragment any more; 0: another may. No sample: its owner has it.",
        ),
    ] = False
    why: str = ""


class DoubtStatus(_Status, frozen=True, kw_only=True):
    """What the node can't know after its disk lost something; all fields are left out where nothing is."""

    lost_catalog: int | UnsetType | None = UNSET
    fragments: dict[str, DoubtfulStatus] | UnsetType = UNSET
    kept_groups: dict[str, str] | UnsetType = UNSET
    lost_parts: dict[str, tuple[str, ...]] | UnsetType = UNSET
    see: str | UnsetType = UNSET


class DoubtfulStatus(_Status, frozen=True, kw_only=True):
    """A fragment in doubt."""

    query: str
    coordinator: str = ""
    epoch: int = 0
    state: str = ""
    why: str = ""


class MarketTaskStatus(_Status, frozen=True, kw_only=True):
    """A fragment that runs at a partner, or a guest of it.

    Attributes:
        task: its name in the market: its owner's, and that of the fragment.
        price_micro: of a core-second, in millionths of the currency.
        nano_units_per_row: nanoseconds of a core that a row is billed as.
        paid_row: rows before this one count as delivered here; None: it isn't in the ledger yet.
        for_us: so long it is there.
        recalled: why it is on its way home; empty: it isn't.
        virtual: it is only as if it were: its contract is a shadow.
    """

    task: str
    partner: str
    contract: str
    negotiation: int = 0
    price_micro: int = 0
    nano_units_per_row: int = 0
    paid_row: int | None = None
    for_us: int = 0
    recalled: str = ""
    virtual: bool = False


class MarketContractStatus(_Status, frozen=True, kw_only=True):
    """A contract, and what is owed by it. Amounts are millionths of its currency.

    Attributes:
        role: ours: ``consumer`` or ``provider``.
        node: that trades for the partner.
        reached: it is there.
        ask_micro: what a core-second would be offered for next, or is said to be taken for.
        room: cores that the partner, or this node, has said to have; None: nothing was said.
        cores: that run by it now.
        rests_us: nothing is asked for so long.
        stopped: why no task is taken under it; empty: one may be.
        virtual_micro: of a shadow, what would have been paid.
        per: of a contract about rows of streams what ``ask_micro`` is for: ``row``, ``hour``; else empty.
        streams: that are sold by it; ``readers``: how many queries read them now.
        missed_us: for how long in all rows should have come and didn't, as this node saw it in this life.
    """

    id: str
    version: int
    partner: str
    node: str
    role: str
    currency: str = "EUR"
    in_force: bool = True
    ends_us: int = 0
    reached: bool = True
    shadow: bool = False
    ask_micro: int = 0
    room: float | None = None
    cores: Annotated[float, Metric("cores", "Cores that run by the contract now.")] = 0.0
    rests_us: int = 0
    stopped: str = ""
    receipts: Annotated[
        int, Metric("receipts", "Readings of the contract that both have signed.", counts=True)
    ] = 0
    owed_micro: Annotated[
        int,
        Metric(
            "owed_micro",
            "Millionths of the currency that the consumer owes the provider by receipts, and that aren't"
            " settled.",
        ),
    ] = 0
    settled_micro: Annotated[int, Metric("settled_micro", "What was settled so far, alike.")] = 0
    exposure_micro: Annotated[
        int, Metric("exposure_micro", "Work that was done and isn't receipted, as this node counts it.")
    ] = 0
    exposure_most_micro: int = 0
    written_off_micro: int = 0
    disputes: Annotated[int, Metric("disputes", "Disputes since the last settlement.")] = 0
    virtual_micro: int = 0
    per: str = ""
    streams: tuple[str, ...] = ()
    readers: Annotated[int, Metric("readers", "Queries that read a stream by the contract.")] = 0
    missed_us: Annotated[
        int,
        Metric("missed_seconds", "Time in which rows of a stream should have come and didn't.", counts=True),
    ] = 0


class MarketOfferStatus(_Status, frozen=True, kw_only=True):
    """A negotiation that is under way, or (``state`` is empty) one that would be begun now.

    Attributes:
        buying: we are the consumer.
        saved_micro_per_s: what the second kind would save, in millionths of the currency a second.
    """

    partner: str
    contract: str
    tasks: tuple[str, ...]
    price_micro: int
    state: str = ""
    buying: bool = True
    saved_micro_per_s: float = 0.0


class MarketDecisionStatus(_Status, frozen=True, kw_only=True):
    """What was decided lately, and why; ``ago_us``: so long ago."""

    ago_us: int
    step: str
    partner: str
    contract: str
    tasks: tuple[str, ...] = ()
    price_micro: int = 0
    code: str = ""
    text: str = ""


class MarketStatus(_Status, frozen=True, kw_only=True):
    """How a node trades load with other participants.

    Attributes:
        capacity: cores that were declared; ``used``: that fragments here and the node itself take of it.
        overloaded: more is used than was declared.
        shadow: it only watches.
        away, guests: fragments of ours at partners, and of partners here.
        open: negotiations; ``planned``: what would be offered now.
        stays: fragment -> why it isn't offered.
        why_still: why nothing moves now.
        explained: all of it in sentences, for ``medusa explain market``.
        refused_papers: file of a contract -> why it doesn't count here.
        refused_by: partner -> what its node has answered.
    """

    capacity: Annotated[float, Metric("capacity_cores", "Cores declared for own load and that of others.")]
    used: Annotated[float, Metric("used_cores", "Cores that fragments and the node itself take.")] = 0.0
    overloaded: bool = False
    shadow: bool = False
    contracts: tuple[MarketContractStatus, ...] = ()
    away: tuple[MarketTaskStatus, ...] = ()
    guests: tuple[MarketTaskStatus, ...] = ()
    open: tuple[MarketOfferStatus, ...] = ()
    planned: tuple[MarketOfferStatus, ...] = ()
    stays: dict[str, str] = {}
    why_still: str = ""
    decisions: tuple[MarketDecisionStatus, ...] = ()
    explained: tuple[str, ...] = ()
    refused_papers: dict[str, str] = {}
    refused_by: dict[str, str] = {}
    handed_over: Annotated[
        int, Metric("handed_over_tasks", "Fragments of its own that went to a partner.", counts=True)
    ] = 0
    came_home: Annotated[
        int, Metric("came_home_tasks", "Fragments of its own that came home.", counts=True)
    ] = 0
    lost: Annotated[
        int,
        Metric("lost_tasks", "Of these those that were taken over, as their host was silent.", counts=True),
    ] = 0
    took: Annotated[int, Metric("taken_tasks", "Fragments of partners that came.", counts=True)] = 0
    gave_back: Annotated[int, Metric("given_back_tasks", "Fragments of partners that went.", counts=True)] = 0


class RunsOnStatus(_Status, frozen=True, kw_only=True):
    """What the fragments of the node run on instead."""

    engine: str
    cores: int = 1
    latency_us: tuple[int, int] = (0, 0)
    kinds: tuple[str, ...] = ()


class AgreementStatus(_Status, frozen=True, kw_only=True):
    """Who decides on the owners of a query's fragments, and what isn't decided.

    Attributes:
        waits: what can't go on: ``takeovers`` (too few voters are there for any), ``decision`` (this node
            wants the next configuration), ``vote`` (this node votes on nothing before others have told what
            it had said).
        why: in words, whose word each of them waits for.
        number: of the configuration that is current as far as the node knows.
        proposing: what this node does to have the next one decided; empty: it wants none.
        silent: voters that it waits for.
        refused: voter -> why it said no.
        untold: nodes that haven't said yet that they have the current one on disk.
        waits_us: for how long it has waited.
    """

    waits: tuple[str, ...] = ()
    why: str = ""
    number: int
    coordinator: str
    voters: tuple[str, ...]
    proposing: str = ""
    silent: tuple[str, ...] = ()
    refused: dict[str, str] = {}
    untold: tuple[str, ...] = ()
    waits_us: Annotated[
        int,
        Metric(
            "undecided_seconds",
            "For how long something of the query has waited for the word of voters. No sample: nothing does.",
        ),
    ] = 0

    @property
    def waits_for(self) -> str:
        """The voters whose word is waited for, and why that hasn't come."""
        silent = (f"{node} (hasn't answered)" for node in self.silent)
        return ", ".join([*silent, *(f"{node} ({why})" for node, why in self.refused.items())])


class NodeStatus(_Status, frozen=True, kw_only=True):
    """A node. Of ``remote`` and ``dht`` it says what those say themselves: docs/remote.md, catalog-dht.md.

    Attributes:
        undecided: query in which this node votes -> what waits for the word of voters, and why.
        without_state: by fragment.
    """

    node: str
    participant: str = ""
    abroad: dict[str, str] = {}
    rows_in: int = 0
    rows_out: int = 0
    rows_in_per_s: float = 0
    rows_out_per_s: float = 0
    queue_bytes: int = 0
    kept_bytes: int = 0
    lost_rows: int = 0
    shed_rows: int = 0
    late: int = 0
    dead: int = 0
    lag_us: int = 0
    boundary_us: int | None = None
    load: LoadStatus = LoadStatus()
    peers: dict[str, str] = {}
    parsing: ParsingStatus = ParsingStatus()
    away: dict[str, AwayStatus] = {}
    refused: dict[str, int] = {}
    door: dict[str, int] = {}
    disk_error: str = ""
    fragments: tuple[FragmentStatus, ...] = ()
    sources: dict[str, SourceStatus] = {}
    streams: tuple[str, ...] = ()
    moves: MovesStatus = MovesStatus()
    splits: tuple[SplitStatus, ...] = ()
    remote: dict[str, Any] = {}
    dht: dict[str, Any] | None = None
    elsewhere: dict[str, tuple[str, ...]] = {}
    queries: dict[str, QueryStatus] = {}
    undecided: dict[str, AgreementStatus] = {}
    without_state: dict[str, StatelessStatus] = {}
    in_doubt: DoubtStatus = DoubtStatus()
    backups: BackupsStatus = BackupsStatus()
    runs_on: RunsOnStatus | UnsetType = UNSET
    market: MarketStatus | UnsetType = UNSET
    shedding: NodeSheddingStatus | UnsetType = UNSET

    def link_state(self, peer: str) -> str:
        """``up`` or ``silent`` of a node in the configuration, ``here`` of the node itself, else
        ``client``."""
        return self.peers.get(peer, "here" if peer == self.node else "client")

    def why_away(self, peer: str) -> str:
        """``seen 26 s ago``, or why it refuses the node, of a peer that isn't there; empty: it is, or nobody
        knows."""
        away = self.away.get(peer)
        return "" if away is None else away.text


_STATUS = converter(NodeStatus)


class OwnInputs(_Status, frozen=True, kw_only=True):
    """Of a fragment what a client has published into it."""

    inputs: tuple[InputStatus, ...]


class VisibleStatus(_Status, frozen=True, kw_only=True):
    """What a client that may not ask for the whole status sees of it."""

    node: str
    sources: dict[str, SourceStatus]
    streams: tuple[str, ...]
    elsewhere: dict[str, tuple[str, ...]]
    fragments: tuple[OwnInputs, ...]


@cache
def metrics_of(part: type[msgspec.Struct]) -> dict[str, Metric]:
    """Of a kind of part the fields that are served, in their order."""
    hints = get_type_hints(part, include_extras=True)
    return {
        name: each
        for name in part.__struct_fields__
        for each in getattr(hints[name], "__metadata__", ())
        if isinstance(each, Metric)
    }


def titled(part: msgspec.Struct) -> Iterator[tuple[str, str, Any]]:
    """(title, field, value) of each that screens needn't lay out, in the order of the fields."""
    for name, metric in metrics_of(type(part)).items():
        if metric.title:
            yield metric.title, name, getattr(part, name)


def plain(status: NodeStatus) -> dict[str, Any]:
    """A status as JSON has it."""
    found: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(status))
    return found


def status_of(said: Mapping[str, Any]) -> NodeStatus:
    """The status of a node, as ``Federation.status`` gives it.

    Raises:
        DataError: a field has another type: the node is of another version, or hostile.
    """
    try:
        return _STATUS(said)
    except msgspec.ValidationError as error:
        raise DataError(
            f"the status can't be read: {error}",
            hint="is the node of another version?",
            code="data.status",
        ) from None
