"""What may be left out right behind a source of a fragment, and what its outputs lose by it.

Placement finds it in the whole query and puts it on the source: the outputs, and the windows, may stand at
other nodes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import msgspec
from msgspec import Meta

from medusa.errors import QueryError
from medusa.query.qos import Points, QoS
from medusa.query.types import is_numeric
from medusa.units import DURATION_MAX_US, duration_text

__all__ = ["SheddingRule", "ThinnedOutput", "check_rule"]

OUTPUTS_MAX = 1000
"""Of one rule: as many as a query can have boxes that lead to them."""


class ThinnedOutput(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An output that misses what is left out.

    Attributes:
        sink: its name in the query.
        qos: what it is worth.
        hops: fragments that rows pass on the longest way to it, the one of the source included.
    """

    sink: Annotated[str, Meta(min_length=1, max_length=255)]
    qos: QoS
    hops: Annotated[int, Meta(ge=1, le=OUTPUTS_MAX)] = 1


class SheddingRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How rows may be left out behind one source.

    Attributes:
        outputs: all that miss them; each has quality of service.
        window_us: rows go by whole stretches of time of this length, since windows stand below, here or
            elsewhere; 0: row by row.
        value: a column of the source and the importance by its value: the least important rows go first.
    """

    outputs: Annotated[tuple[ThinnedOutput, ...], Meta(min_length=1, max_length=OUTPUTS_MAX)]
    window_us: Annotated[int, Meta(ge=0, le=DURATION_MAX_US)] = 0
    value: tuple[str, Points] | None = None

    @property
    def how(self) -> str:
        """``windows``, ``value`` or ``random``."""
        return "windows" if self.window_us else "value" if self.value is not None else "random"

    def describe(self) -> str:
        """In a plan: ``sheds whole windows of 1s (alarms, report)``."""
        what = {
            "windows": f"whole windows of {duration_text(self.window_us)}",
            "value": f"by {self.value[0]}" if self.value is not None else "",
            "random": "at random",
        }[self.how]
        return f"sheds {what} ({', '.join(each.sink for each in self.outputs)})"


def check_rule(rule: SheddingRule, types: Mapping[str, str], label: str, *, timed: bool) -> None:
    """Whether a rule fits its source; of what came over a link too.

    Args:
        types: of the columns of the source.
        timed: its rows have a time.

    Raises:
        QueryError: it doesn't: the source, and what was expected.
    """
    if rule.window_us and not timed:
        raise QueryError(f"{label}: sheds by windows, and has no time", code="query.source")
    if rule.window_us and rule.value is not None:
        raise QueryError(f"{label}: sheds by windows or by value, not by both", code="query.source")
    if rule.value is None:
        return
    column, points = rule.value
    if not is_numeric(types.get(column, "")):
        raise QueryError(
            f"{label}: sheds by {column[:80]!r}, which is no numeric column of it", code="query.source"
        )
    QoS(value=(column, points))  # It checks the points.
