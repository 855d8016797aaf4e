"""The links of a fragment that is removed."""

from __future__ import annotations

from collections.abc import Iterable

from medusa.errors import RemoteProtocolError
from medusa.mind.inputs import Input
from medusa.mind.outputs import Output
from medusa.wire.link import ReceiverState
from medusa.wire.messages import Refuse
from medusa.wire.outbox import Outbox

__all__ = ["RESTING", "close_links"]

RESTING = (ReceiverState.IDLE, ReceiverState.REFUSED)
"""An input in one of these takes nothing."""


def close_links(inputs: Iterable[Input], outputs: Iterable[Output], outbox: Outbox, why: str) -> None:
    """End them all: upstream keeps nothing more for us, readers and publishers hear why."""
    for input in inputs:
        if input.judged:
            input.receiver.detach(0)
        elif input.receiver.state not in RESTING:
            input.receiver.refuse(RemoteProtocolError(why, code="E_REMOVED"))
    for output in outputs:
        for view in output.sender.receivers.values():
            if view.peer:
                refusal = Refuse(code="E_REMOVED", text=why, stream=output.stream, epoch=view.epoch)
                outbox.send(view.peer, refusal)
