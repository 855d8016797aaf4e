"""Runs in which disks were damaged: what is missing in the end was told, and nothing else is wrong.

Each fragment at its node is a *part*. Rows that don't come are excused by a loss that was told of a part
that they come through, by name: rows counted as lost, a fragment in doubt, a checkpoint or decisions that
can't be used. A node that lost its whole disk knows nothing to tell: whoever calls it is refused, and that
counts. A refusal without such a loss excuses nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from medusa.nodes.spec.fragment_spec import FragmentSpec
from medusa.runtime.engine_host.group_names import GroupName, owner_of
from medusa.sim.actors.client import Client
from medusa.sim.actors.node import IGNORED, NodeMachine
from medusa.sim.world.virtual_time import SimulationError
from medusa.wire.outbox import ReportLine

__all__ = ["FEWER", "OTHER", "Losses", "Part", "more_than"]

Part = tuple[str, str]
"""Node and fragment."""

FEWER, OTHER = 1, 2
"""What a loss does to what comes after it: rows are missing, and counts of rows are lower; or the rows that
follow come in another order under the same numbers, so some come twice or never."""

ADOPTED = "fragment in doubt is here"
"""What a node says that takes one."""

REORDERED = (
    *("may differ from those", "decisions not repeated", "rows missing"),
    "names inputs that it doesn't have",
)
"""Parts of reports of decisions that can't be repeated."""


class Losses:
    """What was lost in one run.

    Args:
        nodes: all of them.
    """

    def __init__(self, nodes: Mapping[str, NodeMachine]) -> None:
        self._nodes = nodes
        self._deployed = False
        self._parts: dict[Part, FragmentSpec] = {}
        self._emptied: set[Part] = set()
        """Their node lost its disk, or goes by an old catalog, and nothing there tells of a newer one."""
        self._disks: dict[str, int] = {}
        self._doubted: dict[str, set[str]] = {}
        """Fragments in doubt when the node was looked at last."""

    def look(self, node: NodeMachine) -> None:
        """The node has had a turn: what does it have?

        Raises:
            SimulationError: it takes a fragment in doubt since no peer has it, and one does.
        """
        lost = node.disk.history.lost
        if self._disks.get(node.name, 0) != lost:
            self._disks[node.name] = lost
            self._emptied |= {part for part in self._parts if part[0] == node.name}
        if node.goes_back:  # If it coordinates the query its peers tell what they have of it.
            self._emptied |= {part for part in self._parts if part[0] == node.name}
        if node.loop is not None:
            catalog = node.brain.catalog
            for name, spec in catalog.fragments.items():
                self._parts[node.name, name] = spec
            for name in self._doubted.get(node.name, set()) & catalog.fragments.keys():
                self._check_adopted(node, name)
            self._doubted[node.name] = set(catalog.in_doubt.fragments)

    def _check_adopted(self, node: NodeMachine, name: str) -> None:
        said = (r for r in reversed(node.reports) if r.what == ADOPTED and r.fields["fragment"] == name)
        why = next((str(report.fields["why"]) for report in said), "")
        others = [each for each in self._nodes.values() if each is not node]
        having = [each.name for each in others if self._has(each, name)]
        if having and "no peer has it" in why:
            raise SimulationError(f"doubt: {node.name} takes {name}, since no peer has it, and {having} do")

    def _has(self, node: NodeMachine, name: str) -> bool:
        """It runs the fragment, or did before it died, with its disk."""
        if node.alive:
            return name in node.brain.catalog.fragments
        return (node.name, name) in self._parts.keys() - self._emptied

    def deployed(self) -> None:
        """The query runs: from now on its parts are somewhere."""
        self._deployed = True

    # --- at the end ---------------------------------------------------------------------------------

    def check_refusals(self, clients: Iterable[Client]) -> None:
        """Whoever was refused asked a node that has lost something of that.

        Raises:
            SimulationError: it hasn't.
        """
        if not self._deployed:
            return
        told = self.told()
        for who, at, stream, code in self._refusals(clients):
            parts = [part for part in self._having(stream) if part[0] == at]
            if parts and not any(each in told for each in parts):
                raise SimulationError(
                    f"refused: {who} is told {code} of {stream} by {at}, which lost nothing of it"
                )

    def check_kept(self) -> None:
        """A fragment of a query that was deployed, and that nobody removes, is somewhere: it runs, or waits.

        Raises:
            SimulationError: a node has forgotten it, and no node has lost its disk.
        """
        if not self._deployed or any(node.disk.history.lost for node in self._nodes.values()):
            return
        for at, name in self._parts.keys() - self._emptied:
            node = self._nodes[at]
            if node.alive and name not in node.brain.catalog.fragments:
                doubt = node.brain.catalog.in_doubt
                known = name in doubt.fragments or owner_of(name) in doubt.unreadable
                if not (known or doubt.newest):
                    raise SimulationError(f"forgotten: {at} had {name}, and doesn't say that it is in doubt")

    def of(self, stream: str, clients: Iterable[Client]) -> int:
        """The worst that was told of what a stream comes from; 0: nothing.

        Raises:
            SimulationError: a part of it is gone with a disk, and nobody was refused.
        """
        clients = list(clients)
        told, above = self.told(), self._above(stream)
        if not (self._deployed and above):
            return FEWER if any(map(_knows_little, self._nodes.values())) else 0
        heard = {p for p in above & self._emptied if self._nodes[p[0]].alive and not self._ignored(p[0])}
        emptied = {part for part in heard if not self._runs(part)}
        if emptied:
            refused = {(at, name) for _, at, name, _ in self._refusals(clients)}
            if not any((part[0], name) in refused for part in emptied for name in self._names(part)):
                raise SimulationError(f"untold: {sorted(emptied)} went with a disk, and nobody was refused")
        counted = FEWER if any(client.lost.get(stream) for client in clients) else 0
        return max([counted, *(told.get(part, 0) for part in above)])

    def told(self) -> dict[Part, int]:
        """Parts of which a loss was told, by name."""
        found = dict.fromkeys(self._emptied, FEWER)
        for part in self._parts:
            node = self._nodes[part[0]]
            if not node.alive or self._ignored(part[0]):
                found[part] = FEWER
            for report in node.told:
                if kind := self._about(part, report):
                    found[part] = max(kind, found.get(part, 0))
        return found

    def _ignored(self, name: str) -> bool:
        """It lost the number of its last life, and peers take it for one that was."""
        history = self._nodes[name].disk.history
        if not (history.lost or any(GroupName.of(each).kind == "life" for each in history.harmed)):
            return False
        told = (report for node in self._nodes.values() for report in node.told)
        return any(report.what == IGNORED and report.fields["peer"] == name for report in told)

    def _about(self, part: Part, report: ReportLine) -> int:
        """What a report says of a part; 0: nothing."""
        name = part[1]
        fields, what = report.fields, report.what
        kind = OTHER if any(words in what for words in REORDERED) else FEWER
        if what.startswith("fragment ") and what.partition(":")[0] == f"fragment {name}":
            return kind
        if "fragment" in fields:
            return kind if fields["fragment"] == name else 0
        if "stream" in fields:
            feeds = {feed.stream for feed in self._parts[part].feeds}
            mine = {*self._names(part), *feeds}
            told = what not in ("sender refused", "receiver ahead")
            return kind if told and fields["stream"] in mine else 0
        if what.startswith("the newest catalog was lost"):
            return 0 if self._runs(part) else FEWER
        if what.startswith(f"groups {owner_of(name)}-"):
            return FEWER
        return kind if kind == OTHER else 0

    # --- where what is ------------------------------------------------------------------------------

    def _runs(self, part: Part) -> bool:
        node = self._nodes[part[0]]
        return node.alive and part[1] in node.brain.fragments

    def _names(self, part: Part) -> set[str]:
        """Streams and sources by which others know it."""
        spec = self._parts[part]
        return {*spec.streams.values(), *spec.entries.values()}

    def _having(self, stream: str) -> list[Part]:
        return [part for part in self._parts if stream in self._names(part)]

    def _above(self, stream: str) -> set[Part]:
        """All that a stream comes from."""
        found: set[Part] = set()
        waiting = self._having(stream)
        while waiting:
            part = waiting.pop()
            if part not in found:
                found.add(part)
                feeds = {(feed.node, feed.stream) for feed in self._parts[part].feeds}
                waiting += [p for node, name in feeds for p in self._having(name) if p[0] == node]
        return found

    def _refusals(self, clients: Iterable[Client]) -> Iterator[tuple[str, str, str, str]]:
        """Who was refused, by which node, what, and by which code: clients, and nodes that read."""
        for client in clients:
            for mind in client.minds:
                for name, each in mind.publications.items():
                    if each.refusal is not None:
                        yield client.name, mind.node, name, each.refusal.code
                for name, reading in mind.subscriptions.items():
                    if reading.receiver.refusal is not None:
                        yield client.name, mind.node, name, reading.receiver.refusal.code
        for node in self._nodes.values():
            for hosted in node.brain.fragments.values() if node.alive else ():
                for (_, peer), input in hosted.inputs.items():
                    if input.receiver.refusal is not None and peer in self._nodes:
                        yield node.name, peer, input.stream, input.receiver.refusal.code


def _knows_little(node: NodeMachine) -> bool:
    """It can't deploy, or can't know what it had deployed."""
    return not node.alive or bool(node.disk.history.lost) or bool(node.brain.catalog.in_doubt)


def more_than(got: pa.Table, want: pa.Table) -> str:
    """What came that fewer rows of input can't explain: a row, or more counted rows (``n``)."""
    have, need = _weighed(got), _weighed(want)
    more = {row: n - need[row] for row, n in have.items() if n > need[row]}
    return f"{len(more)} rows came that shouldn't, or twice, as {min(more)}" if more else ""


def _weighed(table: pa.Table) -> Counter[str]:
    counted = "n" in table.column_names
    keys = [name for name in table.column_names if not counted or name not in ("n", "s", "t")]
    columns: list[list[Any]] = [table.column(name).to_pylist() for name in keys]
    weights = table.column("n").to_pylist() if counted else [1] * len(table)
    found: Counter[str] = Counter()
    for *row, weight in zip(*columns, weights, strict=True):
        found[repr(row)] += weight
    return found
