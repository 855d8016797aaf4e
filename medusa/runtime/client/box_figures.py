"""The figures of one box, as nodes and runs say them: what ``medusa top`` and the web page both show."""

from __future__ import annotations

import msgspec

__all__ = ["BoxFigures"]


class BoxFigures(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=False):
    """As ``run.stats()`` has them (docs/metrics.md says what each is); None: not known."""

    kind: str = "box"
    rows_in: int = 0
    rows_out: int = 0
    late: int = 0
    dead: int = 0
    shed: int | None = None
    state_bytes: int = 0
    queue_rows: int = 0
    queue_bytes: int = 0
    boundary: int | None = None
    finished: bool = False
    lag_us: int | None = None
    selectivity: float | None = None
    cost_us: float | None = None
    rows_in_per_s: float | None = None
    rows_out_per_s: float | None = None
    load: float | None = None
