"""A node is killed for good: when it was noticed, when another one went on, when rows came again."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from bench.recovery.trial import Trial
from tests.system.nodes import until

__all__ = ["Logs", "Loss", "lose"]

LOOK_EVERY_S = 0.002
DEADLINE_S = 120.0


class Logs:
    """What nodes write from now on."""

    def __init__(self, paths: Mapping[str, Path]) -> None:
        self._paths = dict(paths)
        self._read = {name: path.stat().st_size for name, path in self._paths.items()}
        self._text = dict.fromkeys(self._paths, "")

    def has(self, line: str) -> bool:
        """Whether one of them has written a line with these words by now."""
        for name, path in self._paths.items():
            with path.open("rb") as log:
                log.seek(self._read[name])
                fresh = log.read()
            self._read[name] += len(fresh)
            self._text[name] += fresh.decode(errors="replace")
        # Whole words only: "peer=m" is no part of a line about m2.
        return any(f"{line} " in f"{each} " for text in self._text.values() for each in text.splitlines())


@dataclass(frozen=True, slots=True)
class Loss:
    """Of the process of one node, in seconds since it was killed.

    Attributes:
        killed_ns: when (``time.monotonic_ns``).
        published: rows by then.
        noticed_s: until one of the others said that it is gone.
        taken_s: until another node said that it has the fragment.
        total_s: until a row came that is made of one that was published after the kill: the lost process
            can't have had that one.
    """

    killed_ns: int
    published: int
    noticed_s: float
    taken_s: float
    total_s: float


def lose(trial: Trial, victim: str, fragment: str, sink: str = "out", *, also: Sequence[str] = ()) -> Loss:
    """Kill it (SIGKILL), for good, and wait until rows come again.

    Args:
        fragment: of the victim: it is its takeover that is timed.
        also: nodes that are lost at the same time.
    """
    lost = (victim, *also)
    others = {name: trial.nodes.folder / f"{name}.log" for name in trial.nodes.processes if name not in lost}
    logs = Logs(others)
    for name in lost:
        trial.nodes.processes[name].kill()
    killed_ns = time.monotonic_ns()
    published = trial.traffic.before(killed_ns)
    noticed_s = _when(trial, logs, f"peer down peer={victim}", killed_ns)
    taken_s = _when(trial, logs, f"fragment taken over fragment={fragment}", killed_ns)
    arrivals = trial.arrivals[sink]
    trial.until(lambda: is_newer(arrivals.came[-1:], killed_ns), "rows come again")
    for name in lost:
        trial.nodes.kill(name)  # It is gone; this notes it.
    return Loss(killed_ns, published, noticed_s, taken_s, first_after(arrivals.came, killed_ns))


def _when(trial: Trial, logs: Logs, line: str, since_ns: int) -> float:
    def there() -> bool:
        trial.look()
        return logs.has(line)

    until(there, what=f"a node says: {line}", deadline_s=DEADLINE_S, every_s=LOOK_EVERY_S)
    return (time.monotonic_ns() - since_ns) / 1e9


def is_newer(came: Sequence[tuple[int, pa.RecordBatch]], since_ns: int) -> bool:
    """Whether there is a row of one that was published later."""
    return any(pc.max(batch["sent"]).as_py() > since_ns for _, batch in came)


def first_after(came: Sequence[tuple[int, pa.RecordBatch]], since_ns: int) -> float:
    """Seconds until the first row came of one that was published later."""
    at_ns = next(at_ns for at_ns, batch in came if at_ns > since_ns and is_newer([(at_ns, batch)], since_ns))
    return (at_ns - since_ns) / 1e9
