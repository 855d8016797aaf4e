"""Real processes, of which one is cut off: answers go on, marked, and in the end all is right."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime

import duckdb
import pyarrow as pa
import pytest
from click.testing import CliRunner
from prometheus_client.parser import text_string_to_metric_families as parse

import medusa as md
from medusa.apps.dashboard.network import Seen
from medusa.apps.dashboard.picture import picture
from medusa.cli.main import main
from medusa.wire.status_and_metrics import status_of
from tests.ports import free_ports
from tests.system.nodes import RUN, Nodes, eventually, first_line, until

pytestmark = pytest.mark.system

WAIT = "60s"
SCHEMA = {"ts": "timestamp[us, UTC]", "k": "utf8", "v": "int64"}
AT = {"a": ["left", "of_left"], "b": ["right", "of_right"], "core": ["both", "per_k"]}
KEY = ["window_start", "k"]
SECOND = 1_000_000
Window = tuple[int, str, int, int]
"""(start, k, n, s)."""
METRICS = re.compile(r'metrics = "(.*)"')
ENDS = {"left": 14, "right": 12}
"""Seconds of stream time of which each has rows; of ``right`` those from 4 to 8 come late."""

PUBLISH = """
import sys
import medusa as md
from tests.system.test_dpc import rows

with md.connect(sys.argv[1], timeout="60s") as fed:
    sys.stdin.readline()
    fed.publish("dpc.right", rows("right", 0, 4))
    fed.flush()
    print("begun", flush=True)
    sys.stdin.readline()
    fed.publish("dpc.right", rows("right", 4, 12))
    fed.finish("dpc.right")
    fed.flush("60s")
"""


def query() -> md.Query:
    """Counts and sums per key over the rows of two sources, each of which comes by a node of its own; what
    comes after that waits for nothing."""
    q = md.Query("dpc")
    left = q.source("left", SCHEMA, time="ts").filter("v >= 0", name="of_left")
    right = q.source("right", SCHEMA, time="ts").filter("v >= 0", name="of_right")
    per_k = left.union(right, name="both").window("1s").group_by("k")
    per_k = per_k.aggregate(n=md.count(), s=md.sum("v"), name="per_k")
    q.sink("out", per_k.filter("n > 0", name="some"), delay="1s")
    return q


def rows(source: str, first_s: int, end_s: int) -> pa.Table:
    """Four rows a second."""
    places = range(4 * first_s, 4 * end_s)
    base = 0 if source == "left" else 1000
    return pa.table(
        {
            "ts": pa.array([place * SECOND // 4 for place in places], pa.timestamp("us", tz="UTC")),
            "k": ["ab"[place % 2] for place in places],
            "v": pa.array([base + place for place in places], pa.int64()),
        }
    )


def expected(*parts: pa.Table) -> list[Window]:
    """What an engine of others makes of these rows, sorted."""
    data = pa.concat_tables(parts)
    data = data.set_column(0, "us", data["ts"].cast(pa.int64()))
    text = "SELECT us // 1000000 * 1000000, k, count(*), sum(v)::BIGINT FROM data GROUP BY ALL ORDER BY ALL"
    with duckdb.connect() as engine:
        engine.register("data", data)
        return engine.execute(text).fetchall()


def windows(data: pa.Table | pa.RecordBatch) -> list[Window]:
    columns = (data["window_start"].cast(pa.int64()), data["k"], data["n"], data["s"])
    return sorted(zip(*(column.to_pylist() for column in columns), strict=True))


@pytest.fixture
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("n")  # A socket's path is short; pytest's own folders may not be.


@pytest.fixture
def nodes(folder) -> Iterator[Nodes]:
    limits = 'checkpoint_every = "100ms"\nsubscriber_timeout = "10min"'
    made = Nodes(folder, ["a", "b", "core", "end"], limits=limits)
    config = made.config("core")
    config.write_text(f'metrics = "127.0.0.1:{free_ports(1)[0]}"\n{config.read_text()}')
    made.start()
    yield made
    made.close()


@pytest.fixture
def publisher(nodes) -> Iterator[subprocess.Popen[str]]:
    """Publishes into ``right``; begins, and goes on, once it is told to."""
    command = [sys.executable, "-c", PUBLISH, nodes.addresses["b"]]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.kill()


def go_on(publisher: subprocess.Popen[str]) -> None:
    publisher.stdin.write("\n")
    publisher.stdin.flush()


def hangs(nodes: Nodes, publisher: subprocess.Popen[str]) -> Callable[[], None]:
    process = nodes.processes["b"]
    process.send_signal(signal.SIGSTOP)
    return lambda: process.send_signal(signal.SIGCONT)


def dies(nodes: Nodes, publisher: subprocess.Popen[str]) -> Callable[[], None]:
    nodes.kill("b")
    return lambda: nodes.start("b")


def publisher_hangs(nodes: Nodes, publisher: subprocess.Popen[str]) -> Callable[[], None]:
    publisher.send_signal(signal.SIGSTOP)
    return lambda: publisher.send_signal(signal.SIGCONT)


# --- how it is seen -----------------------------------------------------------------------------------


@contextmanager
def tailed(nodes: Nodes) -> Iterator[subprocess.Popen[str]]:
    """``medusa tail --tentative`` of the answers."""
    words = [
        "tail",
        "dpc.out",
        "--tentative",
        "--from",
        "oldest",
        "--json",
        "--node",
        nodes.addresses["core"],
    ]
    with subprocess.Popen([sys.executable, "-c", RUN, *words], stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.kill()


def tailed_windows(process: subprocess.Popen[str]) -> tuple[list[Window], list[str]]:
    """What it printed by its end: stable windows, and the kinds of the lines, each once in a row."""
    said = [json.loads(line) for line in process.communicate(timeout=60)[0].splitlines()]
    kinds = [each["kind"] for each in said]
    stable = [each["row"] for each in said if each["kind"] == "stable"]
    starts = [round(datetime.fromisoformat(each["window_start"]).timestamp()) * SECOND for each in stable]
    found = sorted((at, each["k"], each["n"], each["s"]) for at, each in zip(starts, stable, strict=True))
    return found, [kind for kind, before in zip(kinds, ["", *kinds], strict=False) if kind != before]


def first_stable_windows(reading: md.Subscription) -> list[Window]:
    """Where the machine is busy the publisher may be missed before it fails: tentative rows come first."""
    while (train := reading.next()).kind is not md.Kind.STABLE:
        pass
    return windows(train.batch)


def readers(fed: md.Federation) -> int:
    outputs = (each for part in fed.status()["fragments"] for each in part["outputs"])
    return sum(len(each["receivers"]) for each in outputs if each["stream"] == "dpc.out")


def command(*words: str) -> str:
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 0, done.output
    return " ".join(done.output.split())


def every_screen_says_what_is_missing(nodes: Nodes, hung: str) -> None:
    """Of the stream that isn't stable: state, which input, for how long, what is to be corrected."""
    address = nodes.addresses["core"]
    status = ("status", "--node", address)
    missing = rf"missing: [^;]*stream dpc\.\S+ of node {hung}, which isn't heard, for \d+ s[^;]*"
    waits = r"corrections to come: of [1-9]\d* rows shown; 0 rows wait, [1-9]\d*s"  # They are in the window.
    unstable = rf"{missing}; [1-9][\d,]* tentative rows so far; {waits}"
    metrics = next(filter(None, map(METRICS.match, nodes.config("core").read_text().splitlines())))[1]
    for words, told in (
        (status, r"UP_FAILURE: dpc\.out for \d+s"),
        (("explain", "dpc", "--node", address), r"stream dpc\.out is up_failure for \d+s"),
        (("top", address, "--once"), r"dpc\.out UP_FAILURE for \d+s"),
        (("top", f"http://{metrics}", "--once"), r"dpc\.out UP_FAILURE for \d+s"),
    ):
        shown = command(*words)
        assert re.search(f"{told}: {unstable}", shown), (words, shown)
    with urllib.request.urlopen(f"http://{metrics}/metrics", timeout=60) as answer:
        samples = [each for family in parse(answer.read().decode()) for each in family.samples]
    values = {each.name: each.value for each in samples if each.labels.get("stream") == "dpc.out"}
    assert values["medusa_stream_tentative_rows_total"] >= values["medusa_stream_uncorrected_rows"] > 0
    assert values["medusa_stream_input_missing"] == 1
    ages = {e.labels["from"]: e.value for e in samples if e.name == "medusa_stream_input_missing_seconds"}
    assert ages[hung] > 0.9
    with md.connect(address, timeout=WAIT) as fed:
        svg = picture([Seen(address=address, status=status_of(fed.status()))])
    assert 'class="output tentative"' in svg
    assert "tentative for " in svg


@pytest.mark.parametrize(
    ("last", "fails"), [("core", hangs), ("core", dies), ("core", publisher_hangs), ("end", hangs)]
)
def test_while_a_part_is_cut_off_answers_go_on_and_are_corrected_afterwards(nodes, publisher, last, fails):
    """The last box stands where the answers are made, or hears of all of it by the stream between."""
    with md.connect(nodes.addresses["core"], timeout=WAIT) as fed:
        fed.deploy(query(), at={**AT, last: [*AT.get(last, ()), "some"]})
        reading = fed.subscribe("dpc.out", tentative=True, timeout=WAIT)
        told: list[str] = []
        reading.on_state(told.append)
        looks = (last, fails) == ("core", hangs)
        with ExitStack() as watching, md.connect(nodes.addresses["core"], timeout=WAIT) as other:
            tail = watching.enter_context(tailed(nodes)) if looks else None
            board = other.subscribe("dpc.out", tentative=True, timeout=WAIT).table(key=KEY)
            go_on(publisher)
            assert first_line(publisher) == "begun"
            until(lambda: not looks or readers(fed) == 3)
            fed.publish("dpc.left", rows("left", 0, 4))
            stable = first_stable_windows(reading)
            heal = fails(nodes, publisher)
            fed.publish("dpc.left", rows("left", 4, 8))
            guesses: dict[tuple[int, str], Window] = {}
            # Where the machine is busy there may be other failures besides: of several the last counts.
            while sorted(guesses.values()) != expected(rows("left", 4, 7)):
                train = reading.next()
                if train.kind is md.Kind.TENTATIVE:
                    found = windows(train.batch)
                    guesses |= {each[:2]: each for each in found if each[0] >= 4 * SECOND}
                else:
                    stable += windows(train.batch)
            assert told[-1] == reading.state
            assert "up_failure" in told
            assert sorted(stable) == expected(rows("left", 0, 3), rows("right", 0, 3))
            until(lambda: board.tentative_rows >= 6)
            if looks:  # A busy machine may make another node silent, and shows that for a while.
                eventually(lambda: every_screen_says_what_is_missing(nodes, "b"))
            heal()
            go_on(publisher)
            fed.publish("dpc.left", rows("left", 8, 14))
            fed.finish("dpc.left")
            for train in reading:
                if train.kind is md.Kind.STABLE:
                    stable += windows(train.batch)
            right = expected(*(rows(source, 0, end_s) for source, end_s in ENDS.items()))
            assert sorted(stable) == right
            while board.wait():
                pass
            if looks:
                printed, kinds = tailed_windows(tail)
                assert printed == right
                assert {"state", "tentative", "undo"} <= set(kinds)
                assert kinds.index("tentative") < kinds.index("undo")
            assert (windows(board.arrow()), board.tentative_rows) == (right, 0)
            assert told[-1] == reading.state == "stable"
        assert publisher.wait(60) == 0
