"""What a client orders of boxes of a deployed query: to run as parts, and as one again."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from medusa.errors import LinkError, QueryError
from medusa.nodes.spec.part_locations import PartLocations, having, parted
from medusa.query.boxes.splits import PARTS_MAX
from medusa.query.rewrite.key_ranges import HASHES
from medusa.query.suggest import did_you_mean
from medusa.runtime.client.client_loop import ask
from medusa.runtime.client.followed_names import FollowedNames
from medusa.runtime.client.moves import ANSWER_US, Moves
from medusa.units import Duration, duration_us
from medusa.wire.messages import Message
from medusa.wire.messages.split import Merge, Ranges, Split

__all__ = ["Splits"]

LOOK_EVERY_S = 0.05

NEWS_S = 5.0
"""Where a fragment is everybody knows by then."""


class Splits:
    """Orders boxes to be split and merged, and moves their parts to where they shall be."""

    def __init__(self, following: FollowedNames, moves: Moves) -> None:
        self._following = following
        self._moves = moves

    def split(
        self,
        box: str,
        n: int,
        at: Sequence[str] | None,
        timeout: Duration,
        *,
        ranges: str | Sequence[int],
    ) -> dict[str, Any]:
        """As ``Federation.split``."""
        box = self._following.own(box, 1)
        query, id = _names(box)
        if type(n) is not int or not 2 <= n <= PARTS_MAX:
            raise LinkError(f"split: n is from 2 to {PARTS_MAX}, came {n!r:.40}", code="E_SPLIT")
        asked = _ranges(ranges, n)
        nodes = _nodes(at)
        self._check_there(nodes)
        limit_us = duration_us(timeout, what="split: timeout", minimum_us=1_000, error=LinkError)

        def order(fragment: str) -> Callable[[int], Message]:
            return lambda number: Split(request=number, fragment=fragment, box=id, parts=n, ranges=asked)

        found = self._order(lambda: order(self._to_split(query, id)), limit_us)
        known = self._soon(lambda: self._parted(query, id))
        if known is None or len(known.parts) != n:
            came = "it isn't split" if known is None else f"it is split in {len(known.parts)} already"
            raise LinkError(f"box {box!r} is not in {n} parts: {came}", hint="merge it first", code="E_BUSY")
        places, nbytes = known.parts, 0
        for number, name in enumerate(list(places)):
            to = nodes[number % len(nodes)] if nodes else places[name]
            if to != places[name]:
                moved = self._move_soon(name, to, timeout)
                places[name], nbytes = str(moved["node"]), nbytes + moved["bytes"]
        told = {name: found[name] for name in ("pause_us", "ranges", "shares")}
        return {"parts": places, "node": known.router["node"], "bytes": nbytes, **told}

    def merge(self, box: str, timeout: Duration) -> dict[str, Any]:
        """As ``Federation.merge``."""
        box = self._following.own(box, 1)
        query, id = _names(box)
        limit_us = duration_us(timeout, what="merge: timeout", minimum_us=1_000, error=LinkError)
        known = self._parted(query, id)
        if known is None:
            self._having(query, id)  # It says so if nothing is called so.
            raise LinkError(f"box {box!r} isn't split", code="query.split")
        self._check_whole(query, id, len(known.parts))
        home, nbytes = known.router["node"], 0
        for name, node in {**known.parts, **known.merges}.items():
            if node != home:
                nbytes += self._move_soon(name, home, timeout)["bytes"]

        first = known.router["name"]

        def order() -> Callable[[int], Message]:
            """Where the router is may have another name since, by a split or merge of another box."""
            now = self._parted(query, id)
            fragment = first if now is None else now.router["name"]
            return lambda number: Merge(request=number, fragment=fragment, box=id)

        try:
            found = self._order(order, limit_us)
        except LinkError as error:
            if error.code != "E_FRAGMENT" or self._parted(query, id) is not None:
                raise
            whole = self._having(query, id)[0]  # Asked again after a restart: it was done.
            found = {"fragments": [whole["name"]], "node": whole["node"], "pause_us": 0}
        told = {"node": found["node"], "pause_us": found["pause_us"], "bytes": nbytes}
        return {"fragment": found["fragments"][0], **told}

    # --- where things are ---------------------------------------------------------------------------

    def _check_there(self, nodes: Sequence[str]) -> None:
        """Before anything changes: a slip in a name would leave the box split where it is.

        Raises:
            LinkError: the catalog has no node of that name (``E_PEER``).
        """
        if not nodes:
            return

        def listed() -> set[str]:
            return {each["name"] for each in self._following.listed("node")}

        if self._soon(lambda: True if listed().issuperset(nodes) else None):  # one may have just started
            return
        known = listed()
        for node in nodes:
            if node not in known:
                hint = did_you_mean(node, known) or f"known: {', '.join(sorted(known))}"
                raise LinkError(f"split: at names {node!r}, which is no node here", hint=hint, code="E_PEER")

    def _check_whole(self, query: str, box: str, parts: int) -> None:
        """Before anything moves: a part that is split itself has to be merged first.

        Raises:
            LinkError: one is (``query.rewrite.split``).
        """
        listed = self._following.listed("fragment")
        names = [f"{box}-{number}" for number in range(1, parts + 1)]
        for name in names:
            if parted(query, name, listed) is not None:
                text = f"box {query + '/' + box!r} can't be merged while its part {name!r} is split itself"
                hint = f"first merge the part: medusa merge {query}/{name}"
                raise LinkError(text, hint=hint, code="query.split")

    def _having(self, query: str, box: str) -> list[Mapping[str, Any]]:
        """The fragments that have a box.

        Raises:
            LinkError: there are none (``E_FRAGMENT``).
        """
        listed = self._following.listed("fragment")
        found = having(query, box, listed)
        if not found:
            boxes = {one for each in listed if each["query"] == query for one in each["boxes"]}
            text = f"query {query!r} has no box {box!r}" if boxes else f"no query {query!r} is deployed"
            raise LinkError(text, hint=did_you_mean(box, boxes), code="E_FRAGMENT")
        return found

    def _to_split(self, query: str, box: str) -> str:
        """Who is to be told: the fragment that has a box, or its router."""
        known = self._parted(query, box)
        return str(self._having(query, box)[0]["name"] if known is None else known.router["name"])

    def _parted(self, query: str, box: str) -> PartLocations | None:
        return parted(query, box, self._following.listed("fragment"))

    def _soon(self, look: Callable[[], Any]) -> Any:
        """What the catalog will say in a moment."""
        end_s = time.monotonic() + NEWS_S
        while (found := look()) is None and time.monotonic() < end_s:
            time.sleep(LOOK_EVERY_S)
        return found

    # --- orders -------------------------------------------------------------------------------------

    def _order(self, what: Callable[[], Callable[[int], Message]], limit_us: int) -> dict[str, Any]:
        """Nodes hear of a new fragment in a moment: until then nobody may know it.

        Args:
            what: makes the order, anew each time: who asks again after a restart may find it done.
        """
        end_s = time.monotonic() + NEWS_S
        make = what()
        while True:
            try:
                return dict(ask(self._following.orders, make, timeout_us=limit_us + ANSWER_US))
            except LinkError as error:
                if error.code not in ("E_FRAGMENT", "E_BUSY") or time.monotonic() > end_s:
                    raise
            time.sleep(LOOK_EVERY_S)
            with contextlib.suppress(LinkError):
                make = what()

    def _move_soon(self, name: str, to: str, timeout: Duration) -> dict[str, Any]:
        end_s = time.monotonic() + NEWS_S
        while True:
            try:
                return self._moves.move(name, to, timeout)
            except (LinkError, QueryError) as error:
                if error.code not in ("E_FRAGMENT", "E_BUSY") or time.monotonic() > end_s:
                    raise type(error)(
                        f"{name!r} can't be moved to {to!r}: {error.message}",
                        hint=error.hint,
                        code=error.code,
                    ) from error
            time.sleep(LOOK_EVERY_S)


def _names(box: str) -> tuple[str, str]:
    query, _, id = box.partition("/") if isinstance(box, str) else ("", "", "")
    if not query or not id or "/" in id:
        raise LinkError(
            f"a box of a query is called query/box, came {box!r:.80}",
            hint='fed.split("netmon/per_src", 3)',
            code="E_FRAGMENT",
        )
    return query, id


def _ranges(ranges: str | Sequence[int], n: int) -> Ranges:
    """As the message has them; the node looks whether they ascend, and are as many as it takes."""
    if ranges == "even" or ranges == "weight":
        return ranges  # type: ignore[return-value]
    if isinstance(ranges, str) or not all(type(cut) is int and 0 < cut < HASHES for cut in ranges):
        raise QueryError(
            f'split: ranges is "even", "weight", or {n - 1} hashes between 0 and 2^64, came {ranges!r:.80}',
            hint="docs/splitting.md",
            code="query.split",
        )
    return tuple(ranges)[:PARTS_MAX]


def _nodes(at: Sequence[str] | None) -> list[str]:
    if at is None:
        return []
    if isinstance(at, str) or not all(isinstance(node, str) and node for node in at):
        raise LinkError(f"split: at is a list of nodes, came {at!r:.80}", hint='at=["b", "c"]', code="E_PEER")
    return list(at)
