"""Checkpoints newer than the one a run went back to: when they may go, and what a manifest says of them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from medusa.engine.state.checkpoint import Checkpoints, crc32c, seal
from medusa.engine.state.newer_checkpoints import NewerCheckpoint, ahead_from_json, ahead_to_json
from medusa.errors import StateError
from medusa.sim.world.disk import Disk

AHEAD = NewerCheckpoint(("checkpoint-000000003", "checkpoint-000000001"), {"a": 5, "b": 3}, 4)


@pytest.mark.parametrize(
    ("kept", "goes"),
    [
        ([{"a": 5, "b": 3}, {"a": 6, "b": 3}], True),
        ([{"a": 4, "b": 3}, {"a": 6, "b": 3}], False),
        ([{"a": 9, "b": 2}, {"a": 9, "b": 9}], False),
        ([{"a": 9}, {"a": 9}], False),
        ([{"a": 5, "b": 3, "c": 0}, {"a": 5, "b": 3, "c": 0}], True),
    ],
)
def test_it_goes_when_all_that_are_kept_have_come_as_far(kept: list[dict[str, int]], goes: bool) -> None:
    for rewritten in (False, True):
        assert AHEAD.may_go(kept, rewritten=rewritten) is goes
        assert NewerCheckpoint(("x",)).may_go(kept, rewritten=rewritten) is rewritten, (
            "nobody knows how far it came"
        )
        assert not NewerCheckpoint(("x",), readable=False).may_go(kept, rewritten=rewritten)


def test_logs_are_kept_for_those_alone_that_a_run_can_pass() -> None:
    assert AHEAD.is_behind({"a": 0, "b": 0, "c": 0})
    assert not AHEAD.is_behind({"a": 0})
    assert not NewerCheckpoint(("x",), readable=False).is_behind({"a": 0})


def test_a_manifest_says_it_again() -> None:
    told = {
        "checkpoint-000000003": AHEAD,
        "checkpoint-000000004": NewerCheckpoint(("checkpoint-000000004",), readable=False),
        "checkpoint-000000005": NewerCheckpoint(("checkpoint-000000005",)),
    }
    found = json.loads(json.dumps(ahead_to_json(told)))
    assert ahead_from_json(found, list(told)) == told
    assert ahead_from_json(found, ["checkpoint-000000004"]).keys() == {"checkpoint-000000004"}
    assert ahead_from_json(None, []) == {}


GOOD: dict[str, Any] = ahead_to_json({"checkpoint-000000003": AHEAD})["checkpoint-000000003"]


@pytest.mark.parametrize(
    "wrong",
    [
        7,
        {"checkpoint-000000003": 7},
        {"checkpoint-000000003": {}},
        *({"checkpoint-000000003": {**GOOD, name: value}} for name, value in {
            "groups": [7],
            "positions": {"a": "5"},
            "decisions": 0,
            "readable": 1,
        }.items()),
        {"checkpoint-000000003": {**GOOD, "decisions": True}},
    ],
)  # fmt: skip
def test_what_can_t_be_is_refused_and_named(wrong: Any) -> None:
    with pytest.raises(ValueError, match="ahead"):
        ahead_from_json(wrong, ["checkpoint-000000003"])
    disk = Disk("here")
    disk.write("checkpoint-000000001", seal({}, {"ahead": wrong}))
    with pytest.raises(StateError, match=r"checkpoint-000000001/manifest.json: ahead"):
        Checkpoints(disk).load()


def test_one_that_a_later_version_wrote_stays() -> None:
    disk = Disk("here")
    checkpoints = Checkpoints(disk)
    for number in (1, 2):
        checkpoints.save({}, {"positions": {"a": number}, "decisions": number + 1})
    later = seal({}, {"positions": {"a": 0}})
    text = bytes(later["manifest.json"]).replace(b'"version": 2', b'"version": 9')
    later["manifest.json"] = text

    later["manifest.crc32c"] = f"{crc32c(text):08x}\n".encode()
    disk.write("checkpoint-000000003", later)
    again = Checkpoints(disk)
    with pytest.raises(StateError, match="has version 9"):
        again.load()
    again.load("checkpoint-000000001")
    assert again.logs_ahead() == {"checkpoint-000000002": 3}
    for number in (7, 8, 9):
        again.save({}, {"positions": {"a": number}, "decisions": number})
    assert again.names() == [f"checkpoint-{number:09d}" for number in (3, 5, 6)]
    assert "checkpoint-000000003" not in again.logged()
