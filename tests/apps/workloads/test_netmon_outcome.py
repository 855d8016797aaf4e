"""Screen, report and JSON of an outcome that needs no nodes."""

from __future__ import annotations

import html
import io
import json
import re
from dataclasses import replace

import pytest
from rich.console import Console

from medusa.apps.workloads import netmon, netmon_check
from medusa.apps.workloads.demos import netmon_report
from medusa.apps.workloads.demos.netmon_outcome import Latency, NetmonOutcome, percentile
from medusa.apps.workloads.demos.netmon_screen import NetmonProgress, show_outcome
from medusa.apps.workloads.demos.screens import DemoScreen, NodeSample
from medusa.apps.workloads.demos.spark_demo import SparkProgress


@pytest.fixture(scope="module")
def outcome() -> NetmonOutcome:
    trace = netmon.load_trace()
    rows = netmon_check.by_python(trace)
    return NetmonOutcome(
        results={},
        rows=rows,
        comparisons=netmon_check.compare(rows, rows),
        checked_by="plain Python",
        flows=len(trace),
        late=0,
        span_us=971_000_000,
        seconds=2.0,
        speed=0.0,
        seed=3,
        latencies=[Latency("both", 60_000_000 * at, 1_000 * at) for at in range(1, 101)],
        samples=[NodeSample(at / 5, "core", at * 100, at, None) for at in range(20)],
        bots=frozenset({"147.32.84.165", "192.0.2.1"}),
    )


def altered(outcome: NetmonOutcome) -> NetmonOutcome:
    rows = {**outcome.rows, "wide": outcome.rows["wide"][1:]}
    return replace(outcome, rows=rows, comparisons=netmon_check.compare(rows, outcome.rows))


def shown(outcome: NetmonOutcome) -> str:
    text = io.StringIO()
    show_outcome(DemoScreen(Console(file=text, width=120)), outcome)
    return text.getvalue()


@pytest.mark.parametrize(
    ("values", "share", "expected"),
    [([], 0.5, 0), ([7], 0.99, 7), ([4, 1, 3, 2], 0.5, 2), (list(range(1, 101)), 0.99, 99), ([1, 2], 1.0, 2)],
)
def test_percentiles_are_values_that_came(values: list[int], share: float, expected: int) -> None:
    assert percentile(values, share) == expected


def test_json_holds_the_figures(outcome: NetmonOutcome) -> None:
    found = json.loads(json.dumps(outcome.to_json()))
    assert found["equal"] is True
    assert found["figures"]["groups"] == 33_531
    assert found["flows_per_s"] == 53_626
    assert (found["latency_p50_us"], found["latency_p99_us"]) == (50_000, 99_000)


def test_the_end_says_what_was_found(outcome: NetmonOutcome) -> None:
    text = shown(outcome)
    assert "17 windows, 33,531 groups, 144 heavy, 108 wide, 59 both with 12 sources, 53 clusters" in text
    assert "1 of them among the sources of both: 147.32.84.165" in text
    assert "check by plain Python: equal" in text
    assert "not equal" not in text


def test_the_end_says_what_is_wrong(outcome: NetmonOutcome) -> None:
    text = shown(altered(outcome))
    assert "check by plain Python: not equal" in text
    assert str(outcome.rows["wide"][0][1]) in text
    assert altered(outcome).to_json()["results"]["wide"]["missing"] == 1


def test_the_report_stands_alone(outcome: NetmonOutcome) -> None:
    page = netmon_report.html_report(outcome, netmon.query())
    assert page.count("<svg") == 5
    assert not re.search(r"<(link|script|img)\b", page)
    assert html.escape(netmon.CITATION) in page
    assert '<b class="good">equal</b>' in page


def test_fonts_that_this_machine_lacks_are_no_matter_of_ours(
    outcome: NetmonOutcome, caplog: pytest.LogCaptureFixture
) -> None:
    matplotlib = pytest.importorskip("matplotlib")
    with matplotlib.rc_context({"font.family": "No Such Font", "font.sans-serif": []}):
        assert netmon_report.html_report(outcome, netmon.query()).count("<svg") == 5
    assert not caplog.records


@pytest.fixture
def no_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(netmon_report.importlib.util, "find_spec", lambda name: None)


@pytest.mark.usefixtures("no_matplotlib")
def test_the_report_says_not_equal(outcome: NetmonOutcome) -> None:
    assert '<b class="bad">not equal</b>' in netmon_report.html_report(altered(outcome), netmon.query())


@pytest.mark.usefixtures("no_matplotlib")
def test_the_report_names_the_extra_that_draws_plots(outcome: NetmonOutcome) -> None:
    page = netmon_report.html_report(outcome, netmon.query())
    assert "medusa-streams[plot]" in page
    assert page.count("<svg") == 1


@pytest.mark.usefixtures("no_matplotlib")
def test_an_address_with_markup_in_it_stays_text(outcome: NetmonOutcome) -> None:
    rows = {**outcome.rows, "both": [(0, "<script>alert(1)</script>[bold]\x1b[2J", 200, 20)]}
    odd = replace(outcome, rows=rows)
    assert "<script>" not in netmon_report.html_report(odd, netmon.query())
    assert "[bold]?[2J" in shown(odd)


def progress() -> NetmonProgress:
    made = NetmonProgress(flows=1_000)
    status = {"node": "edge-1", "rows_in": 0, "queue_bytes": 0, "kept_bytes": 0, "boundary_us": None}
    made.look(0.0, {**status, "fragments": []})
    later = {"rows_in": 500, "queue_bytes": 2_000, "kept_bytes": 48, "boundary_us": 60_000_000}
    made.look(2.0, {**status, **later, "fragments": []})
    made.take("both", [(0, "147.32.84.59", 1_416, 581)])
    made.take("groups", [(0, "147.32.84.59", 1_416, 581)] * 3)
    made.published, made.time_us = 500, 90_000_000
    return made


def test_plain_progress_is_a_line_per_second() -> None:
    text = io.StringIO()
    times = iter([5.0, 5.0, 5.5, 5.99, 6.0])
    screen = DemoScreen(Console(file=text, width=40), clock=lambda: next(times))
    for _ in range(4):
        screen.update(progress())
    line = "500 of 1,000 flows | edge-1 250 rows/s 2 KiB queued | both=1 groups=3"
    assert text.getvalue().splitlines() == [line, line]


def test_progress_that_stands_still_is_not_repeated_where_that_says_nothing() -> None:
    text = io.StringIO()
    times = iter([5.0, 5.0, 6.5, 6.6, 7.5])
    screen = DemoScreen(Console(file=text), clock=lambda: next(times), repeats=False)
    shown = SparkProgress(flows=9, published=3)
    screen.update(shown)
    screen.update(shown)
    shown.rows = 2
    screen.update(shown)
    screen.update(shown)
    assert text.getvalue().splitlines() == [
        "   3 of 9 flows are published, 0 archived",
        "   3 of 9 flows are published, 2 archived",
    ]


def test_live_progress_shows_nodes_and_results() -> None:
    text = io.StringIO()
    with DemoScreen(Console(file=text, width=100, force_terminal=True)) as screen:
        screen.update(progress())
    drawn = text.getvalue()
    for part in ("edge-1", "250", "2 KiB", "30.0 s", "147.32.84.59", "n=1,416 p=581", "groups 3"):
        assert part in drawn
