"""What becomes of new rows while an input is missing, and while corrections come, by the papers' names."""

from __future__ import annotations

from dataclasses import dataclass

import medusa as md

__all__ = ["POLICIES", "PROCESS", "Policy", "policies_of"]


@dataclass(frozen=True, slots=True)
class Policy:
    """One of the papers' six.

    Attributes:
        failure, stabilization: ``process``, ``delay`` or ``suspend``: what is done in either state.
    """

    failure: str
    stabilization: str

    @property
    def key(self) -> str:
        return f"{self.failure}&{self.stabilization}"

    @property
    def promises(self) -> bool:
        """X holds whatever a failure lasts."""
        return "suspend" not in (self.failure, self.stabilization)

    def wish(self, within: str) -> str | md.Delay:
        """``delay=`` of a sink with this X."""
        if self == PROCESS:
            return within  # What it is without a word.
        return md.Delay(within, failure=self.failure, stabilization=self.stabilization)


PROCESS = Policy("process", "process")
POLICIES = {
    each.key: each
    for each in (
        PROCESS,
        Policy("delay", "process"),
        Policy("process", "delay"),
        Policy("delay", "delay"),
        Policy("process", "suspend"),
        Policy("delay", "suspend"),
    )
}


def policies_of(text: str) -> list[Policy]:
    """Those that are named, by commas.

    Raises:
        ValueError: there is no such policy.
    """
    named = [each.strip().replace(" ", "") for each in text.split(",") if each.strip()]
    if unknown := [each for each in named if each not in POLICIES]:
        raise ValueError(f"--policies: {', '.join(unknown)} is none of {', '.join(POLICIES)}")
    return [POLICIES[each] for each in named]
