"""How far a job of Spark is, told while it runs; and what stopped it, as one line."""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeAlias

from medusa.errors import DataError
from medusa.spark.session_setup import NOT_FOUND_HINT, first_line, is_sparks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Tell", "watched"]

Tell: TypeAlias = Callable[[str, int, int], object]
"""Called with what is being done, how many of its tasks are done, and how many there are (0: unknown)."""

EVERY_S = 0.25


@contextlib.contextmanager
def watched(spark: SparkSession, what: str, tell: Tell | None) -> Iterator[None]:
    """Inside, ``tell`` hears some times a second how many tasks are done, from a thread of its own.

    A session of Spark Connect doesn't say; then it hears once.

    Raises:
        DataError: for an error of Spark, with what was wrong in it.
    """
    try:
        with _told(spark, what, tell):
            yield
    except Exception as error:
        if not is_sparks(error):
            raise
        why = _reason(str(error))
        hint = NOT_FOUND_HINT if "DATA_SOURCE_NOT_FOUND" in why else ""
        raise DataError(f"Spark stopped while {what}: {why}", hint=hint, code="data.spark") from error


def _reason(text: str) -> str:
    """What a reader needs of an error of Spark: our message in it, or its first line."""
    for pattern in (
        r"\[USER_RAISED_EXCEPTION\] (.*?) SQLSTATE",
        r"medusa\.errors\.\w+: (.*)",
        r"^(\w+(?:\.\w+)*(?:Error|Exception): .*)",
    ):
        if found := re.search(pattern, text, re.MULTILINE):
            return found[1].strip()[:500]
    return first_line(text)


@contextlib.contextmanager
def _told(spark: SparkSession, what: str, tell: Tell | None) -> Iterator[None]:
    if tell is None:
        yield
        return
    tell(what, 0, 0)
    tracker = None
    with contextlib.suppress(Exception):  # Spark Connect has no context: whatever it raises
        tracker = spark.sparkContext.statusTracker()
    if tracker is None:
        yield
        return
    ended = threading.Event()

    def look() -> None:
        while not ended.wait(EVERY_S):
            stages = [tracker.getStageInfo(id) for id in tracker.getActiveStageIds()]
            found = [stage for stage in stages if stage is not None]
            if found:
                tell(what, sum(one.numCompletedTasks for one in found), sum(one.numTasks for one in found))

    thread = threading.Thread(target=look, daemon=True, name="medusa-pipeline-progress")
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
