"""Lets a long run go on where it stopped: tests that passed with the same code are left out."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("medusa", "pyspark_medusa", "native", "bindings", "tests", "examples", "docs")
FILES = ("pyproject.toml", "setup.py", "README.md", "Makefile")


def code_digest(root: Path = ROOT) -> str:
    """Changes whenever anything that a test may depend on does."""
    digest = hashlib.sha256()
    paths = [path for folder in FOLDERS for path in sorted((root / folder).rglob("*"))]
    for path in [*paths, *(root / name for name in FILES)]:
        if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".so":
            content = hashlib.sha256(path.read_bytes()).hexdigest()
            digest.update(f"{path.relative_to(root)}\0{content}\n".encode())
    return digest.hexdigest()


class Resume:
    """A pytest plugin. The file holds the code's digest and the ids of the tests that passed; it is
    written after each test, so a kill loses none.

    Where pytest-xdist runs the tests in several processes, the one that hears of all alone reads and writes
    the file, and tells the others at their start: they must leave out the same tests, also one that takes
    the place of another that died.
    """

    def __init__(self, config: pytest.Config, path: Path, *, code: str | None = None) -> None:
        told: dict[str, Any] | None = getattr(config, "workerinput", None)
        self._writes = told is None
        self._path = path
        self._code = (code or code_digest()) if told is None else ""
        self._passed = self._read() if told is None else set(told["passed"])
        self._before = frozenset(self._passed)
        self._left_out = 0
        self._call_passed: set[str] = set()

    def _read(self) -> set[str]:
        try:
            saved = json.loads(self._path.read_text())
            return set(saved["passed"]) if saved["code"] == self._code else set()
        except (OSError, ValueError, KeyError, TypeError):
            return set()  # none yet, or not ours: run everything

    def _write(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        new = self._path.with_suffix(".new")
        new.write_text(json.dumps({"code": self._code, "passed": sorted(self._passed)}))
        new.replace(self._path)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        left_out = [item for item in items if item.nodeid in self._before]
        self._left_out = len(left_out)
        if left_out:
            config.hook.pytest_deselected(items=left_out)
            items[:] = [item for item in items if item.nodeid not in self._before]
        if not self._writes:
            config.workeroutput["left_out"] = self._left_out  # type: ignore[attr-defined]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not self._writes or not report.passed:
            return
        if report.when == "call":
            self._call_passed.add(report.nodeid)
        elif report.when == "teardown" and report.nodeid in self._call_passed:
            self._passed.add(report.nodeid)
            self._write()

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        node.workerinput["passed"] = sorted(self._before)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        self._left_out = max(self._left_out, getattr(node, "workeroutput", {}).get("left_out", 0))

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and self._left_out:
            session.exitstatus = pytest.ExitCode.OK

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._left_out:
            terminalreporter.write_line(f"{self._left_out} tests passed before with this code: left out")
