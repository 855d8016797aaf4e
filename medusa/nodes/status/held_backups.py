"""What this node holds of others' fragments (``method="state_backup"``), as the status shows it. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from medusa.nodes.recovery.held_checkpoint import CheckpointReceiver
from medusa.wire.status_and_metrics import BackupsStatus, HeldBackupStatus

__all__ = ["backups_status"]


def backups_status(now_us: int, held: Iterable[CheckpointReceiver], limit_bytes: int) -> BackupsStatus:
    """All of it together, and by fragment.

    Args:
        held: of a fragment what is coming, and what could be begun with: then that is told, and the bytes of
            both.
        limit_bytes: so much may be held.
    """
    found: dict[str, HeldBackupStatus] = {}
    for each in sorted(held, key=lambda each: each.held_us is not None):
        before = found.get(each.spec.name)
        found[each.spec.name] = HeldBackupStatus(
            owner=each.owner,
            epoch=each.epoch,
            bytes=each.held_bytes + (0 if before is None else before.bytes),
            age_us=None if each.held_us is None else now_us - each.held_us,
        )
    total = sum(each.bytes for each in found.values())
    return BackupsStatus(bytes=total, limit_bytes=limit_bytes, held=dict(sorted(found.items())))
