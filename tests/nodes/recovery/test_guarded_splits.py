"""A fragment that others stand by for is split and merged: guarded before and after, and exact throughout."""

from __future__ import annotations

from typing import Any

import pytest

import medusa as md
from medusa.sim.actors.client import Client
from medusa.wire.messages.split import Merge, Split
from tests.nodes.taken_over import SCHEMA, Run
from tests.nodes.test_taken_over import HALF

AT = {"e": ["rows"], "m": ["per_k"], "c": ["after", "out"]}
NAMES = {"split": ("q/per_k-router", "q/per_k-1", "q/per_k-2", "q/per_k-3"), "merge": ("q/per_k",)}


def query() -> Any:
    q = md.Query("q")
    per_k = q.source("rows", SCHEMA, time="ts").group_by("k").running(n=md.count(), t=md.sum("v"), name="per_k")
    q.sink("out", per_k.filter("n > 0", name="after"))
    return q


def parts(run: Run) -> list[str]:
    """Guarded fragments of ``per_k`` that are there."""
    return [each.fragment for each in run.newest().fragments if not each.gone]


def ordered(run: Run, what: str) -> tuple[Client, int]:
    client = run.fed.clients.get("splits") or run.fed.client("splits", "m")
    home = next(name for name in parts(run) if what == "split" or name.endswith("router"))
    request = client.mind.request(
        lambda number: (
            Split(request=number, fragment=home, box="per_k", parts=2)
            if what == "split"
            else Merge(request=number, fragment=home, box="per_k")
        )
    )
    client.do(lambda mind: None)
    return client, request


def all_guarded(run: Run, by: int = 2) -> None:
    run.until(lambda: all(run.guarded(name, by) for name in parts(run)), f"{by} follow {parts(run)}")


def flowing(what: str) -> Run:
    run = Run(query(), AT, standby={"m": ["s1", "s2"]}, witnesses=("w", "x"), deploys="e")
    run.deploy()
    run.read()
    all_guarded(run)
    if what == "merge":
        assert run.fed.answer(*ordered(run, "split"))[0].code == ""
        run.until(lambda: len(parts(run)) > 1, "it is in parts")
        all_guarded(run)
    run.publish(0, HALF)
    run.fed.run(for_us=30_000)
    return run


@pytest.mark.parametrize("what", ["split", "merge"])
def test_as_many_stand_by_afterwards(what: str) -> None:
    run = flowing(what)
    reply, _ = run.fed.answer(*ordered(run, what))
    assert reply.code == "", reply
    run.until(lambda: (len(parts(run)) > 1) == (what == "split"), "the configuration says so")
    print(run.newest())
    all_guarded(run)
    run.publish(HALF)
    run.check()
