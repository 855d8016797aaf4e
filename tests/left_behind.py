"""No test leaves a file in the tree: what git sees after a run that it hasn't seen before."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

__all__ = ["LeftBehind", "changed_files"]


def changed_files(root: Path) -> set[str]:
    """Lines of ``git status``: files that are new or changed and not ignored; empty outside of a clone."""
    command = ["git", "-C", str(root), "status", "--porcelain", "--untracked-files=all"]
    try:
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return set()
    return set(ran.stdout.splitlines()) if ran.returncode == 0 else set()


class LeftBehind:
    """A pytest plugin. In CI what a run leaves is a failure; elsewhere it may be somebody's edit, and is
    said."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._before: set[str] = set()
        self._found: list[str] = []

    def pytest_sessionstart(self) -> None:
        self._before = changed_files(self._root)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        self._found = sorted(changed_files(self._root) - self._before)
        if self._found and os.environ.get("CI"):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for line in self._found:
            terminalreporter.line(f"the run left in the tree: {line}")
