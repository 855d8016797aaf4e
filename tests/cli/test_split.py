"""``medusa split``: what it orders, and what it says."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from medusa.cli.scaling.split import split
from medusa.runtime.client import client

ANSWER = {"parts": {"q/b-1": "x", "q/b-2": "y"}, "node": "x", "pause_us": 1500, "ranges": [7], "shares": []}


class Fed:
    """Notes what is ordered."""

    def __init__(self, shares, standby=()):
        self.shares, self.asked = shares, None
        self.standby = dict.fromkeys(standby, "following")

    def __enter__(self):
        return self

    def __exit__(self, *error):
        return None

    def explain(self, query, *, all):
        assert (query, self.asked) == ("q", None)
        return [{"box": "b", "standby": self.standby}, {"box": "other"}]

    def split(self, box, n, **more):
        self.asked = box, n, more
        return {**ANSWER, "shares": self.shares}


@pytest.mark.parametrize(
    ("said", "ranges"),
    [([], "even"), (["weight"], "weight"), (["7"], [7]), (["7,90"], [7, 90]), (["-7"], "-7")],
)
def test_ranges_are_words_or_numbers(monkeypatch, said, ranges):
    fed = Fed([0.25, 0.75])
    monkeypatch.setattr(client, "connect", lambda address, **keys: fed)
    options = [part for each in said for part in ("--ranges", each)]
    told = CliRunner().invoke(split, ["q/b", "-n", "2", "--node", "ipc:///x", *options])
    assert (told.exit_code, fed.asked) == (0, ("q/b", 2, {"at": None, "timeout": "60s", "ranges": ranges}))
    assert told.output.splitlines() == [
        "q/b-1 is at x, 25.0% of what the box held",
        "q/b-2 is at y, 75.0% of what the box held",
        "router and merge are at x; 1.5 ms pause",
    ]


def test_without_shares_it_says_where_parts_are(monkeypatch):
    monkeypatch.setattr(client, "connect", lambda address, **keys: Fed([]))
    told = CliRunner().invoke(split, ["q/b", "-n", "2", "--node", "ipc:///x"])
    assert told.output.splitlines()[:2] == ["q/b-1 is at x", "q/b-2 is at y"]


def test_who_stands_by_is_told_before_it_is_ordered(monkeypatch):
    monkeypatch.setattr(client, "connect", lambda address, **keys: Fed([], ["s1", "s2"]))
    told = CliRunner().invoke(split, ["q/b", "-n", "2", "--node", "ipc:///x"])
    assert told.exit_code == 0
    assert told.stderr == "s1, s2 stand by for q/b; nobody does until what is made of it is seeded\n"
