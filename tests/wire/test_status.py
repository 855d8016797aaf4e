"""The schema of a status: what an older, a newer and a hostile node may say."""

from __future__ import annotations

import msgspec
import pytest

from medusa.errors import DataError
from medusa.wire.status_and_metrics import (
    AwayStatus,
    BoxStatus,
    CauseStatus,
    DoubtStatus,
    FragmentStatus,
    InputStatus,
    MovesStatus,
    NodeStatus,
    plain,
    status_of,
)

NODE = """
node participant abroad rows_in rows_out rows_in_per_s rows_out_per_s queue_bytes kept_bytes
lost_rows shed_rows late dead lag_us boundary_us load peers parsing away refused door disk_error
fragments sources streams moves splits remote dht elsewhere queries undecided without_state in_doubt
backups"""
BOX = """
kind rows_in rows_out late ahead tentative dead dropped state_bytes queue_bytes busy_us boundary
finished queue_rows lag_us selectivity cost_us shed rows_in_per_s rows_out_per_s load smoothed
waits_for held_by unmoved_us"""
FRAGMENT = """
fragment query state failed rows_in rows_out rows_in_per_s rows_out_per_s queue_bytes kept_bytes
shed_rows lag_us boundary_us finished lost_rows lost_unknown uncounted refused_rows checkpoints
checkpoint_failures disk_error late dead state_bytes boxes arcs inputs outputs publishers
gone_publishers load checkpoint_every_us lost_by method method_reason delay_us delay_failure
delay_stabilization left_out_rows left_out_by"""


@pytest.mark.parametrize(
    ("struct", "names"),
    [(NodeStatus(node="a"), NODE), (BoxStatus(), BOX), (FragmentStatus(fragment="q/f"), FRAGMENT)],
)
def test_fields_stand_in_the_order_that_scripts_have_seen(struct: msgspec.Struct, names: str) -> None:
    """Written down by hand from what was said before there was a schema: nothing vanishes from it."""
    assert list(msgspec.to_builtins(struct)) == names.split()


def test_what_is_said_is_read_back_as_it_was() -> None:
    fragment = FragmentStatus(
        fragment="q/f",
        boxes={"b": BoxStatus(kind="filter", rows_in=3, boundary=7)},
        arcs=(("a", "", "b"),),
        inputs=(InputStatus(source="s", stream="x", origin="n2"),),
    )
    status = NodeStatus(node="a", fragments=(fragment,), away={"b": AwayStatus(seen_us=5)})
    said = msgspec.json.decode(msgspec.json.encode(status))
    assert said == plain(status)
    assert said["fragments"][0]["inputs"][0]["from"] == "n2"
    assert status_of(said) == status


def test_no_doubt_and_no_cause_say_nothing() -> None:
    assert plain(NodeStatus(node="a"))["in_doubt"] == {}
    doubt = plain(NodeStatus(node="a", in_doubt=DoubtStatus(lost_catalog=None, see="docs")))["in_doubt"]
    assert doubt == {"lost_catalog": None, "see": "docs"}
    assert msgspec.to_builtins(CauseStatus(fragment="q/f", box="b", busy_share=0.5)) == {
        "fragment": "q/f",
        "box": "b",
        "busy_share": 0.5,
    }


def test_an_older_node_says_less_and_a_newer_one_more() -> None:
    assert status_of({"node": "a"}) == NodeStatus(node="a")
    newer = {"node": "a", "mood": "fine", "fragments": [{"fragment": "q/f", "colour": 3}]}
    assert status_of(newer).fragments == (FragmentStatus(fragment="q/f"),)


@pytest.mark.parametrize(
    "wrong",
    [{}, {"node": 3}, {"node": "a", "rows_in": "many"}, {"node": "a", "fragments": [{"boxes": {"b": []}}]}],
)
def test_what_has_another_type_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(DataError, match="the status can't be read"):
        status_of(wrong)


def test_how_a_peer_is_said() -> None:
    status = NodeStatus(
        node="a", peers={"b": "up", "c": "silent"}, away={"c": AwayStatus(seen_us=26_500_000)}
    )
    assert [status.link_state(peer) for peer in "abcd"] == ["here", "up", "silent", "client"]
    assert [status.why_away(peer) for peer in "bc"] == ["", "seen 26 s ago"]
    assert AwayStatus().text == "never seen since our start"
    assert AwayStatus(refusal="refuses our key", refused_us=3_000_000).text == "refuses our key, for 3 s"
    assert not MovesStatus().under_way
