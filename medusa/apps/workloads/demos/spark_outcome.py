"""What the demonstration with Spark did: steps, their checks, and how far it is meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import RenderableType

__all__ = ["Check", "Progress", "Step"]


@dataclass(frozen=True, slots=True)
class Check:
    """What was looked at, whether it is as it should be, and the figures."""

    what: str
    fine: bool
    figures: str = ""


@dataclass(frozen=True, slots=True)
class Step:
    """A step that was done.

    Attributes:
        seconds: how long it took, with its checks.
    """

    what: str
    seconds: float
    checks: tuple[Check, ...]

    @property
    def fine(self) -> bool:
        return all(check.fine for check in self.checks)

    def lines(self, number: int) -> Iterator[str]:
        """For people."""
        yield f"{number}. {self.what} ({self.seconds:.1f} s)"
        for check in self.checks:
            verdict = "ok  " if check.fine else "NOT "
            yield f"   {verdict} {check.what}: {check.figures}"

    def to_json(self) -> dict[str, Any]:
        checks = [{"what": each.what, "fine": each.fine, "figures": each.figures} for each in self.checks]
        return {"step": self.what, "seconds": round(self.seconds, 3), "checks": checks}


@dataclass
class Progress:
    """What the screens show; the run's threads replace whole values in it.

    Attributes:
        rows: of the archive.
    """

    flows: int = 0
    published: int = 0
    rows: int = 0

    def line(self) -> str:
        """In one line, for logs and pipes."""
        return f"   {self.published:,} of {self.flows:,} flows are published, {self.rows:,} archived"

    def drawn(self) -> RenderableType:
        """For a terminal."""
        from rich.text import Text

        return Text(self.line())
