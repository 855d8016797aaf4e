"""What a target doesn't acknowledge is sent again, less and less often: one that is slow has enough to do."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from medusa.elements import Boundary
from medusa.nodes.fragment.change_feed import StandbyChangeFeed
from medusa.nodes.fragment.inputs import Work
from medusa.nodes.migration.state_sender import AGAIN_US, AGAIN_US_MAX, StateSender
from medusa.nodes.recovery.checkpoint_shipping import CheckpointFeed, CheckpointSender
from medusa.nodes.reports import Copied
from medusa.wire.messages.move import Got, Ready
from medusa.wire.outbox import Outbox, Send

ABOUT: dict[str, Any] = {"fragment": "q/rows", "attempt": 1, "ticket": 7}


def sending(kind: str, tap: StandbyChangeFeed | None = None) -> tuple[StateSender, Outbox]:
    """One of whose checkpoint the first frames are on their way."""
    outbox, ready = Outbox(), Ready(**ABOUT, window=1 << 20)
    hosted: Any = SimpleNamespace(
        changed=lambda now_us, soon: None, mixed=False, released=0, outputs={}, inputs={}
    )
    hosted.spec = SimpleNamespace(name="q/rows")
    of: dict[str, Any] = {"node": "m", "target": "s1", "outbox": outbox}
    if kind == "active":
        sender = StateSender(0, hosted, ready, tap=tap or StandbyChangeFeed(), **of)
    else:
        feed = CheckpointFeed()
        sender = CheckpointSender(0, hosted, ready, tap=feed, owned_by=lambda: (1, 1), **of)
        feed.begins(3, 0)
        feed.persisted(3, True, "")
    sender.copied(0, Copied("q/rows", 3, {"state": b"1234"}))
    return sender, outbox


def sent_us(sender: StateSender, outbox: Outbox, begin_us: int, end_us: int) -> list[int]:
    """When anything went."""
    found = []
    for now_us in range(begin_us, end_us, 50_000):
        outbox.take()
        sender.tick(now_us)
        if any(isinstance(each, Send) for each in outbox.take()):
            found.append(now_us)
    return found


@pytest.mark.parametrize("kind", ["active", "passive"])
def test_the_pause_doubles_until_something_is_acknowledged(kind: str) -> None:
    sender, outbox = sending(kind)
    assert sent_us(sender, outbox, 50_000, 4_000_000) == [
        AGAIN_US,
        3 * AGAIN_US,
        3 * AGAIN_US + AGAIN_US_MAX,
        3 * AGAIN_US + 2 * AGAIN_US_MAX,
    ]
    sender.got(4_000_000, Got(**ABOUT, frames=1, opened=False, durable=0))
    assert sent_us(sender, outbox, 4_050_000, 5_000_000) == [4_000_000 + AGAIN_US, 4_000_000 + 3 * AGAIN_US]


CHECKPOINT_FRAMES = 2
"""A piece of it, and that it is whole."""


def test_who_feeds_a_batch_at_a_time_keeps_pace_though_much_is_on_its_way() -> None:
    """Twenty elements a second; each two seconds all is acknowledged that was fed before the last two."""
    tap = StandbyChangeFeed()
    sender, _ = sending("active", tap)
    tap.begins(3, 0)
    note = SimpleNamespace(note=b"")
    origin: Any = SimpleNamespace(source="rows", peer="e", named=False, by="", receiver=note)

    def got(now_us: int, elements: int) -> tuple[bool, bool]:
        frames = CHECKPOINT_FRAMES + elements
        sender.got(now_us, Got(**ABOUT, frames=frames, opened=True, durable=0))
        return sender.keeps_pace, sender.near

    found = [got(0, 0)]
    for twentieth in range(1, 12 * 20 + 1):
        now_us = twentieth * 50_000
        tap.fed(Work(origin, Boundary(now_us), next_seq=0, boundary_us=now_us, cost=0))
        sender.tick(now_us)
        if twentieth % 40 == 0:
            found.append(got(now_us, twentieth - 40))
    assert found[0] == (True, True)
    assert found[1] == (False, False)  # It has followed for two seconds: that much behind is too much.
    assert found[2:] == [(True, False)] * 5
    assert got(16_000_000, 201) == (False, False)  # Nothing has moved for so long.
