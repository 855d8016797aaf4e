"""A program with a Java of its own, which is killed where the test says."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests.system.nodes import until

__all__ = ["Driver"]

DEADLINE_S = 400.0


class Driver:
    """``python -m MODULE ARGUMENTS``, begun."""

    def __init__(self, log: Path, *command: str) -> None:
        self._log = log
        with open(log, "w") as out:
            self._process = subprocess.Popen(
                [sys.executable, "-m", *command],
                stdout=out,
                stderr=out,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )

    def wait(self, there: Callable[[], bool]) -> bool:
        """Until something is so, or the driver is through or was killed; whether it still runs."""
        until(
            lambda: self._process.poll() is not None or there(),
            what="the driver is where it is to be killed",
            deadline_s=DEADLINE_S,
        )
        assert self._process.poll() in (None, 0, -signal.SIGKILL), self._log.read_text()[-5000:]
        return self._process.poll() is None

    def kill(self) -> None:
        """``kill -9`` of Python and Java, as the power goes; workers end with their Java."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
