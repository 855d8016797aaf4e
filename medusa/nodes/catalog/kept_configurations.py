"""What a node's catalog keeps of configurations, so that it never goes back on its word."""

from __future__ import annotations

import msgspec

from medusa.wire.messages.configuration import Ballot, Configuration, Proposal

__all__ = ["KeptConfiguration"]


class KeptConfiguration(msgspec.Struct, frozen=True, kw_only=True):
    """One query, as this node knows it.

    Attributes:
        current: the newest configuration that is known to be decided.
        promised: of the configuration after that: nothing of an earlier ballot is accepted for it.
        accepted: what was accepted for it.
        forgot: this node may have promised or accepted something for it in a life whose disk is lost: it
            votes on nothing until all other voters have told what they know (``nodes.agreement.reentry``).
        forgot_beyond: it votes again on that, and has forgotten whatever comes after it: that may have been
            decided with nodes that don't vote by the current one, so they weren't asked. Unset: it has not.
    """

    current: Configuration
    promised: Ballot | None = None
    accepted: Proposal | None = None
    forgot: bool = False
    forgot_beyond: bool | msgspec.UnsetType = msgspec.UNSET
