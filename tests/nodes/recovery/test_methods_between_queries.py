"""Streams that one query reads of another, where one of the two may lose rows or send them again."""

from __future__ import annotations

from typing import Any

import pytest

import medusa as md
from medusa.query.published_stream import PublishedStream
from medusa.query.types import schema_from
from tests.nodes.taken_over import SCHEMA, Run

AT = {"m": ["rows", "first", "out"]}
READS = [("read", "m", "q.out", 1)]


def first_query(**wish: Any) -> md.Query:
    q = md.Query("q")
    q.sink("out", q.source("rows", SCHEMA, time="ts").filter("v >= 0", name="first"), **wish)
    return q


def reading(run: Run, **wish: Any) -> md.Query:
    q = md.Query("p")
    columns = schema_from(run.want["out"].schema)
    stream = PublishedStream(name="local/q.out", columns=columns, timed=True)
    q.sink("seen", q.source("read", of=stream).filter("v > 0", name="kept"), **wish)
    return q


def left(run: Run) -> list[str]:
    """What nodes have of the second query."""
    return [
        f"{node.name} {fragment}"
        for node in run.living
        for fragment in (*node.brain.fragments, *node.brain.catalog.fragments)
        if fragment.startswith("p/")
    ]


@pytest.mark.parametrize(
    ("wish", "method"),
    [({"recovery": "gap"}, "amnesia"), ({"recovery": "rollback"}, "upstream_backup")],
)
def test_no_query_reads_an_output_that_may_lose_rows_or_send_them_again(wish: Any, method: str) -> None:
    run = Run(first_query(**wish), AT, standby={"m": ["s1"]}, deploys="e")
    run.deploy()
    [spec] = run.fed.nodes["m"].brain.catalog.fragments.values()
    assert spec.method == method
    at = {"c": ["read", "kept", "seen"]}
    reply, _ = run.fed.answer(run.deployer, run.deployer.deploy(reading(run), at, READS))
    assert (reply.code, method in reply.hint) == ("E_STORE", True), reply
    run.until(lambda: not left(run), "nothing of it is left")
    run.read()
    run.publish()
    run.check()


def test_what_keeps_nothing_reads_no_other_query() -> None:
    run = Run(first_query(), AT, standby={"m": ["s1"]}, deploys="e")
    run.deploy()
    q = reading(run, recovery="gap")
    request = run.deployer.deploy_guarded(
        q, {"c": ["read", "kept", "seen"]}, {"c": ["s2"]}, ["w"], reads=READS
    )
    reply, _ = run.fed.answer(run.deployer, request)
    assert (reply.code, "amnesia" in reply.hint) == ("E_STORE", True), reply
    run.until(lambda: not left(run), "nothing of it is left")
    run.read()
    run.publish()
    run.check()
