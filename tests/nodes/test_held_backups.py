"""What the status says of states that are held for others, of what is held and what is coming."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from medusa.nodes.status.held_backups import backups_status
from medusa.wire.status_and_metrics import HeldBackupStatus


def receiver(fragment: str, owner: str, epoch: int, nbytes: int, held_us: int | None) -> Any:
    spec = SimpleNamespace(name=fragment)
    return SimpleNamespace(spec=spec, owner=owner, epoch=epoch, held_bytes=nbytes, held_us=held_us)


def test_what_is_coming_adds_to_what_is_held_and_does_not_hide_it() -> None:
    """An owner seeds anew: what could be begun with is still that of before."""
    whole, coming = receiver("q/a", "m", 1, 500, 40), receiver("q/a", "s", 2, 300, None)
    for held in ([whole, coming], [coming, whole]):
        status = backups_status(100, [*held, receiver("q/b", "m", 1, 7, None)], 1000)
        assert status.held == {
            "q/a": HeldBackupStatus(owner="m", epoch=1, bytes=800, age_us=60),
            "q/b": HeldBackupStatus(owner="m", epoch=1, bytes=7),
        }
        assert (status.bytes, status.limit_bytes) == (807, 1000)


def test_a_node_that_holds_nothing_says_how_much_it_may() -> None:
    assert backups_status(0, [], 1000).held == {}
    assert backups_status(0, [], 1000).limit_bytes == 1000
