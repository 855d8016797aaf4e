"""Metrics over real HTTP: the text parses, its sums are those of the input, and it ends with the run."""

from __future__ import annotations

import builtins
import json
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_open
from prometheus_client.parser import text_string_to_metric_families as parse

import medusa as md
from medusa.engine.stats import STATS_SCHEMA
from medusa.runtime.exposition.prometheus import families
from medusa.wire.status_and_metrics import BoxFigures, metrics_of

SCHEMA = {"ts": "int64", "k": "utf8", "v": "int64"}
OPEN = "application/openmetrics-text; version=1.0.0"


def query(name: str = "cars") -> md.Query:
    q = md.Query(name)
    cars = q.source("cars", SCHEMA, time="ts", unit="s", slack="3s")
    vans = q.source("vans", SCHEMA, time="ts", unit="s", slack="0s")
    good = cars.filter("10 // v > 0", name="divides")  # fails on zero
    q.sink("counts", good.window("10s").group_by("k").aggregate(n=md.count(), name="per_k"))
    q.sink("pairs", good.join(vans, on="k", within="5s", name="near"))
    return q


def read(address: str | None, path: str = "/metrics", accept: str = "") -> str:
    request = urllib.request.Request(f"http://{address}{path}", headers={"Accept": accept})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return str(answer.read().decode())


def samples(text: str) -> dict[tuple[str, str], float]:
    """(metric, box) -> value; every metric has a HELP and a TYPE, and no sample stands twice."""
    found: dict[tuple[str, str], float] = {}
    for family in parse(text):
        assert family.documentation, family.name
        assert family.type in ("counter", "gauge"), family.name
        for sample in family.samples:
            key = (sample.name, sample.labels["box"])
            assert key not in found
            assert set(sample.labels) == {"query", "box", "kind"}
            found[key] = sample.value
    return found


rows = st.lists(st.tuples(st.integers(0, 60), st.sampled_from("ab"), st.integers(0, 4)), max_size=12)


@settings(max_examples=15, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["cars", "vans"]), rows), max_size=8))
@pytest.mark.filterwarnings("ignore::medusa.errors.LateWarning", "ignore::medusa.errors.DeadRowWarning")
def test_the_text_parses_and_its_sums_are_the_input(pushes: list[tuple[str, list[Any]]]) -> None:
    given = {"cars": 0, "vans": 0}
    zeros = 0
    before: dict[tuple[str, str], float] = {}
    with md.start(query(), metrics="127.0.0.1:0") as run:
        for source, batch in pushes:
            if batch:
                columns = map(list, zip(*batch, strict=True))
                run.push(source, dict(zip(("ts", "k", "v"), columns, strict=True)))
            given[source] += len(batch)
            zeros += sum(v == 0 for _, _, v in batch) if source == "cars" else 0
            now = samples(read(run.metrics_address))
            for name, rows in given.items():
                assert now["medusa_box_rows_in_total", name] == rows
            assert now["medusa_box_dead_rows_total", "divides"] == zeros
            for key, value in before.items():
                assert not key[0].endswith("_total") or now[key] >= value
            before = now
        run.finish()
        now = samples(read(run.metrics_address))
        stats = {row["box"]: row for row in run.stats().to_pylist()}
        late = sum(now["medusa_box_late_rows_total", box] for box in ("per_k", "near"))
        came = now["medusa_box_rows_in_total", "divides"] - now["medusa_box_dead_rows_total", "divides"]
        assert now["medusa_box_rows_out_total", "divides"] == came
        assert late == stats["per_k"]["late"] + stats["near"]["late"]
        counted = sum(run.take("counts")["n"].to_pylist())
        assert counted + now["medusa_box_late_rows_total", "per_k"] == came


def test_both_forms_parse_and_say_the_same() -> None:
    with md.start(query(), metrics="127.0.0.1:0", clock=md.testing.ManualClock()) as run:
        run.push("cars", {"ts": [1, 2], "k": ["a", 'b"\\\n'], "v": [1, 2]})
        plain = read(run.metrics_address)
        new = read(run.metrics_address, accept=OPEN)
        assert new.endswith("# EOF\n")
        found = {(s.name, s.labels["box"]): s.value for f in parse_open(new) for s in f.samples}
        assert found == samples(plain)


def test_microseconds_are_told_as_seconds() -> None:
    row = {
        "query": "q",
        "box": "b",
        "kind": "filter",
        "busy_us": 2_500_000,
        "cost_us": 2,
        "lag_us": 1_500_000,
    }
    found = {sample.name: sample.value for family in families([row]) for sample in family.samples}
    assert found["medusa_box_busy_seconds_total"] == 2.5
    assert found["medusa_box_cost_seconds"] == 2e-6
    assert found["medusa_box_lag_seconds"] == 1.5


def test_every_column_is_a_metric_with_its_unit() -> None:
    told = {*metrics_of(BoxFigures)} - {"shed"}
    assert told == {*STATS_SCHEMA.names} - {"box", "kind", "shed"}
    clock = md.testing.ManualClock()
    with md.start(query(), metrics="127.0.0.1:0", clock=clock) as run:
        run.push("cars", {"ts": [100, 102], "k": ["a", "a"], "v": [1, 2]})
        clock.advance("2s")
        now = samples(read(run.metrics_address))
        assert now["medusa_box_boundary_timestamp_seconds", "cars"] == 99
        assert now["medusa_box_lag_seconds", "cars"] == pytest.approx(3)
        assert now["medusa_box_rows_in_per_second", "cars"] == 1
        assert now["medusa_box_load_ratio", "cars"] == 0
        assert now["medusa_box_selectivity_ratio", "divides"] == 1
        assert ("medusa_box_lag_seconds", "near") not in now  # nothing has come to the other side
        assert now["medusa_box_queue_rows", "near"] == 2


def test_stats_come_as_json_too() -> None:
    with md.start(query(), metrics="localhost:0") as run:
        run.push("cars", {"ts": [1], "k": ["a"], "v": [1]})
        boxes = json.loads(read(run.metrics_address, "/stats"))["boxes"]
        assert [box["box"] for box in boxes] == run.stats()["box"].to_pylist()
        assert boxes[0]["query"] == "cars"
        assert boxes[0]["rows_in"] == 1
        assert boxes[0]["boundary"] == -2_000_000
        with pytest.raises(urllib.error.HTTPError, match="404"):
            read(run.metrics_address, "/other")


def test_the_query_label_follows_a_change() -> None:
    with md.start(query(), metrics="127.0.0.1:0") as run:
        run.change(query("vehicles"))
        labels = [s.labels["query"] for f in parse(read(run.metrics_address)) for s in f.samples]
        assert set(labels) == {"vehicles"}
        assert {box["query"] for box in json.loads(read(run.metrics_address, "/stats"))["boxes"]} == {
            "vehicles"
        }


def test_attached_queries_have_a_label_of_their_own() -> None:
    q = query()
    q.sink("all", q.connection_point("recent", q.stream("vans"), keep="1h"))
    look = md.Query("look")
    look.sink("all", look.source("vans", SCHEMA, time="ts", unit="s"))
    with md.start(q, metrics="127.0.0.1:0") as run:
        run.push("vans", {"ts": [1, 2], "k": ["a", "b"], "v": [1, 2]})
        queries = [run.attach(look, at="recent", history="all") for _ in range(2)]
        run.push("vans", {"ts": [3], "k": ["a"], "v": [1]})
        assert queries[1].take("all").num_rows == 3
        text = read(run.metrics_address)
        found = {
            (s.labels["query"], s.labels["attached"], s.labels["box"]): s.value
            for family in parse(text)
            for s in family.samples
            if s.name == "medusa_box_rows_in_total"
        }
        assert found["cars", "", "vans"] == 3
        assert found["look", "recent-1", "vans"] == 0
        assert found["look", "recent-2", "vans"] == 3
        boxes = json.loads(read(run.metrics_address, "/stats"))["boxes"]
        assert [box.get("attached") for box in boxes if box["box"] == "vans"] == [
            None,
            "recent-1",
            "recent-2",
        ]
        for each in queries:
            each.close()
        assert "attached" not in read(run.metrics_address)


def test_a_closed_run_stops_serving_and_gives_its_port_back() -> None:
    with md.start(query(), metrics="127.0.0.1:0") as run:
        address = run.metrics_address
        assert address is not None
        assert "medusa_box" in read(address)
    assert run.metrics_address is None
    with pytest.raises(urllib.error.URLError, match="refused"):
        read(address)
    with md.start(query(), metrics=address) as run:
        assert run.metrics_address == address
    assert not [thread for thread in threading.enumerate() if thread.name == "medusa-metrics"]


def test_scrapes_go_on_while_rows_come_from_another_thread() -> None:
    with md.start(query(), metrics="127.0.0.1:0") as run:
        ended = threading.Event()
        seen: list[float] = []
        trouble: list[BaseException] = []

        def scrape() -> None:
            try:
                while not ended.is_set():
                    seen.append(samples(read(run.metrics_address))["medusa_box_rows_in_total", "cars"])
            except BaseException as error:
                trouble.append(error)

        threads = [threading.Thread(target=scrape) for _ in range(2)]
        for thread in threads:
            thread.start()
        pushed = 0
        while len(seen) < 20 and not trouble:
            run.push("cars", {"ts": [pushed] * 50, "k": ["a"] * 50, "v": [1] * 50})
            pushed += 50
        ended.set()
        for thread in threads:
            thread.join()
        assert not trouble
        assert all(rows % 50 == 0 for rows in seen)  # never a push that is half done
        assert samples(read(run.metrics_address))["medusa_box_rows_in_total", "cars"] == pushed


def test_a_scrape_that_waits_while_the_run_is_closed_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    with md.start(query(), metrics="127.0.0.1:0") as run:
        address, found, asked, honest = run.metrics_address, [], threading.Event(), run.stats

        def stats(**options: Any) -> Any:
            asked.set()
            return honest(**options)

        def ask() -> None:
            with pytest.raises(urllib.error.HTTPError) as caught:
                read(address)
            found.append((caught.value.code, caught.value.read().decode()))

        monkeypatch.setattr(run, "stats", stats)
        asking = threading.Thread(target=ask)
        with run._gate.state:  # as a push has it
            asking.start()
            assert asked.wait(30)
            run.close()
        asking.join()
    assert found == [(503, "the run of 'cars' is closed\n")]


def test_a_restored_run_serves_and_its_counters_go_on(tmp_path: Path) -> None:
    data = {"ts": [1, 2], "k": ["a", "b"], "v": [1, 2]}
    with md.start(query(), checkpoint=tmp_path / "s", metrics="127.0.0.1:0") as run:
        run.push("cars", data)
    with md.restore(tmp_path / "s", metrics="127.0.0.1:0") as run:
        run.push("cars", data)
        assert samples(read(run.metrics_address))["medusa_box_rows_in_total", "cars"] == 4
        assert {row["box"]: row["cost_us"] for row in run.stats().to_pylist()}["vans"] is None


def test_a_run_with_an_input_queue_serves_what_it_has_worked_off() -> None:
    with md.start(query(), queue="1 MiB", metrics="127.0.0.1:0") as run:
        for second in range(50):
            run.push("cars", {"ts": [second] * 10, "k": ["a"] * 10, "v": [1] * 10})
            now = samples(read(run.metrics_address))
            worked, waits = (now[f"medusa_box_{name}", "cars"] for name in ("rows_in_total", "queue_rows"))
            assert worked + waits <= 10 * (second + 1)
        run.flush()
        assert samples(read(run.metrics_address))["medusa_box_rows_in_total", "cars"] == 500


FORKS = """
import os, warnings
import medusa as md

warnings.simplefilter("ignore")
q = md.Query("q")
q.sink("out", q.source("a", {"n": "int64"}, time=None))


def is_free_again():
    run = md.start(q, metrics="127.0.0.1:0")
    address = run.metrics_address
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(theirs)
        os.read(ours, 1)  # lives until the parent is done
        os._exit(0)
    run.close()
    try:
        md.start(q, metrics=address).close()
        return True
    except md.QueryError as error:
        if "in use" not in error.message:
            raise
        return False
    finally:
        os.close(theirs)
        os.waitpid(child, 0)


# Another program may have taken the port meanwhile, but not each time.
assert any(is_free_again() for _ in range(5)), "the port is kept"
print("free again")
"""


def test_a_child_does_not_keep_the_port() -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORKS], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout == "free again\n", done.stderr


@pytest.mark.parametrize(
    ("address", "code", "words"),
    [
        ("9100", "query.metrics", "HOST:PORT"),
        ("127.0.0.1:70000", "query.metrics", "not between 0 and 65535"),
        ("http://127.0.0.1:9100", "query.metrics", "HOST:PORT"),
        (9100, "query.metrics", "HOST:PORT"),
        ("0.0.0.0:0", "query.metrics.public", "metrics_public=True"),
        ("[::]:0", "query.metrics.public", "metrics_public=True"),
        ("example.org:0", "query.metrics.public", "metrics_public=True"),
    ],
)
def test_addresses_that_are_refused(address: Any, code: str, words: str) -> None:
    with pytest.raises(md.QueryError) as caught:
        md.start(query(), metrics=address)
    assert caught.value.code == code
    assert words in f"{caught.value.message} {caught.value.hint}"


def test_all_addresses_where_that_is_allowed() -> None:
    with md.start(query(), metrics="0.0.0.0:0", metrics_public=True) as run:
        assert run.metrics_address is not None
        assert "medusa_box" in read(run.metrics_address.replace("0.0.0.0", "127.0.0.1"))


def test_a_port_that_is_taken_leaves_nothing_behind(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        with pytest.raises(md.QueryError, match="can't listen") as caught:
            md.start(query(), checkpoint=tmp_path / "s", metrics=address)
        assert caught.value.code == "query.metrics.listen"
    with md.start(query(), checkpoint=tmp_path / "s", metrics=address):  # the folder is as it was
        pass


def test_a_run_that_goes_on_can_begin_to_serve_once() -> None:
    with md.start(query()) as run:
        assert run.metrics_address is None
        run.serve_metrics("127.0.0.1:0")
        assert "medusa_box" in read(run.metrics_address)
        with pytest.raises(md.QueryError, match="serves them already"):
            run.serve_metrics("127.0.0.1:0")
    with pytest.raises(md.StateError, match="closed"):
        run.serve_metrics("127.0.0.1:0")


def test_without_the_package_the_line_to_install_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = builtins.__import__

    def absent(name: str, *more: Any) -> Any:
        if name.startswith("prometheus_client"):
            raise ImportError(name)
        return honest(name, *more)

    monkeypatch.setattr(builtins, "__import__", absent)
    with pytest.raises(md.QueryError) as caught:
        md.start(query(), metrics="127.0.0.1:0")
    assert caught.value.hint == "pip install 'medusa-streams[metrics]'"
    md.start(query()).close()
