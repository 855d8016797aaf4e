"""Boundaries that a client has promised: whether their nodes hold them durably."""

from __future__ import annotations

import time
from collections.abc import Mapping

from medusa.elements import START_US
from medusa.errors import LinkError
from medusa.runtime.client.asking import ask
from medusa.runtime.client.client_loop import ClientLoop, now_us
from medusa.runtime.client.publisher import Publisher
from medusa.units import duration_text
from medusa.wire.messages.links_and_commands import StatusRequest

__all__ = ["await_boundaries"]

ASK_EVERY_S = 0.05


def await_boundaries(publishers: Mapping[str, Publisher], end_us: int, timeout_us: int) -> None:
    """Wait until all that was promised is durable. An acknowledgement says nothing of boundaries; a node's
    status does.

    Raises:
        LinkError: not in time, which is until ``end_us``.
    """
    open_ = {name: of.boundary_us for name, of in publishers.items() if of.boundary_us > START_US}
    while True:
        durable_us = _durable({name: publishers[name] for name in open_})
        left = {name: at for name, at in open_.items() if durable_us.get(name, START_US) < at}
        open_ = {name: at for name, at in left.items() if publishers[name].gone is None}
        if not open_:
            return
        if now_us() > end_us:
            raise LinkError(
                f"boundaries of {', '.join(open_)} are not durable after {duration_text(timeout_us)}",
                hint="wait longer, or look at status()",
                code="link.timeout",
            )
        time.sleep(ASK_EVERY_S)


def _durable(publishers: Mapping[str, Publisher]) -> dict[str, int]:
    found: dict[str, int] = {}
    by_loop: dict[ClientLoop, dict[str, Publisher]] = {}
    for name, each in publishers.items():
        by_loop.setdefault(each.loop, {})[name] = each
    for loop, group in by_loop.items():
        found |= _durable_at(loop, group)
    return found


def _durable_at(loop: ClientLoop, group: Mapping[str, Publisher]) -> dict[str, int]:
    """Of those that go by one connection; of those that go by another meanwhile nothing."""

    def lost() -> bool:
        return all(each.loop is not loop for each in group.values())

    try:
        status = ask(loop, lambda number: StatusRequest(request=number), lost=lost)
    except LinkError as error:
        if error.code != "link.lost":
            raise
        return {}
    known = {
        each["stream"]: each["durable_boundary_us"]
        for fragment in status["fragments"]
        for each in fragment["inputs"]
        if each["from"] == loop.name
    }
    return {name: known[each.name] for name, each in group.items() if each.name in known}
