"""A stream whose sender lost what it had and began anew: its reader takes the new rows. No IO.

    Refuse (E_ANEW) ──> all that came is fed ──> position 0 ──> a checkpoint says so ──> attached from row 0

Else the first new rows would be taken for those with the same numbers that came before, and dropped.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping

from medusa.nodes.fragment.inputs import FragmentInput
from medusa.wire.link.attach_claims import ANEW
from medusa.wire.link.automaton import LinkEvent

__all__ = ["RETRY_US", "attach_again"]

RETRY_US = 500_000
"""A stream that its node doesn't have (yet) is asked for again after this."""

Key = tuple[str, str]


def attach_again(
    now_us: int,
    retry: MutableMapping[Key, int],
    inputs: Mapping[Key, FragmentInput],
    *,
    rests: bool,
    checkpoints: int,
) -> bool:
    """Inputs whose senders refused them ask again when it is time.

    Args:
        retry: when each of them does.
        rests: no checkpoint is being written, nothing is fed again, and none is copied elsewhere.
        checkpoints: of the fragment that are durable, since the process started.

    Returns:
        Whether a checkpoint has to say where one stands now.
    """
    changed = False
    for key in [key for key, at_us in retry.items() if now_us >= at_us]:
        input = inputs[key]
        del retry[key]
        if input.anew_since is None and _begins(input):
            if rests and input.fed:
                input.begin_anew(checkpoints)
                changed = True
            retry[key] = now_us + RETRY_US
        elif input.anew_since is not None and input.anew_since == checkpoints:
            retry[key] = now_us + RETRY_US
        else:
            input.receiver.peer_event(now_us, LinkEvent.PEER_RESTARTED)
    return changed


def _begins(input: FragmentInput) -> bool:
    refusal = input.receiver.refusal
    return refusal is not None and refusal.code == ANEW
