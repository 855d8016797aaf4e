"""The decision log of a fragment on its node: what it was fed is on disk before what came of it leaves.

    fed ──> noted ──> Log ──> disk ──> logged ──> what was made of it leaves
              └── meanwhile more is noted: the next write takes it all (group commit)

A file of the log begins with each checkpoint and bears its token. Decisions have numbers, and a
checkpoint says how many came before it, so it doesn't matter which of the two is durable first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from medusa.nodes.fragment.input_log_records import Decision, pack
from medusa.wire.outbox import Log, Outbox

__all__ = ["InputLog"]

RETRY_US = 200_000
"""A write that failed is tried again after this. A checkpoint helps as well."""

RECORD_MAX = 100_000
"""Decisions of one write: it is read back as a whole."""

NOTED_MAX = 1_000_000
"""Decisions that wait for a disk that fails; then nothing is fed until it doesn't."""


class InputLog:
    """Notes what is fed, and knows how much of it is on disk.

    Args:
        fragment: whose.
        at: the number of the next decision.
        usable: what is on disk and this log together would give the fragment back.

    Attributes:
        at: the number of the next decision.
        durable: decisions below it are on disk, in the log or in a checkpoint.
        usable: else only checkpoints make decisions durable, until one holds that it is.
        writes, failures: of the log, since the process started.
        why: the last write failed; empty: it did not.
    """

    def __init__(
        self,
        fragment: str,
        *,
        outbox: Outbox,
        next_token: Callable[[], int],
        at: int,
        usable: bool,
    ) -> None:
        self.at = self.durable = at
        self.usable = usable
        self.writes = self.failures = 0
        self.why = ""
        self._fragment = fragment
        self._outbox = outbox
        self._next_token = next_token
        self._file = 0
        """The file that is written; 0: the next write begins one."""
        self._new: deque[Decision] = deque()
        """Noted and not on disk; the last has the number ``at - 1``."""
        self._writing: int | None = None
        """The number of the decision after those that are under way to disk."""
        self._retry_us: int | None = None

    @property
    def full(self) -> bool:
        """Too much waits for the disk to feed more."""
        return len(self._new) >= NOTED_MAX

    def note(self, decision: Decision | None) -> int:
        """Something is fed; its number. None: nothing that comes out depends on the order, so far."""
        if decision is not None:
            self._new.append(decision)
        self.at += 1
        return self.at - 1

    def write(self, now_us: int) -> None:
        """Write what was noted, unless a write is under way or has just failed."""
        if not self._new or self._writing is not None or not self.usable:
            return
        if self._retry_us is not None and now_us < self._retry_us:
            return
        self._retry_us = None
        self._file = self._file or self._next_token()
        first = self.at - len(self._new)
        taken = [self._new[place] for place in range(min(len(self._new), RECORD_MAX))]
        self._writing = first + len(taken)
        self._outbox.append(
            Log(fragment=self._fragment, number=self._file, data=pack(self._fragment, first, taken))
        )

    def logged(self, now_us: int, ok: bool, why: str = "") -> None:
        """The write is durable, or failed: then what it held is written again with what came since."""
        end, self._writing = self._writing, None
        assert end is not None, "no write of the log is under way"
        self.writes += 1
        self.why = why
        if ok:
            self._is_durable(end)
        else:
            self.failures += 1
            self._file = 0  # Nothing is written behind what may be there in part.
            self._retry_us = now_us + RETRY_US
            self._outbox.report("error", "decisions not logged", fragment=self._fragment, why=why)
        self.write(now_us)

    def _is_durable(self, end: int) -> None:
        self.durable = max(self.durable, end)
        while self._new and self.at - len(self._new) < self.durable:
            self._new.popleft()

    # --- checkpoints ----------------------------------------------------------------------------

    def turn(self, token: int) -> None:
        """A checkpoint with this token is being taken: what is fed from now on comes after it."""
        self._file = token

    def covered(self, at: int, *, usable: bool) -> None:
        """A checkpoint is durable that holds the decisions below ``at``.

        Args:
            usable: what is fed after it is all noted.
        """
        self.usable = self.usable or usable
        self.why = ""
        self._is_durable(at)

    def begin_again(self, count: int) -> None:
        """So many decisions are on disk already and are to be done again."""
        self.durable = self.at + count

    def again(self) -> int:
        """One of them is; its number."""
        self.at += 1
        return self.at - 1

    def give_up(self) -> None:
        """The rest of them can't be: from the next checkpoint on the log goes on behind them."""
        self.at = max(self.at, self.durable)
        self.usable = False

    # --- time -----------------------------------------------------------------------------------

    def wake_at_us(self) -> int | None:
        """When ``write`` has work."""
        return self._retry_us if self._new and self._writing is None else None
