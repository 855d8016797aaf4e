"""A plugin of pytest that lets one run count the tests of another: -p tests.outcome.

``--outcome=FILE`` keeps there what came out, ``--outcome-of=NAME`` says of what run; ``--before=FILE`` of a
later run adds that to its own summary and exit status, so that its last line is about both. It may be given
twice. ``--beside=FD`` does the same with a run that may go on: what that one keeps is read there at the end.
"""

from __future__ import annotations

import json
import select
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

GREEN = (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--outcome", metavar="FILE", help="keep there what came out")
    parser.addoption(
        "--outcome-of", metavar="NAME", default="the run before", help="what the run is called there"
    )
    parser.addoption("--before", metavar="FILE", action="append", help="count what a run before kept there")
    parser.addoption("--beside", metavar="FD", type=int, help="count what a run beside this one writes there")


def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config, "workerinput"):  # The process that hears of all tests alone does it.
        return
    if config.getoption("--outcome"):
        config.pluginmanager.register(Keeps(config, Path(config.getoption("--outcome"))))
    for before in config.getoption("--before") or ():
        text = Path(before).read_text()
        config.pluginmanager.register(Adds(config, lambda text=text: text))  # type: ignore[misc]
    if config.getoption("--beside") is not None:
        config.pluginmanager.register(Adds(config, lambda: _awaited(config, config.getoption("--beside"))))


def _awaited(config: pytest.Config, source: int) -> str:
    """What comes there; who starts the other run writes it whatever becomes of that, and closes it."""
    if not select.select([source], [], [], 0)[0]:
        config.pluginmanager.get_plugin("terminalreporter").write_line("\nthe tests of Spark go on")
    with open(source, encoding="utf-8") as file:
        return file.read()


class Keeps:
    def __init__(self, config: pytest.Config, path: Path) -> None:
        self._config = config
        self._path = path
        self._start = time.monotonic()

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        found: dict[str, list[Any]] = {}
        for category, reports in self._config.pluginmanager.get_plugin("terminalreporter").stats.items():
            kept = [each for each in reports if isinstance(each, pytest.TestReport | pytest.CollectReport)]
            if category and kept:  # The nameless ones are what goes on before and behind tests.
                found[category] = [
                    self._config.hook.pytest_report_to_serializable(config=self._config, report=each)
                    for each in kept
                ]
        seconds = time.monotonic() - self._start
        of = self._config.getoption("--outcome-of")
        outcome = {"of": of, "status": int(session.exitstatus), "seconds": seconds, "reports": found}
        self._path.write_text(json.dumps(outcome, default=str))


class Adds:
    def __init__(self, config: pytest.Config, text: Callable[[], str]) -> None:
        self._config = config
        self._text = text
        self._outcome: dict[str, Any] = {}

    def _read(self, data: dict[str, Any]) -> Any:
        report = self._config.hook.pytest_report_from_serializable(config=self._config, data=data)
        if isinstance(report.longrepr, list):  # A skip's place and reason: a tuple before it was JSON.
            report.longrepr = tuple(report.longrepr)
        return report

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        self._outcome = outcome = json.loads(self._text())
        stats = self._config.pluginmanager.get_plugin("terminalreporter").stats
        reports = outcome.get("reports", {})
        for category, found in reports.items():
            stats.setdefault(category, []).extend(self._read(each) for each in found)
        if outcome["status"] not in GREEN and session.exitstatus in GREEN:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        elif reports and session.exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED:
            session.exitstatus = pytest.ExitCode.OK

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        outcome = self._outcome
        parts = [f"{len(reports)} {category}" for category, reports in outcome.get("reports", {}).items()]
        seconds = outcome.get("seconds", 0.0)
        counted = f"{outcome['of']}, counted below: {', '.join(parts) or 'none chosen'} in {seconds:.0f} s"
        red = outcome["status"] not in GREEN
        terminalreporter.write_line(outcome.get("said") or counted, red=red)
