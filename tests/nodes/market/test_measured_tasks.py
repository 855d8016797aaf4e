"""What a node has to do beside its tasks: all that its process takes, but for guests that may come."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from medusa.nodes.load.loads import Usage
from medusa.nodes.market.measured_tasks import MeasuredTasks
from medusa.wire.status_and_metrics import SmoothedLoad


class Loads:
    """A process that takes 0.9 cores of two: a fragment of its own, two that it follows, and the rest."""

    usage = Usage(cpu_us=0, engine_us=None, memory_bytes=0, cores=2)
    cpu_share = 0.45

    def fragment(self, name: str) -> SmoothedLoad | None:
        return SmoothedLoad(rows_in_per_s=100.0, busy_share=0.3) if name == "q/own" else None

    def followed_share(self, fragments: Collection[str]) -> float:
        followed = {"q/spare": 0.2, "p/guest": 0.1}
        return sum(share for name, share in followed.items() if name in fragments)


@pytest.mark.parametrize(("coming", "cores"), [((), 0.6), (("p/guest",), 0.5), (("p/other",), 0.6)])
def test_what_is_followed_counts_unless_it_is_a_guest_to_come(coming: Collection[str], cores: float) -> None:
    measured = MeasuredTasks("alice", Loads())
    tasks = measured.look(["q/own"], {})
    assert [each.use.cpu_cores for each in tasks] == pytest.approx([0.3])
    assert measured.idle(tasks, coming).cpu_cores == pytest.approx(cores)
