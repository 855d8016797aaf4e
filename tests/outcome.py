"""A plugin of pytest that lets one run count the tests of another: -p tests.outcome.

``--outcome=FILE`` keeps there what came out, ``--outcome-of=NAME`` says of what run; ``--before=FILE`` of a
later run adds that to its own summary and exit status, so that its last line is about both. ``--beside=FILE``
does the same with a run that may not have ended yet.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

__all__ = ["keep"]

GREEN = (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--outcome", metavar="FILE", help="keep there what came out")
    parser.addoption(
        "--outcome-of", metavar="NAME", default="the run before", help="what the run is called there"
    )
    parser.addoption("--before", metavar="FILE", help="count what a run before kept there")
    parser.addoption("--beside", metavar="FILE", help="count what a run that goes on beside will keep there")


def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config, "workerinput"):  # The process that hears of all tests alone does it.
        return
    if config.getoption("--outcome"):
        config.pluginmanager.register(Keeps(config, Path(config.getoption("--outcome"))))
    if config.getoption("--before"):
        before = Adds(config, Path(config.getoption("--before")))
        before.read()
        config.pluginmanager.register(before)
    if config.getoption("--beside"):
        config.pluginmanager.register(Adds(config, Path(config.getoption("--beside"))))


def keep(path: Path, outcome: dict[str, Any]) -> None:
    """Whoever waits for the file finds it whole."""
    written = path.with_suffix(".part")
    written.write_text(json.dumps(outcome, default=str))
    written.replace(path)


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
        keep(self._path, outcome)


class Adds:
    def __init__(self, config: pytest.Config, path: Path) -> None:
        self._config = config
        self._path = path
        self._outcome: dict[str, Any] | None = None

    def read(self) -> dict[str, Any]:
        """Waits until it is there: who starts the other run leaves the file whatever becomes of it."""
        if self._outcome is None:
            if not self._path.exists():
                reporter = self._config.pluginmanager.get_plugin("terminalreporter")
                reporter.write_line("\nthe tests of Spark go on")
            while not self._path.exists():
                time.sleep(0.1)
            self._outcome = json.loads(self._path.read_text())
        return self._outcome

    def _read(self, data: dict[str, Any]) -> Any:
        report = self._config.hook.pytest_report_from_serializable(config=self._config, data=data)
        if isinstance(report.longrepr, list):  # A skip's place and reason: a tuple before it was JSON.
            report.longrepr = tuple(report.longrepr)
        return report

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        outcome, stats = self.read(), self._config.pluginmanager.get_plugin("terminalreporter").stats
        reports = outcome.get("reports", {})
        for category, found in reports.items():
            stats.setdefault(category, []).extend(self._read(each) for each in found)
        if outcome["status"] not in GREEN and session.exitstatus in GREEN:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        elif reports and session.exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED:
            session.exitstatus = pytest.ExitCode.OK

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        outcome = self.read()
        parts = [f"{len(reports)} {category}" for category, reports in outcome.get("reports", {}).items()]
        seconds = outcome.get("seconds", 0.0)
        counted = f"{outcome['of']}, counted below: {', '.join(parts) or 'none chosen'} in {seconds:.0f} s"
        red = outcome["status"] not in GREEN
        terminalreporter.write_line(outcome.get("said") or counted, red=red)
