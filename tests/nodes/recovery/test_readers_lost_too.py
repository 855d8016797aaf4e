"""A fragment and what reads it are lost at once, and one node takes both over: no rows wait for the lost."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

import medusa as md
from medusa.query.boxes import Sink
from medusa.query.recovery import ACTIVE, PASSIVE, UPSTREAM
from tests.nodes.recovery.upstream_run import query, table
from tests.nodes.taken_over import ROWS, Run

pytestmark = pytest.mark.filterwarnings("ignore::medusa.errors.LateWarning")

WISHES = {ACTIVE: "precise", PASSIVE: "precise", UPSTREAM: "rollback"}
ASLEEP_US = 1_500_000
MIDDLE, END = "q/kind", "q/last"


def recovered_by(q: Any, method: str) -> Any:
    wish = {"recovery": WISHES[method], "method": method}
    boxes = [msgspec.structs.replace(box, **wish) if isinstance(box, Sink) else box for box in q.graph.boxes]
    return md.Query.from_graph(msgspec.structs.replace(q.graph, boxes=tuple(boxes)))


@pytest.mark.parametrize("method", WISHES)
def test_rows_are_kept_for_who_reads_now_alone(method: str) -> None:
    q, at = query("tumbling")
    standby = {"e": ["s3"], "m": ["s1"], "c": ["s1"]}
    tables = {source: table() for source in q.sources}
    run = Run(recovered_by(q, method), at, standby=standby, deploys="e", witnesses=("w", "x"), tables=tables)
    run.deploy()
    run.read()
    for fragment in (MIDDLE, END):
        run.until_guarded(fragment)
    run.publish(0, ROWS // 2)
    run.fed.run(for_us=60_000)
    for lost in ("m", "c"):
        run.lose(lost)
    run.fed.nodes["s1"].pause(ASLEEP_US)  # It notices both at once, and one decision says so.
    for fragment in (MIDDLE, END):
        run.until_owned(fragment, "s1")
    run.publish(ROWS // 2, ROWS)
    run.until_ended()
    [output] = run.fed.nodes["s1"].brain.fragments[MIDDLE].outputs.values()
    assert {*output.sender.receivers} == {"s1"}
    log = output.sender.log
    run.until(lambda: log.end - log.base == 1, "what it has on disk is forgotten, but the end of the stream")
