"""Whether a node takes a fragment that is offered to it: the one place where that is decided. No IO.

A deployment, a move and a split ask here before anything changes. A node that runs fragments itself takes
all for which it has room; one that has them run elsewhere says by ``accept`` what it can run, in time. What a
fragment is offered for, its price, will be weighed here too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import UNSET, UnsetType

from medusa.nodes.spec.fragment_spec import FragmentSpec
from medusa.wire.status import RunsOnStatus

__all__ = ["Admission"]


class Admission:
    """What a node says of fragments that are offered, and of itself to who might offer some.

    Attributes:
        accept: raises LinkError, with the reason, for one that it won't take.
        told: what the catalog and the status say of where its fragments run; empty: in the node.
    """

    def __init__(
        self,
        accept: Callable[[FragmentSpec], None] = lambda fragment: None,
        told: Callable[[], dict[str, Any]] = dict,
    ) -> None:
        self.accept = accept
        self.told = told

    def status(self) -> RunsOnStatus | UnsetType:
        """For the status of the node; unset: its fragments run here."""
        told = self.told()
        return RunsOnStatus(**told) if told else UNSET
