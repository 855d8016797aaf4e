"""A plugin of pytest that lets one run count the tests of another: -p tests.outcome.

``--outcome=FILE`` keeps there what came out, ``--outcome-of=NAME`` says of what run; ``--before=FILE`` of a
later run adds that to its own summary and exit status, so that its last line is about both. It may be given
twice.
"""

from __future__ import annotations

import json
import time
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


def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config, "workerinput"):  # The process that hears of all tests alone does it.
        return
    if config.getoption("--outcome"):
        config.pluginmanager.register(Keeps(config, Path(config.getoption("--outcome"))))
    for before in config.getoption("--before") or ():
        config.pluginmanager.register(Adds(config, Path(before)))


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
                found[category] = [self._written(each) for each in kept]
        seconds = time.monotonic() - self._start
        of = self._config.getoption("--outcome-of")
        outcome = {"of": of, "status": int(session.exitstatus), "seconds": seconds, "reports": found}
        self._path.write_text(json.dumps(outcome, default=str))

    def _written(self, report: pytest.TestReport | pytest.CollectReport) -> dict[str, Any]:
        data = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        data.pop("node", None)  # xdist's worker, which no later run has.
        return data


class Adds:
    def __init__(self, config: pytest.Config, path: Path) -> None:
        self._config = config
        outcome = json.loads(path.read_text())
        self._green = outcome["status"] in GREEN
        self._of: str = outcome["of"]
        self._said: str = outcome.get("said", "")
        self._seconds: float = outcome.get("seconds", 0.0)
        self._reports = {
            category: [self._read(each) for each in reports]
            for category, reports in outcome.get("reports", {}).items()
        }

    def _read(self, data: dict[str, Any]) -> Any:
        report = self._config.hook.pytest_report_from_serializable(config=self._config, data=data)
        if isinstance(report.longrepr, list):  # A skip's place and reason: a tuple before it was JSON.
            report.longrepr = tuple(report.longrepr)
        return report

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        stats = self._config.pluginmanager.get_plugin("terminalreporter").stats
        for category, reports in self._reports.items():
            stats.setdefault(category, []).extend(reports)
        if not self._green and session.exitstatus in GREEN:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        elif self._reports and session.exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED:
            session.exitstatus = pytest.ExitCode.OK

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        counted = ", ".join(f"{len(reports)} {category}" for category, reports in self._reports.items())
        counted = f"{self._of}, counted below: {counted or 'none chosen'} in {self._seconds:.0f} s"
        terminalreporter.write_line(self._said or counted, red=not self._green)
