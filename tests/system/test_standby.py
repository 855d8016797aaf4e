"""Processes that are killed and never come back, or hang: others take over, each row once and in order."""

from __future__ import annotations

import contextlib
import json
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import medusa as md
from medusa.runtime.embedded.embedded_run import collect
from tests.system.nodes import DEADLINE_S, eventually, run_to_end, until
from tests.system.standby_nodes import NAMES, StandbyNodes

pytestmark = pytest.mark.system

ROWS, PIECE = 6_000, 20
SCHEMA = {"n": "int64", "k": "int64"}
WHOLE = {"m": ["rows", "some", "kind", "out"]}
"""All of it is at one node; clients publish into what is guarded, and read it."""

CUT = {"e": ["rows", "some"], "m": ["kind"], "c": ["out"]}
"""Nodes feed what is guarded, and read it."""


def query() -> md.Query:
    q = md.Query("q")
    some = q.source("rows", SCHEMA, time=None).filter("n >= 0", name="some")
    q.sink("out", some.group_by("k").running(rows=md.count(), total=md.sum("n"), name="kind"))
    return q


FORKED = {"e": ["rows", "some"], "m": ["kind"], "w": ["most"], "c": ["out", "high"]}
"""Two nodes read one stream, and one stands by for both."""


def forked() -> md.Query:
    q = md.Query("q")
    some = q.source("rows", SCHEMA, time=None).filter("n >= 0", name="some")
    q.sink("out", some.group_by("k").running(rows=md.count(), total=md.sum("n"), name="kind"))
    q.sink("high", some.group_by("k").running(most=md.max("n"), name="most"))
    return q


def rows(begin: int, end: int) -> pa.Table:
    numbers = range(begin, end)
    return pa.table({"n": pa.array(numbers, pa.int64()), "k": pa.array([n % 7 for n in numbers], pa.int64())})


class Clients:
    """A publisher at e and a reader at c, in threads, until the end of the rows.

    Args:
        q: the query that is deployed, if it isn't ``query()``.

    Attributes:
        came_s: when each train came.
        pause_s: between two pieces of rows.
        ahead: so many rows are published and haven't come at most.
        held_from: from this row on they wait for ``go_on``.
    """

    pause_s = 0.002
    ahead = ROWS
    held_from = ROWS

    def __init__(self, nodes: StandbyNodes, held: contextlib.ExitStack, q: md.Query | None = None) -> None:
        self._query = q or query()
        self._publishes = held.enter_context(nodes.connect("e", "c"))
        self._reads = held.enter_context(nodes.connect("c", "e"))
        self._reader = self._reads.subscribe("q.out", from_="oldest")
        self.published = 0
        self.got: list[Any] = []
        self.came_s: list[float] = []
        self.failed: list[BaseException] = []
        self._goes, self._over = threading.Event(), threading.Event()
        self._threads = [
            threading.Thread(target=self._runs, args=(each,)) for each in (self._publish, self._read)
        ]
        held.callback(self.go_on)
        for each in self._threads:
            each.start()

    def _runs(self, action: Any) -> None:
        try:
            action()
        except BaseException as error:
            self.failed.append(error)

    def _publish(self) -> None:
        for begin in range(0, ROWS, PIECE):
            if begin >= self.held_from:
                self._goes.wait()
            while begin - len(self.got) > self.ahead and not self.failed:
                self._over.wait(self.pause_s)
            self._publishes.publish("q.rows", rows(begin, begin + PIECE))
            self.published = begin + PIECE
            self._over.wait(self.pause_s)
        self._publishes.finish("q.rows")

    def go_on(self) -> None:
        """Publish what is held back, too."""
        self._goes.set()

    def _read(self) -> None:
        for train in self._reader:
            self.came_s.append(time.monotonic())
            self.got += train.batch.to_pylist()

    def until(self, count: int) -> None:
        """Until so many rows have come."""
        until(lambda: self.failed or len(self.got) >= count, what=f"{count} rows come; {len(self.got)} have")
        assert self.failed == []

    def check(self) -> None:
        """All came once, in order, and are what one program gives."""
        self.go_on()
        for thread in self._threads:
            thread.join(DEADLINE_S)
            assert not thread.is_alive(), f"{self.published} rows were published, {len(self.got)} came"
        assert self.failed == []
        assert self._reader.lost_rows == 0
        want = collect(self._query, rows=rows(0, ROWS))["out"].to_pylist()
        assert len(self.got) == len(want)
        assert self.got == want

    def first_after(self, since_s: float) -> float:
        """Seconds until the first train came that came later than a moment ago."""
        return next(came_s for came_s in self.came_s if came_s > since_s) - since_s


@pytest.fixture
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandbyNodes]:
    made = StandbyNodes(tmp_path_factory.mktemp("s"), keyed=False)
    made.start()
    yield made
    made.close()


class Reader:
    """A reader at c, in a thread, until its stream ends."""

    def __init__(self, nodes: StandbyNodes, held: contextlib.ExitStack, stream: str) -> None:
        self._reader = held.enter_context(nodes.connect("c", "e")).subscribe(stream, from_="oldest")
        self.got: list[Any] = []
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        for train in self._reader:
            self.got += train.batch.to_pylist()

    def check(self, want: list[Any]) -> None:
        """All came once and in order."""
        self._thread.join(DEADLINE_S)
        assert not self._thread.is_alive(), f"{len(self.got)} rows came"
        assert self._reader.lost_rows == 0
        assert self.got == want


def deployed(nodes: StandbyNodes, at: dict[str, list[str]], q: md.Query | None = None) -> str:
    """The guarded fragment, once two follow it; on a busy machine it isn't m's any more, maybe."""
    with nodes.connect("e") as fed:
        fed.deploy(q or query(), at=at, standby={"m": ["s1", "s2"]}, witness=["w"])
    fragment = "q/kind" if at is CUT else "q/rows"
    nodes.until_followed(fragment)
    return fragment


@pytest.mark.parametrize("at", [WHOLE, CUT], ids=["clients", "nodes"])
def test_a_process_that_is_killed_and_never_comes_back_is_taken_over(
    nodes: StandbyNodes, at: dict[str, list[str]]
) -> None:
    fragment = deployed(nodes, at)
    with contextlib.ExitStack() as held:
        clients = Clients(nodes, held)
        clients.until(ROWS // 5)
        owner = nodes.until_followed(fragment)
        since_s = time.monotonic()
        nodes.kill(owner)
        assert nodes.until_taken_over(fragment, owner) in {"m", "s1", "s2"} - {owner}
        clients.check()
        print(f"the first new row came {1000 * clients.first_after(since_s + 0.001):.0f} ms after the kill")


def test_one_process_takes_over_both_that_read_one_stream(plain: StandbyNodes) -> None:
    """And has both when it was killed itself and is back."""
    with plain.connect("e") as fed:
        fed.deploy(forked(), at=FORKED, standby={"m": ["s1"], "w": ["s1"]}, witness=["s2", "c"])
    both = {"q/kind": "m", "q/most": "w"}
    for fragment in both:
        plain.until_followed(fragment, 1)
    with contextlib.ExitStack() as held:
        high = Reader(plain, held, "q.high")
        clients = Clients(plain, held)
        clients.until(ROWS // 5)
        for node in both.values():
            plain.kill(node)
        for fragment, node in both.items():
            assert plain.until_taken_over(fragment, node) == "s1"
        clients.until(ROWS // 2)
        until(lambda: len(high.got) >= ROWS // 2, what="the other goes on too")
        plain.kill("s1")
        plain.start("s1")
        clients.check()
        high.check(collect(forked(), rows=rows(0, ROWS))["high"].to_pylist())


def test_of_three_owners_two_are_killed(plain: StandbyNodes) -> None:
    fragment = deployed(plain, CUT)
    with contextlib.ExitStack() as held:
        clients = Clients(plain, held)
        clients.until(ROWS // 10)
        first = plain.until_followed(fragment)
        plain.kill(first)
        plain.until_taken_over(fragment, first)
        second = plain.until_followed(fragment, 1)
        plain.kill(second)
        [third] = {"m", "s1", "s2"} - {first, second}
        assert plain.until_taken_over(fragment, second) == third
        clients.check()


def stays(nodes: StandbyNodes, fragment: str, owner: str) -> None:
    """This node has it still; on a busy machine it may have been missed itself, and says who replaced it."""
    now = nodes.replicas(fragment)["owner"]
    assert now == owner or "fragment has another owner" in nodes.log(owner), now


@pytest.mark.parametrize("at", [WHOLE, CUT], ids=["clients", "nodes"])
def test_a_process_that_hangs_is_taken_over_and_harms_nobody_when_it_goes_on(
    nodes: StandbyNodes, at: dict[str, list[str]]
) -> None:
    fragment = deployed(nodes, at)
    with contextlib.ExitStack() as held:
        clients = Clients(nodes, held)
        clients.until(ROWS // 5)
        first = nodes.until_followed(fragment)
        hangs = nodes.processes[first]
        hangs.send_signal(signal.SIGSTOP)
        try:
            owner = nodes.until_taken_over(fragment, first)
            clients.until(min(len(clients.got) + 1, ROWS))
        finally:
            hangs.send_signal(signal.SIGCONT)
        until(
            lambda: "fragment has another owner" in nodes.log(first),
            what=lambda: f"it steps down: {nodes.log(first)[-1500:]}",
        )
        clients.check()
    nodes.until_followed(fragment)
    stays(nodes, fragment, owner)


@pytest.mark.parametrize("at", [WHOLE, CUT], ids=["clients", "nodes"])
def test_clients_that_know_only_a_process_that_hung_publish_and_read_at_its_successor(
    nodes: StandbyNodes, at: dict[str, list[str]]
) -> None:
    """They come to it as it goes on: before it has heard that it was replaced, or just after."""
    fragment = deployed(nodes, at)
    with nodes.connect("e") as early:
        early.publish("q.rows", rows(0, ROWS // 2))
        early.flush("60s")
    first = nodes.until_followed(fragment)
    hangs = nodes.processes[first]
    hangs.send_signal(signal.SIGSTOP)
    try:
        owner = nodes.until_taken_over(fragment, first)
    finally:
        hangs.send_signal(signal.SIGCONT)
    got: list[Any] = []
    with nodes.connect(first) as late:
        reader = late.subscribe("q.out", from_="oldest")
        late.publish("q.rows", rows(ROWS // 2, ROWS))
        late.flush("60s")
        while len(got) < ROWS:
            train = reader.next("60s")
            assert train is not None, f"{len(got)} rows came"
            got += train.batch.to_pylist()
        assert reader.lost_rows == 0
    assert got == collect(query(), rows=rows(0, ROWS))["out"].to_pylist()
    nodes.until_followed(fragment)
    stays(nodes, fragment, owner)
    with nodes.connect("e") as fed:
        print(f"e refused {fed.status()['refused']}")


def test_a_process_that_is_back_at_once_or_late_goes_on_or_follows(plain: StandbyNodes) -> None:
    """Whichever it is: each row once, and in the end two stand by."""
    fragment = deployed(plain, WHOLE)
    with contextlib.ExitStack() as held:
        clients = Clients(plain, held)
        clients.until(ROWS // 5)
        first = plain.until_followed(fragment)
        plain.kill(first)
        plain.start(first)
        clients.check()
    owner = plain.replicas(fragment)["owner"]
    assert owner in ("m", "s1", "s2")
    plain.until_followed(fragment)


def test_the_command_line_deploys_with_standby_and_says_who_stands_by(nodes: StandbyNodes) -> None:
    made, at = nodes.folder / "q.json", nodes.folder / "at.json"
    made.write_text(query().to_json())
    at.write_text(json.dumps(WHOLE))
    asked = [
        "deploy",
        str(made),
        "--at",
        str(at),
        "--standby",
        "m=s1,s2",
        "--witness",
        "w",
        *nodes.words("e"),
    ]
    planned = run_to_end(*asked, "--dry-run")
    assert planned.returncode == 0, planned.stderr
    assert "active_standby" in planned.stdout or "s1" in planned.stdout
    done = run_to_end(*asked)
    assert done.returncode == 0, done.stderr
    assert "q/rows  standby: s1, s2" in done.stdout
    nodes.until_followed("q/rows")

    def follow() -> None:
        said = run_to_end("status", *nodes.words("e"))
        assert said.returncode == 0, said.stderr
        assert "s1" in said.stdout
        assert "following" in said.stdout

    eventually(follow)
    refused = run_to_end(*asked[:4], "--standby", "m=nobody", *nodes.words("e"))
    assert refused.returncode != 0
    assert "knows no such node" in refused.stderr


@pytest.mark.parametrize("at", [WHOLE, CUT], ids=["no part", "a part"])
def test_a_query_whose_coordinator_is_killed_for_good_is_removed_through_another_node(
    nodes: StandbyNodes, at: dict[str, list[str]]
) -> None:
    """And the killed one, started long after, has it no more."""
    deployed(nodes, at)
    others = [name for name in NAMES if name != "e"]

    def said(name: str) -> dict[str, Any]:
        with nodes.connect(name) as fed:
            return fed.status()

    def coordinators(*names: str) -> list[str]:
        return [name for name in names if "q" in said(name)["queries"]]

    nodes.kill("e")

    def one_coordinates() -> None:
        """It may have changed hands again since: all agree on one in the end."""
        [new] = coordinators(*others)
        assert said(new)["queries"]["q"]["configuration"]["coordinator"] == new
        listed = run_to_end("queries", *nodes.words("s2"))
        assert listed.returncode == 0, listed.stderr
        assert new in listed.stdout

    def undeployed() -> None:
        done = run_to_end("undeploy", "q", *nodes.words("s2"))
        assert done.returncode == 0 or not coordinators(*others), done.stderr

    def removed() -> None:
        assert [name for name in others if said(name)["fragments"]] == []
        assert coordinators(*others) == []

    until(lambda: len(coordinators(*others)) == 1, what="another node coordinates it")
    eventually(one_coordinates)
    eventually(undeployed)
    eventually(removed)
    nodes.start("e")
    until(lambda: not (said("e")["fragments"] or said("e")["queries"]), what="e has heard")
