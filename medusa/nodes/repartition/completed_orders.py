"""What is ordered of boxes that are split or merged, and whether it was done before. No IO."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from medusa.errors import LinkError
from medusa.nodes.catalog.persistence import CatalogWriter
from medusa.nodes.spec.fragment_spec import FragmentSpec
from medusa.query.boxes import Graph, KeyRouter
from medusa.query.rewrite.key_ranges import even_cuts
from medusa.wire import limits
from medusa.wire.messages.commands import Reply
from medusa.wire.messages.split import Merge, Split
from medusa.wire.outbox import Outbox

__all__ = ["CompletedOrders", "already", "cuts_ordered", "refuse"]

ANSWERS_KEPT = 100
"""Orders that were done and are remembered, since a client whose answer was lost asks again."""


class CompletedOrders:
    """Answers to the latest orders that were done, in this life of the node."""

    def __init__(self, saver: CatalogWriter) -> None:
        self._saver = saver
        self._answers: dict[tuple[str, int], tuple[int, bytes]] = {}
        """Client and number of its request -> the token of the write that holds it, and the answer."""

    def done(self, client: str, request: int, token: int, content: bytes) -> None:
        """An order is done: its client hears so when the write with this token is durable."""
        self._answers[client, request] = token, content
        self.repeat(client, request)
        while len(self._answers) > ANSWERS_KEPT:
            del self._answers[next(iter(self._answers))]

    def repeat(self, client: str, request: int) -> bool:
        """Answer an order that was done (again); whether it was."""
        if (answer := self._answers.get((client, request))) is None:
            return False
        token, content = answer
        self._saver.send(client, Reply(request=request), content, after=token)
        return True


def refuse(outbox: Outbox, client: str, request: int, code: str, text: str, hint: str) -> None:
    """Tell the client of an order that nothing comes of it."""
    most = limits.TEXT_CHARS_MAX
    outbox.send(client, Reply(request=request, code=code, text=text[:most], hint=hint[:most]))


def already(
    order: Split | Merge, fragments: Mapping[str, FragmentSpec], replaced: Mapping[str, str], node: str
) -> dict[str, Any] | None:
    """The answer to an order that was done; None: it wasn't.

    Args:
        fragments: of this node, by name.
        replaced: fragment that is gone -> the one that has its router, or all of it, since.

    Raises:
        LinkError: its box is split already, but otherwise (``E_SPLIT``).
    """
    name = order.fragment
    for _ in range(len(replaced) + 1):
        if name in fragments or name not in replaced:
            break
        name = replaced[name]
    if (found := fragments.get(name)) is None:
        return None
    told: dict[str, Any] = {"node": node, "fragments": [name], "pause_us": 0}
    router = _router(found.graph, order.box)
    if isinstance(order, Merge):
        whole = router is None and any(each.id == order.box for each in found.graph.boxes)
        return told if whole and name != order.fragment else None
    if router is None:
        return None
    if router.parts != order.parts or not _as_ordered(order, router):
        others = " by other ranges" if router.parts == order.parts else ""
        raise LinkError(
            f"box {order.box!r} is not in {order.parts} parts as ordered: it is split in {router.parts}"
            f" already{others}",
            hint="merge it first",
            code="E_SPLIT",
        )
    return told | {"ranges": router.cuts, "shares": []}


def cuts_ordered(order: Split | Merge) -> Sequence[int] | None:
    """Where ranges are to end; None: even ones. Those by weight aren't known yet, and stand for any."""
    if isinstance(order, Merge) or order.ranges == "even":
        return None
    return even_cuts(order.parts) if isinstance(order.ranges, str) else order.ranges


def _router(graph: Graph, box: str) -> KeyRouter | None:
    names = (f"{box}-router", f"{box}-router-left")
    return next((each for each in graph.boxes if isinstance(each, KeyRouter) and each.id in names), None)


def _as_ordered(order: Split, router: KeyRouter) -> bool:
    """What a box holds has changed since, so ranges by weight are any that aren't even."""
    even = not router.keys or router.cuts == even_cuts(router.parts)
    if isinstance(order.ranges, str):
        return even == (order.ranges == "even")
    return router.cuts == order.ranges
