"""Deployments that a coordinator finds half done when it starts: do the nodes have it? No IO.

Either it died amid them, or its catalog was put back to the version before the one that says "running"
(and nothing on its own disk tells which). What the nodes have decides: where each has its whole part the
deployment is done, and undoing it would take a running query away. Where that can't be known, nothing is
undone until somebody removes the query.
"""

from __future__ import annotations

from medusa.nodes.catalog.catalog import DEPLOYING, Catalog, Deployment
from medusa.nodes.names.names import NodeNames

__all__ = ["UnfinishedDeployments"]

LOOK_US = 50_000


class UnfinishedDeployments:
    """What is known of the parts of deployments that aren't finished.

    Args:
        catalog: of this node.
        naming: what other nodes say that they have.
    """

    def __init__(self, catalog: Catalog, naming: NodeNames) -> None:
        self._catalog = catalog
        self._naming = naming
        self._queries: dict[str, int] = {}
        """When each is looked at again."""
        self._left: set[str] = set()
        """All that can be known of them is, and it isn't enough."""

    def begin(self, now_us: int, query: str) -> None:
        """A query that the catalog on disk says is being deployed."""
        self._queries[query] = now_us

    def waits(self, query: str) -> bool:
        """Whether it isn't judged yet."""
        return query in self._queries or query in self._left

    def away(self, deployment: Deployment) -> list[str]:
        """The own nodes of it that haven't said what they have; who runs nothing of it has nothing to say."""
        busy = {node for _, node in deployment.streams}
        parts = [node for node in deployment.nodes if node in busy or node not in deployment.idle]
        return [node for node in parts if self._naming.awaits(node)]

    def drop(self, query: str) -> bool:
        """Judge it no more; whether it waited."""
        waited = self.waits(query)
        self._queries.pop(query, None)
        self._left.discard(query)
        return waited

    def judged(self, now_us: int) -> list[tuple[Deployment, bool | None]]:
        """Those of which all own nodes have said what they have, and whether that is the whole of it.

        None: nobody can say, and it is left as it is.

        One with a node that is away waits until that is back, or somebody removes it. One with parts at
        nodes of other participants, which don't tell, waits until somebody removes it, unless an own part
        is missing.
        """
        found: list[tuple[Deployment, bool | None]] = []
        for query in [query for query, at_us in self._queries.items() if now_us >= at_us]:
            self._queries[query] = now_us + LOOK_US
            deployment = self._catalog.deployment(query)
            if deployment is None or deployment.state != DEPLOYING:
                del self._queries[query]
            elif not self.away(deployment):
                del self._queries[query]
                whole: bool | None = self._is_whole(deployment)
                if whole and deployment.abroad:
                    self._left.add(query)
                    whole = None
                found.append((deployment, whole))
        return found

    def wake_at_us(self) -> int | None:
        """When ``judged`` has work."""
        return min(self._queries.values(), default=None)

    def _is_whole(self, deployment: Deployment) -> bool:
        """Whether each own node has all that this deployment put there."""
        if not (deployment.streams or deployment.abroad):
            return False
        theirs = {node for _, node, *_ in deployment.abroad}
        wanted: dict[str, set[str]] = {}
        for name, node in deployment.streams:
            if node not in theirs:
                wanted.setdefault(name, set()).add(node)
        for name, nodes in wanted.items():
            there = self._nodes_with(name)
            if not nodes <= there and len(there) < len(nodes):  # Parts that moved are elsewhere.
                return False
        return True

    def _nodes_with(self, name: str) -> set[str]:
        directory = self._naming.directory
        found = {each.writer for kind in ("stream", "source") for each in directory.holders(kind, name)}
        found.discard(self._catalog.node)
        specs = self._catalog.fragments.values()
        if any(name in (*spec.streams.values(), *spec.entries.values()) for spec in specs):
            found.add(self._catalog.node)
        return found
