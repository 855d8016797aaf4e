"""How a receiver that was refused tells it."""

from __future__ import annotations

from medusa.wire.link.automaton import LinkEvent, ReceiverState
from medusa.wire.link.receiver import PATIENCE_US
from medusa.wire.messages.links import Refuse
from medusa.wire.outbox import ReportLine
from tests.wire.pair import Pair


def test_a_stream_that_may_still_come_is_an_error_only_after_some_seconds():
    """A downstream node attaches before upstream has installed: so goes each normal deployment."""

    def levels(pair, code, times):
        said = []
        for pair.now_us in times:
            pair.receiver.peer_event(pair.now_us, LinkEvent.PEER_RESTARTED)
            pair.receiver.receive(pair.now_us, Refuse(code=code, text="no", stream="s", epoch=0))
            assert pair.receiver.state is ReceiverState.REFUSED
            said += [effect.level for effect in pair.target_box.take() if isinstance(effect, ReportLine)]
        return said

    times = [500_000, 1_000_000, 500_000 + PATIENCE_US, 1_000_000 + PATIENCE_US]
    pair = Pair()
    pair.receiver.peer_event(0, LinkEvent.PEER_UP)  # and nothing is attached yet
    assert levels(pair, "E_STREAM", times) == ["info", "debug", "error", "debug"]
    pair.receiver.peer_event(pair.now_us, LinkEvent.PEER_RESTARTED)
    pair.settle()
    assert pair.receiver.state is ReceiverState.FLOWING
    assert levels(pair, "E_STREAM", [time + 9_000_000 for time in times[:2]]) == ["warning", "debug"], (
        "it was there"
    )
    assert levels(Pair().up(), "E_SCHEMA", times[:1]) == ["error"]
    assert levels(Pair().up(), "E_REMOVED", times[:1]) == ["info"], "somebody undeployed the query"
    assert levels(Pair(plain=True, next_seq=-1).up(), "E_STREAM", times[:1]) == ["error"], "nobody asks again"
