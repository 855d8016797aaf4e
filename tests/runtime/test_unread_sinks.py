"""Which sinks keep rows from being durable, in words."""

from __future__ import annotations

import pytest

from medusa.runtime.client.status.unread_sinks import unread_sinks
from medusa.wire.status_and_metrics import (
    FragmentStatus,
    NamedStatus,
    NodeStatus,
    OutputStatus,
    ReceiverStatus,
)


def status(method: str = "upstream_backup", query: str = "q", **of: object) -> NodeStatus:
    output = OutputStatus(sink="out", stream="q.out", rows=1_200, **of)
    return NodeStatus(
        node="n", fragments=(FragmentStatus(fragment="q/f", query=query, method=method, outputs=(output,)),)
    )


READER = ReceiverStatus(to="c-1", state="flowing", plain=True, durable_row=1_100)


@pytest.mark.parametrize("method", ["upstream_backup", "precise_upstream_backup"])
def test_who_lags_is_named(method: str) -> None:
    name = NamedStatus(name="r", acknowledged_row=7)
    assert unread_sinks([status(method, receivers=(READER,), named=(name,))], {"q"}) == [
        "sink 'q.out' isn't read: c-1 has 1,100 of 1,200 rows",
        "sink 'q.out' isn't read: the name 'r' has 7 of 1,200 rows",
    ]


@pytest.mark.parametrize("gone", [(), (ReceiverStatus(to="c-1", state="detached", plain=True),)])
def test_that_nobody_reads_it_is_said(gone: tuple[ReceiverStatus, ...]) -> None:
    what = "sink 'q.out' is read by nobody: its 1,200 rows are kept for who comes"
    assert unread_sinks([status(receivers=gone)], {"q"}) == [what]


@pytest.mark.parametrize(
    "silent",
    [
        status("active_standby", receivers=(READER,)),
        status("", receivers=(READER,)),
        status(query="p", receivers=(READER,)),
        status(receivers=(ReceiverStatus(to="c-1", state="flowing", plain=True, durable_row=1_200),)),
        status(receivers=(ReceiverStatus(to="node", state="flowing", durable_row=3),)),
        status(named=(NamedStatus(name="r", acknowledged_row=1_200),)),
        status(receivers=(ReceiverStatus(to="node", state="detached", durable_row=3),)),
        status(oldest_row=1_200),
        status("active_standby"),
    ],
)
def test_nobody_else_is(silent: NodeStatus) -> None:
    """By other methods nobody waits for readers; a node that reads has what it has by itself."""
    assert unread_sinks([silent], {"q"}) == []
