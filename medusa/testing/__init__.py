"""A test kit for users: sources that replay, update streams as tables, and whether cuts are noticed."""

from __future__ import annotations

from medusa.testing.cuts import check_cuts
from medusa.testing.replay import Aborted, ManualClock, Replay, replay
from medusa.testing.show import show

__all__ = ["Aborted", "ManualClock", "Replay", "check_cuts", "replay", "show"]
