"""What happens in a run over a cut network, in words, and what has to be so of it."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["PartitionCheck", "PartitionEvent"]


@dataclass(frozen=True, slots=True)
class PartitionEvent:
    """Something that happened, in words; ``at_s``: since rows began to flow."""

    at_s: float
    what: str


@dataclass(frozen=True, slots=True)
class PartitionCheck:
    """Something that has to be so; ``fault``: how it isn't, empty where it is."""

    what: str
    fault: str
