"""The links of a fragment that is removed, or is at another node."""

from __future__ import annotations

from collections.abc import Container, Iterable

from medusa.errors import RemoteProtocolError
from medusa.nodes.fragment.inputs import FragmentInput
from medusa.nodes.fragment.outputs import FragmentOutput
from medusa.wire.link.automaton import ReceiverState, SenderState
from medusa.wire.messages.links import Refuse
from medusa.wire.outbox import Outbox

__all__ = ["RESTING", "close_links", "tell_clients"]

RESTING = (ReceiverState.IDLE, ReceiverState.REFUSED)
"""An input in one of these takes nothing."""


def close_links(
    inputs: Iterable[FragmentInput], outputs: Iterable[FragmentOutput], outbox: Outbox, why: str, code: str
) -> None:
    """End them all: upstream keeps nothing more for us, readers and publishers hear why."""
    for input in inputs:
        if input.judged:
            input.receiver.detach(0)
        elif input.receiver.state not in RESTING:
            input.receiver.refuse(RemoteProtocolError(why, code=code))
    for output in outputs:
        for view in output.sender.receivers.values():
            if view.peer:
                refusal = Refuse(code=code, text=why, stream=output.stream, epoch=view.epoch)
                outbox.send(view.peer, refusal)


def tell_clients(
    inputs: Iterable[FragmentInput],
    outputs: Iterable[FragmentOutput],
    nodes: Container[str],
    outbox: Outbox,
    node: str,
) -> None:
    """Readers and publishers that are clients hear where to go.

    Args:
        nodes: readers that are none.
        node: where the fragment is now.
    """
    hint = f"connect to node {node!r}"
    for output in outputs:
        text = f"stream {output.stream!r} was moved to node {node!r}"
        for view in output.sender.receivers.values():
            if view.peer and view.peer not in nodes and view.state is not SenderState.DETACHED:
                outbox.send(
                    view.peer,
                    Refuse(code="E_MOVED", text=text, hint=hint, stream=output.stream, epoch=view.epoch),
                )
    for input in inputs:
        if not input.judged and input.silent_since_us is None:
            text = f"source {input.stream!r} was moved to node {node!r}"
            input.receiver.refuse(RemoteProtocolError(text, hint=hint, code="E_MOVED"))
