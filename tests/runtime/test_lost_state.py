"""How much a fragment had whose state nobody has: by those that fed it, and by those that read it."""

from __future__ import annotations

from medusa.runtime.client.status.lost_state import LostState, lost_states
from medusa.wire.status_and_metrics import (
    FragmentStatus,
    InputStatus,
    NodeStatus,
    OutputStatus,
    StatelessStatus,
)


def feeding(rows: int, oldest_row: int) -> FragmentStatus:
    output = OutputStatus(sink="out", stream="q.in", rows=rows, oldest_row=oldest_row)
    return FragmentStatus(fragment="q/in", outputs=(output,))


def reading(next_row: int) -> FragmentStatus:
    return FragmentStatus(
        fragment="q/out", inputs=(InputStatus(source="a", stream="q.a", origin="n", next_row=next_row),)
    )


def stateless(*, lost: bool = True) -> dict[str, StatelessStatus]:
    return {
        "q/a": StatelessStatus(query="q", epoch=2, owner="n", streams=("q.a",), reads=("q.in",), lost=lost)
    }


def test_who_fed_it_and_who_read_it_say_how_much() -> None:
    statuses = [
        NodeStatus(node="n", participant="p", without_state=stateless()),
        NodeStatus(node="e", participant="p", fragments=(feeding(300, 200),)),
        NodeStatus(node="c", participant="p", fragments=(reading(120),)),
        NodeStatus(node="d", participant="p", fragments=(reading(90),)),
        NodeStatus(node="x", participant="other", fragments=(feeding(999, 998), reading(999))),
    ]
    found = lost_states(statuses)
    assert found == {("p", "q/a"): LostState(went_in={"q.in": (300, 200)}, came_out={"q.a": 120})}
    told = "q.in: 300 rows, and nobody keeps the first 200; q.a: 120 rows had come out"
    assert found["p", "q/a"].text == told


def test_what_is_kept_still_is_no_gap_and_who_is_not_heard_says_nothing() -> None:
    lost = NodeStatus(node="n", participant="p", without_state=stateless())
    fed = NodeStatus(node="e", participant="p", fragments=(feeding(300, 0),))
    assert lost_states([lost, fed])["p", "q/a"].text == "q.in: 300 rows, and all are kept"
    assert lost_states([lost])["p", "q/a"].text == ""


def test_what_another_may_have_is_not_counted_as_lost() -> None:
    status = NodeStatus(node="n", participant="p", without_state=stateless(lost=False))
    assert lost_states([status]) == {}
