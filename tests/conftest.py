"""Options of the test run: which tests, how random, and going on where a long run stopped."""

from __future__ import annotations

import os
import signal
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from tests.left_behind import LeftBehind
from tests.resume import Resume
from tests.sampling import left_to_ci

# The same examples at each `make test`, so that a red one is red again; new ones in `make test-full`.
# How long it takes to draw them says how busy the machine is.
UNTIMED: dict[str, Any] = {"deadline": None, "suppress_health_check": [hypothesis.HealthCheck.too_slow]}
hypothesis.settings.register_profile("fixed", database=None, derandomize=True, **UNTIMED)
hypothesis.settings.register_profile("fresh", database=None, print_blob=True, **UNTIMED)

HAS_SPARK = find_spec("pyspark") is not None
collect_ignore = [] if HAS_SPARK else ["spark"]


def pytest_report_header(config: pytest.Config) -> str | None:
    if HAS_SPARK or config.getoption("--before", None):  # It ran before this run.
        return None
    return "tests/spark is left out: pyspark isn't installed here (make test-spark)"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """One more than there are cores: a third of the time tests wait, for processes that they started."""
    return 1 + len(
        os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
    )


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--ci", action="store_true", help="run what tests/sample.toml leaves out, and nothing else"
    )
    parser.addoption("--unsampled", action="store_true", help="run what tests/sample.toml leaves out too")
    parser.addoption("--full", action="store_true", help="run all, those marked full too")
    parser.addoption("--issue", type=int, help="only full tests marked with this issue")
    parser.addoption("--resume", metavar="FILE", help="leave out tests that passed with the same code")


def pytest_configure(config: pytest.Config) -> None:
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as shells start what runs behind a prompt
        signal.signal(signal.SIGINT, signal.default_int_handler)
    hypothesis.settings.load_profile("fresh" if config.getoption("--full") else "fixed")
    if config.getoption("--resume"):
        config.pluginmanager.register(Resume(config, Path(config.getoption("--resume"))))
    if not hasattr(config, "workerinput"):  # The process that ends last looks.
        config.pluginmanager.register(LeftBehind(Path(__file__).resolve().parents[1]))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    named = config.getoption("--unsampled") or any(
        "::" in arg for arg in config.args
    )  # Who names a test means it.
    left = set() if named else left_to_ci(items)
    wanted = [item for item in items if _wanted(config, item, item.nodeid in left, named=named)]
    if len(wanted) < len(items):
        ids = {item.nodeid for item in wanted}
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in ids])
        items[:] = wanted


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Of a file or a test that isn't there pytest-xdist says nothing."""
    ended = getattr(node, "workeroutput", {}).get("exitstatus")
    if ended == pytest.ExitCode.USAGE_ERROR and node.gateway.id == "gw0":  # All say the same.
        asked = " ".join(node.config.args)
        said = node.config.pluginmanager.get_plugin("terminalreporter")
        said.write_line(f"ERROR: no such file or test: {asked} (-n 0 says which)", red=True)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how fast the simulator's seeds were."""
    reports = [report for each in terminalreporter.stats.values() for report in each]
    said = [each for report in reports for each in getattr(report, "user_properties", ())]
    noted = [value for name, value in said if name == "seed"]
    for name in sorted({name for name, _, _ in noted}):
        events = [events for each, events, _ in noted if each == name]
        seconds = sum(seconds for each, _, seconds in noted if each == name)
        terminalreporter.write_line(
            f"simulator, {name}: {len(events)} seeds, {len(events) / seconds:.1f} a second of one core, "
            f"{sum(events) / seconds:,.0f} events a second"
        )


def _wanted(config: pytest.Config, item: pytest.Item, in_ci: bool, *, named: bool) -> bool:
    full = item.get_closest_marker("full") is not None
    issue = config.getoption("--issue")
    if issue is None:
        chosen = named or in_ci == config.getoption("--ci")
        return config.getoption("--full") or (not full and chosen)
    marker = item.get_closest_marker("issue")
    return full and marker is not None and marker.args[0] == issue


@pytest.fixture
def trains_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """What waits for a receiver goes train by train: for a test whose trains are published at one moment."""
    monkeypatch.setattr("medusa.wire.link.sender.GATHERED_BYTES", 0)
