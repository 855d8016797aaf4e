"""What is staged, by attempts of tasks: how much it is, and which of it may go for whom. No IO.

The digits of an attempt are 8 of a run of the driver, the same for all its tasks, and 8 of its own. So what a
driver left that died is told from what runs beside: the run that came later does its work again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

__all__ = ["RUN_DIGITS", "TaskAttempt", "Attempts"]

RUN_DIGITS = 8
RUNS_MAX = 1000
"""Runs that are remembered, the last ones: which of two came first."""


@dataclass(slots=True)
class TaskAttempt:
    """Attributes:
    since_s: when its first chunk came.
    groups: bytes of rows in each group of the store; facts: stream and rows of those that came since the
        gateway was started.
    """

    token: str
    since_s: float
    groups: dict[str, int] = field(default_factory=dict)
    facts: dict[str, tuple[str, int]] = field(default_factory=dict)

    @property
    def whole(self) -> bool:
        return f"{self.token}-whole" in self.groups

    @property
    def nbytes(self) -> int:
        return sum(self.groups.values())

    @property
    def mark(self) -> str:
        return self.token.split("-")[0]

    @property
    def epoch(self) -> str:
        return self.token.split("-")[1]

    @property
    def task(self) -> str:
        return self.token.rpartition("-")[0]


class Attempts:
    """All that is in the store.

    Attributes:
        nbytes, count: bytes of rows, and groups.
    """

    def __init__(self) -> None:
        self._all: dict[str, TaskAttempt] = {}
        self._open: dict[str, dict[str, TaskAttempt]] = {}
        """Mark of the writer -> token -> those that no epoch has named."""
        self._runs: dict[tuple[str, str], int] = {}
        self._last_run = 0
        self.nbytes = self.count = 0

    def get(self, token: str) -> TaskAttempt | None:
        return self._all.get(token)

    def groups(self, token: str) -> dict[str, int]:
        found = self._all.get(token)
        return {} if found is None else found.groups

    def is_published(self, attempt: TaskAttempt) -> bool:
        """An epoch has named it, so it stays until its rows are delivered."""
        return attempt.token not in self._open.get(attempt.mark, {})

    def unpublished(self) -> list[TaskAttempt]:
        """Those that no epoch has named."""
        return [each for found in self._open.values() for each in found.values()]

    # --- changes ----------------------------------------------------------------------------------

    def note(
        self, token: str, name: str, nbytes: int, now_s: float, facts: tuple[str, int] | None = None
    ) -> None:
        """A group is there; without facts it was before the gateway was started, or holds no rows."""
        found = self._all.get(token)
        if found is None:
            found = self._all[token] = TaskAttempt(token, now_s)
            self._open.setdefault(found.mark, {})[token] = found
        found.groups[name] = nbytes
        if facts is not None:
            found.facts[name] = facts
        self.nbytes += nbytes
        self.count += 1

    def removed(self, token: str, name: str) -> None:
        """A group is gone; with its last one the attempt is."""
        found = self._all[token]
        self.nbytes -= found.groups.pop(name)
        self.count -= 1
        if not found.groups:
            del self._all[token]
            self._close(found)

    def _close(self, attempt: TaskAttempt) -> None:
        found = self._open.get(attempt.mark, {})
        found.pop(attempt.token, None)
        if not found:
            self._open.pop(attempt.mark, None)

    def publish(self, tokens: Iterable[str]) -> None:
        """An epoch has named these."""
        for found in [self._all[token] for token in tokens if token in self._all]:
            self._close(found)

    def release(self, tokens: Iterable[str]) -> None:
        """What was published of these is needed no more."""
        for found in [self._all[token] for token in tokens if token in self._all]:
            self._open.setdefault(found.mark, {})[found.token] = found

    def see(self, token: str, *, before: bool = False) -> int:
        """Note the run of an attempt, and say which one it is, by when it first came.

        Args:
            before: the gateway found it when it was started; of those nobody knows which came first.
        """
        key = (token.split("-")[0], token.rpartition("-")[2][:RUN_DIGITS])
        if key not in self._runs:
            if not before:
                self._last_run += 1
            self._runs[key] = 0 if before else self._last_run
            if len(self._runs) > RUNS_MAX:
                del self._runs[next(iter(self._runs))]
        return self._runs[key]

    # --- which may go -----------------------------------------------------------------------------

    def before(self, mark: str, epoch: int) -> list[str]:
        """Attempts of a writer that can't be published any more."""
        found = self._open.get(mark, {}).values()
        return [each.token for each in found if each.epoch != "x" and int(each.epoch) <= epoch]

    def aged(self, since_s: float) -> list[str]:
        """Those that no epoch has named, from before."""
        return [each.token for each in self.unpublished() if each.since_s < since_s]

    def earlier_runs(self, token: str, *, of_task: bool) -> list[str]:
        """What earlier runs left of the epoch of this attempt, or of its task: this run does it again."""
        run = self.see(token)
        return [
            each.token
            for each in self._of_epoch(token)
            if self.see(each.token, before=True) < run and (not of_task or each.task == _task(token))
        ]

    def unfinished_twins(self, token: str) -> list[str]:
        """Attempts of the same task and run that came earlier and aren't whole.

        One that is whole stays: the driver may have been told of it.
        """
        run = self.see(token)
        found: list[str] = []
        for each in self._of_epoch(token):
            if each.token == token:
                break
            if each.task == _task(token) and not each.whole and self.see(each.token, before=True) == run:
                found.append(each.token)
        return found

    def needs(self, token: str, nbytes: int) -> int:
        """How much the epoch of this attempt takes at least, with so many bytes more of this task.

        Attempts of a task bring the same rows, so of each task of this run the largest counts.
        """
        run, tasks = self.see(token), {_task(token): sum(self.groups(token).values()) + nbytes}
        for each in [each for each in self._of_epoch(token) if self.see(each.token, before=True) == run]:
            tasks[each.task] = max(tasks.get(each.task, 0), each.nbytes)
        return sum(tasks.values())

    def _of_epoch(self, token: str) -> list[TaskAttempt]:
        mark, epoch = token.split("-")[:2]
        return [each for each in self._open.get(mark, {}).values() if each.epoch == epoch]


def _task(token: str) -> str:
    return token.rpartition("-")[0]
